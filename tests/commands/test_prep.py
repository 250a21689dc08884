"""`capsule prep`: a worktree, a branch and a worklog, and three lines that say where."""

from __future__ import annotations

import json

import pytest

from .conftest import ITEM, Project, assert_clear, bead, nothing_changes


@pytest.mark.promise("commands.prep")
def test_it_prints_worktree_branch_and_worklog(a_project: Project) -> None:
    answer = a_project.capsule("prep", ITEM)
    assert answer.code == 0
    assert answer.err == ""
    worktree = a_project.worktree
    assert answer.out.splitlines() == [
        f"Worktree: {worktree}",
        f"Branch: capsule-{ITEM}",
        f"Worklog: {worktree}/worklog.md",
    ]
    assert a_project.git("symbolic-ref", "--short", "HEAD", cwd=worktree) == f"capsule-{ITEM}"
    assert a_project.git("rev-parse", "HEAD", cwd=worktree) == a_project.head()
    assert (a_project.path / ".capsule" / "logs").is_dir()
    assert a_project.dirt() == ""


def test_the_worklog_holds_the_item_and_its_ancestors(a_project: Project) -> None:
    family = [
        bead(id="demo", title="The epic", issue_type="epic", description="All of it"),
        bead(id="demo-1", title="The feature", issue_type="feature", parent="demo"),
        bead(parent="demo-1", acceptance_criteria="- it is 42"),
    ]
    a_project.beads.write_text("".join(json.dumps(row) + "\n" for row in family))
    assert a_project.capsule("prep", ITEM).code == 0
    worklog = (a_project.worktree / "worklog.md").read_text()
    for text in ("### Epic: demo", "The epic", "### Feature: demo-1", "Find the answer", "- it is 42"):
        assert text in worklog
    assert "### Phase 5: sign-off" in worklog
    assert "{{" not in worklog


def test_ancestors_that_are_not_there_leave_no_empty_headings(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM).code == 0
    worklog = (a_project.worktree / "worklog.md").read_text()
    assert "Epic" not in worklog
    assert "Feature" not in worklog


def test_an_existing_worktree_is_rejected(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM).code == 0
    with nothing_changes(a_project):
        assert_clear(a_project.capsule("prep", ITEM), 1, "has a worktree already", f"capsule run {ITEM}")


def test_usage_and_unknown_ids_exit_with_1(a_project: Project) -> None:
    with nothing_changes(a_project):
        assert_clear(a_project.capsule("prep"), 1, "required: ID", "capsule prep --help")
        assert_clear(a_project.capsule("prep", ITEM, "more"), 1, "more", "capsule prep --help")
        assert_clear(a_project.capsule("prep", "demo-7"), 1, "demo-7", "")


@pytest.mark.promise("commands.prep")
def test_prep_claims_nothing_and_run_adopts_it(a_project: Project) -> None:
    assert a_project.capsule("prep", ITEM, f"--project-dir={a_project.path}").code == 0
    assert a_project.status_of() == "open"
    base = a_project.head()
    (a_project.worktree / "worklog.md").write_text((a_project.worktree / "worklog.md").read_text() + "\nMy own note\n")
    a_project.commit("main moves on", other="new\n")
    answer = a_project.run()
    assert answer.code == 0, answer
    assert f"base {base[:12]}" in answer.err
    assert "My own note" in (a_project.path / ".capsule" / "logs" / ITEM / "worklog.md").read_text()
