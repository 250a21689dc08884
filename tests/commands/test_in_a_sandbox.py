"""The promises of missions once more, with every agent and every test in bubblewrap."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from capsule.core.event import Observed
from tests.costs import LONG, eventually
from tests.shared import settings_of_nobody

from ..conftest import SANDBOXED
from .backlog_project import BacklogProject
from .conftest import ITEM, Project, honest, said
from .test_side_by_side import asked_alone, two_that_want

pytestmark = pytest.mark.sandboxed

WORK = honest()["execute"]
SIGN = "is-there"
WAITS = {"run": [f"echo half > answer; echo > {SIGN}; setsid sleep 300 & sleep 300"]}
"""A turn that leaves a mark in its place, and work undone, and does not end."""


@pytest.fixture
def a_sandboxed_project(a_project: Project) -> Project:
    a_project.always |= SANDBOXED
    return a_project


@pytest.mark.promise("sandbox.same-end")
def test_a_mission_is_sent_back_refuted_and_merged(a_sandboxed_project: Project) -> None:
    project = a_sandboxed_project
    reviews = [said("NEEDS_WORK", "one more look"), said("PASS")]
    project.play(honest(execute=[said("PASS", write={"answer": "43\n"}), *WORK, *WORK], execute_review=reviews))
    answer = project.run()
    assert answer.code == 0, answer
    assert "not sandboxed" not in answer.err
    walk = project.walked()[3:8]
    assert walk == [
        *("execute REFUTED", "execute PASS", "execute-review NEEDS_WORK", "execute PASS", "execute-review PASS")
    ]
    assert (project.answer(), project.dirt(), project.status_of()) == ("42", "", "closed")
    assert not project.worktree.exists()
    project.fsck()


@pytest.mark.promise("sandbox.same-end")
def test_an_item_walks_from_add_to_archive(a_backlog: BacklogProject) -> None:
    a_backlog.always |= SANDBOXED
    a_backlog.add()
    answer = a_backlog.run()
    assert answer.code == 0, answer
    assert a_backlog.subjects()[-1] == "[WRK-001][ARCHIVE] Completed: Find the answer"
    assert (a_backlog.status(), a_backlog.ids()) == ("", [])
    assert (a_backlog.path / "answer").read_text() == "42\n"


def test_what_lies_outside_of_the_place_is_not_written(a_sandboxed_project: Project, tmp_path: Path) -> None:
    project, outside = a_sandboxed_project, tmp_path / "outside"
    outside.mkdir()
    tries = f"touch {outside}/agent ~/agent /tmp/{outside.parent.name} 2>/dev/null; true"
    test = f"touch {outside}/test 2>/dev/null; grep -qx 42 answer\n"
    writer = [said("PASS", write={"tests/test_answer.sh": test})]
    project.play(honest(test_writer=writer, execute=[said("PASS", run=[tries], write={"answer": "42\n"})]))
    assert project.run().code == 0
    assert list(outside.iterdir()) == []
    assert not (project.home / "agent").exists()
    assert not Path(f"/tmp/{outside.parent.name}/{outside.parent.name}").exists()


@pytest.mark.promise("side-by-side.test-network")
@pytest.mark.parametrize(("network", "code"), [("own", 0), ("shared", 1)])
def test_a_port_of_the_host_is_free_for_tests_that_are_given_a_network(
    a_sandboxed_project: Project, network: str, code: int
) -> None:
    project = a_sandboxed_project
    python = shutil.which("python3", path=project.environment()["PATH"])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"import socket; socket.create_server(('127.0.0.1', {taken.getsockname()[1]}))"
        test = f'grep -qx 42 answer && {python} -c "{bind}"\n'
        project.play(honest(test_writer=[said("PASS", write={"tests/test_answer.sh": test})]))
        answer = project.run(CAPSULE_CONFINEMENT__TEST_NETWORK=network)
    assert (answer.code, "confinement.test_network" in answer.err) == (code, False), answer
    tails = [event.observation.tail for event in project.events() if isinstance(event, Observed)]
    assert any("Address already in use" in tail for tail in tails) == bool(code), tails


@pytest.mark.promise("side-by-side.test-network")
def test_two_suites_that_want_port_8000_are_green_at_once_each_in_a_network_of_its_own(
    a_sandboxed_project: Project, tmp_path: Path
) -> None:
    a_sandboxed_project.always["CAPSULE_CONFINEMENT__TEST_NETWORK"] = "own"
    both = two_that_want(8000, a_sandboxed_project, tmp_path)
    with both[0].running() as one, both[1].running() as two:
        assert (one.wait(5 * LONG), two.wait(5 * LONG)) == (0, 0)
    assert not asked_alone(both)


def test_a_network_for_tests_is_said_to_have_no_effect_without_a_sandbox(a_project: Project) -> None:
    a_project.play({"test-writer": [said("ERROR", "no")]})
    answer = a_project.run(CAPSULE_CONFINEMENT__TEST_NETWORK="own")
    told = "note: confinement.test_network: own has no effect here: only bubblewrap gives tests a network."
    assert told in answer.err, answer


@pytest.mark.promise("sandbox.same-end")
@pytest.mark.parametrize("limit", ["PHASE_TIMEOUT_MINUTES", "IDLE_TIMEOUT_MINUTES"])
def test_an_agent_that_does_not_end_is_ended_with_all_it_started(a_sandboxed_project: Project, limit: str) -> None:
    project = a_sandboxed_project
    project.play(honest(execute=[{"run": ["setsid sleep 300 & sleep 300"]}, *WORK]))
    assert [project.capsule("step", ITEM).code for _ in range(2)] == [0, 0]
    answer = project.run(**{f"CAPSULE_EXECUTION__{limit}": "0.03"})
    assert answer.code != 0, answer
    assert project.walked()[-1].startswith("execute ")
    assert eventually(lambda: survivors(project) == [])
    again = project.run()
    assert again.code == 0, again
    assert project.answer() == "42"


@pytest.mark.promise("sandbox.same-end")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_runner_that_ends_under_its_agent_takes_it_along_and_is_resumed(
    a_sandboxed_project: Project, number: signal.Signals
) -> None:
    project = a_sandboxed_project
    project.play(honest(execute=[WAITS]))
    with project.running() as runner:
        assert eventually((project.worktree / SIGN).exists)
        runner.send_signal(number)
        assert runner.wait(LONG) == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    assert eventually(lambda: survivors(project) == [])
    project.play(honest())
    answer = project.run()
    assert answer.code == 0, answer
    assert (project.answer(), project.dirt()) == ("42", "")
    assert project.walked().count("test-writer PASS") == 1
    kept = project.refs(f"refs/capsule/salvage/{ITEM}")
    assert [project.git("show", f"{ref}:answer") for ref in kept] == ["half"]


def survivors(project: Project) -> list[str]:
    """Command lines of processes that run below the project's folder; what a sandbox shows them is our own disk."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(project.path.parent) in str((process / "cwd").readlink()):
                found.append((process / "cmdline").read_text())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("words", [("demo",), ("demo", "--backlog")], ids=" ".join)
