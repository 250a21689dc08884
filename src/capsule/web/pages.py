"""A page as data: its parts, each a template with its values and a key that changes where the part does."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

NAV = (
    ("", "Inbox"),
    ("board", "Board"),
    ("items", "Items"),
    ("runs", "Runs"),
    ("merges", "Merge queue"),
    ("commands", "Commands"),
)
"""Where one can go from everywhere, by path."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a page that is replaced as a whole."""

    id: str
    template: str
    values: dict[str, Any] = {}
    key: object = None
    """What the values are made of; a part whose key is as it was looks as it did."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    nav: str
    """The path of the entry that it belongs to."""
    parts: tuple[Part, ...] = ()
    waiting: int = 0
    """How many questions wait for a person, wherever one is."""
    status: int = 200
    is_live: bool = True


def digest(html: str) -> str:
    return hashlib.sha256(html.encode()).hexdigest()[:16]
