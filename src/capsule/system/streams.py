"""Move what a command prints from a pipe to a file, without the secrets.

A command never has the file itself: what it prints is searched before it touches the disk, so a secret is in no file
even if everything is killed at any moment. The price is one look at every byte, and it must be cheap: big reads, and
libc's `memmem`, several times faster than `bytes.find`, to know that a piece holds no secret at all.

A file that cannot be written (the disk is full) is not the command's fault: its output is read on and thrown away, and
`lost` holds the error. A pipe that a survivor holds open is read empty once, and no longer.
"""

from __future__ import annotations

import fcntl
import os

from capsule.core.secret_filter import SecretFilter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

AT_ONCE = 1024 * 1024
_SMALL = AT_ONCE // 2
_SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 0)


class Stream:
    """Carries output from one pipe to one file."""

    def __init__(self, file: int, secrets: Sequence[bytes]) -> None:
        self.source, self.entrance = os.pipe()
        self._file = file
        self._sieve = SecretFilter(secrets, quick_search()) if secrets else None
        self.open = True
        self.lost = 0
        os.set_blocking(self.source, False)
        if _SET_PIPE_SIZE:  # room for one big read, so that the command rarely blocks; less is fine
            try:
                fcntl.fcntl(self.entrance, _SET_PIPE_SIZE, AT_ONCE)
            except OSError:
                return

    def move(self) -> int:
        """Move at most one big piece and return its size; at the end of the pipe `open` is False."""
        try:
            piece = os.read(self.source, AT_ONCE)
        except BlockingIOError:
            return 0
        self.open = bool(piece)
        self._write(self._sieve.through(piece) if self._sieve else piece)
        return len(piece)

    def finish(self) -> None:
        """Move what is left in the pipe, but no more than fits into it: a survivor may write for ever."""
        left = 2 * AT_ONCE
        while self.open and left > 0 and (moved := self.move()):
            left -= moved
        if self._sieve:
            self._write(self._sieve.rest())
        os.close(self.source)
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        try:
            rest = memoryview(data)
            while rest and not self.lost:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            self.lost = error.errno or 0


def is_trickle(moved: int) -> bool:
    """Tell whether it pays to wait for more before the next read."""
    return 0 < moved < _SMALL


def quick_search() -> Callable[[bytes, bytes], bool]:
    """Return a test whether one text occurs in another: libc's where there is one."""
    try:
        import ctypes  # noqa: PLC0415 (only needed where there are secrets)

        memmem = ctypes.CDLL(None).memmem
    except (ImportError, OSError, AttributeError):
        return bytes.__contains__
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    return lambda text, secret: memmem(text, len(text), secret, len(secret)) is not None
