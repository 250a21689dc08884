"""Words of strangers, fit to be handed on."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def without_controls(text: str) -> str:
    """Line ends and tabs stay. A NUL could go into no command line, and the rest only steers terminals."""
    return _CONTROL.sub("", text)


def sentence(text: str) -> str:
    """Somebody else's words, ended, so that others can follow."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def one_line(text: str) -> str:
    """All of it on one line, and nothing in it that does not print."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """What somebody may have meant who wrote this word."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed after a mistake only

    return get_close_matches(word, list(known), most)
