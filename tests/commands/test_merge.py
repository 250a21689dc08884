"""`capsule merge`: the last stage alone. Only a sign-off opens it: the journal's, or the worklog's own section."""

from __future__ import annotations

import pytest

from .conftest import ITEM, Project, assert_clear, honest, nothing_changes, said

SIGNED = "### Phase 5: sign-off\n\nStatus: complete\n\nVerdict: PASS\n"


@pytest.fixture
def prepared(a_project: Project) -> Project:
    """`prep` was run, and a human did the work; nobody has signed anything."""
    assert a_project.capsule("prep", ITEM).code == 0
    (a_project.worktree / "answer").write_text("42\n")
    (a_project.worktree / "tests/test_answer.sh").write_text("grep -qx 42 answer\n")
    return a_project


def write_worklog(project: Project, text: str) -> None:
    worklog = project.worktree / "worklog.md"
    worklog.write_text(worklog.read_text().replace("### Phase 5: sign-off\n", text))


def test_work_signed_by_hand_is_merged(prepared: Project) -> None:
    write_worklog(prepared, SIGNED)
    answer = prepared.capsule("merge", ITEM)
    assert answer.code == 0, answer
    assert f"{ITEM} is merged into main" in answer.out
    assert prepared.answer() == "42"
    assert prepared.git("log", "-1", "--format=%s", "main") == f"Merge {ITEM}: Find the answer"
    assert prepared.git("log", "-1", "--format=%s", "main^2") == f"{ITEM}: Find the answer"
    assert len(prepared.git("log", "-1", "--format=%P", "main").split()) == 2
    assert "worklog.md" not in prepared.git("ls-tree", "-r", "--name-only", "main")
    assert prepared.status_of() == "closed"
    assert not prepared.worktree.exists()
    assert "Verdict: PASS" in (prepared.path / ".capsule/logs" / ITEM / "worklog.md").read_text()


@pytest.mark.promise("merge.subject")
def test_the_commit_has_the_items_title_whatever_the_agent_wrote(prepared: Project) -> None:
    write_worklog(prepared, SIGNED)
    own = 'git add answer tests && git commit -q -m "wip" -m "Because of reasons."'
    prepared.play(honest(merge=[said("PASS", run=[own])]))
    assert prepared.capsule("merge", ITEM).code == 0
    assert (
        prepared.git("log", "-1", "--format=%B", "main^2") == f"{ITEM}: Find the answer\n\nwip\n\nBecause of reasons."
    )
    assert prepared.git("log", "-1", "--format=%s", "main") == f"Merge {ITEM}: Find the answer"
    assert prepared.git("diff", "--stat", "main^2", "main") == ""


NOT_SIGNED = {
    "nothing": "### Phase 5: sign-off\n",
    "a verdict that was taken back": f"{SIGNED}\nVerdict: NEEDS_WORK\n",
    "another section's verdict": "Verdict: PASS\n\n### Phase 5: sign-off\n",
    "a section after it": "### Phase 5: sign-off\n\n### Notes\n\nVerdict: PASS\n",
}


@pytest.mark.sweep
@pytest.mark.promise("commands.merge")
@pytest.mark.parametrize("text", NOT_SIGNED.values(), ids=NOT_SIGNED.keys())
def test_work_that_is_not_signed_off_is_refused(prepared: Project, text: str) -> None:
    write_worklog(prepared, text)
    with nothing_changes(prepared):
        answer = prepared.capsule("merge", ITEM)
    assert_clear(answer, 1, f"{ITEM} is not signed off", f"capsule run {ITEM}")


@pytest.mark.promise("commands.merge-without-worklog")
@pytest.mark.parametrize("text", [None, ""], ids=["gone", "empty"])
def test_a_missing_worklog_is_named(prepared: Project, text: str | None) -> None:
    worklog = prepared.worktree / "worklog.md"
    worklog.unlink()
    if text is not None:
        worklog.write_text(text)
    with nothing_changes(prepared):
        answer = prepared.capsule("merge", ITEM)
    assert_clear(answer, 1, f"{ITEM} is not signed off: its worktree has no worklog.md", f"capsule run {ITEM}")


