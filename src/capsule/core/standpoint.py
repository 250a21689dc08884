"""Where a mission stands, in one word and one sentence, and what to type next: said once, for every screen.

Whether it runs is not in the events: somebody holds its lock, or nobody does. Begun with nobody at it is *interrupted*.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from capsule.core.decide import Move
from capsule.core.state import MissionState


class Standpoint(msgspec.Struct, frozen=True):
    word: str
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
    return Standpoint("running", f"running{at} ({who})", f"capsule logs {state.mission} -f")


def _abandoned(situation: Situation) -> Standpoint | None:
    how = situation.state.abandoned
    return Standpoint("abandoned", f"abandoned: {how}", _run(situation)) if how else None


def _halted(situation: Situation) -> Standpoint | None:
    state, halt = situation.state, situation.state.halt
    if halt is None:
        return None
    word = "parked" if halt.move is Move.PARK else "stopped"
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
        return Standpoint("merged", f"merged into {state.into} as {merged}; {item}", command)
    if situation.commits and not state.closed_as:
        return Standpoint("done", f"done: {situation.commits} commits on {state.into}; {item}", command)
    return Standpoint("closed", f"closed: {state.closed_as or 'nothing was left to do'}; {item}", command)


def _interrupted(situation: Situation) -> Standpoint | None:
    begun = situation.state.begun
    if begun is None:
        return None
    why = f" ({situation.stopped.rstrip('.')})" if situation.stopped else ""
    return Standpoint("interrupted", f"interrupted at {begun.phase}{why}", _run(situation))


def _waiting(situation: Situation) -> Standpoint:
    return Standpoint("waiting", f"waiting to go on at {situation.state.to_do[0]}", _run(situation))


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
