"""Locks that die with their holder.

The kernel keeps them (flock), so kill -9 releases them and there is no stale lock to clean up. The file's text, pid and
command, is information for people only: whether somebody holds the lock is always asked of the kernel. Lock files are
never deleted; deleting one that another process is about to open would make two holders.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from capsule.core.errors import CapsuleError, LockHeld

# `holder` takes the lock for an instant in order to ask: a short second try tells that from a real holder.
_PROBE_ALLOWANCE = 0.1
_RETRY_INTERVAL = 0.01
_COMMAND_LIMIT = 200
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class NoLocks(CapsuleError):
    """The file system has no locks to keep two runs from working on the same mission."""

    def __init__(self, folder: Path) -> None:
        hint = "Move the repository to a local disk, or mount that one with locks (on NFS: without `nolock`)."
        super().__init__(f"{folder} is on a file system that does not support file locks.", hint)


class FileLock:
    """A lock with one holder at a time, among processes and within one; programs we start do not inherit it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, wait: float = 0) -> None:
        """Take the lock, waiting up to `wait` seconds; LockHeld names who has it."""
        if self._fd is not None:
            raise RuntimeError(f"{self.path} is already held by this very object")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            hint = "Make sure that you may write there, and that it is not a link."
            raise CapsuleError(f"Cannot open the lock {self.path}: {error.strerror}", hint) from error
        try:
            _lock(fd, self.path, max(wait, _PROBE_ALLOWANCE))
            command = " ".join(" ".join(sys.argv).split())[:_COMMAND_LIMIT]
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()} {command}\n".encode(errors="replace"), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def __enter__(self) -> FileLock:
        if self._fd is None:
            self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextlib.contextmanager
def held(path: Path | None, wait: float = 0) -> Iterator[None]:
    """Hold the lock for as long as the block takes; do nothing without a path."""
    lock = FileLock(path) if path else None
    if lock:
        lock.acquire(wait)
    with lock or contextlib.nullcontext():
        yield


def holder(path: Path) -> int | None:
    """Return the pid of the lock's holder, None if it is free.

    Raises LockHeld if it is held by a process that cannot be named from here (another container, another machine).
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        if try_lock(fd, fcntl.LOCK_SH, path):
            return None
        if pid := _pid_from_kernel(os.fstat(fd)):
            return pid
        deadline = time.monotonic() + _PROBE_ALLOWANCE  # between taking a lock and signing it lies an instant
        while time.monotonic() < deadline:
            signed, _ = _signature(path)
            if signed is not None:
                return signed
            time.sleep(_RETRY_INTERVAL)
    except NoLocks:
        return None  # where there are none nobody can hold one, and looking on is no work
    finally:
        os.close(fd)
    raise LockHeld(f"{path.stem} is locked by a process that cannot be seen from here", "Wait until it has ended.")


def try_lock(fd: int, kind: int, path: Path) -> bool:
    """Lock without waiting; False where somebody else has it, NoLocks where the file system has none to give."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise NoLocks(path.parent) from error
        raise
    return True


def _lock(fd: int, path: Path, wait: float) -> None:
    deadline = time.monotonic() + wait
    while not try_lock(fd, fcntl.LOCK_EX, path):
        if time.monotonic() >= deadline:
            signed, command = _signature(path)
            pid = _pid_from_kernel(path.stat()) or signed
            if pid is None:
                raise LockHeld(f"{path.stem} is locked by another process", "Wait until it has ended.")
            words = f" ({command})" if command and pid == signed else ""
            hint = f"Wait until it has ended, or stop it: kill {pid}"
            raise LockHeld(f"{path.stem} is locked by pid {pid}{words}", hint)
        time.sleep(_RETRY_INTERVAL)


def _signature(path: Path) -> tuple[int | None, str]:
    pid, _, command = path.read_bytes()[:1024].decode(errors="replace").strip().partition(" ")
    return (int(pid), command) if pid.isdecimal() else (None, "")


def _pid_from_kernel(status: os.stat_result) -> int | None:
    """Look the holder up in Linux's list of locks; a file system may hide its device number."""
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return None
    # `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`: READ is somebody asking, as we do; pid 0 is out of our sight.
    pids = (int(row[4]) for row in rows if row[1] == "FLOCK" and row[3] == "WRITE" and row[5] == wanted)
    return next((pid for pid in pids if pid > 0), None)
