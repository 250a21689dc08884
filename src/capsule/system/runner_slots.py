"""Keep the runners of one user on one machine apart: a number and ports for each, and turns at running tests.

A **slot** is a number that no other living runner has: the lowest whose file is not locked, so kill -9 frees it.
Test runs have their turns in a line (`lock.Line`): together as a rule, and alone if a result must not be influenced by
others.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path

from capsule.system.lock import WaitingLine, held, is_locked, open_lock, try_lock

PORTS_FROM, PORTS_EACH, PORTS_BELOW = 20_000, 100, 32_768
"""Ports of slots: below those that the kernel gives out by itself."""
SLOT, PORT_BASE = "CAPSULE_SLOT", "CAPSULE_PORT_BASE"
_LOCK_WAIT = 60.0


class RunnerSlots:
    """One runner among all that share a folder; it takes its slot on first use."""

    def __init__(self, folder: Path) -> None:
        self._slots = folder / "slots"
        self._line = WaitingLine(folder / "tests.lock")
        self._fd: int | None = None

    @cached_property
    def slot(self) -> int:
        with held(self._slots / "door.lock", _LOCK_WAIT):
            for number in count():
                fd = open_lock(self._slots / str(number))
                if try_lock(fd, fcntl.LOCK_EX, self._slots):
                    self._fd = fd
                    # A test run must notice a runner that comes and goes during it.
                    os.utime(fd, ns=(time.time_ns(),) * 2)
                    return number
                os.close(fd)
        raise AssertionError("numbers do not end")

    def variables(self) -> dict[str, str]:
        """Return the variables with this runner's slot and ports; the last slots of hundreds have no ports."""
        first = PORTS_FROM + PORTS_EACH * self.slot
        ports = {PORT_BASE: str(first)} if first + PORTS_EACH <= PORTS_BELOW else {}
        return {SLOT: str(self.slot), **ports}

    @contextmanager
    def turn(self, *, alone: bool) -> Iterator[Callable[[], bool]]:
        """Have a turn at running tests; yield a function that tells afterwards whether others ran meanwhile."""
        with self._line.turn(shared=not alone):
            began = time.time_ns()
            there = self._others()
            yield lambda: not alone and (there or self._others(began))

    def _others(self, began: int | None = None) -> bool:
        """Tell whether another runner has a slot, or took one since."""
        own = str(self.slot)
        with held(self._slots / "door.lock", _LOCK_WAIT):
            others = [each for each in self._slots.iterdir() if each.name.isdecimal() and each.name != own]
            return any(is_locked(each) or (began is not None and each.stat().st_mtime_ns >= began) for each in others)

    def close(self) -> None:
        """Give the slot back."""
        fd, self._fd = self._fd, None
        if fd is not None:
            del self.slot
            os.close(fd)
