"""Points that a run can be killed at: which kind they are, and which of them are tried."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import get_args

from capsule.core.event import Event

ALL = os.environ.get("CAPSULE_CRASH_ALL") == "1"
KINDS = frozenset(str(event.__struct_config__.tag) for event in get_args(Event))


def is_event(point: str) -> bool:
    return point.split()[1] in KINDS


def is_effect(point: str) -> bool:
    return point.split()[1] == "effect"


def between_effects(points: Iterable[str]) -> list[str]:
    """One call through an adapter per stretch in which nothing is written, unless an event stands there."""
    stretches: list[list[str]] = [[]]
    for point in points:
        if is_effect(point):
            stretches.append([])
        else:
            stretches[-1].append(point)
    return [stretch[-1] for stretch in stretches if stretch and not any(map(is_event, stretch))]


def told_apart(effects: Mapping[str, str]) -> list[str]:
    """Every effect; but of a removal, which is one for each file of a folder, the beginning, the middle and the end."""
    found: list[str] = []
    for removes, run in groupby(effects, lambda point: effects[point].startswith(("os.remove", "os.rmdir"))):
        points = list(run)
        found += sorted({points[0], points[len(points) // 2], points[-1]}, key=points.index) if removes else points
    return found


def sample(points: list[str], count: int) -> list[str]:
    return points if ALL or len(points) <= count else [points[n * len(points) // count] for n in range(count)]
