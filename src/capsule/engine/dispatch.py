"""Many items, one after the other: the queue works itself until nothing is left, the cap is reached or it trips.

A run is a stream of its own in the journal. Every agent that is started is written there in the same transaction as
the beginning of its step, by whoever runs the mission (`Runners`). So cap and breaker are right however many runners
there are and however the run ends: one that was killed is gone on with.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from capsule.adapters import Order, RunLease, Runners, StateCommit
from capsule.core.assignment import Assign
from capsule.core.budget import Spending, as_facts
from capsule.core.decide import Decision, Guardrails, Move
from capsule.core.errors import BudgetSpent, CapsuleError, LockHeld, ObjectLost, Overlap, Paused, Refused
from capsule.core.event import (
    Advanced,
    Discovered,
    Event,
    Recorded,
    RunEnded,
    RunStarted,
    Spawned,
    Spent,
    StepEnded,
    Warned,
)
from capsule.core.item import EARLY, Item, Status, with_values
from capsule.core.ledger import AT_THE_DOOR, at_the_door, tagged
from capsule.core.schedule import OpenRun, QueuePosition, Tally, choose, open_run
from capsule.core.state import MissionState, Step
from capsule.core.workflow import Workflow
from capsule.engine.bookkeeping import sync_tracker
from capsule.engine.job import load_state, note, only_to_be_archived, only_to_be_closed
from capsule.engine.run_mission import closed_at_last, merged_and_open, run_until_halt
from capsule.engine.run_mission import run as run_mission
from capsule.services import RunLimits, Services

_NOTHING_LEFT = "nothing is left to do"
_NOT_CLOSED = "merged, but its tracker refuses to close it"
_FREE = (Status.SCOPED, Status.DONE)
"""Statuses that need no agent: to be made ready, to be archived."""


class JobSource(Protocol):
    """The queue of a run, and the orders for its missions."""

    guardrails: Guardrails

    def places(self, left_alone: Mapping[str, str]) -> Sequence[QueuePosition]:
        """The queue as it stands now, without what this run is not to try again."""

    def order(self, item: Item) -> tuple[Order, Services]:
        """Make the order that starts the item's mission, and the services as that mission sees them."""

    def workflow(self, item: Item) -> Workflow: ...


class ItemGroup(Protocol):
    """Items that belong together, where a run is for these (engine/campaign.py)."""

    root: str
    """The item that holds them."""

    def wanted(self) -> Collection[str]:
        """Name the items to work on, as things stand now."""

    def cut_short(self) -> Sequence[QueuePosition]:
        """Missions that were interrupted after their item was closed: they come first."""

    def settle(self) -> list[Advanced]:
        """Close whatever holds only what is done; how far each is that holds something."""

    def left_over(self, places: Sequence[QueuePosition]) -> Mapping[str, str]:
        """Say of each item why it is not done yet."""

    @property
    def done(self) -> bool:
        """Its own tracker says so."""


class RunReport(Struct):
    """How a run went, for the summary at its end."""

    spawns: int = 0
    cap: int = 0
    spent: Spending = field(default_factory=Spending)
    done: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    """What was not run, and why."""
    progress: list[Advanced] = field(default_factory=list)
    """Of a campaign: how far each is that holds something."""
    follow_ups: list[str] = field(default_factory=list)
    ended_because: str = ""
    seconds: float = 0.0
    exit_code: int = 0
    states: dict[str, MissionState] = field(default_factory=dict)

    def left_alone(self) -> dict[str, str]:
        return {**self.blocked, **self.failed, **dict.fromkeys(self.done, "done")}

    @property
    def stuck(self) -> dict[str, str]:
        """Items that were tried and did not finish, each with the reason."""
        return {**self.failed, **self.blocked}

    @property
    def halts(self) -> list[int]:
        """The exit codes of missions that stopped."""
        return [state.halt.exit_code for state in self.states.values() if state.halt]


class RunPlan(Struct, frozen=True):
    """One run: which items, of which status, how far at a time, with how many agents at most."""

    stream: str
    cap: int
    cap_from_now: bool = False
    """The cap was asked for now: what a killed run has started before is not counted towards it."""
    only: Collection[str] | None = None
    statuses: Collection[Status] | None = None
    to_the_end: bool = False
    """An item is taken through all its phases; otherwise it goes back into the queue once it is scoped."""
    group: ItemGroup | None = None
    """Of a campaign: only items that the group wants are taken."""
    stop_on_failure: bool = False
    """The first item that does not come to its end is the last."""


