"""A runner that dies, is stopped or is not alone: the agent's whole tree goes, the lock is free, nothing is lost."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.costs import LONG

from .conftest import Undisturbed
from .ending import check_no_strays, check_nothing_lost, check_papers, ending_of, gone_soon, survivors
from .points import ALL
from .project import ITEM, OTHER, Project, waiting_script

MakeProject = Callable[[], Project]
PHASES = ("test-writer", "execute", "merge")
BOTH = (signal.SIGINT, signal.SIGTERM)
STOPS = {"test-writer": (), "execute": BOTH if ALL else BOTH[:1], "merge": BOTH if ALL else BOTH[1:]}
"""By which signals a runner is stopped in a phase: each in one, or, with CAPSULE_CRASH_ALL=1, in both."""


class Waiting:
    """A run whose agent is in the middle of its phase."""

    def __init__(self, project: Project, phase: str, folder: Path, item: str = ITEM) -> None:
        sign, script = folder / f"{item}-is-there", folder / f"{item}.json"
        script.write_text(json.dumps({item: waiting_script(item, phase, sign)}))
        self.runner = project.start(item, CAPSULE_AGENTS__SCRIPTED__ARGS=json.dumps([str(script)]))
        deadline = time.monotonic() + LONG
        while not sign.exists():
            assert self.runner.poll() is None, self.runner.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def ends_by(self, number: signal.Signals) -> int:
        self.runner.send_signal(number)
        self.runner.communicate(timeout=LONG)
        return self.runner.returncode


@pytest.mark.parametrize("phase", PHASES)
def test_a_runner_killed_under_its_agent_takes_the_agents_whole_tree_along(
    phase: str, a_project: MakeProject, undisturbed: Undisturbed, tmp_path: Path, mark: str
) -> None:
    project = a_project()
    waiting = Waiting(project, phase, tmp_path)
    assert len(survivors(mark)) > 3
    assert waiting.ends_by(signal.SIGKILL) == -signal.SIGKILL
    assert gone_soon(mark), survivors(mark)
    resumes_to_the_same_end(project, undisturbed, mark)
    check_half_done_work_is_kept(project)


@pytest.mark.parametrize(("phase", "number"), [(phase, number) for phase in PHASES for number in STOPS[phase]])
def test_a_runner_that_is_stopped_says_130_and_can_be_resumed(
    phase: str, number: signal.Signals, a_project: MakeProject, undisturbed: Undisturbed, tmp_path: Path, mark: str
) -> None:
    project = a_project()
    assert Waiting(project, phase, tmp_path).ends_by(number) == 130
    check_no_strays(project, mark)
    resumes_to_the_same_end(project, undisturbed, mark)
    check_half_done_work_is_kept(project)


def test_a_second_run_of_a_running_mission_is_told_who_runs_it(
    a_project: MakeProject, undisturbed: Undisturbed, tmp_path: Path, mark: str
) -> None:
    project = a_project()
    waiting = Waiting(project, "execute", tmp_path)
    second = project.run()
    assert second.returncode == 3
    assert f"{ITEM} is running (pid {waiting.runner.pid})" in second.stderr
    assert waiting.ends_by(signal.SIGTERM) == 130
    resumes_to_the_same_end(project, undisturbed, mark)


def test_two_missions_side_by_side_are_both_merged(a_project: MakeProject, mark: str) -> None:
    project = a_project()
    runners = {item: project.start(item) for item in (ITEM, OTHER)}
    for runner in runners.values():
        said = runner.communicate(timeout=5 * LONG)[1]
        assert runner.returncode == 0, said
    check_both_merged(project, mark)


def test_a_mission_killed_beside_another_leaves_it_alone(a_project: MakeProject, tmp_path: Path, mark: str) -> None:
    project = a_project()
    waiting = Waiting(project, "merge", tmp_path)
    assert project.run(OTHER).returncode == 0
    waiting.ends_by(signal.SIGKILL)
    resumed = project.run()
    assert resumed.returncode == 0, resumed.stderr
    check_both_merged(project, mark)


def check_half_done_work_is_kept(project: Project) -> None:
    kept = project.git("for-each-ref", "--format=%(refname)", f"refs/capsule/salvage/{ITEM}").split()
    assert any("half-done" in project.git("show", f"{ref}:src/{ITEM}.txt") for ref in kept)


def check_both_merged(project: Project, mark: str) -> None:
    check_no_strays(project, mark)
    subjects = project.git("log", "--first-parent", "--format=%s", "main").splitlines()
    assert sorted(subjects) == [f"Merge {ITEM}: Mend the one", f"Merge {OTHER}: Mend the other", "first"]
    subprocess.run(["sh", "run-tests.sh"], cwd=project.path, check=True)
    assert not project.git("status", "--porcelain", "--", ":!.beads")
    closed = [
        json.loads(line)["status"] for line in (project.path / ".beads" / "issues.jsonl").read_text().splitlines()
    ]
    assert closed == ["open", "closed", "closed"]
    for item in (ITEM, OTHER):
        check_papers(project, item)


def resumes_to_the_same_end(project: Project, undisturbed: Undisturbed, mark: str) -> None:
    check_nothing_lost(project, undisturbed.ending.tree)
    resumed = project.run()
    assert resumed.returncode == 0, resumed.stderr
    assert ending_of(project) == undisturbed.ending
    check_papers(project)
    check_no_strays(project, mark)
