"""Which item is next, and why every other is not: pure, and the same for the queue and for `explain`.

What is under way comes first, then what is ready (impact, then age), then what still has to be scoped, researched or
triaged. The breaker and the cap are counted here too: from what a run has started, and how that ended.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from capsule.core.decide import PROGRESS, Decision, Guardrails, objections
from capsule.core.item import LEVELS, Item, Status

LANES = (Status.DONE, Status.IN_PROGRESS, Status.READY, Status.SCOPED, Status.RESEARCHING, Status.NEW, Status.BLOCKED)
BREAKER = 2
"""So many items in a row that used up their retries, and the run stops: it is not the items."""
CONTAINERS = ("epic", "feature")
"""Kinds of items that are done when what they hold is done."""


class Place(msgspec.Struct, frozen=True):
    """An item's place in the queue: whether it can be worked on, and one line of why or why not."""

    item: Item
    actionable: bool
    why: str


def queue(
    items: Sequence[Item],
    *,
    under_way: Container[str] = (),
    halted: Mapping[str, str] | None = None,
    left_alone: Mapping[str, str] | None = None,
    guardrails: Guardrails | None = None,
) -> list[Place]:
    """Every item in the order in which it would be taken.

    `under_way` are missions that were interrupted, `halted` those that wait for a human, `left_alone` those that this
    run has tried already; each with the reason.
    """
    open_ids = {item.id: item for item in items}
    ranked = sorted(enumerate(items), key=lambda pair: _rank(pair[1], pair[0], under_way))
    objections = {**(halted or {}), **(left_alone or {})}
    return [_place(item, open_ids, objections, guardrails or Guardrails()) for _, item in ranked]


def choose(places: Iterable[Place], only: Container[str] | None = None) -> Item | None:
    """The first that can be worked on, of those asked for."""
    fit = (place.item for place in places if place.actionable and (only is None or place.item.id in only))
    return next(fit, None)


def _rank(item: Item, position: int, under_way: Container[str]) -> tuple[object, ...]:
    lane = Status.IN_PROGRESS if item.id in under_way and item.status is not Status.BLOCKED else item.status
    return LANES.index(lane), -LEVELS.get(item.assessment.impact, 0), item.priority, item.created, position


def _place(item: Item, known: Mapping[str, Item], objections: Mapping[str, str], guardrails: Guardrails) -> Place:
    objection = _objection(item, known, objections)
    if objection:
        return Place(item, actionable=False, why=objection)
    return Place(item, actionable=True, why=_because(item, guardrails))


def _objection(item: Item, known: Mapping[str, Item], objections: Mapping[str, str]) -> str:
    if item.blocked:
        return f"blocked ({item.blocked.kind}): {item.blocked.reason}"
    if item.type in CONTAINERS:
        return f"it is {'an' if item.type[0] in 'aeiou' else 'a'} {item.type}: what it holds is worked on"
    if item.id in objections:
        return objections[item.id]
    waits = [f"{other} ({known[other].status.value})" for other in item.dependencies if other in known]
    return f"waits for {', '.join(waits)}" if waits else ""


_NEXT = {
    Status.DONE: "is done and only has to be archived",
    Status.IN_PROGRESS: "goes on at {phase}",
    Status.READY: "is ready, impact {impact}",
    Status.SCOPED: "is scoped and will be made ready",
    Status.RESEARCHING: "its idea is to be researched",
    Status.NEW: "is to be triaged",
}


def _because(item: Item, guardrails: Guardrails) -> str:
    trips = objections(item, guardrails) if item.status is Status.SCOPED else ()
    if trips:
        return f"is scoped, and a human will be asked: {'; '.join(trips)}"
    return _NEXT[item.status].format(phase=item.phase or "its first phase", impact=item.assessment.impact or "unknown")


class Tally(msgspec.Struct, frozen=True):
    """A run so far: what it started, and how many items in a row used up their retries."""

    spawns: int = 0
    failures_in_a_row: int = 0

    def spawned(self) -> Tally:
        return msgspec.structs.replace(self, spawns=self.spawns + 1)

    def ended(self, decision: Decision) -> Tally:
        """A phase that succeeds resets the breaker; an exhausted item counts; all else leaves it as it is."""
        if decision.exhausted:
            return msgspec.structs.replace(self, failures_in_a_row=self.failures_in_a_row + 1)
        return msgspec.structs.replace(self, failures_in_a_row=0) if decision.move in PROGRESS else self

    @property
    def tripped(self) -> bool:
        return self.failures_in_a_row >= BREAKER
