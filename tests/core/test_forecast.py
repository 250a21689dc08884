"""How long a run will still take."""

from __future__ import annotations

import pytest

from capsule.core.forecast import in_minutes, time_left


@pytest.mark.promise("jobs.header")
@pytest.mark.parametrize(
    ("took", "under_way", "to_do", "jobs", "seconds"),
    [
        ([], [], 5, 2, None),
        ([60], [], 0, 2, None),
        ([60, 120], [], 4, 2, 180),
        ([60], [], 1, 6, 60),
        ([60], [], 3, 1, 180),
        ([60], [20.0, 40.0], 2, 2, 90),
        ([60], [600.0], 0, 2, 0),
        ([60], [0.0], -3, 2, 60),
    ],
)
def test_what_is_left_takes_as_long_as_what_is_done(
    took: list[float], under_way: list[float], to_do: int, jobs: int, seconds: float | None
) -> None:
    assert time_left(took, under_way, to_do, jobs) == seconds


def test_minutes_are_rounded_up() -> None:
    assert [in_minutes(seconds) for seconds in (1, 60, 61, 7201)] == ["1 min", "1 min", "2 min", "3 h"]
