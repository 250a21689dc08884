"""Describe changes to a tracker's files as data. Each may be applied twice: after a crash all are applied again."""

from __future__ import annotations

import msgspec

from capsule.core.item import Value


class Assign(msgspec.Struct, frozen=True, tag="assign", tag_field="what"):
    """Set fields of an item, as in `WRK-001.phase = design`. None empties a field."""

    item: str
    values: dict[str, Value]


class Exists(msgspec.Struct, frozen=True, omit_defaults=True, tag="exists", tag_field="what"):
    """Add an item with these values, under an id that the tracker gives it."""

    key: str
    """Unique for ever: `WRK-001/build#2/0`."""
    values: dict[str, Value]
    unless_known: bool = False
    """Not where an item of the same title is there, or was archived."""


class Absent(msgspec.Struct, frozen=True, tag="absent", tag_field="what"):
    """Take the item out of the backlog."""

    item: str


class LogEntry(msgspec.Struct, frozen=True, tag="log_entry", tag_field="what"):
    """Add a paragraph to the project's worklog, the newest on top."""

    month: str
    """`2026-11`, which is the name of the file."""
    text: str


Assignment = Assign | Exists | Absent | LogEntry
