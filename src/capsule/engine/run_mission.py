"""Run one mission from its current state to its end or halt. Resuming is running it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import msgspec

from capsule.adapters import Beside, Order
from capsule.core.errors import (
    AgentKilled,
    CapsuleError,
    Interrupted,
    NotYet,
    Paused,
    WentBack,
    lost_objects_of,
)
from capsule.core.event import (
    MissionStarted,
    MovedByHand,
    Rebased,
    Reopened,
    StepBegun,
    StepEnded,
    Stopped,
    Warned,
)
from capsule.core.globs import is_test
from capsule.core.item import Status, same_words
from capsule.core.state import PHASE, MissionState, Step, agent_for, apply, next_step
from capsule.core.workflow import Role
from capsule.engine.actions import close_item
from capsule.engine.bookkeeping import adopt_edits, approved_with_edits, bare, edited_by_hand, sync_tracker
from capsule.engine.budget import require_budget
from capsule.engine.claiming import claimed, tell_remarks
from capsule.engine.job import (
    commit_message,
    has_left,
    load_state,
    note,
    only_to_be_closed,
    place_of,
    state_store_of,
)
from capsule.engine.steps import check_names, perform, spawns
from capsule.engine.verification import TRIES
from capsule.services import Services

_BUDGET_WAIT = 0.5
"""Seconds between checks of a mission that waits for its share of the run's budget."""


def run_until_halt(order: Order, services: Services) -> MissionState:
    """Start or continue the mission, under its claim, until it ends, halts or is stopped."""
    mission = order.mission
    with services.journal.claim(mission), lost_objects_of(mission), claimed(order, services) as told:
        make_ready(order, services)
        if told:
            note(services, mission, Warned(at=services.clock.now(), text=told))
        try:
            return run(mission, services)
        except Paused:
            raise
        except CapsuleError as stop:
            cause = services.claims.lost(mission) or stop  # its loss stops the work
            note(services, mission, stopped(cause, services))
            if cause is not stop:
                raise cause from stop
            raise


def stopped(stop: CapsuleError, services: Services) -> Stopped:
    """Return the event for an error that stops a mission."""
    return Stopped(
        at=services.clock.now(),
        cause=stop.message,
        exit_code=stop.exit_code,
        error=type(stop).__name__,
        hint=stop.hint,
    )


def move_to(order: Order, services: Services, phase: str) -> None:
    """Continue from another phase with the current workspace; a new mission begins with it."""
    with services.journal.claim(order.mission):
        state = load_state(services, order.mission)
        if not state.under_way:
            _start(order, services)
            state = load_state(services, order.mission)
        place = place_of(state, services)
        place.prepare(state.base)
        now = place.checkpoint(f"moved to {phase}")
        moved = MovedByHand(
            at=services.clock.now(),
            what=PHASE,
            expected=state.to_do[0],
            found=phase,
            checkpoint=now,
            approved=approved_with_edits(state, now, services),
        )
        note(services, order.mission, moved)


def reopen(order: Order, services: Services) -> None:
    """Reopen a halted mission with a person's changes and notes, for the next run."""
    with services.journal.claim(order.mission):
        state = load_state(services, order.mission)
        if state.halt is None:
            return
        event = _reopened(order, state, services)
        if state.halt.vetoed and order.notes:  # no phase is sent back, so the notes go with the item
            noted = msgspec.structs.replace(event.item or state.item, unblock_context=order.notes)
            event = msgspec.structs.replace(event, item=noted)
        note(services, order.mission, event)


def run(mission: str, services: Services) -> MissionState:
    """Do step after step: recorded steps are not repeated, ones that were only begun are."""
    state, seen = _settled(services, mission, MissionState(), 0)
    kills = Counter[str]()
    while step := next_step(state):
        tell_remarks(mission, services)
        if not _take(step, state, services, kills):
            break
        state, seen = _settled(services, mission, state, seen)
    return _put_away(state, services)


