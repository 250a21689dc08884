r"""Find the last JSON object in arbitrary text.

**What counts.** A *container* is a stretch of the text that is, from its first bracket to its last, an object or an
array as RFC 8259 writes them. A container is *top-level* unless it lies inside another one, be it as a member or within
one of its strings. Of the top-level objects, the one that ends last is the answer. Everything around it is prose.

**How it is found.** What an agent prints is long, the object is short and stands near the end, and whatever ends last
cannot lie inside anything else. So we read backwards and stop as soon as nothing still open could enclose what we hold.

*Quotes.* Going backwards, a bracket inside a string looks like any other. But a quote is a delimiter unless an
odd run of backslashes precedes it, so a wrong guess about one bracket is wrong about all of them: there are exactly
two *readings* of the text, and each delimiter swaps which of them has us outside a string. Every container is seen by
one reading. Both are followed side by side, and a bracket concerns only the reading that is outside at that point.

*Grammar.* JSON is checked from bracket to bracket. What may stand between two neighbours depends only on the kind of
container they are in, so one regular expression for objects and one for arrays is the whole grammar. A gap that does
not match refutes every container open across it, and the reading forgets them; an opener that finds its closer still
waiting has been proven all the way, without recursion.

Each byte is looked at once to find the brackets and a fixed number of times to match its gap in either reading: the
cost is linear on any input, and all that grows is two stacks of four-byte positions.

**What comes back** is plain data that any encoder can write again: numbers that fit no 64-bit type stay as written,
a surrogate without its partner and a byte that is no UTF-8 become U+FFFD, and of duplicate keys the last one counts. An
object nested deeper than DEEPEST is there, and hides what it encloses, but is not read: the answer is None.
"""

from __future__ import annotations

import json
import re
from array import array
from functools import cache
from itertools import accumulate, compress
from math import isfinite
from typing import Final

WINDOW: Final = 16 * 1024 * 1024
"""How much of the end of a text is searched, in bytes. An object that begins before it is not seen as a whole."""

DEEPEST: Final = 200
"""Far more than any signal needs, far less than makes an encoder give up."""


def last_object(data: bytes | bytearray, *, quoted: bool = True) -> dict[str, object] | None:
    """Return the last top-level JSON object in `data`; None if there is none. Never raises.

    Unless `quoted` ones count, a line that begins with `>` is left out: it quotes another speaker.
    """
    text = re.sub(_ESCAPE_SEQUENCE, b"", bytes(data[-WINDOW:]))
    span = _last_span(text)
    if span and not quoted and text[text.rfind(b"\n", 0, span[0]) + 1 : span[0]].lstrip().startswith(b">"):
        text = re.sub(_QUOTATION, b"\n>", b"\n" + text)  # the mark stays, so that no object is made around it
        span = _last_span(text)
    return _load(text[slice(*span)]) if span else None


def trailing_object(data: bytes | bytearray) -> dict[str, object] | None:
    """Return the last top-level JSON object, if only space and the end of a code fence follow it."""
    text = re.sub(_ESCAPE_SEQUENCE, b"", bytes(data[-WINDOW:]))
    span = _last_span(text)
    if span is None or text[span[1] :].strip(b" \t\r\n`"):
        return None
    return _load(text[slice(*span)])


# --- what may stand between two neighbouring brackets ---------------------------------------------------------------

_SPACE = rb"[ \t\n\r]*+"
_PLAIN = rb'[^"\\\x00-\x1f]*+'
_STRING = rb'"' + _PLAIN + rb'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})' + _PLAIN + rb')*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rb"(?:" + _STRING + rb"|" + _NUMBER + rb"|true|false|null)"


