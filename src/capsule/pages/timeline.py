"""Time as a picture: a scale, and the bars on it.

Stamps have whole seconds and phases take less, so a mission's attempts are laid out one after the other: each begins
where its stamp says, or where the one before it ended. A long time in which nothing happened is drawn as a short break,
with what was left out written on it. Positions are per cent, so a picture fits any screen with its text as it is.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from capsule.core.history import Attempt, Diff, MissionSummary
from capsule.core.merge_train import BatchTest
from capsule.core.merges import MergeRecord, Passage
from capsule.core.stamps import moment
from capsule.reports import words

_MOST_BREAKS = 6
_BREAK_WIDTH = 4.0
_LEAST_GAP = 2.0
_LARGE = 0.25
"""A share of the active time: a longer gap is drawn as a break."""
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
"""Per cent: the smallest width of a bar."""


class Span(NamedTuple):
    start: float
    end: float


class Bar(NamedTuple):
    span: Span
    look: str
    """Its class in the style sheet."""


class Box(NamedTuple):
    """A bar as it is drawn."""

    look: str
    x: str
    width: str
    tall: bool


class _Break(NamedTuple):
    left: float
    width: float
    seconds: float

    @property
    def x(self) -> str:
        return f"{self.left + self.width * 0.2:.2f}%"

    @property
    def middle(self) -> str:
        return f"{self.left + self.width / 2:.2f}%"


class _Tick(NamedTuple):
    at: float
    label: str

    @property
    def x(self) -> str:
        return f"{self.at:.2f}%"

    @property
    def anchor(self) -> str:
        return "start" if self.at < 8 else "end" if self.at > 92 else "middle"


def laid_out(attempts: Sequence[Attempt]) -> list[Span]:
    """Return the time of each attempt, none before the previous one has ended."""
    spans: list[Span] = []
    free = 0.0
    for attempt in attempts:
        start = max(moment(attempt.began), free)
        stamped = moment(attempt.until) - moment(attempt.began)
        if attempt.under_way:
            free = max(start, moment(attempt.until))
        elif attempt.seconds is None:  # the end is unknown
            free = start
        else:  # as measured, unless the stamps say that it took longer
            free = start + (attempt.seconds if stamped <= attempt.seconds + 1 else stamped)
        spans.append(Span(start, free))
    return spans


def pauses(attempt: Attempt, span: Span) -> list[Span]:
    """The parts of its time that it waited for its provider."""
    found = []
    for pause in attempt.waits:
        start = min(max(moment(pause.at), span.start), span.end)
        found.append(Span(start, min(start + pause.seconds, span.end)))
    return found


class Scale:
    """Map times to positions on a line of a hundred per cent."""

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
        """Round times of day, with room for their labels."""
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

    @cached_property
    def labelled(self) -> list[_Break]:
        """Choose the longest breaks with room for a label."""
        found: list[_Break] = []
        for gap in sorted(self.breaks, key=lambda gap: -gap.seconds):
            if all(abs(gap.left - other.left) >= _ROOM_FOR_A_LABEL * 1.2 for other in found):
                found.append(gap)
        return found

    def boxes(self, bars: Iterable[Bar]) -> list[Box]:
        """Return the bars as they are drawn, in the order given."""
        found = []
        for bar in _merged(self, bars):
            left = self.at(bar.span.start)
            width = max(self.at(bar.span.end) - left, _NARROWEST)
            found.append(Box(bar.look, f"{min(left, 100 - width):.2f}%", f"{width:.2f}%", bar.look in _TALL))
        return found


def _merged(scale: Scale, bars: Iterable[Bar]) -> list[Bar]:
    """Join neighbours that look the same and are no wider than a hair: a long mission stays a picture."""
    found: list[Bar] = []
    for bar in bars:
        last = found[-1] if found else None
        if last and last.look == bar.look and scale.at(bar.span.end) - scale.at(last.span.end) < _NARROWEST / 4:
            found[-1] = Bar(Span(last.span.start, max(bar.span.end, last.span.end)), bar.look)
        else:
            found.append(bar)
    return found


def _pieces(spans: Sequence[Span]) -> list[Span]:
    """Join the active times, and cut at the longest gaps."""
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


# ---- what is drawn on one scale


def of_mission(summary: MissionSummary) -> tuple[Scale, list[tuple[Attempt, list[Bar]]]]:
    """Return a scale for a mission's attempts, and each of them with its bars."""
    spans = laid_out(summary.attempts)
    return Scale(spans), [
        (attempt, _bars(attempt, span)) for attempt, span in zip(summary.attempts, spans, strict=True)
    ]


def of_missions(missions: Sequence[MissionSummary]) -> tuple[Scale, list[tuple[MissionSummary, list[Bar]]]]:
    """Return a scale for several missions, and each of them with the bars of its attempts."""
    laid = [(each, laid_out(each.attempts)) for each in missions]
    scale = Scale(span for _, spans in laid for span in spans)
    return scale, [
        (each, [bar for attempt, span in zip(each.attempts, spans, strict=True) for bar in _bars(attempt, span)])
        for each, spans in laid
    ]


def _bars(attempt: Attempt, span: Span) -> list[Bar]:
    return [Bar(span, words.look_of(attempt).tone), *(Bar(pause, "wait") for pause in pauses(attempt, span))]


def all_of(rows: Iterable[tuple[Attempt, list[Bar]]]) -> list[Bar]:
    return [bar for _, bars in rows for bar in bars]


def legend(summary: MissionSummary) -> list[tuple[str, str]]:
    """Return the colours of a mission's bars, with the words for each."""
    kinds = {(words.look_of(attempt).tone.value, words.outcome_of(attempt)) for attempt in summary.attempts}
    if any(attempt.waits for attempt in summary.attempts):
        kinds.add(("wait", "waiting for the provider"))
    return sorted(kinds)


def dearest(missions: Iterable[MissionSummary]) -> float:
    """Return the highest known cost."""
    return max(each.spent_with_parts.usd for each in missions)


def largest(diff: Diff) -> int:
    """Return the most changed lines of one file."""
    return max((file.added or 0) + (file.removed or 0) for file in diff.files) or 1


def of_merges(
    record: MergeRecord,
) -> tuple[Scale, list[tuple[Passage, list[Bar]]], list[tuple[BatchTest, list[Bar]]]]:
    """Return a scale for a merge queue, with its waiting missions, turns and batches."""
    ways = [_way(one) for one in record.passages]
    tested = [Span(moment(one.at) - one.seconds, moment(one.at)) for one in record.batches]
    scale = Scale([*(Span(wait.start, turn.end) for wait, turn in ways), *tested])
    passages = [
        (one, [*([Bar(wait, "wait")] if one.waited else []), Bar(turn, one.result.tone)])
        for one, (wait, turn) in zip(record.passages, ways, strict=True)
    ]
    batches = [
        (one, [Bar(span, words.look_of_batch(one).tone)]) for one, span in zip(record.batches, tested, strict=True)
    ]
    return scale, passages, batches


def _way(one: Passage) -> tuple[Span, Span]:
    """Return the times of its wait and its turn."""
    ended = moment(one.ended)
    turn = max(ended - one.seconds, moment(one.came))
    return Span(moment(one.came), turn), Span(turn, ended)
