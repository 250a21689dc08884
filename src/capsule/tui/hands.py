"""What the dashboard is handed: everything it can find out, and everything it can do.

It draws, and knows no project, journal or process. Every function here may be slow, or fail with a `CapsuleError`; the
dashboard calls them beside itself, never where it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from capsule.core.board import Board
from capsule.core.item import Item


class Listing(msgspec.Struct, frozen=True):
    """What a tracker holds."""

    items: tuple[Item, ...] = ()
    by_status: bool = False
    """It is a backlog, whose items have phases; else items hold one another."""
    tracker: str = ""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What is on disk of one mission, each capped; '' is nothing there."""

    changes: str = ""
    """Which files it changes, and how much."""
    diff: str = ""
    worklog: str = ""
    logs: str = ""


class Said(msgspec.Struct, frozen=True):
    """What a command answered."""

    code: int
    out: str = ""
    err: str = ""


class Started(msgspec.Struct, frozen=True):
    """A run that goes on by itself."""

    pid: int
    wait: Callable[[], Said]
    """Until it has ended, which may take days; its last words."""


class Hands(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Of the project."""
    look: Callable[[], Board]
    items: Callable[[], Listing]
    details: Callable[[str], Details]
    do: Callable[[Sequence[str]], Said]
    """Runs `capsule` with these words, and waits for it."""
    start: Callable[[Sequence[str]], Started]
    """Runs `capsule` with these words in a process of its own, which goes on without us."""
    stop: Callable[[str, int], Said]
    """Asks whoever holds this mission, by its process id, to stop."""
