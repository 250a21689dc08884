"""The picture of time: in order, to scale, with breaks that say what they leave out."""

from __future__ import annotations

from itertools import pairwise

import pytest

from capsule.core.stamps import moment
from capsule.pages.environment import macro
from capsule.pages.timeline import Bar, Scale, Span, laid_out, pauses
from tests.told import a_long_story, prepared

DAY = 86400.0
NINE = moment("2026-01-05T09:00:00Z")


def test_attempts_shorter_than_a_stamp_follow_one_another() -> None:
    """Stamps have whole seconds: by them alone, all of these happened at once."""
    told = prepared()
    for _ in range(5):
        told.step(seconds=0.2)
    spans = laid_out(told.summary().attempts)
    assert all(before.end <= after.start for before, after in pairwise(spans))
    assert [round(span.end - span.start, 3) for span in spans] == [2.0, *[0.2] * 5]


def test_what_runs_reaches_until_now_and_what_nobody_saw_end_has_no_length() -> None:
    told = prepared().begin().pass_time(50).begin().pass_time(8)
    _, killed, running = laid_out(told.summary(running=True).attempts)
    assert killed.end - killed.start == 0
    assert running.end - running.start == 8


def test_a_pause_lies_within_its_attempt() -> None:
    told = prepared().begin().pass_time(10).wait(60).end(seconds=80)
    attempt = told.summary().attempts[-1]
    [span] = laid_out([attempt])
    [pause] = pauses(attempt, span)
    assert (pause.start - span.start, pause.end - pause.start) == (10, 60)


def test_time_is_to_scale_and_later_is_never_further_left() -> None:
    scale = Scale([Span(0, 60), Span(60, 100)])
    assert [scale.at(time) for time in (0, 50, 100)] == [0, 50, 100]
    long = Scale(laid_out(a_long_story().summary().attempts))
    places = [long.at(NINE + second) for second in range(0, 60_000, 500)]
    assert places == sorted(places)


def test_a_night_in_which_nothing_happened_is_a_break_that_says_how_long_it_was() -> None:
    summary = a_long_story().summary()
    scale = Scale(laid_out(summary.attempts))
    assert round(scale.breaks[0].seconds / 3600) == 14
    assert scale.breaks[0].width < 5
    assert "⋯ 14 h 0 min" in macro("timeline.html", "axis", scale)


def test_short_rests_are_drawn_as_they_are() -> None:
    assert Scale([Span(0, 100), Span(110, 200)]).breaks == []


def test_no_more_than_a_few_breaks_are_made() -> None:
    scale = Scale(Span(day * DAY, day * DAY + 60) for day in range(100))
    assert len(scale.breaks) <= 6
    assert scale.at(100 * DAY) == pytest.approx(100)


@pytest.mark.parametrize("seconds", [0.4, 9, 70, 900, 20_000, 3 * DAY, 90 * DAY, 3000 * DAY])
def test_an_axis_has_a_few_round_times_with_room_for_each(seconds: float) -> None:
    ticks = Scale([Span(NINE + 0.3, NINE + 0.3 + seconds)]).ticks
    assert 1 <= len(ticks) <= 6
    assert all(after.at - before.at >= 15 for before, after in pairwise(ticks))
    assert len({tick.label for tick in ticks}) == len(ticks)


def test_what_took_no_time_is_seen_all_the_same() -> None:
    scale = Scale([Span(0, 1000)])
    assert 'width="0.70%"' in macro("timeline.html", "lane", scale, [Bar(Span(1000, 1000), "good")], "words")
    assert 'x="99.30%"' in macro("timeline.html", "lane", scale, [Bar(Span(1000, 1000), "good")], "words")


def test_many_attempts_are_few_shapes() -> None:
    scale = Scale([Span(0, 20_000)])
    bars = [Bar(Span(second, second + 1), "good") for second in range(20_000)]
    assert macro("timeline.html", "lane", scale, bars, "words").count("<rect") < 1000
