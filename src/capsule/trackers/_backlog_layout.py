"""Where in the text of BACKLOG.yaml each item and each of its fields stands.

The parser says what the file means but not where. Where is found by indentation: the items are the lines that start
with a dash at the list's own indent, and an item's fields are the lines at its keys' indent. YAML allows nothing else
at these two places (texts of several lines are indented further), and whoever uses the places checks them: as many
dashes as items, the same names as the parser's, and after a change the block must read as it was meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from capsule.trackers._backlog_braces import in_brackets, put_on_lines

_KEY = r"""("[^"\\\n]*"|'[^'\n]*'|[^\s"'#\[\]{}&*!|>%@`,?-][^\n]*?)[ \t]*:(?=[ \t\r\n]|\Z)"""
_TOP_KEY = re.compile("\n" + _KEY)
_FIELD_KEY = re.compile(_KEY)
_ITEMS = re.compile(r"^(?:items|\"items\"|'items')[ \t]*:(?:[ \t][^\n]*|\r)?(?:\n|\Z)", re.MULTILINE)
_FIRST_DASH = re.compile(r"(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)-(?=[ \t\r\n]|\Z)")

# Reading a file without faults does without these: they are compiled where they are first used, and `re` remembers.
_DASH_BEFORE_KEY = r" *-(?: +|[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)* +)(?=[^\s#])"
_OPENING = r"[^:\n]*:([ \t]*)(?=\[)"
_COMMENT = r"( *)#"
_KEEPS_BLANKS = r":[ \t]+[|>][1-9]?\+"
_LINE_AT = r"\n {%d}(?![\s#]|-[ \t\r\n]|-\Z)"
"""The start of a line with a key at some indent: no comment, no blank line, no entry of a list."""
_VALUE = r"""[ \t]*("(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'|(?![\[{])[^\n]*?)([ \t]+\#[^\n]*|[ \t]*)\r?\n?"""
_REMARK = r"([ \t]+#[^\n]*|[ \t]*)\r?\n?"


class Field(NamedTuple):
    """A field in its item's text: the lines are `text[start:end]`, the value follows the colon that ends at `colon`."""

    name: str
    start: int
    colon: int
    end: int


class Layout(NamedTuple):
    """Where the items stand: `starts[n]` is where the line of the nth dash starts."""

    indent: int
    starts: tuple[int, ...]
    end: int

    def span(self, number: int) -> tuple[int, int]:
        following = self.starts[number + 1] if number + 1 < len(self.starts) else self.end
        return self.starts[number], following


def eol_of(text: str) -> str:
    first = text.find("\n")
    return "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"


def laid_out(text: str) -> Layout | None:
    """Where the list of items is, if it is written with dashes."""
    key = _ITEMS.search(text)
    first = _FIRST_DASH.match(text, key.end()) if key else None
    if first is None:
        return None
    indent = len(first.group(1))
    outside = re.compile(rf"\n(?! {{{indent}}}(?: |-[ \t\r\n]|-\Z)) {{0,{indent}}}[^ \t\r\n#]").search(
        text, first.start(1)
    )
    end = outside.start() + 1 if outside else len(text)
    dash = re.compile(rf"\n {{{indent}}}-(?=[ \t\r\n]|\Z)")
    starts = tuple(found.start() + 1 for found in dash.finditer(text, first.start(1) - 1, end))
    return Layout(indent, starts, end)


def items_key(text: str) -> tuple[int, int] | None:
    """Where the line `items:` starts and ends."""
    found = _ITEMS.search(text)
    return found.span() if found else None


def fields_of(block: str) -> list[Field] | None:
    """The fields of an item that is written with one key a line; None where it is not."""
    dash = re.match(_DASH_BEFORE_KEY, block)
    if dash is None:
        return None
    indent = dash.end() - (block.rfind("\n", 0, dash.end()) + 1)
    starts = [dash.end(), *(found.end() for found in re.compile(_LINE_AT % indent).finditer(block, dash.end()))]
    keys = [_FIELD_KEY.match(block, start) for start in starts]
    lines = [start - indent if number else start for number, start in enumerate(starts)]
    if not all(keys):
        return None
    ends = [_trimmed(block, start, end, indent) for start, end in pairwise([*lines, len(block)])]
    found = zip((key for key in keys if key), lines, ends, strict=True)
    return [Field(quoted_key(key.group(1)), start, key.end(), end) for key, start, end in found]


