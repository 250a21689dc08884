"""A tracker that holds its items in memory: for tests, and as the shortest answer to what a tracker has to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from capsule.core.campaign import below
from capsule.core.item import Item, Lineage, NewItem, Status, check_id, lineage_of, with_holders
from capsule.trackers import already_closed, unknown


class MemoryTracker:
    name = "memory"
    keeps_phases = False
    warnings: Sequence[str] = ()

    def __init__(
        self, items: Iterable[Item] = (), parts: Mapping[tuple[str, str], Sequence[Item]] | None = None
    ) -> None:
        self._items = with_holders({check_id(item.id): item for item in items})
        self._references: dict[str, str] = {}
        self.comments: dict[str, list[str]] = {}
        self._parts = dict(parts or {})
        self.closed_because: dict[str, str] = {}

    def items(self) -> Sequence[Item]:
        return [item for item in self._items.values() if item.status is not Status.DONE]

    def everything(self) -> Sequence[Item]:
        return self.items()

    def item(self, item_id: str) -> Item:
        if check_id(item_id) in self._items:
            return self._items[item_id]
        raise unknown(item_id, self._items)

    def lineage(self, item: Item) -> Lineage:
        return lineage_of(item, self._items)

    def claim(self, item_id: str) -> None:
        if self.item(item_id).status is Status.DONE:
            raise already_closed(item_id)
        self._set(item_id, Status.IN_PROGRESS)

    def release(self, item_id: str) -> None:
        if self.item(item_id).status is Status.IN_PROGRESS:
            self._set(item_id, Status.READY)

    def reopen(self, item_id: str) -> None:
        if self.item(item_id).status is Status.BLOCKED:
            self._items[item_id] = msgspec.structs.replace(self._items[item_id], status=Status.READY, blocked=None)

    def close(self, item_id: str, reason: str) -> None:
        if self.item(item_id).status is not Status.DONE:
            self._set(item_id, Status.DONE)
            self.closed_because[item_id] = reason

    def knows(self, item_id: str) -> bool:
        return item_id in self._items

    def under(self, item_id: str) -> Sequence[Item]:
        return below(self.item(item_id).id if item_id else "", self._items)

    def add(self, new: NewItem) -> str:
        known = next((name for name, reference in self._references.items() if reference == new.reference), "")
        if new.reference and known:
            return known
        for other in filter(None, (new.parent, *new.dependencies)):
            self.item(other)
        name = f"new-{len(self._items) + 1}"
        fields = ("title", "description", "type", "priority", "parent", "tags", "dependencies")
        self._items[name] = Item(id=name, **{field: getattr(new, field) for field in fields})
        self._items = with_holders(self._items)
        self._references[name] = new.reference
        return name

    def comment(self, item_id: str, text: str) -> None:
        self.comments.setdefault(self.item(item_id).id, []).append(text)

    def parts(self, item: Item, phase: str) -> Sequence[Item]:
        return self._parts.get((item.id, phase), [item])

    def own_files(self) -> Sequence[str]:
        return []

    def _set(self, item_id: str, status: Status) -> None:
        self._items[item_id] = msgspec.structs.replace(self._items[item_id], status=status)
