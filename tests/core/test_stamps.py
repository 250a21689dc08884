"""Stamps, and the time of day that people read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from capsule.core.stamps import clock_time

LATER = {
    "in a moment": (5.0, "18:30:05"),
    "soon": (90.0, "18:31"),
    "the same day": (5 * 3600.0, "23:30"),
    "another day": (6 * 3600.0, "Thu 00:30"),
    "in a week": (7 * 86400.0, "8 Jul, 18:30"),
}


@pytest.mark.parametrize(("seconds", "clock"), LATER.values(), ids=LATER.keys())
def test_a_time_to_come_is_told_as_a_clock_on_the_wall_shows_it(
    local_time_is: Callable[[str], None], seconds: float, clock: str
) -> None:
    local_time_is("EDT4")
    assert clock_time("2026-07-01T22:30:00Z", seconds) == clock
