"""What any screen shows of missions and runs: computed here from events, and only drawn there.

A **board** is the cards of missions and runs (`core.cards`) beside what no event tells: who holds what, what the agents
are doing right now, and what time it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from capsule.core.budget import UNLIMITED, Allowance, Spending
from capsule.core.cards import Attempt, Card, RunCard
from capsule.core.decide import HALTS, SETBACKS
from capsule.core.event import Policy, StepEnded, Waiting
from capsule.core.evidence import Evidence, Observation
from capsule.core.signal import Verdict
from capsule.core.stamps import seconds_between
from capsule.core.standpoint import FOR_A_HUMAN, Situation, Word, standpoint, unverified
from capsule.core.state import MissionState


class Presence(msgspec.Struct, frozen=True):
    """What no event tells: who holds it, and what was done last."""

    pid: int | None = None
    """None is nobody, 0 somebody who cannot be named from here."""
    doing: tuple[str, ...] = ()
    """What its agent did last, the newest last."""
    at: str = ""
    """When that was."""


class Mark(StrEnum):
    """How a phase stands; the value is what is drawn where there is room for one character."""

    DONE = "✓"
    NOW = "▶"
    AGAIN = "↺"
    """It was done, and sent back: it will be done again."""
    SKIPPED = "–"
    HALTED = "■"
    INTERRUPTED = "‖"
    TO_DO = "·"


MARKS: Mapping[str, Mark] = {
    Word.RUNNING: Mark.NOW,
    Word.INTERRUPTED: Mark.INTERRUPTED,
    Word.WAITING: Mark.TO_DO,
    Word.PARKED: Mark.HALTED,
    Word.STOPPED: Mark.HALTED,
    Word.MERGED: Mark.DONE,
    Word.DONE: Mark.DONE,
    Word.CLOSED: Mark.DONE,
    Word.ABANDONED: Mark.SKIPPED,
}
"""Where a mission stands, where there is room for one character: on screens and in reports alike."""


class PhaseLine(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of a mission's workflow: how it stands, and its last attempt."""

    phase: str
    stage: int
    mark: Mark
    tries: int = 0
    """How many attempts there were, or are."""
    seconds: float | None = None
    """Of the last attempt; of one under way, up to now."""
    agent: str = ""
    claimed: str = ""
    verdict: str = ""
    evidence: tuple[Evidence, ...] = ()
    note: str = ""
    """Why it was sent back, halted or is done again; else what its agent said in short."""


class MissionView(msgspec.Struct, frozen=True, kw_only=True):
    mission: str
    title: str
    parent: str = ""
    workflow: str
    base: str
    into: str
    policy: Policy
    word: Word
    sentence: str
    next: str
    unverified: str
    """Why all of this is to be taken with a pinch of salt; '' where it was checked."""
    pid: int | None
    stage: int
    """The stage it is at, counted from 1; `stages` at its end."""
    stages: int
    phase: str
    """The one under way, or the next; '' at the end."""
    attempt: int
    agent: str
    seconds: float
    """Since it was started, up to now or to the last that happened."""
    phase_seconds: float | None
    """Of the phase under way."""
    lines: tuple[PhaseLine, ...]
    attempts: tuple[Attempt, ...]
    forgotten: int
    doing: tuple[str, ...]
    quiet_for: float | None
    """Seconds since the agent last did something that could be seen."""
    waiting: Waiting | None
    tests: Observation | None
    spent: Spending
    allowed: Allowance
    feedback: dict[str, str]
    """By phase: what its next agent will be told."""
    warnings: tuple[str, ...]
    began: str
    last: str


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    card: RunCard
    name: str
    """`queue`, `campaign demo-1`, `run WRK-001`"""
    pid: int | None
    seconds: float

    @property
    def running(self) -> bool:
        return self.pid is not None


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at one moment: missions that run first, then those that wait for a human, then what has ended."""

    at: str = ""
    missions: tuple[MissionView, ...] = ()
    runs: tuple[RunView, ...] = ()
    """The ones that run first, then the last ended first."""

    def mission(self, name: str) -> MissionView | None:
        return next((view for view in self.missions if view.mission == name), None)

    @property
    def running(self) -> tuple[MissionView, ...]:
        return tuple(view for view in self.missions if view.word is Word.RUNNING)


_ORDER = {Word.RUNNING: 0, **dict.fromkeys(FOR_A_HUMAN, 1), Word.WAITING: 2}
"""What has ended comes after all of these."""


def in_order(missions: Iterable[MissionView]) -> tuple[MissionView, ...]:
    """What runs in the order in which it was started; of the rest the newest first."""
    newest_first = sorted(missions, key=lambda view: (view.last, view.mission), reverse=True)
    by_age = sorted(
        newest_first, key=lambda view: (view.began, view.mission) if view.word is Word.RUNNING else ("", "")
    )
    return tuple(sorted(by_age, key=lambda view: _ORDER.get(view.word, 3)))


def runs_in_order(runs: Iterable[RunView]) -> tuple[RunView, ...]:
    newest_first = sorted(runs, key=lambda view: (view.card.last, view.name), reverse=True)
    return tuple(sorted(newest_first, key=lambda view: not view.running))


def view(card: Card, presence: Presence, now: str, allowed: Allowance = UNLIMITED) -> MissionView:
    state, pid = card.state, presence.pid
    point = standpoint(Situation(state=state, pid=pid, commits=card.commits, stopped=card.stopped))
    until = now if pid is not None else card.last
    stages, phase = state.workflow.stages(), _at(state)
    begun = state.begun if pid is not None else None
    return MissionView(
        mission=state.mission,
        title=state.item.title,
        parent=state.parent,
        workflow=state.workflow.name,
        base=state.base,
        into=state.into,
        policy=state.policy,
        word=point.word,
        sentence=point.sentence,
        next=point.next,
        unverified=unverified(state.policy, on_red=card.on_red),
        pid=pid,
        stage=_stage(state, phase) if phase else len(stages),
        stages=len(stages),
        phase=phase,
        attempt=begun.attempt if begun else state.attempt(phase) if phase else 0,
        agent=begun.agent if begun else "",
        seconds=seconds_between(card.began, until),
        phase_seconds=seconds_between(begun.at, now) if begun else None,
        lines=_lines(card, pid, now),
        attempts=card.attempts,
        forgotten=card.forgotten,
        doing=presence.doing if pid is not None else (),
        quiet_for=seconds_between(presence.at or begun.at, now) if begun else None,
        waiting=card.waiting if pid is not None else None,
        tests=card.tests,
        spent=state.spending,
        allowed=allowed,
        feedback=waiting_feedback(state),
        warnings=card.warnings,
        began=card.began,
        last=card.last,
    )


def view_run(card: RunCard, pid: int | None, now: str) -> RunView:
    kind, _, item = card.stream.lstrip("_").partition("-")
    until = now if pid is not None else card.last
    return RunView(card=card, name=f"{kind} {item}".strip(), pid=pid, seconds=seconds_between(card.began, until))


def waiting_feedback(state: MissionState) -> dict[str, str]:
    """What the next agents will be told; a halted mission's last word goes to whoever it goes on with."""
    halted = {state.halt.phase: state.halt.feedback} if state.halt and state.halt.feedback else {}
    return {} if state.finished else {**state.feedback, **halted}


