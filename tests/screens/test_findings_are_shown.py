"""Findings of reviews are shown with id, status and how often they were asked for, wherever missions are shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.core.board import Board
from capsule.core.findings import Finding, FindingStatus
from capsule.core.report import Report
from capsule.core.worklog import entry, summary
from capsule.pages.report import page
from capsule.reports.board_lines import board_lines
from capsule.reports.facts import mission_facts, report_facts
from capsule.reports.markdown import markdown
from capsule.reports.plain import PlainReport
from capsule.reports.show import show_lines
from capsule.reports.style import Style
from capsule.tui.mission import finding_lines
from tests.told import Told

LEDGER = (
    Finding(id="R1", text="Name the unit.", file="pay.py", asked=2, counted=2),
    Finding(id="R2", text="Say why.", status=FindingStatus.RESOLVED, asked=1, counted=1),
)
OPEN, RESOLVED = "R1 (open, asked 2 times) in pay.py: Name the unit.", "R2 (resolved, asked 1 time): Say why."
MISSION = Told().start().step("code").sent_back(findings=LEDGER)
VIEW = MISSION.summary()
REPORT = Report(project="p", title="t", as_of=MISSION.at, missions=(VIEW,))


def said() -> str:
    stream = io.StringIO()
    plain = PlainReport(stream)
    for event in MISSION.events:
        plain.event(MISSION.mission, event)
    return " ".join(stream.getvalue().split())


def in_the_worklog() -> str:
    ended = VIEW.attempts[-1].ended
    assert ended
    return entry(ended.key, 1, ended.outcome, ended.decision, ended.at)


SHOWN: dict[str, tuple[Callable[[], str], bool]] = {
    "show": (lambda: "\n".join(show_lines(VIEW, Path("/x"), Style(io.StringIO(), colour=False), 160)), True),
    "report": (lambda: markdown(REPORT).replace("\\", ""), True),
    "report --html": (lambda: page(REPORT), True),
    "evidence page": (lambda: "\n".join(line.plain for line in finding_lines(VIEW, 160, whole=True)), True),
    "live view": (lambda: "\n".join(line.plain for line in finding_lines(VIEW, 160, whole=False)), False),
    "dashboard as text": (lambda: "\n".join(board_lines(Board(missions=(VIEW,)))), False),
    "plain lines": (said, False),
    "worklog": (in_the_worklog, True),
    "summary of the worklog": (lambda: summary(MISSION.events), True),
}


@pytest.mark.promise("convergence.told")
@pytest.mark.parametrize("place", SHOWN)
def test_findings_are_shown(place: str) -> None:
    draw, with_settled = SHOWN[place]
    drawn = draw()
    assert OPEN in drawn
    assert (RESOLVED in drawn) is with_settled


@pytest.mark.promise("convergence.told")
def test_findings_are_there_for_programs() -> None:
    for facts in (mission_facts(VIEW, Path("/x")), report_facts(REPORT)["missions"][0]):
        first, second = facts["findings"]
        assert (first["phase"], first["id"], first["status"], first["asked"]) == ("look", "R1", "open", 2)
        assert second["status"] == "resolved"


def test_words_of_a_reviewer_do_not_steer_a_screen() -> None:
    hostile = (Finding(id="R1", text="\x1b[31mred\n<b>bold</b>\u202e", asked=1),)
    view = Told().start().step("code").sent_back(findings=hostile).summary()
    for text in (
        *show_lines(view, Path("/x"), Style(io.StringIO(), colour=False), 160),
        *board_lines(Board(missions=(view,))),
    ):
        assert not set(text) & {"\x1b", "\u202e"}
    assert "<b>bold" not in page(Report(project="p", title="t", as_of=view.as_of, missions=(view,)))