def run_one(mission: str, key: str, services: Services, *, lost: Sequence[str] = ()) -> MissionState:
    """Do only this step, if it is the next one, and what belongs to it: its record in the tracker, a rebuild.

    Without a key, only what has to be done before the next step. `lost` has the times at which it was begun by somebody
    who was never heard of again. The caller holds the mission.
    """
    state, seen = _settled(services, mission, MissionState(), 0)
    step = next_step(state)
    if step and step.key == key and lost:
        for at in lost:
            note(services, mission, msgspec.structs.replace(_begun(step, state, services), at=at))
        state, seen = _settled(services, mission, state, seen)
    if step and step.key == key and not _take(step, state, services, Counter()):
        raise Paused(f"{mission} was not admitted to {key}.")
    return _put_away(_settled(services, mission, state, seen)[0], services)


def _put_away(state: MissionState, services: Services) -> MissionState:
    """Drop the working folder of a finished mission: its logs are archived."""
    if state.finished:
        services.archive.drop_working_folder(state.mission)
    return state


def starts_agent(state: MissionState, services: Services) -> bool:
    """Tell whether the next step starts an agent."""
    step = next_step(state)
    return step is not None and spawns(step, state, services)


def _take(step: Step, state: MissionState, services: Services, kills: Counter[str]) -> bool:
    """Do the next step, or find that it has to begin anew; return False at a limit of the run."""
    mission = state.mission
    while True:
        begun = _begun(step, state, services)
        if services.run_limits.should_stop(state, spawns=begun.spawns):  # beyond the limit of this run
            return False
        if begun.spawns:
            require_budget(state, step.phase, services)
        try:
            ended = _once(step, begun, state, services)
        except WentBack:
            return True
        except AgentKilled as killed:  # begun anew, so that its run counts one more agent
            kills[step.key] += 1
            if kills[step.key] >= TRIES:
                raise
            note(services, mission, Warned(at=services.clock.now(), text=f"{killed.message} It is started again."))
            return True
        except NotYet:  # running agents hold the rest of the budget and may leave some of it
            if not services.clock.wait(_BUDGET_WAIT):
                raise Interrupted(f"Stopped before {step.phase}; nothing is lost.") from None
            continue
        services.observer.event(mission, ended)
        return True


def _once(step: Step, begun: StepBegun, state: MissionState, services: Services) -> StepEnded:
    limits = services.run_limits
    if not begun.spawns:
        return services.journal.once(step, begun, partial(_do, step, begun, state, services))
    spawned = limits.spawn_event(step)
    do = partial(_do, step, begun, state, services, spawned)
    return services.journal.once(step, begun, do, spawned, partial(limits.end_event, step))


def _settled(services: Services, mission: str, state: MissionState, seen: int) -> tuple[MissionState, int]:
    """Apply new events until the mission agrees with its tracker, and its work is rebuilt if it has gone back."""
    while True:
        for number, event in services.journal.events(mission, after=seen):
            state, seen = apply(state, event), number
        if sync_tracker(state, services):
            continue
        if not (state.returned and next_step(state)):
            return state, seen
        tell_remarks(mission, services)
        note(services, mission, _rebased(state, services))


def close_what_is_merged(services: Services) -> list[str]:
    """Close merged items that are still open in their tracker; return their ids."""
    return [item for item in merged_not_closed(services) if try_to_close(item, services)]


def merged_not_closed(services: Services) -> list[str]:
    claimed = [item.id for item in services.tracker.items() if item.status is Status.IN_PROGRESS]
    return [item for item in claimed if only_to_be_closed(load_state(services, item))]


def try_to_close(item: str, services: Services) -> bool:
    try:
        with services.journal.claim(item):
            state = load_state(services, item)
            # Killed after its last step, an item of a backlog is closed by recording that step.
            closed = sync_tracker(state, services) if state.unrecorded else close_item(state, services)
            if closed:
                services.claims.release(item)
            return closed
    except CapsuleError:  # it still refuses, or another process holds it: the next run tries again
        return False


