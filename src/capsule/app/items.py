"""Lock an item while a person changes it, and record the change.

Beads are only changed through their tracker. A change to a backlog is committed with the tracker's own files alone,
whatever else is changed in the tree, and a running mission is told that a person made it: an unannounced change during
a step may be the agent's, and would be reverted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, cast

from capsule.adapters import StateCommit, StateStore, StateWritten, Tracker
from capsule.app.missions import mission_state, running
from capsule.core.assignment import Assign, Assignment
from capsule.core.errors import CapsuleError, LockHeld, Refused, UnknownItem
from capsule.core.event import MovedByHand
from capsule.core.evidence import Checkpoint
from capsule.core.item import Item, Value, check_id, status_and_phase, with_values
from capsule.core.ledger import tagged
from capsule.core.project_log import log_entry
from capsule.core.state import MissionState, replay
from capsule.journals.sqlite import SqliteJournal
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular
from capsule.system.git import Git
from capsule.workspaces import repository
from capsule.workspaces.checkouts import under_way
from capsule.workspaces.state_store import commit_files, open_state_store
from capsule.workspaces.trees import is_artefact

if TYPE_CHECKING:
    from capsule.workspaces.state_store import GitStateStore

COMMIT_TRACKER = "Update the tracker"
"""The message of a commit that holds the tracker's own files alone."""
_LARGEST = 256 * 1024 * 1024
_VERB: ContextVar[str] = ContextVar("verb", default="")
"""What the commits of one verb for several items have in common."""


class ItemLock(NamedTuple):
    """An item, locked against changes by other processes, and the state of its mission."""

    project: Project
    item: Item
    mission: MissionState
    journal: SqliteJournal


class Moved(NamedTuple):
    """An item before and after a change, with notes about recording it."""

    before: Item
    after: Item
    warnings: tuple[str, ...] = ()


def refuse_verb(tracker: Tracker, verb: str, instead: str) -> None:
    """Refuse a command that this tracker does not support, as its items have no phases or decisions."""
    if verb not in tracker.traits.verbs:
        this = tracker.traits.described.format(tracker.name)
        raise Refused(f"`capsule {verb}` is for the items of a backlog, and {this}.", instead)


def refuse_files_as_folders(project: Project, folders: Sequence[str]) -> None:
    """Refuse a file where the tracker and its workflow need a folder."""
    for name in folders:
        place = project.tracker_git.root / name
        if os.path.lexists(place) and not place.is_dir():
            message = f"{name} is a file, and the {project.tracker.name} needs a folder {name}/."
            raise CapsuleError(message, f"Rename it and commit that, such as with: git mv {name} {name}.old")


def find_item(tracker: Tracker, item_id: str) -> Item:
    """Look up an item that the user named; exit with 1 if there is none."""
    try:
        return tracker.item(check_id(item_id))
    except UnknownItem as fault:
        fault.exit_code = 1
        raise


@contextmanager
def lock_item(project: Project, item_id: str) -> Iterator[ItemLock]:
    """Lock the item's mission, even one that never began; raise LockHeld if it runs."""
    find_item(project.tracker, item_id)
    pid = running(project, {item_id}).get(item_id)
    if pid is not None:
        who = f"pid {pid}" if pid else "somewhere else"
        how = f"Stop it with `capsule stop {item_id}`" if pid else "Stop it there"
        raise LockHeld(
            f"{item_id} is running ({who}).",
            f"{how}; `capsule run {item_id}` resumes it later.",
        )
    if mission_state(project, item_id).unrecorded:
        # A step whose outcome is not in the backlog yet comes first: it would undo what is changed before it.
        from capsule.app.endings import record_last_step  # noqa: PLC0415 - start-up

        record_last_step(project, item_id)
    journal = project.journal()
    try:
        with journal.claim(item_id):
            state = replay(event for _, event in journal.events(item_id))
            yield ItemLock(project, find_item(project.tracker, item_id), state, journal)
    finally:
        journal.close()


