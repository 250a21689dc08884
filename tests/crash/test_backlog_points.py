"""A run of the backlog is killed before and after everything it journals, and run again: the end is always the same.

The points come from the journal, and all of them are tried, always: a run is killed at one after the other, each time
as soon as it gets there, every fourth point in one run. With CAPSULE_CRASH_ALL=1 each is also tried alone.

What lies between two events is in test_stages. At every kill: each item is in the backlog or in the archive, the files
are as committed (or it is noted how they are to become so), and the run has counted every agent.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.costs import LONG
from tests.shared import found_once

from .backlog_ending import BacklogEnding, backlog_ending_of, check_backlog, check_count, streams_of
from .ending import check_no_strays, events_of, gone_soon, names_of, survivors
from .every_turn import HALF_DONE, WALKED, BacklogProject, make_backlog_project, waiting_script
from .points import ALL, is_event

EVENTS = {
    *("run_started", "run_ended", "mission_started", "step_begun", "step_ended"),
    *("recorded", "observed", "salvaged", "warned", "taken"),
}
BESIDE = {"spawned", "agent_ended"}
"""Events of the run, written in the transaction of a mission's own event."""
CHAINS = 4
ALONE = 24

MakeProject = Callable[..., BacklogProject]


@dataclass(frozen=True)
class Walk:
    """The undisturbed run."""

    ending: BacklogEnding
    events: dict[str, list[str]]
    """The names of each stream's events, by the journal."""
    points: list[str]
    """Every point passed, by the driver."""

    def event_points(self) -> list[str]:
        return list(filter(is_event, self.points))


# ---- situations


@pytest.fixture(scope="session")
def backlog_template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    @cache
    def make() -> Path:
        path = tmp_path_factory.mktemp("backlog") / "template"
        make_backlog_project(path)
        return path

    return make


@pytest.fixture
def a_backlog(backlog_template: Callable[[], Path], tmp_path: Path, mark: str) -> MakeProject:
    """Fresh copies of the project."""
    numbers = count()
    return lambda: BacklogProject(backlog_template(), tmp_path / f"project-{next(numbers)}", mark)


@pytest.fixture(scope="session")
def walks() -> list[Walk]:
    """What one test found out for those after it."""
    return []


@pytest.fixture
def walk(
    walks: list[Walk], a_backlog: MakeProject, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mark: str
) -> Walk:
    def find() -> Walk:
        project = a_backlog()
        points = passed(project, tmp_path / "points")
        check_no_strays(project, mark)
        check_instant(project)
        events = {stream: names_of(stream, events_of(project, stream)) for stream in streams_of(project)}
        found = Walk(backlog_ending_of(project), events, list(points))
        project.remove()
        return found

    if not walks:
        walks.append(found_once(tmp_path_factory, "walk", find))
    return walks[0]


def passed(project: BacklogProject, record: Path, until: str = "", **told: str) -> dict[str, str]:
    """The points on the way from here to the end, or to one of them, and what each is about."""
    ran = project.killed_at(until, CRASH_RECORD=str(record), **told)
    assert ran.returncode == (-signal.SIGKILL if until else 0), ran.stderr
    rows = [(point, about) for point, _, about in (line.partition("\t") for line in record.read_text().splitlines())]
    assert len(dict(rows)) == len(rows)
    return dict(rows)


def kill_at(project: BacklogProject, point: str, mark: str, **told: str) -> None:
    killed = project.killed_at(point, **told)
    assert killed.returncode == -signal.SIGKILL, f"not killed at {point}: {killed.stdout}{killed.stderr}"
    assert gone_soon(mark), point
    check_instant(project)


def check_instant(project: BacklogProject) -> None:
    check_backlog(project)
    check_count(project)


def ending_after(project: BacklogProject, points: list[str], mark: str) -> BacklogEnding:
    """How a run ends that was killed at these points, one after the other, and repeated."""
    for point in points:
        kill_at(project, point, mark)
    again = project.work()
    assert again.returncode == 0, f"killed at {points}: {again.stderr}"
    check_instant(project)
    ending = backlog_ending_of(project)
    check_no_strays(project, mark)
    project.remove()
    return ending


# ---- the whole run


def test_every_event_of_every_stream_has_a_point_before_and_after_it(walk: Walk) -> None:
    points = walk.event_points()
    alone = {
        stream: [name for name in events if name.split()[0] not in BESIDE] for stream, events in walk.events.items()
    }
    for stream, events in alone.items():
        expected = [f"{side} {name}" for name in events for side in ("before", "after")]
        assert [point for point in points if point.split()[2].split("/")[0] == stream] == expected
    assert len(points) == 2 * sum(map(len, alone.values()))
    assert len(set(points)) == len(points)
    assert {name.split()[0] for names in walk.events.values() for name in names} == EVENTS | BESIDE


def test_the_run_meets_every_kind_of_turn(walk: Walk) -> None:
    subjects = [subject.partition(" Capsule-Step")[0] for subject in walk.ending.commits]
    assert subjects[::-1] == [
        "first",
        "[WRK-003][BLOCKED] risk is high, above the guardrail low",
        "[WRK-001][TRIAGE] triage: phase_complete",
        "[WRK-001][PRD] prd: phase_complete",
        "[WRK-001][RESEARCH] research: phase_complete",
        "[WRK-001][DESIGN] design: phase_complete",
        "[WRK-001][SPEC] spec: phase_complete",
        "[WRK-001][BUILD] build: subphase_complete",
        "[WRK-001][BUILD] build: phase_complete",
        "[WRK-001][REVIEW] review: phase_complete",
        "[WRK-001][ARCHIVE] Completed: Say hello",
        "[WRK-002][BLOCKED] who is it?",
        "[WRK-004][TRIAGE] duplicate of WRK-001",
        "[WRK-004][ARCHIVE] Closed: Greet in French (duplicate of WRK-001)",
    ]
    told = walk.ending.mission_worklogs[0]
    assert told.count("Verdict: REFUTED") == 2
    assert told.count("Verdict: FAILED") == 1
    assert walk.ending.status == ""


