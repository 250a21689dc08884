"""Print a sign of life every so often while an activity is silent.

Agents and tests may run for minutes without output, which looks like a hang in plain lines. So a thread prints the
current activity after a silence; it and the report take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct


class _UnderWay(Struct):
    since: float
    what: str
    now: str = ""


class Pulse:
    def __init__(self, say: Callable[[str, float, str], None], every: float) -> None:
        """`say` gets the activity and its seconds; never while the report prints."""
        self._say = say
        self.in_turn = False
        """Several run at a time: signs of life take turns."""
        self._every = every
        self._changed = threading.Condition(threading.RLock())
        self._under_way: dict[str, _UnderWay] = {}
        """Nested activities: the last one is part of those before it."""
        self._said = 0.0
        self._thread: threading.Thread | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep quiet while the report prints, which is a sign of life too."""
        with self._changed:
            yield
            self._said = time.monotonic()

    def begin(self, who: str, what: str, *, within: bool = False) -> None:
        """Begin an activity. A top-level one replaces all others: the one before may have ended without a report."""
        with self._changed:
            if not within and not self.in_turn:
                self._under_way.clear()
            self._under_way.pop(who, None)
            self._under_way[who] = _UnderWay(time.monotonic(), what)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
                self._thread.start()

    def now(self, who: str, text: str) -> None:
        """Set the activity for the next sign of life."""
        with self._changed:
            if who in self._under_way:
                self._under_way[who].now = text

    def end(self, who: str = "") -> None:
        """End the signs of life of this mission, or of all."""
        with self._changed:
            if who:
                self._under_way.pop(who, None)
            else:
                self._under_way.clear()
            if not self._under_way:
                self._changed.notify_all()

    def _beat(self) -> None:
        with self._changed:
            while self._under_way:
                due = self._said + self._every - time.monotonic()
                if due > 0:
                    self._changed.wait(due)
                    continue
                who = list(self._under_way)[0 if self.in_turn else -1]
                told = self._under_way[who] = self._under_way.pop(who)
                with suppress(OSError, ValueError):  # the reader has gone
                    self._say(who, time.monotonic() - told.since, told.now or told.what)
                self._said = time.monotonic()
            self._thread = None
