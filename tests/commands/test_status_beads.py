"""`capsule status` of beads: the tree, how much of it is done, and what waits for what."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from capsule.commands.item_table import as_tree
from capsule.core.item import Item, Status, with_holders
from capsule.trackers.memory import MemoryTracker

from ..costs import grows_linearly
from .conftest import ITEM, Project

FAMILY: list[dict[str, Any]] = [
    {"id": "x-9", "title": "A task alone", "priority": 0},
    {"id": "x-1", "title": "The epic", "issue_type": "epic", "priority": 1},
    {"id": "x-1.1", "title": "One feature", "issue_type": "feature"},
    {"id": "x-1.1.1", "title": "Done", "status": "closed"},
    {"id": "x-1.1.2", "title": "Under way", "status": "in_progress", "labels": ["ui"]},
    {"id": "x-1.2", "title": "Another", "issue_type": "feature", "priority": 3},
    {
        "id": "x-1.2.1",
        "title": "Later",
        "dependencies": [{"issue_id": "x-1.2.1", "depends_on_id": "x-1.1.2", "type": "blocks"}],
    },
    {"id": "x-1.2.2", "title": "Not now", "status": "deferred"},
]


@pytest.fixture
def a_family(a_project: Project) -> Project:
    a_project.beads.write_text("".join(f"{json.dumps({'status': 'open', **row})}\n" for row in FAMILY))
    return a_project


@pytest.mark.promise("trackers.tree", "screens.waiting")
def test_beads_are_a_tree_with_what_is_done_and_what_waits(a_family: Project) -> None:
    answer = a_family.say("status")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == (
        "ID           Status       Pri  Done  Title\n"
        "x-1          ready        P1   1/4   The epic\n"
        "  x-1.1      ready        P2   1/2   One feature\n"
        "    x-1.1.2  in_progress  P2   -     Under way\n"
        "  x-1.2      ready        P3   0/2   Another\n"
        "    x-1.2.1  waiting      P2   -     Later\n"
        "                                     waiting for x-1.1.2\n"
        "    x-1.2.2  blocked      P2   -     Not now\n"
        "                                     beads says deferred\n"
        "x-9          ready        P0   -     A task alone\n"
        "\n"
        "4 items: 1 in_progress, 1 waiting, 1 blocked, 1 ready\n"
    )


@pytest.mark.promise("backlog.done-lately")
def test_beads_that_were_closed_since_yesterday_are_named(a_project: Project) -> None:
    now, long_ago = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "2020-01-01T00:00:00Z"
    rows = [
        {"id": "x-1", "title": "Lately", "closed_at": now},
        {"id": "x-2", "title": "Long ago", "closed_at": long_ago},
        {"id": "x-3", "title": "Commented on since", "closed_at": long_ago, "updated_at": now},
        {"id": "x-4", "title": "Without a date of its own", "updated_at": now},
        {"id": "x-5", "title": "Open again", "status": "open", "closed_at": now, "updated_at": long_ago},
    ]
    a_project.beads.write_text("".join(f"{json.dumps({'status': 'closed', **row})}\n" for row in rows))
    done = [line for line in a_project.say("status").out.splitlines() if line.startswith("Done since")]
    assert done == ["Done since yesterday: x-1 Lately, x-4 Without a date of its own"]


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("type=feature", ["x-1.1", "x-1.2"]),
        ("priority=0,P1", ["x-1", "x-9"]),
        ("parent=x-1.2,status=ready", ["x-1.2.1"]),
        ("tag=ui", ["x-1.1.2"]),
    ],
)
def test_only_some_beads_are_shown_where_asked(a_family: Project, only: str, expected: list[str]) -> None:
    table = a_family.say("status", f"--only={only}").out.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in table if line.strip().startswith("x-")] == expected


def test_the_tree_is_in_the_json_too(a_family: Project) -> None:
    found = {row["id"]: row for row in json.loads(a_family.say("status", "--json").out)}
    assert len(found) == 7
    assert (found["x-1.1"]["parent"], found["x-1.1"]["holds"]) == ("x-1", ["x-1.1.1", "x-1.1.2"])
    assert found["x-1.2.1"]["dependencies"] == ["x-1.1.2"]


def test_where_no_bead_is_open_the_way_to_make_one_is_named(a_project: Project) -> None:
    a_project.set_bead(status="closed")
    for verb in ("status", "explain"):
        assert a_project.say(verb).out == (
            'No open items in beads-file. Add one: capsule add "Describe the change in one line"\n'
        ), "bd is named only to those who have it"


def test_a_mission_that_nobody_is_at_stands_before_its_next_phase(a_mission_at_execute: Project) -> None:
    """Killed between two steps: nothing was begun, nothing has halted."""
    last = a_mission_at_execute.say("status").out.splitlines()[-1]
    assert last == f"‖ {ITEM} stopped before execute (capsule run {ITEM})"


def test_a_family_drawn_in_a_circle_is_shown_all_the_same() -> None:
    one, other = Item(id="a", title="A", parent="b"), Item(id="b", title="B", parent="a")
    tracker = MemoryTracker([one, other, Item(id="c", title="C", parent="gone")])
    known = {item.id: item for item in tracker.under("")}
    assert [row.item.id for row in as_tree(tracker.items(), known)] == ["a", "b", "c"]


def test_a_large_tree_costs_linear_time() -> None:
    def shown(number: int) -> Callable[[], object]:
        """Epics of ten tasks each, half of them done."""
        items = {f"e-{n}": Item(id=f"e-{n}", title="Epic", type="epic") for n in range(number)}
        for n in range(number * 10):
            status = Status.DONE if n % 2 else Status.READY
            items[f"t-{n}"] = Item(id=f"t-{n}", title="Task", parent=f"e-{n % number}", status=status)
        tracker = MemoryTracker(with_holders(items).values())
        return lambda: as_tree(tracker.items(), {item.id: item for item in tracker.under("")})

    assert grows_linearly(shown, 20, 600)
