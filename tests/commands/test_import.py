"""`capsule import`: many items at once, and the same list again."""

from __future__ import annotations

import json

import pytest

from .backlog_project import BacklogProject, unchanged
from .conftest import ITEM, Project, assert_clear

IDEAS = b"- Sort the list\n  by name\n- Paint it\n- paint it!\n"
ISSUES = json.dumps(
    [{"number": 7, "title": "Sort it", "body": "By name.", "labels": [], "url": "https://x/7"}]
).encode()


@pytest.mark.promise("commands.import")
def test_a_list_is_added_by_one_commit_and_not_added_again(a_backlog: BacklogProject) -> None:
    before = a_backlog.head()
    with unchanged(a_backlog):
        would = a_backlog.say("import", "-", "--dry-run", stdin=IDEAS)
    assert would.out == (
        "would add  Sort the list\nwould add  Paint it\nskipped  paint it! (known as an entry above)\n"
        "2 items would be added, 1 skipped. Nothing was changed.\n"
    )
    answer = a_backlog.say("import", "-", "--tag=q3", stdin=IDEAS)
    assert answer.out.startswith("WRK-001  Sort the list\nWRK-002  Paint it\n")
    assert answer.out.endswith("2 items added, 1 skipped.\n") and answer.code == 0
    assert a_backlog.subjects(before) == ["[WRK-001][IMPORT] 2 items"]
    assert (a_backlog.item().description, a_backlog.item().tags) == ("by name", ("q3",))
    with unchanged(a_backlog):
        assert a_backlog.say("import", "-", stdin=IDEAS).out.endswith("0 items added, 3 skipped.\n")


@pytest.mark.promise("commands.import")
def test_what_was_closed_or_done_since_is_not_added_again(a_backlog: BacklogProject) -> None:
    a_backlog.say("import", "-", stdin=IDEAS)
    a_backlog.say("close", "WRK-001", "--reason", "nobody wants it")
    a_backlog.say("complete", "WRK-002")
    again = a_backlog.say("import", "-", stdin=IDEAS).out
    assert "skipped  Sort the list (known as WRK-001)\nskipped  Paint it (known as WRK-002)\n" in again


@pytest.mark.promise("commands.import")
def test_an_issue_is_known_by_its_address(a_backlog: BacklogProject) -> None:
    file = a_backlog.path.parent / "issues.json"
    file.write_bytes(ISSUES)
    assert a_backlog.say("import", str(file)).out == "WRK-001  Sort it\n1 item added, 0 skipped.\n"
    assert a_backlog.item().origin == "https://x/7"
    file.write_bytes(ISSUES.replace(b"Sort it", b"Sort it by age"))
    assert "skipped  Sort it by age (known as WRK-001)" in a_backlog.say("import", str(file)).out


@pytest.mark.promise("commands.import")
def test_a_beads_file_knows_what_was_imported(a_project: Project) -> None:
    a_project.always |= {"CAPSULE_TRACKER": "beads-file"}
    first = a_project.say("import", "-", stdin=ISSUES)
    assert first.out.endswith("1 item added, 0 skipped.\n")
    again = a_project.say("import", "-", stdin=ISSUES.replace(b"Sort it", b"Sort it by age"))
    known = first.out.split()[0]
    assert again.out == f"skipped  Sort it by age (known as {known})\n0 items added, 1 skipped.\n"
    assert len(a_project.beads.read_text().splitlines()) == 2 and ITEM in a_project.beads.read_text()


@pytest.mark.parametrize(
    ("text", "code", "cause"),
    [
        (b"no list", 2, "It holds no items."),
        (b"title,impact\nOne,high\nTwo,huge\n", 2, "Two: impact is 'huge'"),
        (b"\xff\xfe bad", 2, "Stdin is not UTF-8 text."),
        (b'[{"title": "x", "state": "CLOSED"}]', 2, "All items in it are closed."),
        (b"- [x] one\n- [X] two\n", 2, "All items in it are done."),
    ],
)
def test_a_list_with_a_fault_adds_nothing(a_backlog: BacklogProject, text: bytes, code: int, cause: str) -> None:
    with unchanged(a_backlog):
        assert_clear(a_backlog.say("import", "-", stdin=text), code, cause, "")
        assert_clear(a_backlog.say("import", "nowhere.md"), 2, "nowhere.md cannot be read", "text file")


@pytest.mark.promise("commands.import")
def test_what_the_tracker_lacks_is_left_out_with_a_note(a_backlog: BacklogProject) -> None:
    answer = a_backlog.say("import", "-", stdin=b"title,priority,impact\nOne,1,high\n")
    assert answer.code == 0 and answer.out == "WRK-001  One\n1 item added, 0 skipped.\n"
    assert answer.err.startswith("note: priority left out: this project has a backlog.") and "impact" in answer.err
    assert a_backlog.item().assessment.impact == "high"


def test_a_file_that_is_no_text_is_named(a_backlog: BacklogProject) -> None:
    file = a_backlog.path.parent / "b.md"
    file.write_bytes(b"\xff\xfe bad")
    assert_clear(a_backlog.say("import", str(file)), 2, "b.md is not UTF-8 text.", "iconv")
    file.write_bytes(b"\xef\xbb\xbf- One\n")
    assert a_backlog.say("import", str(file)).out.startswith("WRK-001  One\n"), "a byte order mark is no content"
