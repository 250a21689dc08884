"""The missions that wait to be merged into one branch, in the order in which they came: read from its stream.

The first mission merges its own work and leaves. One that dies loses its claim and with it its place.
 Where the settings allow it, those behind build their merges on top of those before them (`Stacked`), so that
several can be tested at the same time, a train, and those of one car together, a batch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil
from urllib.parse import quote

from msgspec import Struct, field

from capsule.core.event import MERGES, Batched, Event, HandedIn, Served, Stacked
from capsule.core.stream_cache import CachedState, ReadEvents
from capsule.core.text import one_line, shortened

BATCH = "Capsule-Batch: "
"""The trailer of a commit that brings the merges of several missions."""
_REMEMBERED = 10
"""The number of turns that are averaged to predict the next ones."""
_LONGEST_CAR = 64
_BY_MISSION = re.compile(r"(?m)^Capsule-Mission: ([\w.-]{1,64})\s*$", re.ASCII)
_BY_STEP = re.compile(r"(?m)^Capsule-Step: ([\w.-]{1,64})/[^\n]*$", re.ASCII)
_LONGEST_SUBJECT = 60
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


def merge_stream(branch: str) -> str:
    """Return the stream of a branch's merge queue: it is a file name, too."""
    return f"{MERGES}{quote(branch, safe='')}"


def step_name(commit: str, parents: Sequence[str], message: str) -> str:
    """Return the mission whose merge or step a commit is; of any other commit, its short id and subject."""
    by_mission = (_BY_MISSION if parents[1:] else _BY_STEP).search(message)
    subject = shortened(one_line(message.strip().partition("\n")[0]), _LONGEST_SUBJECT)
    return by_mission[1] if by_mission else f'{commit[:12]} "{subject}"'


def is_batch(parents: Sequence[str], message: str) -> bool:
    """Tell whether a commit brings several merges. The title of an item may hold these words, but not begin a line."""
    return f"\n{BATCH}" in message and bool(parents[1:])


def merged_meanwhile(others: Mapping[str, str]) -> str:
    """Name missions and commits with what shows their changes: `merged meanwhile: a (git diff 1^1 1)`."""
    named = (f"{name} (git diff {commit[:12]}^1 {commit[:12]})" for name, commit in others.items())
    return f"merged meanwhile: {', '.join(named)}" if others else ""


class MergeQueue(Struct):
    """The missions that wait, what was built and tested for them, and how long turns took."""

    waiting: dict[str, HandedIn] = field(default_factory=dict)
    """By mission, the first come first; one that comes again goes to the end."""
    took: list[float] = field(default_factory=list)
    stacked: dict[str, Stacked] = field(default_factory=dict)
    """By mission, the merge that it built last."""
    green: set[tuple[str, str]] = field(default_factory=set)
    """How trees were tested that passed, and the trees."""
    batches: dict[str, Batched] = field(default_factory=dict)
    """By mission, the batch that it was last merged with."""
    car: int = 1
    """How many may be tested together next, up to the setting: twice as many after green, one after red."""

    def apply(self, event: Event) -> None:
        if isinstance(event, HandedIn):
            self.waiting.pop(event.mission, None)
            self.waiting[event.mission] = event
            self.stacked.pop(event.mission, None)  # it comes back with different work
        elif isinstance(event, Served):
            self.waiting.pop(event.mission, None)
            self.took = [*self.took, event.seconds][-_REMEMBERED:]
        elif isinstance(event, Stacked):
            self.stacked[event.mission] = event
        elif isinstance(event, Batched):
            self._apply_batch(event)

    def _apply_batch(self, event: Batched) -> None:
        if not event.green:
            self.car = 1
            return
        self.green.add((event.gate, event.tree))
        if event.commit:
            self.car = min(2 * self.car, _LONGEST_CAR)
            self.batches |= dict.fromkeys(event.missions, event)

    def chain(self, line: Iterable[str], tree: str) -> Iterator[Stacked]:
        """Yield the merges of the first missions of a line that are built on each other, starting at this tree."""
        before = ""
        for mission in line:
            one = self.stacked.get(mission)
            if one is None or one.under != tree or (before and one.onto != before):
                return
            if one.commit:
                tree, before = one.tree, one.commit
                yield one

    def place_in_words(self, ahead: int) -> str:
        """Return a place in the line and when its turn is expected: `3rd, about 4 min`."""
        place = ahead + 1
        ending = "th" if place % 100 in (11, 12, 13) else _ORDINALS.get(place % 10, "th")
        seconds = place * sum(self.took) / len(self.took) if self.took else 0
        when = f", about {ceil(seconds / 60)} min" if seconds >= 60 else f", about {ceil(seconds)} s" if seconds else ""
        return f"{place}{ending}{when}"


def cars(chain: Iterable[Stacked], size: int) -> Sequence[Sequence[Stacked]]:
    """Divide merges into batches: neighbours that are tested the same way, at most `size` each."""
    found: list[list[Stacked]] = []
    for one in chain:
        if not found or len(found[-1]) == size or found[-1][0].gate != one.gate:
            found.append([])
        found[-1].append(one)
    return found


def merge_queue(events: ReadEvents, branch: str) -> CachedState[MergeQueue]:
    """Read the merge queue of a branch, again at each call of `now`."""
    return CachedState(events, merge_stream(branch), MergeQueue(), _after)


def _after(queue: MergeQueue, event: Event) -> MergeQueue:
    queue.apply(event)
    return queue
