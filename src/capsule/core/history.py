"""Read events for every screen, report and command.

`MissionHistory` and `RunSummary` take one event at a time, so a dashboard only reads new events. A `MissionSummary` is
a history at one moment, with what no event holds: the holder of the lock, the agent's current activity, the time. All
of them are immutable.

What an agent claimed and what was checked stay apart: an `Attempt` has a claim and a verdict, and evidence between the
two. A step that was begun and never ended is an attempt of its own; no duration is made up for it. Only what happened
since the mission was last started is told; what was paid before stays paid.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from functools import cached_property, reduce
from typing import Any

import msgspec
from msgspec.structs import replace

from capsule.core.answers import Answer, QuestionKind, answers_to_halt, kind_of_halt
from capsule.core.budget import NO_BUDGET, UNLIMITED, Budget, Spending, total
from capsule.core.decide import HALTS, SETBACKS, Decision, Move
from capsule.core.errors import Interrupted
from capsule.core.event import (
    Abandoned,
    Accepted,
    Advanced,
    Allowance,
    Event,
    JobsSet,
    MissionStarted,
    MovedByHand,
    Observed,
    ParentClosed,
    Policy,
    Queued,
    Rebased,
    Recorded,
    Reopened,
    Returned,
    Reviewed,
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
from capsule.core.findings import Finding, findings_of
from capsule.core.signal import Verdict
from capsule.core.stamps import clock_time, seconds_between
from capsule.core.state import MissionState, accept_command, apply, halt_is_accepted
from capsule.core.status import DELIVERED, ENDED, UNFINISHED, Condition, MissionStatus
from capsule.core.text import count

MOST_ATTEMPTS = 60
"""The most attempts that a screen keeps of one mission."""
SUCCESSES = (Verdict.PASS, Verdict.MORE)
NOT_GREEN = "NOT GREEN: the gate was red on the merge result (verify: warn)"
_SPENT = re.compile(r"The budget of the (mission|phase) is spent")


# ---- one attempt


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one phase."""

    key: str
    phase: str
    number: int
    agent: str = ""
    began: str = ""
    until: str = ""
    """When it ended or was stopped; now, if it is running; '' if its end is unknown."""
    ended: StepEnded | None = None
    interrupted: bool = False
    returned: bool = False
    """It ended because the work conflicts with what others merged."""
    repeated: bool = False
    """The same step was begun again."""
    waits: tuple[Waiting, ...] = ()
    mended: int = 0
    """The later attempt that passed after this one was refuted; 0 if none did."""

    @property
    def how(self) -> str:
        if self.returned:
            return "went back"
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
        """Tell whether it halted the mission by a failure, not with a question or for a review by a person."""
        made = self.decision
        return bool(made and made.move in HALTS and not made.vetoed and made.verdict is not Verdict.BLOCKED)

    @property
    def waited(self) -> float:
        """Add up its waits for the provider, the last one only so far: it may be under way, or was interrupted."""
        if self.ended or not self.waits:
            return sum(wait.seconds for wait in self.waits)
        known = self.until or self.waits[-1].at
        return sum(min(wait.seconds, seconds_between(wait.at, known)) for wait in self.waits)

    @property
    def passed_despite_evidence(self) -> bool:
        return passed_despite_evidence(self.verdict, self.evidence)

    @property
    def caught(self) -> bool:
        """Tell whether the evidence contradicted the claim and the attempt did not pass."""
        return self.verdict == Verdict.REFUTED

    @property
    def wrong_claim(self) -> bool:
        """Tell whether an agent claimed success and the evidence says otherwise."""
        return bool(self.agent) and self.claimed in SUCCESSES and (self.caught or self.passed_despite_evidence)


def passed_despite_evidence(verdict: str, evidence: tuple[Evidence, ...]) -> bool:
    """Tell whether it passed against the evidence, which `verify: warn` allows."""
    return verdict in SUCCESSES and bool(refuted(evidence))


