"""What stands in braces and brackets, taken apart without losing how it was written: `0123` stays `0123`."""

from __future__ import annotations

import re

# Few files need these: they are compiled where they are first used, and `re` remembers them.
_PIECE = r"""(?xs)(?P<text> "(?:[^"\\]|\\.)*" | '(?:[^']|'')*' ) | (?P<comment> (?<=\s)\#[^\n]* ) | (?P<open> [\[{] )
    | (?P<close> [\]}] ) | (?P<comma> , ) | (?P<plain> [^\s\[\]{},"'][^\s\[\]{},]* ) | (?P<space> \s+ )"""
_FLOW_ITEM = r"( *)- (?=\{)"
_LINE_END = r"[ \t]*\r?\n[ \t]*"
_PAIR = r"""(?s)("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*:\s*(.*)|(.*?):(?:\s+(.*)|$)"""


def in_brackets(text: str, at: int) -> tuple[list[str], int] | None:
    """The parts between the bracket at this place and the one that closes it, and where that ends."""
    parts, depth = [""], 0
    for token in re.compile(_PIECE).finditer(text, at):
        kind = token.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth == 0:
            return [part.strip() for part in parts if part.strip()], token.end()
        if kind == "comma" and depth == 1:
            parts.append("")
        elif kind != "comment" and not (kind == "open" and depth == 1):
            parts[-1] += token.group()
    return None


def pair(part: str) -> tuple[str, str]:
    """Key and value of `key: value`, both as they are written."""
    found = re.fullmatch(_PAIR, part)
    if found is None:
        return part, "null"
    key, value = (found.group(1), found.group(2)) if found.group(1) else (found.group(3), found.group(4))
    return key.strip(), (value or "null").strip()


def unfolded(block: str, eol: str) -> str:
    """`- {id: X, title: Y}` with one key a line, each value as it was written; any other block as it is."""
    dash = re.match(_FLOW_ITEM, block)
    found = in_brackets(block, dash.end()) if dash else None
    if dash is None or found is None:
        return block
    parts, closed = found
    indent = len(dash.group(1)) + 2
    first, *others = [f"{key}: {put_on_lines(value, indent + 2, eol)}" for key, value in map(pair, parts)]
    remark, end = block[closed:].rstrip("\r\n"), eol if block.endswith("\n") else ""
    return f"{dash.group()}{first}{remark}" + "".join(f"{eol}{' ' * indent}{line}" for line in others) + end


def put_on_lines(text: str, indent: int, eol: str) -> str:
    """The text with its second and later lines at this indent."""
    return re.sub(_LINE_END, lambda _: eol + " " * indent, text)
