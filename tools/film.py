"""Draws what a screen showed, moment by moment, as one SVG that moves: no script, no font and no file from elsewhere.

A line that looks the same in several frames is drawn once and used again, so a minute stays below a few hundred kB.
It opens on the frame with the lie, which is all that is shown to whoever wants no motion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, NamedTuple

from rich.segment import Segment

CELL, LINE, MARGIN = 8.4, 18, 10
GROUND, INK = "#121212", "#e0e0e0"
OPENING = 4.0
"""Seconds for the frame that says what it is about, before it begins."""
PAUSE = 2.0
"""Seconds that the last frame stays before it begins again."""
STYLE = "text{font:14px ui-monospace,Menlo,Consolas,monospace;white-space:pre}.b{font-weight:bold}.f{visibility:hidden}"


class Frame(NamedTuple):
    at: float
    lines: tuple[str, ...]


def drawn_line(segments: Iterable[Segment]) -> str:
    """One line of a terminal: what lies behind its words, then the words, each at its own column."""
    behind, words, column = [], [], 0
    for segment in segments:
        style, text = segment.style, segment.text
        fore, back = _colour(style and style.color), _colour(style and style.bgcolor)
        if style and style.reverse:
            fore, back = back or GROUND, fore or INK
        if style and style.dim and fore is None:
            fore = "#8a8a8a"
        x, cells = round(column * CELL, 1), segment.cell_length
        if back and back != GROUND:
            behind.append(f'<rect x="{x}" width="{round(cells * CELL, 1)}" height="{LINE}" fill="{back}"/>')
        if text.strip():
            start = len(text) - len(text.lstrip())
            shown = text.strip()
            at, length = round(x + start * CELL, 1), round((cells - (len(text) - len(shown))) * CELL, 1)
            ink = f' fill="{fore}"' if fore and fore != INK else ""
            bold = ' class="b"' if style and style.bold else ""
            words.append(f'<text x="{at}" y="14" textLength="{length}"{ink}{bold}>{escape(shown)}</text>')
        column += cells
    return "".join([*behind, *words])


def _colour(colour: Any) -> str | None:
    return None if not colour or colour.is_default else colour.get_truecolor().hex


def film(title: str, frames: Sequence[Frame], columns: int, *, still: int) -> str:
    """`still` is the number of the frame that it opens on, and that is shown to whoever wants no motion."""
    known: dict[str, int] = {}
    frames = [Frame(0.0, frames[still].lines), *(Frame(OPENING + at - frames[0].at, lines) for at, lines in frames)]
    ends = [frame.at for frame in frames[1:]] + [frames[-1].at + PAUSE]
    whole = ends[-1] - frames[0].at
    shown, steps = [], []
    for number, (frame, end) in enumerate(zip(frames, ends, strict=True)):
        uses = [
            f'<use href="#l{known.setdefault(line, len(known))}" y="{LINE * y}"/>'
            for y, line in enumerate(frame.lines)
            if line
        ]
        first, last = (100 * (moment - frames[0].at) / whole for moment in (frame.at, end))
        steps.append(
            f"@keyframes k{number}{{0%{{visibility:{'visible' if number == 0 else 'hidden'}}}"
            f"{first:.2f}%{{visibility:visible}}{last:.2f}%{{visibility:hidden}}}}"
            f"#f{number}{{animation:k{number} {whole:.1f}s step-end infinite}}"
        )
        shown.append(f'<g class="f" id="f{number}">{"".join(uses)}</g>')
    width = round(columns * CELL + 2 * MARGIN)
    height = max(len(frame.lines) for frame in frames) * LINE + 2 * MARGIN
    size = f'width="{width}" height="{height}"'
    quiet = "@media(prefers-reduced-motion:reduce){.f{animation:none!important}#f0{visibility:visible}}"
    lines = "".join(f'<g id="l{number}">{line}</g>' for line, number in known.items())
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size}>',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}{''.join(steps)}{quiet}</style>",
            f"<defs>{lines}</defs>",
            f'<rect width="100%" height="100%" rx="8" fill="{GROUND}"/>',
            f'<g transform="translate({MARGIN} {MARGIN})" fill="{INK}">',
            *shown,
            "</g>",
            "</svg>",
            "",
        ]
    )
