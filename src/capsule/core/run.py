"""Read a run from its own stream: its agents, their usage, and whether another one may start.

Every mission of a run writes there, in the transaction that begins or ends its step. So with any number of runners,
cap, budget and breaker are checked against one stream, inside of the transaction that starts an agent (`admitted`), and
two runners never both take the last slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from math import ceil

from msgspec import Struct, field
from msgspec.structs import replace

from capsule.core.budget import Spending, left, total
from capsule.core.decide import PROGRESS
from capsule.core.errors import NotYet, Paused
from capsule.core.event import (
    AgentEnded,
    Allowance,
    AnswerGiven,
    Closing,
    Event,
    JobsSet,
    RunEnded,
    RunStarted,
    Spawned,
    StepEnded,
    StopAsked,
    Taken,
)
from capsule.core.stream_cache import CachedState, ReadEvents

BREAKER = 2
"""The run stops after this many items in a row that used up their retries: the cause is not the items."""


class Tally(Struct, frozen=True):
    """Counts of a run so far: agents started, and items in a row that used up their retries."""

    spawns: int = 0
    failures_in_a_row: int = 0

    def spawned(self) -> Tally:
        return replace(self, spawns=self.spawns + 1)

    def ended(self, step: AgentEnded) -> Tally:
        """Count an exhausted item; reset the breaker after a phase that succeeds, unless it has tripped."""
        if self.tripped:
            return self
        if step.exhausted:
            return replace(self, failures_in_a_row=self.failures_in_a_row + 1)
        return replace(self, failures_in_a_row=0) if step.progress else self

    @property
    def tripped(self) -> bool:
        return self.failures_in_a_row >= BREAKER


class OpenRun(Struct):
    """A run that has not ended, read from its stream."""

    cap: int = 0
    """How many agents it may start; 0 for a run that has ended."""
    budget: Allowance = Allowance()
    jobs: int = 1
    stopped: set[str] = field(default_factory=set)
    """Missions that a person asked to stop: it does not take them up again."""
    answered: list[str] = field(default_factory=list)
    """Items that people resumed, once per time."""
    taken: list[str] = field(default_factory=list)
    """Missions whose process it was about to start."""
    spawned: list[tuple[str, str]] = field(default_factory=list)
    """Mission and step of each agent that it started."""
    at_work: dict[tuple[str, str], Allowance] = field(default_factory=dict)
    """Those without a recorded end, with their share of the budget."""
    tally: Tally = Tally()
    spent: Spending = Spending()
    """What the ended ones have used."""
    most: Spending = Spending()
    """The most that one of them used, of each."""

    @property
    def used_up(self) -> bool:
        return self.tally.spawns >= self.cap

    @property
    def missions(self) -> list[str]:
        """Name the missions that it took up and the child missions with agents, each once, in order."""
        return [*dict.fromkeys([*self.taken, *(mission for mission, _ in self.spawned)])]

    @property
    def spending(self) -> Spending:
        """Return what all of them have used; unknown for running and interrupted ones."""
        return total([self.spent, *(Spending().plus(None) for _ in self.at_work)])

    def share(self) -> Allowance | None:
        """Return the next agent's share of the budget; None if it has to wait until another one ends."""
        usd, tokens, seconds = map(self._part, ("usd", "tokens", "seconds"))
        if 0 in (usd, tokens, seconds):
            return None
        return Allowance(usd, None if tokens is None else ceil(tokens), seconds)

    def _part(self, what: str) -> float | None:
        """Return an equal part of what is free, but at least the most that one agent has used; 0 if less is left.

        So a run with little left goes on with fewer agents at a time, instead of stopping all of them half way.
        """
        allowed, need = getattr(self.budget, what), getattr(self.most, what)
        if allowed is None:
            return None
        taken = sum(getattr(own, what) or 0 for own in self.at_work.values())
        free = float(allowed - getattr(self.spent, what) - taken)
        if free <= 0 or (self.at_work and free < need):
            return 0
        return min(free, max(float(need), free / max(1, self.jobs - len(self.at_work))))


def open_run(events: Iterable[Event]) -> OpenRun:
    """Read a run's stream. A run that was killed and resumed is one run; one that has ended may start nothing."""
    return reduce(after, events, OpenRun())


def followed_run(events: ReadEvents, stream: str) -> CachedState[OpenRun]:
    """Follow a run's stream."""
    return CachedState(events, stream, OpenRun(), after)


def after(run: OpenRun, event: Event) -> OpenRun:
    """Change the run by one more event; return it, or a new one where it has ended."""
    if isinstance(event, RunStarted):
        run.cap, run.budget, run.jobs, run.stopped, run.answered = event.cap, event.budget, event.jobs, set(), []
    elif isinstance(event, JobsSet):
        run.jobs = event.jobs
    elif isinstance(event, StopAsked):
        run.stopped.add(event.mission)
    elif isinstance(event, AnswerGiven):
        run.answered.append(event.mission)
    elif isinstance(event, Taken):
        run.taken.append(event.mission)
    elif isinstance(event, Spawned):
        run.spawned.append((event.mission, event.key))
        run.at_work[event.mission, event.key] = event.may_use
        run.tally = run.tally.spawned()
    elif isinstance(event, AgentEnded):
        _ended(run, event)
    elif isinstance(event, Closing):
        run.cap = run.tally.spawns
    elif isinstance(event, RunEnded):
        return OpenRun()
    return run


def _ended(run: OpenRun, event: AgentEnded) -> None:
    """Count the end of an agent that is at work; a second report of the same end is ignored."""
    rest = run.at_work.pop((event.mission, event.key), None)
    if rest is None:
        return
    used = Spending().plus(event.usage)
    if not event.final:
        run.at_work[event.mission, event.key] = left(used, rest)
    run.spent += used
    run.most = Spending(*(max(getattr(run.most, name), getattr(used, name)) for name in Spending.__struct_fields__))
    run.tally = run.tally.ended(event)


def agent_ended(mission: str, ended: StepEnded) -> AgentEnded:
    """Return the event for the end of an agent's step."""
    decision = ended.decision
    return AgentEnded(
        at=ended.at,
        mission=mission,
        key=ended.key,
        usage=ended.outcome.usage,
        exhausted=decision.exhausted and not decision.by_others,
        progress=decision.move in PROGRESS,
    )


def admitted(wish: Spawned, run: OpenRun) -> Spawned:
    """Return the start of an agent with its share of the budget; raise if the run has no room.

    Paused: no agent may start any more. NotYet: until another agent has ended.
    """
    if run.used_up:
        raise Paused(f"The run has started {run.tally.spawns} of {run.cap} agents.")
    if run.tally.tripped:
        raise Paused(f"{run.tally.failures_in_a_row} items in a row used up their retries.")
    share = run.share()
    if share is None:
        raise NotYet("Other agents of the run have what is left of its budget.")
    return replace(wish, may_use=share)
