"""Somebody is called by a real command, which can neither hold a mission up nor leave anything behind."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.costs import LONG, eventually, given_time

from capsule.core.decide import Decision, Move
from capsule.core.event import RUN, Event, MissionStarted, Outcome, RunEnded, RunStarted, StepEnded, Stopped, Warned
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, replay
from capsule.core.workflow import Phase, Workflow
from capsule.reports.notify import Notifier, Post

AT = "2026-01-01T00:00:00Z"
QUEUE = f"{RUN}queue"
FLOW = Workflow(name="flow", phases=(Phase(name="build", prompt="b"),))
STARTED = MissionStarted(
    at=AT, mission="x-1", item=Item(id="x-1", title="The `rm -rf` task"), workflow=FLOW, base="b", into="main"
)
STOPPED = Stopped(at=AT, cause="Stopped by SIGINT.", exit_code=130)
IN_A_RUN = RunStarted(at=AT, cap=9)


def parked(reason: str = "which colour?") -> StepEnded:
    outcome = Outcome(signal=Signal(verdict=Verdict.BLOCKED))
    decision = Decision(move=Move.PARK, verdict=Verdict.BLOCKED, reason=reason)
    return StepEnded(at=AT, key="build#1", phase="build", run=1, outcome=outcome, decision=decision)


def run_ended(why: str, **more: object) -> RunEnded:
    return RunEnded(at=AT, why=why, spawns=1, **more)  # type: ignore[arg-type]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Bench:
    """A command that keeps what it is told, and an observer that calls it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "kept.jsonl"
        self.keep = f"cat >> {self.kept}"
        self.said = io.StringIO()

    @contextmanager
    def notifier(self, *commands: str, limit: float = LONG, bell: bool = False) -> Iterator[Notifier]:
        post = Post(commands or (self.keep,), dict(os.environ), self.folder, limit=limit)
        with Notifier("project", post, self._standing, bell=bell, terminal=self.said) as notifier:
            yield notifier

    def _standing(self, _mission: str) -> MissionState:
        return replay((STARTED,))

    def tell(self, *events: tuple[str, Event]) -> list[str]:
        """What is told of these: the occasion and whose it is."""
        with self.notifier() as notifier:
            for stream, event in events:
                notifier.event(stream, event)
        return [f"{letter['notification']} {letter['mission']}" for letter in self.letters()]

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.kept.read_text().splitlines()] if self.kept.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_command_gets_the_event_and_what_it_means(bench: Bench) -> None:
    told = f'{bench.keep}; printf "%s|%s" "$CAPSULE_NOTIFICATION" "$CAPSULE_NOTIFICATION_WORDS" > words'
    with bench.notifier(told) as notifier:
        notifier.event("x-1", STARTED)
        notifier.event("x-1", parked('it\'s `rm -rf`; "sure"?'))
    (letter,) = bench.letters()
    assert {name: letter[name] for name in ("notification", "mission", "title", "project", "event", "phase")} == {
        "notification": "blocked",
        "mission": "x-1",
        "title": "The `rm -rf` task",
        "project": "project",
        "event": "step_ended",
        "phase": "build",
    }
    assert letter["seq"] == 2
    assert letter["words"] == 'x-1 needs you at build: it\'s `rm -rf`; "sure"?'
    assert (bench.folder / "words").read_text() == f"blocked|{letter['words']}"
    assert bench.said.getvalue() == ""


def test_what_is_no_news_starts_nothing(bench: Bench) -> None:
    assert bench.tell(("x-1", STARTED), ("x-1", Warned(at=AT, text="odd"))) == []


def test_who_stops_a_run_is_told_of_the_run_alone(bench: Bench) -> None:
    ended = run_ended("Stopped by SIGINT", exit_code=130)
    assert bench.tell((QUEUE, IN_A_RUN), ("x-1", STOPPED), (QUEUE, ended)) == [f"stopped {QUEUE}"]


def test_a_mission_that_stops_while_its_run_goes_on_is_told_of(bench: Bench) -> None:
    spent = Stopped(at=AT, cause="The budget of the mission is spent.", exit_code=3)
    told = bench.tell((QUEUE, IN_A_RUN), ("x-1", spent), ("x-2", STARTED), (QUEUE, run_ended("nothing is left to do")))
    assert told == ["stopped x-1", f"stopped {QUEUE}"]


