"""The merge queue of a branch for people: the mission at its turn, those waiting, and the batches.

`MergeTrain` takes one event of the queue's stream at a time; `MergeQueue` has what decides. A mission that does not
wait writes nothing there: its lock shows that it has the turn, and its own stream holds its merge.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from capsule.core.event import MERGES, Batched, Event, HandedIn, Served, Stacked
from capsule.core.merge_queue import MergeQueue, cars
from capsule.core.stamps import seconds_between

_MOST = 200
"""The number of turns and batches that are kept."""


class PastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a mission that had to wait for it."""

    mission: str
    came: str
    ended: str
    seconds: float
    """How long the turn itself took."""

    @property
    def waited(self) -> float:
        return max(0.0, seconds_between(self.came, self.ended) - self.seconds) if self.came else 0.0


class WaitingMission(msgspec.Struct, frozen=True, kw_only=True):
    """A mission that waits: since when, and its place in words."""

    mission: str
    came: str
    words: str
    """`3rd, about 4 min`"""


class Car(msgspec.Struct, frozen=True, kw_only=True):
    """Missions whose merges are tested together, each built on the one before."""

    missions: tuple[str, ...]
    green: bool
    """Their tests have passed; they wait for their turn."""


class BatchTest(msgspec.Struct, frozen=True, kw_only=True):
    """Missions that were tested together, and the result."""

    missions: tuple[str, ...]
    at: str
    """When the tests had ended."""
    seconds: float
    green: bool
    commit: str = ""
    """The commit that merged them, if they were merged."""
    part: bool = False
    """The first ones of a batch that was red."""
    bisected: bool = False
    """It was red, and its first ones were tested again."""


class MergeTrain(msgspec.Struct, frozen=True, kw_only=True):
    """The merge queue of one branch, event by event."""

    stream: str
    waiting: Mapping[str, HandedIn] = {}
    """By mission, the first come first."""
    turns: tuple[PastTurn, ...] = ()
    batches: tuple[Batched, ...] = ()
    stacked: Mapping[str, Stacked] = {}
    """By mission, the merge that it built last on those before it."""

    def after(self, event: Event) -> MergeTrain:
        """Return the train with one more event."""
        if isinstance(event, HandedIn):
            return replace(self, waiting={**self._without(event.mission), event.mission: event})
        if isinstance(event, Served):
            came = self.waiting[event.mission].at if event.mission in self.waiting else ""
            turn = PastTurn(mission=event.mission, came=came, ended=event.at, seconds=event.seconds)
            stacked = {name: one for name, one in self.stacked.items() if name != event.mission}
            waiting = self._without(event.mission)
            return replace(self, waiting=waiting, stacked=stacked, turns=(*self.turns, turn)[-_MOST:])
        if isinstance(event, Stacked):
            return replace(self, stacked={**self.stacked, event.mission: event})
        if isinstance(event, Batched):
            return replace(self, batches=(*self.batches, event)[-_MOST:])
        return self

    def _without(self, mission: str) -> dict[str, HandedIn]:
        return {name: one for name, one in self.waiting.items() if name != mission}

    @property
    def branch(self) -> str:
        return unquote(self.stream.removeprefix(MERGES))

    def places(self, still_waits: Callable[[HandedIn], bool], at_it: str = "") -> tuple[WaitingMission, ...]:
        """List the waiting missions in order; `at_it` has the turn and no longer waits."""
        queue = MergeQueue(took=[turn.seconds for turn in self.turns[-10:]])
        names = [name for name, one in self.waiting.items() if name != at_it and still_waits(one)]
        return tuple(
            WaitingMission(mission=name, came=self.waiting[name].at, words=queue.place_in_words(number))
            for number, name in enumerate(names, 1)
        )

    def cars(self, line: Sequence[str], batch: int, gates: int) -> tuple[Car, ...]:
        """Return the missions that are tested together now; without the one at its turn if it is alone."""
        first = self.stacked.get(line[0]) if line else None
        if first is None or batch * gates == 1:
            return ()
        queue = MergeQueue(stacked={**self.stacked})
        for event in self.batches:
            queue.apply(event)
        found = cars(queue.chain(line, first.under), min(queue.car, batch))[:gates]
        shown = [
            Car(missions=tuple(one.mission for one in car), green=(car[-1].gate, car[-1].tree) in queue.green)
            for car in found
        ]
        return tuple(car for car in shown if car.missions != (line[0],))

    @property
    def tested(self) -> tuple[BatchTest, ...]:
        """List what was tested together; a batch that is merged is the one that was tested before."""
        found: list[BatchTest] = []
        halved: dict[str, int] = {}
        """The index of a red batch by its first mission: its halves begin with the same one."""
        for event in self.batches:
            names, head = event.missions, event.missions[0]
            last = next((number for number in reversed(range(len(found))) if found[number].missions == names), -1)
            if event.commit and last >= 0 and found[last].green and not found[last].commit:
                found[last] = replace(found[last], commit=event.commit)
            else:
                whole = halved.get(head, -1)
                part = whole >= 0 and names == found[whole].missions[: len(names)] != found[whole].missions
                if part:
                    found[whole] = replace(found[whole], bisected=True)
                elif not event.green:
                    halved[head] = len(found)
                found.append(
                    BatchTest(
                        missions=names,
                        at=event.at,
                        seconds=event.seconds,
                        green=event.green,
                        commit=event.commit,
                        part=part,
                    )
                )
            if event.commit or (not event.green and names == (head,)):  # the one is found, or those before it are in
                halved.pop(head, None)
        return tuple(found)

    def batch_of(self, mission: str) -> Batched | None:
        """Return the batch that a mission was merged with; None where it was merged alone."""
        green = (batch for batch in reversed(self.batches) if batch.green and batch.commit)
        last = next((batch for batch in green if mission in batch.missions), None)  # an earlier one came too late
        return last if last and last.missions[1:] else None


class MergeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A merge queue at one moment."""

    train: MergeTrain
    at_it: str = ""
    """The mission that has the turn; '' if there is none, or it is unknown here."""
    places: tuple[WaitingMission, ...] = ()
    cars: tuple[Car, ...] = ()
    """The missions that are tested together, if the settings allow several at a time."""

    @property
    def branch(self) -> str:
        return self.train.branch

    @property
    def turn_began(self) -> str:
        """Return when the current turn began; '' if its mission did not wait."""
        handed_in = self.train.waiting.get(self.at_it)
        last = self.train.turns[-1].ended if self.train.turns else ""
        return max(handed_in.at, last) if handed_in else ""

    def place_of(self, mission: str) -> str | None:
        """Return a mission's place in words; '' if it has the turn, None if it is not in the queue."""
        if mission == self.at_it:
            return ""
        return next((place.words for place in self.places if place.mission == mission), None)
