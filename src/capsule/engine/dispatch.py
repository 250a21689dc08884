"""Work through many items until nothing is left, the cap is reached or the breaker trips.

A run is a stream of its own in the journal. Every agent that is started is written there in the same transaction as the
beginning of its step, by whoever runs the mission (`Runners`). So cap and breaker hold for any number of runners and
any end of the run; a killed run is resumed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from capsule.adapters import Beside, Order, RunLease, StateCommit
from capsule.core.assignment import Assign
from capsule.core.budget import Spending, as_facts
from capsule.core.decide import Guardrails
from capsule.core.errors import (
    BudgetSpent,
    CapsuleError,
    ClosedMeanwhile,
    HeldElsewhere,
    Interrupted,
    LockHeld,
    ObjectLost,
    Overlap,
    Paused,
    Refused,
    RunnerDied,
    UnknownItem,
)
from capsule.core.event import (
    Advanced,
    AgentEnded,
    Allowance,
    Closing,
    Discovered,
    Event,
    JobsSet,
    Recorded,
    RunEnded,
    RunStarted,
    Spawned,
    Spent,
    StepBegun,
    StepEnded,
    Taken,
    Warned,
)
from capsule.core.history import NOBODY, read_mission, read_run
from capsule.core.item import EARLY, Item, Status, with_values
from capsule.core.ledger import BEFORE_WORKFLOW, tagged, values_at_entry
from capsule.core.run import OpenRun, agent_ended, followed_run
from capsule.core.schedule import QueuePosition, choose, within_reach
from capsule.core.state import MissionState, Step
from capsule.core.status import MissionStatus
from capsule.core.stream_cache import CachedState
from capsule.core.workflow import Workflow
from capsule.engine.bookkeeping import sync_tracker
from capsule.engine.job import has_left, load_state, note, only_to_be_archived, only_to_be_closed
from capsule.engine.merging import left_with_its_merge
from capsule.engine.run_mission import merged_not_closed, run_until_halt, try_to_close
from capsule.engine.run_mission import run as run_mission
from capsule.services import RunLimits, Services

_NOTHING_LEFT = "nothing is left to do"
_NOT_CLOSED = "merged, but its tracker refuses to close it"
_RUNNING = "running"
ELSEWHERE = "another run works on it"
"""The reason to skip an item whose mission belongs to a process of another run."""
CAP = "cap:"
"""How the reason begins to end a run that may start no more agents."""
_STOPPED = "stopped by you"
_MOST_DEATHS = 3
"""After this many kills of a mission's process in one run, a person is asked."""
_LOOK_AGAIN = 1.0
"""Seconds between checks of how many missions may run at a time."""
_OF_ONE_ITEM = (LockHeld, BudgetSpent, ObjectLost, Overlap, Refused, UnknownItem)
"""Errors that concern one item: a queue continues with the others."""
_FREE = (Status.SCOPED, Status.DONE)
"""Statuses that need no agent: waiting to become ready, or to be archived."""


class JobSource(Protocol):
    """The queue of a run, and the orders for its missions."""

    guardrails: Guardrails

    def places(self, left_alone: Mapping[str, str]) -> Sequence[QueuePosition]:
        """Return the current queue, without items that this run must not try again."""

    def in_the_way(self, places: Sequence[QueuePosition], under_way: Collection[str]) -> Collection[str]:
        """Name the items that are likely to touch the same files as these missions."""

    def order(self, item: Item) -> tuple[Order, Services]:
        """Make the order that starts the item's mission, and the services for that mission."""

    def workflow(self, item: Item) -> Workflow: ...

    def answered(self, item: str) -> None:
        """Read the item's mission again: a person has resumed it."""

    def follow_requests(self, *, idle: bool) -> Collection[str]:
        """Ask what has become of requests, now and then or if the run is `idle`; return the items with news."""


