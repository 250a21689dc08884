"""Repositories as people leave them. A mission either goes round it, or says why not and touches nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ITEM, PHASES, Project, Said, assert_clear, nothing_changes

pytestmark = pytest.mark.slow


@pytest.fixture
def git_alone(tmp_path: Path) -> dict[str, str]:
    """A PATH with git and sh, and no agent."""
    return {"PATH": str(_bin(tmp_path / "bin", "git", "sh"))}


def _bin(folder: Path, *programs: str) -> Path:
    folder.mkdir()
    for name in programs:
        found = shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


# ── what is missing


@pytest.mark.promise("errors.prerequisites")
@pytest.mark.parametrize(("command", "code"), [("run", 2), ("merge", 2), ("prep", 1), ("abort", 2), ("clean", 2)])
def test_without_git_nothing_is_created(a_project: Project, tmp_path: Path, command: str, code: int) -> None:
    empty = _bin(tmp_path / "bin")
    with nothing_changes(a_project):
        answer = a_project.capsule(command, ITEM, env={"PATH": str(empty)})
    assert_clear(answer, code, "git", "git-scm.com")


@pytest.mark.promise("errors.prerequisites")
def test_without_the_agents_program_nothing_is_created(a_project: Project, git_alone: dict[str, str]) -> None:
    with nothing_changes(a_project):
        answer = a_project.run(CAPSULE_AGENT="claude", **git_alone)
    assert_clear(answer, 2, "`claude`, which is not installed", "npm install -g @anthropic-ai/claude-code")
    assert a_project.run().code == 0


def test_without_the_agents_script_nothing_is_created(a_project: Project) -> None:
    with nothing_changes(a_project):
        answer = a_project.run(CAPSULE_AGENTS__SCRIPTED__ARGS='["gone.json"]')
    assert_clear(answer, 2, "gone.json", "agents.scripted.args")


def test_an_unknown_agent_is_named_with_those_there_are(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.run("--agent=claud"), 2, "'claud'", "claude")


def test_outside_of_any_repository_it_says_so(a_project: Project, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    place.mkdir()
    for command, code in {"run": 2, "merge": 2, "prep": 1, "abort": 2, "clean": 2}.items():
        assert_clear(a_project.capsule(command, ITEM, cwd=place), code, "repository", "")
    assert_clear(a_project.capsule("teardown", cwd=place), 2, "repository", "")
    assert not list(place.iterdir())


def test_a_project_directory_that_is_not_there_is_named(a_project: Project) -> None:
    assert_clear(a_project.run("--project-dir=nowhere"), 2, "nowhere", "")


def test_a_setting_with_a_typing_error_names_the_right_one(a_project: Project) -> None:
    a_project.write(".capsule/config.yaml", "verifi: strict\n")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, "verifi", "verify")


# ── what git is in the middle of


@pytest.mark.promise("errors.repository-state")
def test_a_repository_without_commits_is_refused(a_project: Project) -> None:
    a_project.git("update-ref", "-d", "HEAD")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, "no commits yet", "git commit")
        assert_clear(a_project.capsule("prep", ITEM), 1, "no commits yet", "git commit")


@pytest.mark.promise("errors.repository-state")
def test_without_an_identity_git_is_not_asked_to_commit(a_project: Project) -> None:
    a_project.git("config", "--unset", "user.name")
    a_project.git("config", "--unset", "user.email")
    a_project.git("config", "user.useConfigOnly", "true")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, "", "git config")
        assert_clear(a_project.capsule("prep", ITEM), 1, "", "git config")


def _conflicting_branch(project: Project) -> None:
    project.git("switch", "-q", "-c", "other")
    project.commit("theirs", answer="1\n")
    project.git("switch", "-q", "main")
    project.commit("ours", answer="2\n")


@pytest.mark.promise("errors.repository-state")
@pytest.mark.parametrize(("how", "named"), [("merge", "merge"), ("rebase", "rebase"), ("cherry-pick", "cherry-pick")])
def test_a_merge_or_rebase_under_way_is_to_be_finished_first(a_project: Project, how: str, named: str) -> None:
    _conflicting_branch(a_project)
    with pytest.raises(AssertionError, match="git"):
        a_project.git(how, "other")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, f"{named} is under way", "Finish it first")
        assert_clear(a_project.capsule("prep", ITEM), 1, f"{named} is under way", "Finish it first")


@pytest.mark.promise("errors.repository-state")
def test_neither_main_nor_master_asks_which(a_project: Project) -> None:
    a_project.git("branch", "-m", "trunk")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, "Cannot tell which branch is the main one.", "trunk")
    assert a_project.run(CAPSULE_PROJECT__MAIN="trunk").code == 0
    assert a_project.answer("trunk") == "42"


@pytest.mark.promise("errors.repository-state")
def test_head_ahead_of_main_stops_before_anything_is_made(a_project: Project) -> None:
    a_project.git("switch", "-q", "-c", "feature")
    a_project.commit("mine", mine="mine\n")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 2, "commits that main lacks", "--base main")


def test_from_main_while_on_another_branch(a_project: Project) -> None:
    a_project.git("switch", "-q", "-c", "feature")
    mine = a_project.commit("mine", mine="mine\n")
    assert a_project.run("--base", "main").code == 0
    assert a_project.answer() == "42"
    assert a_project.git("symbolic-ref", "--short", "HEAD") == "feature"
    assert a_project.head() == mine
    assert (a_project.path / "answer").read_text() == "41\n"


def test_into_another_branch_leaves_main_alone(a_project: Project) -> None:
    main = a_project.head("main")
    a_project.git("switch", "-q", "-c", "feature")
    a_project.commit("mine", mine="mine\n")
    assert a_project.run("--into=feature").code == 0
    assert a_project.head("main") == main
    assert a_project.answer("feature") == "42"
    assert (a_project.path / "answer").read_text() == "42\n"


def test_prep_warns_where_head_is_ahead(a_project: Project) -> None:
    a_project.git("switch", "-q", "-c", "feature")
    a_project.commit("mine", mine="mine\n")
    answer = a_project.capsule("prep", ITEM)
    assert answer.code == 0
    assert "commits that main lacks" in answer.err


@pytest.mark.promise("errors.dirty-tree")
def test_a_detached_user_stays_detached(a_project: Project) -> None:
    a_project.git("switch", "-q", "--detach")
    here = a_project.head()
    assert a_project.run().code == 0
    assert (a_project.path / ".git" / "HEAD").read_text().strip() == here
    assert a_project.answer() == "42"
    assert (a_project.path / "answer").read_text() == "41\n"
    assert a_project.dirt() == ""


# ── what is in the user's checkout


@pytest.mark.promise("errors.dirty-tree")
def test_a_dirty_tree_is_noted_and_keeps_every_byte(a_project: Project) -> None:
    a_project.write("README.md", "my edit\n")
    a_project.write("staged.txt", "staged\n")
    a_project.git("add", "staged.txt")
    a_project.write("new.txt", "new\n")
    before = a_project.dirt()
    answer = a_project.run()
    assert answer.code == 0
    assert "note: 3 uncommitted changes are left alone in your checkout" in answer.err
    assert a_project.dirt() == before
    assert (a_project.path / "README.md").read_text() == "my edit\n"
    assert a_project.git("show", "main:README.md") == "The answer."


def test_main_does_not_move_over_a_file_that_the_user_has_edited(a_project: Project) -> None:
    main = a_project.head("main")
    mine = a_project.write("answer", "my own idea\n")
    answer = a_project.run()
    assert answer.code == 1
    assert f"commit it or put it away, then `capsule merge {ITEM}`" in " ".join(answer.out.split())
    assert mine.read_text() == "my own idea\n" and a_project.head("main") == main
    a_project.git("restore", "answer")
    assert a_project.capsule("merge", ITEM).code == 0
    assert a_project.answer() == "42" and mine.read_text() == "42\n"
    assert a_project.dirt() == ""


def test_the_trackers_own_files_are_not_dirt(a_project: Project) -> None:
    a_project.set_bead(priority=0)
    assert "uncommitted change" not in a_project.run().err


# ── what is there already, and is not ours


@pytest.mark.promise("errors.foreign-names")
def test_a_strangers_folder_in_the_worktrees_place_is_left_alone(a_project: Project) -> None:
    a_project.write(f".capsule/worktrees/{ITEM}/precious.txt", "precious\n")
    refs, beads = a_project.git("for-each-ref"), a_project.beads.read_bytes()
    answer = a_project.run()
    assert answer.code == 1
    assert "was not made by Capsule" in answer.err
    assert answer.err.splitlines()[-1] == "  Move it somewhere else."
    assert (a_project.worktree / "precious.txt").read_text() == "precious\n"
    assert (a_project.git("for-each-ref"), a_project.beads.read_bytes()) == (refs, beads)
    a_project.worktree.rename(a_project.path.parent / "moved")
    assert a_project.run().code == 0


@pytest.mark.promise("errors.foreign-names")
def test_a_strangers_branch_is_left_alone(a_project: Project) -> None:
    a_project.git("switch", "-q", "-c", f"capsule-{ITEM}")
    theirs = a_project.commit("theirs", theirs="theirs\n")
    a_project.git("switch", "-q", "main")
    beads = a_project.beads.read_bytes()
    answer = a_project.run()
    assert answer.code == 1
    assert "that Capsule did not make" in answer.err
    assert "git branch -m" in answer.err.splitlines()[-1]
    assert a_project.head(f"capsule-{ITEM}") == theirs
    assert a_project.beads.read_bytes() == beads
    a_project.git("branch", "-m", f"capsule-{ITEM}", "theirs")
    assert a_project.run().code == 0


@pytest.mark.parametrize("what", ["folder", "branch"])
def test_prep_takes_nobodys_place(a_project: Project, what: str) -> None:
    if what == "folder":
        a_project.write(f".capsule/worktrees/{ITEM}/precious.txt", "precious\n")
    else:
        a_project.git("branch", f"capsule-{ITEM}")
    before = a_project.footprint()
    answer = a_project.capsule("prep", ITEM)
    assert_clear(answer, 1, "", "")
    after = a_project.footprint()
    assert {name for name in after if after[name] != before.get(name)} <= {".git/info/exclude"}


def test_a_worklog_that_the_project_tracks_is_refused(a_project: Project) -> None:
    a_project.write("worklog.md", "ours\n")
    a_project.commit("a worklog of our own")
    with nothing_changes(a_project):
        assert_clear(a_project.run(), 1, "worklog.md", "Rename it")
        assert_clear(a_project.capsule("prep", ITEM), 1, "worklog.md", "Rename it")


def test_a_read_only_git_folder_is_explained(a_project: Project) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    (a_project.path / ".git").chmod(0o555)
    try:
        assert_clear(a_project.run(), 2, "", "")
    finally:
        (a_project.path / ".git").chmod(0o755)


def test_a_newer_journal_is_not_touched(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM).code == 0
    journal = a_project.path / ".git" / "capsule" / "journal.db"
    import sqlite3

    with sqlite3.connect(journal) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    assert_clear(a_project.run(), 2, "newer Capsule", "Upgrade")


def test_a_corrupt_journal_is_explained_and_kept(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM).code == 0
    journal = a_project.path / ".git" / "capsule" / "journal.db"
    for extra in journal.parent.glob("journal.db-*"):
        extra.unlink()
    journal.write_bytes(b"this is no database, and has not been one for a while" * 100)
    for command, code in {"run": 2, "abort": 2, "clean": 2}.items():
        assert_clear(a_project.capsule(command, ITEM), code, "journal", "")
    assert journal.read_bytes().startswith(b"this is no database")
    assert a_project.worktree.is_dir()


def test_every_agent_phase_runs_in_a_project_that_is_fine(a_project: Project) -> None:
    """The counterpart of all the above: nothing here refuses a healthy project."""
    assert a_project.run().code == 0
    assert [step.split()[0] for step in a_project.walked()] == ["prep", *PHASES, "publish", "archive"]


# ── what the disk does not take


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_no_bug_of_ours(a_project: Project, unbuffered: str) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "capsule", "teardown"],
            cwd=a_project.path,
            env=a_project.environment(PYTHONUNBUFFERED=unbuffered),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert_clear(Said(done.returncode, "", done.stderr.decode()), 2, "No space left on device", "Free some space")


def test_an_empty_journal_is_a_journal_without_missions(a_project: Project) -> None:
    (a_project.path / ".git" / "capsule").mkdir()
    (a_project.path / ".git" / "capsule" / "journal.db").touch()
    assert_clear(a_project.capsule("show", ITEM), 1, f"There is no mission {ITEM}", "")
    answer = a_project.run()
    assert answer.code == 0, answer
