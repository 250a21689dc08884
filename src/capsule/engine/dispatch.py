"""Many items, one after the other: the queue works itself until nothing is left, the cap is reached or it trips.

A run is a stream of its own in the journal. Every agent that is started is written there in the same transaction as
the beginning of its step, so cap and breaker are right however the run ends: one that was killed is gone on with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from capsule.core.assignment import Assign
from capsule.core.decide import Decision, Guardrails, Move
from capsule.core.errors import CapsuleError, LockHeld, Paused, Refused
from capsule.core.event import Event, Recorded, RunEnded, RunStarted, Spawned, StepEnded
from capsule.core.item import Item, Status
from capsule.core.ledger import blocked, promotion, tagged
from capsule.core.schedule import Place, Tally, choose, promotable
from capsule.core.state import MissionState, Step
from capsule.core.workflow import Workflow
from capsule.doors import BookEntry, Books, World
from capsule.engine.bookkeeping import set_right
from capsule.engine.job import Order, note, standing
from capsule.engine.run_mission import pursue

_EARLY = (Status.NEW, Status.RESEARCHING)
_FREE = (Status.SCOPED, Status.DONE)
"""What goes on without an agent: to be made ready, to be archived."""


class Desk(Protocol):
    """Where the queue lies, and where a mission's order is made out."""

    def places(self, left_alone: Mapping[str, str]) -> Sequence[Place]:
        """The queue as it stands now, without what this run is not to try again."""

    def order(self, item: Item) -> tuple[Order, World]:
        """What to start the item's mission with, and the world as that mission is to see it."""

    def workflow(self, item: Item) -> Workflow: ...

    guardrails: Guardrails


@dataclass
class RunReport:
    """How a run went, for the summary at its end."""

    spawns: int = 0
    done: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    follow_ups: list[str] = field(default_factory=list)
    ended_because: str = ""
    seconds: float = 0.0
    exit_code: int = 0
    states: dict[str, MissionState] = field(default_factory=dict)

    def left_alone(self) -> dict[str, str]:
        return {**self.blocked, **self.failed}


@dataclass
class Meter:
    """The leash of a run: counts what is started, and holds before the first start too many."""

    stream: str
    world: World
    cap: int
    tally: Tally
    until: Callable[[MissionState], bool] = lambda _: False
    pending: list[tuple[str, str]] = field(default_factory=list)
    spent: bool = False

    def holds(self, state: MissionState, *, spawns: bool) -> bool:
        if self.until(state):
            return True
        self.spent = spawns and self.tally.spawns >= self.cap
        return self.spent

    def beside(self, step: Step) -> tuple[str, Event] | None:
        self.tally = self.tally.spawned()
        self.pending.append((step.mission, step.key))
        spawned = Spawned(at=self.world.clock.now(), mission=step.mission, key=step.key)
        self.world.observer.event(self.stream, spawned)
        return self.stream, spawned

    def settle(self) -> None:
        """How what was started has ended."""
        for decision in _decisions(self.world, self.pending):
            self.tally = self.tally.ended(decision)
        self.pending.clear()


@dataclass(frozen=True)
class Errand:
    """What a run is to do: which items, of which status, how far at a time, with how many agents at most."""

    stream: str
    cap: int
    only: Collection[str] | None = None
    statuses: Collection[Status] | None = None
    to_the_end: bool = False
    """An item is taken through all its phases; otherwise it goes back into the queue once it is scoped."""


def work_through(errand: Errand, desk: Desk, world: World, report: RunReport) -> None:
    """The loop of a run. The report is the caller's, so that it is there however the run ends."""
    began = world.clock.seconds()
    with world.journal.claim(errand.stream):
        spawned = _started_before(errand, world)
        meter = _meter(errand, world, spawned)
        if world.books:
            world.books.finish()
            report.done += _written_down_at_last(spawned, world)
        try:
            while item := _next(errand, desk, meter, report):
                _take(item, errand, desk, replace(world, leash=meter), report)
                meter.settle()
            report.exit_code = 3 if meter.tally.tripped else 1 if report.failed else 0
        except CapsuleError as stop:
            report.ended_because, report.exit_code = stop.message.rstrip("."), stop.exit_code
            raise
        finally:
            report.spawns, report.seconds = meter.tally.spawns, world.clock.seconds() - began
            _end(errand, world, report)


def _next(errand: Errand, desk: Desk, meter: Meter, report: RunReport) -> Item | None:
    """The next item; where there is none, the report says why."""
    if meter.tally.tripped:
        report.ended_because = f"breaker: {meter.tally.failures_in_a_row} items in a row used up their retries"
        return None
    if meter.spent:
        report.ended_because = f"cap: {meter.tally.spawns} of {meter.cap} phases used"
        return None
    places = desk.places(report.left_alone() | dict.fromkeys(report.done, "done"))
    if errand.statuses is not None:
        places = [place for place in places if place.item.status in errand.statuses]
    item = choose(places, errand.only)
    if item is None:
        report.ended_because = "nothing is left to do"
    elif meter.tally.spawns >= meter.cap and item.status not in _FREE:
        report.ended_because = f"cap: {meter.tally.spawns} of {meter.cap} phases used"
        return None
    return item


