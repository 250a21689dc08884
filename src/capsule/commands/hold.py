"""Put items on hold until you resume them, with the reason.

The item is blocked: no run takes it, and `capsule questions` lists it with the command that resumes it where it was.
An item of a backlog waits for a decision; with --question for an answer, which goes to its next agent; with --blocked
for nothing in particular. Beads know no such types.

  capsule hold WRK-003 "legal has to look at it"
  capsule hold WRK-003 WRK-004 --reason "until the new API is there"
  capsule hold WRK-003 --question "which of the two shops is meant?"
  capsule hold WRK-003 --blocked "the supplier is closed"

Exit code: 0 on hold; 1 it is refused, or there is no such item; 2 no reason is given; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.editing import hold
from capsule.app.items import Moved
from capsule.commands.arguments import ITEM_ID, commit_option, say, text_of, warn
from capsule.commands.each_item import do_each, ids_and_words
from capsule.core.errors import UsageError
from capsule.core.ledger import DECISION
from capsule.core.signal import DEFAULT_BLOCK_TYPE
from capsule.project import open_project
from capsule.reports.style import clean

_KINDS = {"reason": DECISION, "question": DEFAULT_BLOCK_TYPE, "blocked": ""}
"""The type of the block, by the option that holds the text."""


def arguments(parser: argparse.ArgumentParser) -> None:
    what = "ids of items; the last word may be the reason"
    parser.add_argument("item", metavar="ID", type=ITEM_ID, nargs="+", help=what)
    parser.add_argument("--reason", metavar="TEXT", help="what it waits for; - reads it from stdin")
    parser.add_argument("--question", metavar="TEXT", help="the question that you will answer, instead of a reason")
    parser.add_argument("--blocked", metavar="TEXT", help="the reason; it waits for no decision")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    ids, words = ids_and_words(args.item)
    given = {name: getattr(args, name) for name in _KINDS if getattr(args, name) is not None}
    if len(given) + bool(words) > 1:
        named = " and ".join([*(["one as a word"] if words else []), *(f"one with --{name}" for name in given)])
        raise UsageError(f"There are two reasons: {named}.", "Leave out one of them.")
    way, text = next(iter(given.items()), ("reason", None))
    reason = words or text_of(text)
    if not reason:
        raise UsageError("No reason is given.", 'Name it: capsule hold ID "..."')
    project = open_project(args.project_dir)
    return do_each(ids, lambda item: _tell(hold(project, item, reason, _KINDS[way], no_commit=args.no_commit)))


def _tell(moved: Moved) -> None:
    warn(moved.warnings)
    why = moved.after.blocked.reason if moved.after.blocked else ""
    say(f"{moved.before.id} is on hold: {clean(why)}")
