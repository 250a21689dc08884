"""The one reading of events behind every screen, report and command.

`MissionHistory` and `RunHistory` take one event at a time, at a cost that does not grow with the events before it, so a
dashboard that looks again pays for what is new. `MissionSummary` and `RunSummary` are what they come to at one moment:
immutable, together with what no event tells (who holds the lock, what the agent does right now, what time it is).

What an agent claimed and what was checked stay apart: an `Attempt` has a claim and a verdict, and evidence between the
two. A step that was begun and never ended is an attempt of its own; no duration is made up for it. Only what happened
since the mission was last started is told; what was paid before stays paid.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec

from capsule.core.budget import UNLIMITED, Allowance, Spending, total
from capsule.core.decide import HALTS, SETBACKS, Decision, Move
from capsule.core.event import (
    Abandoned,
    Advanced,
    Event,
    MissionStarted,
    MovedByHand,
    Observed,
    ParentClosed,
    Policy,
    Rebased,
    Recorded,
    Reopened,
    RunEnded,
    RunStarted,
    Salvaged,
    Spawned,
    StepBegun,
    StepEnded,
    Stopped,
    Waiting,
    Warned,
)
from capsule.core.evidence import Evidence, EvidenceStatus, Observation, refuted
from capsule.core.ledger import DECISION
from capsule.core.signal import Verdict
from capsule.core.stamps import seconds_between
from capsule.core.state import MissionState, apply
from capsule.core.status import DELIVERED, ENDED, UNFINISHED, Condition, MissionStatus

MOST_ATTEMPTS = 60
"""As many as a screen keeps of one mission, however long it goes on."""
SUCCESSES = (Verdict.PASS, Verdict.MORE)
NOT_GREEN = "NOT GREEN: the gate was red on the merge result (verify: warn)"
_COMMAND = re.compile(r"`(capsule [^`]+)`")


# ---- one attempt


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one phase."""

    key: str
    phase: str
    number: int
    agent: str = ""
    began: str = ""
    until: str = ""
    """When it ended or was stopped; of one under way, now; '' where nobody saw its end."""
    ended: StepEnded | None = None
    interrupted: bool = False
    repeated: bool = False
    """The same step was begun again."""
    waits: tuple[Waiting, ...] = ()

    @property
    def how(self) -> str:
        return "ended" if self.ended else "interrupted" if self.interrupted else "under way"

    @property
    def under_way(self) -> bool:
        return not self.ended and not self.interrupted

    @property
    def seconds(self) -> float | None:
        if self.ended:
            return self.ended.outcome.seconds
        return seconds_between(self.began, self.until) if self.until else None

    @property
    def decision(self) -> Decision | None:
        return self.ended.decision if self.ended else None

    @property
    def claimed(self) -> str:
        return self.ended.outcome.signal.verdict.value if self.ended else ""

    @property
    def verdict(self) -> str:
        return self.ended.decision.verdict.value if self.ended else ""

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return self.ended.outcome.evidence if self.ended else ()

    @property
    def summary(self) -> str:
        return self.ended.outcome.signal.summary if self.ended else ""

    @property
    def model(self) -> str:
        usage = self.ended.outcome.usage if self.ended else None
        return usage.model if usage else ""

    @property
    def failure(self) -> str:
        failure = self.ended.outcome.failure if self.ended else None
        return f"{failure.kind.value}: {failure.reason}" if failure else ""

    @property
    def sent_back(self) -> bool:
        return self.decision is not None and self.decision.move in SETBACKS

    @property
    def failed(self) -> bool:
        """True where it halted the mission for a fault, not with a question and not for a human's review."""
        made = self.decision
        return bool(made and made.move in HALTS and not made.vetoed and made.verdict is not Verdict.BLOCKED)

    @property
    def waited(self) -> float:
        return sum(wait.seconds for wait in self.waits)

    @property
    def let_pass(self) -> bool:
        return let_pass(self.verdict, self.evidence)


def let_pass(verdict: str, evidence: tuple[Evidence, ...]) -> bool:
    """Tell a success that the evidence contradicts, which `verify: warn` allows."""
    return verdict in SUCCESSES and bool(refuted(evidence))