@pytest.mark.promise("commands.merge-without-worklog")
@pytest.mark.parametrize("text", [None, " \n"], ids=["gone", "empty"])
def test_a_worklog_that_a_signed_off_mission_has_lost_is_restored_and_that_is_said(
    a_mission_at_execute: Project, text: str | None
) -> None:
    project = a_mission_at_execute
    for _ in range(3):
        assert project.capsule("step", ITEM).code == 0
    worklog = project.worktree / "worklog.md"
    worklog.unlink()
    if text is not None:
        worklog.write_text(text)
    answer = project.capsule("merge", ITEM)
    assert answer.code == 0, answer
    assert "note: worklog.md was missing; it is restored as the phase before left it.\n" in answer.err
    kept = (project.path / ".capsule/logs" / ITEM / "worklog.md").read_text()
    assert "Make it 42." in kept and "<!-- capsule sign-off#1 -->" in kept and "<!-- capsule merge#1 -->" in kept


def test_a_mission_under_way_is_judged_by_its_journal_alone(a_halted_mission: Project) -> None:
    (a_halted_mission.worktree / "worklog.md").write_text(SIGNED)
    main = a_halted_mission.head("main")
    assert_clear(a_halted_mission.capsule("merge", ITEM), 1, "is not signed off", f"capsule run {ITEM}")
    assert a_halted_mission.head("main") == main


def test_without_a_worktree_there_is_nothing_to_merge(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.capsule("merge", ITEM), 2, "has no worktree", f"capsule run {ITEM}")
        assert_clear(a_project.capsule("merge"), 2, "required: ID", "capsule merge --help")


def test_an_agent_that_finds_something_stops_the_merge(prepared: Project) -> None:
    write_worklog(prepared, SIGNED)
    prepared.play(honest(merge=[said("NEEDS_WORK", "a debug statement in answer")]))
    main = prepared.head("main")
    answer = prepared.capsule("merge", ITEM)
    assert answer.code == 1
    assert "a debug statement in answer" in answer.out
    assert prepared.head("main") == main
    assert (prepared.worktree / "answer").read_text() == "42\n"


@pytest.mark.promise("commands.merge")
def test_a_red_gate_stops_what_is_signed(prepared: Project) -> None:
    write_worklog(prepared, SIGNED)
    (prepared.worktree / "answer").write_text("43\n")
    answer = prepared.capsule("merge", ITEM)
    assert answer.code == 1
    assert "gate red" in answer.out
    assert prepared.answer() == "41"


@pytest.mark.slow
@pytest.mark.promise("commands.merge")
def test_a_manual_fix_after_the_sign_off_is_merged(a_project: Project) -> None:
    a_project.play(honest(merge=[said("NEEDS_WORK", "spell it out")]))
    assert a_project.run().code == 1
    (a_project.worktree / "README.md").write_text("The answer, spelled out.\n")
    commit = 'git add answer tests README.md && git commit -q -m "$CAPSULE_COMMIT_MSG"'
    a_project.play(honest(merge=[said("PASS", run=[commit])]))
    answer = a_project.capsule("merge", ITEM)
    assert answer.code == 0, answer
    assert a_project.git("show", "main:README.md") == "The answer, spelled out."


def test_a_workflow_without_a_review_can_sign_nothing_off(prepared: Project) -> None:
    prepared.write(".capsule/workflows/bare.yaml", "phases: [{name: archive, role: action, do: archive}]\n")
    with nothing_changes(prepared):
        answer = prepared.capsule("merge", ITEM, env={"CAPSULE_WORKFLOW__DEFAULT": "bare"})
    assert_clear(answer, 1, "'bare' has no review", "capsule run")
