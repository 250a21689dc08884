"""What `capsule doctor` finds out about the tracker: which one it is, whether it answers, and how long that takes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from capsule.commands.doctor import Finding
from capsule.core.errors import CapsuleError

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.core.item import Item
    from capsule.wiring import Project

SLOW = 2.0
"""Seconds from which on somebody who waits for an answer wonders."""


OLDEST_BD = (0, 44)
"""The same that the tracker asks for."""
PATIENCE = 10.0
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")


def bd_version() -> str:
    """What the bd on the PATH says it is, wherever we are; '' where it does not say."""
    quiet = {**os.environ, "BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1"}
    try:
        done = subprocess.run(
            ["bd", "version"],
            cwd=tempfile.gettempdir(),
            env=quiet,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = _VERSION.search(done.stdout)
    return found.group() if found else ""


def too_old(version: str) -> str:
    """The complaint; '' where there is none, or nobody knows."""
    found = _VERSION.match(version)
    if not found or (int(found[1]), int(found[2])) >= OLDEST_BD:
        return ""
    return f"bd {version} is too old: it cannot do what is needed of it."


def bd_finding(path: str, get_it: str) -> Finding:
    version = bd_version()
    complaint = too_old(version)
    if complaint:
        return Finding("bd", "warning", f"{complaint} It is {path}", f"Get 0.47.1, or 1.0.5 and newer: {get_it}")
    return Finding("bd", "ok", f"{version or 'a version that it does not say'} at {path}")


def tracker_findings(project: Project) -> Iterator[Finding]:
    from capsule.wiring import open_tracker

    tracker = None
    try:
        tracker = open_tracker(project)
        items = tracker.items()
    except CapsuleError as fault:
        yield Finding("tracker", "wrong" if tracker else "missing", fault.message, fault.hint)
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
