"""Items as an outline: who stands below whom, how much is done, and what a filter leaves."""

from __future__ import annotations

from tests.costs import grows_linearly

from capsule.core.board import Board
from capsule.core.item import Item, Status, with_holders
from capsule.core.outline import OutlineEntry, matching, outline, unfolded
from capsule.core.status import MissionStatus

DONE = Status.DONE


def family(*items: Item) -> list[Item]:
    return list(with_holders({item.id: item for item in items}).values())


def item(name: str, parent: str = "", status: Status = Status.READY, **more: object) -> Item:
    return Item(id=name, title=f"About {name}", parent=parent, status=status, **more)  # type: ignore[arg-type]


SHOP = family(
    item("loose"),
    item("e", type="epic"),
    item("f", "e", type="feature"),
    item("t1", "f", DONE),
    item("t2", "f", dependencies=("t1", "gone"), tags=("ui",)),
    item("old", type="epic", status=DONE),
    item("old.1", "old", DONE),
)


def tree(entries: list[OutlineEntry]) -> list[str]:
    return [f"{'  ' * entry.depth}{entry.key}" for entry in entries]


def of_shop() -> list[OutlineEntry]:
    return outline(SHOP, Board(), by_status=False)


def test_epics_come_first_and_what_is_done_is_shown_within_what_is_not() -> None:
    assert tree(of_shop()) == ["e", "  f", "    t1", "    t2", "loose"]


def test_progress_counts_what_is_worked_on_at_any_depth() -> None:
    assert {entry.key: (entry.done, entry.of) for entry in of_shop() if entry.of} == {"e": (1, 2), "f": (1, 2)}


def test_an_entry_says_what_it_waits_for_and_what_is_done_waits_for_nothing() -> None:
    assert {entry.key: entry.waits_for for entry in of_shop() if entry.waits_for} == {"t2": ("gone",)}


def test_a_backlog_stands_under_its_statuses_in_the_order_people_look_at_them() -> None:
    items = [item("W-1", status=Status.NEW), item("W-2", status=Status.IN_PROGRESS), item("W-3", status=Status.NEW)]
    entries = outline(items, Board(), by_status=True)
    assert tree(entries) == [":in_progress", "  W-2", ":new", "  W-1", "  W-3"]
    assert [(entry.title, entry.of) for entry in entries if not entry.item] == [("in progress", 1), ("new", 2)]


def test_what_waits_for_another_is_counted_as_waiting_and_not_as_ready() -> None:
    items = [item("W-1"), item("W-2", dependencies=("W-1",)), item("W-3"), item("W-4", dependencies=("W-5",))]
    entries = outline([*items, item("W-5", status=DONE)], Board(), by_status=True)
    assert tree(entries) == [":ready", "  W-1", "  W-3", "  W-4", ":waiting", "  W-2", ":done", "  W-5"]
    headings = [(entry.title, entry.of) for entry in entries if not entry.item]
    assert headings == [("ready", 3), ("waiting", 1), ("done", 1)]
    assert {entry.key for entry in entries if entry.status is MissionStatus.WAITING} == {"W-2"}


def test_what_somebody_has_begun_is_not_ready_also_without_a_mission() -> None:
    (_, entry) = outline([item("W-1", status=Status.IN_PROGRESS)], Board(), by_status=True)
    assert entry.status is MissionStatus.STOPPED


def test_what_is_folded_hides_what_stands_below_it_and_nothing_else() -> None:
    assert tree(unfolded(of_shop(), {"f"})) == ["e", "  f", "loose"]
    assert tree(unfolded(of_shop(), {"e", "f"})) == ["e", "loose"]


def test_a_filter_keeps_what_has_every_word_below_whatever_holds_it() -> None:
    assert tree(matching(of_shop(), "ui ABOUT")) == ["e", "  f", "    t2"]
    assert tree(matching(of_shop(), "done")) == ["e", "  f", "    t1"]
    assert tree(matching(of_shop(), "ui loose")) == []
    assert tree(matching(of_shop(), "")) == tree(of_shop())


def test_a_family_in_a_circle_and_a_parent_that_nobody_knows_are_told_once() -> None:
    odd = family(item("a", "b"), item("b", "a"), item("me", "me"), item("lost", "nowhere"))
    assert sorted(entry.key for entry in outline(odd, Board(), by_status=False)) == ["a", "b", "lost", "me"]


def test_a_deep_family_and_a_broad_one_cost_what_they_hold() -> None:
    def deep(size: int) -> list[Item]:
        return family(*(item(f"i{n}", f"i{n - 1}" if n else "") for n in range(size)))

    assert len(outline(deep(3000), Board(), by_status=False)) == 3000

    def work(size: int) -> object:
        items = deep(size)
        return lambda: matching(unfolded(outline(items, Board(), by_status=False), ()), "i1")

    assert grows_linearly(work, 500, 1500)  # type: ignore[arg-type]
