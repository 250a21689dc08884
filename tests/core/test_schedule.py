"""Which item is next, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.costs import grows_linearly

from capsule.core.decide import Guardrails
from capsule.core.item import HELD, Assessment, Blocked, Item, Status, as_shown
from capsule.core.schedule import ItemQueue, choose, in_order, queue, within_reach


def item(name: str, status: Status = Status.READY, **fields: Any) -> Item:
    impact = fields.pop("impact", "")
    return Item(id=name, title=name, status=status, assessment=Assessment(impact=impact), **fields)


def order(*items: Item, **options: Any) -> list[str]:
    return [place.item.id for place in queue(items, **options)]


def why(*items: Item, **options: Any) -> dict[str, str]:
    return {place.item.id: place.why for place in queue(items, **options)}


@pytest.mark.promise("004-pipeline.selection")
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


def test_what_somebody_else_has_begun_is_not_taken_but_our_own_mission_goes_on() -> None:
    theirs = item("a", Status.IN_PROGRESS, taken_by="alice")
    assert choose(queue([theirs, item("b")], ours=())) == item("b")
    assert why(theirs) == why(theirs, ours=()) == {"a": "claimed by alice"}
    assert choose(queue([theirs], ours={"a"})) == theirs
    assert why(theirs, left_alone={"a": "it is running"}) == {"a": "it is running"}


def test_what_is_in_progress_without_a_mission_is_left_to_whoever_works_on_it() -> None:
    by_hand, between_steps = item("a", Status.IN_PROGRESS), item("b", Status.IN_PROGRESS)
    places = queue([by_hand, between_steps], ours={"b"})
    assert choose(places) == between_steps
    assert places[0].why == "in progress without a mission; start it: capsule run a"
    assert choose(queue([by_hand])) == by_hand, "where the tracker keeps phases, it is for it to say"
    assert choose(queue([item("a")], ours=())) == item("a")


def test_a_mission_goes_on_where_it_stands_whatever_its_tracker_calls_it() -> None:
    words = {"a": "goes on at execute", "b": "merged, still to be closed"}
    assert why(item("a", Status.IN_PROGRESS), item("b"), ours=words, standing=words) == words


def test_a_blocked_item_says_what_it_waits_for() -> None:
    blocked = item("a", Status.BLOCKED, blocked=Blocked(Status.READY, "Which colour?", "decision"))
    assert why(blocked) == {"a": "blocked (decision): Which colour?"}
    assert choose(queue([blocked])) is None


@pytest.mark.parametrize(
    ("kind", "words"), [("", "blocked: beads says blocked"), (HELD, "held back: beads says blocked")]
)
def test_a_tracker_that_only_says_blocked_asks_for_nothing(kind: str, words: str) -> None:
    assert why(item("a", Status.BLOCKED, blocked=Blocked(Status.READY, "beads says blocked", kind))) == {"a": words}


@pytest.mark.promise("campaigns.containers")
def test_what_holds_others_is_not_worked_on_itself() -> None:
    feature, task = item("f", type="feature", holds=("t",)), item("t", parent="f")
    assert choose(queue([item("e", type="epic"), feature, task])) == task
    assert why(item("e", type="epic"))["e"] == "it is an epic: what it holds is worked on"
    assert why(feature)["f"] == "it is a feature: what it holds is worked on"
    assert not queue([item("t", holds=("gone",))])[0].actionable, "also where all it holds is closed"


@pytest.mark.promise("campaigns.containers")
def test_a_feature_that_holds_nothing_is_work_like_any_other() -> None:
    assert choose(queue([item("f", type="feature")])) == item("f", type="feature")


@pytest.mark.promise("campaigns.order")
def test_urgent_beads_come_first_then_old_ones() -> None:
    late = item("late", priority=0, created="2026-02-02T00:00:00Z")
    early = item("early", priority=0, created="2026-01-01T00:00:00Z")
    assert order(item("calm", priority=3), late, early, item("usual")) == ["early", "late", "usual", "calm"]


def test_how_urgent_it_is_is_said_where_nobody_has_assessed_it() -> None:
    assert why(item("a", priority=1), by_priority=True) == {"a": "ready, priority P1"}
    assert why(item("a", priority=1, impact="high"), by_priority=True) == {"a": "ready, impact high"}


# ---- what those depend on that hold it


def two_features(**second: Any) -> list[Item]:
    return [
        item("e", type="epic", holds=("a", "b")),
        item("a", type="feature", parent="e", holds=("a1",)),
        item("a1", parent="a", priority=4),
        item("b", type="feature", parent="e", holds=("b1",), **second),
        item("b1", parent="b", priority=0),
    ]


@pytest.mark.promise("campaigns.dependencies")
def test_a_task_waits_for_what_its_feature_depends_on() -> None:
    places = {place.item.id: place for place in queue(two_features(dependencies=("a",)))}
    assert places["b1"].why == "waits for a (ready), as b does"
    assert places["b1"].waits_for == ("a",)
    assert choose(queue(two_features(dependencies=("a",)))) == two_features()[2]
    done = [each for each in two_features(dependencies=("a",)) if each.id not in ("a", "a1")]
    assert choose(queue(done)) == two_features()[4], "what is closed holds nobody up"


@pytest.mark.promise("campaigns.dependencies")
def test_a_parent_that_depends_on_what_it_holds_holds_nobody_up() -> None:
    parent = item("f", type="feature", holds=("one", "two"), dependencies=("one", "two"))
    found = why(parent, item("one", parent="f"), item("two", parent="f"))
    assert found["one"] == found["two"] == "ready, impact unknown"


@pytest.mark.promise("campaigns.dependencies")
@pytest.mark.parametrize(
    ("items", "who", "circle"),
    [
        ([item("a", dependencies=("b",)), item("b", dependencies=("a",))], "a", "a → b → a"),
        ([item("a", dependencies=("a",))], "a", "a → a"),
        (
            [item("a", dependencies=("b",)), item("b", dependencies=("c",)), item("c", dependencies=("a",))],
            "b",
            "b → c → a → b",
        ),
        ([item("f", type="feature", holds=("t",)), item("t", parent="f", dependencies=("f",))], "t", "t → f → t"),
        (
            [
                item("f", type="feature", holds=("f1",), dependencies=("g",)),
                item("f1", parent="f"),
                item("g", type="feature", holds=("g1",), dependencies=("f",)),
                item("g1", parent="g"),
            ],
            "f1",
            "f1 → g → f → f1",
        ),
    ],
)
def test_a_circle_is_named(items: list[Item], who: str, circle: str) -> None:
    assert why(*items)[who] == f"waits for itself: {circle}"
    assert choose(queue(items)) is None


def test_whoever_waits_for_a_circle_is_not_in_it() -> None:
    circle = [item("a", dependencies=("b",)), item("b", dependencies=("a",))]
    assert why(*circle, item("c", dependencies=("a",)))["c"] == "waits for a (ready)"


def test_a_family_in_a_circle_ends() -> None:
    assert why(item("a", parent="b", holds=("b",)), item("b", parent="a", holds=("a",))).keys() == {"a", "b"}


def test_the_order_to_come_takes_dependencies_first_and_names_the_rest_last() -> None:
    items = [*two_features(dependencies=("a",)), item("c", parent="e", dependencies=("elsewhere",)), item("elsewhere")]
    blocked = item("stuck", Status.BLOCKED, blocked=Blocked(Status.READY, "Which?"), parent="e")
    found = in_order([*items, blocked], {"a1", "b1", "c", "stuck"}, queue, most=9)
    assert in_order([*items, blocked], {"a1", "b1", "c", "stuck"}, queue, most=2) == found[:2]
    assert [(place.item.id, place.actionable) for place in found] == [
        ("a1", True), ("b1", True), ("c", False), ("stuck", False)
    ]  # fmt: skip


def test_a_long_queue_of_families_is_looked_at_once() -> None:
    """A chain of tasks in features of one epic: what each waits for costs no look at all the others."""

    class Counted(dict[str, Item]):
        looks = 0

        def get(self, *args: Any) -> Any:
            self.looks += 1
            return super().get(*args)

    def cost(number: int) -> int:
        chain = [item(f"t{n}", parent=f"f{n // 10}", dependencies=(f"t{n - 1}",)) for n in range(number)]
        features = [item(f"f{n}", type="feature", parent="e", dependencies=(f"f{n - 1}",)) for n in range(number // 10)]
        known = Counted({each.id: each for each in [item("e", type="epic"), *features, *chain]})
        line = ItemQueue(known, by_priority=True)
        assert all(line.place(each) for each in known.values())
        return known.looks

    assert cost(2000) < 2.5 * cost(1000)


def test_what_this_run_has_tried_is_left_alone() -> None:
    assert choose(queue([item("a"), item("b")], left_alone={"a": "it failed"})) == item("b")
    assert why(item("a"), left_alone={"a": "it failed"}) == {"a": "it failed"}


@pytest.mark.promise("004-pipeline.selection")
def test_only_what_was_asked_for_is_chosen() -> None:
    assert choose(queue([item("a"), item("b")]), only={"b"}) == item("b")


@pytest.mark.promise("commands.overlap")
def test_likely_overlap_delays_an_item_and_never_forbids_it() -> None:
    places = queue([item("a"), item("b"), item("c"), item("d", dependencies=("a",))])
    overlap = {"a": "likely to touch src/api.py, which x is changing"}
    assert choose(places, overlap=overlap) == item("b"), "the first that is free, in the order of the queue"
    assert choose(places, {"a", "d"}, overlap) == item("a"), "a dependency counts for more than an overlap"
    assert choose(places, overlap={"a", "b", "c"}) == item("a"), "where all overlap, the first"
    assert choose([], overlap=overlap) is None


@pytest.mark.promise("004-pipeline.before")
def test_a_scoped_item_above_the_guardrails_will_be_asked_about() -> None:
    risky = Item(id="a", title="a", status=Status.SCOPED, assessment=Assessment(risk="high"))
    said = why(risky, guardrails=Guardrails(max_risk="low"))["a"]
    assert said == "scoped; you will be asked: risk is high, above the guardrail low"


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (Status.IN_PROGRESS, "goes on at design"),
        (Status.READY, "ready, impact unknown"),
        (Status.SCOPED, "scoped, will be made ready"),
        (Status.RESEARCHING, "needs research"),
        (Status.NEW, "needs triage"),
        (Status.DONE, "done, still to be archived"),
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


@pytest.mark.promise("jobs.header")
def test_a_run_will_come_to_what_waits_only_for_what_it_can_work_on() -> None:
    """`a` runs; `c` waits for it by way of `b`, and `n` for the epic that holds `m`."""
    places = queue(
        [
            item("a"),
            item("b", dependencies=("a",)),
            item("c", dependencies=("b",)),
            item("e", type="epic", holds=("m",)),
            item("m", parent="e"),
            item("n", dependencies=("e",)),
            item("asked", Status.BLOCKED, blocked=Blocked(Status.READY, "which one?")),
            item("later", dependencies=("asked",)),
        ],
        left_alone={"a": "running"},
    )
    assert within_reach(places, ["a"]) == {"b", "c", "m", "n"}
    assert within_reach(places, ["a"], only={"a", "b", "n"}) == {"b"}
    assert within_reach(places, []) == {"m", "n"}


@pytest.mark.promise("speed.linear")
def test_what_a_run_will_come_to_costs_linear_time() -> None:
    def reaching(number: int) -> Callable[[], object]:
        places = queue([item("t0"), *(item(f"t{n}", dependencies=(f"t{n - 1}",)) for n in range(1, number))])
        return lambda: within_reach(places, ())

    assert grows_linearly(reaching, 300, 3_000)