class ItemGroup(Protocol):
    """Items that belong together, for a run of only these (engine/campaign.py)."""

    root: str
    """Their parent."""

    def wanted(self) -> Collection[str]:
        """Name the items to work on now."""

    def interrupted_after_close(self) -> Sequence[QueuePosition]:
        """Return missions that were interrupted after their item was closed: they come first."""

    def settle(self) -> list[Advanced]:
        """Close each parent whose items are all done; return how far each parent is."""

    def left_over(self, places: Sequence[QueuePosition]) -> Mapping[str, str]:
        """Return why each item is not done yet."""

    @property
    def done(self) -> bool:
        """Tell whether the tracker has closed their parent."""


class RunReport(Struct):
    """The results of a run, for the summary at its end."""

    spawns: int = 0
    spawned: Sequence[tuple[str, str]] = ()
    """Mission and step of each agent."""
    cap: int = 0
    spent: Spending = field(default_factory=Spending)
    done: list[str] = field(default_factory=list)
    blocked: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    """Missions that a person stopped: the run does not take them up again."""
    in_review: dict[str, str] = field(default_factory=dict)
    """Items whose work is proposed by a request, with its address."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Items that did not run, with the reason."""
    left: Sequence[str] = ()
    """Items of the queue that can be worked on, and that the cap or the breaker left."""
    progress: list[Advanced] = field(default_factory=list)
    """Of a campaign: the progress of each container."""
    follow_ups: list[str] = field(default_factory=list)
    ended_because: str = ""
    seconds: float = 0.0
    exit_code: int = 0
    states: dict[str, MissionState] = field(default_factory=dict)

    def left_alone(self) -> dict[str, str]:
        ended = {**dict.fromkeys(self.done, "done"), **dict.fromkeys(self.stopped, _STOPPED)}
        return {**self.blocked, **self.failed, **ended, **self.in_review}

    @property
    def stuck(self) -> dict[str, str]:
        """Return items that did not finish, each with the reason."""
        return {**self.failed, **self.blocked}

    @property
    def halts(self) -> list[int]:
        """Return the exit codes of missions that stopped."""
        return [state.halt.exit_code for state in self.states.values() if state.halt]


class RunPlan(Struct, frozen=True):
    """One run: its items, their statuses, how far each is taken, the cap of agents."""

    stream: str
    cap: int
    cap_from_now: bool = False
    """The cap is new: agents that a killed run started before do not count."""
    only: Collection[str] | None = None
    statuses: Collection[Status] | None = None
    to_the_end: bool = False
    """Take an item through all its phases; otherwise return it to the queue once it is scoped."""
    group: ItemGroup | None = None
    """Of a campaign: take only items of the group."""
    stop_on_failure: bool = False
    """Stop at the first item that does not finish."""
    jobs: int = 1
    """How many missions run at the same time."""


class SharedLimits(RunLimits, frozen=True):
    """Limit a mission by its run: the agents of all the run's missions are counted in the run's stream."""

    lease: RunLease
    services: Services
    run: CachedState[OpenRun]

    def should_stop(self, state: MissionState, *, spawns: bool) -> bool:
        if self.lease.leaves_at is not None and state.item.status is not self.lease.leaves_at:
            return True
        run = self.run.now()
        return state.mission in run.stopped or (spawns and (run.used_up or run.tally.tripped))

    def spawn_event(self, step: Step) -> Beside:
        return self.lease.stream, Spawned(at=self.services.clock.now(), mission=step.mission, key=step.key)

    def end_event(self, step: Step, ended: StepEnded) -> Beside:
        return self.lease.stream, agent_ended(step.mission, ended)

    def spent_event(self, step: Step, spent: Spent, *, final: bool = False) -> Beside:
        return self.lease.stream, AgentEnded(
            at=spent.at, mission=step.mission, key=step.key, usage=spent.usage, final=final
        )

    def spending(self) -> Spending:
        return self.run.now().spending

    def may_use(self, step: Step) -> Allowance | None:
        return self.run.now().at_work.get((step.mission, step.key))


