"""What everybody promises who runs missions for a queue: in processes of their own, or in the queue's own.

To enrol one, add it to RUNNERS. What follows the shared suite is about processes: signals, kill -9, and a queue that is
gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from capsule.adapters import Order, RunLease, Runners
from capsule.app.mission_processes import MissionProcesses
from capsule.app.planning import RunRequest
from capsule.core.errors import BudgetSpent, CapsuleError, Interrupted, LockHeld, Refused
from capsule.core.event import (
    AgentEnded,
    Allowance,
    Event,
    Policy,
    RunEnded,
    RunStarted,
    Spawned,
    StepBegun,
    Usage,
    Warned,
    kind,
)
from capsule.core.item import Status
from capsule.core.workflow import parse_workflow
from capsule.engine.dispatch import InProcessRunners
from capsule.engine.job import load_state
from capsule.project import Project, open_project, open_tracker
from capsule.rules import words_at
from capsule.services import Services
from capsule.system.stop import Stop, StopNow
from capsule.wiring import open_services
from tests.costs import LONG

AT = "2026-01-05T09:00:00Z"
RUN, ITEM = "_queue", "mend-1"
PASS = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
FLOW = {
    "phases": [
        {"name": "ready", "role": "action", "do": "prep"},
        {"name": "make", "role": "worker", "prompt": "p", "retries": 0, "checks": ["changed"]},
        {"name": "look", "role": "review", "prompt": "p", "retries": 0, "rework": "make"},
        {"name": "keep", "role": "action", "do": "archive", "closing": True},
    ],
    "prompts": {"p": "Work. {{SIGNAL_CONTRACT}}"},
}
SCRIPT: dict[str, Any] = {"make": [{"write": {"made": "x\n"}, "signal": PASS}], "look": [{"signal": PASS}]}
EVENTS = [
    *("mission_started", "step_begun", "step_ended"),
    *("spawned", "step_begun", "step_ended", "spawned", "step_begun", "step_ended"),
    *("step_begun", "salvaged", "item_closed", "step_ended"),
]


class Seen:
    """An observer that only listens."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []
        self.activities: list[str] = []

    def event(self, mission: str, event: Event) -> None:
        self.events.append((mission, event))

    def activity(self, mission: str, text: str) -> None:
        self.activities.append(text)


class Queue:
    """A queue that has begun, and whoever runs its missions."""

    def __init__(self, project: Project, services: Services, runners: Runners, seen: Seen) -> None:
        self.project, self.services, self.runners, self.seen = project, services, runners, seen
        self.lease = RunLease(RUN)

    def begins(self, cap: int = 9) -> None:
        self.services.journal.note(RUN, RunStarted(at=AT, cap=cap))

    def order(self, **flow: Any) -> Order:
        return Order(
            mission=ITEM,
            item=self.services.tracker.item(ITEM),
            workflow=parse_workflow({**FLOW, **flow}, source="a test", name="short"),
            base=self.project.git.resolve("HEAD"),
            into="main",
            policy=Policy(verify="off"),
        )

    def takes(self, order: Order | None = None, **lease: Any) -> CapsuleError | None:
        self.runners.start(order or self.order(), RunLease(RUN, **lease))
        return self.waits()

    def waits(self) -> CapsuleError | None:
        mission, error = self.runners.wait() or ("", None)
        assert mission == ITEM
        return error

    def spawned(self) -> list[str]:
        events = [event for _, event in self.services.journal.events(RUN)]
        return [f"{event.mission}/{event.key}" for event in events if isinstance(event, Spawned)]


RUNNERS: dict[str, Callable[[Project, Services, Seen, Stop], Runners]] = {
    "in process": lambda _project, services, _seen, _stop: InProcessRunners(services),
    "processes": lambda project, _services, seen, stop: MissionProcesses(project, RunRequest(), seen, stop),
}


