"""What `capsule doctor` finds out about the tracker: which one it is, whether it answers, and how long that takes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from capsule.commands.doctor import Finding
from capsule.core.errors import CapsuleError

if TYPE_CHECKING:
    from capsule.core.item import Item
    from capsule.doors import Tracker
    from capsule.wiring import Project

SLOW = 2.0
"""Seconds from which on somebody who waits for an answer wonders."""


def tracker_findings(project: Project) -> Iterator[Finding]:
    from capsule.wiring import open_tracker

    try:
        tracker = open_tracker(project)
        items = tracker.items()
    except CapsuleError as fault:
        yield Finding("tracker", "missing", fault.message, fault.hint)
        return
    yield Finding("tracker", "ok", f"{tracker.name}, with {len(items)} open item{'' if len(items) == 1 else 's'}")
    for warning in tracker.warnings:
        yield Finding("tracker", "warning", warning)
    if tracker.name == "beads":
        yield _bd(tracker, items)
    elif tracker.name == "beads-file" and project.settings.tracker == "auto":
        yield _without_bd()


def _bd(tracker: Tracker, items: Sequence[Item]) -> Finding:
    """Whoever has read the items has reached the database; one more question says how long an answer takes."""
    version = getattr(tracker, "version", "")
    began = time.monotonic()
    for item in items[:1]:
        tracker.item(item.id)
    seconds = time.monotonic() - began
    found = f"bd {version} reaches its database{f', and answers in {seconds:.1f} s' if items else ''}"
    hint = "A mission asks it about ten times. `bd doctor` may know why it is slow." if seconds >= SLOW else ""
    return Finding("beads", "warning" if hint else "ok", found, hint)


def _without_bd() -> Finding:
    if shutil.which("bd"):
        found = "bd is installed, and has no database here: the JSONL file is what is read and written"
    else:
        found = "bd is not installed, so the JSONL file in .beads is what is read and written"
    return Finding("beads", "optional", found)