def test_the_demo_comes_to_its_end(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "capsule", *words, str(tmp_path / "here")],
        env=settings_of_nobody() | SANDBOXED,
        capture_output=True,
        text=True,
        check=False,
        timeout=5 * LONG,
    )
    assert done.returncode == 0, done.stderr
    assert "not sandboxed" not in done.stderr


def test_an_agent_reads_the_file_that_its_prompt_is_in(a_sandboxed_project: Project) -> None:
    project = a_sandboxed_project
    signal_of_it = '{"status":"%s","feedback":"","files_changed":["tests/test_answer.sh"],"summary":"s"}\\n'
    reads = f"""head -n 1 "$1"; echo 'grep -qx 42 answer' >tests/test_answer.sh; printf '{signal_of_it}' PASS"""
    command = json.dumps(["sh", "-ec", reads, "reader", "{prompt_file}"])
    answer = project.capsule("step", ITEM, env={"CAPSULE_AGENT": "reader", "CAPSULE_AGENTS__READER__COMMAND": command})
    assert answer.code == 0, answer
    assert project.walked() == ["prep PASS", "test-writer PASS"]
    printed = next(project.outputs().glob("test-writer-*.log")).read_text()
    assert printed.startswith("# Test-Writer Phase\n")
    assert not list(project.worktree.rglob("*.prompt")), "nothing of it is left in the place"


def test_hooks_use_their_index_and_the_projects_tools(a_backlog: BacklogProject) -> None:
    a_backlog.always |= SANDBOXED
    (a_backlog.path / ".git/info/exclude").write_text("/tools/\n")
    a_backlog.write("tools/lint", "#!/bin/sh\necho content\n").chmod(0o755)
    hook = a_backlog.path / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\nset -e\ngit write-tree\ngit update-index --refresh\ntools/lint\n")
    hook.chmod(0o755)
    a_backlog.settings("git: {hooks: true}\nworkspace: {dependencies: [tools]}\n")
    a_backlog.add()
    answer = a_backlog.run("--cap", "1")
    assert answer.code == 0 and "TRIAGE" in a_backlog.subjects()[-1], answer
    assert not (a_backlog.path / ".capsule/worktrees/WRK-001/tools").exists()
