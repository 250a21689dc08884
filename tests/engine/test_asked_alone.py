"""A red that another mission may be to blame for is asked again alone, before anybody is sent back for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from capsule.core.event import Observed
from capsule.core.evidence import Colour, EvidenceStatus, Observation
from capsule.system.runner_slots import RunnerSlots

from .conftest import GREEN_IF_CODE, PASS, Scene
from .test_own_workflow import PREP, PUBLISH, WORK, flow
from .test_tdd import story

Spoil = Callable[..., str]
PLACES = {"base": "[ ! -e tests.sh ]", "green": "[ -e hello ]"}


@pytest.fixture
def spoilt(tmp_path: Path) -> Spoil:
    """Make a command that fails so many times where the condition holds, whatever the tree, and does its work else."""
    left = tmp_path / "left"

    def command(times: int, *, where: str = "true", how: str = "exit 1", then: str = GREEN_IF_CODE) -> str:
        left.write_text(str(times))
        count = f"n=$(cat {left}); if [ $n -gt 0 ] && {where}; then echo $((n - 1)) > {left}; {how}; fi"
        return f"{count}; {then}"

    return command


@pytest.fixture
def another(tmp_path: Path) -> Iterator[RunnerSlots]:
    """Another mission that runs on this machine."""
    with closing(RunnerSlots(tmp_path / "cache" / "capsule")) as other:
        assert other.slot == 0
        yield other


def seen(scene: Scene) -> list[Observation]:
    return [event.observation for _, event in scene.journal.events("one") if isinstance(event, Observed)]


@pytest.mark.usefixtures("another")
@pytest.mark.promise("side-by-side.asked-alone")
@pytest.mark.parametrize("where", PLACES.values(), ids=PLACES)
def test_a_red_seen_beside_another_mission_is_asked_again_alone(scene: Scene, spoilt: Spoil, where: str) -> None:
    scene.plays(story())
    state = scene.run("one", "tdd", test=spoilt(1, where=where))
    assert state.finished
    assert state.used == {}
    alone = [each for each in seen(scene) if each.alone]
    assert [(each.colour, each.beside) for each in alone] == [(Colour.GREEN, False)]
    first = next(each for each in seen(scene) if each.tree == alone[0].tree)
    assert (first.colour, first.beside) == (Colour.RED, True)
    said = [piece.observed for end in scene.ended("one") for piece in end.outcome.evidence]
    assert any("asked again alone" in words for words in said)


@pytest.mark.usefixtures("another")
@pytest.mark.promise("side-by-side.asked-alone")
def test_a_red_that_stays_counts_and_the_feedback_says_that_it_was_asked_alone(scene: Scene, spoilt: Spoil) -> None:
    scene.plays(story())
    state = scene.run("one", "tdd", test=spoilt(100, where=PLACES["green"]))
    assert not state.finished
    execute = next(end for end in scene.ended("one") if end.phase == "execute")
    against = [piece for piece in execute.outcome.evidence if piece.standing is EvidenceStatus.REFUTED]
    assert against
    assert all("asked again alone" in piece.observed for piece in against)
    of_tree = [each for each in seen(scene) if each.tree == seen(scene)[-1].tree]
    assert [each.alone for each in of_tree] == [False, True]


@pytest.mark.usefixtures("another")
def test_a_red_that_is_wanted_is_asked_once(scene: Scene) -> None:
    scene.plays(story())
    assert scene.run("one", "tdd").finished
    assert [each.beside for each in seen(scene) if each.colour is Colour.RED] == [True]
    assert not any(each.alone for each in seen(scene))


def test_nothing_is_asked_again_where_a_mission_runs_by_itself(scene: Scene, spoilt: Spoil) -> None:
    scene.plays(story())
    assert not scene.run("one", "tdd", test=spoilt(1, where=PLACES["base"])).finished
    assert not any(each.beside or each.alone for each in seen(scene))


@pytest.mark.usefixtures("another")
def test_tests_that_take_too_long_beside_another_mission_are_asked_again(scene: Scene, spoilt: Spoil) -> None:
    scene.plays(story())
    slow = spoilt(1, where=PLACES["green"], how="sleep 30")
    state = scene.run("one", "tdd", test=slow, test_timeout_minutes=0.02)
    assert (state.finished, state.used) == (True, {})


@pytest.mark.in_git
@pytest.mark.usefixtures("another")
@pytest.mark.promise("side-by-side.asked-alone")
def test_the_gate_before_the_merge_is_asked_again_alone(scene: Scene, spoilt: Spoil) -> None:
    scene.plays({"one": {"work": [{"write": {"a": "x\n"}, "signal": PASS}]}})
    assert scene.run("one", flow(PREP, WORK, *PUBLISH), test=spoilt(1, where="[ -e a ]")).finished
    assert [(each.colour, each.alone) for each in seen(scene)][-2:] == [(Colour.RED, False), (Colour.GREEN, True)]


@pytest.mark.in_git
@pytest.mark.usefixtures("another")
@pytest.mark.promise("side-by-side.asked-alone")
def test_a_phase_that_runs_a_command_is_asked_again_alone(scene: Scene, spoilt: Spoil) -> None:
    scene.plays({"one": {"work": [{"write": {"a": "x\n"}, "signal": PASS}]}})
    gate = {"name": "gate", "role": "review", "run": spoilt(1, then="test -e a"), "rework": "work"}
    assert scene.run("one", flow(PREP, WORK, gate, *PUBLISH)).finished
    (ended,) = (end for end in scene.ended("one") if end.phase == "gate")
    assert ended.outcome.signal.summary.endswith("exited with 0, asked again alone")
