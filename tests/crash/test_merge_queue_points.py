"""A mission is killed while it waits to be merged, while it merges and while it goes back; the one behind it gets on.

Somebody has the merge queue when the mission and one behind it hand in; then it is free. With a conflict, main is moved
by hand meanwhile: the work goes back, and is rebuilt on that.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from capsule.core.event import Batched, HandedIn, ItemClosed, Queued, Stacked
from capsule.core.merge_queue import merge_stream
from capsule.journals.sqlite import SqliteJournal
from tests.costs import LONG, eventually

from .ending import Ending, check_no_strays, ending_of, events_of, names_of
from .points import is_event, sample
from .project import ITEM, OTHER, Project, make_project, script_for

MakeProject = Callable[[], Project]
STREAM = merge_stream("main")
PAGE = f"docs/{ITEM}.md"
WITHOUT = ("queued", "proposed", "served", "step_ended")
WITH = ("queued", "served", "returned", "rebased", "step_begun", "step_ended", "observed", "proposed")
"""Kinds of what is journaled from the queue to the merge, without and with a conflict."""
SIDES = ("before", "after")
TRIED = 3
"""Of the points of each, unless CAPSULE_CRASH_ALL=1 is set."""


@pytest.fixture(scope="session")
def two_tasks() -> list[Path]:
    """What the first test made for those after it."""
    return []


@pytest.fixture
def a_race(two_tasks: list[Path], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, mark: str) -> MakeProject:
    if not two_tasks:
        two_tasks.append(tmp_path_factory.mktemp("race") / "template")
        make_project(two_tasks[0])
        scripts = {item: script_for(item) for item in (ITEM, OTHER)}
        again = scripts[ITEM]["execute"][-1]
        solved = {**again, "run": [f"echo solved > {PAGE}"]}
        scripts[ITEM]["execute"].append(solved)
        (two_tasks[0] / "script.json").write_text(json.dumps(scripts))
        subprocess.run(["git", "commit", "-qam", "second"], cwd=two_tasks[0], check=True)
    numbers = count()
    return lambda: Project(two_tasks[0], tmp_path / f"race-{next(numbers)}", mark)


def run_race(project: Project, *, conflict: bool, **told: str) -> tuple[int, int]:
    """Let both wait for their turn, then free it; return how the mission and the one behind it ended."""
    journal = SqliteJournal(project.path / ".git" / "capsule")
    with ThreadPoolExecutor(2) as side_by_side:
        with journal.claim(STREAM):
            first = side_by_side.submit(project.drive, ITEM, **told)
            assert eventually(lambda: first.done() or waits(project, ITEM), LONG)
            second = side_by_side.submit(project.run, OTHER)
            assert eventually(lambda: waits(project, OTHER), LONG)
            if conflict:
                (project.path / "docs").mkdir(exist_ok=True)
                (project.path / PAGE).write_text("mine\n")
                project.git("add", PAGE)
                project.git("commit", "-q", "-m", "by hand", "--", PAGE)
        journal.close()
        return first.result().returncode, second.result().returncode


@pytest.mark.slow
@pytest.mark.promise("merge-queue.killed", "merge-queue.batch")
def test_killed_while_it_merges_others_along_each_is_merged_once(
    a_race: MakeProject, tmp_path: Path, mark: str
) -> None:
    """It is the first of a batch of two; the other one finds its merge on main, or merges by itself."""
    undisturbed, record = a_race(), tmp_path / "points"
    assert run_batch(undisturbed, CRASH_RECORD=str(record)) == (0, 0)
    assert undisturbed.git("log", "-1", "--format=%s", "main") == f"Merge 2 missions: {ITEM}, {OTHER}"
    expected = batch_ending(undisturbed, mark)
    points = from_queue_to_merge(record)
    turn = points[next(n for n, point in enumerate(points) if point.startswith("before batched")) :]
    assert {f"{side} served {STREAM}" for side in SIDES} < {*turn} and any("trunk.publish" in point for point in turn)
    for point in [each for each in dict.fromkeys(turn) if is_event(each) or "trunk.publish" in each]:
        project = a_race()
        assert run_batch(project, CRASH_AT=point) == (-signal.SIGKILL, 0), point
        assert project.run(ITEM).returncode == 0, point
        assert batch_ending(project, mark) == expected, point
        project.remove()


@pytest.mark.promise("merge-queue.killed")
def test_one_whose_own_process_is_killed_after_its_item_was_closed_is_archived_by_its_queue(
    a_race: MakeProject, mark: str
) -> None:
    """The queue goes on, and no tracker lists a closed item any more."""
    undisturbed, project = a_race(), a_race()
    assert undisturbed.run("").returncode == 0
    point = f"after {OTHER}/archive#1 tracker.close 1"
    assert project.drive("", CRASH_AT=point, CRASH_ALONE="1").returncode == 0
    assert batch_ending(project, mark) == batch_ending(undisturbed, mark)
    assert not [*(project.path / ".git/capsule/keepers").iterdir()], "the last process is gone, and still registered"


@pytest.mark.slow
@pytest.mark.promise("merge-queue.killed")
@pytest.mark.parametrize(
    "point",
    [
        f"after {ITEM}/publish#1 trunk.publish 1",
        f"after {ITEM}/archive#1 tracker.close 1",
        f"before step_ended {ITEM}/archive#1",
    ],
)
def test_one_that_was_run_by_itself_and_killed_with_its_merge_is_brought_to_its_end_by_a_queue(
    point: str, a_race: MakeProject, mark: str
) -> None:
    """Main has moved, and nobody has written that down; or the item is closed, and no tracker lists it any more."""
    undisturbed, project = a_race(), a_race()
    assert (undisturbed.run().returncode, undisturbed.run("").returncode) == (0, 0)
    assert project.drive(CRASH_AT=point).returncode == -signal.SIGKILL
    later = project.run("")
    assert later.returncode == 0 and "\n  2 merged" in later.stdout, later
    assert batch_ending(project, mark) == batch_ending(undisturbed, mark)
    left = [project.path / ".capsule/missions", project.path / ".git/capsule/keepers"]
    assert not [path for folder in left for path in folder.glob("[!.]*")]
    closed = [event for event in events_of(project) if isinstance(event, ItemClosed)]
    assert len(closed) == 1


@pytest.mark.slow
@pytest.mark.promise("merge-queue.killed", "merge-queue.batch")
def test_one_that_was_merged_along_and_killed_finds_its_merge_days_later(a_race: MakeProject, mark: str) -> None:
    """By then others have committed to main, and its item was closed by hand."""
    project = a_race()
    assert run_batch(project, OTHER, CRASH_AT=f"before step_ended {OTHER}/publish#1") == (0, -signal.SIGKILL)
    project.git("commit", "-q", "--allow-empty", "-m", "days later")
    project.issues_file.write_text(project.issues().replace('"in_progress"', '"closed"'))
    later = project.run(OTHER)
    assert later.returncode == 0 and "tested with" in later.stderr, later
    assert batch_ending(project, mark)[0] == [ITEM, OTHER]
    assert len(project.git("rev-list", "--first-parent", "--merges", "main").split()) == 1


@pytest.mark.slow
@pytest.mark.promise("jobs.given-up")
@pytest.mark.parametrize("words", [("abort", OTHER), ("clean", OTHER)])
def test_one_that_was_merged_along_and_killed_is_closed_when_it_is_given_up(
    a_race: MakeProject, words: tuple[str, ...]
) -> None:
    """Its own stream does not know yet that it is on main; done again it would be there twice."""
    project = a_race()
    assert run_batch(project, OTHER, CRASH_AT=f"before step_ended {OTHER}/publish#1") == (0, -signal.SIGKILL)
    said = project.say(*words)
    assert said.returncode == 0 and f"{OTHER} was merged as " in said.stdout + said.stderr, said
    states = {row["id"]: row["status"] for row in map(json.loads, project.issues().splitlines())}
    assert states[OTHER] == "closed"


def run_batch(project: Project, driven: str = ITEM, **told: str) -> tuple[int, int]:
    """Let both build their merges, one on the other, behind somebody who does not go together with them and leaves."""
    project.allow(CAPSULE_MERGE__BATCH="2")
    journal = SqliteJournal(project.path / ".git" / "capsule")
    with ThreadPoolExecutor(2) as side_by_side:
        with journal.claim("x") as epoch, journal.claim(STREAM):
            at, main = "2026-01-01T00:00:00Z", project.git("rev-parse", "main^{tree}")
            journal.note(STREAM, HandedIn(at=at, mission="x", key="publish#1", epoch=epoch))
            journal.note(STREAM, Stacked(at=at, mission="x", commit="", tree="", onto="", under=main, gate=""))
            journal.note(STREAM, Batched(at=at, missions=("x",), tree="", green=True, commit="x"))  # now two may be one
            running = list[Future[subprocess.CompletedProcess[str]]]()

            def gone_on() -> bool:
                return running[-1].done() or has_stacked(journal, (ITEM, OTHER)[len(running) - 1])

            for item in (ITEM, OTHER):
                run = partial(project.drive, **told) if item == driven else project.run
                running.append(side_by_side.submit(run, item))
                assert eventually(gone_on, LONG)
        journal.close()
        first, second = (each.result().returncode for each in running)
        return first, second


def has_stacked(journal: SqliteJournal, item: str) -> bool:
    return any(isinstance(event, Stacked) and event.mission == item for _, event in journal.events(STREAM))


def batch_ending(project: Project, mark: str) -> list[object]:
    """What came of both: each is merged once, whether together or not, and nothing is left."""
    told = ending(project, mark)
    merged = project.git("log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly,separator=)", "main")
    return [sorted(merged.split()), told.tree, told.refs, told.worktrees, told.own_edits, told.issues, told.ended]


def waits(project: Project, item: str) -> bool:
    return any(isinstance(event, Queued) for event in events_of(project, item))


def ending(project: Project, mark: str) -> Ending:
    """How it ended, but for who of the two was first."""
    check_no_strays(project, mark)
    found = ending_of(project)
    return replace(found, commits=tuple(sorted(found.commits)), worklog="")


@pytest.fixture(params=[False, True], ids=["straight", "conflict"])
def conflict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.promise("merge-queue.killed")
def test_killed_in_the_merge_queue_it_ends_the_same_and_others_get_on(
    a_race: MakeProject, conflict: bool, tmp_path: Path, mark: str
) -> None:
    undisturbed, record = a_race(), tmp_path / "points"
    assert run_race(undisturbed, conflict=conflict, CRASH_RECORD=str(record)) == (0, 0)
    expected = ending(undisturbed, mark)
    points = from_queue_to_merge(record)
    names = from_queue_to_merge_by_journal(undisturbed)
    assert [point for point in points if is_event(point)] == [f"{side} {n}" for n in names for side in SIDES]
    assert {name.split()[0] for name in names} == {*(WITH if conflict else WITHOUT)}
    for point in chosen(points):
        project = a_race()
        code, behind = run_race(project, conflict=conflict, CRASH_AT=point)
        assert (code, behind) == (-signal.SIGKILL, 0), point
        assert project.run(ITEM).returncode == 0, point
        assert ending(project, mark) == expected, point
        project.remove()


def chosen(points: list[str]) -> list[str]:
    """Everything that is journaled, and the move of the branch itself."""
    tried = [point for point in points if is_event(point) or "trunk.publish" in point or "place.gate" in point]
    return sample(list(dict.fromkeys(tried)), TRIED)


def from_queue_to_merge(record: Path) -> list[str]:
    points = [line.partition("\t")[0] for line in record.read_text().splitlines()]
    first = points.index(f"before queued {ITEM}")
    last = max(number for number, point in enumerate(points) if point.startswith(f"after step_ended {ITEM}/publish"))
    return points[first : last + 1]


def from_queue_to_merge_by_journal(project: Project) -> list[str]:
    """By the two streams alone: a turn that was waited for is over right before its step ends or goes back."""
    names = names_of(ITEM, events_of(project))
    last = max(number for number, name in enumerate(names) if name.startswith(f"step_ended {ITEM}/publish"))
    names = names[names.index(f"queued {ITEM}") : last + 1]
    ends = next(n for n, name in enumerate(names) if name.startswith(("returned", f"step_ended {ITEM}/publish")))
    return [*names[:ends], f"served {STREAM}", *names[ends:]]
