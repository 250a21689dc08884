"""`capsule add TITLE`: one more item, in the backlog or in another tracker."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from capsule.commands.arguments import ITEM_ID, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.item import NewItem, Status, Value, check_id
from capsule.core.text import one_line

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.wiring import Project

DESCRIPTION = """\
Put an item into the tracker. A title is enough. It works while a run is going, which then takes the item up too.

In a backlog it is new, and what you know of it helps the triage; the backlog is committed, unless something else in the
tree is not. --size, --complexity, --risk and --impact are for a backlog. In beads it is open: --type, --priority and
--parent are for beads, and tags become labels.

  capsule add "Sort the list by name"
  capsule add "Fix the clock" --size small --risk low --impact high --tag ui --tag bug
  capsule add "Ship it" --depends-on WRK-003 --description - < notes.md
  capsule add "Validate fax numbers" --type task --priority 1 --parent demo-1.1

Prints the new id and the title. Exit code: 0 added; 1 an item it depends on or belongs to is unknown, or the tracker
refuses it; 2 usage.
"""

LEVELS = {
    "size": ("small", "medium", "large"),
    "complexity": ("low", "medium", "high"),
    "risk": ("low", "medium", "high"),
    "impact": ("low", "medium", "high"),
}
FOR_BEADS = ("type", "priority", "parent")
TYPES = "task, bug, feature, epic, or what else your tracker knows"
PRIORITIES = ("0", "1", "2", "3", "4")
_PATIENCE = 60.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="what is to be done, on one line")
    parser.add_argument("--description", metavar="TEXT", help="more about it; - reads it from stdin")
    for name, levels in LEVELS.items():
        parser.add_argument(f"--{name}", metavar="LEVEL", help=f"{', '.join(levels)} (backlog)")
    parser.add_argument("--type", metavar="TYPE", help=f"{TYPES} (beads; default: task)")
    parser.add_argument("--priority", metavar="N", help="0, which is the most urgent, to 4 (beads; default: 2)")
    of = "the epic or feature that it belongs to (beads)"
    parser.add_argument("--parent", metavar="ID", type=ITEM_ID, help=of)
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="may be given several times")
    first = "an item that comes first"
    parser.add_argument("--depends-on", metavar="ID", type=ITEM_ID, action="append", default=[], help=first)
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.wiring import open_project, open_tracker

    values = _values(args)
    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    _check_options(tracker, args)
    for other in args.depends_on:
        _check_known(tracker, other, "to depend on")
    if tracker.keeps_phases:
        name = _add(project, tracker, values, no_commit=args.no_commit)
    else:
        name = _add_to_tracker(tracker, args, values)
    print(f"{name}  {values['title']}")
    return 0


def _check_options(tracker: Tracker, args: argparse.Namespace) -> None:
    """Whoever says something that this tracker has no place for is told so, before anything is made."""
    from capsule.commands.moving import refuse_no_commit

    given = [name for name in (FOR_BEADS if tracker.keeps_phases else LEVELS) if getattr(args, name)]
    if given and tracker.keeps_phases:
        hint = "An item of a backlog has --size, --complexity, --risk and --impact."
        raise UsageError(f"--{given[0]} is for beads, and this project has a backlog.", hint)
    if given:
        hint = "An item has --type, --priority (0 to 4) and --parent there."
        raise UsageError(f"--{given[0]} is for a backlog, and this project's tracker is {tracker.name}.", hint)
    refuse_no_commit(tracker, args)


def _add_to_tracker(tracker: Tracker, args: argparse.Namespace, values: dict[str, Value]) -> str:
    new = _new_item(tracker, args, values)
    try:
        return tracker.add(new)
    except Refused as refused:
        if args.type and "type" in refused.message:  # the one thing it can refuse that we do not look at ourselves
            refused.hint = f"--type is {TYPES}."
        raise


def _new_item(tracker: Tracker, args: argparse.Namespace, values: dict[str, Value]) -> NewItem:
    """The reference makes it ours: should the tracker be asked twice, it is added once."""
    from capsule.commands.moving import plain

    priority = (args.priority or "2").lower().removeprefix("p")
    if priority not in PRIORITIES:
        raise UsageError(f"--priority is {args.priority!a}; it must be 0 to 4.", "0 is the most urgent, 2 the usual.")
    if args.parent:
        _check_known(tracker, check_id(args.parent), "to belong to")
    known = {name: value for name, value in values.items() if isinstance(value, list)}
    return NewItem(
        title=str(values["title"]),
        description=str(values.get("description", "")),
        type=plain(args.type or "").lower() or "task",
        priority=int(priority),
        parent=args.parent or "",
        tags=tuple(known.get("tags", ())),
        dependencies=tuple(known.get("dependencies", ())),
        reference=f"capsule/add/{os.urandom(8).hex()}",
    )


def _add(project: Project, tracker: Tracker, values: dict[str, Value], *, no_commit: bool) -> str:
    """The id it was given. One at a time: the commit's first line names an id that nobody else has taken."""
    from capsule.commands.moving import record
    from capsule.core.assignment import Exists
    from capsule.core.ledger import tagged
    from capsule.system.clock import SystemClock
    from capsule.system.lock import FileLock

    at = SystemClock().now()
    new = Exists(f"add/{os.urandom(8).hex()}", {**values, "created": at, "updated": at})
    lock = FileLock(project.state_folder / "locks" / "add.lock")
    lock.acquire(_PATIENCE)
    with lock:
        message = tagged(_next_id(project, tracker), "ADD", str(values["title"]))
        return record(project, tracker, message, (new,), no_commit=no_commit).added[0]


def _next_id(project: Project, tracker: Tracker) -> str:
    return f"{project.settings.project.prefix}-{getattr(tracker, 'last_id', 0) + 1:03}"


def _values(args: argparse.Namespace) -> dict[str, Value]:
    from capsule.commands.moving import plain, text_of

    levels: dict[str, Value] = {name: _level(name, getattr(args, name)) for name in LEVELS if getattr(args, name)}
    tags = list(dict.fromkeys(filter(None, map(plain, args.tag))))
    others = list(dict.fromkeys(check_id(other) for other in args.depends_on))
    found = {"description": text_of(args.description), **levels, "tags": tags, "dependencies": others}
    given: dict[str, Value] = {name: value for name, value in found.items() if value}
    return {"title": _title(args.title), "status": Status.NEW.value, **given}


def _title(text: str) -> str:
    """One line that can stand in a table; a second one was meant for the description."""
    if "\n" in text.strip():
        raise UsageError("A title is one line, and this one has several.", "Put the rest into --description.")
    title = one_line(text)
    if not title:
        raise UsageError("An item needs a title.", 'Say what is to be done: capsule add "Sort the list by name"')
    return title


def _level(name: str, given: str) -> str:
    from difflib import get_close_matches

    levels = LEVELS[name]
    if given.lower() in levels:
        return given.lower()
    near = get_close_matches(given.lower(), levels, 1)
    hint = f"Did you mean `{near[0]}`?" if near else "Leave it out if you do not know."
    raise UsageError(f"--{name} is {given!a}; it must be {', '.join(levels[:-1])} or {levels[-1]}.", hint)


def _check_known(tracker: Tracker, other: str, why: str) -> None:
    if tracker.knows(other):
        return
    from difflib import get_close_matches

    near = get_close_matches(other, [item.id for item in tracker.items()], 1)
    hint = f"Did you mean {near[0]}?" if near else "`capsule status` lists what there is."
    raise CapsuleError(f"There is no item {other} {why}.", hint, exit_code=1)
