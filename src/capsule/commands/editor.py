"""Let a person write in their own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from capsule.commands.arguments import LARGEST_TEXT, decoded
from capsule.core.errors import CapsuleError, UsageError
from capsule.system.files import read_regular
from capsule.system.umask import of_the_user


def can_edit() -> bool:
    """Tell whether there is a terminal to edit on."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def edited(file: Path, text: str) -> str:
    """Open the text in the editor of the environment; return the saved text. The caller removes the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), str(file)], umask=of_the_user(), check=False).returncode
    except (OSError, ValueError) as fault:
        raise CapsuleError(
            f"The editor `{editor}` cannot be started: {fault}.", "Set EDITOR to one that can."
        ) from None
    if code:
        raise CapsuleError(f"`{editor}` ended with exit code {code}; nothing was changed.", f"Your text: {file}")
    return text_of_file(file)


def text_of_file(file: Path, most: int = LARGEST_TEXT, *, strict: bool = False) -> str:
    """Read a text that a person wrote; refuse one that is too large, and with `strict` one that is no UTF-8."""
    try:
        return decoded(read_regular(file, most), str(file), strict=strict)
    except OSError as fault:
        hint = f"Name a text file of at most {most // 1024} KiB."
        raise UsageError(f"{file} cannot be read: {fault.strerror}.", hint) from None