@contextmanager
def _opened(folder: Path, name: str, script: dict[str, Any] | None = None, settings: str = "") -> Iterator[Queue]:
    bead = {"id": ITEM, "title": "Mend it", "status": "open", "priority": 1, "issue_type": "task", "created_at": AT}
    config = f"agent: scripted\nsandbox: off\nagents: {{scripted: {{args: [script.json]}}}}\n{settings}"
    files = {
        "README": "hello\n",
        ".beads/issues.jsonl": json.dumps(bead) + "\n",
        ".capsule/config.yaml": config,
        "script.json": json.dumps({ITEM: script or SCRIPT, **({"_recording": {"version": 1}} if settings else {})}),
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    project, seen = open_project(str(folder)), Seen()
    with (
        Stop() as stop,
        open_services(
            project, open_tracker(project), words_at(project, project.git.resolve("HEAD")), seen, stop
        ) as services,
        services.journal.claim(RUN),
    ):
        yield Queue(project, services, RUNNERS[name](project, services, seen, stop), seen)


OpenQueue = Callable[..., AbstractContextManager[Queue]]


@pytest.fixture(params=RUNNERS)
def a_queue(request: pytest.FixtureRequest, tmp_path: Path) -> OpenQueue:
    return lambda **more: _opened(tmp_path / "project", request.param, **more)


@pytest.fixture
def a_queue_with_processes(tmp_path: Path) -> OpenQueue:
    return lambda **more: _opened(tmp_path / "project", "processes", **more)


# ── every one of them


@pytest.mark.promise("processes.queue")
def test_a_mission_goes_as_far_as_it_goes_and_its_agents_are_counted_in_the_run(a_queue: OpenQueue) -> None:
    with a_queue() as queue:
        queue.begins()
        assert queue.takes() is None
        assert load_state(queue.services, ITEM).finished
        assert queue.spawned() == [f"{ITEM}/make#1", f"{ITEM}/look#1"]


def test_the_observer_is_told_everything_once_and_in_order(a_queue: OpenQueue) -> None:
    with a_queue() as queue:
        queue.begins()
        queue.takes()
        assert [kind(event) for _, event in queue.seen.events] == EVENTS
        assert {stream for stream, event in queue.seen.events if isinstance(event, Spawned)} == {RUN}
        assert "scripted is at work on make" in queue.seen.activities


def test_an_agent_that_waits_for_its_share_of_the_budget_is_told_once(a_queue: OpenQueue) -> None:
    """Others have all of it, until somebody says that they have ended."""
    with a_queue(settings="budget: {run: {usd: 4}}\n") as queue:
        journal = queue.services.journal
        journal.note(RUN, RunStarted(at=AT, cap=9, budget=Allowance(usd=4.0)))
        journal.note(RUN, Spawned(at=AT, mission="other", key="make#1"))
        ends = AgentEnded(at=AT, mission="other", key="make#1", usage=Usage(usd=1.0))
        later = threading.Timer(1.5, lambda: _note_from_beside(queue.project, ends))
        later.start()
        assert queue.takes() is None
        later.join()
        told = [event.key for _, event in queue.seen.events if isinstance(event, Spawned)]
        assert told == ["make#1", "look#1"]


def _note_from_beside(project: Project, event: Event) -> None:
    with closing(project.journal()) as journal, journal.claim("other"):
        journal.note("other", Warned(at=AT, text="it has ended"), (RUN, event))


def test_no_agent_is_started_over_the_cap_and_the_mission_goes_on_later(a_queue: OpenQueue) -> None:
    with a_queue() as queue:
        queue.begins(cap=1)
        assert queue.takes() is None
        assert (queue.spawned(), load_state(queue.services, ITEM).to_do[0]) == ([f"{ITEM}/make#1"], "look")
        queue.begins(cap=2)
        assert queue.takes() is None
        assert load_state(queue.services, ITEM).finished


def test_an_item_goes_back_into_the_queue_once_it_has_another_status(a_queue: OpenQueue) -> None:
    with a_queue() as queue:
        queue.begins()
        assert queue.takes(leaves_at=Status.NEW) is None
        assert queue.spawned() == []


def test_a_mission_that_somebody_runs_is_refused_as_such(a_queue: OpenQueue) -> None:
    with a_queue() as queue, queue.services.journal.claim(ITEM):
        queue.begins()
        error = queue.takes()
        assert isinstance(error, LockHeld)
        assert (error.exit_code, f"{ITEM} is running (pid {os.getpid()})" in error.message) == (3, True)
        assert "capsule logs" in error.hint


def test_an_error_keeps_its_kind_and_what_it_knows(a_queue: OpenQueue) -> None:
    spends = {"make": [{**SCRIPT["make"][0], "usage": {"usd": 2.0}}], "look": SCRIPT["look"]}
    with a_queue(script=spends, settings="budget: {run: {usd: 1}}\n") as queue:
        queue.begins()
        error = queue.takes()
        assert isinstance(error, BudgetSpent)
        assert error.of_the_run and "budget of the run is spent" in error.message and str(error) == error.message


def test_a_workflow_that_nobody_can_run_is_refused(a_queue: OpenQueue) -> None:
    phases = [{"name": "ready", "role": "action", "do": "fly"}]
    with a_queue() as queue:
        queue.begins()
        error = queue.takes(queue.order(phases=phases))
        assert isinstance(error, CapsuleError) and not isinstance(error, Refused)
        assert "unknown action 'fly'" in error.message


def test_a_run_that_has_ended_starts_no_agent(a_queue: OpenQueue) -> None:
    with a_queue() as queue:
        assert queue.takes() is None
        assert (queue.spawned(), load_state(queue.services, ITEM).to_do[0]) == ([], "make")


# ── processes


def _waits(folder: Path) -> dict[str, Any]:
    """An agent that says where it is, and waits."""
    return {"make": [{"run": [f"touch {folder}/agent-is-there; sleep 300"]}], "look": SCRIPT["look"]}


def _until(there: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_runner_whose_run_has_ended_starts_no_agent(a_queue_with_processes: OpenQueue) -> None:
    with a_queue_with_processes() as queue:
        queue.begins()
        queue.services.journal.note(RUN, RunEnded(at=AT, why="it is over"))
        assert queue.takes() is None
        assert queue.spawned() == []
        assert not any(
            isinstance(event, StepBegun) and event.spawns for _, event in queue.services.journal.events(ITEM)
        )


def test_a_runner_that_is_killed_is_told_of_and_its_mission_can_go_on(
    a_queue_with_processes: OpenQueue, tmp_path: Path
) -> None:
    with a_queue_with_processes(script=_waits(tmp_path)) as queue:
        queue.begins()
        queue.runners.start(queue.order(), queue.lease)
        killer = _in_background(tmp_path, "SIGKILL")
        error = queue.waits()
        killer.wait()
        assert error and (error.exit_code, "killed by SIGKILL" in error.message) == (137, True)
        (queue.project.root / "script.json").write_text(json.dumps({ITEM: SCRIPT}))
        assert queue.takes() is None
        assert queue.spawned() == [f"{ITEM}/make#1", f"{ITEM}/make#1", f"{ITEM}/look#1"]


def _in_background(folder: Path, name: str, times: int = 1) -> subprocess.Popen[bytes]:
    """Send the signal once the agent is there: to its runner where it is to be killed, else to the queue."""
    target = "int(Path(f'{common}/locks/mission-mend-1.lock').read_text().split()[0])"
    code = f"""
import os, signal, time
from pathlib import Path
folder, common = {str(folder)!r}, {str(folder / "project/.git/capsule")!r}
while not Path(folder, 'agent-is-there').exists(): time.sleep(0.02)
for _ in range({times}):
    os.kill({target if name == "SIGKILL" else os.getpid()}, signal.{name})
    time.sleep(0.3)
"""
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_to_the_queue_asks_its_runner_to_stop(
    name: str, a_queue_with_processes: OpenQueue, tmp_path: Path
) -> None:
    with a_queue_with_processes(script=_waits(tmp_path)) as queue:
        queue.begins()
        sender = _in_background(tmp_path, name)
        error = queue.takes()
        sender.wait()
        assert isinstance(error, Interrupted) and "Stopped during make" in error.message
        assert "stopped" in [kind(event) for _, event in queue.services.journal.events(ITEM)]


def test_a_second_signal_ends_the_runner_at_once(a_queue_with_processes: OpenQueue, tmp_path: Path) -> None:
    stubborn = {"make": [{"run": [f"trap '' INT TERM; touch {tmp_path}/agent-is-there; sleep 300"]}]}
    with a_queue_with_processes(script=stubborn) as queue:
        queue.begins()
        sender = _in_background(tmp_path, "SIGINT", times=2)
        with pytest.raises(StopNow):
            queue.takes()
        sender.wait()
        assert queue.services.journal.holder(ITEM) is None


QUEUE = """
import sys
from pathlib import Path
from tests.contracts.test_runners import _opened, _waits
with _opened(Path(sys.argv[1]) / "project", "processes", script=_waits(Path(sys.argv[1]))) as queue:
    queue.begins()
    queue.takes()
"""


@pytest.mark.promise("processes.queue")
def test_a_runner_ends_with_its_queue(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    queue = subprocess.Popen([sys.executable, "-c", QUEUE, str(tmp_path)], cwd=root)
    try:
        _until((tmp_path / "agent-is-there").exists)
        journal = open_project(str(tmp_path / "project")).journal(read_only=True)
        assert journal.holder(ITEM) not in (None, queue.pid)
        os.kill(queue.pid, signal.SIGKILL)
        _until(lambda: journal.holder(ITEM) is None)
        journal.close()
    finally:
        queue.kill()
        queue.wait()
