"""Estimate the rest of a run from the durations of finished missions."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def time_left(took: Sequence[float], under_way: Sequence[float], to_do: int, jobs: int) -> float | None:
    """Return the seconds until all are done, several at a time; None if nothing is known or left.

    `under_way` is the time spent so far on each running one, `to_do` how many have not begun.
    """
    left = len(under_way) + max(0, to_do)
    if not took or not left:
        return None
    each = sum(took) / len(took)
    work = sum(max(0.0, each - so_far) for so_far in under_way) + each * max(0, to_do)
    return work / max(1, min(jobs, left))


def in_minutes(seconds: float) -> str:
    """Round up, and name hours from two on: `35 min`, `3 h`."""
    return f"{ceil(seconds / 3600)} h" if seconds > 7200 else f"{max(1, ceil(seconds / 60))} min"
