"""`capsule doctor --fix`: what it proposes, what it does after it was agreed to, and what it leaves to a person."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.costs import eventually

from .backlog_project import BacklogProject, begun_by_a_newcomer
from .conftest import Project, Said, assert_clear
from .terminal import Terminal


@pytest.fixture
def a_bare_project(tmp_path: Path) -> BacklogProject:
    return begun_by_a_newcomer(tmp_path)


def doctor(project: Project, *words: str) -> Said:
    return project.say("doctor", "--no-tests", *words)


def proposed(project: Project) -> dict[str, str]:
    """By finding, what would be done."""
    checks = json.loads(doctor(project, "--json").out)["checks"]
    return {check["name"]: check["fix"] for check in checks if check["fix"]}


@pytest.mark.promise("commands.doctor-fix")
def test_each_fix_is_proposed_in_words_and_nothing_is_changed(a_bare_project: BacklogProject) -> None:
    before = a_bare_project.footprint()
    assert proposed(a_bare_project) == {
        "agent claude": "write `agent: codex` to .capsule/config.yaml: it is installed",
        "tracker": "make a backlog, as `capsule init` does",
    }
    assert "`capsule doctor --fix` would make a backlog, as `capsule init` does." in doctor(a_bare_project).out
    assert a_bare_project.footprint() == before


@pytest.mark.promise("commands.doctor-fix")
def test_what_was_shown_is_done_and_the_project_is_ready(a_bare_project: BacklogProject) -> None:
    answer = doctor(a_bare_project, "--fix", "--yes")
    assert answer.code == 0, answer
    shown = answer.out.partition("Fixes:\n")[2]
    assert shown.startswith("  1. make a backlog") and "  2. write `agent: codex`" in shown
    assert shown.count("uncommitted: ") == 1, "what init leaves and what the agent leaves are named together"
    assert answer.out.endswith("Ready.\n")
    assert a_bare_project.backlog.exists()
    assert 'agent: "codex"' in (a_bare_project.path / ".capsule/config.yaml").read_text()
    assert proposed(a_bare_project) == {}
    again = doctor(a_bare_project, "--fix", "--yes")
    assert again.code == 0 and "There is nothing that --fix could do." in again.out


def test_without_a_terminal_it_wants_to_hear_yes(a_bare_project: BacklogProject) -> None:
    before = a_bare_project.footprint()
    assert_clear(doctor(a_bare_project, "--fix"), 2, "there is no terminal", "--fix --yes")
    assert_clear(doctor(a_bare_project, "--yes"), 2, "--yes goes with --fix", "--fix --yes")
    assert_clear(doctor(a_bare_project, "--json", "--fix"), 2, "--json without it", "--fix --yes")
    assert a_bare_project.footprint() == before


@pytest.mark.parametrize(("said", "done"), [("y", True), ("", False), ("n", False), ("\x04", False)])
def test_on_a_terminal_it_asks(a_bare_project: BacklogProject, said: str, done: bool) -> None:
    words = ("doctor", "--no-tests", "--fix")
    with Terminal(words, a_bare_project.path, a_bare_project.environment()) as terminal:
        assert eventually(lambda: "[y/N]" in terminal.text), terminal.text
        terminal.type("\x04" if said == "\x04" else f"{said}\r")
        assert terminal.ends() == (0 if done else 1), terminal.text
        assert ("Nothing was changed." in terminal.text) is not done
    assert a_bare_project.backlog.exists() is done


def test_what_it_cannot_do_is_left_with_its_command(a_bare_project: BacklogProject) -> None:
    a_bare_project.git("config", "--unset", "user.name")
    a_bare_project.git("config", "user.useConfigOnly", "true")
    a_bare_project.write("BACKLOG.yaml", "schema_version: 1\nitems: []\n")
    answer = doctor(a_bare_project, "--fix", "--yes")
    left = answer.out.partition("Left for you:\n")[2]
    assert answer.code == 1 and "identity" in left and "git config" in left


def test_settings_and_lines_of_others_are_kept(a_bare_project: BacklogProject) -> None:
    project = a_bare_project
    project.write(".capsule/config.yaml", "# mine\nverify: warn")
    project.write(".gitignore", "*.pyc\n")
    project.write("BACKLOG.yaml", "schema_version: 1\nitems: []\n")
    answer = doctor(project, "--fix", "--yes")
    assert answer.code == 0
    assert "uncommitted: .capsule/config.yaml, .gitignore\n  git add .capsule/config.yaml .gitignore" in answer.out
    assert (project.path / ".capsule/config.yaml").read_text() == '# mine\nverify: warn\nagent: "codex"\n'
    assert (project.path / ".gitignore").read_text().startswith("*.pyc\n/.capsule/*\n")


def test_no_agent_is_chosen_where_two_are_there_or_one_is_set(a_bare_project: BacklogProject, tmp_path: Path) -> None:
    a_bare_project.always["CAPSULE_AGENT"] = "claude"
    assert "agent claude" not in proposed(a_bare_project)
    a_bare_project.always["CAPSULE_AGENT"] = ""
    (tmp_path / "bin/gemini").symlink_to(tmp_path / "bin/codex")
    assert "agent claude" not in proposed(a_bare_project)


def test_missing_skills_are_written_where_there_are_some(a_bare_project: BacklogProject) -> None:
    a_bare_project.write("BACKLOG.yaml", "schema_version: 1\nitems: []\n")
    mine = a_bare_project.write(".claude/skills/changes/workflows/0-prd/create-prd.md", "mine\n")
    assert proposed(a_bare_project)["skills"] == "write the skills that .claude/skills/changes lacks"
    assert doctor(a_bare_project, "--fix", "--yes").code == 0
    assert mine.read_text() == "mine\n" and "skills" not in proposed(a_bare_project)
