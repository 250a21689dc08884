"""Explain what went wrong: one line of cause, one of what to do next; a traceback goes to a file, never to the user."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

from capsule import __version__
from capsule.core.errors import CapsuleError
from capsule.core.redaction import Redactor
from capsule.reports.style import fitted
from capsule.system.files import CannotWrite
from capsule.system.output import silence
from capsule.system.secrets import spelled, values_of


def explain(fault: Exception, words: list[str]) -> int:
    """Print what went wrong, without secrets; return the exit code."""
    if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        fault = _full_disk(fault)
    safe = Redactor(spelled(values_of(os.environ))).text
    if isinstance(fault, CapsuleError):
        print(fitted(f"capsule: {safe(fault.message)}", sys.stderr), file=sys.stderr)
        if fault.hint:
            print(fitted(f"  {safe(fault.hint)}", sys.stderr), file=sys.stderr)
        return fault.exit_code
    print(f"capsule: this is a bug in Capsule: {type(fault).__name__}: {safe(str(fault))}", file=sys.stderr)
    print(f"  Nothing is lost. Please report it with {_write_report(fault, words, safe)}.", file=sys.stderr)
    return 2


def _full_disk(fault: OSError) -> CapsuleError:
    """Return the error for a full or read-only disk, which the user can fix."""
    try:
        sys.stdout.flush()
    except OSError:
        silence(sys.stdout)
    return CannotWrite(Path(os.fsdecode(fault.filename or "the output")), fault)


def _write_report(fault: Exception, words: list[str], redact: Callable[[str], str]) -> Path:
    """Write enough for a bug report into a file, and nothing of the user's environment."""
    lines = [
        f"capsule {__version__}, Python {platform.python_version()}, {platform.platform()}",
        f"command: {' '.join(words[:1])} ({max(0, len(words) - 1)} more words)",
        "",
        *traceback.format_exception(fault),
    ]
    with tempfile.NamedTemporaryFile("w", prefix="capsule-bug-", suffix=".log", delete=False) as file:
        file.write(redact("\n".join(lines)))
    return Path(file.name)