def move(held: ItemLock, tag: str, words: str, values: dict[str, Value], *, no_commit: bool, answer: str = "") -> Moved:
    """Set these fields of the item, and tell its mission. A person's answer goes into the worklog, too."""
    before, at = held.item, SystemClock().now()
    assignment = Assign(before.id, {**values, "updated": at})
    message = tagged(before.id, tag, words)
    answered = [log_entry(before, at, before.phase or before.status.value, "Answered", answer)] if answer else []
    _, warnings = record(held.project, message, (assignment, *answered), no_commit=no_commit)
    if not held.mission.under_way:
        return Moved(before, with_values(before, assignment.values), warnings)
    after = held.project.tracker.item(before.id)
    event = MovedByHand(
        at=at, what="item", expected=status_and_phase(before), found=status_and_phase(after), item=after
    )
    held.journal.note(before.id, event)
    return Moved(before, after, warnings)


@contextmanager
def one_verb() -> Iterator[None]:
    """Mark all commits made inside as those of one verb, which are undone together."""
    before = _VERB.set(f"{os.urandom(8).hex()}.")
    try:
        yield
    finally:
        _VERB.reset(before)


def by_hand() -> str:
    """Make up a key for a commit of a verb; up to the point it is that of the verb."""
    return f"by-hand/{_VERB.get()}{os.urandom(8).hex()}"


def record(
    project: Project, message: str, assignments: Sequence[Assignment], *, no_commit: bool
) -> tuple[StateWritten, tuple[str, ...]]:
    """Commit, then save; only save if nothing can be committed now. Return warnings, too."""
    own, store = project.tracker.own_files(), store_of(project)
    refuse_files_as_folders(project, [name for name in project.tracker.traits.folders if name in own])
    if project.state_branch:
        store.finish()  # begins the branch if nobody has
    obstacle = "" if no_commit else why_not_committed(project.tracker_git, own)
    entry = StateCommit(key=by_hand(), message=message, assignments=assignments)
    booked = store.write(entry, commit=not no_commit and not obstacle)
    warnings = [f"warning: {warning}" for warning in booked.warnings]
    return booked, (*warnings, *([f"not committed: {obstacle}"] if obstacle else []))


def store_of(project: Project) -> StateStore:
    """Open the tracker's state store for a change by hand."""
    if project.settings.merge.to == "local":
        return open_state_store(project.tracker, project.git, project.branch)
    from capsule.wiring import state_store_for  # noqa: PLC0415 - start-up

    return state_store_for(project, project.tracker)


def commit_tracker(
    project: Project, onto: str, files: Mapping[str, bytes], message: str, work: Checkpoint | None = None
) -> str:
    """Commit these files of a backlog, and the work, on top of this commit; '' if it has them already."""
    return cast("GitStateStore", store_of(project)).commit_onto(onto, files, message, work)


def why_not_committed(git: Git, own_files: Sequence[str]) -> str:
    """Say what prevents a commit of the tracker's own files; '' if nothing does."""
    going_on = under_way(git.git_dir, bisect=True)
    if going_on:
        return f"{going_on[0]} is under way"
    if not git.checked_out():
        return "HEAD is detached"
    if not git.resolve("HEAD") and repository.dirty_paths(git, own_files):
        return "the repository has files, but no commit yet"  # a mission would start without them
    return ""


def edited_tracker_files(project: Project) -> list[str]:
    """List the tracker's own files that differ from the last commit."""
    own = project.tracker.own_files()
    return [path for path in repository.dirty_paths(project.tracker_git) if is_artefact(os.fsencode(path), own)]


def uncommitted_tracker_files(project: Project) -> list[str]:
    """List the tracker's own files that differ from the last commit; none if it commits its changes itself."""
    return [] if project.tracker.traits.authoritative else edited_tracker_files(project)


def commit_tracker_files(project: Project, into: str) -> None:
    """Commit the tracker's own files if the target branch is checked out."""
    git = project.git
    if git.checked_out() != into or under_way(git.git_dir, bisect=True):
        return
    paths = [path for path in uncommitted_tracker_files(project) if (project.root / path).is_file()]
    if paths:
        files = {path: read_regular(project.root / path, _LARGEST) for path in paths}
        commit_files(git, project.tracker.own_files(), files, COMMIT_TRACKER)
