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
from capsule.engine.bookkeeping import set_right
from capsule.engine.funds import require_funds
from capsule.engine.hand_edits import approved_with_edits, bare, edited_by_hand
from capsule.engine.job import Order, books_of, note, only_to_be_closed, place_of, standing
from capsule.engine.steps import check_names, perform, spawns
from capsule.world import World


def pursue(order: Order, world: World) -> MissionState:
    """Start it or go on with it, under its claim, until it ends, halts or is stopped."""
    with world.journal.claim(order.mission), lost_objects_of(order.mission):
        _make_ready(order, world)
        try:
            return run(order.mission, world)
        except Paused:
            raise
        except CapsuleError as stop:
            note(world, order.mission, Stopped(at=world.clock.now(), cause=stop.message, exit_code=stop.exit_code))
            raise


def move_to(order: Order, world: World, phase: str) -> None:
    """Go on from another phase, with the workspace as it stands; a mission that is not there yet begins with it."""
    with world.journal.claim(order.mission):
        state = standing(world, order.mission)
        if not state.under_way:
            _start(order, world)
            state = standing(world, order.mission)
        workspace = place_of(state, world)
        workspace.prepare(state.base)
        now = workspace.checkpoint(f"moved to {phase}")
        moved = MovedByHand(
            at=world.clock.now(),
            what=PHASE,
            expected=state.to_do[0],
            found=phase,
            checkpoint=now,
            approved=approved_with_edits(state, now, world),
        )
        note(world, order.mission, moved)


def let_go(order: Order, world: World) -> None:
    """A halted mission is reopened, with what the human changed and has to say; whoever runs it next goes on."""
    with world.journal.claim(order.mission):
        state = standing(world, order.mission)
        if state.halt is None:
            return
        event = _reopened(order, state, world)
        if state.halt.vetoed and order.notes:  # no phase is sent back, so the notes go with the item
            told = msgspec.structs.replace(event.item or state.item, unblock_context=order.notes)
            event = msgspec.structs.replace(event, item=told)
        note(world, order.mission, event)


def run(mission: str, world: World) -> MissionState:
    """The loop: what was recorded is not done again, what was only begun is."""
    state, seen = _settled(world, mission, MissionState(), 0)
    while step := _next(state, world):
        begun, do = _doing(step, state, world)
        if begun.spawns:
            require_funds(state, step.phase, world)
        ended = world.journal.once(step, begun, do, world.leash.beside(step) if begun.spawns else None)
        world.observer.event(mission, ended)
        state, seen = _settled(world, mission, state, seen)
    return state


def _settled(world: World, mission: str, state: MissionState, seen: int) -> tuple[MissionState, int]:
    """Where the mission stands once it agrees with its tracker."""
    state, seen = _catch_up(world, mission, state, seen)
    while set_right(state, world):
        state, seen = _catch_up(world, mission, state, seen)
    return state, seen


def _next(state: MissionState, world: World) -> Step | None:
    """What comes next, unless this run is not to go so far."""
    step = next_step(state)
    return None if step and world.leash.holds(state, spawns=spawns(step, state, world)) else step


def close_what_is_merged(world: World) -> list[str]:
    """Items that are merged, but whose tracker refused to close them then: asked again. The ids that are closed now."""
    return [item for item in merged_and_open(world) if closed_at_last(item, world)]


def merged_and_open(world: World) -> list[str]:
    claimed = [item.id for item in world.tracker.items() if item.status is Status.IN_PROGRESS]
    return [item for item in claimed if only_to_be_closed(standing(world, item))]


def closed_at_last(item: str, world: World) -> bool:
    try:
        with world.journal.claim(item):
            close_item(standing(world, item), world)
    except CapsuleError:  # it refuses still, or somebody else is at it: the next run asks again
        return False
    return True


def _catch_up(world: World, mission: str, state: MissionState, seen: int) -> tuple[MissionState, int]:
    news = world.journal.events(mission, after=seen)
    for _, event in news:
        state = apply(state, event)
    return state, news[-1][0] if news else seen


def _doing(step: Step, state: MissionState, world: World) -> tuple[StepBegun, Callable[[], StepEnded]]:
    phase = state.workflow.phase(step.phase)
    agent = agent_for(state, phase)[0] if phase.prompt else ""
    begun = StepBegun(
        at=world.clock.now(),
        key=step.key,
        phase=step.phase,
        run=step.run,
        attempt=state.attempt(step.phase),
        agent=agent,
        spawns=spawns(step, state, world),
    )

    def do() -> StepEnded:
        world.observer.event(state.mission, begun)
        return perform(step, state, world, pursue)

    return begun, do


def _make_ready(order: Order, world: World) -> None:
    """A mission that is not there is started; a halted one is reopened; one that was only interrupted just goes on."""
    state = standing(world, order.mission)
    if state.unrecorded and state.finished:
        return
    if not state.under_way:
        _start(order, world)
    elif order.rebase:
        note(world, order.mission, _rebased(state, world))
    elif state.halt and not books_of(state, world):  # books say themselves whether an item is still blocked
        note(world, order.mission, _reopened(order, state, world))
    elif order.retries not in (None, state.workflow.retries):
        note(world, order.mission, Reopened(at=world.clock.now(), retries=order.retries))


def _start(order: Order, world: World) -> None:
    check_names(order.workflow)
    started = MissionStarted(
        at=world.clock.now(),
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
    note(world, order.mission, started)


def _reopened(order: Order, state: MissionState, world: World) -> Reopened:
    """Whoever goes on with a halted mission goes on with the item as it reads now."""
    rewritten = None if same_words(order.item, state.item, world.redact) else order.item
    now = edited_by_hand(state, world)
    approved = approved_with_edits(state, now, world) if now else {}
    return Reopened(
        at=world.clock.now(),
        checkpoint=now,
        approved=approved,
        item=rewritten,
        retries=order.retries,
        notes=order.notes,
    )


def _rebased(state: MissionState, world: World) -> Rebased:
    """The work rebuilt on the branch it goes into. Conflicts in tests go back to whoever writes tests."""
    workspace, onto = place_of(state, world), world.trunk(state.into).tip()
    if state.checkpoint:
        workspace.restore(state.checkpoint)
    trees = {name: workspace.rebased_tree(workspace.delivered(held), onto) for name, held in state.approved.items()}
    checkpoint, conflicts = workspace.rebase(onto)
    return Rebased(
        at=world.clock.now(),
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