def key_lines(text: str, start: int, end: int) -> int:
    """How many lines of this item start with a key; 0 where it is written otherwise."""
    dash = re.compile(_DASH_BEFORE_KEY).match(text, start, end)
    if dash is None:
        return 0
    indent = dash.end() - (text.rfind("\n", 0, dash.end()) + 1)
    return 1 + len(re.compile(_LINE_AT % indent).findall(text, dash.end(), end))


def all_key_lines(text: str, layout: Layout) -> int | None:
    """How many lines of all items start with a key, or a few more; None where an item does not start with `- name`.

    Counting whole texts takes no time. Lines that are hard to tell apart (blank ones with spaces in them) count too:
    whoever finds more lines than keys has to look closer anyway.
    """
    after_dash = layout.indent + 1
    heads = {text[start + after_dash : start + after_dash + 2] for start in layout.starts}
    if not all(head[:1] == " " and head[1:].isalpha() for head in heads):
        return None
    line = "\n" + " " * (layout.indent + 2)
    lines, *others = (
        text.count(each, layout.starts[0], layout.end) for each in (line, f"{line} ", f"{line}#", f"{line}- ")
    )
    return len(layout.starts) + lines - sum(others)


def content_end(block: str, indent: int) -> int:
    """Where an item's own lines end, comments at its fields' indent included; what is left belongs to what follows."""
    fields = fields_of(block)
    return _trimmed(block, fields[-1].start if fields else 0, len(block), indent)


def key_indent(block: str, fields: list[Field]) -> int:
    return fields[0].start - (block.rfind("\n", 0, fields[0].start) + 1)


def without_brackets(text: str) -> str:
    """`items: [{...}, {...}]` with one item a line; any other text as it is."""
    key = items_key(text)
    opening = re.compile(_OPENING).match(text, key[0]) if key else None
    found = in_brackets(text, opening.end()) if opening else None
    if opening is None or found is None:
        return text
    eol = eol_of(text)
    lines = "".join(f"{eol}  - {put_on_lines(part, 6, eol)}" for part in found[0])
    return text[: opening.start(1)] + lines + text[found[1] :]


# ---- lines


def top_keys(text: str) -> Iterator[tuple[str, int]]:
    first = _FIELD_KEY.match(text)
    if first:
        yield quoted_key(first.group(1)), 0
    for found in _TOP_KEY.finditer(text):
        yield quoted_key(found.group(1)), found.start() + 1


def quoted_key(name: str) -> str:
    """The text of a key as YAML may have written it."""
    if name.startswith('"'):
        import json  # noqa: PLC0415 - hardly anybody quotes a key

        return str(json.loads(name))
    return name[1:-1].replace("''", "'") if name[:1] == "'" else name


def _trimmed(block: str, start: int, end: int, indent: int) -> int:
    """Where a field ends that has its lines in here: comments and blank lines after it belong to what follows."""
    after_key = block.find("\n", start, end) + 1
    if after_key and re.compile(_KEEPS_BLANKS).search(block, start, after_key):
        outside = re.compile(rf" {{0,{indent}}}\S")
        return next((at for at in _line_starts(block, after_key, end) if outside.match(block, at)), end)
    while start < (line := block.rfind("\n", start, end - 1) + 1) < end:
        comment = re.compile(_COMMENT).match(block, line, end)
        if block[line:end].strip() and not (comment and len(comment.group(1)) <= indent):
            break
        end = line
    return end


def _line_starts(text: str, start: int, end: int) -> Iterator[int]:
    while start < end:
        yield start
        start = text.find("\n", start, end) + 1 or end


def value_and_comment(text: str) -> tuple[str, str] | None:
    """What stands after a key's colon on its line, apart from the remark behind it; None where it goes on below."""
    start = len(text) - len(text.lstrip(" \t"))
    closed = in_brackets(text, start) if text[start : start + 1] in ("[", "{") else None
    remark = re.compile(_REMARK).fullmatch(text, closed[1]) if closed else None
    if closed and remark and "\n" not in text[: closed[1]]:
        return text[start : closed[1]], remark.group(1).rstrip()
    found = re.fullmatch(_VALUE, text)
    return (found.group(1), found.group(2).rstrip()) if found else None
