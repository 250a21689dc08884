"""`capsule unblock ID`: the item goes back to exactly where it was."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import Refused
from capsule.core.item import Blocked, Item, Status, stands_at

if TYPE_CHECKING:
    pass

DESCRIPTION = """\
Put a blocked item back to exactly the status it was blocked from, so that the next run takes it up again. Notes are
handed to the next agent, and stay until a phase succeeds with them. Where a guardrail or a required review had stopped
it, this is your word that it may go on: that much is let pass from now on, for this item.

  capsule unblock WRK-003
  capsule unblock WRK-003 --notes "Use the second API; the first is being retired."
  capsule unblock WRK-003 --notes - < answers.md

Exit code: 0 unblocked; 1 it is not blocked, or there is no such item; 3 it is running.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--notes", metavar="TEXT", help="what the next agent should know; - reads it from stdin")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    return let_go(args)


def let_go(args: argparse.Namespace, *, only_decisions: bool = False) -> int:
    from capsule.commands.moving import books_of, grip, move, text_of
    from capsule.core.ledger import DECISION, unblocked
    from capsule.rules import guardrails_of
    from capsule.wiring import open_project, open_tracker

    notes = text_of(args.notes)
    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    books_of(project, tracker)
    with grip(project, tracker, args.item) as held:
        block = _block_of(held.item)
        if only_decisions and block.kind != DECISION:
            raise Refused(
                f"{held.item.id} waits for an answer, not for a decision: {block.reason}",
                f'Answer it: capsule unblock {held.item.id} --notes "..."',
            )
        values = unblocked(held.item, guardrails_of(project.settings), notes)
        after = move(held, "UNBLOCK", notes or block.reason, values, no_commit=args.no_commit)
    print(f"{after.id} is {stands_at(after)} again.")
    return 0


def _block_of(item: Item) -> Blocked:
    if item.status is Status.BLOCKED and item.blocked:
        return item.blocked
    raise Refused(
        f"{item.id} is not blocked: it is {item.status.value}.", f"See what it waits for: capsule explain {item.id}"
    )
