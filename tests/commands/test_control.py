"""`capsule jobs` and `capsule stop`: runs are controlled while they run."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from capsule.core.event import JobsSet, RunEnded, Spawned, StepBegun, Stopped
from tests.costs import LONG, eventually

from .conftest import assert_clear
from .test_campaign import FLOW, row
from .test_jobs import NAMES, Shelf, makes, shelf, waits

__all__ = ["shelf"]
pytestmark = pytest.mark.slow


@pytest.fixture
def patient(shelf: Shelf, tmp_path: Path) -> Shelf:
    """A shelf whose agents work until `tmp_path/over` is there."""
    shelf.plays({name: makes(name, waits(f"[ -e {tmp_path}/over ]")) for name in NAMES})
    return shelf


def running(shelf: Shelf) -> list[str]:
    return [name for name in NAMES if shelf.is_running(name)]


# ---- jobs


@pytest.mark.promise("jobs.changed")
def test_a_run_that_is_allowed_more_starts_more(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "1", "--output", "plain") as run:
        assert eventually(lambda: len(patient.spawned()) == 1)
        said = patient.capsule("jobs", "3")
        assert said.code == 0 and "the queue: 3 at a time from now on (before: 1)" in said.out, said
        assert eventually(lambda: len(patient.spawned()) == 3), patient.said.read_text()
        said = patient.capsule("jobs")
        assert said.code == 0 and f"the queue: 3 at a time; running: {', '.join(NAMES[:3])}" in said.out, said
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    assert "Jobs: 3 missions at a time from now on" in patient.said.read_text()
    assert patient.merged() == sorted(NAMES)


@pytest.mark.promise("jobs.changed")
def test_a_run_that_is_allowed_fewer_kills_nothing_and_starts_nothing(patient: Shelf, tmp_path: Path) -> None:
    """Two are at work and one is allowed: the third begins when both have ended, the fourth after it."""
    patient.plays({name: makes(name, waits(f"[ -e {tmp_path}/{name} ]")) for name in NAMES})
    with patient.working("--jobs", "2") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        said = patient.capsule("jobs", "1")
        assert "cup, jug continue; no mission starts while 1 or more are running" in said.out, said
        (tmp_path / "cup").touch()
        assert eventually(lambda: patient.merged() == ["cup"]), patient.said.read_text()
        assert not eventually(lambda: len(patient.spawned()) > 2, 3)
        for name in NAMES:
            (tmp_path / name).touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    assert patient.merged() == sorted(NAMES) and len(patient.spawned()) == 4, "nothing was started twice"


@pytest.mark.promise("jobs.changed")
def test_one_that_was_alone_outlives_its_queue_once_more_are_allowed(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "1") as run:
        assert eventually(lambda: len(patient.spawned()) == 1)
        assert patient.capsule("jobs", "2").code == 0
        assert eventually(lambda: len(patient.spawned()) == 2)
        run.kill()
        run.wait()
        assert not eventually(lambda: len(running(patient)) < 2, 2), "both go on without their queue"
    (tmp_path / "over").touch()
    assert patient.capsule("run", "--jobs", "2").code == 0
    assert patient.merged() == sorted(NAMES) and len(patient.spawned()) == 4, "nothing was started twice"


def test_as_many_as_fit(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "1") as run:
        assert eventually(lambda: len(patient.spawned()) == 1)
        assert patient.capsule("jobs", "auto").code == 0
        assert next(event.jobs for event in patient.events("_queue") if isinstance(event, JobsSet)) >= 1
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()


@pytest.mark.parametrize("words", [("jobs",), ("jobs", "2")])
def test_without_a_run_there_is_nothing_to_change(shelf: Shelf, words: tuple[str, ...]) -> None:
    assert_clear(shelf.say(*words), 1, "No run is under way", "capsule run --jobs N")


@pytest.mark.parametrize("jobs", ["0", "many", "-1", "1.5"])
def test_a_number_that_makes_no_sense_is_refused(shelf: Shelf, jobs: str) -> None:
    assert_clear(shelf.say("jobs", jobs), 2, "must be auto or a whole number, 1 or more", "capsule jobs 3")


# ---- stop


@pytest.mark.promise("jobs.stopped")
def test_stop_stops_the_queue_and_what_is_run_by_itself(patient: Shelf, tmp_path: Path) -> None:
    alone = patient.path.parent / "alone"
    patient.beads.write_text(patient.beads.read_text() + row("bowl"))
    patient.plays({name: makes(name, waits(f"[ -e {tmp_path}/over ]")) for name in (*NAMES, "bowl")})
    with patient.working("bowl") as single:
        assert eventually(
            lambda: any(isinstance(event, StepBegun) and event.spawns for event in patient.events("bowl"))
        )
        patient.said.rename(alone)
        with patient.working("--jobs", "2") as run:
            assert eventually(lambda: len(patient.spawned()) == 2)
            said = patient.capsule("stop")
            assert said.code == 0, said
            assert "the queue has stopped; go on with: capsule run" in said.out
            for name in ("cup", "jug", "bowl"):
                assert f"{name} has stopped; go on with: capsule run {name}" in said.out
            assert run.wait(LONG) == single.wait(LONG) == 130
    assert not running(patient) and not patient.is_running("bowl")
    (tmp_path / "over").touch()
    assert patient.capsule("run", "--jobs", "3").code == 0
    assert patient.capsule("run", "bowl").code == 0
    assert patient.merged() == sorted((*NAMES, "bowl"))


@pytest.mark.promise("jobs.stopped")
def test_one_mission_of_a_queue_is_stopped_and_the_others_go_on(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "2", "--output", "plain") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        said = patient.capsule("stop", "cup")
        assert said.code == 0 and said.out == "cup has stopped; go on with: capsule run cup\n", said
        assert not patient.is_running("cup") and patient.is_running("jug")
        assert eventually(lambda: len(patient.spawned()) == 3), "another takes its place"
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    assert "stopped: cup: by you; go on with: capsule run cup" in " ".join(patient.said.read_text().split())
    ended = next(event for event in patient.events("_queue") if isinstance(event, RunEnded))
    assert ended.stopped == ("cup",) and not ended.blocked and not ended.failed
    assert patient.merged() == ["jug", "pan", "pot"]
    assert sum(isinstance(event, Stopped) for event in patient.events("cup")) == 1
    assert patient.capsule("run", "cup").code == 0 and patient.merged() == sorted(NAMES)


@pytest.mark.promise("jobs.stopped")
def test_an_epic_is_stopped_as_a_whole_and_one_of_its_tasks_alone(patient: Shelf, tmp_path: Path) -> None:
    patient.beads.write_text(row("set", "epic") + row("cup", parent="set") + row("jug", parent="set"))
    with patient.working("set", "--jobs", "2") as run:
        assert eventually(lambda: sum(isinstance(each, Spawned) for each in patient.events("_campaign-set")) == 2)
        assert patient.capsule("stop", "cup").code == 0
        assert running(patient) == ["jug"]
        said = patient.capsule("stop", "set")
        assert said.code == 0 and said.out == "the run of set has stopped; go on with: capsule run set\n", said
        assert run.wait(LONG) == 130, patient.said.read_text()
    (tmp_path / "over").touch()
    assert patient.capsule("run", "set").code == 0 and patient.merged() == ["cup", "jug"]


@pytest.mark.promise("jobs.stopped")
def test_a_queue_leaves_alone_what_was_stopped_before_it_began(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "1") as run:
        assert eventually(lambda: len(patient.spawned()) == 1)
        said = patient.capsule("stop", "pan")
        assert said.code == 0 and said.out == "pan is not running, and the run under way does not start it.\n", said
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    assert patient.merged() == ["cup", "jug", "pot"]


@pytest.mark.promise("jobs.suspended-queue")
def test_a_queue_that_is_suspended_holds_nobody_up(patient: Shelf, tmp_path: Path) -> None:
    """Ctrl-Z, or a terminal that takes no more output: its missions go on, one of them with the turn to merge."""
    with patient.working("--jobs", "2") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        os.kill(run.pid, signal.SIGSTOP)
        (tmp_path / "over").touch()
        assert patient.capsule("run", "pot").code == 0
        assert eventually(lambda: patient.merged() == ["cup", "jug", "pot"], LONG)
        os.kill(run.pid, signal.SIGCONT)
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    said = patient.said.read_text()
    assert patient.merged() == sorted(NAMES) and all(f"{name} is closed in the tracker" in said for name in NAMES[:3])


@pytest.mark.promise("jobs.stopped")
def test_what_somebody_suspended_is_stopped_too(patient: Shelf, tmp_path: Path) -> None:
    """A suspended process (Ctrl-Z) hears nothing until it goes on; and its missions wait to be heard by their queue."""
    with patient.working("--jobs", "2") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        os.kill(patient.runner("cup"), signal.SIGSTOP)
        assert patient.capsule("stop", "cup").out == "cup has stopped; go on with: capsule run cup\n"
        os.kill(run.pid, signal.SIGSTOP)
        said = patient.capsule("stop")
        assert said.code == 0 and "the queue has stopped" in said.out, said
        assert run.wait(LONG) == 130
    assert not running(patient)
    (tmp_path / "over").touch()
    assert patient.capsule("run", "--jobs", "2").code == 0 and patient.merged() == sorted(NAMES)


def test_an_epic_with_several_at_work_is_interrupted_in_order(patient: Shelf) -> None:
    patient.beads.write_text(row("set", "epic") + row("cup", parent="set") + row("jug", parent="set"))
    with patient.working("set", "--jobs", "2") as run:
        assert eventually(lambda: sum(isinstance(each, Spawned) for each in patient.events("_campaign-set")) == 2)
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(LONG) == 130, patient.said.read_text()
    assert "bug" not in patient.said.read_text()


def test_a_mission_of_a_queue_is_aborted_and_the_queue_goes_on(patient: Shelf, tmp_path: Path) -> None:
    with patient.working("--jobs", "2") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        said = patient.capsule("abort", "cup")
        assert said.code == 0 and "cup was running; it has been stopped" in said.out, said
        (tmp_path / "over").touch()
        assert run.wait(5 * LONG) == 0, patient.said.read_text()
    assert patient.merged() == ["jug", "pan", "pot"]


@pytest.mark.promise("jobs.given-up")
@pytest.mark.parametrize("words", [("abort", "cup"), ("clean", "cup"), ("clean", "--all"), ("teardown",)])
def test_what_was_merged_and_then_given_up_is_not_done_again(
    shelf: Shelf, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """It was stopped between its merge and its archive."""
    after = f"  - {{name: after, role: action, run: 'touch {tmp_path}/in; sleep 600'}}\n"
    shelf.write(".capsule/workflows/short.yaml", FLOW.replace("  - {name: archive,", f"{after}  - {{name: archive,"))
    shelf.beads.write_text(row("cup"))
    shelf.commit("something comes after the merge")
    shelf.always |= {"CAPSULE_SANDBOX": "off"}
    with shelf.working("cup") as run:
        assert eventually((tmp_path / "in").exists), shelf.said.read_text()
        assert shelf.capsule("stop").code == 0 and run.wait(LONG) == 130
    said = shelf.capsule(*words)
    assert said.code == 0 and "cup was merged as " in said.out + said.err, said
    assert json.loads(shelf.beads.read_text())["status"] == "closed"
    assert shelf.capsule("run").code == 0 and shelf.merged() == ["cup"]


def test_a_mission_whose_queue_was_killed_is_stopped_too(patient: Shelf) -> None:
    with patient.working("--jobs", "2") as run:
        assert eventually(lambda: len(patient.spawned()) == 2)
        run.kill()
        run.wait()
    said = patient.capsule("stop")
    assert said.code == 0 and "cup has stopped" in said.out and "jug has stopped" in said.out, said
    assert not running(patient)


def test_where_nothing_runs_nothing_is_stopped(shelf: Shelf) -> None:
    said = shelf.capsule("stop")
    assert (said.code, said.out) == (0, "Nothing is running in this project.\n"), said
    said = shelf.capsule("stop", "cup")
    assert (said.code, said.out) == (0, "cup is not running.\n"), said


def test_an_item_that_nobody_knows_is_a_mistake(shelf: Shelf) -> None:
    assert_clear(shelf.say("stop", "teapot"), 2, "teapot", "")


def test_a_pid_that_somebody_wrote_into_a_lock_is_never_signalled(shelf: Shelf) -> None:
    """Only the kernel says who holds a lock; the text in the file is for people."""
    locks = shelf.path / ".git" / "capsule" / "locks"
    locks.mkdir(parents=True)
    (locks / "mission-cup.lock").write_text(f"{os.getpid()} capsule run cup\n")
    said = shelf.capsule("stop", "cup")
    assert (said.code, said.out) == (0, "cup is not running.\n"), said
