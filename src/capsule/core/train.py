"""The merge queue of a branch as people look at it: who has the turn, who waits, who was merged with whom.

`MergeTrain` takes one event of the queue's stream at a time; `MergeQueue` has what decides. A mission that finds nobody
waiting writes nothing there: that it has the turn is seen by its lock, and what it merged stands in its own stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from capsule.core.event import MERGES, Batched, Event, HandedIn, Served
from capsule.core.merge_queue import MergeQueue
from capsule.core.stamps import seconds_between

_MOST = 200
"""So many turns and batches are kept, however long a branch is merged into."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a mission that had to wait for it."""

    mission: str
    came: str
    ended: str
    seconds: float
    """How long the turn itself took."""

    @property
    def waited(self) -> float:
        return max(0.0, seconds_between(self.came, self.ended) - self.seconds) if self.came else 0.0


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A mission that waits: since when, and its place in words."""

    mission: str
    came: str
    words: str
    """`3rd, about 4 min`"""


class MergeTrain(msgspec.Struct, frozen=True, kw_only=True):
    """The merge queue of one branch, event by event."""

    stream: str
    waiting: Mapping[str, HandedIn] = {}
    """By mission, the first come first."""
    turns: tuple[Turn, ...] = ()
    batches: tuple[Batched, ...] = ()

    def after(self, event: Event) -> MergeTrain:
        """Return the train with one more event."""
        if isinstance(event, HandedIn):
            return replace(self, waiting={**self._without(event.mission), event.mission: event})
        if isinstance(event, Served):
            came = self.waiting[event.mission].at if event.mission in self.waiting else ""
            turn = Turn(mission=event.mission, came=came, ended=event.at, seconds=event.seconds)
            return replace(self, waiting=self._without(event.mission), turns=(*self.turns, turn)[-_MOST:])
        if isinstance(event, Batched):
            return replace(self, batches=(*self.batches, event)[-_MOST:])
        return self

    def _without(self, mission: str) -> dict[str, HandedIn]:
        return {name: one for name, one in self.waiting.items() if name != mission}

    @property
    def branch(self) -> str:
        return unquote(self.stream.removeprefix(MERGES))

    @property
    def happened(self) -> bool:
        return bool(self.waiting or self.turns or self.batches)

    def places(self, still_waits: Callable[[HandedIn], bool], at_it: str = "") -> tuple[Place, ...]:
        """List those that wait, in order; `at_it` has the turn, and waits no more."""
        queue = MergeQueue(took=[turn.seconds for turn in self.turns[-10:]])
        names = [name for name, one in self.waiting.items() if name != at_it and still_waits(one)]
        return tuple(
            Place(mission=name, came=self.waiting[name].at, words=queue.foretold(number))
            for number, name in enumerate(names, 1)
        )

    def bisected(self, batch: Batched) -> bool:
        """Tell a batch that was red, and tested again in parts."""
        later = self.batches[self.batches.index(batch) + 1 :]
        parts = set(batch.missions)
        return not batch.green and any(set(other.missions) < parts for other in later)

    def batch_of(self, mission: str) -> Batched | None:
        """Return the batch that a mission was merged with; None where it was merged alone."""
        green = (batch for batch in reversed(self.batches) if batch.green and batch.commit)
        return next((batch for batch in green if mission in batch.missions and len(batch.missions) > 1), None)


class MergeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A merge queue at one moment."""

    train: MergeTrain
    at_it: str = ""
    """The mission that has the turn; '' for nobody, or somebody who cannot be named from here."""
    places: tuple[Place, ...] = ()

    @property
    def branch(self) -> str:
        return self.train.branch

    def place_of(self, mission: str) -> str | None:
        """Return a mission's place in words; '' where it has the turn, None where it is not in the queue."""
        if mission == self.at_it:
            return ""
        return next((place.words for place in self.places if place.mission == mission), None)
