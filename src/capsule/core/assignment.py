"""Describe changes to a tracker's files as data. Each may be applied twice: after a crash all are applied again."""

from __future__ import annotations

import msgspec

from capsule.core.item import Value


class Assign(msgspec.Struct, frozen=True, tag="assign", tag_field="what"):
    """Fields of an item and their values, such as `WRK-001.phase = design`. null empties a field."""

    item: str
    values: dict[str, Value]


class Exists(msgspec.Struct, frozen=True, omit_defaults=True, tag="exists", tag_field="what"):
    """A new item with these values; the tracker gives it an id."""

    key: str
    """Unique, such as `WRK-001/build#2/0`."""
    values: dict[str, Value]
    unless_known: bool = False
    """Skip it if an item with the same title exists or was archived."""
    id: str = ""
    """The id to restore, if the item comes back."""


class Absent(msgspec.Struct, frozen=True, tag="absent", tag_field="what"):
    """The item is removed from the backlog."""

    item: str


class LogEntry(msgspec.Struct, frozen=True, tag="log_entry", tag_field="what"):
    """An entry of the project's worklog, newest on top."""

    month: str
    """`2026-11`, the name of the file."""
    text: str


Assignment = Assign | Exists | Absent | LogEntry