class SharedLimits(RunLimits, frozen=True):
    """Limit a mission by the run that it is part of: the agents of all its missions are counted in the run's stream."""

    lease: RunLease
    services: Services

    def should_stop(self, state: MissionState, *, spawns: bool) -> bool:
        moved_on = self.lease.leaves_at is not None and state.item.status is not self.lease.leaves_at
        return moved_on or (spawns and self._run().used_up)

    def spawn_event(self, step: Step) -> tuple[str, Event] | None:
        spawned = Spawned(at=self.services.clock.now(), mission=step.mission, key=step.key)
        self.services.observer.event(self.lease.stream, spawned)
        return self.lease.stream, spawned

    def spending(self) -> Spending:
        return _spending(self.services, self._run().spawned)

    def _run(self) -> OpenRun:
        return open_run(event for _, event in self.services.journal.events(self.lease.stream))


class InProcessRunners:
    """Run missions in this process, each as soon as it is started."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stopped: list[tuple[str, CapsuleError | None]] = []

    def start(self, order: Order, lease: RunLease) -> None:
        error = None
        try:
            run_until_halt(order, replace(self._services, run_limits=SharedLimits(lease, self._services)))
        except CapsuleError as stop:
            error = stop
        self._stopped.append((order.mission, error))

    def wait(self) -> tuple[str, CapsuleError | None]:
        return self._stopped.pop(0)


class SpawnCounter(Struct):
    """Count what a run has started, whoever started it, and how that ended."""

    stream: str
    services: Services
    cap: int
    tally: Tally = field(default_factory=Tally)
    spent: Spending = field(default_factory=Spending)
    seen: int = 0

    @property
    def used_up(self) -> bool:
        return self.tally.spawns >= self.cap

    def settle(self) -> None:
        """Read what was started since the last time, and how it has ended."""
        events = self.services.journal.events(self.stream, after=self.seen)
        self.seen = events[-1][0] if events else self.seen
        self.add([(event.mission, event.key) for _, event in events if isinstance(event, Spawned)])

    def add(self, spawned: Sequence[tuple[str, str]]) -> None:
        self.tally = replace(self.tally, spawns=self.tally.spawns + len(spawned))
        for decision in _decisions(self.services, spawned):
            self.tally = self.tally.ended(decision)
        self.spent += _spending(self.services, spawned)


def work_through(plan: RunPlan, jobs: JobSource, services: Services, report: RunReport) -> None:
    """The loop of a run. The report is the caller's, so that it is there however the run ends."""
    began = services.clock.seconds()
    with services.journal.claim(plan.stream) as epoch:
        killed = open_run(event for _, event in services.journal.events(plan.stream))
        earlier = killed.spawned
        report.cap = len(earlier) + plan.cap if plan.cap_from_now else max(plan.cap, killed.cap)
        note(services, plan.stream, RunStarted(at=services.clock.now(), cap=report.cap, spawns=len(earlier)))
        counter = SpawnCounter(plan.stream, services, report.cap, seen=services.journal.events(plan.stream)[-1][0])
        counter.add(earlier)  # one that was killed is gone on with, its count and all
        _wait_for_runners(earlier, services)
        services.state_store.finish()
        report.done += _recorded_at_last(earlier, services)
        report.done += _archived_at_last(earlier, services)
        run = _Run(plan, jobs, services, counter, RunLease(plan.stream, epoch), report, merged_and_open(services))
        try:
            run.settle()
            while item := run.next():
                run.take(item)
                run.settle()
            run.conclude()
        except CapsuleError as stop:
            report.ended_because, report.exit_code = stop.message.rstrip("."), stop.exit_code
            raise
        finally:
            counter.settle()
            report.spawns, report.seconds = counter.tally.spawns, services.clock.seconds() - began
            report.spent = counter.spent
            note(services, plan.stream, _ended(report, services.clock.now()))


