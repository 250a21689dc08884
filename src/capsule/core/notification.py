"""Notifications: a mission needs you, is done, or stopped.

A mission notifies when it halts, ends or is stopped, and a run when it ends: once each, because each is one event.
Child missions are part of their parent's step, whose end says the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import StrEnum

import msgspec

from capsule.core.decide import HALTS, Move
from capsule.core.event import CAMPAIGN, RUN, Event, RunEnded, StepEnded, Stopped, Warned, is_mission
from capsule.core.history import halt_status, run_counts
from capsule.core.state import MissionState
from capsule.core.status import count_statuses
from capsule.core.text import one_line, sentence, shortened

BELL = "bell"
NOBODY = ("", "none")
LONGEST = 300
_HELD = re.compile(r"\[(?P<item>[^\]]+)\]\[BLOCKED\] (?P<why>.*)")


class Occasion(StrEnum):
    BLOCKED = "blocked"
    """A mission is parked: a person should decide."""
    DONE = "done"
    """A mission is merged, or closed as not needed; a campaign is finished."""
    STOPPED = "stopped"
    """A mission gave up or was stopped, or a run ended."""


class Notification(msgspec.Struct, frozen=True):
    occasion: Occasion
    mission: str
    """Its item, or the run's stream."""
    words: str
    """One sentence for people, on one line."""
    title: str = ""
    """The item's title, if it is about one."""


def channels(setting: str | Collection[str]) -> tuple[str, ...]:
    """Return the bell and the command lines that the setting names."""
    asked = (setting,) if isinstance(setting, str) else setting
    return tuple(dict.fromkeys(one for one in asked if one.strip() not in NOBODY))


def notification(stream: str, event: Event, state: MissionState) -> Notification | None:
    """Make the notification of an event, if it is worth one; `state` is that of its mission afterwards."""
    found = None if state.parent else _notification_of(stream, event, state)
    if found is None:
        return None
    occasion, about, words = found
    words, title = (shortened(one_line(text), LONGEST) for text in (words, state.item.title))
    return Notification(occasion, about, sentence(words), title)


def is_repeated_by_run(stream: str, ended: RunEnded, told: Collection[str]) -> bool:
    """Tell whether the end of a run only repeats the end of its one item, which was notified already."""
    items = {*ended.done, *ended.blocked, *ended.failed}
    return len(items) == 1 and items <= {*told} and stream == f"{RUN}run-{next(iter(items))}"


def _notification_of(stream: str, event: Event, state: MissionState) -> tuple[Occasion, str, str] | None:
    """Return the occasion, the subject and the words."""
    match event:
        case StepEnded(decision=made) if made.move in HALTS:
            occasion = Occasion.BLOCKED if made.move is Move.PARK else Occasion.STOPPED
            return occasion, stream, f"{stream} {halt_status(made).words} at {event.phase}: {made.reason}"
        case StepEnded() if state.finished:
            merged, closed = state.facts.get("merged", ""), state.closed_as
            unmerged = f"closed: {closed}" if closed else "done"
            end = f"merged into {state.merged_into} as {merged[:12]}" if merged else unmerged
            return Occasion.DONE, stream, f"{stream} is {end}"
        case Stopped():
            return Occasion.STOPPED, stream, f"{stream} was stopped: {event.cause}"
        case Warned() if not is_mission(stream) and (held := _HELD.fullmatch(event.text)):
            # A guardrail holds the item, which has no mission yet: its run says so, in the words of the commit.
            return Occasion.BLOCKED, held["item"], f"{held['item']} needs you: {held['why']}"
        case RunEnded() if event.spawns or event.done or event.blocked or event.failed or event.exit_code:
            not_started = f"{len(event.waiting)} not started" if event.waiting else ""
            counts = ", ".join(filter(None, (count_statuses(run_counts(event)), not_started)))
            at_its_end = stream.startswith(CAMPAIGN) and not event.exit_code
            occasion = Occasion.DONE if at_its_end else Occasion.STOPPED
            return occasion, stream, f"The run ended: {event.why}{f' ({counts})' if counts else ''}"
    return None


TELLING = (StepEnded, Stopped, Warned, RunEnded)
"""Other events never notify."""
