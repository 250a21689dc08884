"""Main moves, and others change the same lines: the mission waits, says so, and can be rebuilt on what is there now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import ITEM, Project, assert_clear, bead, honest, nothing_changes, said

pytestmark = pytest.mark.slow

MINE = honest()["execute"]


def meanwhile(*commands: str) -> list[str]:
    """What a colleague does in the project's own checkout while an agent is at work."""
    return [f"cd ../../.. && {' && '.join(commands)}"]


def commits(file: str, text: str) -> str:
    return f"printf '{text}\\n' > {file} && git add {file} && git commit -q -m 'colleague: {file}'"


@pytest.fixture
def a_conflict(a_project: Project) -> Project:
    """Both changed the answer, and again each time the work went back; the mission has stopped before main."""
    again = [said("PASS", run=meanwhile(commits("answer", text))) for text in ("38", "39", "40")]
    a_project.play(honest(sign_off=again))
    answer = a_project.run()
    assert answer.code == 1, answer
    assert "conflict with main in answer" in answer.out
    assert f"capsule run {ITEM} --rebase" in answer.out
    a_project.play(honest())
    return a_project


@pytest.mark.promise("merge.conflict")
def test_a_conflict_leaves_main_and_the_worktree_as_they_were(a_conflict: Project) -> None:
    assert a_conflict.answer() == "40"
    assert (a_conflict.path / "answer").read_text() == "40\n"
    assert (a_conflict.worktree / "answer").read_text() == "42\n"
    assert a_conflict.status_of() == "in_progress"
    assert not (a_conflict.path / ".git" / "MERGE_HEAD").exists()


def test_a_conflict_stays_one_until_somebody_settles_it(a_conflict: Project) -> None:
    main = a_conflict.head("main")
    assert a_conflict.run().code == 1
    assert a_conflict.head("main") == main


def test_rebase_rebuilds_the_work_on_the_new_main(a_conflict: Project) -> None:
    answer = a_conflict.run("--rebase")
    assert answer.code == 0, answer
    assert a_conflict.answer() == "42"
    assert "colleague: answer" in a_conflict.git("log", "--format=%s", "main")
    a_conflict.fsck()


def test_a_conflict_settled_by_hand_is_merged(a_conflict: Project) -> None:
    a_conflict.play(honest(merge=[said("PASS")]))
    where = a_conflict.worktree
    with pytest.raises(AssertionError, match="git merge"):
        a_conflict.git("merge", "-q", "main", cwd=where)
    (where / "answer").write_text("42\n")
    a_conflict.git("add", "answer", cwd=where)
    a_conflict.git("commit", "-q", "-m", "settled", cwd=where)
    answer = a_conflict.capsule("merge", ITEM)
    assert answer.code == 0, answer
    assert a_conflict.answer() == "42"


@pytest.mark.promise("merge.by-hand")
@pytest.mark.parametrize("words", [("merge", ITEM), ("run", ITEM)], ids=["merge", "run"])
@pytest.mark.parametrize("told", [True, False], ids=["told by the tracker", "as it was"])
def test_a_conflict_is_settled_by_hand_also_where_main_changed_artefacts(
    a_conflict: Project, words: tuple[str, ...], told: bool
) -> None:
    """`git merge main` brings along what no mission delivers: the tracker's file, notes of Capsule, a worklog."""
    a_conflict.play(honest(merge=[said("PASS")]))
    if not told:
        a_conflict.git("checkout", "-q", "--", ".beads")
    a_conflict.beads.write_text(a_conflict.beads.read_text() + json.dumps(bead(id="demo-2", title="More")) + "\n")
    a_conflict.write("worklog.md", "of somebody else\n")
    a_conflict.write(".capsule/prompts/notes.md", "ours\n")
    a_conflict.git("add", "-f", ".beads", "worklog.md", ".capsule/prompts/notes.md")
    a_conflict.git("commit", "-q", "-m", "colleague: artefacts")
    where = a_conflict.worktree
    (where / "worklog.md").rename(where / "worklog.old")
    with pytest.raises(AssertionError, match="git merge"):
        a_conflict.git("merge", "-q", "main", cwd=where)
    (where / "worklog.old").rename(where / "worklog.md")
    (where / "answer").write_text("42\n")
    a_conflict.git("add", "answer", cwd=where)
    a_conflict.git("commit", "-q", "-m", "settled", cwd=where)
    answer = a_conflict.capsule(*words)
    assert answer.code == 0, answer
    assert a_conflict.answer() == "42"
    assert a_conflict.git("show", "main:worklog.md") == "of somebody else"
    assert '"demo-2"' in a_conflict.git("show", "main:.beads/issues.jsonl")
    assert a_conflict.git("show", "main:.capsule/prompts/notes.md") == "ours"


