"""Where work comes from: one file per tracker, each a class that keeps the promises of `capsule.adapters.Tracker`.

A provider's quirks end here: this folder returns an `Item` with a checked id and a status of ours. `BaseTracker` builds
everything on a few methods, and below it are the refusals that all trackers share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from capsule.core.errors import Refused, UnknownItem
from capsule.core.item import Item, ItemValues, Lineage, NewItem, Status, below, check_id, lineage_of
from capsule.core.stamps import moment
from capsule.core.text import nearest
from capsule.core.tracker_traits import TrackerTraits

NEW_BACKLOG = b"""\
# What is to be done: each item is worked on in turn, and leaves this file when it is done.
# `capsule add "A title"` adds one; edit the rest by hand as you like, comments included.
schema_version: 1
last_id: 0
items: []
"""
"""BACKLOG.yaml as `init` makes it, which must not load all that reads and edits one."""


class BaseTracker(ABC):
    """Implement the first five methods, and override others that your provider does better.

    `comment` and `own_files` may be left out; `writing` is needed where two processes may write at once.
    """

    name: str
    traits = TrackerTraits()

    @abstractmethod
    def all_items(self) -> Mapping[str, Item]:
        """Read every item by its id, closed ones included, in the tracker's own order."""

    @abstractmethod
    def set_status(self, item_id: str, status: Status, reason: str = "") -> None:
        """Set a new status; `reason` says why it is closed."""

    @abstractmethod
    def create(self, new: NewItem) -> str:
        """Add an item and return its id; or return the id of the existing one with its reference."""

    def comment(self, item_id: str, text: str) -> None:  # noqa: ARG002
        """Keep a remark for the people who read the item; by default there is no place for it."""
        self.item(item_id)

    def own_files(self) -> Sequence[str]:
        """Name the paths in the project that are the tracker's."""
        return ()

    def change(self, item_id: str, values: ItemValues) -> None:  # noqa: ARG002
        """Set fields of an item; by default a tracker's items are changed in the tracker itself."""
        raise cannot_change(self.item(item_id).id, self.name, self.traits)

    def writing(self) -> AbstractContextManager[object]:
        """Keep other processes from changing items meanwhile; your own `comment` and `change` enter it themselves."""
        return nullcontext()

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    def items(self) -> Sequence[Item]:
        return [item for item in self.all_items().values() if item.status is not Status.DONE]

    def everything(self) -> Sequence[Item]:
        return self.items()

    def item(self, item_id: str) -> Item:
        items = self.all_items()
        if check_id(item_id) in items:
            return items[item_id]
        raise unknown(item_id, items)

    def knows(self, item_id: str) -> bool:
        return item_id in self.all_items()

    def closed_as(self, item_id: str) -> str:  # noqa: ARG002
        return ""

    def done_since(self, at: str) -> Sequence[tuple[str, str]]:
        return lately_done(self.all_items().values(), at)

    def gone(self) -> Sequence[tuple[str, str, str]]:
        return []

    def lineage(self, item: Item) -> Lineage:
        return lineage_of(item, self.all_items())

    def under(self, item_id: str) -> Sequence[Item]:
        return below(self.item(item_id).id if item_id else "", self.all_items())

    def parts(self, item: Item, phase: str) -> Sequence[Item]:  # noqa: ARG002
        return [item]

    def claim(self, item_id: str) -> None:
        with self.writing():
            status = self.item(item_id).status
            if status is Status.DONE:
                raise already_closed(item_id)
            if status is not Status.IN_PROGRESS:
                self.set_status(item_id, Status.IN_PROGRESS)

    def release(self, item_id: str) -> None:
        with self.writing():
            if self.item(item_id).status is Status.IN_PROGRESS:
                self.set_status(item_id, Status.READY)

    def reopen(self, item_id: str) -> None:
        with self.writing():
            if self.item(item_id).status is Status.BLOCKED:
                self.set_status(item_id, Status.READY)

    def close(self, item_id: str, reason: str) -> None:
        with self.writing():
            if self.item(item_id).status is not Status.DONE:
                self.set_status(item_id, Status.DONE, reason)

    def add(self, new: NewItem) -> str:
        with self.writing():
            for other in filter(None, (new.parent, *new.dependencies)):
                self.item(other)
            return self.create(new)


def lately_done(items: Iterable[Item], at: str) -> list[tuple[str, str]]:
    """List id and title of the items that are done, and were changed since then, the newest first."""
    done = [item for item in items if item.status is Status.DONE and moment(item.updated) >= moment(at)]
    return [(item.id, item.title) for item in sorted(done, key=lambda item: item.updated, reverse=True)]


def unknown(item_id: str, known: Iterable[str]) -> UnknownItem:
    near = nearest(item_id, known, 3)
    hint = f"Did you mean {' or '.join(near)}?" if near else "`capsule status` lists what there is."
    return UnknownItem(f"There is no item {item_id}.", hint)


def cannot_change(item_id: str, name: str, traits: TrackerTraits) -> Refused:
    there = traits.own_command("edit", item_id, ".")
    return Refused(f"{item_id} cannot be changed from here: its tracker is {name}.", f"Change it there{there}")


def already_closed(item_id: str) -> Refused:
    return Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
