"""A sign of life every so often while something is under way, whoever does it and however quietly.

Agents may think and tests may run for minutes without a word, and whoever watches plain lines cannot tell that from
standing still. So a thread says what is going on whenever nothing was said for a while; it and the report take turns.
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
        """`say` is told who does what, and for how many seconds; never while the report is at it."""
        self._say = say
        self.in_turn = False
        """Several are under way side by side: each sign of life is of another one."""
        self._every = every
        self._changed = threading.Condition(threading.RLock())
        self._under_way: dict[str, _UnderWay] = {}
        """The one that began last is part of those before it."""
        self._said = 0.0
        self._thread: threading.Thread | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep quiet while the report prints, which is a sign of life too."""
        with self._changed:
            yield
            self._said = time.monotonic()

    def begin(self, who: str, what: str, *, within: bool = False) -> None:
        """Begin an activity. One that is not within another replaces all: the one before may have ended unreported."""
        with self._changed:
            if not within and not self.in_turn:
                self._under_way.clear()
            self._under_way.pop(who, None)
            self._under_way[who] = _UnderWay(time.monotonic(), what)
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="pulse", daemon=True)
                self._thread.start()

    def now(self, who: str, text: str) -> None:
        """Note what it is doing, for the next sign of life."""
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
                with suppress(OSError, ValueError):  # whoever watched has left: nobody to tell, and no harm
                    self._say(who, time.monotonic() - told.since, told.now or told.what)
                self._said = time.monotonic()
            self._thread = None
