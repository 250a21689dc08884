"""`capsule add TITLE`: one more item in the backlog."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from capsule.commands.arguments import project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import CapsuleError, UsageError
from capsule.core.item import Status, Value, check_id
from capsule.core.text import one_line

if TYPE_CHECKING:
    from capsule.doors import Tracker
    from capsule.wiring import Project

DESCRIPTION = """\
Put an item into the backlog, as new. What you know of it helps the triage, and none of it is needed; a title is
enough. It works while a run is going, which then takes the item up too. The backlog is committed, unless
something else in the tree is not.

  capsule add "Sort the list by name"
  capsule add "Fix the clock" --size small --risk low --impact high --tag ui --tag bug
  capsule add "Ship it" --depends-on WRK-003 --description - < notes.md

Prints the new id and the title. Exit code: 0 added; 1 an item it depends on is unknown, or the items are not in a
backlog; 2 usage.
"""

LEVELS = {
    "size": ("small", "medium", "large"),
    "complexity": ("low", "medium", "high"),
    "risk": ("low", "medium", "high"),
    "impact": ("low", "medium", "high"),
}
_PATIENCE = 60.0


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("title", metavar="TITLE", help="what is to be done, on one line")
    parser.add_argument("--description", metavar="TEXT", help="more about it; - reads it from stdin")
    for name, levels in LEVELS.items():
        parser.add_argument(f"--{name}", metavar="LEVEL", help=", ".join(levels))
    parser.add_argument("--tag", metavar="TAG", action="append", default=[], help="may be given several times")
    parser.add_argument("--depends-on", metavar="ID", action="append", default=[], help="an item that comes first")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.moving import books_of
    from capsule.wiring import open_project, open_tracker

    values = _values(args)
    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    books_of(project, tracker)
    for other in args.depends_on:
        _check_known(tracker, other)
    print(f"{_add(project, tracker, values, no_commit=args.no_commit)}  {values['title']}")
    return 0


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


def _check_known(tracker: Tracker, other: str) -> None:
    if tracker.knows(other):
        return
    from difflib import get_close_matches

    near = get_close_matches(other, [item.id for item in tracker.items()], 1)
    hint = f"Did you mean {near[0]}?" if near else "`capsule status` lists what there is."
    raise CapsuleError(f"There is no item {other} to depend on.", hint, exit_code=1)
