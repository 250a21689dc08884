"""A test command that somebody killed has said nothing: it is asked once more, and then a person is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.core.decide import Move
from capsule.core.event import Observed
from capsule.core.evidence import Colour
from capsule.core.state import MissionState
from capsule.system.process import SupervisorClient
from capsule.workspaces.shell import SupervisedShell

from .conftest import GREEN_IF_CODE, PASS, Scene
from .test_own_workflow import PREP, PUBLISH, WORK, flow
from .test_tdd import story

Strike = Callable[..., str]


@pytest.fixture
def unregister(scene: Scene, tmp_path: Path) -> Iterator[Strike]:
    """Makes a command that is killed so many times where the condition holds, and does its work else."""
    left = tmp_path / "left"

    def struck(times: int, *, where: str = "true", how: str = "kill -9 $$", then: str = GREEN_IF_CODE) -> str:
        left.write_text(str(times))
        count = f"n=$(cat {left}); if [ $n -gt 0 ] && {where}; then echo $((n - 1)) > {left}; {how}; fi"
        return f"{count}; {then}"

    with SupervisorClient(grace=0.5) as supervisor:
        scene.services = replace(scene.services, shell=SupervisedShell(supervisor))
        yield struck


def observed(scene: Scene) -> list[Colour]:
    return [event.observation.colour for _, event in scene.journal.events("one") if isinstance(event, Observed)]


def assert_halted(scene: Scene, state: MissionState, key: str) -> None:
    assert state.halt is not None
    assert (state.halt.exit_code, state.used) == (1, {})
    assert "was ended by SIGKILL, twice" in state.halt.reason
    last = scene.ended("one")[-1]
    assert (last.key, last.decision.move) == (key, Move.PARK)


@pytest.mark.sweep
@pytest.mark.promise("evidence.killed-test")
@pytest.mark.parametrize("how", ["kill -9 $$", "sh -c 'kill -9 $$'; exit $?"], ids=["itself", "what it started"])
@pytest.mark.parametrize("where", ["[ ! -e tests.sh ]", "[ ! -e hello ]", "[ -e hello ]"], ids=["base", "red", "green"])
def test_one_that_was_killed_once_is_asked_again_and_nothing_else_happens(
    scene: Scene, unregister: Strike, where: str, how: str
) -> None:
    scene.plays(story())
    state = scene.run("one", "tdd", test=unregister(1, where=where, how=how))
    assert state.finished
    assert state.used == {}
    assert [move.partition(" ")[2] for move in scene.moves("one")] == ["advance"] * len(scene.moves("one"))
    assert set(observed(scene)) == {Colour.GREEN, Colour.RED}


@pytest.mark.sweep
@pytest.mark.promise("evidence.killed-test")
@pytest.mark.parametrize(
    ("where", "key"),
    [("[ ! -e tests.sh ]", "prep#1"), ("[ -e tests.sh ]", "test-writer#1"), ("[ -e hello ]", "execute#1")],
    ids=["base", "red", "green"],
)
def test_one_that_is_killed_twice_halts_the_mission_and_proves_nothing(
    scene: Scene, unregister: Strike, where: str, key: str
) -> None:
    scene.plays(story())
    command = unregister(2, where=where)
    before = {"prep#1": [], "test-writer#1": [Colour.GREEN], "execute#1": [Colour.GREEN, Colour.RED]}
    assert_halted(scene, scene.run("one", "tdd", test=command), key)
    assert observed(scene) == before[key]
    again = scene.run("one", "tdd", test=command)  # whatever killed it is gone
    assert again.finished


@pytest.mark.promise("evidence.killed-test")
def test_what_its_agent_used_is_counted_all_the_same(scene: Scene, unregister: Strike) -> None:
    scene.plays(story())
    state = scene.run("one", "tdd", test=unregister(2, where="[ -e hello ]"))
    ended = scene.ended("one")[-1].outcome
    assert ended.agent == "scripted"
    assert ended.usage is not None
    assert state.spent["execute"].runs == 1


@pytest.mark.in_git
@pytest.mark.promise("evidence.killed-test")
def test_main_does_not_move_to_what_was_not_tested(scene: Scene, unregister: Strike) -> None:
    scene.plays({"one": {"work": [{"write": {"a": "x\n"}, "signal": PASS}]}})
    workflow, main = flow(PREP, WORK, *PUBLISH), scene.git("rev-parse", "main")
    command = unregister(2, where="[ -e a ]")
    assert_halted(scene, scene.run("one", workflow, test=command), "publish#1")
    assert scene.git("rev-parse", "main") == main
    assert scene.run("one", workflow, test=command).finished
    assert scene.git("rev-parse", "main") != main


@pytest.mark.sweep
@pytest.mark.in_git
@pytest.mark.promise("evidence.killed-test")
@pytest.mark.parametrize(("times", "sent_back"), [(1, False), (2, True)], ids=["once", "twice"])
def test_a_gate_of_the_workflow_is_asked_again_and_sends_nothing_back(
    scene: Scene, unregister: Strike, times: int, sent_back: bool
) -> None:
    scene.plays({"one": {"work": [{"write": {"a": "x\n"}, "signal": PASS}]}})
    gate = {"name": "gate", "role": "review", "run": unregister(times, then="test -e a"), "rework": "work"}
    workflow = flow(PREP, WORK, gate, *PUBLISH)
    state = scene.run("one", workflow)
    assert state.finished is not sent_back
    if sent_back:
        assert_halted(scene, state, "gate#1")
        assert scene.run("one", workflow).finished


def test_a_crash_of_the_code_under_test_is_red(scene: Scene, unregister: Strike) -> None:
    """A failed assertion in C ends its program with SIGABRT: that is a test that fails."""
    scene.plays(story())
    command = unregister(1, where="[ -e tests.sh ] && [ ! -e hello ]", how="kill -ABRT $$")
    assert scene.run("one", "tdd", test=command).finished
    assert Colour.RED in observed(scene)
