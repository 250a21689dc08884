"""Write files that survive a crash, and read files that untrusted programs left.

Writing: the text is finished in a temporary file beside its target, flushed to the disk, and then renamed, so a reader
sees the old file or the new one and a crash or a full disk leaves the old one. A symbolic link at the target is
*replaced* by the new file: nothing is ever written through a link that somebody planted.

Reading: what an agent left behind may be a link, a FIFO that never answers, or endless. `read_regular` refuses those at
once.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from pathlib import Path

from capsule.core.errors import CapsuleError

_TEMP_NAME = r"\.capsule-(\d+)-[0-9a-f]{8}\.tmp(\.lock)?"  # git locks an index by a name of its own
_HINTS = {
    errno.ENOSPC: "Free some space on that disk, then run the same command again.",
    errno.EDQUOT: "Your disk quota is used up: free some space, then run the same command again.",
    errno.EROFS: "That file system is mounted read-only.",
    errno.ENOENT: "Make sure that its directory exists.",
}
_PIECE = 1 << 16
_ANY_HINT = "Make sure that you may write there."


class NotRegular(OSError):
    """The path is not a regular file."""


class TooLarge(OSError):
    """The file is larger than the limit."""


class CannotWrite(CapsuleError):
    """A file could not be written. What was there before is unchanged."""

    def __init__(self, path: Path, cause: OSError) -> None:
        reason = cause.strerror or str(cause)
        super().__init__(f"Cannot write {path}: {reason}", _HINTS.get(cause.errno or 0, _ANY_HINT))


def write_atomically(path: Path, data: bytes | str, *, mode: int | None = None, flush: bool = True) -> None:
    """Replace the file in one step; keep its mode unless one is given.

    `flush=False` is for files that can be made again: they need not survive a crash of the machine.
    """
    content = data.encode() if isinstance(data, str) else data
    temp = temp_path(path.parent)
    try:
        with contextlib.suppress(FileNotFoundError):
            found = path.lstat().st_mode
            mode = stat.S_IMODE(found) if mode is None and stat.S_ISREG(found) else mode
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666 if mode is None else 0o600)
        try:
            if mode is not None:
                os.fchmod(fd, mode)
            _write_all(fd, content)
            if flush:
                os.fsync(fd)
        finally:
            os.close(fd)
        temp.replace(path)
        if flush:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)  # only now does the rename itself survive a crash
            finally:
                os.close(folder)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink()  # only exists if the rename did not happen


def append_line(path: Path, line: str) -> None:
    """Append one line, ending first a line that a crash left unfinished."""
    if "\n" in line:
        raise ValueError(f"one line was expected, not {line.count(chr(10)) + 1}")
    try:
        fd = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(fd).st_size
            torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            _write_all(fd, b"\n" * torn + line.encode() + b"\n")
        finally:
            os.close(fd)
    except OSError as error:
        raise CannotWrite(path, error) from error


def tail_bytes(path: Path, limit: int) -> bytes:
    """Return the last `limit` bytes of a regular file, at a cost that does not depend on its length."""
    return _read(path, limit, from_end=True)


def head_bytes(path: Path, limit: int) -> bytes:
    """Return the first `limit` bytes of a regular file; empty if there is none."""
    with contextlib.suppress(OSError):
        return _read(path, limit)
    return b""


def read_regular(path: Path, limit: int) -> bytes:
    """Return a regular file of at most `limit` bytes; raise an OSError that names what it is instead."""
    content = _read(path, limit + 1)
    if len(content) > limit:
        raise TooLarge(errno.EFBIG, f"larger than the {limit} bytes allowed", str(path))
    return content


def _read(path: Path, limit: int, *, from_end: bool = False) -> bytes:
    """Read without a file object, which would take four more system calls: a mission reads a thousand small files."""
    fd = open_regular(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        if from_end:
            os.lseek(fd, max(0, size - limit), os.SEEK_SET)
        pieces = []
        while limit > 0 and (piece := os.read(fd, min(limit, max(size, _PIECE)))):
            pieces.append(piece)
            limit -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(fd)


def temp_path(directory: Path) -> Path:
    """Return a name for a temporary file, which `sweep_temps` recognizes if we are killed."""
    return directory / f".capsule-{os.getpid()}-{os.urandom(4).hex()}.tmp"


def sweep_temps(directory: Path) -> list[Path]:
    """Remove the temporary files of dead writers; return what was removed."""
    dead = []
    for path in sorted(directory.iterdir()):
        match = re.fullmatch(_TEMP_NAME, path.name)
        if match and _has_ended(int(match[1])):
            dead.append(path)
            path.unlink(missing_ok=True)
    return dead


def _has_ended(pid: int) -> bool:
    """Tell whether a process has ended, or is a zombie that its parent has not collected."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        return False  # alive, and somebody else's
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split(None, 1)[0]
        return state in b"ZX"
    return False


def _write_all(fd: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def open_regular(path: Path, flags: int) -> int:
    """Open a regular file without following a link or waiting for the other end of a FIFO."""
    try:
        fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
            raise _not_regular(path) from error
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise _not_regular(path)
    return fd


def _not_regular(path: Path) -> NotRegular:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    kind = kinds.get(stat.S_IFMT(path.lstat().st_mode), "a device")
    return NotRegular(errno.EINVAL, f"{kind}, where a regular file was expected", str(path))