def limited_by(lease: RunLease, services: Services) -> Services:
    """Return the services for a mission of a run."""
    limits = SharedLimits(lease, services, followed_run(services.journal.events, lease.stream))
    return replace(services, run_limits=limits)


class InProcessRunners:
    """Run missions in this process, each as soon as it is started."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stopped: list[tuple[str, CapsuleError | None]] = []

    def start(self, order: Order, lease: RunLease) -> None:
        error = None
        try:
            run_until_halt(order, limited_by(lease, self._services))
        except CapsuleError as stop:
            error = stop
        self._stopped.append((order.mission, error))

    def adopt(self, mission: str) -> None:
        self._stopped.append((mission, None))  # do not wait for one that another process runs

    def wait(self, seconds: float | None = None) -> tuple[str, CapsuleError | None]:  # noqa: ARG002
        return self._stopped.pop(0)


def work_through(plan: RunPlan, jobs: JobSource, services: Services, report: RunReport) -> None:
    """Work through a run. The caller passes the report in, so that it is complete even after an error."""
    clock = services.clock
    with services.journal.claim(plan.stream):
        seen = followed_run(services.journal.events, plan.stream)
        killed = seen.now()
        inherited, spawns = killed.missions, len(killed.spawned)
        report.cap = spawns + plan.cap if plan.cap_from_now else max(plan.cap, killed.cap)
        budget = services.limits.budget.run
        note(
            services,
            plan.stream,
            RunStarted(at=clock.now(), cap=report.cap, spawns=spawns, jobs=plan.jobs, budget=budget),
        )
        run = _Run(plan, jobs, services, report, plan.jobs, seen, inherited, _finished(inherited, services))
        run.adopt_all()
        services.state_store.finish()
        run.add_done(_record_last_steps(inherited, services))
        run.add_done(_archive_closed_items([*inherited, *run.killed_elsewhere()], services))
        run.unclosed += merged_not_closed(services)
        try:
            run.settle()
            run.work()
            run.conclude()
        except BaseException as stop:
            report.ended_because, report.exit_code = _broken_off(stop)
            raise
        finally:
            record_lost_agents(services, seen)
            ended = seen.now()
            report.spawns, report.spent, report.spawned = ended.tally.spawns, ended.spending, [*ended.spawned]
            note(services, plan.stream, _ended(report, clock.now()))
            events = (event for _, event in services.journal.events(plan.stream))
            report.seconds = read_run(plan.stream, events).seconds  # as every screen counts them


def _broken_off(stop: BaseException) -> tuple[str, int]:
    """Say why a run was broken off, and with which exit code."""
    if isinstance(stop, CapsuleError):
        return stop.message.rstrip("."), stop.exit_code
    if isinstance(stop, KeyboardInterrupt):  # the second signal: an order
        return "Stopped at once", Interrupted.exit_code
    return f"{type(stop).__name__}: {stop}", CapsuleError.exit_code


class _Started(NamedTuple):
    """An item whose mission is running, and how many events it had before."""

    item: Item
    known: int
    adopted: bool = False
    """Another queue has started it: its earlier progress is unknown."""


class _Run(Struct):
    """One run: its plan, its services, and its results so far."""

    plan: RunPlan
    jobs: JobSource
    services: Services
    report: RunReport
    allowed: int
    """The last number of missions at a time that was reported to the observer."""
    seen: CachedState[OpenRun]
    inherited: Sequence[str] = ()
    """Missions of the killed run that this one continues."""
    before: Collection[str] = ()
    """Those of them that are done."""
    counted: tuple[int, int] = (0, 0)
    """The last progress that was journaled: done, of how many."""
    unclosed: list[str] = field(default_factory=list)
    """Merged, but not closed by their tracker: it may accept that once another item is closed."""
    under_way: dict[str, _Started] = field(default_factory=dict)
    heard: int = 0
    """How many answers of people it has read."""
    died: dict[str, int] = field(default_factory=dict)
    """How often the process of a mission was killed: restarts are limited."""
    passed_over: dict[str, int] = field(default_factory=dict)
    """How often another clone was faster: what keeps happening to an item has another cause."""
    stopped_by: CapsuleError | None = None
    """The error that ends the run, once the running missions have ended."""

    def work(self) -> None:
        """Start as many missions as may run, wait until one ends, and repeat until nothing is left."""
        while True:
            while len(self.under_way) < self._jobs() and (item := self.next()):
                self.start(item)
                if item.id not in self.under_way:
                    self.settle()
            if not self.under_way:
                if not self._over and self._follow_requests(idle=True):
                    continue
                break
            assert self.services.runners
            if stopped := self.services.runners.wait(_LOOK_AGAIN):
                self.finish(*stopped)
                self.settle()
        if self.stopped_by:
            raise self.stopped_by

    @property
    def _run(self) -> OpenRun:
        return self.seen.now()

    def _jobs(self) -> int:
        """Return how many missions may run now; report a change of that number."""
        jobs = self._run.jobs
        if jobs != self.allowed:
            self.allowed = jobs
            self.services.observer.event(self.plan.stream, JobsSet(at=self.services.clock.now(), jobs=jobs))
        return jobs

    def next(self) -> Item | None:
        """Choose the next item; if there is none, write the reason into the report."""
        item, run = None, self._run
        self._take_back_answered(run)
        if not self._over:
            self._follow_requests()
            places, wanted = self._places(), self.plan.group.wanted() if self.plan.group else self.plan.only
            in_the_way = self.jobs.in_the_way(places, [*self.under_way]) if self.under_way else ()
            item = choose(places, wanted, in_the_way)
            self._count(places)
        if item and (item.status in _FREE or not run.used_up):
            return item
        self.report.ended_because = self._why_it_ends(item, run)
        return None

    def _follow_requests(self, *, idle: bool = False) -> bool:
        """Take up items whose request needs changes, and those that waited for a merge; return whether there are."""
        found = self.jobs.follow_requests(idle=idle)
        for item in found:
            self.report.in_review.pop(item, None)
            self.jobs.answered(item)
        return bool(found)

    def _take_back_answered(self, run: OpenRun) -> None:
        """Take items up again that a person has resumed meanwhile."""
        for item in run.answered[self.heard :]:
            self.report.blocked.pop(item, None)
            self.report.failed.pop(item, None)
            self.died.pop(item, None)
            self.jobs.answered(item)
        self.heard = len(run.answered)

    def _count(self, places: Sequence[QueuePosition]) -> None:
        """Journal how many are done, of all that were or can be taken up, if several run at a time."""
        if self.plan.group or self.allowed == 1 or len(self.plan.only or "") == 1:
            return
        done = {*self.before, *self.report.done}
        taken = {*done, *self.under_way, *self.report.stuck, *self.report.stopped}
        counted = len(done), len(taken | within_reach(places, self.under_way, self.plan.only))
        if counted != self.counted:
            self.counted = done_now, of = counted
            progress = Advanced(at=self.services.clock.now(), item="", title="", done=done_now, of=of)
            note(self.services, self.plan.stream, progress)

    @property
    def _over(self) -> bool:
        failed = self.plan.stop_on_failure and bool(self.report.stuck)
        return bool(self.stopped_by) or failed or self._run.tally.tripped

    def settle(self) -> None:
        """Close what can be closed, before the first item too, as a run may have been killed just before."""
        for item in [item for item in self.unclosed if try_to_close(item, self.services)]:
            self.unclosed.remove(item)
        self._archive_killed([mission for mission in self.died if mission not in self.under_way])
        if self.plan.group:
            self.report.progress = self.plan.group.settle()

    def _archive_killed(self, missions: Sequence[str]) -> bool:
        """Archive those of these missions that no queue lists any more; return whether there were any."""
        done = _archive_closed_items(missions, self.services)
        self.add_done(done)
        for mission in done:
            self.report.blocked.pop(mission, None)
            self.died.pop(mission, None)
        return bool(done)

    def add_done(self, missions: Iterable[str]) -> None:
        """Report missions as done that came to their end without a process of their own."""
        for mission in missions:
            self.report.done.append(mission)
            self.report.states[mission] = load_state(self.services, mission)

    def killed_elsewhere(self) -> list[str]:
        """Name missions that were killed in a run of their own after their item left the tracker's list."""
        if self.plan.only or self.plan.group:
            return []
        names = [name for name in self.services.archive.under_way() if name not in self.inherited]
        states = [load_state(self.services, name) for name in names]
        ready = [state for state in states if state.finished or (state.under_way and not (state.halt or state.parent))]
        return [state.mission for state in ready if state.finished or has_left(state.mission, self.services)]

    def conclude(self) -> None:
        """Fill in the skipped items and the exit code."""
        report, group = self.report, self.plan.group
        report.blocked |= {item: _NOT_CLOSED for item in self.unclosed if item not in report.done}
        report.exit_code = 3 if self._run.tally.tripped else 1 if report.failed else 0
        if self.plan.only and report.stopped:
            report.exit_code = Interrupted.exit_code
        known, places = report.left_alone(), self._places()
        left = (
            group.left_over(places) if group else {place.item.id: place.why for place in places if not place.actionable}
        )
        wanted = self.plan.only or left
        report.waiting = {name: why for name, why in left.items() if name not in known and name in wanted}
        if group is None:
            wanted = self.plan.only or [place.item.id for place in places]
            report.left = [place.item.id for place in places if place.actionable and place.item.id in wanted]
            if (report.waiting or report.stuck or report.stopped) and report.ended_because == _NOTHING_LEFT:
                report.ended_because = "nothing else can be worked on"
            return
        unfinished = not group.done and not (report.in_review and not report.stuck)
        report.exit_code = max([report.exit_code, *report.halts, int(unfinished)])

    def _places(self) -> list[QueuePosition]:
        wanted = self.plan.statuses
        left_alone = self.report.left_alone() | dict.fromkeys(self.unclosed, _NOT_CLOSED)
        left_alone |= dict.fromkeys(self._run.stopped, _STOPPED) | dict.fromkeys(self.under_way, _RUNNING)
        first = self.plan.group.interrupted_after_close() if self.plan.group else ()
        found = [*(place for place in first if place.item.id not in left_alone), *self.jobs.places(left_alone)]
        return [place for place in found if wanted is None or place.item.status in wanted]

    def _why_it_ends(self, item: Item | None, run: OpenRun) -> str:
        if run.tally.tripped:
            return f"breaker: {run.tally.failures_in_a_row} items in a row used up their retries"
        if item:
            return f"{CAP} {run.tally.spawns} of {run.cap} phases used"
        return self._how_it_went(self.plan.group) if self.plan.group else _NOTHING_LEFT

    def _how_it_went(self, group: ItemGroup) -> str:
        root, stuck = group.root, list(self.report.stuck)
        if self._over and stuck:
            word = "failed" if stuck[0] in self.report.failed else "needs you"
            return f"{stuck[0]} {word} (--on-failure continue keeps going)"
        return f"{root} is done" if group.done else f"the rest of {root} cannot be worked on now"

    def adopt_all(self) -> None:
        """Adopt the missions of a killed run whose processes are still running."""
        for mission in self.inherited:
            self._adopt(mission)
        record_lost_agents(self.services, self.seen)

    def _adopt(self, mission: str) -> bool:
        """Wait for a mission that a process of the killed run still works on; return False if none does."""
        journal, runners = self.services.journal, self.services.runners
        if not runners or mission not in self.inherited or not journal.is_held(mission):
            return False
        state = load_state(self.services, mission)
        if state.parent:
            return False
        item = state.item if state.started else self.services.tracker.item(mission)
        self.under_way[mission] = _Started(item, len(journal.events(mission)), adopted=True)
        runners.adopt(mission)
        return True

    def start(self, item: Item) -> None:
        """Start its mission, unless it needs no agent."""
        if self._settled_without_agent(item):
            return
        known = len(self.services.journal.events(item.id))
        leaves_at = item.status if item.status in EARLY and not self.plan.to_the_end else None
        lease = RunLease(self.plan.stream, leaves_at, outlives_queue=self._run.jobs > 1)
        self.under_way[item.id] = _Started(item, known)
        here = None
        try:
            order, services = self.jobs.order(item)
            if item.status is Status.DONE or not services.runners:  # the first needs no agent
                here = InProcessRunners(services)
                here.start(order, lease)
            else:
                # Before it starts, so that it is found after a crash even before its first agent.
                self.services.journal.note(self.plan.stream, Taken(at=self.services.clock.now(), mission=item.id))
                services.runners.start(order, lease)
        except CapsuleError as error:
            self.finish(item.id, error)
            return
        if here:
            self.finish(*here.wait())

    def finish(self, mission: str, error: CapsuleError | None) -> None:
        """Report how a mission ended: done, blocked, failed, stopped, or back in the queue."""
        item, known, adopted = self.under_way.pop(mission)
        record_lost_agents(self.services, self.seen)
        if isinstance(error, LockHeld) and self._adopt(mission):
            return
        if isinstance(error, RunnerDied) and self._archive_killed([mission]):
            return
        stopped = mission in self._run.stopped
        if error and not (stopped and isinstance(error, Interrupted)) and not self._report_error(mission, error):
            return
        state = load_state(self.services, mission)
        events = [event for _, event in self.services.journal.events(mission)]
        self.report.states[mission] = state
        self.report.follow_ups += [new for event in events[known:] for new in _added(event)]
        if only_to_be_closed(state):
            self.unclosed.append(mission)
        moved = adopted or any(isinstance(event, StepBegun) for event in events[known:])
        moved = moved or state.item.status is not item.status or self._run.used_up or self._run.tally.tripped
        if stopped and not (state.finished or state.abandoned or state.halt):
            self.report.stopped.append(mission)
        else:
            self._write_up(mission, state, events, moved=moved)

    def _settled_without_agent(self, item: Item) -> bool:
        """Block an item that a person has to decide on, or make it ready; return False if it needs an agent."""
        state_store, at = self.services.state_store, self.services.clock.now()
        if item.status not in BEFORE_WORKFLOW and not item.unmet:
            return False
        values = values_at_entry(item, self.jobs.workflow(item), self.jobs.guardrails)
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

    def _report_error(self, mission: str, error: CapsuleError) -> bool:
        """Put the error of a mission into the report; some errors end the whole run."""
        report, said = self.report, f"{error.message} {error.hint}".strip()
        if isinstance(error, Paused):
            return False
        if isinstance(error, HeldElsewhere | ClosedMeanwhile) and len(self.plan.only or "") != 1:
            self._pass_over(mission, said)
            return False
        if isinstance(error, RunnerDied) and len(self.plan.only or "") != 1:
            self.died[mission] = self.died.get(mission, 0) + 1
            if self.died[mission] >= _MOST_DEATHS:
                report.blocked[mission] = said
            return False
        per_item = isinstance(error, _OF_ONE_ITEM) and not (isinstance(error, BudgetSpent) and error.of_the_run)
        edited = isinstance(error, Overlap)  # nothing has failed: it continues once the edit is committed or put away
        named = bool(self.plan.only) or self.plan.stop_on_failure
        if not per_item or (named and (edited or not isinstance(error, Refused))):
            self._end_run_with(error)
        elif isinstance(error, LockHeld) and self.services.journal.is_held(mission):
            report.blocked[mission] = f"{ELSEWHERE}; watch it: capsule logs {mission} -f"
        elif edited:
            report.blocked[mission] = said
        elif isinstance(error, ObjectLost | Refused):
            report.failed[mission] = said
        else:
            report.blocked[mission] = error.message
        return False

    def _pass_over(self, mission: str, why: str) -> None:
        """Leave an item to another clone: the next look at the queue says which."""
        self.services.claims.look_again()
        self.passed_over[mission] = self.passed_over.get(mission, 0) + 1
        if self.passed_over[mission] >= _MOST_DEATHS:
            self.report.blocked[mission] = why

    def _end_run_with(self, error: CapsuleError) -> None:
        """Start nothing new, let running missions finish their phase, then end the run with this error."""
        self.stopped_by = self.stopped_by or error
        if self.under_way and not self._run.used_up:
            closing = Closing(at=self.services.clock.now(), why=error.message)
            self.services.journal.note(self.plan.stream, closing)

    def _write_up(self, item: str, state: MissionState, events: Sequence[Event], *, moved: bool) -> None:
        if state.finished:
            self.report.done.append(item)
        elif state.abandoned:
            self.report.blocked[item] = state.abandoned
        elif state.halt:
            status = read_mission(events).summary(NOBODY, self.services.clock.now()).status
            failed = status is MissionStatus.FAILED  # as every screen calls it
            (self.report.failed if failed else self.report.blocked)[item] = state.halt.reason
        elif state.in_review and state.request:
            self.report.in_review[item] = f"waits for review: {state.request.url}"
        elif not moved:
            why = "it stopped before its first step, for an unknown reason"
            self.report.blocked[item] = f"{why}; see why: capsule run {item}"


