"""`capsule complete ID`: a human says that it is done."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import Refused
from capsule.core.item import Status

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.commands.moving import Grip
    from capsule.core.item import Item

DESCRIPTION = """\
Say that an item is done, whatever its status. A mission that was under way ends; what it left uncommitted is salvaged
first. An item of a backlog leaves it, and the worklog of this month remembers it; its id is never given again. A bead
is closed. One that holds open items is not: these come first. Where its tracker refuses to close it, because it is
blocked or waits at a gate, nothing is changed, and you are told why.

  capsule complete WRK-003
  capsule complete demo-1.1.1

For an item that will not be done there is `capsule close`.
Exit code: 0 archived or closed; 1 there is no such item, or its tracker refuses; 3 it is running.
"""

_NAMED = 3
"""So many of the items that are in the way are named."""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    return archive(args)


def archive(args: argparse.Namespace, why: str = "") -> int:
    """Out of the tracker first: it may refuse, and whoever finds the mission without its item ends it too."""
    from capsule.commands.moving import grip, refuse_no_commit
    from capsule.reports.style import clean
    from capsule.wiring import open_project, open_tracker

    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    refuse_no_commit(tracker, args)
    with grip(project, tracker, args.item) as held:
        item, left = held.item, held.mission.under_way
        if item.status is Status.DONE and not tracker.keeps_phases and not left:
            raise Refused(f"{item.id} is closed already.", _how_to_reopen(tracker, item.id))
        _refuse_over_open_ones(tracker, item)
        _take_out(held, why, no_commit=args.no_commit)
    print(f"{item.id} is {'closed' if why else 'completed'}: {clean(item.title)}")
    if left:
        from capsule.commands.ending import end_mission

        salvage = end_mission(project, item.id, how="closed by hand" if why else "completed by hand", branch=True)
        print(f"  its mission has ended{f'; what was there is kept as {salvage}' if salvage else ''}")
    return 0


def _how_to_reopen(tracker: Tracker, item_id: str) -> str:
    by_bd = f": bd reopen {item_id}" if tracker.name == "beads" else "."
    return f"If there is more to do, reopen it in its tracker{by_bd}"


def _refuse_over_open_ones(tracker: Tracker, item: Item) -> None:
    """Not every tracker minds, and whoever closes an epic by mistake would never see its tasks again."""
    if tracker.keeps_phases or not item.holds:
        return
    unfinished = [each for each in tracker.under(item.id) if each.status is not Status.DONE]
    if not unfinished:
        return
    left = [each.id for each in unfinished if not each.holds] or [each.id for each in unfinished]
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    raise Refused(
        f"{item.id} holds what is still open: {', '.join(left[:_NAMED])}{more}.",
        f"Complete or close these first, or work through them: capsule run {item.id}",
    )


def _take_out(held: Grip, why: str, *, no_commit: bool) -> None:
    from capsule.commands.moving import record
    from capsule.core.ledger import archive_subject, archived
    from capsule.system.clock import SystemClock

    item = held.item
    if not held.tracker.keeps_phases:
        held.tracker.close(item.id, why or "completed by hand")
        return
    assignments = archived(item, SystemClock().now(), "archive", why)
    record(held.project, held.tracker, archive_subject(item, "archive", why), assignments, no_commit=no_commit)
