"""Who is merged next, from the events of a merge queue."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from capsule.core.event import Batched, Event, HandedIn, Served, Stacked
from capsule.core.merge_queue import MergeQueue, cars, merge_queue, merge_stream


def queue_after(events: Sequence[Event]) -> MergeQueue:
    return merge_queue(lambda _, known: [*enumerate(events, 1)][known:], "main").now()


def handed_in(mission: str, epoch: int = 1) -> HandedIn:
    return HandedIn(at="", mission=mission, key="publish#1", epoch=epoch)


def served(mission: str, seconds: float = 60) -> Served:
    return Served(at="", mission=mission, key="publish#1", seconds=seconds)


def test_first_come_first_served() -> None:
    queue = queue_after([handed_in("a"), handed_in("b"), handed_in("c"), served("a")])
    assert list(queue.waiting) == ["b", "c"]


def test_one_that_comes_again_goes_to_the_end() -> None:
    queue = queue_after([handed_in("a"), handed_in("b"), handed_in("a", epoch=2)])
    assert list(queue.waiting) == ["b", "a"]
    assert queue.waiting["a"].epoch == 2


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(0, "1st, about 21 s"), (1, "2nd, about 41 s"), (2, "3rd, about 2 min"), (10, "11th, about 4 min")],
)
def test_a_place_is_said_with_the_time_that_others_took(ahead: int, words: str) -> None:
    assert queue_after([served("x", 20), served("y", 21)]).place_in_words(ahead) == words
    assert MergeQueue().place_in_words(20) == "21st"


def test_a_branch_with_a_slash_has_a_stream_that_can_be_a_files_name() -> None:
    assert merge_stream("release/2") == "_merges-release%2F2"


def stacked(mission: str, under: str, onto: str, *, fits: bool = True, gate: str = "make test") -> Stacked:
    commit = f"{mission} on {onto}" if fits else ""
    return Stacked(at="", mission=mission, commit=commit, tree=f"{under}+{mission}", onto=onto, under=under, gate=gate)


A = stacked("a", "main", "tip")
B = stacked("b", "main+a", A.commit)
C = stacked("c", "main+a+b", B.commit)


def chain(*events: Stacked, tree: str = "main") -> list[str]:
    return [one.mission for one in queue_after(events).chain("abcd", tree)]


def test_merges_that_are_built_upon_each_other_are_a_chain() -> None:
    assert chain(A, B, C) == ["a", "b", "c"]
    assert chain(A, C) == ["a"]
    assert chain(B, C) == []
    assert chain(A, B, C, tree="another") == []


def test_a_merge_that_was_built_anew_ends_the_chain_for_those_behind_it() -> None:
    assert chain(A, B, C, stacked("b", "main+a", "another commit")) == ["a"]


def test_one_that_does_not_go_together_is_passed_over() -> None:
    alone = stacked("b", "main+a", A.commit, fits=False)
    assert chain(A, alone, stacked("c", "main+a", A.commit)) == ["a", "c"]


def test_a_car_holds_neighbours_that_are_tested_alike() -> None:
    other = stacked("d", "x", "y", gate="tox")
    sizes = {size: [len(car) for car in cars([A, B, C, other], size)] for size in (1, 2, 4)}
    assert sizes == {1: [1, 1, 1, 1], 2: [2, 1, 1], 4: [3, 1]}


def test_a_car_doubles_while_it_is_green_and_is_one_after_red() -> None:
    def batched(*, green: bool, commit: str = "") -> Batched:
        return Batched(at="", missions=("a",), tree="t", green=green, commit=commit)

    green, tried, red = batched(green=True, commit="c"), batched(green=True), batched(green=False)
    assert [queue_after(events).car for events in ([], [green], [green, green], [tried])] == [1, 2, 4, 1]
    assert queue_after([green, green, red]).car == 1
