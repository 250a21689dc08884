"""Fold a mission's events into its state: `state = replay(events)`. The heart of it is the list of phases still to do.

`next_step` says what comes next, `apply` what an event changes. There is no other way a mission's state comes about, so
resuming after a crash is the same as never having stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from capsule.core.budget import Spending, total
from capsule.core.decide import HALTS, SETBACKS, Move, refutation_key
from capsule.core.event import (
    Abandoned,
    Discovered,
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Observed,
    Policy,
    Proposed,
    Rebased,
    Recorded,
    Reopened,
    Spent,
    StepBegun,
    StepEnded,
    Usage,
    Waiting,
)
from capsule.core.evidence import Checkpoint, Colour, Observation, refuted
from capsule.core.item import Item, Lineage
from capsule.core.ledger import after
from capsule.core.signal import Verdict
from capsule.core.workflow import Phase, Role, Workflow

PHASE = "phase"
"""Value of `MovedByHand.what` where the mission itself was moved."""


class Halt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parked or aborted, not ended: `run ID` goes on from here."""

    phase: str
    move: Move
    reason: str
    feedback: str = ""
    exit_code: int = 1
    vetoed: bool = False
    """The phase itself passed: going on is going on to the next."""


class Step(msgspec.Struct, frozen=True):
    """The next thing to do, as data; its key is unique in the mission for ever, so retry and rework need no other."""

    mission: str
    phase: str
    run: int

    @property
    def key(self) -> str:
        return f"{self.phase}#{self.run}"


class MissionState(msgspec.Struct, frozen=True, kw_only=True):
    mission: str = ""
    item: Item = Item(id="", title="")
    lineage: Lineage = Lineage()
    workflow: Workflow = Workflow(name="", phases=())
    policy: Policy = Policy()
    base: str = ""
    into: str = ""
    parent: str = ""
    earlier: str = ""
    to_do: tuple[str, ...] = ()
    runs: dict[str, int] = {}
    """How often each phase has ended, ever: keys are made of it."""
    tries: dict[str, int] = {}
    """How often each phase has ended since the mission was started, parts of a repeated one not counted."""
    used: dict[str, int] = {}
    setbacks: dict[str, int] = {}
    refutations: dict[str, int] = {}
    feedback: dict[str, str] = {}
    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}
    unsettled: bool = False
    """The last phase left its workspace in a state that no checkpoint could hold."""
    taken_over: bool = False
    """A human or a rebase changed the work itself: what a worker adds after that may be nothing."""
    facts: dict[str, str] = {}
    observations: dict[str, Observation] = {}
    summary: str = ""
    spent: dict[str, Spending] = {}
    """By phase, all its attempts together."""
    unaccounted: bool = False
    """An agent was started, and nobody has said yet what it used up."""
    begun: StepBegun | None = None
    unrecorded: StepEnded | None = None
    """The step that the tracker has yet to be told of."""
    proposed: Proposed | None = None
    halt: Halt | None = None
    closed_as: str = ""
    item_closed: bool = False
    discovered: dict[str, str] = {}
    abandoned: str = ""

    @property
    def started(self) -> bool:
        return bool(self.mission)

    @property
    def finished(self) -> bool:
        """Tell whether all is done (merged and archived, or closed as not needed)."""
        return self.started and not self.to_do and not self.abandoned

    @property
    def under_way(self) -> bool:
        return self.started and not self.finished and not self.abandoned

    @property
    def spending(self) -> Spending:
        """Return what its agents have used up, including one whose end was never reported."""
        known = total(self.spent.values())
        return known.plus(None) if self.unaccounted and self.begun else known

    def attempt(self, phase: str) -> int:
        return self.tries.get(phase, 0) + 1


def next_step(state: MissionState) -> Step | None:
    """Return the head of the list, unless the mission is halted, abandoned or finished."""
    if not state.under_way or state.halt:
        return None
    head = state.to_do[0]
    return Step(mission=state.mission, phase=head, run=state.runs.get(head, 0) + 1)


def replay(events: Iterable[Event]) -> MissionState:
    state = MissionState()
    for event in events:
        state = apply(state, event)
    return state


def apply(state: MissionState, event: Event) -> MissionState:
    change = _CHANGES.get(type(event))
    return change(state, event) if change else state


def baseline(state: MissionState, phase: str) -> Checkpoint | None:
    """Return the state that the last review before this phase approved: what must not be touched any more."""
    names = state.workflow.names()
    earlier = [p for p in state.workflow.phases[: names.index(phase)] if p.role is Role.REVIEW]
    return next((state.approved[p.name] for p in reversed(earlier) if p.name in state.approved), None)


