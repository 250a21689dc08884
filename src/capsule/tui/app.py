"""The base of every app of ours, and the threads that work for it.

Slow work happens in threads that pass on their results; only the app changes the screen. The threads are daemons:
quitting does not wait for a tracker that hangs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

from textual.app import App

from capsule.core.errors import CapsuleError
from capsule.tui.themes import DARK, LIGHT

Seen = TypeVar("Seen")

PULSE = 0.25
_AFTER_TROUBLE = 2.0


Later = Callable[..., object]
"""An app's `call_later`: any thread may call it, and the app's own thread runs the function."""


def _raise(fault: Exception) -> None:
    raise fault


class BackgroundTasks:
    """`ask` runs one task in a thread; of each name one runs at a time, and a second is dropped."""

    def __init__(self, later: Later) -> None:
        self._later = later
        self._busy: set[str] = set()

    def ask(self, name: str, work: Callable[[], object], then: Callable[[Any], None]) -> bool:
        """`then` gets the answer, or the CapsuleError, in the app's own thread."""
        if name in self._busy:
            return False
        self._busy.add(name)

        def finish(got: object) -> None:
            self._busy.discard(name)
            then(got)

        threading.Thread(target=self._work, args=(work, finish), daemon=True).start()
        return True

    def _work(self, work: Callable[[], object], finish: Callable[[object], None]) -> None:
        try:
            self._later(finish, work())
        except CapsuleError as fault:
            self._later(finish, fault)
        except Exception as fault:  # noqa: BLE001 - it is raised again by the owner of the screen
            self._later(_raise, fault)


class Poller(threading.Thread, Generic[Seen]):
    """Poll a few times a second, from one thread, and pass on what is new; never ahead of the screen."""

    def __init__(
        self,
        look: Callable[[], Seen],
        later: Later,
        then: Callable[[Seen | CapsuleError], None],
        compared_by: Callable[[Seen], object],
        pulse: float = PULSE,
    ) -> None:
        """`compared_by` returns the value by which two results are compared."""
        super().__init__(daemon=True)
        self._look, self._later, self._then, self._compared, self._pulse = look, later, then, compared_by, pulse
        self._over, self._taken = threading.Event(), threading.Event()
        self._at_once = threading.Event()

    def run(self) -> None:
        before: object = None
        while not self._over.is_set():
            began = time.monotonic()
            try:
                seen = self._look()
            except CapsuleError as fault:
                before = None
                self._tell(fault)
                self._over.wait(_AFTER_TROUBLE)
                continue
            except Exception as fault:  # noqa: BLE001 - it is raised again by the owner of the screen
                self._later(_raise, fault)
                return
            if (compared_by := self._compared(seen)) != before:
                before = compared_by
                self._tell(seen)
            self._at_once.wait(max(self._pulse / 2, self._pulse - (time.monotonic() - began)))
            self._at_once.clear()

    def soon(self) -> None:
        """Poll now, after an action."""
        self._at_once.set()

    def end(self) -> None:
        self._over.set()
        self._taken.set()
        self._at_once.set()

    def _tell(self, what: Seen | CapsuleError) -> None:
        def take(got: Seen | CapsuleError) -> None:
            self._taken.set()
            self._then(got)

        self._taken.clear()
        self._later(take, what)
        while not self._taken.wait(1.0) and not self._over.is_set():
            continue


Result = TypeVar("Result")


class CapsuleApp(App[Result]):
    """A screen that reports faults as any command does: one line and a file, no traceback."""

    ENABLE_COMMAND_PALETTE = False
    CSS_PATH = Path(__file__).with_name("capsule.tcss")

    def __init__(self) -> None:
        super().__init__()
        for theme in (LIGHT, DARK):
            self.register_theme(theme)
        self.theme = DARK.name

    def open(self) -> Result | None:
        """Show it until it is closed; raise its error once the terminal is restored."""
        result = self.run()
        if self._exception is not None:
            raise self._exception
        return result

    def _fatal_error(self) -> None:
        """Close without a traceback: the caller of `open` reports the error."""
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        self._exit_renderables.clear()
