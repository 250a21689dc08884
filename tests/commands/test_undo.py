"""`capsule undo` and `capsule reopen`: what a verb did is taken back, and nothing else is lost."""

from __future__ import annotations

import re
import subprocess

import pytest

from capsule.commands.verbs import ALIASES, GROUPS
from capsule.core.event import MovedByHand
from capsule.core.item import Status

from .backlog_project import BacklogProject, blocked, unchanged
from .conftest import ITEM, Project, assert_clear
from .test_accept import review_an_untested_change
from .test_backlog_commands import an_interrupted_mission  # noqa: F401 - a fixture


@pytest.fixture
def committed(a_backlog: BacklogProject) -> BacklogProject:
    """Three items, the second waits for a decision; all is committed."""
    a_backlog.hold({"tags": "[ui]"}, blocked("decision", risk="high"), {"status": "ready"})
    a_backlog.git("commit", "-q", "-m", "by hand", "BACKLOG.yaml")
    return a_backlog


@pytest.fixture
def waiting(a_backlog: BacklogProject) -> BacklogProject:
    """Four items, the second waits for a decision, the fourth for an answer; all is committed."""
    a_backlog.hold({"tags": "[ui]"}, blocked("decision", risk="high"), {"status": "ready"}, blocked())
    a_backlog.git("commit", "-q", "-m", "by hand", "BACKLOG.yaml")
    return a_backlog


@pytest.fixture
def refuted(a_backlog: BacklogProject) -> BacklogProject:
    """The tests of WRK-001 do not demand its code, which waits to be accepted."""
    review_an_untested_change(a_backlog)
    return a_backlog


TYPED = (
    (("add", "Another"), "[WRK-005][ADD] Another"),
    (("new", "Another"), "[WRK-005][ADD] Another"),
    (("create", "Another"), "[WRK-005][ADD] Another"),
    (("import", "-"), "[WRK-005][IMPORT] 1 item"),
    (("edit", "WRK-001", "--title=Sort it", "--impact=high"), "[WRK-001][EDIT] title, impact changed"),
    (("set", "WRK-001", "--title=Sort it"), "[WRK-001][EDIT] title changed"),
    (("depend", "WRK-001", "--on=WRK-003"), "[WRK-001][DEPEND] waits for WRK-003"),
    (("hold", "WRK-003", "--reason=later"), "[WRK-003][HOLD] later"),
    (("block", "WRK-003", "later"), "[WRK-003][HOLD] later"),
    (("answer", "WRK-002", "--approve"), "[WRK-002][UNBLOCK] risk is high, above the guardrail low"),
    (("answer", "WRK-004", "Blue."), "[WRK-004][UNBLOCK] Blue."),
    (("answer", "WRK-004", "--close=no"), "[WRK-004][ARCHIVE] Closed: Item 4 (no)"),
    (("reply", "WRK-004", "Blue."), "[WRK-004][UNBLOCK] Blue."),
    (("retry", "WRK-004"), "[WRK-004][UNBLOCK] which colour?"),
    (("unblock", "WRK-004", "--notes=Blue."), "[WRK-004][UNBLOCK] Blue."),
    (("approve", "WRK-002"), "[WRK-002][UNBLOCK] risk is high, above the guardrail low"),
    (
        ("accept", "WRK-001", "demanded", "--because=It is a hook."),
        "[WRK-001][UNBLOCK] accepted demanded: It is a hook.",
    ),
    (("advance", "WRK-001"), "[WRK-001][ADVANCE] new -> scoped"),
    (("complete", "WRK-001"), "[WRK-001][ARCHIVE] Completed: Item 1"),
    (("done", "WRK-001"), "[WRK-001][ARCHIVE] Completed: Item 1"),
    (("finish", "WRK-001"), "[WRK-001][ARCHIVE] Completed: Item 1"),
    (("close", "WRK-003", "--reason=no"), "[WRK-003][ARCHIVE] Closed: Item 3 (no)"),
    (("reopen", "WRK-003"), "[WRK-003][REOPEN] Item 3"),
)
"""Each command that changes a backlog, and each spelling of one, as typed; and the subject of its commit."""
READING = {"init", "status", "questions", "list", "explain", "undo"}
"""Commands for items that have nothing to undo; `init` makes the backlog."""