def unverified(policy: Policy, *, on_red: bool = False) -> str:
    """Say why a mission's claims are unverified; '' if they were checked."""
    if policy.verify == "off":
        return "UNVERIFIED: verify is off, nothing the agents claim is checked"
    if on_red:
        return NOT_GREEN
    return "" if policy.test else "UNVERIFIED: no test command is known, so no claim about tests is checked"


def halt_status(decision: Decision) -> MissionStatus:
    """Return whether a halt needs a person (a question, decision or disputed claim) or is a failure."""
    asks = decision.vetoed or decision.block_type or decision.verdict in (Verdict.BLOCKED, Verdict.REFUTED)
    needs_you = decision.move is Move.PARK and bool(asks) and not decision.exhausted
    return MissionStatus.NEEDS_YOU if needs_you else MissionStatus.FAILED


# ---- a mission, event by event


class MissionHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The events of one mission, read one at a time. `most` bounds what is kept of attempts and warnings."""

    most: int | None = None
    state: MissionState = MissionState()
    attempts: tuple[Attempt, ...] = ()
    forgotten: int = 0
    events: int = 0
    """Since it was last started."""
    starts: int = 0
    began: str = ""
    last: str = ""
    last_step: str = ""
    """When its last step ended."""
    worked: float = 0.0
    """Seconds of all attempts that ended or were stopped, including ones that are no longer kept."""
    waiting: Waiting | None = None
    queued: Queued | None = None
    """It waits for others to be merged."""
    returns: tuple[Returned, ...] = ()
    """The conflicts with others, each time the work went back by itself."""
    reviews: tuple[Reviewed, ...] = ()
    """What became of its request."""
    stopped: str = ""
    """Why its last run ended, if not by a verdict."""
    released: bool = True
    """Nothing has happened since it was started or resumed."""
    tests: Observation | None = None
    commits: tuple[str, ...] = ()
    on_red: bool = False
    """It was merged although the gate was red."""
    warnings: tuple[str, ...] = ()
    notes: tuple[Reopened, ...] = ()
    salvaged: dict[str, str] = {}
    """The reason by ref, also of earlier starts."""
    accepted: tuple[Accepted, ...] = ()
    """Refuted claims that people accepted, also of earlier starts."""

    def after(self, event: Event) -> MissionHistory:
        """Return the history with one more event."""
        known = self if isinstance(event, Observed) else replace(self, state=apply(self.state, event))  # one is enough
        stopped = event.cause if isinstance(event, Stopped) else ""
        known = replace(known, last=event.at, events=self.events + 1, stopped=stopped)
        change = _CHANGES.get(type(event))
        return change(known, event) if change else known

    def summary(self, presence: Presence, now: str, budget: Budget = NO_BUDGET) -> MissionSummary:
        """Join the events with the presence of a runner, as of now."""
        pid = presence.pid
        if self.waiting and seconds_between(self.waiting.at, now) >= self.waiting.seconds:  # it tries again now
            return replace(self, waiting=None).summary(presence, now, budget)
        condition, status, sentence = self._standing(pid, presence.place)
        seen = self if pid is not None else replace(_interrupted(self), waiting=None)
        if seen.under_way:
            seen = seen.with_last(until=now)
        return MissionSummary(
            **{name: getattr(seen, name) for name in seen.__struct_fields__},
            as_of=now,
            condition=condition,
            status=status,
            sentence=sentence,
            unverified=unverified(self.state.policy, on_red=self.on_red),
            ended="" if condition in UNFINISHED else self.last_step or self.last,
            pid=pid,
            started_by=presence.started_by,
            doing=() if pid is None else presence.doing,
            place="" if pid is None or presence.place == "" else seen._in_line(presence.place),
            active_at=presence.at,
            allowed=budget.mission,
            allowed_in_run=budget.run,
        ).holding()

    def _standing(self, pid: int | None, place: str | None) -> tuple[Condition, MissionStatus, str]:
        state, halt = self.state, self.state.halt
        if pid is not None:
            return self._while_running(pid, place)
        if state.abandoned:
            return Condition.ABANDONED, MissionStatus.STOPPED, f"stopped: {state.abandoned}"
        if halt:
            made = self.attempts[-1].decision if self.attempts and self.attempts[-1].phase == halt.phase else None
            by_a_phase = made is not None and made.move in HALTS  # else a person blocked the item
            status = halt_status(made) if made and by_a_phase else MissionStatus.NEEDS_YOU
            condition = Condition.PARKED if halt.move is Move.PARK else Condition.STOPPED
            return condition, status, f"{status.words} at {halt.phase}: {halt.reason}"
        if state.in_review and state.request:
            return Condition.WAITING, MissionStatus.WAITING, f"waiting for review: {state.request.url}"
        return self._when_finished() if state.finished else self._when_stopped()

    def _while_running(self, pid: int, place: str | None) -> tuple[Condition, MissionStatus, str]:
        at = f" at {self.state.begun.phase}" if self.state.begun else ""
        if self.waiting:
            until = clock_time(self.waiting.at, self.waiting.seconds)
            of = self.waiting.remote or "the agent's provider"
            words = f"waiting{at} for {of} until {until}: {self.waiting.failure.reason.rstrip('.')}"
            return Condition.RUNNING, MissionStatus.WAITING, words
        if self.queued and place != "":
            words = f"waiting for its turn to be merged into {self.queued.branch}: {self._in_line(place)}"
            return Condition.RUNNING, MissionStatus.WAITING, words
        who = f"pid {pid}" if pid else "in another container or on another machine"
        return Condition.RUNNING, MissionStatus.RUNNING, f"running{at} ({who})"

    def _in_line(self, place: str | None) -> str:
        return place or (f"behind {self.queued.ahead}" if self.queued else "")

    def _when_stopped(self) -> tuple[Condition, MissionStatus, str]:
        state = self.state
        why = f" ({self.stopped.rstrip('.')})" if self.stopped else ""
        if state.begun:
            return Condition.INTERRUPTED, MissionStatus.STOPPED, f"stopped at {state.begun.phase}{why}"
        at = state.to_do[0] if state.to_do else ""
        if self.released and not why:
            return Condition.WAITING, MissionStatus.READY, f"ready to continue at {at}" if self.last_step else "ready"
        return Condition.WAITING, MissionStatus.STOPPED, f"stopped before {at}{why}"

    def _when_finished(self) -> tuple[Condition, MissionStatus, str]:
        state, commits = self.state, len(self.commits)
        item = "its item is closed" if state.item_closed else "its item is still open in the tracker"
        if self.merged:
            by = f" by {state.request.url}" if state.request else ""
            merged = f"merged into {state.merged_into} as {self.merged[:12]}{by}; {item}"
            return Condition.MERGED, MissionStatus.DONE, merged
        if commits and not state.closed_as:
            return Condition.DONE, MissionStatus.DONE, f"{count(commits, 'commit')} on {state.into}; {item}"
        still_open = "" if state.item_closed else f"; {item}"
        return Condition.CLOSED, MissionStatus.DONE, f"closed: {state.closed_as or 'nothing left to do'}{still_open}"

    @property
    def otherwise(self) -> str:
        """Return the command that accepts a refuted claim; '' where that is impossible or the reason names it
        already."""
        state, halt = self.state, self.state.halt
        if not halt or not halt.accept or state.abandoned or halt_is_accepted(state):
            return ""
        command = accept_command(state.parent or state.mission, halt.accept)
        return "" if command in halt.reason else command

    @property
    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """Return all findings of its reviews, each with the reviewing phase, in the order of their ids."""
        return tuple(findings_of(self.state.findings))

    @property
    def open_findings(self) -> tuple[tuple[str, Finding], ...]:
        return tuple((phase, finding) for phase, finding in self.findings if finding.is_open)

    @property
    def merged(self) -> str:
        return self.state.facts.get("merged", "")

    @property
    def undo(self) -> str:
        """Return what takes its merge back: a command, or where; '' if it is not merged."""
        last = self.reviews[-1] if self.reviews else None
        if not self.merged or not last:
            return f"git revert -m 1 {self.merged[:12]}" if self.merged else ""
        if not last.commit:
            return f"revert it there: {last.url}"
        return f"git revert {'' if last.squashed else '-m 1 '}{last.commit[:12]}"

    @property
    def under_way(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts and self.attempts[-1].under_way else None

    def with_last(self, **changes: Any) -> MissionHistory:
        """Return the history with its last attempt changed."""
        return replace(self, attempts=(*self.attempts[:-1], replace(self.attempts[-1], **changes)))

    def with_one_more(self, attempt: Attempt) -> MissionHistory:
        attempts = (*self.attempts, attempt)
        too_many = 0 if self.most is None else max(0, len(attempts) - self.most)
        return replace(self, attempts=attempts[too_many:], forgotten=self.forgotten + too_many)


def _started(history: MissionHistory, event: MissionStarted) -> MissionHistory:
    return MissionHistory(
        most=history.most,
        state=history.state,
        events=1,
        starts=history.starts + 1,
        began=event.at,
        last=event.at,
        salvaged=history.salvaged,
        accepted=history.accepted,
    )


def _begun(history: MissionHistory, event: StepBegun) -> MissionHistory:
    history = replace(_interrupted(history, repeated_by=event.key), waiting=None, queued=None, released=False)
    attempt = Attempt(key=event.key, phase=event.phase, number=event.attempt, agent=event.agent, began=event.at)
    return history.with_one_more(attempt)


def _ended(history: MissionHistory, event: StepEnded) -> MissionHistory:
    begun, outcome = history.under_way, event.outcome
    passed = event.decision.verdict in SUCCESSES and not passed_despite_evidence(
        event.decision.verdict, outcome.evidence
    )
    if begun is None or begun.key != event.key:
        begun = Attempt(key=event.key, phase=event.phase, number=event.run, began=event.at)
        history = _interrupted(history).with_one_more(begun)
    if passed:
        history = replace(history, attempts=_mended(history.attempts, event.phase, begun.number))
    return replace(
        history.with_last(ended=event, until=event.at, agent=outcome.agent or begun.agent),
        waiting=None,
        queued=None,
        released=False,
        last_step=event.at,
        worked=history.worked + outcome.seconds,
        on_red=bool(refuted(outcome.evidence)) if "merged" in outcome.facts else history.on_red,
    )


def _mended(attempts: tuple[Attempt, ...], phase: str, number: int) -> tuple[Attempt, ...]:
    """Mark the refuted attempts of a phase as mended by this attempt, which passes."""
    found, later = list(attempts), len(attempts) - 1
    for at in range(later - 1, -1, -1):
        each = found[at]
        if each.phase != phase:
            continue
        if each.caught:
            found[at] = replace(each, mended=number)
        elif each.verdict in SUCCESSES:
            break
    return tuple(found)


def _interrupted(history: MissionHistory, repeated_by: str = "") -> MissionHistory:
    begun = history.under_way
    if begun is None:
        return history
    worked = history.worked + (begun.seconds or 0.0)
    return replace(history.with_last(interrupted=True, repeated=begun.key == repeated_by), worked=worked)


def _waiting(history: MissionHistory, event: Waiting) -> MissionHistory:
    if begun := history.under_way:
        history = history.with_last(waits=(*begun.waits, event))
    return replace(history, waiting=event)


def _stopped(history: MissionHistory, event: Stopped | Abandoned) -> MissionHistory:
    begun = history.under_way
    if begun and not begun.until:
        history = history.with_last(until=event.at)
    return replace(history, released=False)


def _returned(history: MissionHistory, event: Returned) -> MissionHistory:
    if history.under_way:
        history = history.with_last(until=event.at, returned=True)
    return replace(_interrupted(history), queued=None, returns=(*history.returns, event))


def _reviewed(history: MissionHistory, event: Reviewed) -> MissionHistory:
    return replace(history, released=True, last_step=event.at, reviews=(*history.reviews, event))


def _abandoned(history: MissionHistory, event: Abandoned) -> MissionHistory:
    kept = {event.salvage: event.how} if event.salvage else {}
    return replace(_stopped(history, event), last_step=event.at, salvaged={**kept, **history.salvaged})


def _warned(history: MissionHistory, event: Warned) -> MissionHistory:
    warnings = (*history.warnings, event.text)
    return replace(history, warnings=warnings if history.most is None else warnings[-_MOST_WARNINGS:])


_MOST_WARNINGS = 5
_CHANGES: dict[type, Callable[[MissionHistory, Any], MissionHistory]] = {
    MissionStarted: _started,
    StepBegun: _begun,
    StepEnded: _ended,
    Waiting: _waiting,
    Stopped: _stopped,
    Abandoned: _abandoned,
    Reopened: lambda history, event: replace(
        history, released=True, notes=(*history.notes, event) if event.notes else history.notes
    ),
    Accepted: lambda history, event: replace(history, accepted=(*history.accepted, event)),
    Rebased: lambda history, _: replace(history, released=True),
    Queued: lambda history, event: replace(history, queued=event),
    Returned: _returned,
    Reviewed: _reviewed,
    MovedByHand: lambda history, _: replace(history, released=True),
    Recorded: lambda history, event: replace(history, commits=(*history.commits, *filter(None, [event.commit]))),
    Warned: _warned,
    # Of the test runs the last; one with a mutant or a canary in it says nothing about the work.
    Observed: lambda history, event: replace(
        history, queued=None, tests=history.tests if event.observation.edits else event.observation
    ),
    Salvaged: lambda history, event: replace(history, salvaged={**history.salvaged, event.ref: event.why}),
}


def read_mission(events: Iterable[Event], most: int | None = None) -> MissionHistory:
    return reduce(MissionHistory.after, events, MissionHistory(most=most))


# ---- a mission at one moment


class Presence(msgspec.Struct, frozen=True):
    """The holder of a mission's lock, and the last activity of its agent."""

    pid: int | None = None
    """None if it is not held, 0 if the holder is unknown here."""
    doing: tuple[str, ...] = ()
    """The newest last."""
    at: str = ""
    started_by: int = 0
    """The parent of its process: the queue, where it runs for one."""
    place: str | None = None
    """Its place in the merge queue, such as `3rd, about 4 min`; '' if it has the turn, None if unknown."""