def agent_for(state: MissionState, phase: Phase) -> tuple[str, str]:
    """Return the agent and model for a phase, another one after enough setbacks; empty for the settings' default."""
    plan = phase.escalate
    if plan and state.setbacks.get(phase.name, 0) >= plan.after:
        return plan.agent or phase.agent, plan.model or phase.model
    return phase.agent, phase.model


def children_of(parent: MissionState, look_up: Callable[[str], MissionState]) -> Iterator[MissionState]:
    """Yield the child missions of this one that have begun."""
    for phase in parent.workflow.phases:
        number = 1
        while phase.workflow and (child := look_up(f"{parent.mission}.{phase.name}.{number}")).started:
            yield child
            number += 1


def _started(state: MissionState, event: MissionStarted) -> MissionState:
    return MissionState(
        mission=event.mission,
        item=event.item,
        lineage=event.lineage,
        workflow=event.workflow,
        policy=event.policy,
        base=event.base,
        into=event.into,
        parent=event.parent,
        earlier=event.earlier,
        to_do=event.workflow.remaining(event.item),
        runs=state.runs,  # a mission started over keeps counting: its keys stay unique
        spent=state.spent,  # and what was paid stays paid
    )


def _begun(state: MissionState, event: StepBegun) -> MissionState:
    """Charge a step that began and never ended with an unknown amount."""
    spent = _paid(state, state.begun.phase, None) if state.unaccounted and state.begun else state.spent
    return replace(state, begun=event, spent=spent, unaccounted=event.spawns)


def _paid(state: MissionState, phase: str, usage: Usage | None) -> dict[str, Spending]:
    return {**state.spent, phase: state.spent.get(phase, Spending()).plus(usage)}


def _ended(state: MissionState, event: StepEnded) -> MissionState:
    outcome, decision = event.outcome, event.decision
    another = 0 if decision.move is Move.REPEAT else 1
    refutations = dict(state.refutations)
    if decision.verdict is Verdict.REFUTED:
        for piece in refuted(outcome.evidence):
            key = refutation_key(event.phase, piece.check)
            refutations[key] = refutations.get(key, 0) + 1
    state = replace(
        state,
        begun=None,
        spent=_paid(state, event.phase, outcome.usage) if outcome.agent else state.spent,
        unaccounted=False,
        runs={**state.runs, event.phase: event.run},
        tries={**state.tries, event.phase: state.tries.get(event.phase, 0) + another},
        unsettled=outcome.checkpoint is None and state.workflow.phase(event.phase).works_in_place,
        checkpoint=outcome.checkpoint or state.checkpoint,
        facts={**state.facts, **outcome.facts},
        item=after(state.item, event.assignments),
        unrecorded=event if event.message else None,
        refutations=refutations,
    )
    return _MOVES[decision.move](state, event)


def _advance(state: MissionState, event: StepEnded) -> MissionState:
    return replace(
        _repeat(state, event),
        to_do=state.to_do[1:],
        approved={**state.approved, event.phase: state.checkpoint} if state.checkpoint else state.approved,
        feedback={name: text for name, text in state.feedback.items() if name != event.phase},
    )


def _repeat(state: MissionState, event: StepEnded) -> MissionState:
    return replace(state, summary=event.outcome.signal.summary or state.summary)


def _set_back(state: MissionState, event: StepEnded) -> MissionState:
    decision, target = event.decision, event.decision.back_to
    return replace(
        state,
        to_do=state.workflow.sent_back(event.phase, target) + state.to_do[1:],
        used={**state.used, decision.counter: state.used.get(decision.counter, 0) + 1},
        setbacks={**state.setbacks, target: state.setbacks.get(target, 0) + 1},
        feedback={**state.feedback, target: decision.feedback},
    )


def _halted(state: MissionState, event: StepEnded) -> MissionState:
    made = event.decision
    if made.vetoed:
        state = (_repeat if made.verdict is Verdict.MORE else _advance)(state, event)
    return replace(state, halt=Halt(event.phase, made.move, made.reason, made.feedback, made.exit_code, made.vetoed))


_MOVES: dict[Move, Callable[[MissionState, StepEnded], MissionState]] = {
    Move.ADVANCE: _advance,
    Move.REPEAT: _repeat,
    Move.SKIP: lambda state, _: replace(state, to_do=state.to_do[1:]),
    Move.CLOSE: lambda state, event: replace(state, to_do=state.workflow.closing(), closed_as=event.decision.reason),
    **dict.fromkeys(SETBACKS, _set_back),
    **dict.fromkeys(HALTS, _halted),
}


