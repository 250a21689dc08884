"""Histories that change under a mission: objects that are lost, a main that was rewritten or deleted."""

from __future__ import annotations

import json
import shutil

import pytest

from .conftest import COMMIT, ITEM, Project, assert_clear, bead, honest, said

pytestmark = pytest.mark.slow

FRESH = f"capsule run {ITEM} --fresh"


def lose(project: Project, oid: str, how: str = "gone") -> None:
    file = project.path / ".git" / "objects" / oid[:2] / oid[2:]
    file.unlink()
    if how != "gone":
        file.write_bytes(b"" if how == "empty" else b"torn")


@pytest.fixture
def a_mission_to_lose(a_mission_at_execute: Project) -> Project:
    """Its worktree is gone, as in a copy without it: what the next phase starts from is in git alone."""
    shutil.rmtree(a_mission_at_execute.worktree)
    return a_mission_at_execute


@pytest.mark.sweep
@pytest.mark.promise("durability.lost-objects")
@pytest.mark.parametrize("how", ["gone", "empty", "torn"])
@pytest.mark.parametrize("what", ["", "^{tree}", ":tests", ":tests/test_answer.sh"])
def test_an_object_that_the_journal_names_and_git_lacks_is_told_with_the_command_that_helps(
    a_mission_to_lose: Project, what: str, how: str
) -> None:
    project = a_mission_to_lose
    lost = project.head(f"refs/capsule/checkpoints/{ITEM}{what}")
    lose(project, lost, how)
    for _ in range(2):
        answer = project.run("--output=none")
        assert_clear(answer, 2, "The repository lacks the object", FRESH)
    again = project.run("--fresh")
    assert again.code == 0, again
    assert project.answer() == "42"


@pytest.mark.promise("durability.lost-objects")
def test_what_lies_in_the_worktree_is_kept_where_it_cannot_be_committed(a_mission_at_execute: Project) -> None:
    project = a_mission_at_execute
    lose(project, project.head(f"refs/capsule/checkpoints/{ITEM}"))
    (project.worktree / "answer").write_text("half an idea\n")
    answer = project.run("--fresh")
    assert answer.code == 0, answer
    (kept,) = (project.path / ".git/capsule/salvaged").glob("*/answer")
    assert kept.read_text() == "half an idea\n"
    assert str(kept.parent.relative_to(project.path)) in answer.err
    assert project.answer() == "42"


def test_an_object_that_is_lost_below_main_itself_is_named(a_project: Project) -> None:
    lose(a_project, a_project.head("main^{tree}"))
    answer = a_project.run()
    assert answer.code == 2
    assert "lacks the object" in answer.err
    assert "git -C" not in answer.err


def unrelated(project: Project) -> None:
    project.git("checkout", "-q", "--orphan", "new")
    project.write("README.md", "Rewritten.\n")
    project.git("add", "README.md")
    project.git("commit", "-q", "-m", "everything anew")
    project.git("branch", "-f", "main")
    project.git("checkout", "-q", "main")


def earlier(project: Project) -> None:
    """What the mission started from holds a commit that was taken out of main."""
    project.git("reset", "-q", "--hard", "HEAD~1")
    project.commit("something else", README__md="Rewritten.\n")


@pytest.fixture
def a_second_commit(a_project: Project) -> Project:
    """The mission starts from a commit that adds a file `regretted`."""
    a_project.commit("regretted", regretted="secret\n")
    assert a_project.capsule("step", ITEM).code == 0
    return a_project


@pytest.mark.sweep
@pytest.mark.promise("merge.rewritten-main")
@pytest.mark.parametrize("rewrite", [unrelated, earlier])
def test_a_main_that_was_rewritten_stops_the_mission_before_an_agent_is_paid(
    a_second_commit: Project, rewrite: object
) -> None:
    assert callable(rewrite)
    rewrite(a_second_commit)
    main, walked = a_second_commit.head("main"), a_second_commit.walked()
    assert_clear(a_second_commit.run(), 1, "main was rewritten", f"capsule run {ITEM} --rebase")
    assert (a_second_commit.head("main"), a_second_commit.walked()) == (main, walked)


@pytest.mark.promise("merge.rewritten-main")
@pytest.mark.parametrize("rewrite", [unrelated, earlier])
@pytest.mark.parametrize("way_out", ["--rebase", "--fresh"])
def test_what_is_said_about_a_rewritten_main_helps(a_second_commit: Project, rewrite: object, way_out: str) -> None:
    assert callable(rewrite)
    rewrite(a_second_commit)
    main = a_second_commit.head("main")
    answer = a_second_commit.run(way_out)
    assert answer.code == 0, answer
    assert a_second_commit.answer() == "42"
    assert a_second_commit.git("merge-base", main, "main") == main
    assert a_second_commit.git("show", "main:README.md") == "Rewritten."
    kept = a_second_commit.git("ls-tree", "main", "--name-only").splitlines()
    assert ("regretted" in kept) == (rewrite is unrelated)


def test_a_main_that_is_rewritten_while_agents_work_is_not_merged_into(a_project: Project) -> None:
    """Merging would bring back what was taken out."""
    a_project.commit("regretted", regretted="secret\n")
    reset = f"git -C {a_project.path} reset -q --hard HEAD~1"
    a_project.play(honest(merge=[said("PASS", run=[COMMIT, reset])]))
    answer = a_project.run(CAPSULE_SANDBOX="off")
    assert answer.code == 1, answer
    assert a_project.git("ls-tree", "main", "--name-only", "regretted") == ""
    again = a_project.run(CAPSULE_SANDBOX="off")
    assert_clear(again, 1, "main was rewritten", f"capsule run {ITEM} --rebase")


@pytest.mark.promise("merge.rewritten-main")
def test_a_main_that_is_gone_stops_the_mission_before_an_agent_is_paid(a_mission_at_execute: Project) -> None:
    project = a_mission_at_execute
    was, walked = project.head("main"), project.walked()
    project.git("switch", "-q", "-c", "other")
    project.git("branch", "-q", "-D", "main")
    for words in ((), ("--rebase",)):
        answer = project.run(*words)
        assert_clear(answer, 1, f"The target branch main of {ITEM} no longer exists", "git branch main")
        assert f"{FRESH} --into BRANCH" in answer.err
    assert project.walked() == walked
    project.git("branch", "main", was)
    assert project.run().code == 0
    assert project.answer() == "42"


def test_where_main_is_gone_another_branch_can_be_worked_for(a_mission_at_execute: Project) -> None:
    project = a_mission_at_execute
    project.git("branch", "-m", "main", "trunk")
    assert project.run("--fresh", "--into=trunk").code == 0
    assert project.answer("trunk") == "42"


def test_a_run_goes_on_with_other_items_where_one_has_lost_an_object(a_mission_to_lose: Project) -> None:
    project = a_mission_to_lose
    lose(project, project.head(f"refs/capsule/checkpoints/{ITEM}"))
    rows = [*project.beads.read_text().splitlines(), json.dumps(bead(id="demo-2", title="Another"))]
    project.beads.write_text("\n".join(rows) + "\n")
    answer = project.capsule("run")
    assert FRESH in answer.out + answer.err
    assert project.status_of("demo-2") == "closed"
    assert project.answer() == "42"
