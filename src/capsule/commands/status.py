"""List open items, what they wait for, and missions under way.

A backlog is a list: in progress first, then blocked with the reason, ready (by impact, then age), and what is still to
be scoped, researched or triaged. Beads are a tree of epics, features and tasks, with how much of each is done, and what
a task is waiting for. Below: missions that are running, stopped, failed or need you, each with the command that helps.
Nothing is changed, so it is safe during a run.

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
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from capsule.app.missions import running, under_way
from capsule.commands.arguments import warn
from capsule.core.campaign import counts_below, is_container, to_do, unfinished
from capsule.core.errors import UsageError
from capsule.core.item import Item, Status, as_shown
from capsule.core.status import MissionStatus
from capsule.core.text import did_you_mean
from capsule.project import Project, open_project
from capsule.reports.style import Style, clean, fitted, output_width, wrapped
from capsule.reports.table import line_of, widest

if TYPE_CHECKING:
    from capsule.adapters import Tracker

NARROWEST_TITLE = 12
GAP = "  "
ADD = 'capsule add "Describe the change in one line"'
STEP = "  "
DAY = 24 * 60 * 60
MOST_DONE = 5
DEEPEST = 8
"""From there on nothing is indented further: families that deep are a mistake, or drawn in a circle."""
LIST = ("ID", "Status", "Phase", "Title", "Impact", "Size", "Risk")
TREE = ("ID", "Status", "Pri", "Done", "Title")
DISPENSABLE = ("Risk", "Size", "Impact", "Phase", "Done", "Pri", "Status")
"""Columns that a narrow terminal does without, first things first."""
COLOURS = {Status.IN_PROGRESS: "green", Status.BLOCKED: "yellow", Status.NEW: "dim"}
FIELDS = ("status", "phase", "type", "tag", "priority", "parent", "size", "complexity", "risk", "impact")


class _Row(NamedTuple):
    """An item as it is shown: its cells, and a line below it where there is something to explain."""

    item: Item
    cells: tuple[str, ...]
    why: str = ""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="a list of items, with all their fields")
    parser.add_argument("--only", metavar="FIELD=VALUE[,...]", help="items of this kind, such as status=new,tag=ui")


def run(args: argparse.Namespace) -> int:
    wanted = _conditions(args.only or "")
    project = open_project(args.project_dir)
    tracker = project.tracker
    in_a_list = tracker.traits.by_status
    known = tracker.under("")  # a tree needs what is closed, too
    every = [item for item in known if in_a_list or item.status is not Status.DONE]
    items = [item for item in every if all(values & _values(item, name) for name, values in wanted.items())]
    warn(f"warning: {warning}" for warning in tracker.warnings)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode([_plain(item) for item in as_shown(items)]), indent=2).decode())
        return 0
    done = [] if wanted else [*_done_lately(tracker)]
    if not items:
        print("\n".join(["No items match --only." if every else nothing_yet(tracker), *done]))
        return 0
    by_id = {item.id: item for item in known}
    rows = _listed(as_shown(items), by_id) if in_a_list else _as_tree(items, by_id)
    shown = [row.item for row in rows]
    missions = _missions(project, {item.id for item in shown}, by_tracker=tracker.traits.authoritative)
    table = _table(LIST if in_a_list else TREE, rows, Style(sys.stdout), output_width(sys.stdout))
    waiting = {item.id for item in shown if item.status is Status.READY and _waits(item, by_id)} if in_a_list else ()
    counts = _counts(shown, every, waiting) if in_a_list else _counts_of_work(shown, every)
    print("\n".join([*table, "", *(fitted(line, sys.stdout) for line in (counts, *done, *missions))]))
    return 0


def _done_lately(tracker: Tracker) -> Iterator[str]:
    """Name what was done since yesterday."""
    done = tracker.done_since(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - DAY)))
    named = [f"{item} {clean(title)}" for item, title in done[:MOST_DONE]]
    more = [f"and {len(done) - MOST_DONE} more"] if len(done) > MOST_DONE else []
    if done:
        yield f"Done since yesterday: {', '.join([*named, *more])}"


def nothing_yet(tracker: Tracker) -> str:
    traits = tracker.traits
    return f"{traits.empty.format(tracker.name)}: {ADD}{traits.own_command('add', '', '', ', or ')}"


# ---- which items


def _conditions(text: str) -> dict[str, set[str]]:
    """Parse `status=new,blocked,tag=ui`: a value without a name belongs to the name before it."""
    found: dict[str, set[str]] = {}
    name = ""
    for part in filter(None, (part.strip() for part in text.split(","))):
        before, equals, value = part.rpartition("=")
        name = before.strip().lower() if equals else name
        value = value.strip() if name == "tag" else value.strip().lower()
        takes = f"It takes {', '.join(FIELDS)}, such as --only status=new."
        _check_known(name, FIELDS, f"--only has no field for {part!a}.", takes)
        if name == "status":
            known = [status.value for status in Status]
            _check_known(value, known, f"There is no status {value!a}.", ", ".join(known))
        found.setdefault(name, set()).add(value)
    return found


def _check_known(word: str, known: Sequence[str], message: str, hint: str) -> None:
    if word not in known:
        raise UsageError(message, did_you_mean(word, known, hint))


def _values(item: Item, name: str) -> set[str]:
    if name == "tag":
        return set(item.tags)
    if name == "priority":
        return {str(item.priority), f"p{item.priority}"}
    held = item if name in ("status", "phase", "type", "parent") else item.assessment
    return {str(getattr(held, name)).lower()}


# ---- for people


def _waits(item: Item, known: Mapping[str, Item]) -> list[str]:
    """List what has to be done before; what is in no list any more is done, or was never there."""
    return [other for other in item.dependencies if other in known and known[other].status is not Status.DONE]


def _why(item: Item, waits: Sequence[str]) -> str:
    if item.blocked:
        return ": ".join(filter(None, (item.blocked.kind, clean(item.blocked.reason))))
    waiting = f"waiting for {', '.join(waits)}" if waits else ""
    return clean("; ".join(filter(None, (waiting, item.will_ask))))


def _listed(items: Sequence[Item], known: Mapping[str, Item]) -> list[_Row]:
    return [
        _Row(
            item,
            (
                *(item.id, item.status.value, clean(item.phase) or "-", clean(item.title)),
                *(level or "-" for level in (item.assessment.impact, item.assessment.size, item.assessment.risk)),
            ),
            _why(item, _waits(item, known)),
        )
        for item in items
    ]


def _as_tree(items: Sequence[Item], known: Mapping[str, Item]) -> list[_Row]:
    """List items in the order of the tracker, each below its parent, and indented by its depth."""
    shown, counts = {item.id for item in items}, counts_below([*known.values()])
    depths: dict[str, int] = {}
    rows, waiting = [], MissionStatus.WAITING.words
    families: list[Item] = []
    alone: list[Item] = []
    for item in known.values():
        if item.id in shown:
            (families if item.parent in known or is_container(item) else alone).append(item)
    for item in (*families, *alone):
        depth = depths[item.id] = depths.get(item.parent, -1) + 1
        done, of = counts.get(item.id, (0, 0)) if is_container(item) else (0, 0)
        waits = [other for other in item.dependencies if other not in known or known[other].status is not Status.DONE]
        status = item.status
        cells = (
            STEP * min(depth, DEEPEST) + item.id if depth else item.id,
            waiting if waits and status is Status.READY else status.value,
            f"P{item.priority}",
            f"{done}/{of}" if of else "-",
            clean(item.title),
        )
        rows.append(_Row(item, cells, clean(item.blocked.reason) if item.blocked else _why(item, waits)))
    return rows


def _table(headings: Sequence[str], rows: Sequence[_Row], style: Style, width: int) -> Iterator[str]:
    widths = [widest(cells) for cells in zip(headings, *(row.cells for row in rows), strict=True)]
    shown = _that_fit(headings, widths, width)
    headings, widths = [headings[each] for each in shown], [widths[each] for each in shown]
    title = headings.index("Title")
    room = width - sum(widths) + widths[title] - len(GAP) * (len(widths) - 1)
    widths[title] = min(widths[title], max(room, NARROWEST_TITLE))
    indent = " " * sum(cell + len(GAP) for cell in widths[:title])
    yield style.paint("bold", line_of(headings, widths, GAP))
    below = indent if width - len(indent) >= NARROWEST_TITLE else STEP
    for item, cells, why in rows:
        line = line_of([cells[each] for each in shown], widths, GAP)
        yield style.paint(COLOURS[item.status], line) if item.status in COLOURS else line
        if why:
            yield from wrapped(why, width, below, "")


def _that_fit(headings: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Number the columns that a terminal has room for; long ids leave less to the others."""
    shown = list(range(len(headings)))
    for name in DISPENSABLE:
        taken = sum(widths[each] + len(GAP) for each in shown if headings[each] != "Title")
        if taken + NARROWEST_TITLE <= width:
            break
        shown = [each for each in shown if headings[each] != name]
    return shown


