"""A mission of a backlog is killed around everything that it asks of the branch of its state: each step is there once.

The branch is begun by the first run, too. The points are named by the events of the journal and by the commands that
talk to the remote: many of the pushes are tried, and a few of the rest; with CAPSULE_CRASH_ALL=1 all of them.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from ..git_server import moves_of, run
from .ending import check_no_strays, gone_soon
from .every_turn import BacklogProject
from .points import is_event, sample
from .project import STAMP, first_commit, script_for, server_of, turn
from .test_request_points import forge_of, with_forge

MakeProject = Callable[[], BacklogProject]
ITEM = "WRK-001"
STATE = "refs/heads/capsule-state"
TRIED = 6
"""Of the points that only ask, and of events, unless CAPSULE_CRASH_ALL=1 is set; of pushes twice as many."""
_CONFIG = """\
agent: scripted
agents: {scripted: {args: [script.json]}}
evidence: {test: sh run-tests.sh, test_globs: ["tests/*"]}
workflow: {default: tdd}
"""


def make_backlog(path: Path) -> None:
    script = script_for(ITEM) | {"merge": [turn()]}
    files = {
        "run-tests.sh": 'for test in tests/*.sh; do sh -e "$test" || exit 1; done\n',
        "tests/first.sh": "test -f README\n",
        "README": "hello\n",
        "src/app.txt": "app\n",
        ".gitignore": "build/\nnode_modules/\n/.capsule/*\n!/.capsule/config.yaml\n",
        ".capsule/config.yaml": _CONFIG,
        "script.json": json.dumps({ITEM: script}, indent=1),
        "BACKLOG.yaml": f"schema_version: 1\nlast_id: 1\nitems:\n"
        f'  - {{id: {ITEM}, title: Mend the one, status: ready, created: "{STAMP}"}}\n',
    }
    first_commit(path, files)


@pytest.fixture
def a_backlog(hosted: Callable[..., MakeProject]) -> MakeProject:
    return hosted(make_backlog, with_forge, BacklogProject)


def test_the_branch_is_begun_before_anything_else_and_each_step_is_pushed(
    a_backlog: MakeProject, tmp_path: Path
) -> None:
    project = a_backlog()
    points = passed(project, tmp_path / "points")
    told = [point.split()[2] for point in points if " git." in point and point.startswith("before")]
    assert {*told[: told.index("git.push")]} == {"git.fetch", "git.ls-remote"}
    assert told.count("git.push") > len(moves_of(server_of(project), STATE)) > 5


@pytest.mark.promise("state-branch.once")
def test_killed_around_the_branch_each_step_is_on_it_once(a_backlog: MakeProject, tmp_path: Path, mark: str) -> None:
    points = passed(a_backlog(), tmp_path / "points")
    for point in tried(points):
        project = killed_at(point, a_backlog, mark)
        resumed = project.work()
        assert resumed.returncode == 0, f"killed at {point}: {resumed.stdout}{resumed.stderr}"
        check_no_strays(project, mark)
        [request] = forge_of(project).requests
        assert request["state"] == "open", point
        check_state(project, point)
        project.remove()


@pytest.mark.promise("state-branch.once")
def test_killed_after_its_request_was_merged_it_is_archived_once(
    a_backlog: MakeProject, tmp_path: Path, mark: str
) -> None:
    def merged() -> BacklogProject:
        project = a_backlog()
        assert project.work().returncode == 0
        forge_of(project).merge("squash")
        return project

    points = passed(merged(), tmp_path / "points")
    for point in tried(points):
        project = killed_at(point, merged, mark)
        resumed = project.work()
        assert resumed.returncode == 0, f"killed at {point}: {resumed.stdout}{resumed.stderr}"
        check_no_strays(project, mark)
        check_state(project, point)
        assert ITEM not in run("show", "capsule-state:BACKLOG.yaml", cwd=server_of(project)), point
        months = run("ls-tree", "-r", "--name-only", "capsule-state", "_worklog/", cwd=server_of(project)).splitlines()
        diary = "".join(run("show", f"capsule-state:{name}", cwd=server_of(project)) for name in months)
        assert diary.count("| archive | Completed") == 1, point
        assert project.git("rev-parse", "main") == run("rev-parse", "main", cwd=server_of(project)), point
        project.remove()


def killed_at(point: str, make: MakeProject, mark: str) -> BacklogProject:
    project = make()
    ran = project.killed_at(point, CRASH_EFFECTS="1")
    assert ran.returncode == -signal.SIGKILL, f"not killed at {point}: {ran.stderr}"
    assert gone_soon(mark), point
    return project


def passed(project: BacklogProject, record: Path) -> list[str]:
    ran = project.killed_at("", CRASH_RECORD=str(record), CRASH_EFFECTS="1")
    assert ran.returncode == 0, ran.stderr
    return [line.partition("\t")[0] for line in record.read_text().splitlines()]


def tried(points: list[str]) -> list[str]:
    """Some of the pushes, of what only asks, and of what is journaled."""
    pushes = [point for point in points if " git.push " in point]
    rest = [point for point in points if point not in pushes and (" git." in point or is_event(point))]
    chosen = {*sample(pushes, 2 * TRIED), *sample(rest, TRIED)}
    return [point for point in points if point in chosen]


def check_state(project: BacklogProject, point: str) -> None:
    """Each step is on the branch once, nothing was forced, and the checkout has what the branch has."""
    server = server_of(project)
    trailers = run("log", "--format=%(trailers:key=Capsule-Step,valueonly)", "capsule-state", cwd=server).split()
    assert not [step for step, number in Counter(trailers).items() if number > 1], point
    for old, new in moves_of(server, STATE)[1:]:
        run("merge-base", "--is-ancestor", old, new, cwd=server)
    checkout = project.path / ".capsule/backlog"
    assert run("rev-parse", "HEAD", cwd=checkout) == run("rev-parse", "capsule-state", cwd=server), point
    assert run("status", "--porcelain", cwd=checkout) == "", point
    assert project.git("status", "--porcelain") == "", point
    assert not (project.path / ".git/capsule/state.json").exists(), point
