"""Runs that outlive whoever looks at them: the same command without a screen, in a session of its own.

What a runner prints goes to two files in `.capsule/runners/`, so it never waits for a reader; whoever started it reads
them when it has ended, and they stay for whoever left before. A runner has no terminal: closing one does not reach it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from capsule.core.errors import CapsuleError

KEPT = 20
"""How many runners' last words are kept."""
_LONGEST = 1024 * 1024


class Runner:
    """One that we started. It is ours to wait for, and it goes on when we do not."""

    def __init__(self, process: subprocess.Popen[bytes], out: int, err: int) -> None:
        self._process, self._out, self._err = process, out, err

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Its exit code; below zero, the signal that ended it."""
        return self._process.wait()

    def stop(self) -> None:
        """Asked once it ends its agent and stays resumable; asked twice it goes at once."""
        self._process.send_signal(signal.SIGINT)  # which sends nothing to one that has ended

    def out(self) -> str:
        return _read(self._out)

    def err(self) -> str:
        return _read(self._err)


def start_runner(root: Path, words: Sequence[str], cwd: Path | None = None) -> Runner:
    """`capsule WORDS`, where WORDS begin with `run`. Only its closing summary, notes and errors are printed."""
    folder = _folder(root)
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
    out, err = (_new_file(folder / f"{name}.{kind}") for kind in ("out", "err"))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "capsule", *silently(words)],
        cwd=cwd or root,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )
    return Runner(process, out, err)


def silently(words: Sequence[str]) -> list[str]:
    """The last `--output` counts; after `--` there are no options any more."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--output", "none", *words[end:]]


def _folder(root: Path) -> Path:
    """Git need not know of it, whatever the project ignores: it is there before any mission is."""
    folder = root / ".capsule" / "runners"
    if folder.is_symlink() or folder.parent.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CapsuleError(f"{folder} is no folder of its own.", "Move it away: the last words of runs are kept there.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
        _prune(folder)
    except OSError as error:
        raise CapsuleError(f"Cannot use {folder}: {error.strerror}.", "Make sure that you may write there.") from error
    return folder


def _prune(folder: Path) -> None:
    """Their names begin with when they were made."""
    for suffix in (".out", ".err"):
        for old in sorted(folder.glob(f"*{suffix}"))[: -KEPT + 1]:
            with suppress(FileNotFoundError):
                old.unlink()


def _new_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o600)


def _read(fd: int) -> str:
    """By the file that was opened, whatever stands in its place by now."""
    return os.pread(fd, _LONGEST, 0).decode(errors="replace")
