"""Handle requests to stop: the first SIGINT or SIGTERM requests a stop, the second forces it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from types import FrameType
from typing import ClassVar

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def interrupt(pid: int) -> None:
    """Ask a process to stop; continue a suspended one (Ctrl-Z), so that it gets the signal."""
    os.kill(pid, signal.SIGINT)
    with suppress(ProcessLookupError):  # it has ended at once
        os.kill(pid, signal.SIGCONT)


class StopNow(KeyboardInterrupt):
    """The second signal: leave at once, leaving nothing running."""


class Stop:
    """Turn signals into a flag (`requested`) and a descriptor to wait for (`fileno`), within a `with` block.

    Python delivers signals to the main thread, so the block must be entered there. It may be entered again later.
    """

    active: ClassVar[Stop | None] = None
    """The one whose block is active: signals are delivered to the whole process."""

    def __init__(self) -> None:
        self.requested = False
        self._outer: Stop | None = None
        self._pipe: tuple[int, int] | None = None
        self._before: dict[signal.Signals, signal._HANDLER] = {}

    def __enter__(self) -> Stop:
        self.requested = False
        self._pipe = os.pipe()
        self._outer, Stop.active = Stop.active, self
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        Stop.active, self._outer = self._outer, None
        for number, handler in self._before.items():
            # None is a handler that was not installed from Python: only the default can be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()
        pipe, self._pipe = self._pipe, None
        for fd in pipe or ():
            os.close(fd)

    def fileno(self) -> int:
        """Return a descriptor that is readable once a stop is requested; never read from it."""
        if self._pipe is None:
            raise RuntimeError("Stop is waited for outside its `with` block")
        return self._pipe[0]

    def wait(self, seconds: float) -> bool:
        """Wait; return False if a stop was requested before the time was over."""
        return not select.select([self.fileno()], [], [], seconds)[0] and not self.requested

    def request(self) -> None:
        """Request a stop, as the first signal does; repeated requests change nothing."""
        if not self.requested:
            self.requested = True
            if self._pipe is not None:
                os.write(self._pipe[1], b"!")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            raise StopNow(f"second {signal.Signals(number).name}")
        self.request()
