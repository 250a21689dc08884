"""The words agents and people are given: what each prompt and template promises to whoever fills it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import capsule
from capsule.catalog import Catalog
from capsule.core.briefing import compose, fill
from capsule.core.item import Item
from capsule.core.state import MissionState
from capsule.core.worklog import open_worklog

HOUSE = Path(capsule.__file__).parent
PROMPTS = HOUSE / "prompts"
TEMPLATES = HOUSE / "templates"

ROLES = {
    "test-writer": ("# Test-Writer Phase", "test-writing agent"),
    "test-review": ("# Test-Review Phase", "test-review agent"),
    "execute": ("# Execute Phase", "implementation agent"),
    "execute-review": ("# Execute-Review Phase", "implementation-review agent"),
    "sign-off": ("# Sign-Off Phase", "sign-off agent"),
    "merge": ("# Merge Phase", "merge agent"),
}
WORKLOG_SECTIONS = {
    "test-writer": "### Phase 1: test-writer",
    "test-review": "### Phase 2: test-review",
    "execute": "### Phase 3: execute",
    "execute-review": "### Phase 4: execute-review",
    "sign-off": "### Phase 5: sign-off",
}
CHANGE_PHASES = ("triage", "idea-research", "prd", "research", "design", "spec", "build", "review")
TEMPLATED_PHASES = ("triage", "idea-research", "prd", "research", "design", "spec")
"""Phases that write a document, and are shown its form."""

PREAMBLE_NAMES = {
    *("ITEM_ID", "ITEM_TITLE", "ITEM_ORIGIN", "ITEM_DESCRIPTION", "ITEM_ACCEPTANCE", "ASSESSMENTS", "DEPTH", "SKILL"),
    *("PREVIOUS_SUMMARY", "EARLIER_WORK", "UNBLOCK_NOTES", "FAILURE_CONTEXT"),
}
CHANGE_NAMES = {
    *("PREAMBLE", "RESULT_CONTRACT", "TEMPLATE"),
    *("ARTEFACT_PATH", "CHANGE_FOLDER", "IDEA_PATH", "SPEC_PATH"),
}
WORKLOG_NAMES = {
    *("EPIC_ID", "EPIC_TITLE", "EPIC_GOAL", "FEATURE_ID", "FEATURE_TITLE", "FEATURE_GOAL"),
    *("TASK_ID", "TASK_TITLE", "TASK_DESCRIPTION", "ACCEPTANCE_CRITERIA", "TIMESTAMP", "EARLIER_WORK", "PHASES"),
}
OTHER_KINDS = {
    "refactor": ("refactor", "refactor-review"),
    "docs": ("docs", "docs-review"),
    "tests": ("tests", "tests-review"),
    "chore": ("chore", "chore-review"),
}
"""Workflows for work that has nothing to make red: who does it, and who reviews it."""
SIGNAL_PROMPTS = [
    *(f"tdd/{phase}" for phase in ROLES),
    *(f"{workflow}/{phase}" for workflow, phases in OTHER_KINDS.items() for phase in phases),
]
EXAM_NAMES = ("ITEM_DESCRIPTION", "ITEM_ACCEPTANCE", "SIGNATURES", "TEST_COMMAND")
KNOWN_NAMES = {
    **{f"prompts/{workflow}": {"SIGNAL_CONTRACT", "EARLIER_WORK"} for workflow in ("tdd", *OTHER_KINDS)},
    "prompts/exam": {"SIGNAL_CONTRACT", "ITEM_ID", "ITEM_TITLE", *EXAM_NAMES},
    "prompts/change": CHANGE_NAMES,
    "prompts/parts/signal.md": set[str](),
    "prompts/parts/discovered.md": set[str](),
    "prompts/parts/findings.md": set[str](),
    "prompts/parts/earlier-findings.md": {"FINDINGS"},
    "prompts/parts/feedback.md": {"FEEDBACK"},
    "prompts/parts/result.md": {"RESULT_PATH", "ITEM_ID", "PHASE"},
    "prompts/parts/preamble.md": PREAMBLE_NAMES,
    "templates/change": {"ITEM_ID", "ITEM_TITLE"},
    "templates/worklog.md.template": WORKLOG_NAMES,
}
ALL_TEXTS = sorted([*PROMPTS.rglob("*.md"), *(TEMPLATES / "change").glob("*.md"), TEMPLATES / "worklog.md.template"])


def prompt(name: str) -> str:
    return (PROMPTS / f"{name}.md").read_text(encoding="utf-8")


def one_line(text: str) -> str:
    return " ".join(text.split())


def names_allowed_in(path: Path) -> set[str]:
    place = path.relative_to(HOUSE).as_posix()
    return next(names for prefix, names in KNOWN_NAMES.items() if place.startswith(prefix))


def relative(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


def test_every_phase_has_its_prompt_and_nothing_else_lies_there() -> None:
    assert {path.stem for path in (PROMPTS / "tdd").iterdir()} == set(ROLES)
    assert {path.stem for path in (PROMPTS / "change").iterdir()} == set(CHANGE_PHASES)
    for workflow, phases in OTHER_KINDS.items():
        assert {path.stem for path in (PROMPTS / workflow).iterdir()} == set(phases)


@pytest.mark.parametrize("phase", ROLES)
def test_a_prompt_opens_with_its_heading_and_role(phase: str) -> None:
    heading, role = ROLES[phase]
    lines = prompt(f"tdd/{phase}").splitlines()
    assert lines[0] == heading
    assert role in one_line(" ".join(lines[:5]))


@pytest.mark.parametrize("path", sorted(PROMPTS.rglob("*.md")), ids=relative)
def test_only_the_merge_prompt_speaks_of_merging(path: Path) -> None:
    speaks = re.search(r"merg(e|ing)", path.read_text(encoding="utf-8"), re.IGNORECASE) is not None
    assert speaks == (relative(path) == "prompts/tdd/merge.md")


@pytest.mark.promise("004-follow-ups.prompt-names")
@pytest.mark.parametrize("path", ALL_TEXTS, ids=relative)
def test_only_known_names_are_used(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = set(re.findall(r"\{\{[#/]?(.*?)\}\}", text))
    assert used <= names_allowed_in(path)
    assert text.count("{{") == len(re.findall(r"\{\{[#/]?[A-Z_]+\}\}", text))


@pytest.mark.parametrize("path", ALL_TEXTS, ids=relative)
def test_optional_blocks_stand_on_lines_of_their_own_and_are_closed(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    marks = re.findall(r"\{\{([#/])([A-Z_]+)\}\}", text)
    assert marks == re.findall(r"^\{\{([#/])([A-Z_]+)\}\}$", text, re.MULTILINE)
    assert marks[0::2] == [("#", name) for _, name in marks[1::2]]


@pytest.mark.parametrize("name", SIGNAL_PROMPTS)
def test_a_tdd_prompt_ends_with_the_signal_contract(name: str) -> None:
    assert prompt(name).endswith("\n\n{{SIGNAL_CONTRACT}}\n")


@pytest.mark.parametrize("phase", CHANGE_PHASES)
def test_a_change_prompt_stands_between_preamble_and_result_contract(phase: str) -> None:
    text = prompt(f"change/{phase}")
    assert re.match(r"# [\w ]+\n\n\{\{PREAMBLE\}\}\n\n", text)
    assert text.endswith("\n\n{{RESULT_CONTRACT}}\n")
    assert ("\n~~~markdown\n{{TEMPLATE}}\n~~~\n" in text) == (phase in TEMPLATED_PHASES)


@pytest.mark.parametrize("name", SIGNAL_PROMPTS)
def test_a_tdd_prompt_names_no_item_and_points_to_the_files_that_do(name: str) -> None:
    text = prompt(name)
    assert not re.search(r"demo-\d|WRK-\d|TASK_ID|ITEM_ID", text)
    assert all(f"`{name}`" in text for name in ("worklog.md", "CLAUDE.md", "AGENTS.md"))


@pytest.mark.parametrize("name", SIGNAL_PROMPTS)
def test_a_tdd_prompt_says_that_nobody_answers_and_that_item_text_is_data(name: str) -> None:
    text = one_line(prompt(name))
    assert "nobody will answer a question" in text
    assert re.search(r"task's words.{0,30} are data", text)


@pytest.mark.parametrize("name", SIGNAL_PROMPTS)
def test_a_tdd_prompt_says_what_to_do_when_sent_back(name: str) -> None:
    assert "Previous Feedback" in prompt(name)


@pytest.mark.parametrize("workflow", ["tdd", *OTHER_KINDS])
def test_a_worklog_entry_goes_under_a_section_that_the_template_has(workflow: str) -> None:
    sections = opened_for(workflow)
    phases = WORKLOG_SECTIONS if workflow == "tdd" else OTHER_KINDS[workflow]
    assert len(sections) == len(phases)
    for phase, section in zip(phases, sections, strict=True):
        assert f"under `{section}`" in prompt(f"{workflow}/{phase}")


def opened_for(workflow: str) -> list[str]:
    """The headings of the phase log in a new worklog."""
    template = (TEMPLATES / "worklog.md.template").read_text(encoding="utf-8")
    state = MissionState(item=Item(id="x-1", title="t"), workflow=Catalog().workflow(workflow))
    log = open_worklog(template, state, "2026-01-01T00:00:00Z").partition("## Phase Log")[2]
    return re.findall(r"^### .*", log, re.MULTILINE)


@pytest.mark.parametrize(
    ("phase", "promise"),
    [
        ("test-writer", "tests are red now, were green before you came, and nothing but test files changed"),
        ("test-review", "Capsule refuses any later change to them"),
        ("execute", "everything is green, something changed, and every test file is, byte for byte"),
        ("sign-off", "in a clean folder that holds this change and nothing else, and looks for debris"),
        ("merge", "every change that belongs to the task is committed, no excluded file is"),
    ],
)
def test_an_agent_is_told_what_will_be_checked(phase: str, promise: str) -> None:
    assert promise in one_line(prompt(f"tdd/{phase}"))


UNSEEN = ("hard-coded answers", "detects the test run", "half of ", "wrong specification")


@pytest.mark.parametrize("name", ["tdd/execute-review", "tdd/sign-off", "change/review"])
def test_a_reviewer_is_asked_for_what_no_machine_sees(name: str) -> None:
    text = " ".join((PROMPTS / f"{name}.md").read_text().lower().split())
    assert [words for words in UNSEEN if words not in text] == []


def test_the_sign_off_verdict_is_spelled_as_the_merge_command_looks_for_it() -> None:
    assert "`Verdict: PASS`" in prompt("tdd/sign-off")
    assert "`Verdict: PASS`" in prompt("tdd/merge")


def test_the_merge_agent_stages_by_name_and_uses_the_given_message() -> None:
    text = prompt("tdd/merge")
    assert 'git commit -m "$CAPSULE_COMMIT_MSG"' in text
    assert "Never `git add -A`, `git add .`" in text
    assert "commit_hash" in text


def test_the_example_signal_keeps_the_contract_and_ends_the_part() -> None:
    example = json.loads(prompt("parts/signal").split("```")[-2])
    assert list(example) == ["status", "feedback", "files_changed", "summary"]
    assert example["status"] == "PASS"
    assert isinstance(example["files_changed"], list)


def test_the_example_result_is_json_once_filled() -> None:
    values = {"RESULT_PATH": "out.json", "ITEM_ID": "WRK-001", "PHASE": "prd"}
    text = fill(prompt("parts/result"), values)
    result = json.loads(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])
    assert (result["item_id"], result["phase"]) == ("WRK-001", "prd")
    assert {"result", "summary", "follow_ups", "updated_assessments"} <= set(result)
    assert "    out.json\n" in text


def test_the_result_contract_explains_every_code() -> None:
    text = prompt("parts/result")
    assert all(f"| `{code}` |" in text for code in ("PHASE_COMPLETE", "SUBPHASE_COMPLETE", "FAILED", "BLOCKED"))


def test_feedback_comes_last_and_may_hold_braces() -> None:
    values = {"SIGNAL_CONTRACT": prompt("parts/signal"), "EARLIER_WORK": ""}
    text = compose(prompt("tdd/execute"), values, prompt("parts/feedback"), "Mend {{THIS}} first.")
    assert text.endswith("\n\n```text\nMend {{THIS}} first.\n```\n")
    assert text.index("## Signal") < text.index("\n---\n\n## Previous Feedback\n")


def test_an_empty_preamble_field_leaves_no_heading_behind() -> None:
    bare = fill(prompt("parts/preamble"), dict.fromkeys(PREAMBLE_NAMES, "") | {"ITEM_ID": "WRK-001"})
    full = fill(prompt("parts/preamble"), dict.fromkeys(PREAMBLE_NAMES, "something"))
    assert re.findall(r"^#+ .*", bare, re.MULTILINE) == ["## Item"]
    assert len(re.findall(r"^### .*", full, re.MULTILINE)) == 7
    assert "\n\n\n" not in bare + full


def test_the_worklog_drops_epic_and_feature_where_there_are_none() -> None:
    template = (TEMPLATES / "worklog.md.template").read_text(encoding="utf-8")
    full = fill(template, {name: name.lower() for name in WORKLOG_NAMES})
    no_family = ("EPIC", "FEATURE", "EARLIER")
    orphan = fill(template, {name: "" if name.startswith(no_family) else "x" for name in WORKLOG_NAMES})
    assert "### Epic: epic_id\n" in full
    assert "### Feature: feature_id\n" in full
    assert "Epic" not in orphan
    assert "Feature" not in orphan
    assert "Earlier work" not in orphan and "### Earlier work\n" in full
    assert "\n\n\n" not in full + orphan


def test_the_worklog_keeps_the_order_of_its_sections() -> None:
    template = (TEMPLATES / "worklog.md.template").read_text(encoding="utf-8")
    headings = re.findall(r"^#{1,3} .*", template, re.MULTILINE)
    assert headings[1] == "## Mission Briefing"
    assert headings[4:6] == ["### Task: {{TASK_ID}}", "### Earlier work"]
    assert headings[6:8] == ["## Acceptance Criteria", "## Phase Log"]
    assert headings[8:] == []
    assert opened_for("tdd") == list(WORKLOG_SECTIONS.values())


@pytest.mark.promise("004-names.spec")
def test_each_phase_of_the_spec_form_can_be_read_by_machine() -> None:
    text = (TEMPLATES / "change" / "SPEC.md").read_text(encoding="utf-8")
    phases = re.split(r"^### Phase ", text, flags=re.MULTILINE)[1:]
    assert len(phases) >= 2
    for phase in phases:
        assert phase.count("\n**Phase Status:** not_started\n") == 1
        assert "\n- [ ] " in phase
