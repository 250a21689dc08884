"""The templates and their functions: filters for untrusted text, figures and times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from capsule import __version__
from capsule.core.budget import duration, in_words
from capsule.core.event import cut
from capsule.core.history import comparable_claim
from capsule.core.inbox import needs_you
from capsule.core.proven import proof_of
from capsule.core.text import count
from capsule.pages import timeline
from capsule.reports import words
from capsule.reports.style import printable, shortened

Row = TypeVar("Row")

HERE = Path(__file__).parent
LONGEST_LINE = 600
LONGEST_BLOCK = 4000
LONGEST_QUESTION = 20_000
"""A question is shown in full: its length is limited where it is recorded."""
_CODE = re.compile(r"`([^`]+)`")


def render(template: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(values)


def macro(template: str, name: str, *args: object) -> Markup:
    """Draw one part by itself: a cell of a page that changes while it is looked at."""
    drawn: Markup = getattr(environment().get_template(template).module, name)(*args)
    return drawn


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        finalize=_without_controls,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "line": line,
        "block": block,
        "ticked": ticked,
        "count": count,
        "duration": duration,
        "numbered": lambda rows: list(enumerate(rows, 1)),
        "took": words.took,
        "when": words.when,
        "in_words": in_words,
        "money": words.money,
    }
    made.globals |= {
        "comparable_claim": comparable_claim,
        "diff_files": _diff_files,
        "elided": elided,
        "pictures": timeline,
        "needs_you": needs_you,
        "proof_of": proof_of,
        "version": __version__,
        "whole": LONGEST_QUESTION,
        "words": words,
    }
    return made


def _diff_files(text: str) -> list[Any]:
    from capsule.pages.diff import files  # noqa: PLC0415 - start-up: Pygments is for diffs only

    return files(text)


def _without_controls(value: object) -> object:
    """Remove characters that change direction or steer a terminal from any value in a page."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def line(text: str, most: int = LONGEST_LINE) -> str:
    """Return untrusted text on one line, of limited length."""
    return shortened(text, most)


def block(text: str) -> str:
    """Return untrusted text with its lines."""
    return cut(text.strip(), LONGEST_BLOCK)


def ticked(text: str) -> Markup:
    """Return a line with the text between backticks as code."""
    parts = _CODE.split(line(text))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if odd % 2 else part for odd, part in enumerate(parts)
    )


def elided(rows: Sequence[Row], most: int = words.SHOWN) -> list[tuple[Row | None, Sequence[Row]]]:
    """Return the rows; of a long list both ends, with the omitted rows in between."""
    return words.elided(rows, lambda row: (row, ()), lambda _: (None, rows[most:-most]), most)
