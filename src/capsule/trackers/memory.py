"""A tracker that holds its items in memory: for tests, and as the shortest example of a tracker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from capsule.core.item import Blocked, Item, ItemValues, NewItem, Status, check_id, with_holders
from capsule.core.tracker_traits import BEADS_EDITS, TrackerTraits
from capsule.trackers import BaseTracker


class MemoryTracker(BaseTracker):
    name = "memory"
    traits = TrackerTraits(edits=BEADS_EDITS)

    def __init__(
        self, items: Iterable[Item] = (), parts: Mapping[tuple[str, str], Sequence[Item]] | None = None
    ) -> None:
        self._items = with_holders({check_id(item.id): item for item in items})
        self._references: dict[str, str] = {}
        self._parts = dict(parts or {})
        self.comments: dict[str, list[str]] = {}
        self.closed_because: dict[str, str] = {}

    def all_items(self) -> Mapping[str, Item]:
        return self._items

    def set_status(self, item_id: str, status: Status, reason: str = "") -> None:
        self._items[item_id] = msgspec.structs.replace(self._items[item_id], status=status, blocked=None)
        if status is Status.DONE:
            self.closed_because[item_id] = reason

    def create(self, new: NewItem) -> str:
        if new.reference in self._references:
            return self._references[new.reference]
        name = f"new-{len(self._items) + 1}"
        self._items = with_holders({**self._items, name: new.as_item(name)})
        if new.reference:
            self._references[new.reference] = name
        return name

    def change(self, item_id: str, values: ItemValues) -> None:
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
        if plain.get("status") == Status.BLOCKED:
            plain |= {"status": Status.BLOCKED, "blocked": Blocked(Status.READY, "on hold", "")}
        changed = msgspec.structs.replace(self.item(item_id), **plain)
        self._items = with_holders({**self._items, item_id: changed})

    def comment(self, item_id: str, text: str) -> None:
        self.comments.setdefault(self.item(item_id).id, []).append(text)

    def parts(self, item: Item, phase: str) -> Sequence[Item]:
        return self._parts.get((item.id, phase), [item])
