"""What a run makes of how its missions stopped, whoever runs them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from capsule.adapters import ClaimedState, Order, RunLease
from capsule.core.decide import Guardrails
from capsule.core.errors import AgentUnavailable, BudgetSpent, CapsuleError, Interrupted, LockHeld
from capsule.core.event import AnswerGiven, RunStarted, StopAsked, Taken
from capsule.core.item import Item
from capsule.core.schedule import QueuePosition, queue
from capsule.core.workflow import Workflow
from capsule.engine.dispatch import RunPlan, RunReport, work_through
from capsule.services import Services
from capsule.trackers.memory import MemoryTracker

from .conftest import Scene
from .test_campaign import FLOW

STREAM, AT = "_queue", "2026-01-05T09:00:00Z"
End = tuple[str, CapsuleError | None]


class Bench:
    """Runs nothing: it says of each mission what came of it, in the order of the test."""

    def __init__(self, *ends: Callable[[], End]) -> None:
        self._ends = list(ends)
        self.started: list[str] = []
        self.adopted: list[str] = []

    def start(self, order: Order, lease: RunLease) -> None:
        self.started.append(order.mission)

    def adopt(self, mission: str) -> None:
        self.adopted.append(mission)

    def wait(self, seconds: float | None = None) -> End:
        return self._ends.pop(0)()


class Jobs:
    """The items of a scene, one after the other."""

    guardrails = Guardrails()

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def places(self, left_alone: Mapping[str, str]) -> Sequence[QueuePosition]:
        return queue(self._scene.tracker.everything(), left_alone=left_alone)

    def in_the_way(self, places: Sequence[QueuePosition], under_way: Collection[str]) -> Collection[str]:
        return ()

    def workflow(self, item: Item) -> Workflow:
        return FLOW

    def answered(self, item: str) -> None:
        pass

    def follow_requests(self, *, idle: bool) -> Collection[str]:
        return ()

    def order(self, item: Item) -> tuple[Order, Services]:
        base = self._scene.git("rev-parse", "main")
        return Order(item.id, item, FLOW, base, "main", self._scene.policy), self._scene.services


def run(scene: Scene, bench: Bench, *items: str, report: RunReport | None = None) -> RunReport:
    scene.tracker = MemoryTracker([Item(id=name, title=name) for name in items])
    scene.services = replace(
        scene.services, tracker=scene.tracker, state_store=ClaimedState(scene.tracker), runners=bench
    )
    report = report or RunReport()
    work_through(RunPlan(STREAM, 9, jobs=2), Jobs(scene), scene.services, report)
    return report


@pytest.mark.promise("jobs.stopped")
def test_what_a_person_stopped_is_told_as_such_where_an_error_ends_the_run(scene: Scene) -> None:
    def unavailable() -> End:
        scene.journal.note(STREAM, StopAsked(at=AT, mission="b"))
        return "a", AgentUnavailable("The agent cannot run.")

    report = RunReport()
    with pytest.raises(AgentUnavailable):
        run(scene, Bench(unavailable, lambda: ("b", Interrupted("Stopped."))), "a", "b", "c", report=report)
    assert report.stopped == ["b"]
    started = [event for _, event in scene.journal.events(STREAM) if isinstance(event, RunStarted)]
    assert len(started) == 1, "a run begins once"


def test_a_mission_that_another_run_works_on_is_left_to_it(scene: Scene) -> None:
    held = LockHeld("a is running (pid 7).", "Watch it with `capsule logs a -f`, or stop it first.")
    with scene.journal.claim("a"):
        report = run(scene, Bench(lambda: ("a", held)), "a")
    assert report.blocked == {"a": "another run works on it; watch it: capsule logs a -f"}


def test_a_runner_that_a_killed_queue_had_just_started_is_found_when_it_is_in_the_way(scene: Scene) -> None:
    """It had not claimed its mission yet when the next queue looked for it."""
    with scene.journal.claim(STREAM):
        scene.journal.note(STREAM, RunStarted(at=AT, cap=9, jobs=2))
        scene.journal.note(STREAM, Taken(at=AT, mission="a"))
    with ExitStack() as held:

        def in_the_way() -> End:
            held.enter_context(scene.journal.claim("a"))
            return "a", LockHeld("a is running.")

        bench = Bench(in_the_way, lambda: ("a", Interrupted("Stopped.")))
        with pytest.raises(Interrupted):
            run(scene, bench, "a")
    assert (bench.started, bench.adopted) == (["a"], ["a"])


def test_a_mission_that_comes_no_further_says_what_to_do(scene: Scene) -> None:
    report = run(scene, Bench(lambda: ("a", None)), "a")
    assert report.blocked == {"a": "it stopped before its first step, for an unknown reason; see why: capsule run a"}


@pytest.mark.promise("inbox.at-once")
def test_a_run_takes_up_again_what_a_person_has_answered_meanwhile(scene: Scene) -> None:
    def answered() -> End:
        scene.journal.note(STREAM, AnswerGiven(at=AT, mission="a"))
        return "b", None

    bench = Bench(lambda: ("a", BudgetSpent("It has used its budget.")), answered, lambda: ("a", None))
    report = run(scene, bench, "a", "b")
    assert bench.started == ["a", "b", "a"]
    assert report.blocked["a"].startswith("it stopped before its first step"), "what came of it the second time"
