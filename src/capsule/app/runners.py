"""Runs that outlive the screen that started them: the same command, in a session of its own.

A runner prints to two files in `.capsule/runners/`, so it never waits for a reader; the screen reads them when it has
ended, and they stay for later. A runner has no terminal: closing one does not reach it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.files import write_atomically
from capsule.system.lock import try_lock
from capsule.system.umask import of_the_user

KINDS = ("out", "err")
KEPT = 20
"""How many runners' output files are kept."""
_LONGEST = 1024 * 1024


class Runner:
    """A run that this process started; it keeps running when this process ends."""

    def __init__(self, process: subprocess.Popen[bytes], out: int, err: int) -> None:
        self._process, self._out, self._err = process, out, err
        self.asked = False
        """Whether we asked it to stop."""
        for fd in (out, err):  # a dashboard may stay open for days
            weakref.finalize(self, os.close, fd)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self) -> int:
        """Wait for its end; return the exit code, or below zero the signal that ended it."""
        return self._process.wait()

    def wait_for(self, seconds: float) -> int | None:
        """Wait for so many seconds; return its exit code, or None if it still runs."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def stop(self) -> None:
        """Ask it to stop: the first time it ends its agent and stays resumable, the second time it ends at once."""
        self.asked = True
        self._process.send_signal(signal.SIGINT)  # which sends nothing to one that has ended

    def out(self) -> str:
        return _read(self._out)

    def err(self) -> str:
        return _read(self._err)


def start_runner(root: Path, words: Sequence[str], cwd: Path | None = None) -> Runner:
    """Start `capsule WORDS`, which begin with `run`; it prints only its closing summary, notes and errors."""
    folder = root / ".capsule" / "runners"
    if folder.is_symlink() or folder.parent.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise CapsuleError(f"{folder} is not a plain folder.", "Move it away: the output of runs is kept there.")
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
    files: list[int] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"  # git must ignore it, and it may exist before any mission
        if ignore.is_symlink() or not ignore.exists():
            write_atomically(ignore, "*\n")  # replace a link, never write through it
        _prune(folder)
        files += [_new_file(folder / f"{name}.{kind}") for kind in KINDS]
        out, err = files
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "capsule", *silently(words)],
            cwd=cwd or root,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            umask=of_the_user(),
        )
    except OSError as error:
        for fd in files:
            os.close(fd)
        raise CapsuleError(f"Cannot use {folder}: {error.strerror}.", "Make sure that you may write there.") from error
    return Runner(process, out, err)


def silently(words: Sequence[str]) -> list[str]:
    """Add `--output none`: the last one counts, and after `--` there are no options any more."""
    end = words.index("--") if "--" in words else len(words)
    return [*words[:end], "--output", "none", *words[end:]]


def _prune(folder: Path) -> None:
    """Remove the oldest files, by the time in their names; keep those that are open."""
    for kind in KINDS:
        for old in sorted(folder.glob(f"*.{kind}"))[: -KEPT + 1]:
            with suppress(OSError):
                fd = os.open(old, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    old.unlink()
                finally:
                    os.close(fd)


def _new_file(path: Path) -> int:
    """Create a file that stays locked while a process, such as the runner, has it open: `_prune` keeps those."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_APPEND, 0o600)
    try_lock(fd, fcntl.LOCK_SH, path)
    return fd


def _read(fd: int) -> str:
    """Read the opened file, even if its path names another file by now."""
    return os.pread(fd, _LONGEST, 0).decode(errors="replace")
