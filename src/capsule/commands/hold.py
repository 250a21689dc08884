"""Put items on hold until you resume them, with the reason.

The item is blocked, like one that waits for a decision: no run takes it, and `capsule questions` lists it. `capsule
answer ID --approve` (for beads: `--retry`, or `capsule unblock ID`) resumes it where it was.

  capsule hold WRK-003 "legal has to look at it"
  capsule hold WRK-003 WRK-004 --reason "until the new API is there"

Exit code: 0 on hold; 1 it is refused, or there is no such item; 2 no reason is given; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.editing import hold
from capsule.app.items import Moved
from capsule.commands.arguments import ITEM_ID, commit_option, say, text_of, warn
from capsule.commands.each_item import do_each, ids_and_words
from capsule.core.errors import UsageError
from capsule.project import open_project
from capsule.reports.style import clean


def arguments(parser: argparse.ArgumentParser) -> None:
    what = "ids of items; the last word may be the reason"
    parser.add_argument("item", metavar="ID", type=ITEM_ID, nargs="+", help=what)
    parser.add_argument("--reason", metavar="TEXT", help="what it waits for; - reads it from stdin")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    ids, words = ids_and_words(args.item)
    if words and args.reason is not None:
        raise UsageError("There are two reasons: one as a word, one with --reason.", "Leave out one of them.")
    reason = words or text_of(args.reason)
    if not reason:
        raise UsageError("No reason is given.", 'Name it: capsule hold ID "..."')
    project = open_project(args.project_dir)
    return do_each(ids, lambda item: _tell(hold(project, item, reason, no_commit=args.no_commit)))


def _tell(moved: Moved) -> None:
    warn(moved.warnings)
    why = moved.after.blocked.reason if moved.after.blocked else ""
    say(f"{moved.before.id} is on hold: {clean(why)}")
