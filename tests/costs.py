"""Costs and waits, judged so that a slow or busy machine fails no test.

A machine can only make a cost worse. So a cost is the best of several tries, in processor time where the claim is about
work, and a promise about costs is broken only if it is broken in every round. How long something waits is bounded
generously, or not at all: what a test waits for is a condition.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hypothesis import settings

Got = TypeVar("Got")

ROUNDS = 6
LONG = 60.0
"""Seconds that nothing takes which works at all, on any machine."""


def examples(number: int) -> settings:
    """Return the settings for this many examples in `make check`; `make test` has a fifth of them."""
    return settings(max_examples=number * settings().max_examples // 100)


def processor_seconds() -> float:
    """What this process and the children it waited for have used up."""
    return sum(os.times()[:4])


def best_of(act: Callable[[], object], tries: int = 3, clock: Callable[[], float] = time.process_time) -> float:
    def once() -> float:
        began = clock()
        act()
        return clock() - began

    return min(once() for _ in range(tries))


def in_some_round(promise: Callable[[], bool]) -> bool:
    """Whether a promise about costs was kept once. What disturbs may last, so the rounds are ever further apart."""
    for round_ in range(ROUNDS):
        time.sleep(0.1 * round_**2)
        if promise():
            return True
    return False


def costs_below(seconds: float, act: Callable[[], object], clock: Callable[[], float] = time.process_time) -> bool:
    return in_some_round(lambda: best_of(act, 1, clock) < seconds)


def grows_linearly(work: Callable[[int], Callable[[], object]], small: int, large: int) -> bool:
    """Whether `work(large)` costs in proportion to `work(small)`, or up to thrice that; square growth is far beyond."""
    less, more = work(small), work(large)
    bound = 3 * large / small
    return in_some_round(lambda: best_of(more, 1) < bound * max(best_of(less), 0.002))


def given_time(run: Callable[[float], Got], got_there: Callable[[Got], object]) -> Got:
    """What came of a command that is ended after some seconds, by when it must have got somewhere.

    A machine that was too slow for that has another try, with more seconds.
    """
    for seconds in (0.4, 2.0, 10.0):
        got = run(seconds)
        if got_there(got):
            break
    return got


def eventually(promise: Callable[[], object], seconds: float = LONG) -> bool:
    deadline = time.monotonic() + seconds
    while not promise():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def as_soon_as(promise: Callable[[], object], act: Callable[[], object]) -> threading.Thread:
    """Does it from beside, when the promise has come true (or will not)."""

    def wait_and_act() -> None:
        eventually(promise)
        act()

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread
