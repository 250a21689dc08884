"""Agents by a path of their own; those that die without an answer show their cause, and burn no item."""

from __future__ import annotations

import json
import re

import pytest

from capsule.core.event import StepBegun

from .backlog_project import BacklogProject
from .conftest import COMMIT, ITEM, PASS, Project, assert_clear
from .test_campaign import FLOW

DEAD = """\
#!/bin/sh
[ "$1" = --version ] && exit 0
echo "TINY_TOKEN is not set" >&2
echo "cannot find libfoo." >&2
exit 3
"""


WORKING = f"""\
#!/bin/sh
echo 42 > answer
{COMMIT}
echo '{json.dumps(PASS)}'
"""


def an_agent(project: Project, script: str, mode: int = 0o755) -> None:
    """A script in the project that no commit has: a worktree lacks it."""
    exclude = project.path / ".git" / "info" / "exclude"
    exclude.write_text(f"{exclude.read_text()}agent.sh\n")
    file = project.path / "agent.sh"
    file.write_text(script)
    file.chmod(mode)


@pytest.mark.promise("agents.cause-of-death")
def test_a_dead_agents_cause_is_shown(a_backlog: BacklogProject) -> None:
    an_agent(a_backlog, DEAD)
    a_backlog.add()
    said = a_backlog.run("--agent", "./agent.sh", "--max-retries", "0", TINY_TOKEN="abcdefgh")
    assert said.code == 1
    cause = "No result JSON found; the agent exited with 3: cannot find libfoo"
    assert cause in a_backlog.item().blocked.reason  # type: ignore[union-attr]
    for words in (said.err, a_backlog.say("show", "WRK-001").out):
        shown = " ".join(words.split())
        assert "Its stderr ends with: TINY_TOKEN is not set / cannot find libfoo. Its log: " in shown
        assert "/.capsule/missions/WRK-001/outputs/triage-" in shown.partition("Its log: ")[2]
        assert "Not given to it: TINY_TOKEN" in shown and "environment.allow" in shown
        assert "abcdefgh" not in shown


@pytest.mark.promise("agents.cause-of-death")
def test_the_cause_is_shown_of_an_agent_that_dies_in_a_mission_of_its_own(a_project: Project) -> None:
    an_agent(a_project, DEAD)
    said = a_project.run("--agent", "./agent.sh", "--max-retries", "0", TINY_TOKEN="abcdefgh")
    assert said.code == 2
    for words in (said.err, a_project.say("show", ITEM).out):
        shown = " ".join(words.split())
        assert "the agent exited with 3: cannot find libfoo" in shown
        assert "Its stderr ends with: TINY_TOKEN is not set / cannot find libfoo. Its log: " in shown
        assert f"/.capsule/missions/{ITEM}/outputs/test-writer-" in shown.partition("Its log: ")[2]
        assert "Not given to it: TINY_TOKEN" in shown and "environment.allow" in shown
        assert "abcdefgh" not in shown


@pytest.mark.promise("agents.cause-of-death")
def test_what_helps_the_user_is_in_no_commit(a_backlog: BacklogProject) -> None:
    an_agent(a_backlog, DEAD)
    a_backlog.add()
    a_backlog.run("--agent", "./agent.sh", "--max-retries", "0", TINY_TOKEN="abcdefgh")
    assert str(a_backlog.path) not in a_backlog.git("log", "-p", "HEAD~1..HEAD")
    assert "Not given to it" not in a_backlog.git("log", "-p", "--all")


@pytest.mark.promise("agents.by-path")
def test_an_agent_that_is_not_executable_is_called_that(a_backlog: BacklogProject) -> None:
    an_agent(a_backlog, DEAD, 0o644)
    a_backlog.add()
    said = a_backlog.run("--agent", "./agent.sh")
    assert said.code == 2
    assert "which is not executable" in said.err and f"chmod +x {a_backlog.path}/agent.sh" in said.err


@pytest.mark.promise("agents.by-path")
@pytest.mark.parametrize(
    ("agent", "cause", "hint"),
    [
        ("agent.sh", "There is no agent 'agent.sh'", "(--agent ./agent.sh)"),
        ("./gone.sh", "gone.sh`, which is not there", "Check the path"),
        ("./folder", "folder`, which is a folder", "Name the program in it"),
    ],
)
def test_a_path_that_names_no_program_is_explained(
    a_backlog: BacklogProject, agent: str, cause: str, hint: str
) -> None:
    an_agent(a_backlog, DEAD)
    (a_backlog.path / "folder").mkdir()
    a_backlog.add()
    assert_clear(a_backlog.run("--agent", agent), 2, cause, hint)


@pytest.mark.promise("agents.by-path")
def test_a_command_relative_to_the_project_works_from_a_worktree(a_backlog: BacklogProject) -> None:
    a_backlog.settings('agents: {tiny: {command: ["./agent.sh"]}}')
    an_agent(a_backlog, DEAD)
    a_backlog.add()
    said = a_backlog.run("--agent", "tiny", "--max-retries", "0")
    assert said.code == 1 and "cannot find libfoo" in said.err


@pytest.mark.promise("agents.by-path")
@pytest.mark.parametrize("agent", ["./agent.sh", "tiny"], ids=["option", "command"])
def test_an_agent_by_a_path_in_the_project_works_in_a_worktree_and_is_merged(a_project: Project, agent: str) -> None:
    a_project.write(".capsule/workflows/short.yaml", FLOW)
    config = (a_project.path / ".capsule" / "config.yaml").read_text()
    a_project.write(".capsule/config.yaml", f'{config}agents: {{tiny: {{command: ["./agent.sh"]}}}}\n')
    a_project.commit("a short way")
    an_agent(a_project, WORKING)
    said = a_project.capsule("run", ITEM, "--workflow", "short", "--agent", agent, cwd=a_project.path / "tests")
    assert said.code == 0, said
    assert a_project.answer() == "42"
    assert a_project.git("log", "-1", "--format=%s") == f"Merge {ITEM}: Find the answer"
    assert "agent.sh" not in a_project.git("ls-tree", "-r", "--name-only", "main")


def kills_its_supervisor(project: Project, unless: str) -> None:
    project.write(".capsule/workflows/short.yaml", FLOW)
    project.commit("a short way")
    an_agent(project, WORKING.replace("echo 42", f"{unless} || {{ kill -9 $PPID; sleep 60; }}\necho 42"))


@pytest.mark.promise("agents.killed-with-its-supervisor")
def test_an_agent_that_was_killed_with_its_supervisor_costs_no_retry(a_project: Project) -> None:
    done = a_project.path.parent / "killed-before"
    kills_its_supervisor(a_project, f"! mkdir {done}")
    words = ("--workflow", "short", "--agent", "./agent.sh", "--max-retries", "0")
    a_project.always["CAPSULE_BUDGET__RUN__TOKENS"] = "1000"  # of which the killed one keeps nothing
    said = a_project.capsule("run", *words)
    assert said.code == 0 and a_project.answer() == "42", said
    assert "was killed with the process that supervises it. It is started again." in said.err
    begun = [event.key for event in a_project.events(ITEM) if isinstance(event, StepBegun) and event.spawns]
    assert begun == ["make#1", "make#1"]


@pytest.mark.promise("agents.killed-with-its-supervisor")
def test_one_that_is_killed_with_its_supervisor_twice_ends_the_run_and_is_no_verdict(a_project: Project) -> None:
    kills_its_supervisor(a_project, "false")
    words = ("--workflow", "short", "--agent", "./agent.sh", "--max-retries", "0")
    said = a_project.run(*words)
    assert said.code == 2 and "was killed with the process that supervises it." in said.err.splitlines()[-2], said
    assert said.err.splitlines()[-1].strip() == f"Go on with `capsule run {ITEM}`."
    an_agent(a_project, WORKING)
    assert a_project.run("--agent", "./agent.sh").code == 0 and a_project.answer() == "42"


@pytest.mark.promise("agents.broken-install")
@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\nexit 1\n",
        "#!/usr/bin/env no-such-interpreter\n",
        "#!/bin/sh\necho Error: Cannot find module yargs >&2\nexit 1\n",
    ],
    ids=["silent", "no interpreter", "the same last words"],
)
def test_a_broken_install_stops_the_run_before_items_are_burnt(a_backlog: BacklogProject, script: str) -> None:
    an_agent(a_backlog, script)
    a_backlog.add()
    a_backlog.add("Another")
    said = a_backlog.run("--agent", "./agent.sh", ACME_TOKEN="shh-not-told")
    assert said.code == 2
    assert "does not run" in said.err and "agent.sh --version` until it works" in said.err
    if "env" not in script:  # of one that was started
        assert re.search(r" Its log: \S+\.log\. Not given to it: ACME_TOKEN; environment\.allow passes", said.err)
    assert [a_backlog.item(name).status.value for name in ("WRK-001", "WRK-002")] == ["new", "new"]


NO_VERSION = '#!/bin/sh\n[ "$1" = --version ] && echo No such option >&2 || echo Out of luck >&2\nexit 1\n'


@pytest.mark.promise("agents.broken-install")
@pytest.mark.parametrize(
    "script", ['#!/bin/sh\n[ "$1" = --version ] || exit 1\n', NO_VERSION], ids=["knows its version", "has no version"]
)
def test_one_that_dies_for_another_reason_is_judged(a_backlog: BacklogProject, script: str) -> None:
    an_agent(a_backlog, script)
    a_backlog.add()
    assert a_backlog.run("--agent", "./agent.sh", "--max-retries", "0").code == 1
    assert a_backlog.item().status.value == "blocked"
