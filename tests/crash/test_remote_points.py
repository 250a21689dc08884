"""A mission is killed around everything that it asks of a remote, proposes, pushes and journals: it is merged once.

The points are named by the events of the journal and by the commands that talk to the remote: before each of them, and
while it runs, when a push may or may not get there without us. In half of the cases a person moves main at the remote
before the mission goes on. All these points are tried, always; what the following of the user's branch does to the disk
is sampled, unless CAPSULE_CRASH_ALL=1 is set.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from ..git_server import moves_of, run
from .ending import Ending, check_no_strays, ending_of, gone_soon
from .points import is_event, sample
from .project import ITEM, Project, make_project, server_of

MakeProject = Callable[[], Project]
MAIN = "refs/heads/main"
COMMANDS = ("git fetch", "git ls-remote", "git push")
TRIED = 3
"""Of the other effects, and of the calls through the trunk, unless CAPSULE_CRASH_ALL=1 is set."""


class Point(NamedTuple):
    name: str
    about: str

    @property
    def talks(self) -> bool:
        return self.command in COMMANDS

    @property
    def command(self) -> str:
        program, _, command = self.about.partition(" ")
        return f"{Path(program).name} {command}"


@pytest.fixture
def a_project(hosted: Callable[..., MakeProject]) -> MakeProject:
    return hosted(make_project, lambda project: project.allow(CAPSULE_MERGE__TO="remote"))


def test_every_command_that_talks_to_the_remote_has_its_points(a_project: MakeProject, tmp_path: Path) -> None:
    points = passed(a_project(), tmp_path / "points")
    told = [point.command for point in points if point.talks and point.name.startswith("before")]
    assert told == ["git fetch", "git push", "git ls-remote", "git push", "git push"]
    proposed = next(n for n, point in enumerate(points) if point.name == f"before proposed {ITEM}")
    pushed = next(n for n, point in enumerate(points) if point.command == "git push")
    ended = next(n for n, point in enumerate(points) if point.name == f"before step_ended {ITEM}/publish#1")
    assert proposed < pushed < ended


@pytest.mark.promise("remote.once")
@pytest.mark.parametrize("moved", [False, True], ids=["quiet", "moved"])
def test_killed_around_the_remote_it_is_merged_once(
    a_project: MakeProject, tmp_path: Path, mark: str, moved: bool
) -> None:
    undisturbed = a_project()
    points = passed(undisturbed, tmp_path / "points")
    expected = at_the_end(undisturbed, mark, moved=False)
    for point in chosen(points):
        project = a_project()
        killed = project.drive(CRASH_AT=point.name, CRASH_EFFECTS="1")
        assert killed.returncode == -signal.SIGKILL, f"not killed at {point}: {killed.stderr}"
        assert gone_soon(mark), point
        merged_by_then = len(moves_of(server_of(project), MAIN))
        assert merged_by_then <= 1
        if moved:
            by_a_person(project)
        resumed = project.run()
        assert resumed.returncode == 0, f"killed at {point}: {resumed.stderr}"
        found = at_the_end(project, mark, moved=moved)
        assert moved or found == expected, point
        assert found.ended == expected.ended, point
        project.remove()


def test_a_push_that_outlives_its_run_is_raced_by_no_other(a_project: MakeProject, tmp_path: Path, mark: str) -> None:
    """The next run begins at once, while the push of the killed one may still be under way."""
    points = passed(a_project(), tmp_path / "points")
    pushes = [point for point in points if point.command == "git push" and point.name.startswith("after")]
    for point in pushes:
        project = a_project()
        assert project.drive(CRASH_AT=point.name, CRASH_EFFECTS="1").returncode == -signal.SIGKILL
        assert project.run().returncode == 0
        at_the_end(project, mark, moved=False)


def passed(project: Project, record: Path) -> list[Point]:
    """The points from the begin of publishing to its recorded end."""
    ran = project.drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
    assert ran.returncode == 0, ran.stderr
    points = [Point(*line.split("\t", 1)) for line in record.read_text().splitlines()]
    names = [point.name for point in points]
    first = names.index(f"after step_begun {ITEM}/publish#1")
    last = names.index(f"after step_ended {ITEM}/publish#1")
    return points[first : last + 1]


def chosen(points: list[Point]) -> list[Point]:
    """Everything that is journaled or talks to the remote, and some of the rest."""
    always = [point for point in points if point.talks or is_event(point.name)]
    rest = [point for point in points if point not in always]
    tried = {*always, *(points[points.index(point)] for point in sample_of(rest))}
    return [point for point in points if point in tried]


def sample_of(points: list[Point]) -> list[Point]:
    names = [point.name for point in points]
    return [points[names.index(name)] for name in sample(names, TRIED)]


def by_a_person(project: Project) -> None:
    server = server_of(project)
    tree = run("rev-parse", f"{MAIN}^{{tree}}", cwd=server)
    commit = run("commit-tree", tree, "-p", MAIN, "-m", "by a person", cwd=server)
    run("update-ref", MAIN, commit, cwd=server)


def at_the_end(project: Project, mark: str, *, moved: bool) -> Ending:
    """It is merged exactly once, nothing was overwritten, and the user's branch and checkout have followed."""
    server = server_of(project)
    check_no_strays(project, mark)
    subjects = run("log", "--first-parent", "--format=%s", "main", cwd=server).splitlines()
    assert subjects.count(f"Merge {ITEM}: Mend the one") == 1
    moves = moves_of(server, MAIN)
    assert len(moves) == 1 + moved
    for old, new in moves:
        run("merge-base", "--is-ancestor", old, new, cwd=server)
    ours, theirs = project.git("rev-parse", "main"), run("rev-parse", MAIN, cwd=server)
    run(
        "merge-base", "--is-ancestor", ours, theirs, cwd=server
    )  # what a person pushed after the merge is not waited for
    assert moved or ours == theirs
    assert not (project.path / ".git/capsule/following.json").exists()
    found = ending_of(project)
    assert found.own_edits == ""
    assert run("for-each-ref", "refs/capsule/claims", cwd=server) == ""
    return found