class _Run(Struct, frozen=True):
    """One run: what it is to do, with what, and what has come of it so far."""

    plan: RunPlan
    jobs: JobSource
    services: Services
    counter: SpawnCounter
    lease: RunLease
    report: RunReport
    unclosed: list[str]
    """Merged, and their tracker has not let them be closed: it may, once another is closed."""

    def next(self) -> Item | None:
        """The next item; where there is none, the report says why."""
        item = None
        if not self._over:
            item = choose(self._places(), self.plan.group.wanted() if self.plan.group else self.plan.only)
        if item and (item.status in _FREE or not self.counter.used_up):
            return item
        self.report.ended_because = self._why_it_ends(item)
        return None

    @property
    def _over(self) -> bool:
        return self.counter.tally.tripped or (self.plan.stop_on_failure and bool(self.report.stuck))

    def settle(self) -> None:
        """After each item, and before the first: a run may have been killed in between."""
        for item in [item for item in self.unclosed if closed_at_last(item, self.services)]:
            self.unclosed.remove(item)
        if self.plan.group:
            self.report.progress = self.plan.group.settle()

    def conclude(self) -> None:
        """Fill in what was not done, and the exit code."""
        report, group = self.report, self.plan.group
        report.blocked |= {item: _NOT_CLOSED for item in self.unclosed if item not in report.done}
        report.exit_code = 3 if self.counter.tally.tripped else 1 if report.failed else 0
        known, places = report.left_alone(), self._places()
        left = (
            group.left_over(places) if group else {place.item.id: place.why for place in places if not place.actionable}
        )
        wanted = self.plan.only or left
        report.waiting = {name: why for name, why in left.items() if name not in known and name in wanted}
        if group is None:
            if (report.waiting or report.stuck) and report.ended_because == _NOTHING_LEFT:
                report.ended_because = "nothing else can be worked on"
            return
        report.exit_code = max([report.exit_code, *report.halts, int(not group.done)])

    def _places(self) -> list[QueuePosition]:
        wanted = self.plan.statuses
        left_alone = self.report.left_alone() | dict.fromkeys(self.unclosed, _NOT_CLOSED)
        first = self.plan.group.cut_short() if self.plan.group else ()
        found = [*(place for place in first if place.item.id not in left_alone), *self.jobs.places(left_alone)]
        return [place for place in found if wanted is None or place.item.status in wanted]

    def _why_it_ends(self, item: Item | None) -> str:
        tally = self.counter.tally
        if tally.tripped:
            return f"breaker: {tally.failures_in_a_row} items in a row used up their retries"
        if item:
            return f"cap: {tally.spawns} of {self.counter.cap} phases used"
        return self._how_it_went(self.plan.group) if self.plan.group else _NOTHING_LEFT

    def _how_it_went(self, group: ItemGroup) -> str:
        root, stuck = group.root, list(self.report.stuck)
        if self._over:
            word = "failed" if stuck[0] in self.report.failed else "needs you"
            return f"{stuck[0]} {word} (--on-failure continue keeps going)"
        return f"{root} is done" if group.done else f"the rest of {root} cannot be worked on now"

    def take(self, item: Item) -> None:
        """As far as it goes: to its archive, to a halt, to the cap, or back into the queue with what is known now."""
        if self._settled_at_the_door(item):
            return
        spawns, known = self.counter.tally.spawns, len(self.services.journal.events(item.id))
        went = self._went(item)
        self.counter.settle()
        if not went:
            return
        state = load_state(self.services, item.id)
        events = [event for _, event in self.services.journal.events(item.id)]
        self.report.states[item.id] = state
        self.report.follow_ups += [new for event in events[known:] for new in _added(event)]
        if only_to_be_closed(state):
            self.unclosed.append(item.id)
        moved = self.counter.tally.spawns > spawns or state.item.status is not item.status or self.counter.used_up
        self._write_up(item.id, state, events, moved=moved)

    def _settled_at_the_door(self, item: Item) -> bool:
        """Block an item that a person has to decide on, or make it ready; False where it needs an agent."""
        state_store, at = self.services.state_store, self.services.clock.now()
        if item.status not in AT_THE_DOOR and not item.unmet:
            return False
        values = at_the_door(item, self.jobs.workflow(item), self.jobs.guardrails)
        if not values:
            return False
        after = with_values(item, values)
        reason = after.blocked.reason if after.blocked else ""
        if reason:
            self.report.blocked[item.id] = reason
        message = tagged(item.id, after.status.value, reason or "Within the guardrails")
        state_store.write(StateCommit(f"{item.id}/{at}", message, (Assign(item.id, {**values, "updated": at}),)))
        self.services.observer.event(self.plan.stream, Warned(at=at, text=message))
        return True

    def _went(self, item: Item) -> bool:
        """Run the mission as far as it goes; False where it was refused or paused, which the report tells."""
        try:
            order, services = self.jobs.order(item)
            leaves_at = item.status if item.status in EARLY and not self.plan.to_the_end else None
            needs_agents = item.status is not Status.DONE
            runners: Runners = (services.runners if needs_agents else None) or InProcessRunners(services)
            runners.start(order, replace(self.lease, leaves_at=leaves_at))
            _, error = runners.wait()
            if error:
                raise error
        except Paused:
            return False
        except LockHeld as held:
            if self._is_named:
                raise
            self.report.blocked[item.id] = held.message
        except BudgetSpent as spent:
            if spent.of_the_run or self._is_named:
                raise
            self.report.blocked[item.id] = spent.message
        except ObjectLost as lost:
            if self._is_named:
                raise
            self.report.failed[item.id] = f"{lost.message} {lost.hint}".strip()
        except Overlap as edited:  # nothing has failed: it goes on once the user's edit is committed or put away
            if self._is_named:
                raise
            self.report.blocked[item.id] = f"{edited.message} {edited.hint}"
        except Refused as refused:
            self.report.failed[item.id] = f"{refused.message} {refused.hint}".strip()
        else:
            return True
        return False

    @property
    def _is_named(self) -> bool:
        """There is nothing else to go on with: what stops the item stops the run, in its own words."""
        return bool(self.plan.only) or self.plan.stop_on_failure

    def _write_up(self, item: str, state: MissionState, events: Sequence[Event], *, moved: bool) -> None:
        if state.finished:
            self.report.done.append(item)
        elif state.abandoned:
            self.report.blocked[item] = state.abandoned
        elif state.halt:
            last = next((event.decision for event in reversed(events) if isinstance(event, StepEnded)), None)
            gave_up = last is not None and (last.exhausted or last.move is Move.ABORT)
            (self.report.failed if gave_up else self.report.blocked)[item] = state.halt.reason
        elif not moved:
            self.report.blocked[item] = "it made no progress"