def _added(event: Event) -> tuple[str, ...]:
    """Return the ids of items that were added."""
    if isinstance(event, Discovered):
        return tuple(event.items)
    return event.follow_ups if isinstance(event, Recorded) else ()


# ---- records of a killed run


def record_lost_agents(services: Services, run: CachedState[OpenRun]) -> None:
    """Journal the end of agents whose mission has no process any more, with unknown usage.

    The caller holds the stream. A run of an earlier version has the ends of its agents only in their missions.
    """
    dead = [spawn for spawn in run.now().at_work if not services.journal.is_held(spawn[0])]
    for mission, key in dead:
        events = (event for _, event in services.journal.events(mission))
        ended = next((event for event in events if isinstance(event, StepEnded) and event.key == key), None)
        lost = AgentEnded(at=services.clock.now(), mission=mission, key=key)
        services.journal.note(run.stream, agent_ended(mission, ended) if ended else lost)


def _finished(missions: Iterable[str], services: Services) -> set[str]:
    states = [load_state(services, mission) for mission in missions]
    return {state.mission for state in states if state.finished and not state.parent}


def _record_last_steps(missions: Iterable[str], services: Services) -> list[str]:
    """Store the last step of items that were archived or blocked when the run was killed; return the ids that are
    done."""
    done = []
    for mission in missions:
        state = load_state(services, mission)
        if state.unrecorded and (state.finished or state.halt):
            with suppress(LockHeld), services.journal.claim(mission):  # its own process is still running
                sync_tracker(state, services)
                done += [mission] if state.finished else []
    return done


def _archive_closed_items(missions: Iterable[str], services: Services) -> list[str]:
    """Archive items that were closed or merged before the run was killed: no queue lists them. Return their ids."""
    done = []
    for mission in missions:
        state = load_state(services, mission)
        if state.finished:  # killed after its last step
            services.archive.drop_working_folder(mission)
        under_way = state.under_way and not state.halt
        if only_to_be_archived(state) or (under_way and left_with_its_merge(state, services)):
            with suppress(LockHeld), services.journal.claim(mission):  # its own process is still running
                run_mission(mission, services)
                done.append(mission)
    return done


def _ended(report: RunReport, at: str) -> RunEnded:
    return RunEnded(
        at=at,
        why=report.ended_because,
        exit_code=report.exit_code,
        spawns=report.spawns,
        done=tuple(report.done),
        blocked=report.blocked,
        failed=report.failed,
        stopped=tuple(report.stopped),
        waiting=report.waiting,
        follow_ups=tuple(report.follow_ups),
        spent=as_facts(report.spent),
    )