def _at(state: MissionState) -> str:
    if state.begun:
        return state.begun.phase
    if state.halt:
        return state.halt.phase
    return state.to_do[0] if state.to_do and not state.abandoned else ""


def _stage(state: MissionState, phase: str) -> int:
    found = state.workflow.phase(phase)
    return state.workflow.stages().index(found.stage or found.name) + 1


def _lines(card: Card, pid: int | None, now: str) -> tuple[PhaseLine, ...]:
    last = {attempt.phase: attempt for attempt in card.attempts}
    return tuple(_line(card, phase.name, last.get(phase.name), pid, now) for phase in card.state.workflow.phases)


def _line(card: Card, phase: str, attempt: Attempt | None, pid: int | None, now: str) -> PhaseLine:
    state = card.state
    mark = _mark(state, phase, attempt, pid)
    under_way = mark is Mark.NOW
    ended = attempt.ended if attempt else None
    seconds = ended.outcome.seconds if ended else None
    return PhaseLine(
        phase=phase,
        stage=_stage(state, phase),
        mark=mark,
        tries=attempt.number if attempt else state.tries.get(phase, 0),
        seconds=seconds_between(attempt.began, now) if under_way and attempt else seconds,
        agent=attempt.agent if attempt else "",
        claimed=attempt.claimed if attempt else "",
        verdict=attempt.verdict if attempt else "",
        evidence=attempt.evidence if attempt else (),
        note=state.feedback.get(phase, "") if under_way else _note(ended),
    )


def _mark(state: MissionState, phase: str, attempt: Attempt | None, pid: int | None) -> Mark:
    if state.begun and state.begun.phase == phase:
        return Mark.INTERRUPTED if pid is None else Mark.NOW
    if state.halt and state.halt.phase == phase:
        return Mark.HALTED
    if phase in state.to_do:
        return Mark.AGAIN if attempt else Mark.TO_DO
    ended = attempt.ended if attempt else None
    return Mark.DONE if ended and ended.decision.verdict is not Verdict.SKIPPED else Mark.SKIPPED


def _note(ended: StepEnded | None) -> str:
    if ended is None:
        return ""
    setback = ended.decision.move in (*SETBACKS, *HALTS)
    return ended.decision.reason if setback and ended.decision.reason else ended.outcome.signal.summary


def gathered(missions: Mapping[str, MissionView], runs: Iterable[RunView], at: str) -> Board:
    return Board(at=at, missions=in_order(missions.values()), runs=runs_in_order(runs))
