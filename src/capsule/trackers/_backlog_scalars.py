"""Values as text in a YAML file, readable as the same values by YAML 1.2 and by YAML 1.1.

The two disagree about words like `no`, `12:30`, `0123` and dates, and a person's file may be read by either. So a text
is left plain only where both take it for a text; everything else stands in double quotes. The parsers we know are
looser than the standards (`+-0` and `0x-1` are numbers to one), and so is the pattern here.
"""

from __future__ import annotations

import re

from capsule.core.item import Value

_INDICATORS = "-?:,[]{}#&*!|>'\"%@`"
_ENDS_A_PLAIN_TEXT = re.compile(r": | #|:$|^\s|\s$")
_PLAIN_IN_A_LIST = re.compile(r"\w+(?:[-./ ]\w+)*")
_NEVER_RAW = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff\ud800-\udfff]")
_MEANS_SOMETHING_ELSE = re.compile(
    r"""~ | = | << | null | true | false | yes | no | on | off | y | n
    | [-+]* (?: 0b[01_]+ | 0x[-+]?[\da-f_]+ | 0o?[-+]?[0-7_]+ )
    | [-+]* [\d_]* (?: : [0-5]?\d )+ (?: \.[\d_]* )?
    | [-+]* [\d_.]+ (?: e[-+]?\d* )?
    | [-+]* \.(?: inf | nan )
    | \d{4}-\d\d?-\d\d? (?: (?: t | \s+ ) \d.* )?""",
    re.VERBOSE | re.IGNORECASE | re.ASCII,
)
_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def written(value: Value) -> str:
    """The value on one line. None is written as `null`."""
    if isinstance(value, list):
        return f"[{', '.join(scalar(each, listed=True) for each in value)}]"
    if isinstance(value, dict):
        pairs = (f"{scalar(key, listed=True)}: {scalar(each, listed=True)}" for key, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else scalar(value)


def scalar(text: str, *, listed: bool = False) -> str:
    """The text as it is where that is safe, else quoted; in a list in brackets a little less is safe."""
    if _is_plain(text) and (not listed or _PLAIN_IN_A_LIST.fullmatch(text)):
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return '"' + _NEVER_RAW.sub(_escaped, inner) + '"'


def literal(text: str, indent: int, eol: str) -> str | None:
    """The text as a block of lines; None where only quotes can hold it.

    A line end at its very end is such a case: in a file without one, parsers disagree whether it is part of the text.
    """
    lines = text.split("\n")
    fits = text and not text[0].isspace() and lines[-1].strip()
    if not fits or any(_NEVER_RAW.search(line.replace("\t", "")) or line != line.rstrip() for line in lines):
        return None
    return "|-" + "".join(eol + (" " * indent + line if line else "") for line in lines)


def meant(value: Value) -> Value:
    """The value as it reads back: half a character, which no file can hold, becomes a replacement."""
    if isinstance(value, str):
        return _HALF_A_CHARACTER.sub("\ufffd", value)
    if isinstance(value, list):
        return [_HALF_A_CHARACTER.sub("\ufffd", each) for each in value]
    return value


def _is_plain(text: str) -> bool:
    return not (
        not text
        or text[0] in _INDICATORS
        or _ENDS_A_PLAIN_TEXT.search(text)
        or _NEVER_RAW.search(text)
        or _MEANS_SOMETHING_ELSE.fullmatch(text)
    )


def _escaped(found: re.Match[str]) -> str:
    code = ord(found.group())
    return "\ufffd" if 0xD800 <= code < 0xE000 else f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
