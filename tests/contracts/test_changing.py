"""What trackers whose items can be changed from here promise of it: memory, the beads file, and bd."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from capsule.adapters import Tracker
from capsule.core.errors import Refused, UnknownItem
from capsule.core.item import Item, ItemValues, Status
from capsule.trackers import BaseTracker
from capsule.trackers.beads_file import connect
from capsule.trackers.memory import MemoryTracker
from tests.contracts.bd_projects import bead, faked

ITEMS = (
    Item(id="demo-1", title="All of it", type="epic"),
    Item(id="demo-1.1", title="One", parent="demo-1", tags=("ui", "slow"), dependencies=("demo-2",)),
    Item(id="demo-2", title="Two", description="as it was"),
    Item(id="demo-3", title="Three"),
)


def in_a_file(folder: Path, items: Sequence[Item]) -> Tracker:
    (folder / ".beads").mkdir()
    (folder / ".beads/issues.jsonl").write_text("".join(f"{json.dumps(bead(item))}\n" for item in items))
    return connect(folder)


OPENERS: dict[str, Callable[[Path, Sequence[Item]], Tracker]] = {
    "memory": lambda _, items: MemoryTracker(items),
    "beads-file": in_a_file,
    "bd 0.47.1": lambda folder, items: faked(folder, items, "0.47.1"),
    "bd 1.0.5": lambda folder, items: faked(folder, items, "1.0.5"),
}


@pytest.fixture(params=OPENERS)
def tracker(request: pytest.FixtureRequest, tmp_path: Path) -> Tracker:
    return OPENERS[request.param](tmp_path, ITEMS)


@pytest.mark.promise("commands.edit")
@pytest.mark.parametrize(
    "values",
    [
        {"title": "--force ${HOME}", "description": "of\ntwo lines", "priority": 0, "type": "bug"},
        {"description": ""},
        {"tags": ["ui", "new, with a comma"]},
        {"parent": "demo-3"},
        {"dependencies": ["demo-3"]},
        {"dependencies": []},
    ],
)
def test_what_is_changed_is_so_and_nothing_else(tracker: Tracker, values: ItemValues) -> None:
    before = {item.id: item for item in tracker.under("")}
    tracker.change("demo-1.1", values)
    after = {item.id: item for item in tracker.under("")}
    for name in ("title", "description", "type", "priority", "parent", "tags", "dependencies", "status"):
        now = getattr(after["demo-1.1"], name)
        wanted: Any = values.get(name, getattr(before["demo-1.1"], name))
        assert now == wanted or sorted(now) == sorted(wanted), name  # a tracker may sort its tags
    assert [after[name].title for name in ("demo-1", "demo-2", "demo-3")] == ["All of it", "Two", "Three"]
    assert after["demo-2"].description == "as it was"


@pytest.mark.promise("commands.hold")
def test_an_item_can_be_put_on_hold_and_taken_up_again(tracker: Tracker) -> None:
    tracker.change("demo-3", {"status": "blocked"})
    held = tracker.item("demo-3")
    assert held.status is Status.BLOCKED and held.blocked
    tracker.reopen("demo-3")
    assert tracker.item("demo-3").status is Status.READY


def test_what_is_not_there_cannot_be_changed(tracker: Tracker) -> None:
    with pytest.raises(UnknownItem):
        tracker.change("demo-9", {"title": "x"})


def test_a_tracker_that_changes_nothing_says_where_to_do_it() -> None:
    class Plain(MemoryTracker):
        name = "plain"
        change = BaseTracker.change

    with pytest.raises(Refused, match=r"demo-2 cannot be changed from here: its tracker is plain\."):
        Plain(ITEMS).change("demo-2", {"title": "x"})
