"""Choose the next item, and say why each other one waits: for the queue, a campaign and `explain`.

Items in progress come first, then ready ones (by impact, priority, then age), then those that have to be scoped,
researched or triaged. An item waits for its dependencies, and for those of the containers above it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from capsule.core.campaign import ancestors, is_container, unfinished
from capsule.core.decide import Guardrails, objections
from capsule.core.item import HELD, LEVELS, Item, Status

LANES = (Status.DONE, Status.IN_PROGRESS, Status.READY, Status.SCOPED, Status.RESEARCHING, Status.NEW, Status.BLOCKED)


class QueuePosition(msgspec.Struct, frozen=True):
    """An item's place in the queue: whether it can start, and the reason in one line."""

    item: Item
    actionable: bool
    why: str
    waits_for: tuple[str, ...] = ()
    """Items that have to be done first, if that is the reason."""


def queue(
    items: Sequence[Item],
    *,
    under_way: Container[str] = (),
    halted: Mapping[str, str] | None = None,
    left_alone: Mapping[str, str] | None = None,
    ours: Container[str] | None = None,
    standing: Mapping[str, str] | None = None,
    guardrails: Guardrails | None = None,
    by_priority: bool = False,
    triage_first: bool = False,
) -> list[QueuePosition]:
    """Return every item in the order in which it would be taken.

    `under_way` are missions that were interrupted, `halted` those that wait for a human, `left_alone` those that this
    run has tried already; each with the reason. `ours` are items that have a mission, halted or not: an item in
    progress without one is worked on by hand; None: the tracker itself has the state of everything. `standing` is the
    next step of missions, in words. `by_priority` uses the priority of items without an assessment. `triage_first`
    takes new items first, so that urgent ones are known.
    """

    def rank(item: Item) -> tuple[object, ...]:
        lane = Status.IN_PROGRESS if item.id in under_way and item.status is not Status.BLOCKED else item.status
        place = -1 if triage_first and lane is Status.NEW else LANES.index(lane)
        return place, -LEVELS.get(item.assessment.impact, 0), item.priority, item.created

    everything = ItemQueue(
        {item.id: item for item in items},
        objections={**(halted or {}), **(left_alone or {})},
        guardrails=guardrails or Guardrails(),
        by_priority=by_priority,
        ours=ours,
        standing=standing or {},
    )
    return [everything.place(item) for item in sorted(items, key=rank)]


def choose(
    places: Iterable[QueuePosition], only: Container[str] | None = None, overlap: Container[str] = ()
) -> Item | None:
    """Return the first requested item that can start; one of `overlap` only if there is no other.

    `overlap` are items that are likely to touch the files of a mission under way.
    """
    fit = [place.item for place in places if place.actionable and (only is None or place.item.id in only)]
    return next((item for item in fit if item.id not in overlap), next(iter(fit), None))


def within_reach(
    places: Iterable[QueuePosition], under_way: Iterable[str], only: Container[str] | None = None
) -> set[str]:
    """Name the items that a run will reach: those that can start, and those that only wait for these.

    `under_way` are the missions that others may wait for. A container is done when its items are.
    """
    asked = [place for place in places if place.item.holds or only is None or place.item.id in only]
    needs = {
        place.item.id: place.item.holds if is_container(place.item) else place.waits_for
        for place in asked
        if not place.actionable
    }
    running = {*under_way}
    reached = running | {place.item.id for place in asked if place.actionable}
    left = {name: {*others} - reached for name, others in needs.items() if others and name not in reached}
    after: dict[str, list[str]] = {}
    for name, others in left.items():
        for other in others:
            after.setdefault(other, []).append(name)
    found = [name for name, others in left.items() if not others]
    for name in found:  # grows as we go
        for other in after.get(name, ()):
            left[other].discard(name)
            if not left[other]:
                found.append(other)
    return (reached | {*found}) - running - {place.item.id for place in asked if is_container(place.item)}


def in_order(
    items: Iterable[Item], only: Container[str], queued: Callable[[Sequence[Item]], Sequence[QueuePosition]], most: int
) -> list[QueuePosition]:
    """Return the requested items in the order they would run if each finished, then those that would not run.

    `queued` builds the queue of the rest at that point; that is slow, so only `most` are returned.
    """
    left = {item.id: item for item in items}
    taken: list[QueuePosition] = []
    while len(taken) < most:
        places = [place for place in queued(list(left.values())) if place.item.id in only]
        chosen = next((place for place in places if place.actionable), None)
        if chosen is None:
            return taken + places
        taken.append(chosen)
        for done in [chosen.item, *ancestors(chosen.item, left)]:  # and containers that then hold nothing else
            if any(other in left for other in done.holds):
                break
            del left[done.id]
    return taken


