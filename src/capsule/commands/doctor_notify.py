"""What `capsule doctor` finds out about `notify`: whether what it names can be run. Nothing of it is run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from capsule.commands.doctor import Finding
from capsule.commands.notifying import away_from_the_project
from capsule.core.notification import BELL, channels

PATIENCE = 10.0
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_HINT = "Mend `notify` in the settings; docs/how-to/notifications.md has examples."


def notify_findings(setting: str | Sequence[str], root: Path | None) -> Iterator[Finding]:
    for channel in channels(setting):
        yield Finding("notify", "ok", "the terminal's bell") if channel == BELL else _finding(channel, root)


def _finding(command: str, root: Path | None) -> Finding:
    if fault := _asked("-n", "-c", command):
        return Finding("notify", "warning", f"`{command}` is no shell command: {fault}", _HINT)
    program = _program(command)
    if program and not _is_there(program):
        return Finding("notify", "warning", f"`{program}` is not installed, so nobody would be told", _HINT)
    if root and Path(program).is_absolute() and Path(program).is_relative_to(root):
        hint = "Keep it elsewhere: the command runs outside of every sandbox."
        return Finding("notify", "warning", f"{program} lies in the project, where agents can change it", hint)
    return Finding("notify", "ok", f"`{command}`")


def _program(command: str) -> str:
    """The first word that is no assignment; '' where that cannot be told."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    first = next((word for word in words if not _ASSIGNMENT.match(word)), "")
    return "" if "$" in first or "`" in first else os.path.expanduser(first)  # noqa: PTH111 (a word, maybe no path)


def _is_there(program: str) -> bool:
    """For the shell too: it has words of its own, such as `case`."""
    home = away_from_the_project(os.environ.get("HOME", ""))
    if "/" in program:
        return os.access(home / program, os.X_OK)
    return bool(shutil.which(program)) or not _asked("-c", 'command -v -- "$1"', "sh", program)


def _asked(*words: str) -> str:
    """What `sh` has to complain about; '' where nothing."""
    try:
        done = subprocess.run(
            ["sh", *words], capture_output=True, text=True, errors="replace", timeout=PATIENCE, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}") if done.returncode else ""