def _counts(items: Sequence[Item], every: Sequence[Item], waiting: Container[str] = ()) -> str:
    all_of_them = len(every)
    counts = Counter("waiting" if item.id in waiting else item.status.value for item in items)
    shown = f"{len(items)} of {all_of_them}" if len(items) != all_of_them else str(all_of_them)
    kinds = ", ".join(f"{number} {word}" for word, number in counts.items())
    return f"{shown} item{'' if all_of_them == 1 else 's'}{': ' if kinds else ''}{kinds}"


def _counts_of_work(items: Sequence[Item], every: Sequence[Item]) -> str:
    """Count tasks, not epics; a task with open dependencies is waiting, not ready."""
    known, work = {item.id: item for item in every}, to_do(every)
    free = (item for item in work if not (item.blocked or item.taken_by))
    waiting = {item.id for item in free if next(unfinished(item, known), None)}
    return _counts(to_do(items), work, waiting)


def _missions(project: Project, ids: set[str], *, by_tracker: bool) -> Iterator[str]:
    """List the missions that are running, by their locks, and those that were begun and are not running.

    `by_tracker`: it says itself at which phase an item stands, and what has halted.
    """
    pids = running(project, ids)
    begun = under_way(project, ids - pids.keys())
    if not (pids or begun):
        return
    from capsule.commands.watching import MissionReader  # noqa: PLC0415 - start-up: most often none is begun
    from capsule.core.history import NOBODY  # noqa: PLC0415 - start-up
    from capsule.reports.words import progress_words  # noqa: PLC0415 - start-up
    from capsule.system.clock import SystemClock  # noqa: PLC0415 - start-up

    with MissionReader(project) as reader:
        for run, progress in reader.progress(SystemClock().now()) if pids else ():
            yield f"{run.status.sign} {clean(run.name)} {' · '.join(progress_words(progress))}"
        for name, pid in pids.items():
            history, sign = reader.history(name), MissionStatus.RUNNING.sign
            doing = f"running (pid {pid})" if pid else "running"
            if history.waiting or history.queued:
                standing = reader.summary(name, "")
                sign, doing = standing.status.sign, clean(standing.sentence)
            yield f"{sign} {name} {doing}: capsule logs {name} -f"
        for name, state in begun.items():
            summary = reader.history(name).summary(NOBODY, "")
            if state.begun or not by_tracker:
                yield f"{summary.status.sign} {name} {clean(summary.sentence)} ({summary.next})"


# ---- for programs


def _plain(value: Any) -> Any:
    """Turn structs into dicts with all their fields, also the empty ones."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value