def test_main_that_moves_elsewhere_is_merged_with(a_project: Project) -> None:
    a_project.play(honest(sign_off=[said("PASS", run=meanwhile(commits("other", "new")))]))
    answer = a_project.run()
    assert answer.code == 0, answer
    assert a_project.answer() == "42"
    assert a_project.git("show", "main:other") == "new"
    assert (a_project.path / "other").read_text() == "new\n"


@pytest.mark.promise("merge.gate", "commands.next-helps")
def test_the_gate_is_run_on_the_merge_result_not_on_the_branch(a_project: Project) -> None:
    """Green alone, red together, each time the work went back: a colleague's new test forbids what was written."""
    rounds = ("one", "two", "three")
    forbids = [commits(f"tests/test_{word}.sh", f"! grep -q {word} answer") for word in rounds]
    writes = [said("PASS", write={"answer": f"42\n{word}\n"}) for word in rounds]
    a_project.play(honest(execute=writes, sign_off=[said("PASS", run=meanwhile(forbid)) for forbid in forbids]))
    answer = a_project.run()
    assert answer.code == 1
    assert "gate red on the merge result" in answer.out
    assert f"next:        capsule run {ITEM} --rebase\n" in answer.out, "main has moved"
    assert a_project.answer() == "41"
    assert a_project.worktree.is_dir()


def test_a_checkout_in_the_middle_of_a_merge_is_not_moved(a_project: Project) -> None:
    theirs, ours = commits("README.md", "theirs"), commits("README.md", "ours")
    stuck = meanwhile("git switch -q -c side", theirs, "git switch -q main", ours, "{ git merge -q side || true; }")
    a_project.play(honest(sign_off=[said("PASS", run=stuck), said("PASS")]))
    answer = a_project.run()
    assert answer.code == 1, answer
    assert "merge is under way" in answer.err + answer.out
    assert (a_project.path / ".git" / "MERGE_HEAD").exists()
    assert a_project.answer() == "41"
    a_project.git("merge", "--abort")
    assert a_project.run().code == 0
    assert (a_project.path / "answer").read_text() == "42\n"


@pytest.mark.promise("durability.one-runner")
def test_a_second_run_of_the_same_mission_is_refused(a_project: Project, tmp_path: Path) -> None:
    sign = tmp_path / "at-work"
    a_project.play(honest(test_writer=[{"run": [f"echo on > {sign}; sleep 300"]}]))
    with a_project.running() as process:
        while not sign.exists():
            assert process.poll() is None
        answer = a_project.run()
    assert answer.code == 3
    assert f"capsule: {ITEM} is running (pid {process.pid})." in answer.err
    assert "stop it first" in answer.err


@pytest.mark.promise("commands.next-helps")
def test_the_summary_of_a_queue_names_the_command_that_show_names(a_project: Project) -> None:
    a_project.write("tests/test_start.sh", "test ! -s answer\n")
    a_project.commit("red")
    answer = a_project.capsule("run")
    assert "base is red" in answer.out
    assert f"  next:      capsule run {ITEM} --rebase\n" in answer.out


@pytest.mark.promise("evidence.red-base", "commands.next-helps")
def test_an_unsettled_base_is_parked_before_any_agent_is_paid(a_project: Project) -> None:
    a_project.commit("breaks it", answer="")
    a_project.write("tests/test_start.sh", "test -s answer\n")
    a_project.commit("red")
    answer = a_project.run()
    assert answer.code == 1
    assert "base is red" in answer.out
    assert f"next:        capsule run {ITEM} --rebase\n" in answer.out
    assert a_project.walked() == ["prep BLOCKED"]
    a_project.commit("mended", answer="41\n")
    assert a_project.run("--rebase").code == 0
    assert "test-writer PASS" in a_project.walked()


@pytest.mark.promise("evidence.already-done")
def test_tests_that_are_green_at_once_are_parked_as_done(a_project: Project) -> None:
    a_project.play(honest(test_writer=[said("PASS", write={"tests/test_answer.sh": "true\n"})]))
    answer = a_project.run()
    assert answer.code == 1
    assert "seems already done" in answer.out
    assert a_project.walked() == ["prep PASS", "test-writer REFUTED", "test-writer REFUTED"]


def test_an_unknown_base_or_target_is_refused(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.run("--base=nowhere"), 2, "nowhere", "git branch")
        assert_clear(a_project.run("--into=nowhere"), 2, "nowhere", "")
