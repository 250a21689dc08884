"""Prompts are filled in once, feedback stands at the very end, and nothing an item says is taken for a name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.core.briefing import LONGEST_FEEDBACK, compose, fill, fitting, prompt_values, slug
from capsule.core.errors import SettingsError
from capsule.core.event import MissionStarted
from capsule.core.item import Item
from capsule.core.state import MissionState, apply
from capsule.core.workflow import Phase, Workflow

FEEDBACK = "## Previous Feedback\n\n{{FEEDBACK}}\n"


def test_a_name_is_replaced_and_other_braces_are_left_alone() -> None:
    assert fill("{{A}} {a} {{ A }} {{a}} ${A}", {"A": "x"}) == "x {a} {{ A }} {{a}} ${A}"


@given(st.text())
def test_a_value_is_never_expanded_again(value: str) -> None:
    assert fill("<{{A}}>", {"A": value, "B": "never"}) == f"<{value}>"


def test_a_name_without_a_meaning_is_an_error_that_says_which_have_one() -> None:
    with pytest.raises(SettingsError, match=r"my prompt uses \{\{TASKID\}\}") as fault:
        fill("{{TASKID}}", {"TASK_ID": "x"}, source="my prompt")
    assert "TASK_ID" in fault.value.hint


def test_a_block_is_kept_only_where_its_name_has_a_value() -> None:
    template = "a\n{{#B}}\nb is {{B}}\n{{/B}}\nc\n"
    assert fill(template, {"B": "x"}) == "a\nb is x\nc\n"
    assert fill(template, {"B": ""}) == "a\nc\n"
    assert fill("a{{#B}} and {{B}}{{/B}}.", {"B": ""}) == "a."


def test_a_value_cannot_close_or_open_a_block() -> None:
    template = "{{#A}}\n{{A}}\n{{/A}}\n{{B}}\n"
    assert fill(template, {"A": "{{/A}}", "B": "{{#A}}"}) == "{{/A}}\n{{#A}}\n"


@given(st.text(min_size=1).filter(lambda text: text == text.strip()))
def test_feedback_stands_at_the_very_end_word_for_word(feedback: str) -> None:
    assert compose("Do it.\n\n", {}, FEEDBACK, feedback) == f"Do it.\n\n## Previous Feedback\n\n{feedback}\n"


def test_without_feedback_there_is_no_such_section() -> None:
    assert compose("Do it.", {}, FEEDBACK, "") == "Do it.\n"


def test_huge_feedback_is_cut_and_says_where_the_whole_is() -> None:
    short, long = "x" * LONGEST_FEEDBACK, "start" + "x" * 10 * LONGEST_FEEDBACK + "end"
    assert fitting(short, "/full.md") == short
    cut = fitting(long, "/full.md")
    assert len(cut) < LONGEST_FEEDBACK + 200
    assert cut.startswith("start")
    assert cut.endswith("end")
    assert "full text: /full.md" in cut


SLUGS = {
    "Validate e-mail format!": "validate-e-mail-format",
    "../../etc/passwd": "etc-passwd",
    "ünïcödé": "n-c-d",
    "☃": "item",
    "": "item",
    "word " * 30: "word-word-word-word-word-word-word-word-word-word",
}


@pytest.mark.parametrize(("title", "expected"), SLUGS.items())
def test_a_title_becomes_a_harmless_name(title: str, expected: str) -> None:
    assert slug(title) == expected


@given(st.text())
def test_every_slug_can_be_a_path(title: str) -> None:
    made = slug(title)
    assert 0 < len(made) <= 50
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_every_value_a_prompt_may_use_is_text_on_hand() -> None:
    flow = Workflow(name="w", phases=(Phase(name="prd", prompt="p", artefact="PRD"),))
    item = Item(id="WRK-001", title="A\nbig\tidea", description="{{PHASE}}")
    started = MissionStarted(at="", mission="WRK-001", item=item, workflow=flow, base="b", into="main")
    values = prompt_values(apply(MissionState(), started), "prd", "/results/x.json")
    assert values["ITEM_TITLE"] == "A big idea"
    assert values["ITEM_DESCRIPTION"] == "{{PHASE}}"
    assert values["ARTEFACT_PATH"] == "changes/WRK-001_a-big-idea/WRK-001_a-big-idea_PRD.md"
    assert values["RESULT_PATH"] == "/results/x.json"
