"""Which item is next, and why the others are not; and when a run has had enough."""

from __future__ import annotations

from typing import Any

import pytest

from capsule.core.decide import Decision, Guardrails, Move
from capsule.core.item import Assessment, Blocked, Item, Status, as_shown
from capsule.core.schedule import Tally, choose, queue
from capsule.core.signal import Verdict


def item(name: str, status: Status = Status.READY, **fields: Any) -> Item:
    impact = fields.pop("impact", "")
    return Item(id=name, title=name, status=status, assessment=Assessment(impact=impact), **fields)


def order(*items: Item, **options: Any) -> list[str]:
    return [place.item.id for place in queue(items, **options)]


def why(*items: Item, **options: Any) -> dict[str, str]:
    return {place.item.id: place.why for place in queue(items, **options)}


def test_selection_is_by_impact_then_by_age() -> None:
    young = item("young", impact="high", created="2026-02-02T00:00:00Z")
    old = item("old", impact="high", created="2026-01-01T00:00:00Z")
    small = item("small", impact="low", created="2025-01-01T00:00:00Z")
    unknown = item("unknown", created="2024-01-01T00:00:00Z")
    assert order(unknown, small, young, old) == ["old", "young", "small", "unknown"]


def test_what_is_under_way_comes_first_and_what_is_new_last() -> None:
    lanes = [Status.NEW, Status.RESEARCHING, Status.SCOPED, Status.READY, Status.IN_PROGRESS]
    assert order(*(item(status.value, status) for status in lanes)) == [s.value for s in reversed(lanes)]


def test_an_interrupted_mission_counts_as_under_way() -> None:
    assert order(item("a", impact="high"), item("b"), under_way={"b"}) == ["b", "a"]


def test_an_item_waits_for_what_it_depends_on() -> None:
    first, second = item("first"), item("second", dependencies=("first",), impact="high")
    assert why(first, second)["second"] == "waits for first (ready)"
    assert choose(queue([first, second])) == first
    assert choose(queue([second])) == second, "what is not open any more is done"


def test_a_blocked_item_says_what_it_waits_for() -> None:
    blocked = item("a", Status.BLOCKED, blocked=Blocked(Status.READY, "Which colour?", "decision"))
    assert why(blocked) == {"a": "blocked (decision): Which colour?"}
    assert choose(queue([blocked])) is None


def test_epics_and_features_are_not_worked_on_themselves() -> None:
    assert choose(queue([item("e", type="epic"), item("f", type="feature"), item("t")])) == item("t")
    assert why(item("e", type="epic"))["e"] == "it is an epic: what it holds is worked on"


def test_what_this_run_has_tried_is_left_alone() -> None:
    assert choose(queue([item("a"), item("b")], left_alone={"a": "it failed"})) == item("b")
    assert why(item("a"), left_alone={"a": "it failed"}) == {"a": "it failed"}


def test_only_what_was_asked_for_is_chosen() -> None:
    assert choose(queue([item("a"), item("b")]), only={"b"}) == item("b")


def test_a_scoped_item_above_the_guardrails_will_be_asked_about() -> None:
    risky = Item(id="a", title="a", status=Status.SCOPED, assessment=Assessment(risk="high"))
    said = why(risky, guardrails=Guardrails(max_risk="low"))["a"]
    assert said == "is scoped, and a human will be asked: risk is high, above the guardrail low"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.IN_PROGRESS, "goes on at design"),
        (Status.READY, "is ready, impact unknown"),
        (Status.SCOPED, "is scoped and will be made ready"),
        (Status.RESEARCHING, "its idea is to be researched"),
        (Status.NEW, "is to be triaged"),
        (Status.DONE, "is done and only has to be archived"),
    ],
)
def test_every_status_has_its_reason(status: Status, words: str) -> None:
    assert why(item("a", status, phase="design")) == {"a": words}


def test_people_see_what_is_under_way_then_what_waits_for_them() -> None:
    blocked = item("blocked", Status.BLOCKED, blocked=Blocked(Status.NEW, "?"))
    shown = as_shown(
        [item("new", Status.NEW), item("low", impact="low"), item("high", impact="high"), blocked,
         item("now", Status.IN_PROGRESS), item("scoped", Status.SCOPED), item("look", Status.RESEARCHING)]
    )  # fmt: skip
    assert [each.id for each in shown] == ["now", "blocked", "high", "low", "scoped", "look", "new"]


EXHAUSTED = Decision(Move.PARK, Verdict.FAILED, exhausted=True)
BLOCKED = Decision(Move.PARK, Verdict.BLOCKED)
TRIPPED = Decision(Move.PARK, Verdict.PASS, vetoed=True)
PASSED = Decision(Move.ADVANCE, Verdict.PASS)
MORE = Decision(Move.REPEAT, Verdict.MORE)


@pytest.mark.parametrize(
    ("story", "trips"),
    [
        ([EXHAUSTED], False),
        ([EXHAUSTED, EXHAUSTED], True),
        ([EXHAUSTED, PASSED, EXHAUSTED], False),
        ([EXHAUSTED, MORE, EXHAUSTED], False),
        ([EXHAUSTED, BLOCKED, EXHAUSTED], True),
        ([EXHAUSTED, TRIPPED, EXHAUSTED], True),
        ([BLOCKED, BLOCKED, TRIPPED, TRIPPED], False),
        ([PASSED, EXHAUSTED, EXHAUSTED], True),
    ],
)
def test_the_breaker_counts_exhausted_items_in_a_row(story: list[Decision], trips: bool) -> None:
    tally = Tally()
    for decision in story:
        tally = tally.spawned().ended(decision)
    assert tally.tripped is trips
    assert tally.spawns == len(story)
