"""List open items, their dependencies, and missions under way.

A backlog is a list: in progress first, then blocked with the reason, ready (by impact, then age), and items that still
have to be scoped, researched or triaged. Beads are a tree of epics, features and tasks, with the progress of each, and
the dependencies of tasks. Below: missions that are running, stopped, failed or need you, each with the command that
helps. Nothing is changed, so it is safe during a run.

  capsule status
  capsule status --only status=new,blocked,tag=ui     items that are new or blocked, and have this tag
  capsule status --only type=task,priority=P0,P1      the urgent tasks of the beads
  capsule status --json | jq '.[] | select(.blocked)'

--only takes status, phase, type, tag, priority, parent, size, complexity, risk and impact.
Exit code: 0 shown; 2 usage, or the tracker cannot be read.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from capsule.app.missions import running, under_way
from capsule.commands.arguments import warn
from capsule.commands.item_table import (
    LIST,
    TREE,
    as_json,
    as_tree,
    conditions,
    listed,
    matches,
    nothing_yet,
    table_lines,
    waits_for,
)
from capsule.core.campaign import to_do, unfinished
from capsule.core.item import Item, Status, as_shown
from capsule.project import Project, open_project
from capsule.reports.style import Style, clean, fitted, output_width

if TYPE_CHECKING:
    from capsule.adapters import Tracker

DAY = 24 * 60 * 60
MOST_DONE = 5


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a list of items, with all their fields")
    parser.add_argument("--only", metavar="FIELD=VALUE[,...]", help="items of this kind, such as status=new,tag=ui")


def run(args: argparse.Namespace) -> int:
    wanted = conditions(args.only or "")
    project = open_project(args.project_dir)
    tracker = project.tracker
    in_a_list = tracker.traits.by_status
    known = tracker.under("")  # a tree needs closed items, too
    every = [item for item in known if in_a_list or item.status is not Status.DONE]
    items = [item for item in every if matches(item, wanted)] if wanted else every
    warn(f"warning: {warning}" for warning in tracker.warnings)
    if args.json:
        print(as_json(as_shown(items)))
        return 0
    done = [] if wanted else [*_done_lately(tracker)]
    if not items:
        print("\n".join(["No items match --only." if every else nothing_yet(tracker), *done]))
        return 0
    by_id = {item.id: item for item in known}
    rows = listed(as_shown(items), by_id) if in_a_list else as_tree(items, by_id)
    shown = [row.item for row in rows]
    missions = _missions(project, {item.id: item for item in shown})
    table = table_lines(LIST if in_a_list else TREE, rows, Style(sys.stdout), output_width(sys.stdout))
    missions = [*_elsewhere(project, shown), *missions]
    waiting = {item.id for item in shown if item.status is Status.READY and waits_for(item, by_id)} if in_a_list else ()
    counts = _counts(shown, every, waiting) if in_a_list else _counts_of_work(shown, every)
    print("\n".join([*table, "", *(fitted(line, sys.stdout) for line in (counts, *done, *missions))]))
    return 0


def _done_lately(tracker: Tracker) -> Iterator[str]:
    """Name the items finished since yesterday."""
    done = tracker.done_since(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - DAY)))
    named = [f"{item} {clean(title)}" for item, title in done[:MOST_DONE]]
    more = [f"and {len(done) - MOST_DONE} more"] if len(done) > MOST_DONE else []
    if done:
        yield f"Done since yesterday: {', '.join([*named, *more])}"


def _counts(items: Sequence[Item], every: Sequence[Item], waiting: Container[str] = ()) -> str:
    all_of_them = len(every)
    counts = Counter("waiting" if item.id in waiting else item.status for item in items)
    shown = f"{len(items)} of {all_of_them}" if len(items) != all_of_them else str(all_of_them)
    kinds = ", ".join(f"{number} {word}" for word, number in counts.items())
    return f"{shown} item{'' if all_of_them == 1 else 's'}{': ' if kinds else ''}{kinds}"


def _counts_of_work(items: Sequence[Item], every: Sequence[Item]) -> str:
    """Count tasks, not epics; a task with open dependencies is waiting, not ready."""
    waits = unfinished({item.id: item for item in every})
    waiting = {item.id for item in every if item.id in waits and not (item.blocked or item.taken_by)}
    return _counts(to_do(items), to_do(every), waiting)


def _elsewhere(project: Project, items: Sequence[Item]) -> Iterator[str]:
    """Name the items that other clones work on, as far as this one has seen."""
    if project.settings.merge.to == "local":
        return
    from capsule.app.elsewhere import held_elsewhere  # noqa: PLC0415 - start-up: usually there is no other clone
    from capsule.system.clock import SystemClock  # noqa: PLC0415

    claims, now = held_elsewhere(project, look=False), SystemClock().now()
    for item in items:
        if item.id in claims:
            yield f"{item.id} {clean(claims[item.id].in_words(now))}"


def _missions(project: Project, items: Mapping[str, Item]) -> Sequence[str]:
    """List running missions, and those that have begun and are not running."""
    pids = running(project, {*items})
    begun = under_way(project, items.keys() - pids.keys())
    if not (pids or begun):
        return ()
    from capsule.commands.mission_lines import mission_lines  # noqa: PLC0415 - start-up: usually no mission has begun

    return mission_lines(project, pids, {name: items[name] for name in begun})
