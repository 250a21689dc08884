"""One mission, from wherever it stands to its end or its halt. Resuming is running it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from capsule.core.errors import CapsuleError, Paused, lost_objects_of
from capsule.core.event import (
    MissionStarted,
    MovedByHand,
    Rebased,
    Reopened,
    StepBegun,
    StepEnded,
    Stopped,
)
from capsule.core.item import Status, same_words
from capsule.core.state import PHASE, MissionState, Step, agent_for, apply, next_step
from capsule.core.test_runs import is_test
from capsule.core.workflow import Role
from capsule.engine.actions import close_item
from capsule.engine.bookkeeping import sync_tracker
from capsule.engine.funds import require_funds
from capsule.engine.hand_edits import approved_with_edits, bare, edited_by_hand
from capsule.engine.job import Order, note, only_to_be_closed, place_of, standing, state_store_of
from capsule.engine.steps import check_names, perform, spawns
from capsule.services import Services


def run_until_halt(order: Order, services: Services) -> MissionState:
    """Start it or go on with it, under its claim, until it ends, halts or is stopped."""
    with services.journal.claim(order.mission), lost_objects_of(order.mission):
        _make_ready(order, services)
        try:
            return run(order.mission, services)
        except Paused:
            raise
        except CapsuleError as stop:
            note(
                services, order.mission, Stopped(at=services.clock.now(), cause=stop.message, exit_code=stop.exit_code)
            )
            raise


def move_to(order: Order, services: Services, phase: str) -> None:
    """Go on from another phase, with the workspace as it stands; a mission that is not there yet begins with it."""
    with services.journal.claim(order.mission):
        state = standing(services, order.mission)
        if not state.under_way:
            _start(order, services)
            state = standing(services, order.mission)
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
    """A halted mission is reopened, with what the human changed and has to say; whoever runs it next goes on."""
    with services.journal.claim(order.mission):
        state = standing(services, order.mission)
        if state.halt is None:
            return
        event = _reopened(order, state, services)
        if state.halt.vetoed and order.notes:  # no phase is sent back, so the notes go with the item
            noted = msgspec.structs.replace(event.item or state.item, unblock_context=order.notes)
            event = msgspec.structs.replace(event, item=noted)
        note(services, order.mission, event)


def run(mission: str, services: Services) -> MissionState:
    """The loop: what was recorded is not done again, what was only begun is."""
    state, seen = _settled(services, mission, MissionState(), 0)
    while step := _next(state, services):
        begun, do = _doing(step, state, services)
        if begun.spawns:
            require_funds(state, step.phase, services)
        ended = services.journal.once(step, begun, do, services.leash.beside(step) if begun.spawns else None)
        services.observer.event(mission, ended)
        state, seen = _settled(services, mission, state, seen)
    return state


def _settled(services: Services, mission: str, state: MissionState, seen: int) -> tuple[MissionState, int]:
    """Where the mission stands once it agrees with its tracker."""
    state, seen = _catch_up(services, mission, state, seen)
    while sync_tracker(state, services):
        state, seen = _catch_up(services, mission, state, seen)
    return state, seen


def _next(state: MissionState, services: Services) -> Step | None:
    """What comes next, unless this run is not to go so far."""
    step = next_step(state)
    return None if step and services.leash.holds(state, spawns=spawns(step, state, services)) else step


def close_what_is_merged(services: Services) -> list[str]:
    """Items that are merged, but whose tracker refused to close them then: asked again. The ids that are closed now."""
    return [item for item in merged_and_open(services) if closed_at_last(item, services)]


def merged_and_open(services: Services) -> list[str]:
    claimed = [item.id for item in services.tracker.items() if item.status is Status.IN_PROGRESS]
    return [item for item in claimed if only_to_be_closed(standing(services, item))]


def closed_at_last(item: str, services: Services) -> bool:
    try:
        with services.journal.claim(item):
            close_item(standing(services, item), services)
    except CapsuleError:  # it refuses still, or somebody else is at it: the next run asks again
        return False
    return True


def _catch_up(services: Services, mission: str, state: MissionState, seen: int) -> tuple[MissionState, int]:
    news = services.journal.events(mission, after=seen)
    for _, event in news:
        state = apply(state, event)
    return state, news[-1][0] if news else seen


def _doing(step: Step, state: MissionState, services: Services) -> tuple[StepBegun, Callable[[], StepEnded]]:
    phase = state.workflow.phase(step.phase)
    agent = agent_for(state, phase)[0] if phase.prompt else ""
    begun = StepBegun(
        at=services.clock.now(),
        key=step.key,
        phase=step.phase,
        run=step.run,
        attempt=state.attempt(step.phase),
        agent=agent,
        spawns=spawns(step, state, services),
    )

    def do() -> StepEnded:
        services.observer.event(state.mission, begun)
        return perform(step, state, services, run_until_halt)

    return begun, do


def _make_ready(order: Order, services: Services) -> None:
    """A mission that is not there is started; a halted one is reopened; one that was only interrupted just goes on."""
    state = standing(services, order.mission)
    if state.unrecorded and state.finished:
        return
    if not state.under_way:
        _start(order, services)
    elif order.rebase:
        note(services, order.mission, _rebased(state, services))
    elif state.halt and not state_store_of(
        state, services
    ):  # a tracker with a store says itself whether an item is still blocked
        note(services, order.mission, _reopened(order, state, services))
    elif order.retries not in (None, state.workflow.retries):
        note(services, order.mission, Reopened(at=services.clock.now(), retries=order.retries))


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
    )
    note(services, order.mission, started)


def _reopened(order: Order, state: MissionState, services: Services) -> Reopened:
    """Whoever goes on with a halted mission goes on with the item as it reads now."""
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
    """The work rebuilt on the branch it goes into. Conflicts in tests go back to whoever writes tests."""
    place, onto = place_of(state, services), services.trunk(state.into).tip()
    if state.checkpoint:
        place.restore(state.checkpoint)
    trees = {name: place.trees.rebased_tree(place.delivered(held), onto) for name, held in state.approved.items()}
    checkpoint, conflicts = place.rebase(onto)
    return Rebased(
        at=services.clock.now(),
        base=onto,
        checkpoint=checkpoint,
        approved={name: bare(tree, checkpoint.head) for name, tree in trees.items()},
        re_enter=_re_entry(state, conflicts),
        conflicts=tuple(conflicts),
    )


def _re_entry(state: MissionState, conflicts: Sequence[str]) -> str:
    """The last worker, or the first where tests conflict; never later than where the mission stands."""
    names, here = state.workflow.names(), state.workflow.phase(state.to_do[0])
    stands = here.rework if here.role is Role.REVIEW else here.name
    workers = [phase.name for phase in state.workflow.phases if phase.role is Role.WORKER]
    if not workers:  # where one agent does it all, only a conflict is a reason to build again
        builders = [phase.name for phase in state.workflow.phases if "changed-now" in phase.checks]
        workers = builders[-1:] if conflicts and builders else [stands]
    in_tests = any(is_test(path, state.policy.test_globs) for path in conflicts)
    return min(workers[0] if in_tests else workers[-1], stands, key=names.index)
