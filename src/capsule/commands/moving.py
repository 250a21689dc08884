"""What the commands that change items share.

An item is looked up, and its mission is held so that nobody else moves it meanwhile. Beads are changed through their
tracker, and that is all. A change to a backlog is committed where the tree is otherwise clean, and a mission that is
under way is told that it was a human: whatever is changed while a step runs and nobody says so may have been the agent,
and would be put back.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from capsule.core.assignment import Assign, Assignment
from capsule.core.errors import CapsuleError, LockHeld, Refused, UnknownItem, UsageError
from capsule.core.item import Item, Value, check_id, stands_at, with_values

if TYPE_CHECKING:
    from capsule.adapters import StateStore, StateWritten, Tracker
    from capsule.core.state import MissionState
    from capsule.journals.sqlite import SqliteJournal
    from capsule.system.git import Git
    from capsule.wiring import Project


LARGEST_TEXT = 256 * 1024


class Grip(NamedTuple):
    """An item that nobody else moves while we have it, and how its mission stands."""

    project: Project
    tracker: Tracker
    item: Item
    mission: MissionState
    journal: SqliteJournal


def commit_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-commit", action="store_true", help="only change the files; commit them yourself (backlog)"
    )


def refuse_no_commit(tracker: Tracker, args: argparse.Namespace) -> None:
    if args.no_commit and not tracker.keeps_phases:
        raise UsageError(
            f"--no-commit is for a backlog, and this project's tracker is {tracker.name}.",
            "Leave it out: nothing is committed.",
        )


def refuse_beads(tracker: Tracker, verb: str, instead: str) -> None:
    """For what only a backlog has: phases to be moved between, decisions to be waited for."""
    if not tracker.keeps_phases:
        raise Refused(
            f"`capsule {verb}` is for the items of a backlog, and this project's tracker is {tracker.name}.", instead
        )


def find_item(tracker: Tracker, item_id: str) -> Item:
    try:
        return tracker.item(check_id(item_id))
    except UnknownItem as fault:
        fault.exit_code = 1
        raise


@contextmanager
def grip(project: Project, tracker: Tracker, item_id: str) -> Iterator[Grip]:
    """Hold the item's mission, also one that never began; LockHeld where it runs."""
    from capsule.core.state import replay

    find_item(tracker, item_id)
    _refuse_if_running(project, item_id)
    _tell_what_is_untold(project, tracker, item_id)
    journal = project.journal()
    try:
        with journal.claim(item_id):
            state = replay(event for _, event in journal.events(item_id))
            yield Grip(project, tracker, find_item(tracker, item_id), state, journal)
    finally:
        journal.close()


def move(held: Grip, tag: str, words: str, values: dict[str, Value], *, no_commit: bool) -> Item:
    """Set these fields of the item, and tell its mission. The item as it is afterwards."""
    from capsule.core.ledger import tagged
    from capsule.system.clock import SystemClock

    before, at = held.item, SystemClock().now()
    assignment = Assign(before.id, {**values, "updated": at})
    message = tagged(before.id, tag, words)
    record(held.project, held.tracker, message, (assignment,), no_commit=no_commit)
    if not held.mission.under_way:
        return with_values(before, assignment.values)
    from capsule.core.event import MovedByHand

    after = held.tracker.item(before.id)
    event = MovedByHand(at=at, what="item", expected=stands_at(before), found=stands_at(after), item=after)
    held.journal.note(before.id, event)
    return after


def record(
    project: Project, tracker: Tracker, message: str, assignments: Sequence[Assignment], *, no_commit: bool
) -> StateWritten:
    """Commit first, then save; only save where a commit would take along what is somebody else's."""
    from capsule.adapters import StateCommit

    obstacle = "" if no_commit else why_not_committed(project.git, tracker.own_files())
    entry = StateCommit(key=f"by-hand/{os.urandom(8).hex()}", message=message, assignments=assignments)
    booked = state_store_of(project, tracker).write(entry, commit=not no_commit and not obstacle)
    for warning in booked.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if obstacle:
        print(f"not committed: {obstacle}", file=sys.stderr)
    return booked


