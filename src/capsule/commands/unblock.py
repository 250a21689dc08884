"""`capsule unblock ID`: what waited for a human may go on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.commands.moving import commit_option
from capsule.core.errors import Refused
from capsule.core.item import Blocked, Item, Status, stands_at

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.commands.moving import Grip
    from capsule.wiring import Project

DESCRIPTION = """\
Let an item go on that waits for a human, so that the next run takes it up again. Where a mission waits, notes are
handed to its next agent, and stay until a phase succeeds with them. Where none does, as with a bead that was blocked
before anybody began with it, they become a comment, which people read and agents do not.

An item of a backlog goes back to exactly the status it was blocked from. Where a guardrail or a required review had
stopped it, this is your word that it may go on: that much is let pass from now on, for this item. A bead whose mission
has halted goes on from there, with its retries afresh and what you changed in its worktree until now; one that its
tracker calls blocked is put back to open.

  capsule unblock WRK-003
  capsule unblock WRK-003 --notes "Use the second API; the first is being retired."
  capsule unblock demo-1.1.2 --notes - < answers.md

Exit code: 0 unblocked; 1 it is not blocked, or there is no such item; 3 it is running.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--notes", metavar="TEXT", help="for the next agent of its mission; - reads it from stdin")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.moving import refuse_no_commit
    from capsule.wiring import open_project, open_tracker

    project = open_project(args.project_dir)
    tracker = open_tracker(project)
    if tracker.keeps_phases:
        return reopen(args, project, tracker)
    refuse_no_commit(tracker, args)
    return _let_bead_go(args, project, tracker)


def reopen(args: argparse.Namespace, project: Project, tracker: Tracker, *, only_decisions: bool = False) -> int:
    """An item of a backlog."""
    from capsule.commands.moving import grip, move, text_of
    from capsule.core.ledger import DECISION, unblocked
    from capsule.rules import guardrails_of

    notes = text_of(args.notes)
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


# ---- beads


def _let_bead_go(args: argparse.Namespace, project: Project, tracker: Tracker) -> int:
    """The tracker first: where it refuses, the mission stays halted, and nothing was said of notes."""
    from capsule.commands.moving import grip, text_of

    notes = text_of(args.notes)
    with grip(project, tracker, args.item) as held:
        item, halt = held.item, held.mission.halt if held.mission.under_way else None
        if not halt:
            _block_of(item)
        if item.status is Status.BLOCKED:
            _reopen(held)
        if notes and not halt:
            tracker.comment(item.id, notes)
    if halt:
        _reopen_mission(project, tracker, item, notes)
        print(f"{item.id} goes on from {halt.phase}{' with your notes' if notes else ''}: capsule run {item.id}")
        return 0
    print(f"{item.id} is open again: capsule run {item.id}")
    if notes:
        print("  No mission is waiting for notes, so they were added as a comment.")
        print("  Agents do not read comments: put what they must know into the description.")
    return 0


def _reopen(held: Grip) -> None:
    held.tracker.reopen(held.item.id)
    after = held.tracker.item(held.item.id)
    if after.blocked:
        by_bd = held.tracker.name == "beads"
        hint = f"See what it waits for{f': bd show {after.id}' if by_bd else ', in its tracker.'}"
        raise Refused(f"{after.id} is blocked still: {after.blocked.reason}.", hint)


def _reopen_mission(project: Project, tracker: Tracker, item: Item, notes: str) -> None:
    """Written into the journal now, so that whoever runs it next, the queue too, goes on with it."""
    from capsule.commands.common import mission_state
    from capsule.engine.job import Order
    from capsule.engine.run_mission import reopen as reopen_mission
    from capsule.reports.live import FanOut
    from capsule.rules import words_at
    from capsule.wiring import open_services

    state = mission_state(project, item.id)
    order = Order(
        mission=item.id,
        item=item,
        workflow=state.workflow,
        base=state.base,
        into=state.into,
        policy=state.policy,
        notes=notes,
    )
    with open_services(project, tracker, words_at(project, state.base), FanOut(), None) as services:
        reopen_mission(order, services)
