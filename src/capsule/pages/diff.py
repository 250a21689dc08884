"""A diff as git writes it, as files with their lines, the code of well-known languages in colours.

The text is untrusted: anything but a diff is dropped, long lines are cut, and only lexers of this table are asked,
never one that a file's name could choose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES, _TokenType

from capsule.reports.style import printable

MOST_LINES = 600
"""The most lines that are shown of one file."""
_LONGEST_LINE = 400
_MOST_COLOURED = 20_000
"""Characters of one hunk: a longer one stays plain."""
_LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".tsx"), "typescript"),
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp"), "cpp"),
    **dict.fromkeys((".yml", ".yaml"), "yaml"),
    **dict.fromkeys((".sh", ".bash"), "bash"),
    ".cs": "csharp",
    ".css": "css",
    ".go": "go",
    ".html": "html",
    ".java": "java",
    ".json": "json",
    ".php": "php",
    ".rb": "ruby",
    ".rs": "rust",
    ".sql": "sql",
    ".toml": "toml",
}
_CLASSES = {"k": "k", "s": "s", "c": "c", "m": "m", "nf": "n", "nc": "n", "nt": "n", "nd": "n"}
"""By the beginning of a token's short name in Pygments: its class in the style sheet."""
_FILE = re.compile(r"^diff --git ", re.MULTILINE)
_HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@(.*)$", re.MULTILINE)
_SIDES = {" ": "same", "+": "new", "-": "old"}


class DiffLine(NamedTuple):
    side: str
    """`same`, `new`, `old`, or `head` for the line above a hunk."""
    old: int | None
    new: int | None
    text: Markup


class File(NamedTuple):
    path: str
    lines: list[DiffLine]
    left_out: int


def files(diff: str) -> list[File]:
    """Read a diff; a file without lines (binary, mode only) has none."""
    return [_file(text) for text in _FILE.split(printable(diff).replace("\t", "    "))[1:]]


def _file(text: str) -> File:
    head = text.partition("\n")[0]
    path = head[: (len(head) - 1) // 2].strip('"').removeprefix("a/")
    lexer = _lexer(path)
    lines = [line for hunk in _hunks(text) for line in _lines(*hunk, lexer)]
    return File(path, lines[:MOST_LINES], max(0, len(lines) - MOST_LINES))


def _hunks(text: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """Yield the head of each hunk and its lines, each with its sign."""
    found = list(_HUNK.finditer(text))
    ends = (*(hunk.start() for hunk in found[1:]), len(text))
    for hunk, end in zip(found, ends, strict=False):
        rows = text[hunk.end() + 1 : end].split("\n")
        yield hunk, [row[:_LONGEST_LINE] for row in rows if row[:1] in _SIDES and row]


def _lines(hunk: re.Match[str], rows: Sequence[str], lexer: Lexer | None) -> Iterator[DiffLine]:
    old, new = int(hunk[1]), int(hunk[2])
    yield DiffLine("head", None, None, escape(hunk[3].strip()))
    before = iter(_coloured([row[1:] for row in rows if row[0] != "+"], lexer))
    after = iter(_coloured([row[1:] for row in rows if row[0] != "-"], lexer))
    for row in rows:
        side = _SIDES[row[0]]
        text = next(before) if side != "new" else None
        text = next(after) if side != "old" else text
        yield DiffLine(side, None if side == "new" else old, None if side == "old" else new, text or Markup(""))
        old, new = old + (side != "new"), new + (side != "old")


def _lexer(path: str) -> Lexer | None:
    name = _LANGUAGES.get(PurePosixPath(path).suffix.lower())
    return get_lexer_by_name(name, stripnl=False, ensurenl=False) if name else None


def _coloured(rows: Sequence[str], lexer: Lexer | None) -> list[Markup]:
    """Return the rows as markup, as many as there were."""
    text = "\n".join(rows)
    if lexer is None or len(text) > _MOST_COLOURED:
        return [escape(row) for row in rows]
    lines = [Markup("")]
    for kind, value in lexer.get_tokens(text):
        look, (first, *rest) = _look(kind), value.split("\n")
        lines[-1] += _span(look, first)
        lines += [_span(look, each) for each in rest]
    return lines if len(lines) == len(rows) else [escape(row) for row in rows]


def _look(kind: _TokenType) -> str:
    short = STANDARD_TYPES.get(kind, "")
    return next((look for start, look in _CLASSES.items() if short.startswith(start)), "")


def _span(look: str, text: str) -> Markup:
    if not look or not text.strip():
        return escape(text)
    return Markup('<span class="{}">{}</span>').format(f"hl-{look}", text)
