"""Notifications: a mission needs you, is done, or stopped.

A mission is told of when it halts, ends or is stopped, and a run when it ends: each happening once, because it is an
event, and an event happens once. Children are part of their parent's step, whose end says the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any

import msgspec

from capsule.core.decide import HALTS, Move
from capsule.core.event import CAMPAIGN, RUN, Event, RunEnded, StepEnded, Stopped, Warned, is_mission
from capsule.core.history import halt_status, run_counts
from capsule.core.state import MissionState
from capsule.core.status import MissionStatus, count_statuses
from capsule.core.text import one_line, sentence, shortened

BELL = "bell"
NOBODY = ("", "none")
LONGEST = 300
_HELD = re.compile(r"\[(?P<item>[^\]]+)\]\[BLOCKED\] (?P<why>.*)")


class Occasion(StrEnum):
    BLOCKED = "blocked"
    """A mission is parked: a human should decide."""
    DONE = "done"
    """A mission is merged, or closed as not needed; a campaign is at its end."""
    STOPPED = "stopped"
    """A mission gave up or was stopped, or a run came to its end."""


class Notification(msgspec.Struct, frozen=True):
    occasion: Occasion
    mission: str
    """The item that it is about, or the run's stream."""
    words: str
    """One sentence for people, on one line."""
    title: str = ""
    """The item's, where it is about one."""


def channels(setting: str | Collection[str]) -> tuple[str, ...]:
    """Return the bell and the command lines that the setting names."""
    asked = (setting,) if isinstance(setting, str) else setting
    return tuple(dict.fromkeys(one for one in asked if one.strip() not in NOBODY))


def notification(stream: str, event: Event, state: MissionState) -> Notification | None:
    """Make the notification of an event, if it is worth one; `state` is that of its mission afterwards."""
    tell = _TOLD.get(type(event))
    found = tell(stream, event, state) if tell and not state.parent else None
    if found is None:
        return None
    occasion, mission, words = found
    words, title = (shortened(one_line(text), LONGEST) for text in (words, state.item.title))
    return Notification(occasion, mission, sentence(words), title)


def told_already(stream: str, ended: RunEnded, told: Collection[str]) -> bool:
    """Tell whether a run ended with its one item, and that item was told of."""
    items = {*ended.done, *ended.blocked, *ended.failed}
    return len(items) == 1 and items <= {*told} and stream == f"{RUN}run-{next(iter(items))}"


Told = tuple[Occasion, str, str] | None
"""The occasion, whom it is about, and the words."""


def _of_a_step(mission: str, event: StepEnded, state: MissionState) -> Told:
    made = event.decision
    if made.move in HALTS:
        occasion = Occasion.BLOCKED if made.move is Move.PARK else Occasion.STOPPED
        verb = "needs you" if halt_status(made) is MissionStatus.NEEDS_YOU else "failed"
        return occasion, mission, f"{mission} {verb} at {event.phase}: {made.reason}"
    return (Occasion.DONE, mission, f"{mission} is {_end(state)}") if state.finished else None


def _end(state: MissionState) -> str:
    merged = state.facts.get("merged", "")
    if merged:
        return f"merged into {state.into} as {merged[:12]}"
    return f"closed: {state.closed_as}" if state.closed_as else "done"


def _at_the_door(stream: str, event: Warned, _: MissionState) -> Told:
    """Tell of an item that a guardrail holds. It has no mission yet: its run says so, in the words of the commit."""
    held = None if is_mission(stream) else _HELD.fullmatch(event.text)
    return (Occasion.BLOCKED, held["item"], f"{held['item']} needs you: {held['why']}") if held else None


def _of_a_run(stream: str, event: RunEnded, _: MissionState) -> Told:
    """Tell of the end of a run, unless it found nothing to do."""
    if not (event.spawns or event.done or event.blocked or event.failed or event.exit_code):
        return None
    not_started = f"{len(event.waiting)} not started" if event.waiting else ""
    counts = ", ".join(filter(None, (count_statuses(run_counts(event)), not_started)))
    at_its_end = stream.startswith(CAMPAIGN) and not event.exit_code
    occasion = Occasion.DONE if at_its_end else Occasion.STOPPED
    return occasion, stream, f"The run ended: {event.why}{f' ({counts})' if counts else ''}"


_TOLD: dict[type, Callable[[str, Any, MissionState], Told]] = {
    StepEnded: _of_a_step,
    Stopped: lambda mission, event, _: (Occasion.STOPPED, mission, f"{mission} was stopped: {event.cause}"),
    Warned: _at_the_door,
    RunEnded: _of_a_run,
}
TELLING = tuple(_TOLD)
"""Of other events there is never anything to tell."""
