"""What was proven of a mission is said in the same words wherever missions are shown."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from capsule.core.board import Board
from capsule.core.event import Observed, StepEnded
from capsule.core.evidence import Colour, Evidence, Observation
from capsule.core.history import MissionSummary
from capsule.core.report import Report
from capsule.core.worklog import entry, summary
from capsule.pages.report import page
from capsule.reports.board_lines import board_lines
from capsule.reports.facts import mission_facts
from capsule.reports.markdown import markdown
from capsule.reports.show import show_lines
from capsule.reports.style import Style
from capsule.tui.mission import finding_lines, head_lines

from .missions import DEMANDED, GREEN, RED, at, merged, shown

VIEW = shown(merged(), pid=None)
LINE = "red by name (2 new) · green by name · 212 others unharmed · demanded 7 of 8 · canary seen · reviewed (its word)"
SHOWN: dict[str, Callable[[], str]] = {
    "live view": lambda: "\n".join(line.plain for line in head_lines(VIEW, 160)),
    "dashboard as text": lambda: "\n".join(board_lines(Board(missions=(VIEW,)))),
    "summary of the worklog": lambda: summary(merged()),
    "show --json": lambda: json.dumps(mission_facts(VIEW, Path("/nowhere")), ensure_ascii=False),
}
IN_DETAIL: dict[str, Callable[..., str]] = {
    "show": lambda view=VIEW: "\n".join(show_lines(view, Path("/nowhere"), Style(io.StringIO(), colour=False), 160)),
    "evidence page": lambda view=VIEW: "\n".join(line.plain for line in finding_lines(view, 160, whole=True)),
    "report": lambda view=VIEW: markdown(report(view)).replace("\\", ""),
    "report --html": lambda view=VIEW: re.sub("</?code>", "`", page(report(view))).replace("&gt;", ">"),
}


@pytest.mark.promise("evidence.proven")
@pytest.mark.parametrize("place", SHOWN)
def test_the_line_is_shown(place: str) -> None:
    assert LINE in SHOWN[place]()


@pytest.mark.promise("evidence.proven")
@pytest.mark.parametrize("place", IN_DETAIL)
def test_what_was_proven_stands_apart_from_what_was_only_said(place: str) -> None:
    told = IN_DETAIL[place]()
    assert LINE.removesuffix(" · reviewed (its word)") in told
    said = told.casefold().partition("only said")[2]
    assert "test-review: did as asked" in said and "sign-off: did as asked" in said


@pytest.mark.parametrize("place", [*IN_DETAIL, "summary of the worklog", "show --json"])
def test_tests_and_survivors_are_named(place: str) -> None:
    told = {**SHOWN, **IN_DETAIL}[place]()
    assert "test_answer.py::test_answer" in told
    assert "`n > 0` → `n >= 0` in src/answer.py:14" in told


NOT_COVERED = [
    msgspec.structs.replace(
        event,
        outcome=msgspec.structs.replace(
            event.outcome,
            evidence=(msgspec.structs.replace(DEMANDED, check="as-demanded", not_covered=("`tip` in src/answer.py",)),),
        ),
    )
    if isinstance(event, StepEnded) and event.phase == "sign-off"
    else event
    for event in merged()
]


@pytest.mark.parametrize("place", IN_DETAIL)
def test_functions_that_no_test_executes_are_named_apart_from_survivors(place: str) -> None:
    told = IN_DETAIL[place](shown(NOT_COVERED, pid=None))
    assert "1 function not covered" in told
    assert "`tip` in src/answer.py: no test executes it" in told
    assert "- Not covered: `tip` in src/answer.py: no test executes it\n" in summary(NOT_COVERED)


def test_an_entry_of_the_worklog_says_what_its_phase_proved() -> None:
    signed = next(event for event in merged() if isinstance(event, StepEnded) and event.phase == "sign-off")
    told = entry(signed.key, 1, signed.outcome, signed.decision, signed.at)
    assert "- Proven: green by name · 212 others unharmed · demanded 7 of 8 · canary seen\n" in told
    assert "- Survived: `n > 0` → `n >= 0` in src/answer.py:14: every test still passes\n" in told


def test_show_fits_a_narrow_terminal() -> None:
    lines = show_lines(VIEW, Path("/nowhere"), Style(io.StringIO(), colour=False), 60)
    assert max(len(line) for line in lines if "/nowhere" not in line) <= 60


def test_a_run_with_a_mutant_in_it_is_not_shown_as_the_tests_of_the_work() -> None:
    green = Observation("fedcba9876543210", "pytest -q", Colour.GREEN, 0, 0.4)
    broken = Observation("fedcba9876543210", "pytest -q", Colour.RED, 1, 0.4, edits=("a mutant",))
    seen = [
        Observed(at=at(95 + number), key=str(number), observation=each) for number, each in enumerate((green, broken))
    ]
    view = shown([*merged(), *seen], pid=None)
    assert view.tests == green


def test_an_entry_that_only_proves_green_does_not_name_the_new_tests_again() -> None:
    written = next(event for event in merged() if isinstance(event, StepEnded) and event.phase == "test-writer")
    again = msgspec.structs.replace(GREEN, tests=RED.tests)
    told = {piece.check: entry_with(written, piece) for piece in (RED, again)}
    assert "test_answer.py::test_question" in told["red"]
    assert "test_answer.py::test_question" not in told["green"]


def report(view: MissionSummary) -> Report:
    return Report(project="p", title="demo-1.1", as_of=view.as_of, missions=(view,))


def entry_with(event: StepEnded, piece: Evidence) -> str:
    outcome = msgspec.structs.replace(event.outcome, evidence=(piece,))
    return entry(event.key, 1, outcome, event.decision, event.at)
