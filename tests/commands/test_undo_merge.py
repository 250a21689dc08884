"""`capsule undo ID`: the merge of a mission is reverted by a commit, and its item can be done again."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys

import pytest

from tests.costs import LONG

from .backlog_project import BacklogProject, unchanged
from .backlog_script import honest as by_change
from .conftest import ITEM, Project, Said, assert_clear, honest, said

TDD = ("run", "WRK-001", "--workflow", "tdd")
RUN_AGAIN = "capsule run WRK-001 --workflow tdd"


@pytest.fixture
def merged(a_backlog: BacklogProject) -> BacklogProject:
    """WRK-001 went through the workflow tdd and is on main; its agents can do it again."""
    a_backlog.test = "if test -f tests/test_answer.sh; then sh tests/test_answer.sh; fi"
    a_backlog.play({name: 2 * turns for name, turns in honest(merge=[said("PASS")]).items()})
    a_backlog.add()
    assert a_backlog.say(*TDD).code == 0
    assert a_backlog.ids() == [] and (a_backlog.path / "answer").exists()
    return a_backlog


def named(answer: Said, label: str) -> list[str]:
    """Return the words of a command that is named after this label."""
    line = next(line for line in f"{answer.out}\n{answer.err}".splitlines() if label in line)
    return shlex.split(line.partition(label)[2])


def type_it(project: Project, words: list[str]) -> Said:
    assert words[0] == "capsule"
    return project.say(*words[1:])


def is_done_again(project: BacklogProject) -> bool:
    return project.ids() == [] and project.git("show", "main:answer") == "42" and project.status() == ""


@pytest.mark.promise("commands.undo-merge")
def test_a_merge_is_reverted_and_its_item_done_again_by_the_command_that_is_named(merged: BacklogProject) -> None:
    merge = merged.head()
    answer = merged.say("undo", "WRK-001")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Undone: Merge WRK-001: Find the answer\n")
    assert merged.status() == "" and not (merged.path / "answer").exists()
    assert merged.git("diff", "--name-only", f"{merge}^1", "HEAD") == "BACKLOG.yaml"
    item = merged.item()
    assert (item.status.value, item.phase, item.title) == ("ready", "", "Find the answer")
    assert " ".join(named(answer, "next:")) == RUN_AGAIN
    shown = merged.say("show", "WRK-001")
    assert "its item was opened again: ready\n" in shown.out and " ".join(named(shown, "next:")) == RUN_AGAIN
    again = type_it(merged, named(answer, "next:"))
    assert again.code == 0 and is_done_again(merged), again


@pytest.mark.promise("commands.undo-merge")
def test_later_work_and_edits_elsewhere_are_kept(merged: BacklogProject) -> None:
    merged.write("later", "work\n")
    merged.commit("later work")
    merged.say("add", "Another")
    merged.write("mine", "not committed\n")
    assert merged.say("undo", "WRK-001").code == 0
    assert merged.git("ls-tree", "--name-only", "HEAD", "later", "answer") == "later"
    assert sorted(merged.ids()) == ["WRK-001", "WRK-002"] and merged.status() == "?? mine"


@pytest.mark.promise("commands.undo-merge")
def test_a_file_that_the_user_has_edited_is_not_overwritten(merged: BacklogProject) -> None:
    merged.write("answer", "42, I think\n")
    with unchanged(merged):
        assert_clear(merged.say("undo", "WRK-001"), 1, "uncommitted edits of answer", "Commit or put away")


@pytest.mark.promise("commands.undo-merge")
def test_where_later_commits_changed_the_same_lines_nothing_is_undone(merged: BacklogProject) -> None:
    merge = merged.head()
    merged.write("answer", "42\n43\n")
    merged.commit("more answers")
    with unchanged(merged):
        refused = merged.say("undo", "WRK-001")
    assert_clear(refused, 1, "changed since: answer; nothing was undone.", f"git revert -m 1 {merge[:12]}")
    with pytest.raises(AssertionError, match="could not revert"):
        merged.git("revert", "--no-edit", "-m", "1", merge[:12])
    merged.git("rm", "-q", "answer")
    merged.git("-c", "core.editor=true", "revert", "--continue")
    reopened = type_it(merged, named(refused, "then: "))
    assert reopened.code == 0, reopened
    again = type_it(merged, named(reopened, "run it:"))
    assert again.code == 0 and is_done_again(merged), again


@pytest.mark.promise("commands.undo-merge")
@pytest.mark.parametrize("words", [("run", "WRK-001"), TDD, ("run",)])
def test_after_a_revert_by_hand_the_command_that_is_named_starts_over(
    merged: BacklogProject, words: tuple[str, ...]
) -> None:
    merged.git("revert", "--no-edit", "-m", "1", "HEAD")
    before = merged.head()
    refused = merged.say(*words)
    assert refused.code == 1 and merged.head() == before, refused
    command = named(refused, "next:")
    assert " ".join(command) == "capsule run WRK-001 --fresh --workflow tdd"
    again = type_it(merged, command)
    assert again.code == 0 and is_done_again(merged), again


@pytest.mark.promise("commands.undo-merge")
def test_after_a_revert_by_hand_undo_makes_the_item_ready(merged: BacklogProject) -> None:
    merged.git("revert", "--no-edit", "-m", "1", "HEAD")
    answer = merged.say("undo", "WRK-001")
    assert answer.code == 0 and merged.item().status.value == "ready"
    assert type_it(merged, named(answer, "next:")).code == 0 and is_done_again(merged)


KILLED_BEFORE_ITS_FILES = """
import os, signal, sys

