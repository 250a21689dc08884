"""A merge queue as people look at it, from the events of its stream."""

from __future__ import annotations

from functools import reduce

import pytest
from tests.told import Told

from capsule.core.event import Batched, Event, HandedIn, Queued, Served
from capsule.core.history import Presence, read_mission
from capsule.core.status import MissionStatus
from capsule.core.train import MergeTrain


def at(second: int) -> str:
    return f"2026-03-01T10:{second // 60:02}:{second % 60:02}Z"


def handed_in(mission: str, second: int = 0) -> HandedIn:
    return HandedIn(at=at(second), mission=mission, key="publish#1", epoch=1)


def served(mission: str, second: int, seconds: float) -> Served:
    return Served(at=at(second), mission=mission, key="publish#1", seconds=seconds)


def batched(*missions: str, commit: str = "") -> Batched:
    return Batched(at=at(0), missions=missions, tree="t", green=bool(commit), commit=commit)


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


def test_a_red_batch_of_which_a_part_is_tested_was_bisected() -> None:
    whole, half, other = batched("a", "b", "c"), batched("a", "b", commit="f00"), batched("d", "e")
    seen = train(whole, half, other)
    assert [seen.bisected(batch) for batch in seen.batches] == [True, False, False]
    assert seen.batch_of("b") == half and seen.batch_of("c") is None


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
