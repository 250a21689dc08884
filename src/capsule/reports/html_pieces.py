"""What pages are made of. Every word that is not ours goes through `line` or `block`, and comes out as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from capsule.core.event import cut
from capsule.reports.account_words import Look
from capsule.reports.style import clean, printable

LONGEST_LINE = 600
LONGEST_BLOCK = 4000


def line(text: str, most: int = LONGEST_LINE) -> str:
    """A stranger's words on one line: no markup, no control character, and not the whole of a novel."""
    words = clean(printable(text))
    return escape(words if len(words) <= most else f"{words[: most - 1]}…")


def with_code(text: str) -> str:
    """The same, with what stands in backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", line(text))


def block(text: str, most: int = LONGEST_BLOCK) -> str:
    """A stranger's words with their lines."""
    return f'<pre dir="auto">{escape(printable(cut(text.strip(), most)))}</pre>'


def chip(look: Look, word: str) -> str:
    return f'<span class="chip {look.name}">{look.sign} {line(word)}</span>'


def sign(look: Look, meaning: str) -> str:
    """With its meaning for those who listen to the page."""
    return f'<span class="sign {look.name}" role="img" aria-label="{line(meaning)}">{look.sign}</span>'


def tiles(rows: Iterable[tuple[str, str, str]]) -> str:
    """Figures to be taken in at a glance: what it is, the figure, and what belongs to it. Already escaped."""
    shown = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{figure}</dd>{f"<dd>{more}</dd>" if more else ""}</div>'
        for name, figure, more in rows
    )
    return f'<dl class="tiles">{shown}</dl>'


def table(kind: str, caption: str, heads: Iterable[tuple[str, str]], rows: Iterable[str]) -> str:
    """`heads` are a class and a text each; all of it already escaped."""
    cells = "".join(f'<th scope="col"{f" class={name}" if name else ""}>{text}</th>' for name, text in heads)
    body = "\n".join(rows)
    return (
        f'<table class="{kind}"><caption>{caption}</caption>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def skipped(columns: int, words: str) -> str:
    return f'<tr class="skipped"><td colspan="{columns}" class="full">⋯ {words}</td></tr>'


def ring(share: float, words: str) -> str:
    """A share as an arc; the words say the same."""
    length = 2 * 3.14159265 * 15
    return (
        f'<svg class="ring" viewBox="0 0 36 36" role="img"><title>{line(words)}</title>'
        f'<circle cx="18" cy="18" r="15"/><circle class="share" cx="18" cy="18" r="15" transform="rotate(-90 18 18)" '
        f'stroke-dasharray="{share * length:.2f} {length:.2f}"/></svg>'
    )


def shares(parts: Iterable[tuple[str, int]], whole: int, words: str, height: int = 10) -> str:
    """Parts of a whole side by side, each by the class of its colour."""
    left, rects = 0.0, []
    for look, number in parts:
        width = 100 * number / whole if whole else 0.0
        if number:
            rects.append(f'<rect class="{look}" x="{left:.2f}%" width="{max(width, 0.5):.2f}%" height="{height}"/>')
        left += width
    return (
        f'<svg class="lane" role="img" width="100%" height="{height}"><title>{line(words)}</title>'
        f"{''.join(rects)}</svg>"
    )
