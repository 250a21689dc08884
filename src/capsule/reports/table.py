"""Columns that line up on a terminal in any script."""

from __future__ import annotations

import unicodedata
from collections import deque
from collections.abc import Sequence

ELLIPSIS = "…"


def width_of(text: str) -> int:
    """Count terminal cells, not characters: a CJK letter or an emoji takes two, a combining accent none."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def widest(texts: Sequence[str]) -> int:
    """Return the width of the widest text."""
    return max(map(len if all(map(str.isascii, texts)) else width_of, texts))


def fit(text: str, width: int) -> str:
    """Cut the text to so many cells; an ellipsis marks the cut."""
    if width_of(text) <= width:
        return text
    if width < 1:
        return ""
    return text[: _longest(text, width - 1)].rstrip() + ELLIPSIS


def fit_end(text: str, width: int) -> str:
    """Keep the end of the text, as of a path, whose names differ there; an ellipsis marks the cut."""
    if width_of(text) <= width:
        return text
    return ELLIPSIS + text[::-1][: _longest(text[::-1], width - 1)][::-1].lstrip() if width > 0 else ""


def column(text: str, width: int) -> str:
    """Pad or cut the text to exactly so many cells."""
    if text.isascii():  # one cell each, the ellipsis too
        return (text if len(text) <= width else fit(text, width)).ljust(width)
    shown = fit(text, width)
    return shown + " " * (width - width_of(shown))


def aligned(texts: Sequence[str], width: int) -> list[str]:
    """Pad or cut all texts of a column to exactly so many cells."""
    if all(map(str.isascii, texts)) and max(map(len, texts)) <= width:
        return [text.ljust(width) for text in texts]
    return [column(text, width) for text in texts]


def wrap(text: str, width: int, first: str = "", rest: str = "", *, whole: bool = False) -> list[str]:
    """Wrap the text to so many cells, behind `first` or `rest`; return nothing without a word.

    A word that is longer than a line is broken; `whole` leaves one that can be copied, as a path or an id, as it is: it
    stands alone, moved to the left as far as it takes.
    """
    lines: list[str] = []
    line, empty, words = first, True, deque(text.split())
    while words:
        word = words.popleft()
        if width_of(line) + (not empty) + width_of(word) <= width:
            line, empty = f"{line}{'' if empty else ' '}{word}", False
        elif not empty:
            lines.append(line)
            line, empty = rest, True
            words.appendleft(word)
        elif whole and word.isascii():
            if line.strip() or width_of(rest) < width_of(line):
                lines.append(line.rstrip())
                line = rest
            room = width - width_of(word)
            line, empty = (line[:room] if room >= 0 else line) + word, False
        else:
            cut = max(1, _longest(word, width - width_of(line)))
            lines.append(line + word[:cut])
            line = rest
            words.extendleft([word[cut:]] if word[cut:] else [])
    return lines if empty else [*lines, line]


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