NOBODY = Presence()


class Mark(StrEnum):
    """The state of a phase; the value is drawn where there is room for one character."""

    DONE = "✓"
    NOW = "▶"
    AGAIN = "↺"
    """It was done and sent back: it will run again."""
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
    """Feedback that was sent back: the sender, the receiver, the words."""

    at: str
    by: str
    """The phase that judged; '' for a person. Of a request: who reviewed it, and the checks that failed."""
    of_request: bool = False
    attempt: int = 0
    agent: str = ""
    to: str = ""
    seen: bool = False
    """It comes from checks, not from an agent."""
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


class MissionSummary(MissionHistory, frozen=True, kw_only=True, dict=True):
    """A mission as of one moment. Screens and reports render it and read no event themselves."""

    as_of: str
    condition: Condition
    status: MissionStatus
    sentence: str
    next: str = ""
    """The command that helps."""
    unverified: str = ""
    ended: str = ""
    """'' while it is not at an end or a halt."""
    pid: int | None = None
    started_by: int = 0
    """The parent of that process: the queue, where it runs for one."""
    doing: tuple[str, ...] = ()
    place: str = ""
    """Its place in the merge queue, in words, while it waits there."""
    active_at: str = ""
    allowed: Allowance = UNLIMITED
    allowed_in_run: Allowance = UNLIMITED
    """For all missions of a run together."""
    diff: Diff = Diff()
    """Filled in where lines are counted."""
    parts: tuple[MissionSummary, ...] = ()
    """Its child missions, filled in by `holding`."""

    def holding(self, parts: tuple[MissionSummary, ...] = ()) -> MissionSummary:
        """Return it with its parts, and the command that helps: that of the part at fault."""
        whole = replace(self, parts=parts) if parts else self
        return replace(whole, next=whole._next())

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
        """Tell whether it is over or halted."""
        return self.condition not in UNFINISHED

    @property
    def halted(self) -> bool:
        return self.condition in (Condition.PARKED, Condition.STOPPED)

    # ---- the way on

    def _next(self) -> str:
        """Return the command that helps; of a halt the first answer."""
        state, mission = self.state, self.mission
        if self.running or (state.finished and state.item_closed):
            return f"capsule logs {mission}{' -f' if self.running else ''}"
        if self.halted and not halt_is_accepted(state):
            return self.answers[0].command
        if state.in_review:
            return f"capsule sync {mission}"
        first = f"raise budget.{self.out_of_budget}, then: " if self.out_of_budget else ""
        return f"{first}capsule run {mission}"

    @property
    def out_of_budget(self) -> str:
        """Name the budget that stopped it; '' if none did."""
        spent = _SPENT.match(self.stopped)
        return spent[1] if spent and not self.running else ""

    @property
    def answers(self) -> tuple[Answer, ...]:
        """Return the ways to answer its halt, the most helpful first."""
        part = self.at_fault
        made = part.halted_by.decision if part.halted_by else None
        return tuple(answers_to_halt(self.parent or self.mission, part.state, made, part.asks))

    @property
    def asks(self) -> QuestionKind:
        """Return what its own halt needs."""
        return kind_of_halt(self.state, self.halted_by.decision if self.halted_by else None, self.status)

    @property
    def at_fault(self) -> MissionSummary:
        """Return the mission, or the part of it that halted and stopped it."""
        part = next((each for each in reversed(self.parts) if each.halted), None)
        return part.at_fault if part else self

    @property
    def halted_by(self) -> Attempt | None:
        """Return the attempt that halted it; None if a person did."""
        last = self.attempts[-1] if self.attempts else None
        return last if last and last.phase == self.phase and last.decision and last.decision.move in HALTS else None

    # ---- where it is

    @property
    def begun(self) -> StepBegun | None:
        """Return the step under way."""
        return self.state.begun if self.pid is not None else None

    @cached_property
    def phase(self) -> str:
        """Return the phase under way, or the next; '' at the end."""
        state = self.state
        if state.begun:
            return state.begun.phase
        if state.halt:
            return state.halt.phase
        return state.to_do[0] if state.to_do and not state.abandoned else ""

    @property
    def stage(self) -> int:
        """Return the current stage, counted from 1; `stages` at the end."""
        return self._stage_of(self.phase) if self.phase else self.stages

    @property
    def stages(self) -> int:
        return len(self.state.workflow.stages())

    def _stage_of(self, phase: str) -> int:
        found = self.state.workflow.phase(phase)
        return self.state.workflow.stages().index(found.stage or found.name) + 1

    @property
    def attempt(self) -> int:
        """Return the attempt under way, the last of a halted phase, or the next."""
        if self.begun:
            return self.begun.attempt
        return self.state.attempt(self.phase) - bool(self.state.halt) if self.phase else 0

    @property
    def agent(self) -> str:
        return self.begun.agent if self.begun else ""

    @cached_property
    def lines(self) -> tuple[PhaseLine, ...]:
        state, last = self.state, {attempt.phase: attempt for attempt in self.attempts}
        found = []
        for phase in state.workflow.names():
            mark = self._mark(phase, last.get(phase))
            attempt = last.get(phase) or Attempt(key="", phase=phase, number=state.tries.get(phase, 0))
            told = state.feedback.get(phase, "") if mark is Mark.NOW else ""
            found.append(PhaseLine(phase=phase, stage=self._stage_of(phase), mark=mark, attempt=attempt, told=told))
        return tuple(found)

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
    def phase_seconds(self) -> float | None:
        return seconds_between(self.begun.at, self.as_of) if self.begun else None

    @property
    def quiet_for(self) -> float | None:
        """Return the seconds since the agent's last visible activity."""
        return seconds_between(self.active_at or self.begun.at, self.as_of) if self.begun else None

    @property
    def wall_seconds(self) -> float:
        """Measure from its beginning to its end, or to now, halts included; stamps are of whole seconds."""
        return max(seconds_between(self.began, self.ended or self.as_of), self.busy_seconds)

    @property
    def busy_seconds(self) -> float:
        """Add up the known seconds of its attempts; those of child missions are inside its own phases."""
        return self.worked + ((self.under_way.seconds or 0.0) if self.under_way else 0.0)

    @property
    def waited_seconds(self) -> float:
        return sum(attempt.waited for attempt in self.attempts) + sum(part.waited_seconds for part in self.parts)

    @property
    def spent(self) -> Spending:
        """Return what it has spent itself, without its parts."""
        return self.state.spending

    @property
    def spent_with_parts(self) -> Spending:
        return total([self.spent, *(part.spent_with_parts for part in self.parts)])

    # ---- claims and feedback

    def all_attempts(self) -> Iterator[Attempt]:
        """Return its attempts and those of its parts."""
        yield from self.attempts
        for part in self.parts:
            yield from part.all_attempts()

    @property
    def attempts_made(self) -> int:
        """Count its attempts; a step that was interrupted and begun again is one."""
        return sum(not attempt.repeated for attempt in self.all_attempts())

    @property
    def sent_back(self) -> int:
        return sum(attempt.sent_back for attempt in self.all_attempts())

    @property
    def refuted(self) -> int:
        return sum(attempt.caught for attempt in self.all_attempts())

    @property
    def mended(self) -> int:
        """Count the refuted attempts that a later one mended."""
        return sum(bool(attempt.mended) for attempt in self.all_attempts())

    @property
    def first_pass(self) -> bool:
        """Tell whether it was delivered with nothing sent back, failed or started over. A question is no fault."""
        straight = not any(attempt.sent_back or attempt.failed for attempt in self.attempts)
        straight = straight and not any(event.ids for event in self.reviews)
        return self.delivered and straight and self.starts == 1 and all(part.first_pass for part in self.parts)

    @property
    def feedback(self) -> dict[str, str]:
        """Return by phase the feedback for its next agent; a halted phase gets the reason of its halt."""
        state = self.state
        halted = {state.halt.phase: state.halt.feedback} if state.halt and state.halt.feedback else {}
        return {} if state.finished else {**state.feedback, **halted}

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Return every feedback that was sent back, and the notes of people who reopened the mission, in order."""
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
        reviewed = [
            Round(at=event.at, by=", ".join(event.by), of_request=True, text=event.text)
            for event in self.reviews
            if event.ids
        ]
        return tuple(sorted([*back, *people, *reviewed], key=lambda each: each.at))

    def to_compare(self) -> tuple[tuple[tuple[str, str], ...], str]:
        """Return pairs of revisions that together show what the mission changed, and a name for them.

        A merge: its changes to the branch. Steps that are commits: each against its parent, as others may lie between
        them. Else: its last checkpoint; commits on the branch are then of the tracker alone.
        """
        state = self.state
        if self.merged:
            return ((state.facts.get("onto") or f"{self.merged}^", self.merged),), f"merged into {state.merged_into}"
        if self.commits and state.workflow.publishes_steps:
            return tuple((f"{commit}^", commit) for commit in dict.fromkeys(self.commits)), f"commits on {state.into}"
        if state.checkpoint:
            return ((state.base, state.checkpoint.tree),), "in its last checkpoint, not merged"
        return (), "no changes yet"


def with_parts(missions: Iterable[MissionSummary]) -> tuple[MissionSummary, ...]:
    """Give each mission its child missions; keep the order."""
    given = tuple(missions)
    below: dict[str, list[MissionSummary]] = {}
    for each in given:
        below.setdefault(each.parent, []).append(each)

    def whole(each: MissionSummary) -> MissionSummary:
        parts = tuple(map(whole, below.get(each.mission, ())))
        return each.holding(parts) if parts else each

    return tuple(map(whole, given))


# ---- runs of the queue, of a campaign, of one item


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, a campaign or the run of one item, as of one moment. One that was killed and resumed is one run."""

    as_of: str = ""
    stream: str
    pid: int | None = None
    cap: int = 0
    jobs: int = 1
    """How many missions it may run at the same time."""
    budget: Allowance = UNLIMITED
    spawns: int = 0
    missions: tuple[str, ...] = ()
    """The missions it started agents for, in order."""
    progress: dict[str, Advanced] = {}
    closed: tuple[ParentClosed, ...] = ()
    began: str = ""
    last: str = ""
    idle: float = 0.0
    """Seconds between a run that was killed and the one that continues it."""
    ended: RunEnded | None = None

    def after(self, event: Event) -> RunSummary:
        """Return the run with one more event."""
        run = replace(self, last=event.at)
        if isinstance(event, RunStarted):
            idle = self.idle + seconds_between(self.last, event.at)
            if self.ended or not self.began:
                run, idle = RunSummary(stream=self.stream, began=event.at, last=event.at), 0.0
            spawns = max(run.spawns, event.spawns)
            return replace(run, cap=event.cap, jobs=event.jobs, budget=event.budget, spawns=spawns, idle=idle)
        if isinstance(event, JobsSet):
            return replace(run, jobs=event.jobs)
        if isinstance(event, Spawned):
            others = (mission for mission in self.missions if mission != event.mission)
            return replace(run, spawns=self.spawns + 1, missions=(*others, event.mission))
        if isinstance(event, Advanced):
            return replace(run, progress={**self.progress, event.item: event})
        if isinstance(event, ParentClosed):
            return replace(run, closed=(*self.closed, event))
        return replace(run, ended=event) if isinstance(event, RunEnded) else run

    def summary(self, presence: Presence, now: str, _budget: Budget = NO_BUDGET) -> RunSummary:
        return replace(self, as_of=now, pid=presence.pid)

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
        if self.ended.exit_code == Interrupted.exit_code:
            return MissionStatus.STOPPED
        return MissionStatus.FAILED if self.ended.exit_code or self.ended.failed else MissionStatus.DONE

    @property
    def seconds(self) -> float:
        return seconds_between(self.began, self.as_of if self.running else self.last) - self.idle

    @property
    def all_missions(self) -> tuple[str, ...]:
        """Name its missions, also those that ended without an agent."""
        end = self.ended
        return tuple(dict.fromkeys((*self.missions, *((*end.done, *end.blocked, *end.failed) if end else ()))))


def read_run(stream: str, events: Iterable[Event]) -> RunSummary:
    return reduce(RunSummary.after, events, RunSummary(stream=stream))


def run_counts(ended: RunEnded) -> dict[MissionStatus, int]:
    return {
        MissionStatus.DONE: len(ended.done),
        MissionStatus.NEEDS_YOU: len(ended.blocked),
        MissionStatus.FAILED: len(ended.failed),
    }


def comparable_claim(piece: Evidence) -> str:
    """Return the claim in a form that can be compared with what was seen: lists of changed files may differ."""
    differs = piece.claimed.startswith("changed ") and piece.claimed != f"changed {piece.observed}"
    return "files were changed" if differs and piece.standing is EvidenceStatus.CONFIRMED else piece.claimed


def evidence_counts(evidence: Iterable[Evidence]) -> Counter[EvidenceStatus]:
    return Counter(piece.standing for piece in evidence)
