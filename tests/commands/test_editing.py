"""`capsule edit`, `depend` and `hold`: what items say, what they wait for, and what is put aside."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from capsule.core.item import Status
from tests.costs import LONG

from .backlog_project import BacklogProject, blocked, unchanged
from .conftest import ITEM, Project, assert_clear, bead
from .terminal import Terminal


@pytest.fixture
def three_items(a_backlog: BacklogProject) -> BacklogProject:
    a_backlog.hold({"tags": "[ui, slow]", "size": "large"}, {"dependencies": "[WRK-001]"}, {"status": "ready"})
    return a_backlog


@pytest.fixture
def two_beads(a_project: Project) -> Project:
    a_project.beads.write_text("".join(f"{json.dumps(bead(id=name))}\n" for name in (ITEM, "demo-1.2")))
    a_project.commit("beads")
    a_project.always |= {"CAPSULE_TRACKER": "beads-file"}
    return a_project


def row(project: Project, name: str = ITEM) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in project.beads.read_text().splitlines()]
    return next(each for each in rows if each["id"] == name)


# ---- edit


@pytest.mark.promise("commands.edit")
def test_fields_of_a_backlogs_item_are_changed_in_one_commit(three_items: BacklogProject) -> None:
    words = ("--title", "Sort it", "--description=-", "--impact", "H", "--size=", "--tag=new", "--untag=slow")
    answer = three_items.say("edit", "WRK-001", *words, stdin=b"By name.\nThen by age.\n")
    assert answer == (0, "WRK-001 is changed: Sort it\n", "")
    item = three_items.item()
    assert (item.title, item.description, item.tags) == ("Sort it", "By name.\nThen by age.", ("ui", "new"))
    assert (item.assessment.impact, item.assessment.size) == ("high", "")
    assert three_items.subjects()[-1] == "[WRK-001][EDIT] title, description, size, impact, tags changed"
    assert three_items.status() == ""
    with unchanged(three_items):
        assert three_items.say("edit", "WRK-001", "--tag=new") == (0, "WRK-001: nothing to change.\n", "")


@pytest.mark.promise("commands.edit")
def test_several_items_get_the_same_level(three_items: BacklogProject) -> None:
    answer = three_items.say("set", "WRK-001", "WRK-003", "--impact=low")
    assert answer == (0, "WRK-001 is changed: Item 1\nWRK-003 is changed: Item 3\n", "")
    assert [three_items.item(name).assessment.impact for name in three_items.ids()] == ["low", "", "low"]


@pytest.mark.promise("commands.edit")
def test_fields_of_a_bead_are_changed_in_its_file(two_beads: Project) -> None:
    answer = two_beads.say("edit", ITEM, "--priority=P0", "--type=bug", "--parent=demo-1.2", "--tag=ui")
    assert answer == (0, f"{ITEM} is changed: Find the answer\n", "")
    changed = row(two_beads)
    assert (changed["priority"], changed["issue_type"], changed["labels"]) == (0, "bug", ["ui"])
    (edge,) = changed["dependencies"]
    assert (edge["depends_on_id"], edge["type"], edge["created_by"]) == ("demo-1.2", "parent-child", "capsule")
    assert row(two_beads, "demo-1.2") == bead(id="demo-1.2")


@pytest.mark.promise("commands.edit")
def test_title_and_description_are_edited_in_the_editor(three_items: BacklogProject, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\nfrom pathlib import Path\nfile = Path(sys.argv[1])\n"
        "assert file.read_text() == '# Item 1\\n\\n\\n'\n"
        "file.write_text('# Sort it\\n\\nBy name.\\n\\n## How\\nfast\\n')\n"
    )
    env = three_items.environment(EDITOR=f"python3 {shlex.quote(str(editor))}", VISUAL="")
    with Terminal(("edit", "WRK-001"), three_items.path, env) as terminal:
        assert terminal.process.wait(LONG) == 0
    assert (three_items.item().title, three_items.item().description) == ("Sort it", "By name.\n\n## How\nfast")


@pytest.mark.parametrize(
    ("words", "code", "cause", "what_next"),
    [
        (("WRK-001",), 2, "There is nothing to change.", "capsule edit ID --title"),
        (("WRK-001", "WRK-002", "--title=x"), 2, "cannot have the same title", "one by one"),
        (("WRK-001", "--title="), 2, "An item needs a title.", ""),
        (("WRK-001", "--impact=huge"), 2, "--impact is 'huge'", ""),
        (("WRK-001", "--priority=1"), 2, "An item has no priority here: this project has a backlog.", "--impact"),
        (("WRK-009", "--impact=low"), 1, "There is no item WRK-009", ""),
    ],
)
def test_what_cannot_be_edited_is_left_alone(
    three_items: BacklogProject, words: tuple[str, ...], code: int, cause: str, what_next: str
) -> None:
    with unchanged(three_items):
        assert_clear(three_items.say("edit", *words), code, cause, what_next)


def test_a_bead_has_no_levels_and_no_commit(two_beads: Project) -> None:
    assert_clear(two_beads.say("edit", ITEM, "--size=small"), 2, "An item has no size here", "--priority")
    assert_clear(two_beads.say("edit", ITEM, "--title=x", "--no-commit"), 2, "--no-commit is for a backlog", "Leave")
    assert_clear(two_beads.say("edit", ITEM, "--priority=9"), 2, "it must be 0 to 4", "0 is the most urgent")
    assert_clear(two_beads.say("edit", ITEM, f"--parent={ITEM}"), 1, f"{ITEM} would hold itself.", "")


# ---- depend


@pytest.mark.promise("commands.depend")
def test_items_wait_for_others_and_no_more(three_items: BacklogProject) -> None:
    answer = three_items.say("depend", "WRK-002", "WRK-003", "--on", "WRK-001")
    assert answer == (0, "WRK-002: nothing to change.\nWRK-003 waits for WRK-001.\n", "")
    assert three_items.item("WRK-003").dependencies == ("WRK-001",)
    assert three_items.subjects()[-1] == "[WRK-003][DEPEND] waits for WRK-001"
    assert three_items.say("depend", "WRK-002", "--off=WRK-001").out == "WRK-002 no longer waits for anything.\n"
    assert three_items.item("WRK-002").dependencies == ()


@pytest.mark.promise("commands.depend")
def test_a_circle_is_refused_with_its_way(three_items: BacklogProject) -> None:
    three_items.say("depend", "WRK-003", "--on", "WRK-002")
    with unchanged(three_items):
        answer = three_items.say("depend", "WRK-001", "--on", "WRK-003")
        circle = "WRK-001 would wait for itself: WRK-001 → WRK-003 → WRK-002 → WRK-001."
        assert_clear(answer, 1, circle, "capsule depend WRK-002 --off WRK-001")
        assert_clear(three_items.say("depend", "WRK-001", "--on=WRK-001"), 1, "would wait for itself", "another")
        assert_clear(three_items.say("depend", "WRK-001", "--off=WRK-003"), 1, "does not depend on WRK-003", "nothing")
        assert_clear(three_items.say("depend", "WRK-001"), 2, "No other item is named.", "--on OTHER")


def test_beads_wait_for_others_too(two_beads: Project) -> None:
    assert two_beads.say("depend", ITEM, "--on=demo-1.2") == (0, f"{ITEM} waits for demo-1.2.\n", "")
    assert [edge["depends_on_id"] for edge in row(two_beads)["dependencies"]] == ["demo-1.2"]
    assert two_beads.say("depend", ITEM, "--off=demo-1.2").code == 0
    assert row(two_beads)["dependencies"] == []


# ---- hold


@pytest.mark.promise("commands.hold")
def test_what_is_on_hold_waits_for_a_yes(three_items: BacklogProject) -> None:
    answer = three_items.say("hold", "WRK-003", "WRK-001", "legal has to look at it")
    told = "WRK-003 is on hold: legal has to look at it\nWRK-001 is on hold: legal has to look at it\n"
    assert answer == (0, told, "")
    assert "waits for your decision" in three_items.say("questions", "WRK-003").out
    assert three_items.say("answer", "WRK-003", "--approve") == (0, "WRK-003 is ready again.\n", "")


@pytest.mark.promise("commands.hold")
@pytest.mark.parametrize(
    ("option", "kind", "way"),
    [("--question", "clarification", "--notes"), ("--blocked", "", "--notes")],
)
def test_what_is_on_hold_may_ask_or_just_be_blocked(
    three_items: BacklogProject, option: str, kind: str, way: str
) -> None:
    assert three_items.say("hold", "WRK-003", option, "which shop?").code == 0
    block = three_items.item("WRK-003").blocked
    assert block and (block.kind, block.reason) == (kind, "which shop?")
    assert f'answer:   capsule answer WRK-003 {way} "..."' in three_items.say("questions", "WRK-003").out
    assert three_items.say("answer", "WRK-003", "the new one").out == "WRK-003 is ready again.\n"
    assert three_items.item("WRK-003").unblock_context == "the new one"
    with unchanged(three_items):
        both = three_items.say("hold", "WRK-003", "--question=why", "--blocked=so")
        assert_clear(both, 2, "one with --question and one with --blocked", "Leave out")


@pytest.mark.promise("commands.hold", "commands.undo")
def test_a_question_by_a_person_is_undone(three_items: BacklogProject) -> None:
    three_items.git("add", "-A")
    three_items.git("commit", "-q", "-m", "three items")
    before = three_items.fields("WRK-003")
    assert three_items.say("hold", "WRK-003", "--question", "which shop?").code == 0
    assert three_items.say("undo").code == 0
    assert three_items.fields("WRK-003") == before


@pytest.mark.promise("commands.hold")
def test_a_bead_on_hold_is_blocked_and_says_why(two_beads: Project) -> None:
    assert two_beads.say("hold", ITEM, "legal has to look at it").code == 0
    assert row(two_beads)["status"] == "blocked"
    assert row(two_beads)["comments"][0]["text"] == "On hold: legal has to look at it"
    assert two_beads.say("answer", ITEM, "--retry").out == f"{ITEM} is open again: capsule run {ITEM}\n"
    assert two_beads.status_of() == "open"


def test_what_cannot_be_held(three_items: BacklogProject) -> None:
    three_items.hold(blocked(), {"status": "done"})
    with unchanged(three_items):
        assert_clear(three_items.say("hold", "WRK-001", "no reason"), 1, "blocked already: which colour?", "questions")
        assert_clear(three_items.say("hold", "WRK-002", "no reason"), 1, "WRK-002 is done.", "nothing")
        assert_clear(three_items.say("hold", "WRK-001"), 2, "No reason is given.", "capsule hold ID")
        assert_clear(three_items.say("hold", "WRK-001", "--reason= "), 2, "No reason is given.", "")
    assert three_items.item().status is Status.BLOCKED
