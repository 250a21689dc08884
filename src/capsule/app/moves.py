"""Change items by hand: add, advance, unblock, approve, complete and close them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec import Struct
from msgspec.structs import replace

from capsule.adapters import CommittedTracker, Tracker
from capsule.app.items import ItemLock, Moved, lock_item, move, record, refuse_verb
from capsule.app.missions import mission_state
from capsule.core.assignment import Exists
from capsule.core.documents import artefact_path, artefact_paths
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.event import Accepted
from capsule.core.item import (
    EARLY,
    Blocked,
    Item,
    NewItem,
    Status,
    Value,
    check_id,
    check_move,
    status_and_phase,
    with_values,
)
from capsule.core.ledger import DECISION, archive_subject, archived, tagged, unblocked
from capsule.core.state import MissionState, children_of, is_accepted, replay
from capsule.core.text import cleaned, count, did_you_mean, one_line, without_controls
from capsule.core.workflow import Workflow
from capsule.project import Project
from capsule.rules import choose_workflow, guardrails_of, words_at
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular
from capsule.system.lock import FileLock

if TYPE_CHECKING:
    from capsule.app.endings import EndedMission

LEVELS = {
    "size": ("small", "medium", "large"),
    "complexity": ("low", "medium", "high"),
    "risk": ("low", "medium", "high"),
    "impact": ("low", "medium", "high"),
}
TYPES = "task, bug, feature, epic, or what else your tracker knows"
PRIORITIES = ("0", "1", "2", "3", "4")
BEADS_FIELDS = ("type", "priority", "parent")
"""Fields of `add` besides levels; a backlog has none of them."""
ONWARDS = {
    Status.NEW: Status.SCOPED,
    Status.RESEARCHING: Status.SCOPED,
    Status.SCOPED: Status.READY,
    Status.READY: Status.IN_PROGRESS,
}
_LARGEST_DOCUMENT = 4 * 1024 * 1024
_PATIENCE = 60.0
_NAMED = 3
"""How many of the open items are named."""


# ---- add


class ItemDraft(Struct, frozen=True):
    """A new item as the user described it. Levels are for a backlog; type, priority and parent for other trackers."""

    title: str
    description: str = ""
    tags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    size: str = ""
    complexity: str = ""
    risk: str = ""
    impact: str = ""
    type: str = ""
    priority: str = ""
    parent: str = ""
    reference: str = ""
    """Its source, such as the address of an issue; no two items share one."""


def add_item(project: Project, draft: ItemDraft, *, no_commit: bool = False) -> tuple[str, tuple[str, ...]]:
    """Put an item into the tracker; return its id and warnings."""
    return _changes_of(project, no_commit=no_commit).add(_checked(project, draft))


def add_items(
    project: Project, drafts: Sequence[ItemDraft], *, no_commit: bool = False
) -> tuple[list[str], tuple[str, ...]]:
    """Put items into a backlog by one commit; return their ids and warnings."""
    checked = [_checked(project, draft) for draft in drafts]
    return _changes_of(project, no_commit=no_commit).add_all(checked, "ADD")


def _checked(project: Project, draft: ItemDraft) -> ItemDraft:
    draft = checked_draft(project, draft)
    for other in draft.depends_on:
        _check_known(project.tracker, other, "to depend on")
    return draft


def checked_draft(project: Project, draft: ItemDraft) -> ItemDraft:
    """Return the draft with full names of levels; refuse fields that this tracker lacks."""
    draft = replace(
        draft,
        **{name: level_of(name, getattr(draft, name)) for name in LEVELS if getattr(draft, name)},
        tags=tuple(dict.fromkeys(draft.tags)),
        depends_on=tuple(dict.fromkeys(check_id(other) for other in draft.depends_on)),
    )
    traits = project.tracker.traits
    given = [name for name in (*BEADS_FIELDS, *LEVELS) if getattr(draft, name) and name not in traits.fields]
    if given:
        this, whose = traits.described.format(project.tracker.name), "a backlog" if given[0] in LEVELS else "beads"
        raise UsageError(f"--{given[0]} is for {whose}, and {this}.", traits.fields_hint)
    return draft


def add_all(
    project: Project, drafts: Sequence[ItemDraft], *, no_commit: bool = False
) -> tuple[list[str], tuple[str, ...]]:
    """Put items into the tracker, into a backlog by one commit; return their ids, '' for one that exists already."""
    return _changes_of(project, no_commit=no_commit).add_all(drafts, "IMPORT")


def title_of(text: str) -> str:
    """Return the title as one line that fits a table; further lines belong to the description."""
    if "\n" in text.strip():
        raise UsageError("A title is one line, and this one has several.", "Put the rest into --description.")
    if cleaned(text) != without_controls(text):
        raise UsageError("The title is not UTF-8 text.", "Use a terminal and a locale with UTF-8.")
    title = one_line(text)
    if not title:
        raise UsageError(
            "An item needs a title.", 'Describe the change in one line: capsule add "Sort the list by name"'
        )
    return title


def level_of(name: str, given: str) -> str:
    levels = LEVELS[name]
    by_letter = {level[0]: level for level in levels}
    word = by_letter.get(given.lower(), given.lower())
    if word in levels:
        return word
    hint = did_you_mean(given.lower(), levels, "Leave it out if you do not know.")
    raise UsageError(f"--{name} is {given!a}; it must be {', '.join(levels[:-1])} or {levels[-1]}.", hint)


def _check_known(tracker: Tracker, other: str, why: str) -> None:
    if not tracker.knows(other):
        known = [item.id for item in tracker.items()]
        hint = did_you_mean(other, known, "`capsule status` lists all items.", quote="")
        raise CapsuleError(f"There is no item {other} {why}.", hint, exit_code=1)


# ---- advance


def advance(project: Project, item_id: str, *, to: str = "", no_commit: bool = False) -> Moved:
    """Move a backlog item to its next step, or to a phase."""
    refuse_verb(project.tracker, "advance", f"Go on with it: capsule run {item_id}, or capsule step {item_id}")
    with lock_item(project, item_id) as held:
        before, values = held.item, _advanced(held, to)
        after = with_values(before, values)
        same = before.status is after.status and before.phase
        way = f"{before.phase} -> {after.phase}" if same else f"{status_and_phase(before)} -> {status_and_phase(after)}"
        return move(held, "ADVANCE", way, values, no_commit=no_commit)._replace(after=after)


def _advanced(held: ItemLock, wanted: str) -> dict[str, Value]:
    """Return its new status and phase; refuse a move that the table or a missing document forbids."""
    item = held.item
    if held.mission.under_way:
        workflow = held.mission.workflow  # a mission keeps the workflow that it started with
    else:
        workflow = choose_workflow(held.project, item, words_at(held.project, held.project.git.resolve("HEAD")))
    if item.blocked:
        raise Refused(f"{item.id} is blocked: {item.blocked.reason}", f"Answer it: {_helps(held.project, item)}")
    if item.status is Status.DONE:
        raise Refused(f"{item.id} is done.", f"Archive it: capsule complete {item.id}")
    # Capsule's own actions in between cannot be chosen.
    names = workflow.names()
    phases = tuple(name for name in names[names.index(workflow.entry()) :] if workflow.phase(name).doer != "do")
    if not wanted and item.phase in names and workflow.phase(item.phase).doer == "do":
        hint = f"Go on with `capsule run {item.id}`, or mark it as done: capsule complete {item.id}"
        raise Refused(f"{item.id} is at {item.phase}, a phase that Capsule runs itself.", hint)
    target = here = item.phase if item.phase in phases else phases[0]
    if wanted:
        target = wanted.lower()
        _check_target(held, target, phases, workflow)
    elif item.status is Status.IN_PROGRESS and item.phase:
        if here == phases[-1]:
            hint = f"Mark it as done: capsule complete {item.id}"
            raise Refused(f"{item.id} is at {here}, and there is no phase after that.", hint)
        target = phases[phases.index(here) + 1]
    if item.status is Status.IN_PROGRESS:
        return {"phase": target}
    status = ONWARDS[item.status]
    check_move(item, status)
    return {"status": status.value} if status is Status.SCOPED else {"status": status.value, "phase": target}


def _check_target(held: ItemLock, target: str, phases: tuple[str, ...], workflow: Workflow) -> None:
    """Refuse a phase whose earlier documents are missing."""
    item = held.item
    if target not in phases:
        hint = did_you_mean(target, phases, f"There are: {', '.join(phases)}.")
        raise UsageError(f"An item of the workflow {workflow.name} cannot be moved to a phase {target!a}.", hint)
    if item.status in EARLY:
        raise Refused(
            f"{item.id} is {item.status.value}, and has to be scoped before it can go to {target}.",
            f"Mark it as scoped: capsule advance {item.id}",
        )
    if item.status is Status.IN_PROGRESS and item.phase == target:
        raise Refused(f"{item.id} is at {target} already.", f"Go on with it: capsule run {item.id}")
    here = item.phase if item.phase in phases else phases[0]
    skipped = phases[phases.index(here) : phases.index(target)]
    worktree = held.project.root / ".capsule" / "worktrees" / item.id
    root = worktree if worktree.is_dir() else held.project.tracker_git.root
    paths = [path.relative_to(root).as_posix() for path in root.glob(f"changes/{item.id}_*/*")]
    for kind in filter(None, (workflow.phase(name).artefact for name in skipped)):
        if not any(_is_written(root / path) for path in artefact_paths(item.id, kind, paths)):
            raise Refused(
                f"{item.id} cannot skip to {target}: its {kind} is missing or empty.",
                f"Write it first: {artefact_path(item, kind, paths)}",
            )


def _is_written(path: Path) -> bool:
    try:
        return bool(read_regular(path, _LARGEST_DOCUMENT).strip())
    except OSError:
        return False


# ---- unblock, approve


class Unblocked(NamedTuple):
    """The outcome of unblocking an item."""

    item: Item
    stands: str = ""
    """Its restored status in the tracker; '' if it is only open."""
    goes_on_from: str = ""
    """The phase where its halted mission continues; '' if there is none, or the tracker decides."""
    commented: bool = False
    """No mission waits for notes, so they became a comment."""
    taken_up_by: str = ""
    """The run under way that continues with it; '' if there is none."""
    warnings: tuple[str, ...] = ()


def unblock(project: Project, item_id: str, notes: str = "", *, no_commit: bool = False) -> Unblocked:
    """Unblock an item that waits for a person."""
    changes = _changes_of(project, no_commit=no_commit)
    with lock_item(project, item_id) as held:
        done = changes.unblock(held, notes)
    if done.goes_on_from:
        from capsule.app.endings import reopen_mission  # noqa: PLC0415 - start-up

        reopen_mission(project, done.item, notes)
        to_do = mission_state(project, item_id).to_do  # a review goes on with the worker it sends back to
        done = done._replace(goes_on_from=to_do[0] if to_do else done.goes_on_from)
    return done._replace(taken_up_by=_told(project, item_id))


def _told(project: Project, item_id: str) -> str:
    from capsule.app.control import tell_answered  # noqa: PLC0415 - start-up

    return tell_answered(project, item_id)


def approve(project: Project, item_id: str, notes: str = "", *, no_commit: bool = False) -> Unblocked:
    """Approve an item of the backlog that waits for a decision."""
    refuse_verb(project.tracker, "approve", f"Unblock it: capsule unblock {item_id}, or capsule run {item_id}")
    changes = _changes_of(project, no_commit=no_commit)
    with lock_item(project, item_id) as held:
        block = _block_of(held.item)
        if block.kind != DECISION:
            raise Refused(
                f"{item_id} waits for an answer, not for a decision: {block.reason}",
                f"Answer it: {_helps(project, held.item)}",
            )
        done = changes.unblock(held, notes)
    return done._replace(taken_up_by=_told(project, item_id))


def _helps(project: Project, item: Item) -> str:
    from capsule.app.inbox import command_for  # noqa: PLC0415 - start-up

    return command_for(project, item)


def _block_of(item: Item) -> Blocked:
    if item.status is Status.BLOCKED and item.blocked:
        return item.blocked
    raise Refused(
        f"{item.id} is not blocked: it is {item.status.value}.", f"See what it waits for: capsule explain {item.id}"
    )


# ---- accept


def accept(
    project: Project, item_id: str, check: str, because: str, *, no_commit: bool = False
) -> tuple[Accepted, tuple[str, ...], tuple[str, ...]]:
    """Accept one refuted claim of a mission, for the tree that was judged, and unblock its item.

    Return the accepted claim, the phase's other refuted claims, and warnings.
    """
    if not because:
        raise UsageError("The reason is empty.", "Give the reason: it is shown with the mission and in every report.")
    changes = _changes_of(project, no_commit=no_commit)
    with lock_item(project, item_id) as held:
        state = _with_refutation(held, check)
        known = state.refused[check]
        event = Accepted(
            at=SystemClock().now(),
            phase=known.phase,
            check=check,
            tree=known.piece.tree,
            claimed=known.piece.claimed,
            observed=known.piece.observed,
            because=because,
        )
        with nullcontext() if state.mission == held.item.id else held.journal.claim(state.mission):
            held.journal.note(state.mission, event)
        left = tuple(
            name
            for name, other in state.refused.items()
            if other.phase == known.phase and name != check and not is_accepted(state, other.piece)
        )
        warnings = () if left else changes.unblock_accepted(held, check, because)
    return event, left, warnings


def _with_refutation(held: ItemLock, check: str) -> MissionState:
    """Return the mission, or its child, with this refuted claim; refuse if there is none."""
    item, mission = held.item.id, held.mission
    if not mission.under_way:
        what = "is finished" if mission.started else "has no mission yet"
        hint = f"See its state: capsule show {item}" if mission.started else f"Start it: capsule run {item}"
        raise Refused(f"{item} {what}, so nothing of it can be accepted.", hint)
    parts = children_of(mission, lambda name: replay(event for _, event in held.journal.events(name)))
    states = [mission, *parts]
    refuted = [(state, state.refused[check]) for state in reversed(states) if check in state.refused]
    for state, known in refuted:
        if is_accepted(state, known.piece):
            raise Refused(f"{check} of {item} is accepted already.", f"Go on with it: capsule run {item}")
        if known.piece.tree:
            return state
    if refuted:
        cause = f"{check} of {item} could not be checked: {refuted[0][1].piece.observed}"
        raise Refused(cause, f"Fix that, then go on with `capsule run {item}`.")
    open_ones = sorted({name for state in states for name in state.refused})
    hint = f"Refuted: {', '.join(open_ones)}." if open_ones else f"See what was checked: capsule show {item}"
    known_checks = sorted({name for state in states for phase in state.workflow.phases for name in phase.checks})
    if check not in (*known_checks, "gate", "fit-for-main", "hooks"):
        hint = hint if open_ones else did_you_mean(check, known_checks, hint)
        raise Refused(f"There is no check {check!a} in the workflow {mission.workflow.name}.", hint)
    raise Refused(f"{check} is not refuted in {item}, so there is nothing to accept.", hint)


# ---- complete, close


Archived = tuple[Item, "EndedMission | None", tuple[str, ...]]
"""The archived item, the end of its mission if it had one, and warnings."""


def complete(project: Project, item_id: str, *, no_commit: bool = False) -> Archived:
    """Complete an item: archive it, or close it in its tracker."""
    return _archive(project, item_id, "", no_commit=no_commit)


def close(project: Project, item_id: str, reason: str, *, no_commit: bool = False) -> Archived:
    """Close an item that will not be done, with a reason."""
    if not reason:
        raise UsageError("The reason is empty.", "Give the reason: it is recorded with the item.")
    return _archive(project, item_id, reason, no_commit=no_commit)


def _archive(project: Project, item_id: str, why: str, *, no_commit: bool) -> Archived:
    """Archive it in the tracker, which may refuse, then end its mission."""
    changes = _changes_of(project, no_commit=no_commit)
    with lock_item(project, item_id) as held:
        item, left = held.item, held.mission.under_way
        warnings = changes.archive(held, why)
    if not left:
        return item, None, warnings
    from capsule.app.endings import end_mission  # noqa: PLC0415 - start-up

    ended = end_mission(project, item.id, how="closed by hand" if why else "completed by hand", branch=True)
    return item, ended, (*warnings, *ended.warnings)


# ---- changes to the tracker


class _TrackerChanges:
    """Change items through their tracker, which may refuse; nothing is committed."""

    def __init__(self, project: Project, *, no_commit: bool) -> None:
        self._project, self._tracker, self._no_commit = project, project.tracker, no_commit

    def add(self, draft: ItemDraft) -> tuple[str, tuple[str, ...]]:
        """Add it with a reference of ours: should the tracker be asked twice, it is added once."""
        priority = (draft.priority or "2").lower().removeprefix("p")
        if priority not in PRIORITIES:
            hint = "0 is the most urgent, 2 the usual."
            raise UsageError(f"--priority is {draft.priority!a}; it must be 0 to 4.", hint)
        if draft.parent:
            _check_known(self._tracker, check_id(draft.parent), "to belong to")
        new = NewItem(
            title=draft.title,
            description=draft.description,
            type=draft.type.lower() or "task",
            priority=int(priority),
            parent=draft.parent,
            tags=draft.tags,
            dependencies=draft.depends_on,
            reference=draft.reference or f"capsule/add/{os.urandom(8).hex()}",
        )
        try:
            return self._tracker.add(new), ()
        except Refused as refused:
            if draft.type and "type" in refused.message:  # the only refusal that we do not check ourselves
                refused.hint = f"--type is {TYPES}."
            raise

    def add_all(self, drafts: Sequence[ItemDraft], tag: str) -> tuple[list[str], tuple[str, ...]]:  # noqa: ARG002
        before = {item.id for item in self._tracker.under("")}
        added = [self.add(draft)[0] for draft in drafts]
        return ["" if name in before else name for name in added], ()

    def unblock(self, held: ItemLock, notes: str) -> Unblocked:
        item, halt = held.item, held.mission.halt if held.mission.under_way else None
        if not halt:
            _block_of(item)
        if item.status is Status.BLOCKED:  # the tracker first: if it refuses, the mission stays halted
            self._tracker.reopen(item.id)
            after = self._tracker.item(item.id)
            if after.blocked:
                where = self._tracker.traits.own_command("show", item.id, ", in its tracker.")
                raise Refused(f"{item.id} is still blocked: {after.blocked.reason}.", f"See what it waits for{where}")
        if notes and not halt:
            self._tracker.comment(item.id, notes)
        return Unblocked(item, goes_on_from=halt.phase if halt else "", commented=bool(notes and not halt))

    def unblock_accepted(self, held: ItemLock, check: str, because: str) -> tuple[str, ...]:  # noqa: ARG002
        """Unblock an item after its claim was accepted: here its mission only has to continue."""
        return ()

    def archive(self, held: ItemLock, why: str) -> tuple[str, ...]:
        """Close an item without open children: a tracker may allow it, and they would be lost."""
        item = held.item
        if item.status is Status.DONE and not held.mission.under_way:
            there = self._tracker.traits.own_command("reopen", item.id, ".")
            raise Refused(f"{item.id} is closed already.", f"If there is more to do, reopen it in its tracker{there}")
        members = self._tracker.under(item.id) if item.holds else ()
        unfinished = [each for each in members if each.status is not Status.DONE]
        if unfinished:
            left = [each.id for each in unfinished if not each.holds] or [each.id for each in unfinished]
            more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
            raise Refused(
                f"{item.id} holds what is still open: {', '.join(left[:_NAMED])}{more}.",
                f"Complete or close these first, or work through them: capsule run {item.id}",
            )
        self._tracker.close(item.id, why or "completed by hand")
        return ()


def _values_of(draft: ItemDraft) -> dict[str, Value]:
    """Return the fields of a new item of a backlog."""
    given: dict[str, Value] = {
        "description": draft.description,
        **{name: getattr(draft, name) for name in LEVELS},
        "origin": draft.reference,
        "tags": list(draft.tags),
        "dependencies": list(draft.depends_on),
    }
    return {
        "title": draft.title,
        "status": Status.NEW.value,
        **{name: value for name, value in given.items() if value},
    }


class _CommittedChanges(_TrackerChanges):
    """Change items by a commit of their tracker's files, or only save them."""

    def add(self, draft: ItemDraft) -> tuple[str, tuple[str, ...]]:
        names, warnings = self._add([draft], lambda first: tagged(first, "ADD", draft.title))
        return names[0], warnings

    def add_all(self, drafts: Sequence[ItemDraft], tag: str) -> tuple[list[str], tuple[str, ...]]:
        words = count(len(drafts), "item")
        return self._add(drafts, lambda first: tagged(first, tag, words)) if drafts else ([], ())

    def _add(self, drafts: Sequence[ItemDraft], subject: Callable[[str], str]) -> tuple[list[str], tuple[str, ...]]:
        project, at = self._project, SystemClock().now()
        new = [
            Exists(f"add/{os.urandom(8).hex()}", {**_values_of(each), "created": at, "updated": at}) for each in drafts
        ]
        lock = FileLock(project.state_folder / "locks" / "add.lock")
        lock.acquire(_PATIENCE)
        with lock:  # one at a time: the id in the commit's first line must still be free
            last = cast("CommittedTracker", self._tracker).last_id
            message = subject(f"{project.settings.project.prefix}-{last + 1:03}")
            booked, warnings = record(project, message, new, no_commit=self._no_commit)
        return [*booked.added], warnings

    def unblock(self, held: ItemLock, notes: str) -> Unblocked:
        mission = held.mission
        if held.item.status is not Status.BLOCKED and mission.under_way and mission.halt:
            return Unblocked(held.item, goes_on_from=mission.halt.phase)  # it stopped without a question
        block = _block_of(held.item)
        moved = self._unblock(held, notes or block.reason, notes)
        return Unblocked(moved.after, stands=status_and_phase(moved.after), warnings=moved.warnings)

    def unblock_accepted(self, held: ItemLock, check: str, because: str) -> tuple[str, ...]:
        if held.item.status is not Status.BLOCKED:
            return ()
        return self._unblock(held, f"accepted {check}: {because}", because).warnings

    def _unblock(self, held: ItemLock, words: str, notes: str) -> Moved:
        values = unblocked(held.item, guardrails_of(self._project.settings), notes)
        return move(held, "UNBLOCK", words, values, no_commit=self._no_commit, answer=notes or f"Go on: {words}")

    def archive(self, held: ItemLock, why: str) -> tuple[str, ...]:
        assignments = archived(held.item, SystemClock().now(), "archive", why)
        subject = archive_subject(held.item, "archive", why)
        return record(self._project, subject, assignments, no_commit=self._no_commit)[1]


def _changes_of(project: Project, *, no_commit: bool) -> _TrackerChanges:
    """Choose the way to change the project's tracker by hand."""
    traits = project.tracker.traits
    if traits.authoritative:
        return _CommittedChanges(project, no_commit=no_commit)
    if no_commit:
        this = traits.described.format(project.tracker.name)
        raise UsageError(f"--no-commit is for a backlog, and {this}.", "Leave it out: nothing is committed.")
    return _TrackerChanges(project, no_commit=False)
