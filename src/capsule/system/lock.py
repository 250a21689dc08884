"""Locks that die with their holder.

The kernel keeps them (flock), so kill -9 releases them and there is no stale lock to clean up. The file's text, pid and
command, is information for people only: the kernel alone decides whether the lock is held. Lock files are never
deleted; deleting one that another process is about to open would make two holders.

Processes that wait for a lock stand in a **line**: first come, first served, and nothing is polled. Each has a ticket,
a file with the next number that its owner keeps locked, and waits in the kernel until the one before it is free;
kill -9 frees a ticket wherever its owner stood. A shared ticket waits only for those before it that are not shared. So
many can have their turn together or one alone, and neither starves: a shared one that comes later stands behind one
that wants to be alone. Numbers are given out behind a door, a lock held for as long as it takes to make a file; tickets
of the dead are thrown away there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from capsule.core.errors import CapsuleError, Interrupted, LockHeld
from capsule.system.stop import Stop
from capsule.system.suspended import how_to_continue, is_suspended

# `holder` takes the lock for an instant: a short second try tells that from a real holder.
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
        fd = open_lock(self.path)
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
    """Hold the lock for as long as the block takes; do nothing without a path.

    Wait in line; raise LockHeld if one holder keeps it for `wait` seconds, Interrupted if a stop is requested.
    """
    if path is None:
        yield
        return
    lock = FileLock(path)
    with WaitingLine(path).turn(wait=wait) if wait else contextlib.nullcontext():
        lock.acquire(wait)
        with lock:
            yield


class WaitingLine:
    """A fair queue for a lock; its tickets are in a folder next to it."""

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self._folder = lock.with_suffix(".line")

    @contextlib.contextmanager
    def turn(self, *, shared: bool = False, wait: float | None = None) -> Iterator[None]:
        """Wait for the turn, and keep it within the block.

        Raise LockHeld if no turn ends for `wait` seconds, Interrupted if a stop is requested meanwhile.
        """
        ticket, fd = self._take(shared=shared)
        try:
            while (other := self._before(ticket)) is not None:
                try:
                    self._wait_for_ticket(other, wait)
                finally:
                    os.close(other)
            yield
        finally:
            ticket.unlink(missing_ok=True)
            os.close(fd)

    def _take(self, *, shared: bool) -> tuple[Path, int]:
        door = open_lock(self._folder / "door")
        try:
            _await(door, fcntl.LOCK_EX, self._lock, None)
            known = self._tickets()
            for dead in known:
                if not is_locked(dead):
                    dead.unlink(missing_ok=True)  # its owner may be leaving
            number = _number(known[-1]) + 1 if known else 1
            ticket = self._folder / f"{number}{_SHARED if shared else ''}"
            fd = os.open(ticket, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            while not try_lock(fd, fcntl.LOCK_EX, ticket):
                time.sleep(_A_MOMENT)  # a process that checks the ticket holds it for that moment
            return ticket, fd
        finally:
            os.close(door)

    def _tickets(self) -> list[Path]:
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return sorted((path for path in found if path.stem.isdecimal()), key=_number)

    def _before(self, ticket: Path) -> int | None:
        """Open the last ticket that this one has to wait for; None if it is its turn."""
        earlier = [each for each in self._tickets() if _number(each) < _number(ticket)]
        for other in reversed(earlier):
            if ticket.suffix == other.suffix == _SHARED:
                continue
            with contextlib.suppress(FileNotFoundError):
                fd = os.open(other, os.O_RDONLY | os.O_NOFOLLOW)
                if not try_lock(fd, fcntl.LOCK_SH, other):
                    return fd
                os.close(fd)
        return None

    def _wait_for_ticket(self, other: int, wait: float | None) -> None:
        """Wait until a ticket is free, as long as other turns keep ending."""
        first = self._first() if wait else None
        while not _await(other, fcntl.LOCK_SH, self._lock, wait):
            before, first = first, self._first()
            if first == before:  # no turn has ended for that long
                raise _refusal(self._lock)

    def _first(self) -> Path | None:
        return next(filter(is_locked, self._tickets()), None)


_SHARED = ".shared"
_LONGEST_NAME, _KEPT_OF_IT, _DIGITS = 200, 100, 32
_A_MOMENT = 0.001


def _number(ticket: Path) -> int:
    return int(ticket.stem)


def is_locked(path: Path) -> bool:
    """Tell whether a process holds a lock on the file; False if there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    try:
        return not try_lock(fd, fcntl.LOCK_SH, path)
    except NoLocks:
        return False  # a file system without locks has no holders
    finally:
        os.close(fd)


