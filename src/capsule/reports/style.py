"""Colours on interactive terminals only, and no control characters of untrusted text."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from capsule.core.status import Tone
from capsule.reports.table import width_of, wrap

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34"}
TONES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.WARN: "yellow", Tone.LIVE: "blue", Tone.QUIET: "dim"}
_SEQUENCES = r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)?"
_CONTROL = rf"{_SEQUENCES}|[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069]"
"""Escape sequences, control characters, and characters that are invisible or change direction."""
_LABEL = r" *\S+(?: \S+)? {2,}"
"""A word or two before a column of text."""
_STEERING = rf"{_SEQUENCES}|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
"""The same without those that are merely invisible: text that keeps its lines may need them."""


_WITH_LINKS = ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "xterm-kitty", "xterm-ghostty", "foot")
_MARKS = {"WT_SESSION", "KITTY_WINDOW_ID", "KONSOLE_VERSION", "DOMTERM"}
"""Variables that terminals with links set."""


class Style:
    def __init__(self, stream: TextIO, colour: bool | None = None) -> None:
        wanted = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._colour = wanted if colour is None else colour

    def paint(self, colour: str, text: str) -> str:
        code = _CODES.get(colour)
        return f"\x1b[{code}m{text}\x1b[0m" if self._colour and code else text


def knows_links(stream: TextIO) -> bool:
    """Tell whether a terminal is known to show a link (OSC 8); others may print its address as text."""
    if not stream.isatty() or os.environ.get("TMUX") or os.environ.get("STY"):
        return False
    by_name = os.environ.get("TERM_PROGRAM") in _WITH_LINKS or os.environ.get("TERM", "") in _WITH_LINKS
    vte = os.environ.get("VTE_VERSION", "")
    return by_name or (vte.isdecimal() and int(vte) >= 5000) or bool(_MARKS.intersection(os.environ))


def linked(text: str, uri: str) -> str:
    return f"\x1b]8;;{uri}\x1b\\{text}\x1b]8;;\x1b\\"


def output_width(stream: TextIO) -> int:
    """Return the columns of the terminal; in a pipe nothing is wrapped or cut."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (ValueError, OSError):
        return sys.maxsize


def clean(text: str) -> str:
    """Return untrusted text on one line, unable to move the cursor or repaint the screen."""
    if text.isprintable() and "  " not in text:
        return text.strip()
    return " ".join(re.sub(_CONTROL, "", text).split())


def shortened(text: str, most: int) -> str:
    """Return untrusted text on one line of at most so many characters."""
    shown = clean(text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def wrapped(text: str, width: int, indent: str = "", hang: str = "  ") -> list[str]:
    """Return untrusted text, wrapped, with a hanging indent."""
    told = clean(text)
    line = f"{indent}{told}"
    return [line.rstrip()] if width_of(line) <= width else wrap(told, width, indent, indent + hang)


def fitted(text: str, stream: TextIO) -> str:
    """Return our lines, folded at the terminal's width with a hanging indent; unchanged in a pipe."""
    return folded(text, output_width(stream))


def folded(text: str, width: int) -> str:
    """Return our lines, folded after so many columns with a hanging indent."""
    if len(text) * 2 <= width:  # wide characters fit, too, as in a pipe
        return text
    return "\n".join(each for line in text.split("\n") for each in _folded(line, width))


def reflowed(text: str, stream: TextIO) -> str:
    """Refill our paragraphs for a narrow terminal; keep indented lines."""
    width = output_width(stream)
    if all(width_of(line) <= width for line in text.split("\n")):
        return text
    blocks = text.split("\n\n")
    return "\n\n".join(
        fitted(each, stream) if "\n " in f"\n{each}" else "\n".join(wrap(each, width)) for each in blocks
    )


def _folded(line: str, width: int) -> list[str]:
    if width_of(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    label = re.match(_LABEL, line)
    head = label[0] if label and len(label[0]) <= width // 2 else line[:indent]
    hang = " " * (len(head) if label and head == label[0] else indent + 2)
    return wrap(line[len(head) :], width, head, hang, whole=True) or [line]


def printable(text: str) -> str:
    """Return untrusted text with its lines and indentation, without control sequences."""
    return text if text.isprintable() else re.sub(_STEERING, "", text)
