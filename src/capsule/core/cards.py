"""Events, folded into cards for screens: of missions (`Card`) and of runs through many items (`RunCard`).

A card is bounded: of a mission that has gone on for days it keeps the last attempts and counts the rest. What an agent
said and what was seen are kept apart: an `Attempt` has a claim and a verdict, and the evidence between the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from capsule.core.event import (
    Advanced,
    Event,
    MissionStarted,
    Observed,
    ParentClosed,
    Recorded,
    RunEnded,
    RunStarted,
    Spawned,
    StepBegun,
    StepEnded,
    Stopped,
    Waiting,
    Warned,
)
from capsule.core.evidence import Evidence, Observation
from capsule.core.standpoint import merged_on_red
from capsule.core.state import MissionState, apply

MOST_ATTEMPTS = 60
MOST_WARNINGS = 5
MOST_MISSIONS = 200
"""Of one run; a screen names the last ones."""


class Attempt(msgspec.Struct, frozen=True):
    """One run of one phase; without `ended` it is under way, or was interrupted."""

    key: str
    phase: str
    number: int
    agent: str = ""
    began: str = ""
    ended: StepEnded | None = None

    @property
    def claimed(self) -> str:
        return self.ended.outcome.signal.verdict.value if self.ended else ""

    @property
    def verdict(self) -> str:
        return self.ended.decision.verdict.value if self.ended else ""

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return self.ended.outcome.evidence if self.ended else ()


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A mission, folded: its state, and what a screen tells besides."""

    state: MissionState = MissionState()
    attempts: tuple[Attempt, ...] = ()
    forgotten: int = 0
    """Attempts that came before those."""
    began: str = ""
    last: str = ""
    waiting: Waiting | None = None
    stopped: str = ""
    tests: Observation | None = None
    """The last time the test command was run."""
    commits: int = 0
    on_red: bool = False
    """The tests failed on what was merged."""
    warnings: tuple[str, ...] = ()


def see(card: Card, event: Event) -> Card:
    """The card after one more event. Observations are not piled up: a screen shows the last one."""
    state = card.state if isinstance(event, Observed) else apply(card.state, event)
    change = _SEEN.get(type(event))
    changes = change(card, event) if change else {}
    kept = {"last": event.at, "stopped": event.cause if isinstance(event, Stopped) else ""}
    return msgspec.structs.replace(card, **{"state": state, **kept, **changes})


def fold(events: Iterable[Event]) -> Card:
    card = Card()
    for event in events:
        card = see(card, event)
    return card


def _saw_start(_card: Card, event: MissionStarted) -> dict[str, Any]:
    nothing_yet = {"attempts": (), "forgotten": 0, "waiting": None, "tests": None, "commits": 0, "on_red": False}
    return {"began": event.at, **nothing_yet}


def _saw_begin(card: Card, event: StepBegun) -> dict[str, Any]:
    """A step that was begun again is told once."""
    earlier = tuple(attempt for attempt in card.attempts if attempt.key != event.key)
    attempt = Attempt(event.key, event.phase, event.attempt, event.agent, event.at)
    return _with_attempts(card, (*earlier, attempt)) | {"waiting": None}


def _saw_end(card: Card, event: StepEnded) -> dict[str, Any]:
    earlier = tuple(attempt for attempt in card.attempts if attempt.key != event.key)
    begun = next((attempt for attempt in card.attempts if attempt.key == event.key), None)
    number, agent, began = (begun.number, begun.agent, begun.began) if begun else (event.run, "", "")
    attempt = Attempt(event.key, event.phase, number, event.outcome.agent or agent, began, event)
    on_red = merged_on_red([event]) if "merged" in event.outcome.facts else card.on_red
    return _with_attempts(card, (*earlier, attempt)) | {"waiting": None, "on_red": on_red}


def _with_attempts(card: Card, attempts: tuple[Attempt, ...]) -> dict[str, Any]:
    too_many = max(0, len(attempts) - MOST_ATTEMPTS)
    return {"attempts": attempts[too_many:], "forgotten": card.forgotten + too_many}


_SEEN: dict[type, Callable[[Card, Any], dict[str, Any]]] = {
    MissionStarted: _saw_start,
    StepBegun: _saw_begin,
    StepEnded: _saw_end,
    Waiting: lambda _, event: {"waiting": event},
    Observed: lambda _, event: {"tests": event.observation},
    Recorded: lambda card, event: {"commits": card.commits + bool(event.commit)},
    Warned: lambda card, event: {"warnings": (*card.warnings, event.text)[-MOST_WARNINGS:]},
}


class RunCard(msgspec.Struct, frozen=True, kw_only=True):
    """The queue, a campaign or the run of one item of a backlog, folded."""

    stream: str = ""
    cap: int = 0
    spawns: int = 0
    missions: tuple[str, ...] = ()
    """Those it started agents for, the last one last."""
    progress: dict[str, Advanced] = {}
    closed: tuple[ParentClosed, ...] = ()
    began: str = ""
    last: str = ""
    ended: RunEnded | None = None


def see_run(card: RunCard, event: Event) -> RunCard:
    change = _SEEN_OF_RUNS.get(type(event))
    return msgspec.structs.replace(card, last=event.at, **(change(card, event) if change else {}))


def _saw_run_start(_card: RunCard, event: RunStarted) -> dict[str, Any]:
    began = {"cap": event.cap, "spawns": event.spawns, "began": event.at, "ended": None}
    return began | {"missions": (), "progress": {}, "closed": ()}


def _saw_spawn(card: RunCard, event: Spawned) -> dict[str, Any]:
    others = tuple(name for name in card.missions if name != event.mission)
    return {"spawns": card.spawns + 1, "missions": (*others, event.mission)[-MOST_MISSIONS:]}


_SEEN_OF_RUNS: dict[type, Callable[[RunCard, Any], dict[str, Any]]] = {
    RunStarted: _saw_run_start,
    Spawned: _saw_spawn,
    Advanced: lambda card, event: {"progress": {**card.progress, event.item: event}},
    ParentClosed: lambda card, event: {"closed": (*card.closed, event)},
    RunEnded: lambda _, event: {"ended": event},
}
