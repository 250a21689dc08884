"""Keep working when the output cannot be written: the disk is full, or the reader has gone."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # importing typing would cost `--version` half of its time
if TYPE_CHECKING:
    from typing import Any, TextIO


class LastingOutput:
    """A text stream that drops what cannot be written, and keeps the error in `lost`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as fault:
            self.lose(fault)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as fault:
            self.lose(fault)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def lose(self, fault: OSError) -> None:
        """Drop everything from now on."""
        self.lost = fault
        silence(self._stream)


def silence(stream: TextIO) -> None:
    """Discard the rest of a stream, so that the interpreter does not report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