def watch(event, args):
    if event == "os.rename" and os.fspath(args[1]).endswith("BACKLOG.yaml"):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
from capsule.cli import main
main(sys.argv[1:])
"""


@pytest.mark.promise("commands.undo-merge")
@pytest.mark.parametrize("words", [("WRK-001",), ()])
def test_an_undo_that_is_killed_after_its_commit_is_finished_by_the_next_one(
    merged: BacklogProject, words: tuple[str, ...]
) -> None:
    if not words:
        merged.add("Another")
        merged.say("edit", "WRK-002", "--title", "Something else")
    before = merged.head()
    command = [sys.executable, "-c", KILLED_BEFORE_ITS_FILES, "undo", *words]
    killed = subprocess.run(command, cwd=merged.path, env=merged.environment(), timeout=LONG, check=False)
    assert killed.returncode == -signal.SIGKILL and merged.head() != before and merged.status() != ""
    made = merged.head()
    again = merged.say("undo", *words)
    if words:
        assert_clear(again, 1, "of WRK-001 is undone already.", f"Do it again: {RUN_AGAIN}")
        assert merged.head() == made and not (merged.path / "answer").exists()
    else:
        assert again.code == 0 and "[ADD] Another" in again.out, again
    assert merged.status() == ""


@pytest.mark.promise("commands.undo-merge")
def test_a_merge_is_undone_once(merged: BacklogProject) -> None:
    merged.say("undo", "WRK-001")
    with unchanged(merged):
        refused = merged.say("undo", "WRK-001")
    assert_clear(refused, 1, "of WRK-001 is undone already.", RUN_AGAIN)


@pytest.mark.slow
def test_fresh_chooses_the_workflow_anew(merged: BacklogProject) -> None:
    """Without `--workflow` it is the one of the backlog."""
    merged.play(by_change())
    merged.git("revert", "--no-edit", "-m", "1", "HEAD")
    answer = merged.say("run", "WRK-001", "--fresh")
    assert answer.code == 0 and merged.ids() == [], answer


@pytest.mark.slow
def test_an_aborted_mission_of_another_workflow_is_started_over(merged: BacklogProject) -> None:
    merged.say("undo", "WRK-001")
    merged.play({name: 4 * turns for name, turns in honest(merge=[said("PASS")]).items()})
    merged.say(*TDD, "--cap", "2")
    assert merged.say("abort", "WRK-001").code == 0
    refused = merged.say("run", "WRK-001")
    assert refused.code == 1 and "is no phase of the workflow change, but of tdd." in refused.out
    again = type_it(merged, named(refused, "next:"))
    assert again.code == 0 and is_done_again(merged), again


# ---- what cannot be undone


def test_of_an_item_that_was_not_merged_undo_says_so(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    with unchanged(a_backlog):
        refused = a_backlog.say("undo", "WRK-001")
    assert_clear(refused, 1, "Nothing of WRK-001 was merged.", "`capsule undo` without an id undoes the last command")
    assert_clear(a_backlog.say("undo", "WRK-009"), 1, "There is no item WRK-009", "")


def test_of_work_that_was_committed_step_by_step_its_commits_are_named(a_backlog: BacklogProject) -> None:
    a_backlog.play(by_change())
    a_backlog.add()
    assert a_backlog.run().code == 0
    refused = a_backlog.say("undo", "WRK-001")
    assert_clear(refused, 1, "WRK-001 was committed step by step, so there is no merge to undo.", "git log --grep")
    listed = named(refused, "Its commits: git")
    subjects = a_backlog.git(*listed, "--format=%s").splitlines()
    assert len(subjects) > 3 and all(subject.startswith("[WRK-001][") for subject in subjects)


def test_a_merge_is_undone_on_the_branch_that_has_it(merged: BacklogProject) -> None:
    merged.git("switch", "-q", "-c", "mine")
    assert_clear(merged.say("undo", "WRK-001"), 1, "was merged into main, and mine is checked out", "git switch main")
    merged.git("switch", "-q", "main")
    merged.git("reset", "-q", "--hard", "HEAD^")
    assert_clear(merged.say("undo", "WRK-001"), 1, "main no longer holds the merge of WRK-001", "git log")


# ---- other trackers


@pytest.mark.promise("commands.undo-merge")
def test_a_bead_is_reopened_by_hand_and_done_again(a_merged_mission: Project) -> None:
    project = a_merged_mission
    project.play({name: 2 * turns for name, turns in honest().items()}, ITEM)
    answer = project.say("undo", ITEM)
    assert (answer.code, answer.err) == (0, "")
    assert project.git("diff", "--name-only", "HEAD", "HEAD~2") == "" and project.status() == "M .beads/issues.jsonl"
    reopen = f'set "status" of {ITEM} to "open" in .beads/issues.jsonl'
    assert f"reopen it:  {reopen}\n" in answer.out
    assert_clear(project.say("reopen", ITEM), 1, f"{ITEM} is closed in its tracker", f"Reopen it: {reopen}")
    assert_clear(project.say("undo", ITEM), 1, f"of {ITEM} is undone already.", f"Reopen it: {reopen}")
    beads = project.path / ".beads/issues.jsonl"
    beads.write_text(beads.read_text().replace('"closed"', '"open"'))
    again = type_it(project, named(answer, "next:"))
    assert again.code == 0 and project.answer() == "42", again
