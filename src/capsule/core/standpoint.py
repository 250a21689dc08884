"""Where a mission stands, in one word and one sentence, what to type next, and what is to be doubted: for every screen.

Whether it runs is not in the events: somebody holds its lock, or nobody does. Begun with nobody at it is *interrupted*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum

import msgspec

from capsule.core.decide import Move
from capsule.core.event import Event, Policy, StepEnded
from capsule.core.evidence import Evidence, refuted
from capsule.core.signal import Verdict
from capsule.core.state import MissionState


class Word(StrEnum):
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    WAITING = "waiting"
    PARKED = "parked"
    STOPPED = "stopped"
    MERGED = "merged"
    DONE = "done"
    CLOSED = "closed"
    """It turned out not to be needed."""
    ABANDONED = "abandoned"


HALTED = (Word.PARKED, Word.STOPPED)
FOR_A_HUMAN = (*HALTED, Word.INTERRUPTED)
DELIVERED = (Word.MERGED, Word.DONE)
"""Its work is where it belongs."""
ENDED = (*DELIVERED, Word.CLOSED, Word.ABANDONED)
NOT_AT_AN_END = (Word.RUNNING, Word.INTERRUPTED, Word.WAITING)

NOT_GREEN = "NOT GREEN: the gate was red on the merge result (verify: warn)"
SUCCESSES = (Verdict.PASS, Verdict.MORE)


class Standpoint(msgspec.Struct, frozen=True):
    word: Word
    sentence: str
    next: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """All that it takes to say where a mission stands."""

    state: MissionState
    pid: int | None = None
    """Who holds it: None is nobody, 0 somebody who cannot be named from here."""
    commits: int = 0
    """How many commits hold its steps, where the tracker lives in the project."""
    stopped: str = ""
    """Why its last run ended, where that was no verdict."""


def standpoint(situation: Situation) -> Standpoint:
    """The first that applies."""
    return next(point for tell in _STANDPOINTS if (point := tell(situation)))


def _running(situation: Situation) -> Standpoint | None:
    state, pid = situation.state, situation.pid
    if pid is None:
        return None
    at = f" at {state.begun.phase}" if state.begun else ""
    who = f"pid {pid}" if pid else "somewhere else"
    return Standpoint(Word.RUNNING, f"running{at} ({who})", f"capsule logs {state.mission} -f")


def _abandoned(situation: Situation) -> Standpoint | None:
    how = situation.state.abandoned
    return Standpoint(Word.ABANDONED, f"abandoned: {how}", _run(situation)) if how else None


def _halted(situation: Situation) -> Standpoint | None:
    state, halt = situation.state, situation.state.halt
    if halt is None:
        return None
    word = Word.PARKED if halt.move is Move.PARK else Word.STOPPED
    asked = state.item.blocked is not None and situation.commits > 0
    way_on = f'capsule unblock {state.mission} --notes "..."' if asked else _run(situation)
    return Standpoint(word, f"{word} at {halt.phase}: {halt.reason}", way_on)


def _finished(situation: Situation) -> Standpoint | None:
    state = situation.state
    if not state.finished:
        return None
    item = "its item is closed" if state.item_closed else "its item is still open in the tracker"
    command = f"capsule logs {state.mission}" if state.item_closed else _run(situation)
    merged = state.facts.get("merged", "")[:12]
    if merged:
        return Standpoint(Word.MERGED, f"merged into {state.into} as {merged}; {item}", command)
    if situation.commits and not state.closed_as:
        return Standpoint(Word.DONE, f"done: {situation.commits} commits on {state.into}; {item}", command)
    return Standpoint(Word.CLOSED, f"closed: {state.closed_as or 'nothing was left to do'}; {item}", command)


def _interrupted(situation: Situation) -> Standpoint | None:
    begun = situation.state.begun
    if begun is None:
        return None
    return Standpoint(Word.INTERRUPTED, f"interrupted at {begun.phase}{_why(situation)}", _run(situation))


def _waiting(situation: Situation) -> Standpoint:
    at = situation.state.to_do[0]
    return Standpoint(Word.WAITING, f"waiting to go on at {at}{_why(situation)}", _run(situation))


def _why(situation: Situation) -> str:
    return f" ({situation.stopped.rstrip('.')})" if situation.stopped else ""


def _run(situation: Situation) -> str:
    return f"capsule run {situation.state.mission}"


_STANDPOINTS: tuple[Callable[[Situation], Standpoint | None], ...] = (
    _running,
    _abandoned,
    _halted,
    _finished,
    _interrupted,
    _waiting,
)


# ---- what is to be doubted


def unverified(policy: Policy, *, on_red: bool = False) -> str:
    """Why what a mission claims is to be taken with a pinch of salt; '' where it was checked."""
    if policy.verify == "off":
        return "UNVERIFIED: verify is off, nothing the agents claim is checked"
    if on_red:
        return NOT_GREEN
    return "" if policy.test else "UNVERIFIED: no test command is known, so no claim about tests is checked"


def merged_on_red(events: Iterable[Event]) -> bool:
    """Whether the tests were seen to fail on the very tree that was merged, which `verify: warn` allows."""
    merges = [event.outcome for event in events if isinstance(event, StepEnded) and "merged" in event.outcome.facts]
    return bool(merges and refuted(merges[-1].evidence))


def let_pass(verdict: str, evidence: tuple[Evidence, ...]) -> bool:
    """A success that what was seen speaks against, which `verify: warn` allows."""
    return verdict in SUCCESSES and bool(refuted(evidence))
