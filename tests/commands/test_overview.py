"""`capsule` alone: where the project stands, and what to type next."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .backlog_project import BacklogProject, blocked
from .conftest import ITEM, Project, begin, nothing_changes, said


def next_of(project: Project) -> str:
    answer = project.say()
    assert (answer.code, answer.err) == (0, ""), answer
    return answer.out.partition("\nnext: ")[2].partition("\n")[0]


@pytest.mark.promise("commands.overview")
def test_outside_of_a_repository_three_lines_say_how_to_begin(a_project: Project, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    answer = a_project.say(cwd=tmp_path / "empty")
    assert (answer.code, answer.err, answer.out.count("\n")) == (0, "", 3)
    assert "capsule demo" in answer.out and "capsule init --ask" in answer.out
    assert not list((tmp_path / "empty").iterdir())


@pytest.mark.promise("commands.overview")
def test_each_state_of_a_project_has_a_next_command(tmp_path: Path) -> None:
    project = BacklogProject(begin(tmp_path / "shop").path, tmp_path)
    project.commit("start", README="x\n")
    with nothing_changes(project):
        assert next_of(project) == "capsule init --ask"
    project.say("init")
    assert next_of(project) == 'capsule add "Describe the change in one line"'
    project.say("add", "One")
    with nothing_changes(project):
        answer = project.say()
    assert answer.out == (
        "shop, on main: 1 open item: 1 ready\n"
        "next: capsule run\n"
        "      works through what is ready; `capsule status` lists it\n"
    )
    project.hold(blocked(title="Paint it"), {"title": "Else", "dependencies": "[WRK-001]"})
    answer = project.say()
    assert "2 open items: 1 waiting, 1 needs you\nNeeds you (1)\n  ■ WRK-001  Paint it (asks)\n" in answer.out
    assert next_of(project) == "capsule questions"


@pytest.mark.promise("commands.overview")
def test_a_project_without_a_commit_is_committed_first(tmp_path: Path) -> None:
    project = BacklogProject(begin(tmp_path / "shop").path, tmp_path)
    assert next_of(project) == "capsule init --ask"
    (project.path / "README").write_text("x\n")
    assert next_of(project) == 'git add -A && git commit -m "First commit"'
    project.say("init")
    project.say("add", "One")
    assert next_of(project) == 'git add -A && git commit -m "First commit"'
    refused = project.run()
    assert refused.err == 'capsule: This repository has no commits yet.\n  git add -A && git commit -m "First commit"\n'


@pytest.mark.promise("commands.overview")
def test_no_run_is_named_that_uncommitted_changes_would_stop(a_backlog: BacklogProject) -> None:
    a_backlog.add()
    a_backlog.write("README", "edited\n")
    with nothing_changes(a_backlog):
        answer = a_backlog.say()
    assert answer.out.endswith(
        "next: git status\n"
        "      shows 1 uncommitted change, such as README: commit first, or: capsule run --allow-dirty\n"
    )
    assert "uncommitted changes: README" in a_backlog.run().err
    a_backlog.settings("workspace: {publish: merge}")
    assert next_of(a_backlog) == "capsule run"


def test_after_the_last_item_the_report_is_named(tmp_path: Path, a_backlog: BacklogProject) -> None:
    assert a_backlog.say().out.endswith("      adds the first item\n")
    a_backlog.add()
    assert a_backlog.run().code == 0
    assert a_backlog.say().out.endswith("      adds one more; `capsule report` shows what was done\n")


def test_what_failed_was_interrupted_or_is_over_is_told(a_project: Project) -> None:
    a_project.play({"test-writer": [said("ERROR", "no network")]})
    assert a_project.run().code == 2
    assert "1 open item: 1 failed\nNeeds you (1)\n  ✗ demo-1.1  Find the answer" in a_project.say().out
    a_project.say("abort", ITEM)
    assert next_of(a_project) == "capsule run"
    a_project.set_bead(status="closed")
    assert next_of(a_project).startswith("capsule add")


def test_a_run_is_not_named_where_its_agent_is_missing(a_project: Project) -> None:
    a_project.always |= {"CAPSULE_AGENT": "codex", "PATH": "/usr/bin:/bin"}
    assert next_of(a_project) == "capsule doctor"
    assert "The agent `codex` needs `codex`" in a_project.say().out


def test_a_tracker_that_cannot_be_read_is_a_fault(a_project: Project) -> None:
    a_project.beads.write_text("{\n")
    answer = a_project.say()
    assert answer.code == 2 and "issues.jsonl, line 1" in answer.err


def test_it_is_quick(a_project: Project) -> None:
    """No agent, no test and no program but git is started."""
    a_project.capsule()
    began = time.monotonic()
    assert a_project.capsule(env={"PATH": "/usr/bin:/bin"}).code == 0
    assert time.monotonic() - began < 5