def _reopened(state: MissionState, event: Reopened) -> MissionState:
    """Give the halted phase its retries afresh; re-enter a review at the worker it sends back to."""
    halt = state.halt
    state = replace(
        state,
        halt=None,
        checkpoint=event.checkpoint or state.checkpoint,
        item=event.item or state.item,
        workflow=state.workflow if event.retries is None else replace(state.workflow, retries=event.retries),
        observations=_without_red(state),
    )
    if event.checkpoint:  # a human's edits are the new state of things
        state = replace(state, approved=event.approved, taken_over=True)
    if halt is None or halt.vetoed:
        return state
    phase = state.workflow.phase(halt.phase)
    target = phase.rework if phase.role is Role.REVIEW else phase.name
    counter = state.workflow.counter(phase.name)
    answer = f"Notes from the person who let it go on; build on them:\n\n{event.notes}" if event.notes else ""
    words = "\n\n".join(filter(None, (halt.feedback, answer)))
    return replace(
        state,
        to_do=state.workflow.sent_back(phase.name, target) + state.to_do[1:],
        used={**state.used, counter: 0},
        setbacks={**state.setbacks, target: state.setbacks.get(target, 0) + 1},
        refutations={k: n for k, n in state.refutations.items() if not k.startswith(refutation_key(phase.name, ""))},
        feedback={**state.feedback, target: words} if words else state.feedback,
    )


def _without_red(state: MissionState) -> dict[str, Observation]:
    """Forget red observations: after a halt the machine may have been mended."""
    return {key: seen for key, seen in state.observations.items() if seen.colour is Colour.GREEN}


def _rebased(state: MissionState, event: Rebased) -> MissionState:
    names = state.workflow.names()
    conflicts = f"Resolve these conflicts first: {', '.join(event.conflicts)}." if event.conflicts else ""
    note = event.why or (conflicts and f"The work was rebuilt on the new main. {conflicts}")
    return replace(
        state,
        base=event.base,
        halt=None,
        checkpoint=event.checkpoint,
        approved=event.approved,
        taken_over=True,
        observations=_without_red(state),
        to_do=names[names.index(event.re_enter) :],
        used={},
        feedback={**state.feedback, event.re_enter: note} if note else state.feedback,
        item=event.item or state.item,
        unrecorded=None,
    )


def _recorded(state: MissionState, event: Recorded) -> MissionState:
    return replace(
        state,
        unrecorded=None,
        checkpoint=event.checkpoint or state.checkpoint,
        item_closed=state.item_closed or not state.to_do,
    )


def _item_moved(state: MissionState, item: Item, event: MovedByHand) -> MissionState:
    """Go on from where the tracker says the item stands, with retries afresh."""
    moved = (item.status, item.phase) != (state.item.status, state.item.phase)
    halt, remaining = state.halt, state.workflow.remaining(item)
    state = replace(state, item=item, begun=None)
    if event.checkpoint:
        state = replace(state, checkpoint=event.checkpoint, approved=event.approved, taken_over=True)
    if not moved:
        return state
    feedback = {**state.feedback, halt.phase: halt.feedback} if halt and halt.feedback else state.feedback
    return replace(
        state,
        to_do=remaining,
        used={},
        tries={},
        refutations={},
        feedback=feedback,
        halt=Halt(next(iter(remaining), ""), Move.PARK, item.blocked.reason) if item.blocked else None,
    )


def _moved_by_hand(state: MissionState, event: MovedByHand) -> MissionState:
    if event.item:
        return _item_moved(state, event.item, event)
    names = state.workflow.names()
    if event.what != PHASE or event.found not in names:
        return state
    position = names.index(event.found)
    here = event.checkpoint or state.checkpoint
    approved = event.approved or (dict.fromkeys(names[:position], here) if here else state.approved)
    return replace(state, to_do=names[position:], halt=None, checkpoint=here, approved=approved)


_CHANGES: dict[type, Callable[[MissionState, Any], MissionState]] = {
    MissionStarted: _started,
    StepBegun: _begun,
    StepEnded: _ended,
    Waiting: lambda state, _: replace(state, unaccounted=True),
    Spent: lambda state, event: replace(state, spent=_paid(state, event.phase, event.usage), unaccounted=False),
    Observed: lambda state, event: replace(state, observations={**state.observations, event.key: event.observation}),
    Recorded: _recorded,
    Proposed: lambda state, event: replace(state, proposed=event),
    Reopened: _reopened,
    Rebased: _rebased,
    MovedByHand: _moved_by_hand,
    Abandoned: lambda state, event: replace(state, abandoned=event.how, begun=None),
    ItemClosed: lambda state, _: replace(state, item_closed=True),
    Discovered: lambda state, event: replace(state, discovered=event.items),
}