def _take(item: Item, errand: Errand, desk: Desk, world: World, report: RunReport) -> None:
    """As far as it goes: to its archive, to a halt, to the cap, or back into the queue with what is known now."""
    if world.books and _is_settled_at_the_door(item, desk, world.books, world.clock.now(), report):
        return
    meter = world.leash
    assert isinstance(meter, Meter)
    early = item.status in _EARLY and not errand.to_the_end
    meter.until = (lambda state: state.item.status is not item.status) if early else _never
    before, known = meter.tally.spawns, len(world.journal.events(item.id))
    try:
        order, seen = desk.order(item)
        state = pursue(order, replace(seen, leash=meter))
    except Paused:
        return
    except LockHeld as held:
        if errand.only:
            raise
        report.blocked[item.id] = held.message
        return
    except Refused as refused:
        report.failed[item.id] = f"{refused.message} {refused.hint}".strip()
        return
    moved = meter.tally.spawns > before or state.item.status is not item.status
    events = [event for _, event in world.journal.events(item.id)]
    report.follow_ups += [new for event in events[known:] if isinstance(event, Recorded) for new in event.follow_ups]
    _write_up(item, state, events, report, moved=moved or meter.spent)


def _never(_: MissionState) -> bool:
    return False


def _write_up(item: Item, state: MissionState, events: Sequence[Event], report: RunReport, *, moved: bool) -> None:
    report.states[item.id] = state
    if state.finished:
        report.done.append(item.id)
    elif state.abandoned:
        report.blocked[item.id] = state.abandoned
    elif state.halt:
        last = next((event.decision for event in reversed(events) if isinstance(event, StepEnded)), None)
        gave_up = last is not None and (last.exhausted or last.move is Move.ABORT)
        (report.failed if gave_up else report.blocked)[item.id] = state.halt.reason
    elif not moved:
        report.blocked[item.id] = "it made no progress"


def _is_settled_at_the_door(item: Item, desk: Desk, books: Books, at: str, report: RunReport) -> bool:
    """Before an item enters its workflow: where a guardrail or a human's review stands before it, it is blocked; one
    that was only scoped is made ready."""
    if item.status not in (Status.SCOPED, Status.READY):
        return False
    reason = "; ".join(promotable(item, desk.guardrails))
    if not reason and item.status is Status.READY:
        return False
    if reason:
        values = {**blocked(item, reason, "decision"), "requires_human_review": True}
        message = tagged(item.id, Status.BLOCKED.value, reason)
        report.blocked[item.id] = reason
    else:
        values = promotion(desk.workflow(item))
        message = tagged(item.id, Status.READY.value, "Within the guardrails")
    books.write(BookEntry(f"{item.id}/{at}", message, (Assign(item.id, {**values, "updated": at}),)))
    return True


# ---- what a run remembers


def _started_before(errand: Errand, world: World) -> list[tuple[str, str]]:
    """Missions and steps that a run of this stream started agents for before it was killed."""
    events = [event for _, event in world.journal.events(errand.stream)]
    ends = [n for n, event in enumerate(events) if isinstance(event, RunEnded)]
    open_run = events[ends[-1] + 1 :] if ends else events
    return [(event.mission, event.key) for event in open_run if isinstance(event, Spawned)]


def _meter(errand: Errand, world: World, spawned: Sequence[tuple[str, str]]) -> Meter:
    """A run that was killed is gone on with, its count and all; any other begins at nothing."""
    tally = Tally(spawns=len(spawned))
    for decision in _decisions(world, spawned):
        tally = tally.ended(decision)
    note(world, errand.stream, RunStarted(at=world.clock.now(), cap=errand.cap, spawns=len(spawned)))
    return Meter(errand.stream, world, errand.cap, tally)


def _written_down_at_last(spawned: Sequence[tuple[str, str]], world: World) -> list[str]:
    """An item that was archived or blocked when the run was killed is not taken again, and its journal may not know
    that the books have its last step. The ids of those that are done."""
    states = [standing(world, mission) for mission in dict.fromkeys(name for name, _ in spawned)]
    due = [state for state in states if state.unrecorded and (state.finished or state.halt)]
    for state in due:
        with world.journal.claim(state.mission):
            set_right(state, world)
    return [state.mission for state in due if state.finished]


def _decisions(world: World, spawns: Sequence[tuple[str, str]]) -> list[Decision]:
    """How the steps with these keys ended, in order; one that was interrupted has not."""
    found: dict[tuple[str, str], Decision] = {}
    for mission in dict.fromkeys(name for name, _ in spawns):
        for _, event in world.journal.events(mission):
            if isinstance(event, StepEnded):
                found[mission, event.key] = event.decision
    return [found[spawn] for spawn in dict.fromkeys(spawns) if spawn in found]


def _end(errand: Errand, world: World, report: RunReport) -> None:
    ended = RunEnded(
        at=world.clock.now(),
        why=report.ended_because,
        exit_code=report.exit_code,
        spawns=report.spawns,
        done=tuple(report.done),
        blocked=report.blocked,
        failed=report.failed,
        follow_ups=tuple(report.follow_ups),
    )
    note(world, errand.stream, ended)