def _begun(step: Step, state: MissionState, services: Services) -> StepBegun:
    phase = state.workflow.phase(step.phase)
    return StepBegun(
        at=services.clock.now(),
        key=step.key,
        phase=step.phase,
        run=step.run,
        attempt=state.attempt(step.phase),
        agent=agent_for(state, phase)[0] if phase.prompt else "",
        spawns=spawns(step, state, services),
    )


def _do(
    step: Step, begun: StepBegun, state: MissionState, services: Services, spawned: Beside | None = None
) -> StepEnded:
    if spawned:
        services.observer.event(*spawned)
    services.observer.event(state.mission, begun)
    return perform(step, state, services, run_until_halt)


def make_ready(order: Order, services: Services) -> None:
    """Start a new mission, reopen a halted one, or just continue an interrupted one."""
    state = load_state(services, order.mission)
    if state.unrecorded and state.finished:
        return
    if not state.under_way:
        # else another run's process had the mission after the order was made
        if order.parent or not state.started or not has_left(order.mission, services):
            _start(order, services)
    elif order.rebase:
        note(services, order.mission, _rebased(state, services))
    elif state.halt and not state_store_of(state, services).waits_for_unblock:
        note(services, order.mission, _reopened(order, state, services))
    elif order.retries not in (None, state.workflow.retries):
        note(services, order.mission, Reopened(at=services.clock.now(), retries=order.retries))
    else:
        adopt_edits(state, services)


def _start(order: Order, services: Services) -> None:
    check_names(order.workflow)
    started = MissionStarted(
        at=services.clock.now(),
        mission=order.mission,
        item=order.item,
        lineage=order.lineage,
        workflow=order.workflow,
        policy=order.policy,
        base=order.base,
        into=order.into,
        parent=order.parent,
        earlier=order.earlier,
        uuid=services.token(),
    )
    note(services, order.mission, started)


def _reopened(order: Order, state: MissionState, services: Services) -> Reopened:
    """Reopen a halted mission with the item's current texts."""
    rewritten = None if same_words(order.item, state.item, services.redact) else order.item
    now = edited_by_hand(state, services)
    approved = approved_with_edits(state, now, services) if now else {}
    return Reopened(
        at=services.clock.now(),
        checkpoint=now,
        approved=approved,
        item=rewritten,
        retries=order.retries,
        notes=order.notes,
    )


def _rebased(state: MissionState, services: Services) -> Rebased:
    """Rebuild the work on the branch it goes into; conflicts in tests go back to the phase that writes tests.

    If nothing is left to do for an agent, commit it here.
    """
    place, onto = place_of(state, services), services.trunk(state.into).tip()
    if state.checkpoint:
        place.restore(state.checkpoint)
    trees = {name: place.trees.rebased_tree(place.delivered(held), onto) for name, held in state.approved.items()}
    goes_on_with = state.workflow.phase(_re_entry(state, ()))
    message = commit_message(state.item.id, state.item.title) if goes_on_with.do else ""
    checkpoint, conflicts = place.rebase(onto, message)
    return Rebased(
        at=services.clock.now(),
        base=onto,
        checkpoint=checkpoint,
        approved={name: bare(tree, checkpoint.head) for name, tree in trees.items()},
        re_enter=_re_entry(state, conflicts),
        conflicts=tuple(conflicts),
    )


def _re_entry(state: MissionState, conflicts: Sequence[str]) -> str:
    """Return the last working phase, or the first where tests conflict; never one after the present phase."""
    names, here = state.workflow.names(), state.workflow.phase(state.to_do[0])
    stands = here.rework if here.role is Role.REVIEW else here.name
    makers = [phase for phase in state.workflow.phases if not phase.do]
    workers = [phase for phase in makers if phase.role is Role.WORKER]
    if not workers and (conflicts or state.returned):  # one agent does it all: only that is a reason to build again
        agents = [phase for phase in makers if not phase.run] or makers
        workers = [phase for phase in agents if "changed-now" in phase.checks][-1:] or agents[-1:]
    in_tests = any(is_test(path, state.policy.test_globs) for path in conflicts)
    back_to = workers[:1] if in_tests else workers[-1:]
    return min([stands, *(phase.name for phase in back_to)], key=names.index)