def _await(fd: int, kind: int, path: Path, seconds: float | None) -> bool:
    """Wait for a lock in the kernel, in a thread: a stop ends the wait, and so does the time, which returns False.

    A stop that was requested before does not: some records are written after it.
    """
    if try_lock(fd, kind, path):
        return True
    stop = Stop.active if Stop.active and not Stop.active.requested else None
    ended, end = os.pipe()
    # The thread's own descriptor: a caller that gives up closes its own, and the lock is released with the thread's.
    waiting = os.dup(fd)

    def wait() -> None:
        try:
            fcntl.flock(waiting, kind)
        finally:
            os.close(waiting)
            os.close(end)

    threading.Thread(target=wait, daemon=True).start()
    try:
        ready, _, _ = select.select([ended, *([stop] if stop else ())], [], [], seconds)
    finally:
        os.close(ended)
    if ended not in ready and stop and stop.requested:
        raise Interrupted(f"Stopped while waiting for {path.stem}.", "Run the same command again to go on.")
    return ended in ready


def lock_file(folder: Path, name: str) -> Path:
    """Return the file of the lock with this name; a branch's may be longer than that of a file."""
    if len(name) > _LONGEST_NAME:
        from hashlib import sha256  # noqa: PLC0415 - start-up

        name = f"{name[:_KEPT_OF_IT]}-{sha256(name.encode()).hexdigest()[:_DIGITS]}"
    return folder / f"{name}.lock"


def open_lock(path: Path) -> int:
    """Open the file of a lock, made if need be; a link is refused."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        hint = "Make sure that you may write there, and that it is not a link."
        raise CapsuleError(f"Cannot open the lock {path}: {error.strerror}", hint) from error


def holder(path: Path) -> int | None:
    """Return the pid of the lock's holder, None if it is free.

    Use `is_locked` if the pid is not needed: the kernel blocks all locks while it lists them. Raises LockHeld if it is
    held by a process that cannot be named from here (another container, another machine).
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
        deadline = time.monotonic() + _PROBE_ALLOWANCE  # the pid is written a moment after the lock is taken
        while time.monotonic() < deadline:
            signed, _ = _signature(path)
            if signed is not None:
                return signed
            time.sleep(_RETRY_INTERVAL)
    except NoLocks:
        return None  # a file system without locks has no holders
    finally:
        os.close(fd)
    raise LockHeld(f"{path.stem} is locked by a process that cannot be seen from here", "Wait until it has ended.")


def suspended_holder(path: Path) -> int | None:
    """Return the pid of the lock's holder if that process is suspended.

    The kernel's list is read only where the pid in the file says so.
    """
    signed = _signature(path)[0] if path.exists() else None
    if signed is None or not is_suspended(signed):
        return None
    try:
        return signed if holder(path) == signed else None
    except LockHeld:
        return None


def try_lock(fd: int, kind: int, path: Path) -> bool:
    """Lock without waiting; return False if another process has it, raise NoLocks if the file system has no locks."""
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
            raise _refusal(path)
        time.sleep(_RETRY_INTERVAL)


def _refusal(path: Path) -> LockHeld:
    signed, command = _signature(path) if path.exists() else (None, "")
    pid = (_pid_from_kernel(path.stat()) if path.exists() else None) or signed
    if pid is None:
        return LockHeld(f"{path.stem} is locked by another process", "Wait until it has ended.")
    words = f" ({command})" if command and pid == signed else ""
    if is_suspended(pid):
        hint = f"Continue it: {how_to_continue(pid)}. It ends what it has begun, and nothing is lost."
        return LockHeld(f"{path.stem} is locked by pid {pid}{words}, which is suspended", hint)
    return LockHeld(f"{path.stem} is locked by pid {pid}{words}", f"Wait until it has ended, or stop it: kill {pid}")


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
    # `1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF`: READ is a process that checks, as we do; pid 0 is not visible.
    pids = (int(row[4]) for row in rows if row[1] == "FLOCK" and row[3] == "WRITE" and row[5] == wanted)
    return next((pid for pid in pids if pid > 0), None)
