"""Keep mission and tracker in agreement if the tracker keeps its state in the project.

The tracker has an item's state, the journal its history. After a step the tracker is written (`_record`); before the
next one it is read (`_agree`). If the two differ, a person has moved the item, and the tracker wins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from contextlib import nullcontext

import msgspec

from capsule.adapters import BranchStep, StateCommit, StateStore, StateWritten
from capsule.core.decide import SETBACKS
from capsule.core.errors import (
    BranchMoved,
    Conflicts,
    Refused,
    RemoteFault,
    TwinClosed,
    UnknownItem,
    WorkspaceBroken,
)
from capsule.core.event import Abandoned, MovedByHand, Rebased, Recorded, StepEnded, Warned
from capsule.core.evidence import Checkpoint, Colour, EvidenceStatus
from capsule.core.item import Item, status_and_phase, twin_of
from capsule.core.ledger import Ending, assignments_of, guarded, subject
from capsule.core.merge_queue import merged_meanwhile
from capsule.core.signal import Verdict
from capsule.core.state import MissionState, is_waived
from capsule.engine.checks import DUPLICATE, unharmed
from capsule.engine.job import MOST_ROUNDS, Job, guard_repository, note, place_of, round_on, state_store_of
from capsule.engine.merging import ARCHIVED_AT, left_with_its_merge
from capsule.engine.patience import Patience
from capsule.engine.verification import Verification
from capsule.services import Services


def with_tracker_updates(job: Job, ended: StepEnded) -> StepEnded:
    """Add the changes to the tracker to an outcome."""
    state = job.state
    ending = Ending(
        state.workflow, job.phase, job.step.key, state.item, ended.outcome.signal, ended.decision, state.closed_as
    )
    assignments = () if state.parent else assignments_of(ending, state.facts.get(ARCHIVED_AT, ended.at))
    assignments, message = state_store_of(state, job.services).updates(assignments, subject(ending))
    return msgspec.structs.replace(ended, assignments=assignments, message=message)


def sync_tracker(state: MissionState, services: Services) -> bool:
    """Write the last step to the tracker, or read the tracker; return whether anything was journaled."""
    store = state_store_of(state, services)
    if state.unrecorded:
        _record(state, state.unrecorded, services, store)
        return True
    return state.under_way and _agree(state, services, store)


def _record(state: MissionState, ended: StepEnded, services: Services, state_store: StateStore) -> None:
    """Put the step into one commit: state, documents, code, worklog and follow-ups together.

    The branch may have moved since the work was judged. Work that conflicts with new commits goes back to its phase.
    """
    place, trunk, held = place_of(state, services), services.trunk(state.into), ended.outcome.checkpoint
    work = place.commit_step(held, ended.message, ended.key) if held and ended.decision.keeps_the_work else None
    patience = Patience(services, state, ended.phase, ended.key)
    for number in range(MOST_ROUNDS):
        try:
            with round_on(trunk, number):
                judged = _judged_with_the_branch(state, ended, work, services, state_store) if work else ""
                entry = StateCommit(
                    key=f"{state.mission}/{ended.key}",
                    message=ended.message,
                    assignments=ended.assignments,
                    branch=state.into,
                    since=state.base,
                    work=work,
                    judged=judged,
                    documents=place.delivered(held) if held and not place.publishes_to else "",
                    twin="" if is_waived(state, DUPLICATE) else twin_of(state.closed_as),
                )
                booked = _written(entry, state, services, patience)
            break
        except BranchMoved:
            continue  # to a commit with which the work was not tested
        except Conflicts as found:
            paths = ", ".join(found.paths)
            why = f"{state.into} changed the same lines meanwhile, and these files are as it has them: {paths}."
            others = _others(state, ended, work, services, state_store) if work else {}
            _send_back(state, ended, services, f"{why}{_named(others)}", others=others)
            return
        except TwinClosed as gone:
            closer = next(phase.name for phase in state.workflow.phases if phase.may_close)
            _send_back(
                state, ended, services, f"{gone.message}. So this item is not to be closed as its duplicate.", to=closer
            )
            return
        except _RedTogether as red:
            others = _others(state, ended, work, services, state_store) if work else {}
            said, newline, tail = str(red).partition("\n")
            _send_back(state, ended, services, f"{said}{_named(others)}{newline}{tail}", others=others)
            return
    else:
        hint = f"Wait until the commits there stop; then go on with `capsule run {state.mission}`."
        raise Refused(f"{state.into} moved {MOST_ROUNDS} times while the work was tested together with it.", hint)
    for warning in booked.warnings:
        note(services, state.mission, Warned(at=services.clock.now(), text=warning))
    event = Recorded(
        at=services.clock.now(),
        key=ended.key,
        commit=booked.commit,
        checkpoint=place.checkpoint_at(booked.commit) if held and ended.decision.move not in SETBACKS else None,
        follow_ups=booked.added,
    )
    note(services, state.mission, event)


def _written(entry: StateCommit, state: MissionState, services: Services, patience: Patience) -> StateWritten:
    """Write the state, if the item is still claimed and the branch may be moved; wait for an unreachable remote."""
    moves_it = services.tracker.traits.authoritative and not state.parent
    while True:
        try:
            if services.tracker.traits.authoritative:  # it is a commit on a branch that other clones see
                services.claims.confirm(state.mission)
            with services.trunk(state.into).about_to_move() if moves_it else nullcontext():
                return state_store_of(state, services).write(entry)
        except RemoteFault as fault:
            if not patience.wait_for(fault):
                raise


class _RedTogether(Exception):
    """The work was green alone, and is red on the branch's new commits."""