def _added(event: Event) -> tuple[str, ...]:
    """The ids of items that were added."""
    if isinstance(event, Discovered):
        return tuple(event.items)
    return event.follow_ups if isinstance(event, Recorded) else ()


# ---- what a run remembers


def _wait_for_runners(spawned: Sequence[tuple[str, str]], services: Services) -> None:
    """Let the runners of a queue that was killed end: they do so as soon as they notice. One of somebody else stays."""
    for mission in dict.fromkeys(name for name, _ in spawned):
        tries = 100
        while tries and services.journal.holder(mission) is not None and services.clock.wait(0.05):
            tries -= 1


def _recorded_at_last(spawned: Sequence[tuple[str, str]], services: Services) -> list[str]:
    """An item that was archived or blocked when the run was killed is not taken again, and its journal may not know
    that its last step is stored. The ids of those that are done."""
    states = [load_state(services, mission) for mission in dict.fromkeys(name for name, _ in spawned)]
    due = [state for state in states if state.unrecorded and (state.finished or state.halt)]
    for state in due:
        with services.journal.claim(state.mission):
            sync_tracker(state, services)
    return [state.mission for state in due if state.finished]


def _archived_at_last(spawned: Sequence[tuple[str, str]], services: Services) -> list[str]:
    """An item that its tracker called closed when the run was killed is in no queue any more, and its mission does not
    know yet that it has come to its end. The ids of those that have now."""
    missions = dict.fromkeys(name for name, _ in spawned)
    due = [mission for mission in missions if only_to_be_archived(load_state(services, mission))]
    for mission in due:
        with services.journal.claim(mission):
            run_mission(mission, services)
    return due


def _decisions(services: Services, spawns: Sequence[tuple[str, str]]) -> list[Decision]:
    """List how the steps with these keys ended, in order, without those that were interrupted."""
    found: dict[tuple[str, str], Decision] = {}
    for mission in dict.fromkeys(name for name, _ in spawns):
        for _, event in services.journal.events(mission):
            if isinstance(event, StepEnded):
                found[mission, event.key] = event.decision
    return [found[spawn] for spawn in dict.fromkeys(spawns) if spawn in found]


def _spending(services: Services, spawns: Sequence[tuple[str, str]]) -> Spending:
    """Sum up what the steps with these keys have used; unknown for one that was interrupted."""
    found = Spending()
    for mission in dict.fromkeys(name for name, _ in spawns):
        keys = {key for name, key in spawns if name == mission}
        heard = [event for _, event in services.journal.events(mission) if getattr(event, "key", "") in keys]
        paid = [event for event in heard if isinstance(event, StepEnded | Spent)]
        for event in paid:
            found = found.plus(event.usage if isinstance(event, Spent) else event.outcome.usage)
        for _ in keys - {event.key for event in paid}:
            found = found.plus(None)
    return found


def _ended(report: RunReport, at: str) -> RunEnded:
    return RunEnded(
        at=at,
        why=report.ended_because,
        exit_code=report.exit_code,
        spawns=report.spawns,
        done=tuple(report.done),
        blocked=report.blocked,
        failed=report.failed,
        waiting=report.waiting,
        follow_ups=tuple(report.follow_ups),
        spent=as_facts(report.spent),
    )
