"""A page as data: its parts, each a template with its values and a key that changes with the part."""

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
"""The navigation of every page, by path."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a page that is replaced as a whole."""

    id: str
    template: str
    values: dict[str, Any] = {}
    key: object = None
    """The input of the values; a part with the same key looks the same."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    nav: str
    """The path of its navigation entry."""
    parts: tuple[Part, ...] = ()
    waiting: int = 0
    """The number of questions, shown on every page."""
    status: int = 200
    is_live: bool = True


def digest(html: str) -> str:
    return hashlib.sha256(html.encode()).hexdigest()[:16]