def _gap(opener: bytes, closer: bytes, name: bytes) -> re.Pattern[bytes]:
    """Match from one bracket to the next within one kind of container; `name` is what precedes each value there.

    The left bracket is the container's own opener or closes a child, the right one is its own closer or opens a
    child.
    """
    comma, item = rb"," + _SPACE, _SCALAR + _SPACE
    items = rb"(?:" + name + item + comma + rb")*+" + name + rb"(?:" + item + closer + rb"|[\[{])"
    start = rb"(?:" + opener + _SPACE + rb"|[\]}]" + _SPACE + comma + rb")"
    return re.compile(start + items + rb"|(?:" + opener + rb"|[\]}])" + _SPACE + closer)


_QUOTE, _OPENS_OBJECT, _ENDS_OBJECT, _ENDS_ARRAY = b'"{}]'


@cache
def _gaps() -> dict[int, re.Pattern[bytes]]:
    """Return what may stand in each kind of container; compiled where there is output to scan."""
    return {
        _ENDS_OBJECT: _gap(rb"{", rb"}", name=_STRING + _SPACE + rb":" + _SPACE),
        _ENDS_ARRAY: _gap(rb"\[", rb"\]", name=rb""),
    }


# --- reading backwards ----------------------------------------------------------------------------------------------

_IS_MARK = bytes(byte in b'"{}[]' for byte in range(256))


def _last_span(text: bytes) -> tuple[int, int] | None:
    """Return where the last top-level object begins and ends."""
    outside, inside = array("i"), array("i")  # per reading: the closers that wait for their opener, outermost first
    first, last, gaps = -1, -1, _gaps()
    begin = min((at for at in (text.find(b"{"), text.find(b"[")) if at >= 0), default=0)
    stop = max(text.rfind(b"}"), text.rfind(b"]")) + 1
    if b"{" not in text or b"}" not in text:
        begin = stop
    # Escapes are paired off from the left, so what remains of an odd run of backslashes hides the quote behind it.
    unescaped = text[begin:stop].replace(rb"\\", b"..").replace(rb"\"", b"..")
    for position in compress(range(stop - 1, begin - 1, -1), unescaped[::-1].translate(_IS_MARK)):
        mark = text[position]
        if mark == _QUOTE:
            outside, inside = inside, outside
            continue
        if outside and not gaps[text[outside[-1]]].match(text, position):
            del outside[:]
        if mark in gaps:
            outside.append(position)
        elif outside and (end := outside.pop()) > last:
            first, last = (position, end) if mark == _OPENS_OBJECT else (-1, -1)
        if last >= 0 and not (outside and outside[0] > last) and not (inside and inside[0] > last):
            break  # nothing still open could enclose it
    return (first, last + 1) if last >= 0 else None


# --- from bytes to data ---------------------------------------------------------------------------------------------

# Colour and cursor codes, hyperlinks and titles, character sets. None of them may swallow a brace: a sequence that was
# cut off just before the object must not cost us the object.
_ESCAPE_SEQUENCE = rb"\x1b(?:\[[0-?]*+[ -/]*+[@-Z^-z~]|\][^\x07\x1b\r\n{}]*+(?:\x07|\x1b\\)|[()][0-9A-Z])"
_QUOTATION = rb"\n[ \t]*>[^\n]*"
_STRING_OR_BRACKET = _STRING + rb"|[][{}]"
_STEP = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}
_SURROGATES = r"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][0-7]..|\\u[^dD]...|\\[^u])|\\u...."


def _load(document: bytes) -> dict[str, object] | None:
    depths = accumulate(_STEP.get(found[0], 0) for found in re.finditer(_STRING_OR_BRACKET, document))
    if any(depth > DEEPEST for depth in depths):
        return None
    text = re.sub(_SURROGATES, lambda escape: escape[1] or r"\ufffd", document.decode("utf-8", "replace"))
    loaded: dict[str, object] = json.loads(text, parse_int=_integer, parse_float=_float)
    return loaded


def _integer(digits: str) -> int | str:
    # Twenty characters hold every 64-bit number; int() itself gives up on thousands of digits.
    fits = len(digits) <= 20 and -(2**63) <= int(digits) < 2**64
    return int(digits) if fits else digits


def _float(digits: str) -> float | str:
    number = float(digits)
    return number if isfinite(number) else digits