def why_not_committed(git: Git, own_files: Sequence[str]) -> str:
    """What stands in the way of a commit that holds the backlog and nothing else; '' where nothing does."""
    from capsule.workspaces import repository

    going_on = repository.under_way(git)
    if going_on:
        return f"{going_on} is under way"
    if repository.is_detached(git):
        return "HEAD is on no branch"
    dirty = len(repository.dirty_paths(git, own_files))
    return f"{dirty} other change{'s' if dirty > 1 else ''} in the tree" if dirty else ""


def state_store_of(project: Project, tracker: Tracker) -> StateStore:
    from capsule.wiring import open_state_store

    state_store = open_state_store(project, tracker)
    if state_store is None:
        raise Refused(
            f"The items of this project are not in a backlog: {tracker.name} has them.",
            f"Change them there{', such as with `bd update` and `bd close`' if tracker.name == 'beads' else ''}.",
        )
    return state_store


def text_of(option: str | None) -> str:
    """What an option says; `-` is whatever comes on stdin."""
    if option != "-":
        return plain(option or "")
    data = sys.stdin.buffer.read(LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise UsageError(f"That is more than {LARGEST_TEXT // 1024} KiB of text.", "Put it into a file of the project.")
    return plain(data.decode(errors="replace"))


def plain(text: str) -> str:
    """Text that can be written down: whole characters, none that steer a terminal."""
    from capsule.core.text import without_controls

    return without_controls(text.encode(errors="replace").decode()).strip()


def under_way(project: Project, ids: set[str]) -> dict[str, MissionState]:
    """Missions of these items that began and are not at their end. Only those that left papers are looked at."""
    from capsule.commands.common import mission_state

    folder = project.root / ".capsule" / "missions"
    names = {path.name for path in folder.iterdir()} & ids if folder.is_dir() else set()
    states = {name: mission_state(project, name) for name in sorted(names)}
    return {name: state for name, state in states.items() if state.under_way}


def running(project: Project, ids: set[str]) -> dict[str, int]:
    """Who runs now, by the locks alone: item and pid. A pid that cannot be seen from here is 0."""
    from capsule.system.lock import holder

    locks = project.state_folder / "locks"
    found = {path.stem.removeprefix("mission-"): path for path in locks.glob("mission-*.lock")}
    pids: dict[str, int] = {}
    for name in sorted(found.keys() & ids):
        try:
            pid = holder(found[name])
        except CapsuleError:
            pid = 0
        if pid is not None:
            pids[name] = pid
    return pids


def _refuse_if_running(project: Project, item_id: str) -> None:
    pid = running(project, {item_id}).get(item_id)
    if pid is None:
        return
    who = f"pid {pid}" if pid else "somewhere else"
    how = f"`kill {pid}` ends it in order" if pid else "End it there"
    raise LockHeld(
        f"{item_id} is left as it is: it is running ({who}): stop it first.",
        f"{how}; `capsule run {item_id}` goes on with it later.",
    )


def _tell_what_is_untold(project: Project, tracker: Tracker, item_id: str) -> None:
    """A step whose outcome is known and not in the backlog yet comes first: it would undo what is changed before it."""
    from capsule.commands.common import mission_state

    state = mission_state(project, item_id)
    if not state.unrecorded:
        return
    from capsule.engine.bookkeeping import sync_tracker
    from capsule.engine.job import standing
    from capsule.reports.live import FanOut
    from capsule.rules import words_at
    from capsule.wiring import open_services

    words = words_at(project, state.base)
    with open_services(project, tracker, words, FanOut(), None) as services, services.journal.claim(item_id):
        sync_tracker(standing(services, item_id), services)
