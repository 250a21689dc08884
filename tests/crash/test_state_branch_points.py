"""A mission of a backlog is killed around everything that it asks of the branch of its state: each step is there once.

The branch is begun by the first run, too. The points are named by the commands that talk to the remote and to the
forge: all pushes are tried, and a sample of the rest.
"""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from ..fake_forge import Forge
from ..git_server import moves_of, run
from .ending import check_no_strays, gone_soon
from .every_turn import BacklogProject
from .points import is_event, sample
from .project import STAMP, first_commit, outside, script_for, turn
from .test_remote_points import Point, server_of
from .test_request_points import RUNS, forge_of

MakeProject = Callable[[], BacklogProject]
ITEM = "WRK-001"
STATE = "refs/heads/capsule-state"
ASKED = ("git fetch", "git ls-remote", "own open", "own look")
TRIED = 6
"""Of the points that only ask, and of events, unless CAPSULE_CRASH_ALL=1 is set."""
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


@pytest.fixture(scope="session")
def made() -> list[Path]:
    """What the first test made for those after it."""
    return []


@pytest.fixture
def a_backlog(made: list[Path], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mark: str) -> MakeProject:
    """Copies of a project with a backlog, each with a server and a forge of its own."""
    if not made:
        template = tmp_path_factory.mktemp("state") / "template"
        make_backlog(template)
        server = outside(template) / "server.git"
        run("clone", "-q", "--bare", str(template), str(server))
        run("config", "core.logAllRefUpdates", "always", cwd=server)
        run("remote", "add", "origin", "somewhere", cwd=template)
        made.append(template)
    numbers = count()

    def make() -> BacklogProject:
        project = BacklogProject(made[0], tmp_path / f"project-{next(numbers)}", mark)
        project.git("remote", "set-url", "origin", str(server_of(project)))
        forge = Forge(project.outside / "forge", server_of(project))
        project.allow(
            PATH=os.pathsep.join([str(forge.install("own")), os.environ["PATH"]]),
            CAPSULE_MERGE__TO="request",
            CAPSULE_MERGE__REQUEST__OPEN='[own, open, "{branch}", "{base}", "{title}", "{body_file}"]',
            CAPSULE_MERGE__REQUEST__LOOK='[own, look, "{branch}"]',
        )
        return project

    return make


def test_the_branch_is_begun_before_anything_else_and_each_step_is_pushed(
    a_backlog: MakeProject, tmp_path: Path
) -> None:
    project = a_backlog()
    points = passed(project, tmp_path / "points")
    told = [point.command for point in points if point.command.startswith("git ") and point.name.startswith("before")]
    assert told[:4] == ["git fetch", "git ls-remote", "git fetch", "git push"]
    assert told.count("git push") > len(moves_of(server_of(project), STATE)) > 5


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
    """Kill a run at a point. Two processes count the effects: where one is missed, it is run once more."""
    for _ in range(RUNS):
        project = make()
        ran = project.killed_at(point, CRASH_EFFECTS="1")
        assert gone_soon(mark), point
        if ran.returncode == -signal.SIGKILL:
            return project
        assert (ran.returncode, "effect" in point) == (0, True), f"{point}: {ran.stderr}"
        project.remove()
    raise AssertionError(f"not killed at {point}")


def passed(project: BacklogProject, record: Path) -> list[Point]:
    ran = project.killed_at("", CRASH_RECORD=str(record), CRASH_EFFECTS="1")
    assert ran.returncode == 0, ran.stderr
    return [Point(*line.split("\t", 1)) for line in record.read_text().splitlines()]


def tried(points: list[Point]) -> list[str]:
    """Every push, and some of what only asks or is journaled."""
    pushes = [point.name for point in points if point.command == "git push"]
    rest = [point.name for point in points if point.command in ASKED or is_event(point.name)]
    chosen = {*sample(pushes, 2 * TRIED), *sample(rest, TRIED)}
    return [point.name for point in points if point.name in chosen]


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
