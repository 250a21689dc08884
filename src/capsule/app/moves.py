"""Change items by hand: add one, advance it, unblock or approve it, say that it is done or will not be."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from capsule.adapters import Tracker
from capsule.app.items import ItemLock, Moved, lock_item, move, record, refuse_beads, refuse_no_commit
from capsule.core.assignment import Exists
from capsule.core.documents import artefact_path, artefact_paths
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.event import Accepted
from capsule.core.item import EARLY, Blocked, Item, NewItem, Status, Value, check_id, check_move, stands_at, with_values
from capsule.core.ledger import DECISION, archive_subject, archived, tagged, unblocked
from capsule.core.state import MissionState, children_of, is_accepted, replay
from capsule.core.text import nearest, one_line
from capsule.core.workflow import Workflow
from capsule.project import Project
from capsule.rules import choose_workflow, guardrails_of, words_at
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular
from capsule.system.lock import FileLock

LEVELS = {
    "size": ("small", "medium", "large"),
    "complexity": ("low", "medium", "high"),
    "risk": ("low", "medium", "high"),
    "impact": ("low", "medium", "high"),
}
TYPES = "task, bug, feature, epic, or what else your tracker knows"
PRIORITIES = ("0", "1", "2", "3", "4")
FOR_BEADS = ("type", "priority", "parent")
ONWARDS = {
    Status.NEW: Status.SCOPED,
    Status.RESEARCHING: Status.SCOPED,
    Status.SCOPED: Status.READY,
    Status.READY: Status.IN_PROGRESS,
}
_LARGEST_DOCUMENT = 4 * 1024 * 1024
_PATIENCE = 60.0
_NAMED = 3
"""How many of the items that stand in the way are named."""


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


def add_item(
    project: Project, tracker: Tracker, draft: ItemDraft, *, no_commit: bool = False
) -> tuple[str, tuple[str, ...]]:
    """Put an item into the tracker; return its id and warnings."""
    levels: dict[str, Value] = {name: _level(name, getattr(draft, name)) for name in LEVELS if getattr(draft, name)}
    tags, others = list(dict.fromkeys(draft.tags)), list(dict.fromkeys(check_id(other) for other in draft.depends_on))
    _refuse_fields_of_the_other_kind(tracker, draft)
    refuse_no_commit(tracker, no_commit=no_commit)
    for other in others:
        _check_known(tracker, other, "to depend on")
    if not tracker.keeps_phases:
        return _add_to_tracker(tracker, draft, tuple(tags), tuple(others)), ()
    given = {"description": draft.description, **levels, "tags": tags, "dependencies": others}
    at = SystemClock().now()
    values = {
        "title": draft.title,
        "status": Status.NEW.value,
        **{name: value for name, value in given.items() if value},
    }
    new = Exists(f"add/{os.urandom(8).hex()}", {**values, "created": at, "updated": at})
    lock = FileLock(project.state_folder / "locks" / "add.lock")
    lock.acquire(_PATIENCE)
    with lock:  # one at a time: the commit's first line names an id that nobody else has taken
        next_id = f"{project.settings.project.prefix}-{getattr(tracker, 'last_id', 0) + 1:03}"
        booked, warnings = record(project, tracker, tagged(next_id, "ADD", draft.title), (new,), no_commit=no_commit)
    return booked.added[0], warnings


def _refuse_fields_of_the_other_kind(tracker: Tracker, draft: ItemDraft) -> None:
    given = [name for name in (FOR_BEADS if tracker.keeps_phases else LEVELS) if getattr(draft, name)]
    if given and tracker.keeps_phases:
        hint = "An item of a backlog has --size, --complexity, --risk and --impact."
        raise UsageError(f"--{given[0]} is for beads, and this project has a backlog.", hint)
    if given:
        hint = "An item has --type, --priority (0 to 4) and --parent there."
        raise UsageError(f"--{given[0]} is for a backlog, and this project's tracker is {tracker.name}.", hint)


def _add_to_tracker(tracker: Tracker, draft: ItemDraft, tags: tuple[str, ...], others: tuple[str, ...]) -> str:
    """The reference makes it ours: should the tracker be asked twice, it is added once."""
    priority = (draft.priority or "2").lower().removeprefix("p")
    if priority not in PRIORITIES:
        raise UsageError(f"--priority is {draft.priority!a}; it must be 0 to 4.", "0 is the most urgent, 2 the usual.")
    if draft.parent:
        _check_known(tracker, check_id(draft.parent), "to belong to")
    new = NewItem(
        title=draft.title,
        description=draft.description,
        type=draft.type.lower() or "task",
        priority=int(priority),
        parent=draft.parent,
        tags=tags,
        dependencies=others,
        reference=f"capsule/add/{os.urandom(8).hex()}",
    )
    try:
        return tracker.add(new)
    except Refused as refused:
        if draft.type and "type" in refused.message:  # the one thing it can refuse that we do not look at ourselves
            refused.hint = f"--type is {TYPES}."
        raise


def title_of(text: str) -> str:
    """One line that can stand in a table; a second one was meant for the description."""
    if "\n" in text.strip():
        raise UsageError("A title is one line, and this one has several.", "Put the rest into --description.")
    title = one_line(text)
    if not title:
        raise UsageError(
            "An item needs a title.", 'Describe the change in one line: capsule add "Sort the list by name"'
        )
    return title


def _level(name: str, given: str) -> str:
    levels = LEVELS[name]
    if given.lower() in levels:
        return given.lower()
    near = nearest(given.lower(), levels)
    hint = f"Did you mean `{near[0]}`?" if near else "Leave it out if you do not know."
    raise UsageError(f"--{name} is {given!a}; it must be {', '.join(levels[:-1])} or {levels[-1]}.", hint)


def _check_known(tracker: Tracker, other: str, why: str) -> None:
    if not tracker.knows(other):
        near = nearest(other, [item.id for item in tracker.items()])
        hint = f"Did you mean {near[0]}?" if near else "`capsule status` lists what there is."
        raise CapsuleError(f"There is no item {other} {why}.", hint, exit_code=1)


# ---- advance


def advance(project: Project, tracker: Tracker, item_id: str, *, to: str = "", no_commit: bool = False) -> Moved:
    """Move an item of the backlog one step on, or to a phase."""
    refuse_beads(tracker, "advance", f"Go on with a bead: capsule run {item_id}, or capsule step {item_id}")
    with lock_item(project, tracker, item_id) as held:
        before, values = held.item, _advanced(held, to)
        after = with_values(before, values)
        same = before.status is after.status and before.phase
        way = f"{before.phase} -> {after.phase}" if same else f"{stands_at(before)} -> {stands_at(after)}"
        return move(held, "ADVANCE", way, values, no_commit=no_commit)._replace(after=after)


def _advanced(held: ItemLock, wanted: str) -> dict[str, Value]:
    """The status and phase that it gets; refused where the table of moves, or a missing document, says so."""
    item = held.item
    if held.mission.under_way:
        workflow = held.mission.workflow  # a mission keeps the workflow that it started with
    else:
        workflow = choose_workflow(held.project, item, words_at(held.project, held.project.git.resolve("HEAD")))
    if item.blocked:
        raise Refused(f"{item.id} is blocked: {item.blocked.reason}", f"Unblock it first: capsule unblock {item.id}")
    if item.status is Status.DONE:
        raise Refused(f"{item.id} is done.", f"Archive it: capsule complete {item.id}")
    # Actions of Capsule's own in between are nobody's to choose.
    names = workflow.names()
    phases = tuple(name for name in names[names.index(workflow.entry()) :] if workflow.phase(name).doer != "do")
    if not wanted and item.phase in names and workflow.phase(item.phase).doer == "do":
        hint = f"Go on with `capsule run {item.id}`, or say that it is done: capsule complete {item.id}"
        raise Refused(f"{item.id} is at {item.phase}, which Capsule does by itself.", hint)
    if wanted:
        return _to(held, wanted.lower(), phases, workflow)
    here = item.phase if item.phase in phases else phases[0]
    if item.status is Status.IN_PROGRESS:
        if here == phases[-1]:
            hint = f"Say that it is done: capsule complete {item.id}"
            raise Refused(f"{item.id} is at {here}, and there is no phase after that.", hint)
        return {"phase": phases[phases.index(here) + 1]}
    status = ONWARDS[item.status]
    check_move(item, status)
    return {"status": status.value} if status is Status.SCOPED else {"status": status.value, "phase": here}


def _to(held: ItemLock, target: str, phases: tuple[str, ...], workflow: Workflow) -> dict[str, Value]:
    item = held.item
    if target not in phases:
        near = nearest(target, phases)
        hint = f"Did you mean `{near[0]}`?" if near else f"There are: {', '.join(phases)}."
        raise UsageError(f"An item of the workflow {workflow.name} cannot be moved to a phase {target!a}.", hint)
    if item.status in EARLY:
        raise Refused(
            f"{item.id} is {item.status.value}, and has to be scoped before it can go to {target}.",
            f"Say that it is: capsule advance {item.id}",
        )
    if item.status is Status.IN_PROGRESS and item.phase == target:
        raise Refused(f"{item.id} is at {target} already.", f"Go on with it: capsule run {item.id}")
    here = item.phase if item.phase in phases else phases[0]
    skipped = phases[phases.index(here) : phases.index(target)]
    _check_documents(held, [workflow.phase(name).artefact for name in skipped], target)
    if item.status is Status.IN_PROGRESS:
        return {"phase": target}
    status = ONWARDS[item.status]
    check_move(item, status)
    return {"status": status.value, "phase": target}


def _check_documents(held: ItemLock, kinds: Iterable[str], target: str) -> None:
    """Refuse to skip a phase whose document is not written, in the place or, before there is one, in the checkout."""
    item, worktree = held.item, held.project.root / ".capsule" / "worktrees" / held.item.id
    root = worktree if worktree.is_dir() else held.project.root
    paths = [path.relative_to(root).as_posix() for path in root.glob(f"changes/{item.id}_*/*")]
    for kind in filter(None, kinds):
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
    goes_on_from: str = ""
    """The phase that its halted mission goes on from; '' where none waits, or a backlog says so itself."""
    commented: bool = False
    """No mission waits for notes, so they became a comment."""
    warnings: tuple[str, ...] = ()


def unblock(project: Project, tracker: Tracker, item_id: str, notes: str = "", *, no_commit: bool = False) -> Unblocked:
    """Let an item go on that waits for a human."""
    if tracker.keeps_phases:
        return _unblock_in_backlog(project, tracker, item_id, notes, no_commit=no_commit)
    refuse_no_commit(tracker, no_commit=no_commit)
    with lock_item(project, tracker, item_id) as held:
        item, halt = held.item, held.mission.halt if held.mission.under_way else None
        if not halt:
            _block_of(item)
        if item.status is Status.BLOCKED:  # the tracker first: where it refuses, the mission stays halted
            tracker.reopen(item.id)
            after = tracker.item(item.id)
            if after.blocked:
                where = f": bd show {item.id}" if tracker.name == "beads" else ", in its tracker."
                raise Refused(f"{item.id} is blocked still: {after.blocked.reason}.", f"See what it waits for{where}")
        if notes and not halt:
            tracker.comment(item.id, notes)
    if halt:
        from capsule.app.endings import reopen_mission  # noqa: PLC0415 - start-up

        reopen_mission(project, tracker, item, notes)
    return Unblocked(item, halt.phase if halt else "", commented=bool(notes and not halt))


def approve(project: Project, tracker: Tracker, item_id: str, notes: str = "", *, no_commit: bool = False) -> Unblocked:
    """Say yes to an item of the backlog that waits for a decision."""
    refuse_beads(tracker, "approve", f"Unblock a bead: capsule unblock {item_id}, or capsule run {item_id}")
    return _unblock_in_backlog(project, tracker, item_id, notes, no_commit=no_commit, only_decisions=True)


def _unblock_in_backlog(
    project: Project, tracker: Tracker, item_id: str, notes: str, *, no_commit: bool, only_decisions: bool = False
) -> Unblocked:
    with lock_item(project, tracker, item_id) as held:
        block = _block_of(held.item)
        if only_decisions and block.kind != DECISION:
            raise Refused(
                f"{held.item.id} waits for an answer, not for a decision: {block.reason}",
                f'Answer it: capsule unblock {held.item.id} --notes "..."',
            )
        values = unblocked(held.item, guardrails_of(project.settings), notes)
        moved = move(held, "UNBLOCK", notes or block.reason, values, no_commit=no_commit)
    return Unblocked(moved.after, warnings=moved.warnings)


def _block_of(item: Item) -> Blocked:
    if item.status is Status.BLOCKED and item.blocked:
        return item.blocked
    raise Refused(
        f"{item.id} is not blocked: it is {item.status.value}.", f"See what it waits for: capsule explain {item.id}"
    )


# ---- accept


class Acceptance(NamedTuple):
    """A refuted claim that a person accepted, and what else of the same phase is still refuted."""

    item: Item
    phase: str
    claimed: str
    observed: str
    left: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def accept(
    project: Project, tracker: Tracker, item_id: str, check: str, because: str, *, no_commit: bool = False
) -> Acceptance:
    """Accept one refuted claim of a mission, for the tree that was judged, and let its item go on."""
    if not because:
        raise UsageError("The reason is empty.", "Say why it may stand: it is shown with the mission for ever.")
    refuse_no_commit(tracker, no_commit=no_commit)
    with lock_item(project, tracker, item_id) as held:
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
        warnings: tuple[str, ...] = ()
        if tracker.keeps_phases and held.item.status is Status.BLOCKED and not left:
            values = unblocked(held.item, guardrails_of(project.settings), because)
            warnings = move(held, "UNBLOCK", f"accepted {check}: {because}", values, no_commit=no_commit).warnings
    return Acceptance(held.item, known.phase, known.piece.claimed, known.piece.observed, left, warnings)


def _with_refutation(held: ItemLock, check: str) -> MissionState:
    """Return the mission, or its part, that has this refuted claim; refuse where none has."""
    item, mission = held.item.id, held.mission
    if not mission.under_way:
        what = "is finished" if mission.started else "has no mission yet"
        raise Refused(f"{item} {what}, so nothing of it can be accepted.", f"See how it stands: capsule show {item}")
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
        raise Refused(cause, f"Mend that, then go on with `capsule run {item}`.")
    open_ones = sorted({name for state in states for name in state.refused})
    hint = f"Refuted: {', '.join(open_ones)}." if open_ones else f"See what was checked: capsule show {item}"
    known_checks = sorted({name for state in states for phase in state.workflow.phases for name in phase.checks})
    if check not in (*known_checks, "gate", "fit-for-main", "hooks"):
        near = nearest(check, known_checks)
        hint = f"Did you mean `{near[0]}`?" if near and not open_ones else hint
        raise Refused(f"There is no check {check!a} in the workflow {mission.workflow.name}.", hint)
    raise Refused(f"{check} is not refuted in {item}, so there is nothing to accept.", hint)


# ---- complete, close


class Archived(NamedTuple):
    """An item that is out of its tracker, and what was kept of its mission."""

    item: Item
    mission_ended: bool = False
    salvage: str = ""
    warnings: tuple[str, ...] = ()


def complete(project: Project, tracker: Tracker, item_id: str, *, no_commit: bool = False) -> Archived:
    """Say that an item is done: archive it, or close it in its tracker."""
    return _archive(project, tracker, item_id, "", no_commit=no_commit)


def close(project: Project, tracker: Tracker, item_id: str, reason: str, *, no_commit: bool = False) -> Archived:
    """Say that an item will not be done, and why."""
    if not reason:
        raise UsageError("The reason is empty.", "Say why it will not be done: somebody will ask.")
    return _archive(project, tracker, item_id, reason, no_commit=no_commit)


def _archive(project: Project, tracker: Tracker, item_id: str, why: str, *, no_commit: bool) -> Archived:
    """Out of the tracker first: it may refuse, and a mission found without its item is ended too."""
    refuse_no_commit(tracker, no_commit=no_commit)
    warnings: tuple[str, ...] = ()
    with lock_item(project, tracker, item_id) as held:
        item, left = held.item, held.mission.under_way
        if tracker.keeps_phases:
            assignments = archived(item, SystemClock().now(), "archive", why)
            subject = archive_subject(item, "archive", why)
            _, warnings = record(project, tracker, subject, assignments, no_commit=no_commit)
        else:
            _refuse_to_close(tracker, item, under_way=left)
            tracker.close(item.id, why or "completed by hand")
    if not left:
        return Archived(item, warnings=warnings)
    from capsule.app.endings import end_mission  # noqa: PLC0415 - start-up

    ended = end_mission(project, item.id, how="closed by hand" if why else "completed by hand", branch=True)
    return Archived(item, mission_ended=True, salvage=ended.salvage, warnings=(*warnings, *ended.warnings))


def _refuse_to_close(tracker: Tracker, item: Item, *, under_way: bool) -> None:
    """Not every tracker minds open members, and whoever closes an epic by mistake would never see its tasks again."""
    if item.status is Status.DONE and not under_way:
        by_bd = f": bd reopen {item.id}" if tracker.name == "beads" else "."
        raise Refused(f"{item.id} is closed already.", f"If there is more to do, reopen it in its tracker{by_bd}")
    unfinished = [each for each in tracker.under(item.id) if each.status is not Status.DONE] if item.holds else []
    if unfinished:
        left = [each.id for each in unfinished if not each.holds] or [each.id for each in unfinished]
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        raise Refused(
            f"{item.id} holds what is still open: {', '.join(left[:_NAMED])}{more}.",
            f"Complete or close these first, or work through them: capsule run {item.id}",
        )
