"""Names find the project's files first, then ours, and only what stands in the base."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.adapters import Words
from capsule.catalog import Catalog
from capsule.core.errors import SettingsError
from capsule.project import adapters

GATE = "phases: [{name: check, run: make}]"


def holding(files: dict[str, str]) -> Catalog:
    """The catalog of a base commit with these files."""
    return Catalog(lambda path: files[path].encode() if path in files else None, lambda: files)


def fault(ask: Callable[[], object]) -> str:
    with pytest.raises(SettingsError) as caught:
        ask()
    return f"{caught.value.message} | {caught.value.hint}"


def test_it_is_the_words_the_engine_asks_for() -> None:
    words: Words = Catalog()
    assert words.part("feedback") and words.template("worklog") and words.workflow("tdd")


@pytest.mark.parametrize("name", Catalog().names("workflow"))
def test_every_workflow_of_ours_is_whole(name: str) -> None:
    workflow = Catalog().workflow(name)
    for phase in workflow.phases:
        assert not phase.prompt or Catalog().prompt(phase.prompt)


@pytest.mark.parametrize(
    ("files", "taken"),
    [
        ({}, "built-in prompts/tdd/execute.md"),
        ({"prompts/execute.md": "x"}, "prompts/execute.md"),
        ({"prompts/tdd/execute.md": "x"}, "prompts/tdd/execute.md"),
        ({"prompts/tdd/execute.md": "x", ".capsule/prompts/execute.md": "y"}, ".capsule/prompts/execute.md"),
        (
            {".capsule/prompts/execute.md": "x", ".capsule/prompts/tdd/execute.md": "y"},
            ".capsule/prompts/tdd/execute.md",
        ),
        ({".capsule/prompts/change/execute.md": "x"}, "built-in prompts/tdd/execute.md"),
    ],
)
def test_a_workflows_prompt_is_the_projects_else_ours(files: dict[str, str], taken: str) -> None:
    catalog = holding(files)
    assert catalog.where("execute", workflow="tdd") == taken
    name = catalog.workflow("tdd").phase("execute").prompt
    assert catalog.where(name) == taken
    assert catalog.prompt(name) == files.get(taken, Catalog().prompt("tdd/execute"))


def test_a_workflow_may_borrow_the_prompt_of_another() -> None:
    mine = "phases: [{name: go, prompt: execute}]"
    assert holding({".capsule/workflows/mine.yaml": mine}).workflow("mine").phases[0].prompt == "tdd/execute"


def test_a_prompt_that_two_other_workflows_have_must_be_named_in_full() -> None:
    files = {
        ".capsule/workflows/mine.yaml": "phases: [{name: go, prompt: same}]",
        ".capsule/prompts/tdd/same.md": "",
        "prompts/change/same.md": "",
    }
    words = fault(lambda: holding(files).workflow("mine"))
    assert "phase 'go'" in words and "change/same, tdd/same" in words


def test_parts_and_templates_can_be_replaced_too() -> None:
    catalog = holding({".capsule/prompts/parts/feedback.md": "F", ".capsule/templates/change/PRD.md": "P"})
    assert (catalog.part("feedback"), catalog.template("change/PRD")) == ("F", "P")
    assert catalog.where("worklog", "template") == "built-in templates/worklog.md.template"


@pytest.mark.parametrize("how", ["sometimes", "[merge]", "{a: b}", "!t merge", "3"])
def test_a_workflow_is_published_in_a_way_that_there_is(how: str) -> None:
    catalog = holding({".capsule/workflows/own.yaml": f"publish: {how}\n{GATE}"})
    assert "`publish` is" in fault(lambda: catalog.workflow("own"))


def test_a_projects_workflow_comes_before_ours() -> None:
    assert holding({".capsule/workflows/tdd.yaml": GATE}).workflow("tdd").names() == ("check",)


def test_folders_that_only_look_like_ours_are_left_alone() -> None:
    catalog = holding({"workflows/ci.yaml": GATE, "prompts/deep/er/x.md": "", "templates/index.html": ""})
    assert catalog.names("workflow") == Catalog().names("workflow")
    assert catalog.names("prompt") == Catalog().names("prompt")


def test_inline_prompts_come_first() -> None:
    text = "prompts: {execute: Do it.}\nphases: [{name: go, prompt: execute}]"
    workflow = holding({".capsule/workflows/mine.yaml": text}).workflow("mine")
    assert workflow.prompts[workflow.phases[0].prompt] == "Do it."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("phases: [{name: go, prompt: nowhere}]", ["phase 'go'", "no prompt named 'nowhere'", "tdd/execute"]),
        ("phases: [{name: go, prompt: ../../x}]", ["phase 'go'", "cannot be the name"]),
        ("phases: [{name: go, workflow: tddd}]", ["phase 'go'", "no workflow named 'tddd'", "Did you mean `tdd`"]),
        ("phases: [{name: go, promt: execute}]", ["promt", "Did you mean `prompt`"]),
        ("phases: [{name: a, run: x}]\nphases: []", ["line 2", "`phases` was given on line 1"]),
        ("name: other\n" + GATE, ["calls itself 'other'"]),
        ("phases: [", ["line"]),
        ("", ["is not a workflow"]),
    ],
)
def test_a_faulty_workflow_is_named_with_its_fault(text: str, expected: list[str]) -> None:
    words = fault(lambda: holding({".capsule/workflows/mine.yaml": text}).workflow("mine"))
    assert words.startswith(".capsule/workflows/mine.yaml")
    for part in expected:
        assert part in words


def test_an_unknown_name_lists_the_choices_and_the_nearest() -> None:
    catalog = holding({".capsule/workflows/mine.yaml": GATE})
    words = fault(lambda: catalog.workflow("mime"))
    assert "Did you mean `mine`?" in words and "docs, exam, mine, refactor" in words


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../b", "a/b/c", "", ".hidden", "a\\b", "a\n", "a\0"])
def test_a_name_never_leaves_its_folder(name: str) -> None:
    catalog = Catalog(lambda path: pytest.fail(f"{path} was read"), lambda: [f".capsule/prompts/{name}.md"])
    for ask in (catalog.prompt, catalog.part, catalog.template, catalog.workflow):
        assert "cannot be the name" in fault(lambda ask=ask: ask(name))  # type: ignore[misc]


def test_files_that_are_no_text_are_refused() -> None:
    catalog = Catalog(lambda _: b"\xff", lambda: ["prompts/execute.md"])
    assert "prompts/execute.md, line 1: this is not UTF-8" in fault(lambda: catalog.prompt("execute"))


def test_the_project_can_be_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / ".capsule/prompts/tdd").mkdir(parents=True)
    (tmp_path / ".capsule/prompts/tdd/execute.md").write_text("mine")
    catalog = Catalog.on_disk(tmp_path)
    assert catalog.prompt("execute") == "mine"
    assert catalog.prompt("merge") == Catalog().prompt("merge")


def test_what_exists_is_asked_once_and_only_what_is_taken_is_read() -> None:
    asked: list[str] = []
    listed: list[int] = []

    def listing() -> list[str]:
        listed.append(1)
        return ["prompts/execute.md"]

    catalog = Catalog(lambda path: asked.append(path) or b"x", listing)  # type: ignore[func-returns-value]
    catalog.workflow("tdd")
    catalog.prompt("tdd/execute")
    assert (len(listed), asked) == (1, ["prompts/execute.md"])


def test_adapters_are_the_files_that_are_there() -> None:
    assert adapters("trackers")["beads-file"] == "capsule.trackers.beads_file"
    assert "memory" in adapters("trackers") and "--init--" not in adapters("trackers")