def kills(walk: Walk, group: int) -> list[list[str]]:
    """For each run of a group the points that it is killed at: many in the chains, one in all the others."""
    points = walk.event_points()
    if group >= CHAINS:
        return [[point] for point in points[group - CHAINS :: ALONE]]
    return [points[group::CHAINS]]


@pytest.mark.promise("004-pipeline.crash", "backlog.killed-write", "004-follow-ups.archive-order")
@pytest.mark.parametrize("group", range(CHAINS + ALONE if ALL else CHAINS))
def test_killed_around_events_it_ends_the_same(group: int, walk: Walk, a_backlog: MakeProject, mark: str) -> None:
    for points in kills(walk, group):
        assert ending_after(a_backlog(), points, mark) == walk.ending, points


@pytest.mark.slow
@pytest.mark.promise("merge-queue.killed")
@pytest.mark.parametrize("alone", [False, True], ids=["with its queue", "alone"])
def test_an_item_that_left_the_backlog_with_its_merge_is_brought_to_its_end(
    alone: bool, a_backlog: MakeProject, mark: str
) -> None:
    """Killed right after main moved: its own stream does not know that yet, and no queue lists it any more."""
    undisturbed, project = a_backlog(), a_backlog()
    for each in (undisturbed, project):
        each.allow(CAPSULE_WORKSPACE__PUBLISH="merge")
    assert undisturbed.work().returncode == 0
    point = "after WRK-001/merge#1 trunk.publish 1"
    if alone:
        assert project.killed_at(point, CRASH_ALONE="1").returncode == 0
    else:
        kill_at(project, point, mark)
        assert project.work().returncode == 0
    ending, expected = (
        replace(found, commits=tuple(sorted(found.commits)), ended=found.ended[:3])  # of two branches, and no runs
        for found in map(backlog_ending_of, (project, undisturbed))
    )
    assert ending == expected


@pytest.mark.slow
@pytest.mark.promise("merge-queue.killed")
@pytest.mark.parametrize(
    ("publish", "point"),
    [
        ("merge", "after WRK-001/merge#1 trunk.publish 1"),
        ("merge", "before step_ended WRK-001/archive#1"),
        ("steps", "before step_ended WRK-001/archive#1"),
        ("steps", "after step_ended WRK-001/archive#1"),
    ],
)
def test_an_item_that_was_run_by_itself_and_killed_as_it_left_the_backlog_is_brought_to_its_end_by_a_queue(
    publish: str, point: str, a_backlog: MakeProject, mark: str
) -> None:
    """The queue is not the run that was killed, and lists the item no more."""
    undisturbed, project = a_backlog(), a_backlog()
    for each in (undisturbed, project):
        each.allow(CAPSULE_WORKSPACE__PUBLISH=publish)
    assert (undisturbed.run("WRK-001").returncode, undisturbed.work().returncode) == (0, 0)
    assert project.drive("WRK-001", CRASH_AT=point).returncode == -signal.SIGKILL
    later = project.work()
    assert later.returncode == 0 and (publish == "steps" or "done:      WRK-001: Say hello" in later.stdout), later
    ending, expected = (
        replace(found, commits=tuple(sorted(found.commits)), ended=found.ended[:3])  # of two branches, and no runs
        for found in map(backlog_ending_of, (project, undisturbed))
    )
    assert ending == expected


# ---- inside an agent, and the cap


def test_what_an_agent_was_doing_when_it_was_killed_is_kept(a_backlog: MakeProject, tmp_path: Path, mark: str) -> None:
    project, sign, script = a_backlog(), tmp_path / "agent-is-there", tmp_path / "script.json"
    script.write_text(json.dumps(waiting_script("prd", sign)))
    runner = project.start("", CAPSULE_AGENTS__SCRIPTED__ARGS=json.dumps([str(script)]))
    deadline = time.monotonic() + LONG
    while not sign.exists():
        assert runner.poll() is None, runner.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert len(survivors(mark)) > 3
    runner.kill()
    runner.communicate()
    assert gone_soon(mark), survivors(mark)
    check_backlog(project)
    kill_at(project, f"after step_ended {WALKED}/prd#1", mark)
    kept = project.git("for-each-ref", "--format=%(refname)", f"refs/capsule/salvage/{WALKED}").split()
    assert any("half-done" in project.file(HALF_DONE, ref) for ref in kept)
    assert project.file(HALF_DONE) == "", "the checkout has seen none of it"


def test_an_agent_that_was_killed_counts_toward_the_cap(a_backlog: MakeProject, mark: str) -> None:
    project, cap = a_backlog(), {"CAPSULE_EXECUTION__DEFAULT_PHASE_CAP": "3"}
    kill_at(project, f"after step_begun {WALKED}/prd#2", mark, **cap)
    again = project.drive("", **cap)
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "■ Run ended: cap: 3 of 3 phases used.")
    check_count(project)
    assert project.agents_started() == [f"{WALKED}/triage#1", f"{WALKED}/prd#1"]