def entries(project: BacklogProject) -> list[str]:
    """The entries of the worklogs, without their heads."""
    texts = [worklog.read_text() for worklog in sorted((project.path / "_worklog").glob("*.md"))]
    return [entry.strip() for text in texts for entry in text.split("\n## ")[1:]]


def test_each_command_that_changes_a_backlog_is_undone_here() -> None:
    changing = GROUPS["Items"].keys() - READING
    spellings = {alias for alias, words in ALIASES.items() if words[0] in changing}
    assert {words[0] for words, _ in TYPED} == changing | spellings


@pytest.mark.sweep(cases=9)
@pytest.mark.promise("commands.undo")
@pytest.mark.parametrize(("words", "subject"), TYPED, ids=[" ".join(words) for words, _ in TYPED])
def test_what_a_verb_did_is_taken_back(request: pytest.FixtureRequest, words: tuple[str, ...], subject: str) -> None:
    project: BacklogProject = request.getfixturevalue("refuted" if words[0] == "accept" else "waiting")
    if words[0] == "reopen":
        project.say("complete", words[1])
    before, recorded = project.backlog.read_bytes(), entries(project)
    assert project.say(*words, stdin=b"- Another\n").code == 0
    answer = project.say("undo")
    assert (answer.code, answer.err, answer.out.splitlines()[0]) == (0, "", f"Undone: {subject}")
    assert project.subjects()[-1] == f"{subject.partition(']')[0]}][UNDO] {subject}" and project.status() == ""
    after = project.backlog.read_bytes()
    assert re.sub(rb"last_id: .*", b"", after) == re.sub(rb"last_id: .*", b"", before)
    assert entries(project) == recorded


@pytest.mark.promise("commands.undo")
def test_other_changes_in_the_tree_do_not_matter(committed: BacklogProject) -> None:
    committed.write("untracked.txt", "x\n")
    committed.say("add", "Alpha")
    before = committed.backlog.read_bytes()
    assert committed.say("hold", "WRK-004", "later") == (0, "WRK-004 is on hold: later\n", "")
    assert committed.say("undo").out.startswith("Undone: [WRK-004][HOLD] later\n")
    assert committed.backlog.read_bytes() == before
    assert committed.status() == "?? untracked.txt"


@pytest.mark.promise("commands.undo")
def test_an_uncommitted_worklog_is_not_overwritten(committed: BacklogProject) -> None:
    committed.say("complete", "WRK-001")
    worklog = next((committed.path / "_worklog").glob("*.md"))
    worklog.write_text(worklog.read_text() + "\nA note of mine.\n")
    with unchanged(committed):
        name = worklog.relative_to(committed.path)
        assert_clear(committed.say("undo"), 1, f"{name} has changes that are not committed", "git commit")


