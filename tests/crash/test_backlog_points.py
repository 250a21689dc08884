"""A run of the backlog is killed before and after everything it journals, and run again: the end is always the same.

The points come from the journal, and all of them are tried, always: a run is killed at one after the other, each time
as soon as it gets there, every fourth point in one run. With CAPSULE_CRASH_ALL=1 each is also tried alone.

What lies between two events, while an item is archived and while a step is committed, is tried from a project that was
killed right before. At every kill: each item is in the backlog or in the archive, the files are as committed (or it is
noted how they are to become so), and the run has counted every agent.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import count, dropwhile, pairwise
from pathlib import Path

import pytest

from tests.costs import LONG
from tests.shared import found_once

from .backlog_ending import BacklogEnding, backlog_ending_of, check_backlog, check_count, streams_of
from .ending import check_no_strays, events_of, gone_soon, names_of, survivors
from .every_turn import HALF_DONE, WALKED, BacklogProject, make_backlog_project, waiting_script
from .points import ALL, between_effects, is_effect, is_event, sample

EVENTS = ("run_started", "run_ended", "mission_started", "step_begun", "step_ended", "recorded", "observed", "salvaged")
CHAINS = 4
ALONE = 24
EFFECTS_TRIED = 2
STAGE_GROUPS = 8 if ALL else 1
DOORS = ("workspace", "books", "archive", "tracker")
MOVES_REFS = "git update-ref"
ARCHIVE, RECORD = f"{WALKED}/archive#1", f"{WALKED}/build#2"

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
    for stream, events in walk.events.items():
        expected = [f"{side} {name}" for name in events if name.split()[0] != "spawned" for side in ("before", "after")]
        assert [point for point in points if point.split()[2].split("/")[0] == stream] == expected
    assert len(points) == 2 * sum(name.split()[0] != "spawned" for names in walk.events.values() for name in names)
    assert len(set(points)) == len(points)
    assert {name.split()[0] for names in walk.events.values() for name in names} == {*EVENTS, "spawned"}


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


@pytest.mark.promise("backlog.killed-write", "004-pipeline.crash", "004-follow-ups.archive-order")
@pytest.mark.parametrize("group", range(CHAINS + ALONE if ALL else CHAINS))
def test_killed_around_events_it_ends_the_same(group: int, walk: Walk, a_backlog: MakeProject, mark: str) -> None:
    for points in kills(walk, group):
        assert ending_after(a_backlog(), points, mark) == walk.ending, points


# ---- between two events


@dataclass(frozen=True)
class Stage:
    """A project that was killed right before a step is archived or committed, to be begun from again and again."""

    snapshot: Path
    place: Path
    """Where every copy of it is worked on: git and the journal know the project by its path."""
    points: dict[str, str]
    """What is passed from there to the event that ends it, effects included."""
    until: str
    ending: BacklogEnding

    def begin(self, mark: str) -> BacklogProject:
        shutil.rmtree(self.place, ignore_errors=True)
        return BacklogProject(self.snapshot, self.place, mark)

    def doors(self) -> list[str]:
        """Calls through doors; of those that lie between the same two effects, one, unless all are tried."""
        return list(filter(is_door, self.points if ALL else between_effects(self.points)))

    def effects(self) -> list[str]:
        """A sample; and always where a ref has moved and nothing else has followed yet."""
        effects = list(filter(is_effect, self.points))
        moved = [point for point in effects if point.startswith("after") and MOVES_REFS in self.points[point]]
        chosen = {*sample(effects, EFFECTS_TRIED), *(now for before, now in pairwise(effects) if before in moved)}
        return [point for point in effects if point in chosen]


def is_door(point: str) -> bool:
    return not is_event(point) and not is_effect(point) and point.split()[2].partition(".")[0] in DOORS


STAGES = {
    "archive": (f"before step_begun {ARCHIVE}", f"after recorded {ARCHIVE}"),
    "record": (f"after step_ended {RECORD}", f"after recorded {RECORD}"),
}
"""Where the project is killed, and where it has come through."""
MUST_PASS = {
    "archive": ("archive.store", "workspace.salvage", "workspace.remove", "archive.drop_working_folder", "books.write"),
    "record": ("workspace.hand_over", "books.write", "workspace.settled"),
}


@pytest.fixture(scope="session")
def stages() -> dict[str, Stage]:
    return {}


@pytest.fixture
def a_stage(
    stages: dict[str, Stage],
    backlog_template: Callable[[], Path],
    tmp_path_factory: pytest.TempPathFactory,
    mark: str,
) -> Callable[[str], Stage]:
    def make(name: str) -> Stage:
        folder = tmp_path_factory.mktemp(name)
        since, until = STAGES[name]
        project = BacklogProject(backlog_template(), folder / "project", mark)
        kill_at(project, since, mark)
        project.moved_to(folder / "snapshot")
        project = BacklogProject(folder / "snapshot", folder / "project", mark)
        points = passed(project, folder / "points", until, CRASH_EFFECTS="1")
        check_instant(project)
        window = dict(dropwhile(lambda row: row[0] != since and "hand_over" not in row[0], points.items()))
        return Stage(folder / "snapshot", folder / "project", window, until, backlog_ending_of(project))

    def find(name: str) -> Stage:
        if name not in stages:
            stages[name] = make(name)
        return stages[name]

    return find


def killed_and_gone_on(stage: Stage, point: str, mark: str, **told: str) -> None:
    """Killed there, then run until the step is in the books: everything is as if nothing had happened."""
    project = stage.begin(mark)
    kill_at(project, point, mark, **told)
    kill_at(project, stage.until, mark)
    assert backlog_ending_of(project) == stage.ending, f"killed at {point}"
    check_no_strays(project, mark)


@pytest.mark.promise("backlog.killed-write", "004-follow-ups.archive-order")
@pytest.mark.parametrize("group", range(STAGE_GROUPS))
@pytest.mark.parametrize("name", STAGES)
def test_killed_anywhere_in_archive_or_record_it_goes_on_the_same(
    name: str, group: int, a_stage: Callable[[str], Stage], mark: str
) -> None:
    stage = a_stage(name)
    doors, effects = stage.doors(), stage.effects()
    assert {point.split()[2] for point in filter(is_door, stage.points)} >= set(MUST_PASS[name])
    assert doors and effects
    for point in [*doors, *effects][group::STAGE_GROUPS]:
        killed_and_gone_on(stage, point, mark, **({"CRASH_EFFECTS": "1"} if is_effect(point) else {}))


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
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "Run ended: cap: 3 of 3 phases used.")
    check_count(project)
    assert project.agents_started() == [f"{WALKED}/triage#1", f"{WALKED}/prd#1"]