class ItemQueue(msgspec.Struct, frozen=True, dict=True):
    """All items in the queue, and what each of them waits for."""

    known: Mapping[str, Item]
    objections: Mapping[str, str] = {}
    guardrails: Guardrails = Guardrails()
    by_priority: bool = False
    ours: Container[str] | None = None
    standing: Mapping[str, str] = {}

    @cached_property
    def _waits(self) -> dict[str, dict[str, str]]:
        return unfinished(self.known)

    @cached_property
    def _stuck(self) -> dict[str, list[str]]:
        """Items that wait in a cycle or for one, each with its dependencies and children."""
        before = {
            name: [*self._waits.get(name, ()), *(other for other in item.holds if other in self.known)]
            for name, item in self.known.items()
            if item.holds or name in self._waits
        }
        after: dict[str, list[str]] = {}
        left: dict[str, int] = {}
        for name, others in before.items():
            unsure = [other for other in others if other in before]
            left[name] = len(unsure)
            for other in unsure:
                after.setdefault(other, []).append(name)
        finished = [name for name, number in left.items() if not number]
        for name in finished:  # grows as we go
            for other in after.get(name, ()):
                left[other] -= 1
                if not left[other]:
                    finished.append(other)
        return {name: [other for other in before[name] if left.get(other)] for name, number in left.items() if number}

    def place(self, item: Item) -> QueuePosition:
        objection = self._objection(item)
        if objection:
            return QueuePosition(item, actionable=False, why=objection)
        if waits := self._waits.get(item.id):
            named = [
                f"{other} ({self.known[other].status})" + (f", as {holder} does" if holder != item.id else "")
                for other, holder in waits.items()
            ]
            circle = _shortest_cycle(item.id, self._stuck) if item.id in self._stuck else ()
            why = f"waits for itself: {' → '.join(circle)}" if circle else f"waits for {', '.join(named)}"
            return QueuePosition(item, actionable=False, why=why, waits_for=tuple(waits))
        return QueuePosition(item, actionable=True, why=self._reason(item))

    def _objection(self, item: Item) -> str:
        """Return why an item itself cannot start; '' if it can."""
        if block := item.blocked:
            kind = f"blocked ({block.kind})" if block.kind else "blocked"
            return f"{'held back' if block.kind == HELD else kind}: {block.reason}"
        if is_container(item):
            return f"it is {'an' if item.type[:1] in 'aeiou' else 'a'} {item.type}: what it holds is worked on"
        objection = self.objections.get(item.id, "")
        if objection or (self.ours is not None and item.id in self.ours):
            return objection  # its mission was allowed to start before, and continues
        if item.taken_by:
            return f"claimed by {item.taken_by}"
        by_hand = self.ours is not None and item.status is Status.IN_PROGRESS
        return f"in progress without a mission; start it: capsule run {item.id}" if by_hand else ""

    def _reason(self, item: Item) -> str:
        trips = objections(item, self.guardrails) if item.status is Status.SCOPED else ()
        if trips:
            return f"scoped; you will be asked: {'; '.join(trips)}"
        if item.will_ask:
            return item.will_ask
        if item.id in self.standing:
            return self.standing[item.id]
        impact = item.assessment.impact
        worth = f"priority P{item.priority}" if self.by_priority and not impact else f"impact {impact or 'unknown'}"
        return _NEXT[item.status].format(phase=item.phase or "its first phase", worth=worth)


_NEXT = {
    Status.DONE: "done, still to be archived",
    Status.IN_PROGRESS: "goes on at {phase}",
    Status.READY: "ready, {worth}",
    Status.SCOPED: "scoped, will be made ready",
    Status.RESEARCHING: "needs research",
    Status.NEW: "needs triage",
}


def _shortest_cycle(start: str, stuck: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the shortest cycle through an item; empty where there is none."""
    came_from: dict[str, str] = {}
    reached = [start]
    for name in reached:  # grows as we go
        for other in stuck.get(name, ()):
            if other == start:
                way, back = [start], name
                while back != start:
                    way.append(back)
                    back = came_from[back]
                return [start, *reversed(way)]
            if other not in came_from:
                came_from[other] = name
                reached.append(other)
    return []
