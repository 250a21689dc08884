"""A merge queue as people look at it, from the events of its stream."""

from __future__ import annotations

from functools import reduce

import pytest
from tests.told import Told

from capsule.core.event import Batched, Event, HandedIn, Queued, Served, Stacked
from capsule.core.history import Presence, read_mission
from capsule.core.merge_train import MergeTrain
from capsule.core.status import MissionStatus


def at(second: int) -> str:
    return f"2026-03-01T10:{second // 60:02}:{second % 60:02}Z"


def handed_in(mission: str, second: int = 0) -> HandedIn:
    return HandedIn(at=at(second), mission=mission, key="publish#1", epoch=1)


def served(mission: str, second: int, seconds: float) -> Served:
    return Served(at=at(second), mission=mission, key="publish#1", seconds=seconds)


def batched(*missions: str, commit: str = "", green: bool = False, second: int = 0) -> Batched:
    return Batched(at=at(second), missions=missions, tree=missions[-1], green=green or bool(commit), commit=commit)


def stacked(mission: str, onto: str = "", *, fits: bool = True) -> Stacked:
    """A merge whose tree is called as its mission, on top of another's."""
    under = onto or "main"
    return Stacked(at=at(0), mission=mission, commit=mission if fits else "", tree=mission, onto=under, under=under)


def train(*events: Event) -> MergeTrain:
    return reduce(MergeTrain.after, events, MergeTrain(stream="_merges-release%2F2"))


def test_who_waited_how_long_is_told_apart_from_the_turn_itself() -> None:
    seen = train(handed_in("a"), handed_in("b", 5), served("a", 30, 10), served("b", 65, 20))
    assert [(turn.mission, turn.waited, turn.seconds) for turn in seen.turns] == [("a", 20, 10), ("b", 40, 20)]
    assert seen.branch == "release/2" and not seen.waiting


@pytest.mark.promise("merge-queue.place")
def test_whoever_has_the_turn_does_not_wait_and_the_others_have_a_place() -> None:
    seen = train(handed_in("x"), served("x", 60, 60), handed_in("a"), handed_in("gone"), handed_in("b"), handed_in("c"))
    places = seen.places(lambda one: one.mission != "gone", at_it="a")
    assert [(place.mission, place.words) for place in places] == [("b", "2nd, about 2 min"), ("c", "3rd, about 3 min")]


@pytest.mark.promise("merge-queue.seen")
def test_a_red_batch_of_which_the_first_ones_are_tested_again_was_bisected() -> None:
    """Four are red, the first two green, three red: two are merged, and the next batch is one of its own."""
    seen = train(
        *(batched(*"abcd"), batched(*"ab", green=True), batched(*"abc"), batched(*"ab", commit="f00")),
        *(batched(*"cd", green=True), batched(*"cd", commit="f01")),
    )
    told = [("".join(one.missions), one.green, one.part, one.bisected, one.commit) for one in seen.tested]
    assert told == [
        ("abcd", False, False, True, ""),
        ("ab", True, True, False, "f00"),
        ("abc", False, True, False, ""),
        ("cd", True, False, False, "f01"),
    ]
    batch = seen.batch_of("b")
    assert batch and batch.commit == "f00" and seen.batch_of("nobody") is None


@pytest.mark.promise("merge-queue.seen")
def test_what_is_red_again_after_it_went_back_is_no_part_of_the_batch_before() -> None:
    seen = train(batched(*"ab"), batched("a"), batched("a", commit="f00"), batched("a", green=True))
    assert [one.part for one in seen.tested] == [False, True, False, False]


@pytest.mark.promise("merge-queue.seen")
def test_a_batch_that_came_too_late_is_not_told_of_who_was_then_merged_alone() -> None:
    """A person's commit was quicker; then the second of the two was stopped."""
    assert train(batched(*"ab", commit="f00"), batched("a", commit="f01")).batch_of("a") is None


@pytest.mark.promise("merge-queue.seen")
def test_cars_are_those_that_are_built_on_each_other() -> None:
    """Two were merged together, so two may be tested together now; `x` does not go together with `a`."""
    line = ["a", "x", "b", "c", "d", "late"]
    built = [stacked("a"), stacked("x", "a", fits=False), stacked("b", "a"), stacked("c", "b"), stacked("d", "c")]
    seen = train(batched("y", "z", commit="f00"), *built, batched("c", "d", green=True))
    cars = [("".join(car.missions), car.green) for car in seen.cars(line, batch=4, gates=2)]
    assert cars == [("ab", False), ("cd", True)]
    assert [car.missions for car in seen.cars(line, batch=1, gates=3)] == [("b",), ("c",)]
    assert seen.cars(line, batch=1, gates=1) == seen.cars(["late"], 4, 2) == seen.cars([], 4, 2) == ()
    assert not train(stacked("a"), served("a", 3, 1)).stacked


@pytest.mark.promise("merge-queue.place")
@pytest.mark.parametrize(
    ("place", "status", "words"),
    [
        ("3rd, about 4 min", MissionStatus.WAITING, "waiting for its turn to be merged into main: 3rd, about 4 min"),
        (None, MissionStatus.WAITING, "waiting for its turn to be merged into main: behind 2"),
        ("", MissionStatus.RUNNING, "running at deliver (pid 7)"),
    ],
)
def test_a_mission_that_waits_says_its_place(place: str | None, status: MissionStatus, words: str) -> None:
    events = [*Told().begin("deliver").events, Queued(at=at(0), branch="main", ahead=2)]
    summary = read_mission(events).summary(Presence(7, place=place), at(9))
    assert (summary.status, summary.sentence) == (status, words)
