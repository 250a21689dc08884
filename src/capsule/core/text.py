"""Clean untrusted text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROL = "[\x00-\x08\x0b-\x1f\x7f-\x9f]"
_LONE_SURROGATE = "[\ud800-\udfff]"


def without_controls(text: str) -> str:
    """Remove control characters except line ends and tabs: they break command lines and steer terminals."""
    return re.sub(_CONTROL, "", text)


def cleaned(text: str) -> str:
    """Replace lone surrogates, which JSON can hold and nothing can write, and control characters."""
    return text if text.isprintable() else re.sub(_LONE_SURROGATE, "\ufffd", without_controls(text))


def sentence(text: str) -> str:
    """End the text with a full stop if it has no end mark."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def one_line(text: str) -> str:
    """Put all of it on one line, without what does not print."""
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def count(number: int, noun: str) -> str:
    """`1 item`, `1,200 items`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def times(number: int) -> str:
    """`once`, `twice`, `3 times`."""
    return {1: "once", 2: "twice"}.get(number, f"{number:,} times")


def shortened(text: str, most: int) -> str:
    """Cut the text to so many characters, dots included."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def nearest(word: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Return the known words that are close to this one."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed after a mistake only

    return get_close_matches(word, list(known), most)


def did_you_mean(word: str, known: Iterable[str], otherwise: str, quote: str = "`") -> str:
    """Return a hint that names the closest known word; `otherwise` where there is none."""
    near = nearest(word, known)
    return f"Did you mean {quote}{near[0]}{quote}?" if near else otherwise
