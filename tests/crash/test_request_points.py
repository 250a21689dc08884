"""A mission is killed around everything that its request asks of remote and forge: one request, and one end.

The points are named by the events of the journal and by the commands that talk to the remote and to the forge. All of
these are tried; what else is done to the disk is left to the other tests.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.core.event import Reviewed

from ..fake_forge import Forge
from ..git_server import run
from .ending import check_no_strays, events_of, gone_soon
from .points import is_event, sample
from .project import ITEM, Project, make_project, server_of
from .test_remote_points import COMMANDS, Point

MakeProject = Callable[[], Project]
ASKED = ("own open", "own look")
TRIED = 8
"""Of the points of each, unless CAPSULE_CRASH_ALL=1 is set."""
RUNS = 3
"""How often a mission is run to come to a point."""


def with_forge(project: Project) -> None:
    """Its work is merged by requests to a forge of its own."""
    forge = Forge(project.outside / "forge", server_of(project))
    project.allow(
        PATH=os.pathsep.join([str(forge.install("own")), os.environ["PATH"]]),
        CAPSULE_MERGE__TO="request",
        CAPSULE_MERGE__REQUEST__OPEN='[own, open, "{branch}", "{base}", "{title}", "{body_file}"]',
        CAPSULE_MERGE__REQUEST__LOOK='[own, look, "{branch}"]',
    )


@pytest.fixture
def a_project(hosted: Callable[..., MakeProject]) -> MakeProject:
    return hosted(make_project, with_forge)


def forge_of(project: Project) -> Forge:
    forge = Forge.__new__(Forge)
    forge.folder, forge.bare = project.outside / "forge", server_of(project)
    return forge


def test_every_command_that_asks_has_its_points(a_project: MakeProject, tmp_path: Path) -> None:
    points = passed(a_project(), tmp_path / "points", "step_begun", "publish#1")
    told = [point.command for point in points if _asks(point) and point.name.startswith("before")]
    claim, branch = "git push", "git push"
    assert told == ["git fetch", "git ls-remote", "own look", claim, branch, "own open", "own look"]


@pytest.mark.promise("request.once")
def test_killed_while_it_opens_its_request_it_has_one(a_project: MakeProject, tmp_path: Path, mark: str) -> None:
    points = passed(a_project(), tmp_path / "points", "step_begun", "publish#1")
    for point in tried(points):
        project = killed_at(point, a_project, mark)
        resumed = project.run()
        assert resumed.returncode == 0, f"killed at {point}: {resumed.stderr}"
        check_no_strays(project, mark)
        [request] = forge_of(project).requests
        assert request["state"] == "open", point
        assert request["head"] == run("rev-parse", f"refs/heads/capsule/{ITEM}", cwd=server_of(project))
        project.remove()


@pytest.mark.promise("request.once")
def test_killed_after_its_request_was_merged_it_is_done_once(a_project: MakeProject, tmp_path: Path, mark: str) -> None:
    def merged() -> Project:
        project = a_project()
        assert project.run().returncode == 0
        forge_of(project).merge("squash")
        return project

    points = passed(merged(), tmp_path / "points", "reviewed", "archive#1")
    for point in tried(points):
        project = killed_at(point, merged, mark)
        resumed = project.run()
        assert resumed.returncode == 0, f"killed at {point}: {resumed.stderr}"
        check_no_strays(project, mark)
        assert sum(isinstance(event, Reviewed) for event in events_of(project, ITEM)) == 1, point
        assert '"status":"closed"' in project.path.joinpath(".beads/issues.jsonl").read_text().replace(" ", ""), point
        assert project.git("rev-parse", "main") == run("rev-parse", "main", cwd=server_of(project)), point
        project.remove()


def killed_at(point: str, make: MakeProject, mark: str) -> Project:
    """Kill a mission at a point. The last effects of a run may be a few fewer in the next: then it is run once more."""
    for _ in range(RUNS):
        project = make()
        ran = project.drive(CRASH_AT=point, CRASH_EFFECTS="1")
        assert gone_soon(mark), point
        if ran.returncode == -signal.SIGKILL:
            return project
        assert (ran.returncode, "effect" in point) == (0, True), f"{point}: {ran.stderr}"
        project.remove()
    raise AssertionError(f"not killed at {point}")


def passed(project: Project, record: Path, first: str, last: str) -> list[Point]:
    """The points from before the first of these events to after the end of the last step."""
    ran = project.drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
    assert ran.returncode == 0, ran.stderr
    points = [Point(*line.split("\t", 1)) for line in record.read_text().splitlines()]
    names = [point.name for point in points]
    begins = f"before {first} {ITEM}" + (f"/{last}" if first == "step_begun" else "")
    return points[names.index(begins) : names.index(f"after step_ended {ITEM}/{last}") + 1]


def tried(points: list[Point]) -> list[str]:
    chosen = [point.name for point in points if _asks(point) or is_event(point.name)]
    always = [point.name for point in points if point.command in ("own open", "git push")]
    return [name for name in chosen if name in {*always, *sample(chosen, TRIED)}]


def _asks(point: Point) -> bool:
    return point.command in (*COMMANDS, *ASKED)
