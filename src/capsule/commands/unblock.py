"""`capsule unblock ID`: the item goes back to exactly where it was."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import Refused
from capsule.core.item import Blocked, Item, Status, Value, check_move

if TYPE_CHECKING:
    from capsule.settings import Guardrails

DESCRIPTION = """\
Put a blocked item back to exactly the status it was blocked from, so that the next run takes it up again. Notes are
handed to the next agent, and stay until a phase succeeds with them. Where a guardrail or a required review had stopped
it, this is your word that it may go on: that much is let pass from now on, for this item.

  capsule unblock WRK-003
  capsule unblock WRK-003 --notes "Use the second API; the first is being retired."
  capsule unblock WRK-003 --notes - < answers.md

Exit code: 0 unblocked; 1 it is not blocked, or there is no such item; 3 it is running.
"""

DECISION = "decision"


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--notes", metavar="TEXT", help="what the next agent should know; - reads it from stdin")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    return let_go(args)


def let_go(args: argparse.Namespace, *, only_decisions: bool = False) -> int:
    from capsule.commands.moving import books_of, grip, move, standing, text_of
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
        values = unblocked(held.item, block, notes, project.settings.guardrails)
        after = move(held, "UNBLOCK", notes or block.reason, values, no_commit=args.no_commit)
    print(f"{after.id} is {standing(after)} again.")
    return 0


def _block_of(item: Item) -> Blocked:
    if item.status is Status.BLOCKED and item.blocked:
        return item.blocked
    raise Refused(
        f"{item.id} is not blocked: it is {item.status.value}.", f"See what it waits for: capsule explain {item.id}"
    )


def unblocked(item: Item, block: Blocked, notes: str, guardrails: Guardrails) -> dict[str, Value]:
    """The fields that change. What a human decided is not asked again."""
    from capsule.core.ledger import UNBLOCKED

    check_move(item, block.from_status)
    values: dict[str, Value] = {"status": block.from_status.value, **UNBLOCKED}
    if notes:
        values["unblock_context"] = notes
    if block.kind == DECISION:
        overrides = let_pass(item, guardrails)
        values |= {"guardrail_override": overrides} if overrides else {}
        values |= {"requires_human_review": False} if item.requires_human_review else {}
    return values


def let_pass(item: Item, guardrails: Guardrails) -> dict[str, str]:
    """The levels that were let pass before, and those above the guardrails now."""
    from capsule.core.item import LEVELS

    passed: dict[str, str] = {}
    for dimension in ("size", "complexity", "risk"):
        before, now = getattr(item.guardrail_override, dimension), getattr(item.assessment, dimension)
        above = LEVELS.get(now, 0) > LEVELS[getattr(guardrails, f"max_{dimension}")]
        highest = max((before, now if above else ""), key=lambda level: LEVELS.get(level, 0))
        passed |= {dimension: highest} if highest else {}
    return passed
