"""What a mission came to: its events as an account that every report is a rendering of.

What an agent said and what was checked are kept apart here, field by field, so that no page can mix them up. Only the
part since a mission was last started is told, as in `show`; what was paid before stays paid. A step that was begun and
never ended is an attempt of its own: nobody knows how long it took, and no number is made up for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from capsule.core.budget import Spending, total
from capsule.core.decide import HALTS, SETBACKS, Move
from capsule.core.event import (
    Abandoned,
    Event,
    MissionStarted,
    Outcome,
    Recorded,
    Reopened,
    Salvaged,
    StepBegun,
    StepEnded,
    Stopped,
    Usage,
    Waiting,
    Warned,
)
from capsule.core.evidence import Evidence
from capsule.core.signal import Verdict
from capsule.core.stamps import seconds_between
from capsule.core.standpoint import DELIVERED, NOT_AT_AN_END, Word
from capsule.core.state import MissionState

ENDED, INTERRUPTED, UNDER_WAY = "ended", "interrupted", "under way"
_MOVES = {move.value: move for move in Move}


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Where a mission stands, by its events and its lock."""

    word: str
    sentence: str
    unverified: str = ""
    """Why its claims are to be taken with a pinch of salt; '' where they were checked."""


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """The provider had turned the agent away, and it was waited for."""

    began: str
    seconds: float
    kind: str
    reason: str


class AttemptAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one phase: when, by whom, what it said of itself, what was seen, and what followed."""

    key: str
    phase: str
    stage: str
    number: int
    agent: str = ""
    model: str = ""
    began: str = ""
    ended: str = ""
    """'' where nobody saw its end."""
    seconds: float | None = None
    how: str = ENDED
    claimed: str = ""
    spoken_for: bool = False
    """It made no claim that could be read; this one was made for it."""
    summary: str = ""
    files_claimed: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    verdict: str = ""
    move: str = ""
    back_to: str = ""
    reason: str = ""
    feedback: str = ""
    """What it, or what was seen of it, sent back."""
    vetoed: bool = False
    failure: str = ""
    usage: Usage | None = None
    waits: tuple[Pause, ...] = ()
    files: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sent_back(self) -> bool:
        return _MOVES.get(self.move) in SETBACKS

    @property
    def failed(self) -> bool:
        """It halted the mission for a fault, not with a question and not for a human's review."""
        asks = self.vetoed or self.verdict == Verdict.BLOCKED
        return _MOVES.get(self.move) in HALTS and not asks

    @property
    def waited(self) -> float:
        return sum(pause.seconds for pause in self.waits)


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Feedback on its way back: from whom, to whom, in which words."""

    at: str
    by: str
    """The phase that judged; '' where it was a person."""
    attempt: int
    agent: str
    to: str
    seen: bool
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
    """Why there is nothing to be told, or what it is that is told."""

    @property
    def added(self) -> int:
        return sum(file.added or 0 for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed or 0 for file in self.files)


class MissionAccount(msgspec.Struct, frozen=True, kw_only=True):
    mission: str
    title: str
    workflow: str
    base: str
    into: str
    parent: str
    where: Where
    as_of: str
    began: str
    ended: str
    """'' while it is not at an end."""
    starts: int
    attempts: tuple[AttemptAccount, ...]
    rounds: tuple[Round, ...]
    spending: Spending
    """Its own, without its parts."""
    merged: str
    diff: Diff
    warnings: tuple[str, ...]
    salvaged: tuple[str, ...]
    parts: tuple[MissionAccount, ...] = ()
    """The missions that phases of it were."""

    @property
    def delivered(self) -> bool:
        return self.where.word in DELIVERED

    @property
    def at_an_end(self) -> bool:
        return self.where.word not in NOT_AT_AN_END

    @property
    def first_pass(self) -> bool:
        """Delivered, and nothing in it was sent back, failed, or started over. A question is no fault."""
        straight = not any(attempt.sent_back or attempt.failed for attempt in self.attempts)
        return self.delivered and straight and self.starts == 1 and all(part.first_pass for part in self.parts)

    @property
    def whole_spending(self) -> Spending:
        return total([self.spending, *(part.whole_spending for part in self.parts)])

    @property
    def sent_back(self) -> int:
        return sum(attempt.sent_back for attempt in self.attempts) + sum(part.sent_back for part in self.parts)

    @property
    def refuted(self) -> int:
        own = sum(attempt.verdict == Verdict.REFUTED for attempt in self.attempts)
        return own + sum(part.refuted for part in self.parts)

    @property
    def wall_seconds(self) -> float:
        """From its beginning to its end or to now, halts and nights included."""
        return seconds_between(self.began, self.ended or self.as_of)

    @property
    def busy_seconds(self) -> float:
        """In which something was done for it, as far as that is known; what its parts took is in its own phases."""
        return sum(attempt.seconds or 0.0 for attempt in self.attempts)

    @property
    def waited_seconds(self) -> float:
        own = sum(attempt.waited for attempt in self.attempts)
        return own + sum(part.waited_seconds for part in self.parts)

    def all_attempts(self) -> Iterator[AttemptAccount]:
        """With those of its parts."""
        yield from self.attempts
        for part in self.parts:
            yield from part.all_attempts()


# ---- one mission


def mission_account(
    events: Sequence[Event], state: MissionState, where: Where, *, as_of: str, diff: Diff | None = None
) -> MissionAccount:
    starts = [number for number, event in enumerate(events) if isinstance(event, MissionStarted)]
    told = events[starts[-1] :] if starts else events
    stages = {phase.name: phase.stage or phase.name for phase in state.workflow.phases}
    attempts = tuple(_attempts(told, stages, running=where.word == Word.RUNNING, as_of=as_of))
    at_an_end = where.word not in NOT_AT_AN_END
    last = [event.at for event in told if isinstance(event, StepEnded | Abandoned)] or [told[-1].at if told else as_of]
    return MissionAccount(
        mission=state.mission,
        title=state.item.title,
        workflow=state.workflow.name,
        base=state.base,
        into=state.into,
        parent=state.parent,
        where=where,
        as_of=as_of,
        began=told[0].at if told else as_of,
        ended=last[-1] if at_an_end else "",
        starts=len(starts),
        attempts=attempts,
        rounds=tuple(_rounds(told, attempts)),
        spending=state.spending,
        merged=state.facts.get("merged", ""),
        diff=diff or Diff(),
        warnings=tuple(event.text for event in told if isinstance(event, Warned)),
        salvaged=tuple(f"{event.ref} ({event.why})" for event in events if isinstance(event, Salvaged)),
    )


def _attempts(
    events: Sequence[Event], stages: dict[str, str], *, running: bool, as_of: str
) -> Iterator[AttemptAccount]:
    """In the order in which they began; one mission does one thing at a time."""
    begun: StepBegun | None = None
    waits: list[Pause] = []
    stopped = ""
    for event in events:
        if isinstance(event, StepBegun):
            if begun:
                yield _unfinished(begun, stages, waits, INTERRUPTED, stopped)
            begun, waits, stopped = event, [], ""
        elif isinstance(event, StepEnded):
            yield _finished(event, begun if begun and begun.key == event.key else None, stages, waits)
            begun, waits, stopped = None, [], ""
        elif isinstance(event, Waiting):
            failure = event.failure
            waits.append(Pause(began=event.at, seconds=event.seconds, kind=failure.kind.value, reason=failure.reason))
        elif isinstance(event, Stopped | Abandoned):
            stopped = stopped or event.at
    if begun:
        yield _unfinished(begun, stages, waits, *((UNDER_WAY, as_of) if running else (INTERRUPTED, stopped)))


def _unfinished(
    begun: StepBegun, stages: dict[str, str], waits: Sequence[Pause], how: str, until: str
) -> AttemptAccount:
    return AttemptAccount(
        key=begun.key,
        phase=begun.phase,
        stage=stages.get(begun.phase, begun.phase),
        number=begun.attempt,
        agent=begun.agent,
        began=begun.at,
        ended=until if how == INTERRUPTED else "",
        seconds=seconds_between(begun.at, until) if until else None,
        how=how,
        waits=tuple(waits),
    )


def _finished(
    event: StepEnded, begun: StepBegun | None, stages: dict[str, str], waits: Sequence[Pause]
) -> AttemptAccount:
    outcome, decision = event.outcome, event.decision
    return AttemptAccount(
        key=event.key,
        phase=event.phase,
        stage=stages.get(event.phase, event.phase),
        number=begun.attempt if begun else event.run,
        agent=outcome.agent or (begun.agent if begun else ""),
        model=outcome.usage.model if outcome.usage else "",
        began=begun.at if begun else event.at,
        ended=event.at,
        seconds=outcome.seconds,
        claimed=outcome.signal.verdict.value,
        spoken_for=outcome.signal.synthetic,
        summary=outcome.signal.summary,
        files_claimed=outcome.signal.files_changed,
        evidence=outcome.evidence,
        verdict=decision.verdict.value,
        move=decision.move.value,
        back_to=decision.back_to,
        reason=decision.reason,
        feedback=decision.feedback if decision.move in (*SETBACKS, *HALTS) else "",
        vetoed=decision.vetoed,
        failure=_failure(outcome),
        usage=outcome.usage,
        waits=tuple(waits),
        files=outcome.files,
        warnings=outcome.warnings,
    )


def _failure(outcome: Outcome) -> str:
    return f"{outcome.failure.kind.value}: {outcome.failure.reason}" if outcome.failure else ""


def _rounds(events: Iterable[Event], attempts: Iterable[AttemptAccount]) -> Iterator[Round]:
    """What was sent back, and what people said who let a halted mission go on."""
    back = [
        Round(
            at=attempt.ended,
            by=attempt.phase,
            attempt=attempt.number,
            agent=attempt.agent,
            to=attempt.back_to,
            seen=attempt.verdict == Verdict.REFUTED,
            text=attempt.feedback,
        )
        for attempt in attempts
        if attempt.sent_back
    ]
    by_people = [
        Round(at=event.at, by="", attempt=0, agent="", to="", seen=False, text=event.notes)
        for event in events
        if isinstance(event, Reopened) and event.notes
    ]
    yield from sorted([*back, *by_people], key=lambda each: each.at)


# ---- what it changed


def to_compare(events: Sequence[Event], state: MissionState) -> tuple[tuple[tuple[str, str], ...], str]:
    """Pairs of revisions whose differences, taken together, are what the mission changed; and what they are, in words.

    A merge: what it brought to the branch. Steps that are commits: each against the one before it, as others may lie
    between them. Else: what lies in its last checkpoint, that is to be delivered.
    """
    merged = state.facts.get("merged", "")
    if merged:
        return ((state.facts.get("onto") or f"{merged}^", merged),), f"what the merge brought to {state.into}"
    commits = [event.commit for event in events if isinstance(event, Recorded) and event.commit]
    if commits:
        return tuple((f"{commit}^", commit) for commit in dict.fromkeys(commits)), f"its commits on {state.into}"
    if state.checkpoint:
        return ((state.base, state.checkpoint.tree),), "what lies in its last checkpoint; not merged"
    return (), "nothing was changed yet"
