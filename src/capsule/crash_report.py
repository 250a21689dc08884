"""Write a crash report: enough for a bug report, nothing of the user's environment."""

from __future__ import annotations

import platform
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from capsule import __version__


def write(fault: Exception, words: list[str], redact: Callable[[str], str] = str) -> Path:
    lines = [
        f"capsule {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {' '.join(words[:1])} ({max(0, len(words) - 1)} more words)",
        "",
        *traceback.format_exception(fault),
    ]
    with tempfile.NamedTemporaryFile("w", prefix="capsule-bug-", suffix=".log", delete=False) as file:
        file.write(redact("\n".join(lines)))
    return Path(file.name)
