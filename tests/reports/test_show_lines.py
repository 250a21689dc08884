"""What `show` tells of a mission: green is only what was checked, and held."""

from __future__ import annotations

import io
from pathlib import Path

from tests.screens.missions import merged, merged_on_red

from capsule.core.event import Event
from capsule.core.history import NOBODY, read_mission
from capsule.reports.show import show_lines
from capsule.reports.style import Style

GREEN, YELLOW = "\x1b[32m", "\x1b[33m"


def told(events: list[Event]) -> list[str]:
    summary = read_mission(events).summary(NOBODY, "")
    return list(show_lines(summary, Path("nowhere"), Style(io.StringIO(), colour=True), 100))


def colour_of(what: str, events: list[Event]) -> str:
    return next(line for line in told(events) if what in line)[:5]


def test_what_was_let_pass_against_the_evidence_is_not_green() -> None:
    assert [colour_of(what, merged()) for what in ("execute ", "publish ", "merged into main")] == [GREEN] * 3
    assert [colour_of(what, merged_on_red()) for what in ("execute ", "publish ", "merged into main")] == [YELLOW] * 3
    assert any("NOT GREEN: the gate was red on the merge result" in line for line in told(merged_on_red()))
