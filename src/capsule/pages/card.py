"""The card of a report as a picture (SVG): no font or file from elsewhere, in the viewer's colour scheme."""

from __future__ import annotations

from typing import NamedTuple

from capsule.core.report import Report
from capsule.core.status import Tone
from capsule.pages.environment import render
from capsule.reports.card import card_of
from capsule.reports.table import wrap

WIDTH = 760
_LINE = 20
_LETTERS = 84
"""The number of letters on a line, even wide ones."""
_LETTERS_OF_HEADING = 52
_MOST_LINES = 40


class Text(NamedTuple):
    y: int
    x: int
    look: str
    """Its class."""
    text: str


def svg(report: Report) -> str:
    """Draw the card; texts are wrapped."""
    card = card_of(report)
    texts, y = [Text(40, 28, f"sign head {card.tone}", card.sign)], 40
    for line in wrap(card.heading, _LETTERS_OF_HEADING):
        texts.append(Text(y, 56, "head", line))
        y += _LINE + 6
    y += 6
    for sentence in card.lead:
        for line in wrap(sentence, _LETTERS - 12):
            texts.append(Text(y, 28, "lead", line))
            y += _LINE + 2
    y += 14
    for row in card.rows:
        texts.append(Text(y, 28, f"sign {row.tone}", row.sign))
        for line in wrap(f"{row.name}: {row.text}", _LETTERS)[:_MOST_LINES]:
            texts.append(Text(y, 52, "text", line))
            y += _LINE
        y += 4
    if card.left_out:
        texts.append(Text(y, 52, "soft", f"and {card.left_out:,} more"))
        y += _LINE
    texts.append(Text(y + 14, 28, "soft small", card.foot))
    bar = _bar(report)
    values = {"texts": texts, "bar": bar, "width": WIDTH, "height": y + 34, "title": card.heading, "tone": card.tone}
    return render("card.svg", values)


def _bar(report: Report) -> list[tuple[float, float, Tone]]:
    """Return a piece for each mission, in the colour of its status, from left to right."""
    order = sorted((each.status for each in report.missions), key=lambda status: (status.tone is not Tone.GOOD, status))
    each = WIDTH / max(1, len(order))
    return [(round(number * each, 2), round(each, 2), status.tone) for number, status in enumerate(order)]
