"""Say how long a run will still take, from how long its missions took; nothing where none has ended."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil


def time_left(took: Sequence[float], left: int, jobs: int) -> float | None:
    """Return the seconds that so many missions take, several at a time; None where nothing is known, or left."""
    if not took or left <= 0:
        return None
    return sum(took) / len(took) * left / max(1, min(jobs, left))


def in_minutes(seconds: float) -> str:
    """Round up, and name hours from two on: `35 min`, `3 h`."""
    return f"{ceil(seconds / 3600)} h" if seconds > 7200 else f"{max(1, ceil(seconds / 60))} min"
