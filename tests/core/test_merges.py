"""What came of merges, from the streams of a merge queue and of its missions."""

from __future__ import annotations

from functools import reduce

import pytest
from tests.told import Told

from capsule.core.event import Batched, Event, HandedIn, Returned, Served
from capsule.core.history import MissionSummary
from capsule.core.merge_train import MergeTrain
from capsule.core.merges import MergeResult, merge_records

MERGED, BACK, NOT = MergeResult.MERGED, MergeResult.WENT_BACK, MergeResult.NOT_MERGED


def at(second: int) -> str:
    return f"2026-01-05T09:{second // 60:02}:{second % 60:02}Z"


def handed_in(mission: str, second: int) -> HandedIn:
    return HandedIn(at=at(second), mission=mission, key="deliver#1", epoch=1)


def served(mission: str, second: int, seconds: float) -> Served:
    return Served(at=at(second), mission=mission, key="deliver#1", seconds=seconds)


def train(*events: Event) -> MergeTrain:
    return reduce(MergeTrain.after, events, MergeTrain(stream="_merges-main"))


def ready(mission: str) -> Told:
    """Its work is done, and it begins to deliver after a minute."""
    return Told(mission).start().step("code", seconds=30).step("look", seconds=30).begin("deliver", "")


def merges(mission: str, after: float, told: Told | None = None) -> MissionSummary:
    return (told or ready(mission)).end("deliver", agent="", facts={"merged": "f00"}, seconds=after).summary()


def returned(mission: str, after: float, why: str = "conflicts with a") -> Told:
    told = ready(mission).pass_time(after)
    told.events.append(Returned(at=told.at, why=why))
    return told


@pytest.mark.promise("merge-queue.seen")
def test_each_way_through_the_queue_is_told_with_its_result() -> None:
    """`a` finds nobody, `b` waits for it, `c` goes back and is merged after all, `d` is parked."""
    again = returned("c", 40).step("code", seconds=20).begin("deliver", "")
    parked = ready("d").pass_time(60).blocked().summary()
    views = [merges("a", 10), merges("b", 25), merges("c", 5, again), parked]
    seen = train(
        *(handed_in("b", 62), handed_in("c", 63), handed_in("d", 64), served("b", 85, 15), served("c", 100, 15)),
        served("d", 120, 18),
    )
    [record] = merge_records([seen], views)
    told = [(one.mission, one.result, one.waited, one.seconds, one.why) for one in record.passages]
    assert record.branch == "main" and record.queued
    assert told == [
        ("a", MERGED, 0, 10, ""),
        ("b", MERGED, 8, 15, ""),
        ("c", BACK, 22, 15, "conflicts with a"),
        ("d", NOT, 38, 18, ""),
        ("c", MERGED, 0, 5, ""),
    ]


@pytest.mark.promise("merge-queue.seen")
def test_who_was_merged_together_and_what_was_tested_together() -> None:
    batch = Batched(at=at(80), missions=("a", "b"), tree="t", green=True, seconds=9)
    entered = Batched(at=at(81), missions=("a", "b"), tree="t", green=True, commit="f00")
    waiting: list[Event] = [
        handed_in("a", 60),
        handed_in("b", 61),
        batch,
        entered,
        served("b", 82, 0),
        served("a", 82, 20),
    ]
    [record] = merge_records([train(*waiting)], [merges("a", 23), merges("b", 24)])
    told = {one.mission: (one.result, one.together, one.waited) for one in record.passages}
    assert told == {"a": (MERGED, ("b",), 2), "b": (MERGED, ("a",), 21)}
    [tested] = record.tested
    assert (tested.missions, tested.seconds, tested.commit) == (("a", "b"), 9, "f00")
    assert merge_records([train(*waiting)], []) == (), "no other mission is told of"


def test_a_return_that_nobody_waited_for_is_told_too() -> None:
    [record] = merge_records([], [returned("a", 7).summary()])
    [one] = record.passages
    assert (one.result, one.waited, one.seconds, one.came, record.queued) == (BACK, 0, 7, at(60), True)


def test_merges_that_nobody_waited_for_are_no_queue() -> None:
    other = Told("b").start(into="release/2").step().step("look").step("deliver", agent="", facts={"merged": "f01"})
    records = merge_records([], [merges("a", 3), other.summary(), ready("c").summary()])
    assert [(record.branch, len(record.passages), record.queued) for record in records] == [
        ("main", 1, False),
        ("release/2", 1, False),
    ]
