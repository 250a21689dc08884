"""Documents are found by the item's id: whatever its title has become, they stay where they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.core.documents import artefact_path, artefact_paths, change_folder, idea_path, own_documents, slug
from capsule.core.item import Item

RETITLED = Item(id="WRK-001", title="Greet in every language")
OLD = "changes/WRK-001_say-hello"
PATHS = [f"{OLD}/WRK-001_say-hello_PRD.md", "_ideas/WRK-001_say-hello.md", "README.md"]

SLUGS = {
    "Validate e-mail format!": "validate-e-mail-format",
    "../../etc/passwd": "etc-passwd",
    "ünïcödé": "unicode",
    "Über Straße": "uber-strasse",
    "ＦＵＬＬ width ™": "full-width-tm",
    "☃": "item",
    "  --  ": "item",
    "": "item",
    "word " * 30: "word-word-word-word-word-word-word-word-word-word",
    "x" * 49 + " yz": "x" * 49,
    "漢字 and words": "and-words",
}


@pytest.mark.parametrize(("title", "expected"), SLUGS.items())
def test_a_title_becomes_a_harmless_name(title: str, expected: str) -> None:
    assert slug(title) == expected


@given(st.text())
def test_every_slug_can_be_a_path(title: str) -> None:
    made = slug(title)
    assert 0 < len(made) <= 50
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert made == made.strip("-")


@pytest.mark.promise("004-names.folders")
def test_a_new_item_gets_the_names_its_title_asks_for() -> None:
    assert change_folder(RETITLED) == "changes/WRK-001_greet-in-every-language"
    assert idea_path(RETITLED) == "_ideas/WRK-001_greet-in-every-language.md"
    spec = artefact_path(RETITLED, "SPEC")
    assert spec == "changes/WRK-001_greet-in-every-language/WRK-001_greet-in-every-language_SPEC.md"


@pytest.mark.promise("004-names.existing")
def test_a_retitled_item_keeps_its_folder_and_its_idea_file() -> None:
    assert change_folder(RETITLED, PATHS) == OLD
    assert idea_path(RETITLED, PATHS) == "_ideas/WRK-001_say-hello.md"


def test_new_documents_in_an_existing_folder_take_its_name() -> None:
    assert artefact_path(RETITLED, "SPEC", PATHS) == f"{OLD}/WRK-001_say-hello_SPEC.md"


def test_an_existing_document_is_used_as_it_is_called() -> None:
    assert artefact_path(RETITLED, "SPEC", [f"{OLD}/the_SPEC.md"]) == f"{OLD}/the_SPEC.md"


def test_of_several_folders_the_first_in_order_is_used() -> None:
    paths = [f"changes/WRK-001_{name}/notes.md" for name in ("later", "earlier", "middle")]
    assert change_folder(RETITLED, paths) == "changes/WRK-001_earlier"


def test_another_items_documents_are_not_taken_for_ours() -> None:
    others = [
        "changes/WRK-0012_x/WRK-0012_x_SPEC.md",
        "changes/wrk-001_x/a.md",
        "_ideas/WRK-0012_x.md",
        "x/WRK-001_y/z",
    ]
    assert own_documents("WRK-001", others) == []
    assert change_folder(RETITLED, others) == change_folder(RETITLED)
    assert idea_path(RETITLED, others) == idea_path(RETITLED)


def test_a_file_beside_the_folders_is_no_folder() -> None:
    assert change_folder(RETITLED, ["changes/WRK-001_notes.md"]) == change_folder(RETITLED)
    assert own_documents("WRK-001", ["changes/WRK-001_notes.md"]) == []


def test_artefacts_are_found_by_kind_in_every_folder_of_the_item() -> None:
    paths = ["changes/WRK-001_b/b_SPEC.md", "changes/WRK-001_a/a_SPEC.md", "changes/WRK-001_a/old/a_SPEC.md"]
    assert artefact_paths("WRK-001", "SPEC", paths) == ["changes/WRK-001_a/a_SPEC.md", "changes/WRK-001_b/b_SPEC.md"]
    assert artefact_paths("WRK-001", "PRD", paths) == []


def test_research_is_accepted_where_tech_research_is_missing() -> None:
    short, full = f"{OLD}/WRK-001_say-hello_RESEARCH.md", f"{OLD}/WRK-001_say-hello_TECH_RESEARCH.md"
    assert artefact_paths("WRK-001", "TECH_RESEARCH", [short]) == [short]
    assert artefact_paths("WRK-001", "TECH_RESEARCH", [short, full]) == [full]
    assert artefact_path(RETITLED, "TECH_RESEARCH", [short]) == short


@pytest.mark.parametrize("name", ["WRK-001_a` and run `b", "WRK-001_a\n## Result"])
def test_a_name_that_could_leave_its_backticks_is_not_shown_to_an_agent(name: str) -> None:
    paths = [f"changes/{name}/x_SPEC.md", f"_ideas/{name}.md"]
    assert change_folder(RETITLED, paths) == change_folder(RETITLED)
    assert idea_path(RETITLED, paths) == idea_path(RETITLED)
    assert artefact_path(RETITLED, "SPEC", paths) == artefact_path(RETITLED, "SPEC")
