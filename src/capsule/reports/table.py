"""Columns that line up on a terminal, whatever script their text is written in."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

ELLIPSIS = "…"


def width_of(text: str) -> int:
    """Terminal cells, not characters: a CJK letter or an emoji takes two, a combining accent none."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def widest(texts: Sequence[str]) -> int:
    """The width of the widest; where none holds more than ASCII, nobody looks at letters."""
    return max(map(len if "".join(texts).isascii() else width_of, texts))


def fit(text: str, width: int) -> str:
    """The text, cut to so many cells; an ellipsis says that there was more."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    return text[: _longest(text, width - 1)].rstrip() + ELLIPSIS


def column(text: str, width: int) -> str:
    """The text in exactly so many cells."""
    if text.isascii():  # one cell each, the ellipsis too
        return (text if len(text) <= width else fit(text, width)).ljust(width)
    shown = fit(text, width)
    return shown + " " * (width - width_of(shown))


def _longest(text: str, width: int) -> int:
    """Count the characters from the start that fit into so many cells."""
    if text.isascii():
        return width
    used = 0
    for position, character in enumerate(text):
        used += _cells(character)
        if used > width:
            return position
    return len(text)


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if unicodedata.east_asian_width(character) in ("W", "F"):
        return 2
    return 0 if unicodedata.category(character) in ("Cf", "Me", "Mn") else 1
