"""A report in ten lines: what matters first, a question whole, nobody's text more than text."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from tests.told import PAID, Told, prepared

from capsule.core.board import Board
from capsule.core.decide import Move
from capsule.core.inbox import inbox
from capsule.core.report import Report, nested
from capsule.core.signal import Verdict
from capsule.pages.card import svg
from capsule.reports.card import card_markdown

from .test_report_page import DIFF, NASTY, hostile

QUESTION = "Which of these two colours is meant? " * 20


def together(*told: Told) -> Report:
    missions = nested(each.summary(diff=DIFF) for each in told)
    asked = inbox(Board(missions=missions), None)
    return Report(project="p", title="All", as_of="2026-01-06T00:00:00Z", missions=missions, questions=asked)


def asking(mission: str) -> Told:
    return prepared(mission).step("code", Verdict.BLOCKED, Move.PARK, reason=QUESTION.strip(), exit_code=1)


def many() -> Report:
    done = [prepared(f"a{number}").delivered() for number in range(8)]
    return together(*done, asking("b"), prepared("c").refuted(usage=PAID).failed(), prepared("d").refuted().delivered())


def words(markup: str) -> str:
    return " ".join("".join(ElementTree.fromstring(markup).itertext()).split())


@pytest.mark.promise("screens.card")
@pytest.mark.parametrize(
    "report", [many(), together(asking("b")), together(prepared().refuted().refuted().delivered())]
)
def test_a_card_has_at_most_ten_lines(report: Report) -> None:
    text = card_markdown(report)
    assert len(text.splitlines()) <= 10
    assert len(ElementTree.fromstring(svg(report))) > 5


@pytest.mark.promise("screens.card")
def test_what_needs_a_person_comes_first_and_whole() -> None:
    rows = [line for line in card_markdown(many()).splitlines() if line.startswith("- ")]
    assert [row.split("**")[1] for row in rows[:4]] == ["c", "b", "d", "a0"]
    assert "1 lie caught" in rows[0] and QUESTION.strip() in rows[1] and rows[4] == "- and 7 more: `capsule report`"
    assert QUESTION.strip() in words(svg(many()))


def test_the_card_of_one_mission_says_what_was_merged_changed_and_caught() -> None:
    text = card_markdown(together(prepared().refuted().delivered()))
    assert text.startswith("### ✓ x-1: The task\n**Done. Agents claimed success wrongly once; caught.")
    assert "- ✓ **merged** into main as cccccccccccc; undo: git revert -m 1 cccccccccccc" in text
    assert "- ± **changed** +40 −3 in 2 files" in text
    assert "- ↺ **code, attempt 1** all tests pass: \\`make test\\` is red, exit 1; mended at attempt 2" in text


def test_the_card_of_one_that_asks_names_the_command_that_answers_it() -> None:
    assert f'{QUESTION.strip()}; capsule answer b --notes "..."' in card_markdown(together(asking("b")))


@pytest.mark.promise("screens.card")
def test_the_picture_loads_nothing_and_no_word_becomes_markup() -> None:
    drawn = svg(hostile())
    tags = {each.tag.removeprefix("{http://www.w3.org/2000/svg}") for each in ElementTree.fromstring(drawn).iter()}
    assert tags == {"svg", "title", "style", "rect", "text"}
    assert re.findall(r"url\(|@import|href|@font-face", drawn.replace(NASTY, "")) == []
    assert "alert(1)" in words(drawn) and not set(drawn) & {"\x1b", "\u202e"}
    assert "<script>" not in card_markdown(hostile()).replace("\\<", "")


def test_the_picture_can_be_read_in_the_light_and_in_the_dark() -> None:
    assert "@media (prefers-color-scheme: dark)" in svg(many())


def test_nothing_yet_is_said() -> None:
    assert card_markdown(together()) == "No missions yet. Start one: `capsule run ID`\n"
    ElementTree.fromstring(svg(together()))