def unverified(policy: Policy, *, on_red: bool = False) -> str:
    """Say why a mission's claims are not to be relied on; '' where they were checked."""
    if policy.verify == "off":
        return "UNVERIFIED: verify is off, nothing the agents claim is checked"
    if on_red:
        return NOT_GREEN
    return "" if policy.test else "UNVERIFIED: no test command is known, so no claim about tests is checked"


def halt_status(decision: Decision) -> MissionStatus:
    """A question, a decision or a claim that only a human can settle needs you; any other halt has failed."""
    asks = decision.vetoed or decision.verdict in (Verdict.BLOCKED, Verdict.REFUTED)
    needs_you = decision.move is Move.PARK and asks and not decision.exhausted
    return MissionStatus.NEEDS_YOU if needs_you else MissionStatus.FAILED


# ---- a mission, event by event


@dataclass
class MissionHistory:
    """The events of one mission, read one at a time. `most` bounds what is kept of attempts and warnings."""

    most: int | None = None
    state: MissionState = field(default_factory=MissionState)
    attempts: deque[Attempt] = field(default_factory=deque)
    forgotten: int = 0
    events: int = 0
    """Since it was last started."""
    starts: int = 0
    began: str = ""
    last: str = ""
    ended: str = ""
    waiting: Waiting | None = None
    stopped: str = ""
    """Why its last run ended, where that was no verdict."""
    released: bool = True
    """Nothing has happened since it was started or somebody let it go on."""
    tests: Observation | None = None
    commits: list[str] = field(default_factory=list)
    on_red: bool = False
    warnings: list[str] = field(default_factory=list)
    notes: list[Reopened] = field(default_factory=list)
    salvaged: dict[str, str] = field(default_factory=dict)
    """Why by ref, also of earlier starts."""

    def apply(self, event: Event) -> None:
        if not isinstance(event, Observed):  # observations would pile up in the state; a reader wants the last one
            self.state = apply(self.state, event)
        self.last, self.events = event.at, self.events + 1
        self.stopped = event.cause if isinstance(event, Stopped) else ""
        change = _CHANGES.get(type(event))
        if change:
            change(self, event)

    def _start(self, event: MissionStarted) -> None:
        fresh = MissionHistory(most=self.most, state=self.state, starts=self.starts + 1, salvaged=self.salvaged)
        fresh.began = fresh.last = event.at
        fresh.events = 1
        self.__dict__.update(fresh.__dict__)

    def _begin(self, event: StepBegun) -> None:
        self._interrupt(repeated_by=event.key)
        self.waiting, self.released = None, False
        self._add(Attempt(key=event.key, phase=event.phase, number=event.attempt, agent=event.agent, began=event.at))

    def _end(self, event: StepEnded) -> None:
        begun = self._open()
        if begun is None or begun.key != event.key:
            self._interrupt()
            begun = Attempt(key=event.key, phase=event.phase, number=event.run, began=event.at)
            self._add(begun)
        agent = event.outcome.agent or begun.agent
        self.attempts[-1] = msgspec.structs.replace(begun, ended=event, until=event.at, agent=agent)
        self.waiting, self.released, self.ended = None, False, event.at
        if "merged" in event.outcome.facts:
            self.on_red = bool(refuted(event.outcome.evidence))

    def _wait(self, event: Waiting) -> None:
        self.waiting = event
        if begun := self._open():
            self.attempts[-1] = msgspec.structs.replace(begun, waits=(*begun.waits, event))

    def _stop(self, event: Stopped | Abandoned) -> None:
        self.released = False
        begun = self._open()
        if begun and not begun.until:
            self.attempts[-1] = msgspec.structs.replace(begun, until=event.at)
        if isinstance(event, Abandoned):
            self.ended = event.at
            if event.salvage:
                self.salvaged.setdefault(event.salvage, event.how)

    def _release(self, event: Reopened | Rebased | MovedByHand) -> None:
        self.released = True
        if isinstance(event, Reopened) and event.notes:
            self.notes.append(event)

    def _open(self) -> Attempt | None:
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.under_way else None

    def _interrupt(self, repeated_by: str = "") -> None:
        if begun := self._open():
            again = begun.key == repeated_by
            self.attempts[-1] = msgspec.structs.replace(begun, interrupted=True, repeated=again)

    def _add(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        if self.most is not None and len(self.attempts) > self.most:
            self.attempts.popleft()
            self.forgotten += 1

    # ---- at one moment

    def summary(self, presence: Presence, now: str, allowed: Allowance = UNLIMITED) -> MissionSummary:
        state, pid = self.state, presence.pid
        place = _Place(self, pid)
        condition, status, sentence = place.stand()
        attempts = tuple(self.attempts)
        if begun := self._open():
            seen = {"until": now} if pid is not None else {"interrupted": True}
            attempts = (*attempts[:-1], msgspec.structs.replace(begun, **seen))
        return MissionSummary(
            as_of=now,
            state=state,
            condition=condition,
            status=status,
            sentence=sentence,
            next=place.next(status),
            unverified=unverified(state.policy, on_red=self.on_red),
            pid=pid,
            doing=presence.doing if pid is not None else (),
            active_at=presence.at,
            attempts=attempts,
            forgotten=self.forgotten,
            events=self.events,
            starts=self.starts,
            began=self.began,
            last=self.last,
            ended=(self.ended or self.last) if condition not in UNFINISHED else "",
            waiting=self.waiting if pid is not None else None,
            tests=self.tests,
            commits=tuple(self.commits),
            warnings=tuple(self.warnings if self.most is None else self.warnings[-_MOST_WARNINGS:]),
            notes=tuple(self.notes),
            salvaged=tuple(self.salvaged.items()),
            allowed=allowed,
        )


_MOST_WARNINGS = 5
_CHANGES: dict[type, Callable[[MissionHistory, Any], None]] = {
    MissionStarted: MissionHistory._start,
    StepBegun: MissionHistory._begin,
    StepEnded: MissionHistory._end,
    Waiting: MissionHistory._wait,
    Stopped: MissionHistory._stop,
    Abandoned: MissionHistory._stop,
    Reopened: MissionHistory._release,
    Rebased: MissionHistory._release,
    MovedByHand: MissionHistory._release,
    Recorded: lambda history, event: history.commits.extend(filter(None, [event.commit])),
    Warned: lambda history, event: history.warnings.append(event.text),
    Observed: lambda history, event: setattr(history, "tests", event.observation),
    Salvaged: lambda history, event: history.salvaged.update({event.ref: event.why}),
}


def read_mission(events: Iterable[Event], most: int | None = None) -> MissionHistory:
    history = MissionHistory(most)
    for event in events:
        history.apply(event)
    return history


@dataclass
class _Place:
    """The sentence for where a mission is, and the command that helps there."""

    history: MissionHistory
    pid: int | None

    def stand(self) -> tuple[Condition, MissionStatus, str]:
        state = self.history.state
        if self.pid is not None:
            return self._running()
        if state.abandoned:
            return Condition.ABANDONED, MissionStatus.STOPPED, f"stopped: {state.abandoned}"
        if state.halt:
            status = self._halted()
            condition = Condition.PARKED if state.halt.move is Move.PARK else Condition.STOPPED
            return condition, status, f"{status.words} at {state.halt.phase}: {state.halt.reason}"
        return self._finished() if state.finished else self._unfinished()

    def _unfinished(self) -> tuple[Condition, MissionStatus, str]:
        history, state = self.history, self.history.state
        why = f" ({history.stopped.rstrip('.')})" if history.stopped else ""
        if state.begun:
            return Condition.INTERRUPTED, MissionStatus.STOPPED, f"stopped at {state.begun.phase}{why}"
        at = state.to_do[0] if state.to_do else ""
        if history.released and not why:
            return Condition.WAITING, MissionStatus.READY, f"ready to continue at {at}" if history.ended else "ready"
        return Condition.WAITING, MissionStatus.STOPPED, f"stopped before {at}{why}"

    def _running(self) -> tuple[Condition, MissionStatus, str]:
        begun, waiting = self.history.state.begun, self.history.waiting
        at = f" at {begun.phase}" if begun else ""
        if waiting:
            words = f"waiting{at} for the agent's provider: {waiting.failure.reason}"
            return Condition.RUNNING, MissionStatus.WAITING, words
        who = f"pid {self.pid}" if self.pid else "in another container or on another machine"
        return Condition.RUNNING, MissionStatus.RUNNING, f"running{at} ({who})"

    def _halted(self) -> MissionStatus:
        last, halt = self.history.attempts[-1] if self.history.attempts else None, self.history.state.halt
        made = last.decision if last and halt and last.phase == halt.phase else None
        if made is None or made.move not in HALTS:  # a human blocked the item
            return MissionStatus.NEEDS_YOU
        return halt_status(made)

    def _finished(self) -> tuple[Condition, MissionStatus, str]:
        state, commits = self.history.state, len(self.history.commits)
        item = "its item is closed" if state.item_closed else "its item is still open in the tracker"
        merged = state.facts.get("merged", "")[:12]
        if merged:
            return Condition.MERGED, MissionStatus.DONE, f"merged into {state.into} as {merged}; {item}"
        if commits and not state.closed_as:
            many = f"{commits} commit{'' if commits == 1 else 's'}"
            return Condition.DONE, MissionStatus.DONE, f"{many} on {state.into}; {item}"
        still_open = "" if state.item_closed else f"; {item}"
        return Condition.CLOSED, MissionStatus.DONE, f"closed: {state.closed_as or 'nothing left to do'}{still_open}"

    def next(self, status: MissionStatus) -> str:
        state, mission = self.history.state, self.history.state.mission
        if self.pid is not None or (state.finished and state.item_closed):
            return f"capsule logs {mission}{'' if self.pid is None else ' -f'}"
        halt = state.halt
        if halt is None or state.abandoned:
            return f"capsule run {mission}"
        if state.workflow.phase(halt.phase).doer == "do" and (named := _COMMAND.search(halt.reason)):
            return named[1]  # our own words: an agent's reason is never taken for a command
        whole = state.parent or mission
        blocked = state.item.blocked if self.history.commits else None
        if blocked and blocked.kind == DECISION:
            return f"capsule approve {whole}"
        if blocked or status is MissionStatus.NEEDS_YOU:
            return f'capsule unblock {whole} --notes "..."'
        return f"capsule run {mission}"


# ---- a mission at one moment


class Presence(msgspec.Struct, frozen=True):
    """The holder of a mission's lock, and the last activity of its agent."""

    pid: int | None = None
    """None is nobody, 0 somebody who cannot be named from here."""
    doing: tuple[str, ...] = ()
    """The newest last."""
    at: str = ""


NOBODY = Presence()


class Mark(StrEnum):
    """How a phase stands; the value is what is drawn where there is room for one character."""

    DONE = "✓"
    NOW = "▶"
    AGAIN = "↺"
    """It was done, and sent back: it will be done again."""
    SKIPPED = "–"
    NEEDS_YOU = "■"
    FAILED = "✗"
    INTERRUPTED = "‖"
    TO_DO = "·"


class PhaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a mission's workflow, with its last attempt."""

    phase: str
    stage: int
    mark: Mark
    attempt: Attempt
    told: str = ""
    """The feedback that the agent under way was given."""

    @property
    def seconds(self) -> float | None:
        return None if self.mark is Mark.INTERRUPTED else self.attempt.seconds


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Feedback on its way back: from whom, to whom, in which words."""

    at: str
    by: str
    """The phase that judged; '' where it was a person."""
    attempt: int = 0
    agent: str = ""
    to: str = ""
    seen: bool = False
    """It is made of what was checked, not of what an agent thinks."""
    text: str


class FileChange(msgspec.Struct, frozen=True):
    """None: not counted in lines."""

    path: str
    added: int | None
    removed: int | None


class Diff(msgspec.Struct, frozen=True, kw_only=True):
    files: tuple[FileChange, ...] = ()
    note: str = ""
    """What is compared, or why nothing is."""

    @property
    def added(self) -> int:
        return sum(file.added or 0 for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed or 0 for file in self.files)


class MissionSummary(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A mission as of one moment. Screens and reports render it and read no event themselves."""

    as_of: str
    state: MissionState
    condition: Condition
    status: MissionStatus
    sentence: str
    next: str
    """The command that helps."""
    unverified: str = ""
    pid: int | None = None
    doing: tuple[str, ...] = ()
    active_at: str = ""
    attempts: tuple[Attempt, ...] = ()
    forgotten: int = 0
    events: int = 0
    starts: int = 1
    began: str = ""
    last: str = ""
    ended: str = ""
    """'' while it is not at an end or a halt."""
    waiting: Waiting | None = None
    tests: Observation | None = None
    commits: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    notes: tuple[Reopened, ...] = ()
    salvaged: tuple[tuple[str, str], ...] = ()
    """Ref and why."""
    allowed: Allowance = UNLIMITED
    diff: Diff = Diff()
    """Filled in by whoever counts lines."""
    parts: tuple[MissionSummary, ...] = ()
    """The missions that phases of it were, filled in by whoever puts several together."""

    @property
    def mission(self) -> str:
        return self.state.mission

    @property
    def title(self) -> str:
        return self.state.item.title

    @property
    def parent(self) -> str:
        return self.state.parent

    @property
    def workflow(self) -> str:
        return self.state.workflow.name

    @property
    def base(self) -> str:
        return self.state.base

    @property
    def into(self) -> str:
        return self.state.into

    @property
    def merged(self) -> str:
        return self.state.facts.get("merged", "")

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def delivered(self) -> bool:
        return self.condition in DELIVERED

    @property
    def over(self) -> bool:
        return self.condition in ENDED

    @property
    def at_an_end(self) -> bool:
        """True where it is over or halted."""
        return self.condition not in UNFINISHED

    @property
    def halted(self) -> bool:
        return self.condition in (Condition.PARKED, Condition.STOPPED)

    # ---- where it is

    @property
    def begun(self) -> StepBegun | None:
        """The step under way."""
        return self.state.begun if self.pid is not None else None

    @cached_property
    def phase(self) -> str:
        """The one under way, or the next; '' at the end."""
        state = self.state
        if state.begun:
            return state.begun.phase
        if state.halt:
            return state.halt.phase
        return state.to_do[0] if state.to_do and not state.abandoned else ""

    @property
    def stage(self) -> int:
        """The stage it is at, counted from 1; `stages` at its end."""
        return self._stage_of(self.phase) if self.phase else self.stages

    @property
    def stages(self) -> int:
        return len(self.state.workflow.stages())

    def _stage_of(self, phase: str) -> int:
        found = self.state.workflow.phase(phase)
        return self.state.workflow.stages().index(found.stage or found.name) + 1

    @property
    def attempt(self) -> int:
        if self.begun:
            return self.begun.attempt
        return self.state.attempt(self.phase) if self.phase else 0

    @property
    def agent(self) -> str:
        return self.begun.agent if self.begun else ""

    @cached_property
    def lines(self) -> tuple[PhaseLine, ...]:
        last = {attempt.phase: attempt for attempt in self.attempts}
        return tuple(self._line(phase.name, last.get(phase.name)) for phase in self.state.workflow.phases)

    def _line(self, phase: str, attempt: Attempt | None) -> PhaseLine:
        mark = self._mark(phase, attempt)
        known = attempt or Attempt(key="", phase=phase, number=self.state.tries.get(phase, 0))
        return PhaseLine(
            phase=phase,
            stage=self._stage_of(phase),
            mark=mark,
            attempt=known,
            told=self.state.feedback.get(phase, "") if mark is Mark.NOW else "",
        )

    def _mark(self, phase: str, attempt: Attempt | None) -> Mark:
        state = self.state
        if state.begun and state.begun.phase == phase:
            return Mark.INTERRUPTED if self.pid is None else Mark.NOW
        if state.halt and state.halt.phase == phase:
            return Mark.FAILED if self.status is MissionStatus.FAILED else Mark.NEEDS_YOU
        if phase in state.to_do:
            return Mark.AGAIN if attempt else Mark.TO_DO
        done = attempt and attempt.decision and attempt.decision.verdict is not Verdict.SKIPPED
        return Mark.DONE if done else Mark.SKIPPED

    # ---- time and money

    @property
    def seconds(self) -> float:
        """Since it was started, up to now or to the last that happened."""
        return seconds_between(self.began, self.as_of if self.pid is not None else self.last)

    @property
    def phase_seconds(self) -> float | None:
        return seconds_between(self.begun.at, self.as_of) if self.begun else None

    @property
    def quiet_for(self) -> float | None:
        """Seconds since the agent last did something that could be seen."""
        return seconds_between(self.active_at or self.begun.at, self.as_of) if self.begun else None

    @property
    def wall_seconds(self) -> float:
        """Measure from its beginning to its end, or to now, halts included."""
        return seconds_between(self.began, self.ended or self.as_of)

    @property
    def busy_seconds(self) -> float:
        """Add up its attempts, where their seconds are known; those of its parts are within its own phases."""
        return sum(attempt.seconds or 0.0 for attempt in self.attempts)

    @property
    def waited_seconds(self) -> float:
        return sum(attempt.waited for attempt in self.attempts) + sum(part.waited_seconds for part in self.parts)

    @property
    def spent(self) -> Spending:
        """Its own, without its parts."""
        return self.state.spending

    @property
    def spent_with_parts(self) -> Spending:
        return total([self.spent, *(part.spent_with_parts for part in self.parts)])

    # ---- claims and feedback

    def all_attempts(self) -> Iterator[Attempt]:
        """With those of its parts."""
        yield from self.attempts
        for part in self.parts:
            yield from part.all_attempts()

    @property
    def sent_back(self) -> int:
        return sum(attempt.sent_back for attempt in self.all_attempts())

    @property
    def refuted(self) -> int:
        return sum(attempt.verdict == Verdict.REFUTED for attempt in self.all_attempts())

    @property
    def first_pass(self) -> bool:
        """Delivered, and nothing in it was sent back, failed, or started over. A question is no fault."""
        straight = not any(attempt.sent_back or attempt.failed for attempt in self.attempts)
        return self.delivered and straight and self.starts == 1 and all(part.first_pass for part in self.parts)

    @property
    def feedback(self) -> dict[str, str]:
        """By phase, what its next agent will be told; a halted phase hears why it halted."""
        state = self.state
        halted = {state.halt.phase: state.halt.feedback} if state.halt and state.halt.feedback else {}
        return {} if state.finished else {**state.feedback, **halted}

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Every feedback that was sent back, and the notes of people who reopened a halted mission, in order."""
        back = [
            Round(
                at=attempt.until,
                by=attempt.phase,
                attempt=attempt.number,
                agent=attempt.agent,
                to=attempt.decision.back_to,
                seen=attempt.verdict == Verdict.REFUTED,
                text=attempt.decision.feedback,
            )
            for attempt in self.attempts
            if attempt.decision and attempt.sent_back
        ]
        people = [Round(at=event.at, by="", text=event.notes) for event in self.notes]
        return tuple(sorted([*back, *people], key=lambda each: each.at))

    def to_compare(self) -> tuple[tuple[tuple[str, str], ...], str]:
        """Return pairs of revisions whose differences together are what the mission changed, and a name for them.

        A merge: what it brought to the branch. Steps that are commits: each against the one before it, as others may
        lie between them. Else: what lies in its last checkpoint, that is to be delivered.
        """
        state = self.state
        if self.merged:
            return ((state.facts.get("onto") or f"{self.merged}^", self.merged),), f"merged into {state.into}"
        if self.commits:
            return tuple((f"{commit}^", commit) for commit in dict.fromkeys(self.commits)), f"commits on {state.into}"
        if state.checkpoint:
            return ((state.base, state.checkpoint.tree),), "in its last checkpoint, not merged"
        return (), "no changes yet"


# ---- runs of the queue, of a campaign, of one item


@dataclass
class RunHistory:
    """The events of one run's stream, read one at a time. One that was killed and resumed is one run."""

    stream: str
    cap: int = 0
    spawns: int = 0
    missions: dict[str, None] = field(default_factory=dict)
    """Those it started agents for, the last one last."""
    progress: dict[str, Advanced] = field(default_factory=dict)
    closed: list[ParentClosed] = field(default_factory=list)
    began: str = ""
    last: str = ""
    ended: RunEnded | None = None

    def apply(self, event: Event) -> None:
        self.last = event.at
        if isinstance(event, RunStarted):
            if self.ended or not self.began:
                self.__dict__.update(RunHistory(self.stream, began=event.at, last=event.at).__dict__)
            self.cap, self.spawns = event.cap, max(self.spawns, event.spawns)
        elif isinstance(event, Spawned):
            self.spawns += 1
            self.missions.pop(event.mission, None)
            self.missions[event.mission] = None
        elif isinstance(event, Advanced):
            self.progress[event.item] = event
        elif isinstance(event, ParentClosed):
            self.closed.append(event)
        elif isinstance(event, RunEnded):
            self.ended = event

    def summary(self, presence: Presence, now: str, _allowed: Allowance = UNLIMITED) -> RunSummary:
        return RunSummary(
            as_of=now,
            stream=self.stream,
            pid=presence.pid,
            cap=self.cap,
            spawns=self.spawns,
            missions=tuple(self.missions),
            progress=dict(self.progress),
            closed=tuple(self.closed),
            began=self.began,
            last=self.last,
            ended=self.ended,
        )


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, a campaign or the run of one item of a backlog, as of one moment."""

    as_of: str = ""
    stream: str
    pid: int | None = None
    cap: int = 0
    spawns: int = 0
    missions: tuple[str, ...] = ()
    progress: dict[str, Advanced] = {}
    closed: tuple[ParentClosed, ...] = ()
    began: str = ""
    last: str = ""
    ended: RunEnded | None = None

    @property
    def name(self) -> str:
        """`queue`, `campaign demo-1`, `run WRK-001`"""
        kind, _, item = self.stream.lstrip("_").partition("-")
        return f"{kind} {item}".strip()

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def status(self) -> MissionStatus:
        if self.running:
            return MissionStatus.RUNNING
        if self.ended is None:
            return MissionStatus.STOPPED
        return MissionStatus.FAILED if self.ended.exit_code or self.ended.failed else MissionStatus.DONE

    @property
    def seconds(self) -> float:
        return seconds_between(self.began, self.as_of if self.running else self.last)

    @property
    def all_missions(self) -> tuple[str, ...]:
        """Also those that ended without an agent."""
        end = self.ended
        return tuple(dict.fromkeys((*self.missions, *((*end.done, *end.blocked, *end.failed) if end else ()))))


def read_run(stream: str, events: Iterable[Event]) -> RunHistory:
    history = RunHistory(stream)
    for event in events:
        history.apply(event)
    return history


def run_counts(ended: RunEnded) -> dict[MissionStatus, int]:
    return {
        MissionStatus.DONE: len(ended.done),
        MissionStatus.NEEDS_YOU: len(ended.blocked),
        MissionStatus.FAILED: len(ended.failed),
    }


def comparable_claim(piece: Evidence) -> str:
    """Return the claim as it can stand beside what was seen: that files changed holds also where the lists differ."""
    differs = piece.claimed.startswith("changed ") and piece.claimed != f"changed {piece.observed}"
    return "files were changed" if differs and piece.standing is EvidenceStatus.CONFIRMED else piece.claimed


def evidence_counts(evidence: Iterable[Evidence]) -> dict[EvidenceStatus, int]:
    counts = dict.fromkeys(EvidenceStatus, 0)
    for piece in evidence:
        counts[piece.standing] += 1
    return counts
