"""`capsule init` with questions, with skills, and for issues on GitHub."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from capsule.settings import load_settings
from tests.costs import eventually

from .backlog_project import BacklogProject, begun_by_a_newcomer
from .conftest import assert_clear
from .terminal import Terminal
from .test_init import SKILLS

HANG_UP = "\x04"
CONFIG = ".capsule/config.yaml"


@pytest.fixture
def a_bare_project(tmp_path: Path) -> BacklogProject:
    return begun_by_a_newcomer(tmp_path)


def answering(project: BacklogProject, answers: Sequence[str]) -> tuple[int, str]:
    """`capsule init --ask` with somebody at the terminal who gives these answers."""
    with Terminal(("init", "--ask"), project.path, project.environment()) as terminal:
        for number, answer in enumerate(answers, 1):
            assert eventually(partial(_was_asked, terminal, number)), terminal.text
            terminal.type(f"{answer}\r" if answer != HANG_UP else answer)
        return terminal.ends(), terminal.text.replace("\r", "")


def _was_asked(terminal: Terminal, times: int) -> bool:
    return terminal.text.count("] ") >= times


def chosen(project: BacklogProject) -> tuple[str, str, str]:
    found = load_settings(project.path, env={}, flags={}).settings
    return found.agent, found.evidence.test, found.tracker.name


@pytest.mark.promise("commands.init-ask")
def test_three_questions_have_what_was_found_as_their_answers(a_bare_project: BacklogProject) -> None:
    code, said = answering(a_bare_project, ["", "", ""])
    assert code == 0, said
    assert "Installed here: codex." in said and "[codex]" in said and "[make test]" in said and "[backlog]" in said
    assert chosen(a_bare_project) == ("codex", "make test", "backlog")
    assert a_bare_project.backlog.exists() and a_bare_project.status() == ""


@pytest.mark.promise("commands.init-ask")
def test_other_answers_are_written_and_unknown_ones_asked_again(a_bare_project: BacklogProject) -> None:
    code, said = answering(a_bare_project, ["gemni", "gemini", 'sh -c "exit 0" # ü', "github"])
    assert code == 0, said
    assert "Did you mean `gemini`?" in said and "gemini is not installed here yet" in said
    assert chosen(a_bare_project) == ("gemini", 'sh -c "exit 0" # ü', "github")
    assert not a_bare_project.backlog.exists() and not (a_bare_project.path / "changes").exists()


def test_settings_that_are_there_are_kept(a_bare_project: BacklogProject) -> None:
    a_bare_project.write(CONFIG, "# mine\nagent: claude\nverify: warn")
    a_bare_project.commit("mine")
    code, said = answering(a_bare_project, ["codex", "none", "backlog"])
    assert code == 0, said
    assert f"kept   `agent` as in {CONFIG}" in said
    text = (a_bare_project.path / CONFIG).read_text()
    assert text == '# mine\nagent: claude\nverify: warn\nevidence: {test: "none"}\ntracker: backlog\n'


def test_without_a_terminal_nothing_is_asked_and_nothing_made(a_bare_project: BacklogProject) -> None:
    before = a_bare_project.footprint()
    assert_clear(a_bare_project.say("init", "--ask"), 2, "--ask needs a terminal", "set `agent` and `evidence.test`")
    assert a_bare_project.footprint() == before


def test_whoever_hangs_up_has_changed_nothing(a_bare_project: BacklogProject) -> None:
    before = a_bare_project.footprint()
    code, said = answering(a_bare_project, ["codex", HANG_UP])
    assert code == 2 and "There was no answer; nothing was changed." in said
    assert a_bare_project.footprint() == before


def test_a_project_for_github_has_settings_and_no_backlog(a_bare_project: BacklogProject) -> None:
    answer = a_bare_project.say("init", "--tracker", "github")
    assert (answer.code, answer.err) == (0, "")
    assert chosen(a_bare_project)[2] == "github" and not a_bare_project.backlog.exists()
    assert answer.out.endswith("next: capsule status\n")
    again = a_bare_project.say("init")
    assert again.code == 0 and not a_bare_project.backlog.exists()


@pytest.mark.promise("commands.init-skills")
def test_skills_are_written_for_every_phase_that_names_one_and_never_overwritten(
    a_bare_project: BacklogProject,
) -> None:
    project = a_bare_project
    mine = project.write(".claude/skills/changes/workflows/0-prd/create-prd.md", "My own.\n")
    answer = project.say("init", "--skills")
    folder = project.path / ".claude/skills/changes"
    assert answer.code == 0 and "lacks" not in answer.err
    assert mine.read_text() == "My own.\n"
    assert all((folder / f"workflows/{skill}.md").is_file() for skill in SKILLS)
    names = ("idea", "prd", "tech-research", "design", "spec")
    assert sorted(path.name for path in (folder / "templates").iterdir()) == sorted(f"{n}-template.md" for n in names)
    written = "".join(path.read_text() for path in folder.rglob("*.md"))
    assert "{{" not in written and "RESULT" not in written and "name: changes" in written
    assert "agents.claude.trust_project" in answer.out
    assert "(0 skills and forms written" in project.say("init", "--skills").out


def test_skills_that_git_ignores_are_written_and_not_committed(a_bare_project: BacklogProject) -> None:
    project = a_bare_project
    project.commit("ignored", **{".gitignore": ".claude/\n"})
    assert project.say("init", "--skills").code == 0
    assert (project.path / ".claude/skills/changes/SKILL.md").exists()
    assert ".claude" not in project.git("ls-tree", "-r", "--name-only", "HEAD")
