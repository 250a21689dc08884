"""Time as a picture: where on a line each thing lies, and the line itself.

Stamps have whole seconds and phases take less, so a mission's attempts are laid out one after the other: each begins
where its stamp says, or where the one before it ended. A long time in which nothing happened is drawn as a short break,
with what was left out written on it. Positions are per cent, so a picture fits any screen with its text as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from html import escape
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from capsule.core.budget import duration
from capsule.core.history import Attempt
from capsule.core.stamps import moment
from capsule.reports.style import clean

_MOST_BREAKS = 6
_BREAK_WIDTH = 4.0
_LEAST_GAP = 2.0
_LARGE = 0.25
"""Of all the time in which something happened: a longer gap is drawn as a break."""
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(count * _MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * _HOUR for count in (1, 2, 3, 6, 12)),
    *(count * _DAY for count in (1, 2, 7, 14, 28, 91, 182, 365)),
)
_MOST_TICKS = 5
_ROOM_FOR_A_LABEL = 15.0
_TALL = ("bad", "warn")
"""Bars of failures are taller, too, so that red need not be told from green."""
_NARROWEST = 0.7
"""Per cent: what took no time is seen all the same."""


class Span(NamedTuple):
    start: float
    end: float


class Bar(NamedTuple):
    span: Span
    look: str
    """Its class in the style sheet."""


class _Break(NamedTuple):
    left: float
    width: float
    seconds: float


class _Tick(NamedTuple):
    at: float
    label: str


def laid_out(attempts: Sequence[Attempt]) -> list[Span]:
    """Return when each was at work, none before the one before it has ended."""
    spans: list[Span] = []
    free = 0.0
    for attempt in attempts:
        start = max(moment(attempt.began), free)
        stamped = moment(attempt.until) - moment(attempt.began)
        if attempt.under_way:
            free = max(start, moment(attempt.until))
        elif attempt.seconds is None:  # nobody saw the end
            free = start
        else:  # as measured, unless the stamps say that it took longer
            free = start + (attempt.seconds if stamped <= attempt.seconds + 1 else stamped)
        spans.append(Span(start, free))
    return spans


def pauses(attempt: Attempt, span: Span) -> list[Span]:
    """Of the time it took, that in which its provider was waited for."""
    found = []
    for pause in attempt.waits:
        start = min(max(moment(pause.at), span.start), span.end)
        found.append(Span(start, min(start + pause.seconds, span.end)))
    return found


class Scale:
    """From moments to places on a line of a hundred per cent."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._pieces = _pieces(sorted(spans)) or [Span(0.0, 1.0)]
        gaps = len(self._pieces) - 1
        self._gap = min(_BREAK_WIDTH, 30 / gaps) if gaps else 0.0
        self._seconds = sum(piece.end - piece.start for piece in self._pieces) or 1.0
        self._per_second = (100 - gaps * self._gap) / self._seconds
        self._lefts = [0.0]
        for piece in self._pieces[:-1]:
            self._lefts.append(self._lefts[-1] + (piece.end - piece.start) * self._per_second + self._gap)
        self._starts = [piece.start for piece in self._pieces]

    def at(self, time: float) -> float:
        number = max(0, bisect_right(self._starts, time) - 1)
        piece = self._pieces[number]
        inside = min(max(time, piece.start), piece.end) - piece.start
        return self._lefts[number] + inside * self._per_second

    @cached_property
    def breaks(self) -> list[_Break]:
        return [
            _Break(self.at(before.end), self._gap, after.start - before.end) for before, after in pairwise(self._pieces)
        ]

    @cached_property
    def ticks(self) -> list[_Tick]:
        """Times of day at round numbers, no closer than their labels have room."""
        step = next((step for step in _STEPS if self._seconds / step <= _MOST_TICKS), _STEPS[-1])
        found: list[_Tick] = []
        day = ""
        for piece in self._pieces:
            first = ceil(piece.start / step)
            count = int((piece.end - first * step) // step) + 1
            marks: list[float] = [(first + number) * step for number in range(count)]
            for time in marks or [piece.start]:
                date = _clock(time, "%b %Y" if step > 28 * _DAY else "%-d %b")
                place = self.at(time)
                if found and place - found[-1].at < _ROOM_FOR_A_LABEL:
                    continue
                if step >= _DAY or (day and date != day):
                    label = date
                else:
                    label = _clock(time, "%H:%M" if step >= _MINUTE else "%H:%M:%S")
                found.append(_Tick(place, label))
                day = date
        return found


def _pieces(spans: Sequence[Span]) -> list[Span]:
    """Join what happened, and cut it at the longest gaps."""
    joined: list[Span] = []
    for span in spans:
        if joined and span.start <= joined[-1].end:
            joined[-1] = Span(joined[-1].start, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    busy = sum(span.end - span.start for span in joined)
    gaps = sorted((after.start - before.end for before, after in pairwise(joined)), reverse=True)
    shortest = max(_LEAST_GAP, busy * _LARGE, *gaps[_MOST_BREAKS : _MOST_BREAKS + 1])
    pieces = joined[:1]
    for span in joined[1:]:
        if span.start - pieces[-1].end > shortest:
            pieces.append(span)
        else:
            pieces[-1] = Span(pieces[-1].start, span.end)
    return pieces


def _clock(time: float, form: str) -> str:
    return datetime.fromtimestamp(time, UTC).strftime(form)


# ---- drawn


def drawn(scale: Scale, bars: Iterable[Bar], words: str) -> str:
    """Draw one row: bars on the line, in the order given, with their labels."""
    rects = ""
    for bar in _merged(scale, bars):
        left = scale.at(bar.span.start)
        width = max(scale.at(bar.span.end) - left, _NARROWEST)
        box = f'x="{min(left, 100 - width):.2f}%" y="{0 if bar.look in _TALL else 3}" width="{width:.2f}%"'
        rects += f'<rect class="{bar.look}" {box} height="{18 if bar.look in _TALL else 12}" rx="2"/>'
    grid = "".join(f'<rect class="grid" x="{tick.at:.2f}%" width="1" height="18"/>' for tick in scale.ticks)
    breaks = "".join(
        f'<rect class="break" x="{gap.left + gap.width * 0.2:.2f}%" y="0" width="{gap.width * 0.6:.2f}%" height="18">'
        f"<title>{duration(gap.seconds)} in which nothing happened</title></rect>"
        for gap in scale.breaks
    )
    return (
        f'<svg class="lane" role="img" width="100%" height="18"><title>{escape(clean(words))}</title>'
        f"{grid}{breaks}{rects}</svg>"
    )


def _merged(scale: Scale, bars: Iterable[Bar]) -> list[Bar]:
    """Neighbours that look the same and are no wider than a hair are drawn as one: a long mission stays a picture."""
    found: list[Bar] = []
    for bar in bars:
        last = found[-1] if found else None
        if last and last.look == bar.look and scale.at(bar.span.end) - scale.at(last.span.end) < _NARROWEST / 4:
            found[-1] = Bar(Span(last.span.start, max(bar.span.end, last.span.end)), bar.look)
        else:
            found.append(bar)
    return found


def axis(scale: Scale) -> str:
    """Draw the line's own row: times of day, and how long each break is."""
    texts = []
    for tick in scale.ticks:
        anchor = "start" if tick.at < 8 else "end" if tick.at > 92 else "middle"
        texts.append(f'<text x="{tick.at:.2f}%" y="13" text-anchor="{anchor}">{escape(tick.label)}</text>')
    for gap in _labelled(scale.breaks):
        middle = f'x="{gap.left + gap.width / 2:.2f}%" y="30" text-anchor="middle"'
        texts.append(f'<text class="left-out" {middle}>⋯ {escape(duration(gap.seconds))}</text>')
    height = 34 if scale.breaks else 18
    return f'<svg class="axis" aria-hidden="true" width="100%" height="{height}">{"".join(texts)}</svg>'


def _labelled(breaks: Sequence[_Break]) -> list[_Break]:
    """Choose the longest ones that there is room to label."""
    found: list[_Break] = []
    for gap in sorted(breaks, key=lambda gap: -gap.seconds):
        if all(abs(gap.left - other.left) >= _ROOM_FOR_A_LABEL * 1.2 for other in found):
            found.append(gap)
    return found