def _judged_with_the_branch(
    state: MissionState, ended: StepEnded, work: Checkpoint, services: Services, state_store: StateStore
) -> str:
    """Run the tests on the work on top of its branch, if the phase promised green; return the judged tree.

    If the branch has not moved, the journal has the result and nothing is run.
    """
    phase, policy, signal = state.workflow.phase(ended.phase), state.policy, ended.outcome.signal
    place = place_of(state, services)
    promised = "green" in phase.checks or ("green-when-done" in phase.checks and signal.verdict is Verdict.PASS)
    if not (place.publishes_to and promised and policy.test and policy.verify == "strict"):
        return ""
    tree = state_store.combined(work, services.trunk(state.into).tip())
    _judge(state, ended, tree, services)
    return place.trees.test_cache_key(tree)


def _judge(state: MissionState, ended: StepEnded, tree: str, services: Services) -> None:
    """Run the tests on a tree with the work and what came to the branch; raise _RedTogether if they are red."""
    place = place_of(state, services)
    with guard_repository(place):
        claim = Verification(
            state, state.workflow.phase(ended.phase), ended.outcome.signal, place, services, tree, tree
        )
        seen = claim.observe(tree)
        green = seen.colour is Colour.GREEN or unharmed(claim).standing is EvidenceStatus.CONFIRMED
    if not green:
        meanwhile = f"together with what came to {state.into} meanwhile"
        raise _RedTogether(f"`{seen.command}` is {seen.colour.value} {meanwhile}.\n\n{seen.tail}")


def _others(
    state: MissionState, ended: StepEnded, work: Checkpoint, services: Services, state_store: StateStore
) -> Mapping[str, str]:
    """Return the first commit since the work began that it does not go together with, found by bisection."""
    trunk = services.trunk(state.into)
    steps = trunk.steps(work.head, trunk.tip()) if trunk.holds(work.head) else ()

    def clashes(step: BranchStep) -> bool:
        try:
            _judge(state, ended, state_store.combined(work, step.commit), services)
        except (Conflicts, _RedTogether):
            return True
        return False

    first = bisect_left(steps[:-1], True, key=clashes)  # it does not go together with the last one
    return {steps[first].name: steps[first].commit} if steps else {}


def _named(others: Mapping[str, str]) -> str:
    return f" Merged meanwhile: {words.partition(': ')[2]}." if (words := merged_meanwhile(others)) else ""


def _send_back(
    state: MissionState,
    ended: StepEnded,
    services: Services,
    why: str,
    *,
    to: str = "",
    others: Mapping[str, str] | None = None,
) -> None:
    """Repeat the phase, or an earlier one, with its own work on the current branch."""
    checkpoint = ended.outcome.checkpoint or state.checkpoint
    assert checkpoint  # of the phase itself, or of the one that closed the item
    event = Rebased(
        at=services.clock.now(),
        base=state.base,
        checkpoint=checkpoint,
        re_enter=to or ended.phase,
        approved={name: held for name, held in state.approved.items() if name not in (to, ended.phase)},
        item=services.tracker.item(state.item.id),
        why=why,
        others={**(others or {})},
    )
    note(services, state.mission, event)


def _agree(state: MissionState, services: Services, store: StateStore) -> bool:
    """Follow the tracker if a person moved the item."""
    try:
        found = store.current(state.item)
    except UnknownItem:
        if ARCHIVED_AT in state.facts or left_with_its_merge(state, services):
            return False
        note(services, state.mission, Abandoned(at=services.clock.now(), how="archived by hand"))
        return True
    known = state.item
    if guarded(known) == guarded(found) and (known.title, known.description) == (found.title, found.description):
        return False
    _moved(state, services, found, edited_by_hand(state, services))
    return True


def adopt_edits(state: MissionState, services: Services) -> None:
    """Adopt a person's changes in the worktree of an item that they unblocked, such as a resolved conflict."""
    if state.let_go_on and not state.workflow.publishes_steps and (now := edited_by_hand(state, services)):
        _moved(state, services, state.item, now)


def _moved(state: MissionState, services: Services, found: Item, now: Checkpoint | None) -> None:
    moved = MovedByHand(
        at=services.clock.now(),
        what="item",
        expected=status_and_phase(state.item),
        found=status_and_phase(found) if status_and_phase(found) != status_and_phase(state.item) else "edited",
        item=found,
        checkpoint=now,
        approved=approved_with_edits(state, now, services) if now else {},
    )
    note(services, state.mission, moved)


def edited_by_hand(state: MissionState, services: Services) -> Checkpoint | None:
    """Make a checkpoint of a person's repair of a halted mission for the next phase; None without one."""
    place = place_of(state, services)
    if state.checkpoint is None or state.unsettled or not place.path.exists():
        return None
    try:
        now = place.checkpoint("edited by hand")
    except WorkspaceBroken:  # nothing to adopt: the next phase restores the last checkpoint
        return None
    same = (now.tree, now.head) == (state.checkpoint.tree, state.checkpoint.head)
    return None if same else now


def approved_with_edits(state: MissionState, now: Checkpoint, services: Services) -> dict[str, Checkpoint]:
    """Approve the paths that a person changed, and nothing that an agent left behind."""
    place = place_of(state, services)
    left = place.delivered(state.checkpoint) if state.checkpoint else now.tree
    trees = {
        name: place.trees.apply_human_edits(place.delivered(held), left, now.tree)
        for name, held in state.approved.items()
    }
    return {name: bare(tree, now.head) for name, tree in trees.items()}


def bare(tree: str, head: str) -> Checkpoint:
    """Make a checkpoint of which only the tree is used."""
    return Checkpoint(commit=head, head=head, tree=tree)