def test_a_mission_by_itself_is_told_of_at_once(bench: Bench) -> None:
    with bench.notifier() as notifier:
        notifier.event("x-1", STOPPED)
        assert eventually(bench.letters)


def test_a_run_that_is_cut_off_still_tells_what_it_held_back(bench: Bench) -> None:
    assert bench.tell((QUEUE, IN_A_RUN), ("x-1", STOPPED)) == ["stopped x-1"]


def test_a_run_of_one_item_calls_once(bench: Bench) -> None:
    stream = f"{RUN}run-x-1"
    events = ((stream, IN_A_RUN), ("x-1", parked()), (stream, run_ended("nothing is left to do", blocked={"x-1": "?"})))
    assert bench.tell(*events) == ["blocked x-1"]


def test_a_mission_does_not_wait_for_the_command(bench: Bench) -> None:
    """The command waits for what happens only after it was started."""
    gate = bench.folder / "gate"
    with bench.notifier(f"until [ -e {gate} ]; do sleep 0.02; done; {bench.keep}") as notifier:
        notifier.event("x-1", parked())
        assert bench.letters() == []
        gate.touch()
    assert len(bench.letters()) == 1


def test_one_that_hangs_is_ended_with_all_that_it_started(bench: Bench) -> None:
    pids = bench.folder / "pids"
    hang = f"trap '' TERM; (setsid sleep 600 & echo $! >> {pids}); echo $$ >> {pids}; sleep 600"

    def hung(seconds: float) -> list[int]:
        pids.write_text("")
        bench.said = io.StringIO()
        with bench.notifier(hang, limit=seconds) as notifier:
            notifier.event("x-1", parked())
        return list(map(int, pids.read_text().split()))

    started = given_time(hung, lambda found: len(found) == 2)
    assert len(started) == 2
    assert [pid for pid in started if is_running(pid)] == []
    assert bench.said.getvalue().startswith("note: the notify command took longer than")
    assert bench.said.getvalue().count("\n") == 1


def test_nothing_that_it_leaves_behind_goes_on(bench: Bench) -> None:
    with bench.notifier("setsid sleep 600 & echo $! > pid") as notifier:
        notifier.event("x-1", parked())
    assert not is_running(int((bench.folder / "pid").read_text()))
    assert bench.said.getvalue() == ""


def test_several_that_hang_hold_the_end_up_no_longer_than_one(bench: Bench) -> None:
    with bench.notifier(f"{bench.keep}; sleep 600", limit=0.5) as notifier:
        for _ in range(50):
            notifier.event("x-1", parked())
        began = time.monotonic()
    assert time.monotonic() - began < LONG / 2
    assert len(bench.letters()) < 50


def test_a_failure_is_said_once_in_one_line(bench: Bench) -> None:
    runs = bench.folder / "runs"
    with bench.notifier("echo run >> runs; echo no; echo 'no \x1b[2Jnetwork' >&2; exit 3") as notifier:
        for number in (1, 2, 3):
            notifier.event("x-1", parked())
            assert eventually(partial(_has_run, runs, number))
    words = "note: the notify command failed (exit code 3): no [2Jnetwork; missions are not affected.\n"
    assert bench.said.getvalue() == words


def _has_run(runs: Path, times: int) -> bool:
    return runs.exists() and len(runs.read_text().split()) == times


def test_what_cannot_be_started_is_said_too(bench: Bench) -> None:
    gone = Post((bench.keep,), {}, bench.folder / "gone")
    with Notifier("project", gone, bench._standing, terminal=bench.said) as notifier:
        notifier.event("x-1", parked())
    assert bench.said.getvalue().startswith("note: the notify command could not be run: ")


def test_every_command_of_a_list_is_run(bench: Bench) -> None:
    with bench.notifier("exit 1", bench.keep) as notifier:
        notifier.event("x-1", parked())
    assert len(bench.letters()) == 1


def test_the_bell_rings_on_a_terminal_and_nowhere_else(bench: Bench) -> None:
    for stream, heard in ((Terminal(), "\a"), (io.StringIO(), "")):
        bench.said = stream
        with bench.notifier(bell=True) as notifier:
            notifier.event("x-1", parked())
        assert stream.getvalue() == heard


def test_without_a_command_nothing_is_started(bench: Bench) -> None:
    post = Post((), {}, bench.folder)
    with Notifier("project", post, bench._standing, bell=True, terminal=bench.said) as notifier:
        notifier.event("x-1", parked())
        assert post._thread is None