@pytest.mark.promise("commands.undo")
def test_what_was_not_committed_is_committed_by_the_command_that_is_named(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-003", "--title=Third")
    committed.say("hold", "WRK-001", "--reason=later", "--no-commit")
    committed.write("staged", "not the backlog's\n")
    committed.git("add", "staged")
    edited = committed.backlog.read_bytes()
    with unchanged(committed):
        refused = committed.say("undo")
    command = refused.err.partition("Commit them: ")[2].strip()
    subprocess.run(command, shell=True, cwd=committed.path, env=committed.environment(), check=True)
    assert (committed.backlog.read_bytes(), committed.status()) == (edited, "A  staged")
    assert committed.say("undo").out.startswith("Undone: [WRK-003][EDIT]")
    assert "later" in committed.backlog.read_text() and "Third" not in committed.backlog.read_text()


@pytest.mark.promise("commands.undo")
def test_undo_waits_for_a_branch_and_for_a_merge_under_way(committed: BacklogProject) -> None:
    committed.say("hold", "WRK-001", "--reason=later")
    (committed.path / ".git/MERGE_HEAD").write_text(committed.head() + "\n")
    assert_clear(committed.say("undo"), 1, "a merge is under way", "Finish it first: git merge")
    (committed.path / ".git/MERGE_HEAD").unlink()
    committed.git("checkout", "-q", "--detach")
    assert_clear(committed.say("undo"), 1, "HEAD is detached", "git switch")


@pytest.mark.promise("commands.undo")
def test_new_items_go_and_their_ids_are_not_given_again(committed: BacklogProject) -> None:
    committed.say("import", "-", stdin=b"- One\n- Two\n")
    assert committed.say("undo").out.startswith("Undone: [WRK-004][IMPORT] 2 items\n")
    assert committed.ids() == ["WRK-001", "WRK-002", "WRK-003"]
    assert committed.say("add", "Three").out == "WRK-006  Three\n"


@pytest.mark.promise("commands.undo")
def test_what_came_since_stays_and_again_takes_back_the_one_before(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-001", "--title=First")
    committed.say("edit", "WRK-003", "--title=Third")
    committed.write("answer", "42\n")
    committed.commit("something else")
    assert committed.say("undo").out.startswith("Undone: [WRK-003][EDIT]")
    assert [committed.item(name).title for name in ("WRK-001", "WRK-003")] == ["First", "Item 3"]
    assert committed.say("undo").out.startswith("Undone: [WRK-001][EDIT]")
    assert committed.item().title == "Item 1" and (committed.path / "answer").read_text() == "42\n"
    with unchanged(committed):
        assert_clear(committed.say("undo"), 1, "There is nothing to undo", "git revert")


@pytest.mark.promise("commands.undo")
@pytest.mark.parametrize(
    "words",
    [
        ("hold", "WRK-001", "WRK-003", "--reason=later"),
        ("edit", "WRK-001", "WRK-003", "--impact=high"),
        ("close", "WRK-001", "WRK-003", "--reason=no"),
    ],
)
def test_what_one_verb_did_to_several_items_is_taken_back_at_once(
    committed: BacklogProject, words: tuple[str, ...]
) -> None:
    committed.say("edit", "WRK-002", "--title=Second")
    before = committed.backlog.read_bytes()
    assert committed.say(*words).code == 0
    answer = committed.say("undo")
    assert (answer.code, answer.err) == (0, "")
    assert [line.split("]")[0] for line in answer.out.splitlines()[:2]] == ["Undone: [WRK-003", "Undone: [WRK-001"]
    assert committed.backlog.read_bytes() == before
    assert committed.say("undo").out.startswith("Undone: [WRK-002][EDIT]")


@pytest.mark.promise("commands.undo")
def test_all_lines_that_were_added_at_once_are_taken_back_at_once(committed: BacklogProject) -> None:
    before = committed.ids()
    assert committed.say("add", "-", stdin=b"One\nTwo\n").code == 0
    assert committed.say("undo").code == 0
    assert committed.ids() == before


@pytest.mark.promise("commands.undo")
def test_what_cannot_be_taken_back_of_several_is_told_and_the_rest_is(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-001", "WRK-003", "--impact=high")
    committed.say("edit", "WRK-003", "--impact=low")
    committed.git("commit", "-q", "--amend", "-m", "by hand")
    answer = committed.say("undo")
    assert answer.code == 1 and answer.out.startswith("Undone: [WRK-001][EDIT]")
    assert "“[WRK-003][EDIT] impact changed” changed was changed again since" in answer.err
    assert (committed.item("WRK-001").assessment.impact, committed.item("WRK-003").assessment.impact) == ("", "low")


@pytest.mark.promise("commands.undo", "commands.reopen")
def test_a_reopening_is_taken_back_and_nothing_before_it(committed: BacklogProject) -> None:
    committed.say("add", "Another")
    committed.say("complete", "WRK-003")
    committed.say("reopen", "WRK-003")
    assert committed.say("undo").out.startswith("Undone: [WRK-003][REOPEN] Item 3\n")
    assert committed.ids() == ["WRK-001", "WRK-002", "WRK-004"]
    assert committed.say("undo").out.startswith("Undone: [WRK-003][ARCHIVE] ")
    assert committed.ids() == ["WRK-001", "WRK-002", "WRK-003", "WRK-004"]
    assert committed.say("undo").out.startswith("Undone: [WRK-004][ADD] ")


def test_a_mission_hears_that_its_item_was_put_back(an_interrupted_mission: BacklogProject) -> None:  # noqa: F811
    project = an_interrupted_mission
    project.git("commit", "-q", "-m", "by hand", "BACKLOG.yaml")
    project.say("hold", "WRK-001", "--reason=later")
    assert project.say("undo").code == 0
    moved = [event for event in project.events("WRK-001") if isinstance(event, MovedByHand)]
    assert [event.found for event in moved] == ["blocked at design", "in_progress at design"]


@pytest.mark.promise("commands.undo")
def test_what_a_person_reverted_is_not_undone_once_more(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-001", "--title=First")
    committed.say("edit", "WRK-003", "--title=Second")
    committed.git("revert", "--no-edit", "HEAD")
    assert "Undone: [WRK-001][EDIT]" in committed.say("undo").out
    assert committed.item("WRK-001").title == "Item 1"


@pytest.mark.promise("commands.undo")
def test_what_is_as_it_was_before_is_not_said_to_be_undone(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-001", "--title=First")
    committed.git("checkout", "HEAD~1", "--", "BACKLOG.yaml")
    committed.git("commit", "-q", "-m", "by hand")
    with unchanged(committed):
        assert_clear(committed.say("undo"), 1, "is as it was before", "git log")


@pytest.mark.promise("commands.undo")
def test_what_was_changed_again_is_left_as_it_is(committed: BacklogProject) -> None:
    committed.say("edit", "WRK-001", "--title=First")
    committed.edit("title: First", "title: Best")
    with unchanged(committed):
        assert_clear(committed.say("undo"), 1, "BACKLOG.yaml has changes that are not committed", "git commit")
    committed.git("commit", "-q", "-m", "by hand", "BACKLOG.yaml")
    with unchanged(committed):
        assert_clear(committed.say("undo"), 1, "changed again since; nothing was undone.", "capsule edit")


def test_beads_are_not_undone_from_here(a_project: Project) -> None:
    a_project.always |= {"CAPSULE_TRACKER": "beads-file"}
    assert_clear(a_project.say("undo"), 1, "`capsule undo` is for the items of a backlog", "capsule edit")


# ---- reopen


@pytest.mark.promise("commands.reopen")
def test_what_left_the_backlog_comes_back(committed: BacklogProject) -> None:
    committed.hold({"status": "in_progress", "phase": "prd", "tags": "[ui]"}, {})
    committed.git("commit", "-q", "-m", "by hand", "BACKLOG.yaml")
    committed.say("complete", "WRK-001")
    committed.say("close", "WRK-002", "--reason=no")
    committed.say("add", "Another")
    answer = committed.say("reopen", "WRK-001", "WRK-002")
    assert answer == (0, "WRK-001 is ready again: Item 1\nWRK-002 is new again: Item 2\n", "")
    assert committed.item().tags == ("ui",) and sorted(committed.ids()) == ["WRK-001", "WRK-002", "WRK-003"]
    assert committed.say("reopen", "WRK-001").code == 1
    for worklog in (committed.path / "_worklog").glob("*.md"):
        assert worklog.read_text().strip() == f"# Worklog {worklog.stem}"
    assert committed.status() == ""


@pytest.mark.promise("commands.reopen")
def test_a_mission_that_failed_goes_on(a_halted_mission: Project) -> None:
    assert a_halted_mission.say("reopen", ITEM).out == f"{ITEM} resumes at execute: capsule run {ITEM}\n"
    a_halted_mission.say("abort", ITEM)
    assert a_halted_mission.say("reopen", ITEM).out.endswith(f"has ended. Start over: capsule run {ITEM}\n")


def test_what_cannot_be_reopened(committed: BacklogProject, a_merged_mission: Project) -> None:
    with unchanged(committed):
        assert_clear(committed.say("reopen", "WRK-003"), 1, "WRK-003 is open: it is ready.", "capsule run WRK-003")
        assert_clear(committed.say("reopen", "WRK-002"), 1, "WRK-002 is blocked: risk is high", "questions WRK-002")
        assert_clear(committed.say("reopen", "WRK-009"), 1, "There is no item WRK-009", "")
    assert_clear(a_merged_mission.say("reopen", ITEM), 1, f"{ITEM} is closed in its tracker", "Reopen it")
    assert committed.item("WRK-003").status is Status.READY


@pytest.mark.promise("commands.reopen")
def test_what_a_mission_has_done_is_taken_up_anew(a_backlog: BacklogProject) -> None:
    """What it brought stays; its item is ready again, and worked on once more."""
    a_backlog.add()
    a_backlog.run()
    assert a_backlog.ids() == [] and (a_backlog.path / "answer").exists()
    assert a_backlog.say("reopen", "WRK-001") == (0, "WRK-001 is ready again: Find the answer\n", "")
    assert a_backlog.item().assessment.impact == "high" and (a_backlog.path / "answer").read_text() == "42\n"
    assert "WRK-001" in a_backlog.say("explain").out
