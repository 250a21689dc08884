"""An epic as one undertaking: what is in it, how far it is, what can be closed, what the next agent is told."""

from __future__ import annotations

from typing import Any

import pytest

from capsule.core.campaign import (
    LONGEST_ACCOUNT,
    FinishedWork,
    account,
    ancestors,
    closing_words,
    is_container,
    progress,
    to_close,
    to_do,
)
from capsule.core.item import Item, Status, below, with_holders


def family(**parents: str) -> dict[str, Item]:
    """`name=parent`; a name that ends in `_done` is done."""
    found = {}
    for name, parent in parents.items():
        kind = {"e": "epic", "f": "feature"}.get(name[0], "task")
        status = Status.DONE if name.endswith("_done") else Status.READY
        found[name] = Item(id=name, title=name.upper(), type=kind, parent=parent, status=status)
    return with_holders(found)


def parts(found: dict[str, Item]) -> tuple[Item, list[Item]]:
    return found["e"], below("e", found)


def ids(items: list[Item]) -> list[str]:
    return [item.id for item in items]


TREE = family(e="", f1="e", a_done="f1", b="f1", f2="e", c_done="f2", d_done="f2", z="e", other="")


def test_what_an_epic_holds_is_all_below_it_a_parent_first() -> None:
    assert ids(below("e", TREE)) == ["f1", "a_done", "b", "f2", "c_done", "d_done", "z"]
    assert ids(below("f2", TREE)) == ["c_done", "d_done"]
    assert below("b", TREE) == []


def test_a_family_in_a_circle_ends_where_it_began() -> None:
    circle = family(e="x", x="e", y="x")
    assert ids(below("e", circle)) == ["x", "y"]
    assert ids(list(ancestors(circle["y"], circle))) == ["x", "e"]
    assert progress(*parts(circle))[0].of == 1


@pytest.mark.parametrize(
    ("item", "holds"),
    [
        (Item(id="a", title="", type="epic"), True),
        (Item(id="a", title="", type="feature"), False),
        (Item(id="a", title="", type="task", holds=("b",)), True),
        (Item(id="a", title=""), False),
    ],
)
def test_an_epic_and_whatever_holds_something_is_no_work_itself(item: Item, holds: bool) -> None:
    assert is_container(item) is holds


def test_what_is_left_to_do_is_what_is_open_and_holds_nothing() -> None:
    assert ids(to_do(below("e", TREE))) == ["b", "z"]


@pytest.mark.promise("campaigns.progress")
def test_progress_counts_what_is_worked_on_at_any_depth() -> None:
    rows = [(row.item.id, row.done, row.of) for row in progress(*parts(TREE))]
    assert rows == [("e", 3, 5), ("f1", 1, 2), ("f2", 2, 2)]


def test_progress_grows_in_proportion() -> None:
    """A thousand features with ten tasks each: counted in one go, not once for each feature."""
    many = {"e": ""} | {f"f{n}": "e" for n in range(1000)} | {f"t{n}": f"f{n // 10}" for n in range(10_000)}
    root, members = parts(family(**many))
    assert [row.of for row in progress(root, members)][:2] == [10_000, 10]
    assert to_close(root, members) == []


@pytest.mark.promise("campaigns.parents")
def test_a_parent_can_be_closed_when_all_it_holds_is_done_the_innermost_first() -> None:
    assert ids(to_close(*parts(TREE))) == ["f2"]
    done = family(e="", f1="e", a_done="f1", f2="e", g="f2", b_done="g", c_done="e")
    assert ids(to_close(*parts(done))) == ["g", "f2", "f1", "e"]


def test_what_is_closed_already_is_not_closed_again() -> None:
    assert to_close(*parts(family(e="", f1_done="e", a_done="f1_done", b="e"))) == []


@pytest.mark.promise("campaigns.parents")
def test_nothing_is_closed_over_the_head_of_an_open_grandchild() -> None:
    """Somebody closed the feature by hand while a task of it was open."""
    assert to_close(*parts(family(e="", f1_done="e", a="f1_done"))) == []


def test_an_epic_that_holds_nothing_is_not_done_by_that() -> None:
    assert to_close(*parts(family(e="", e2="e"))) == []


def test_why_a_parent_is_closed_is_said_in_numbers() -> None:
    assert closing_words(TREE["f2"], below("e", TREE)) == "all 2 items it holds are done"
    assert closing_words(TREE["e"], [TREE["f1"]]) == "the one item it holds is done"


# ---- what was done before


def deed(found: dict[str, Item], name: str, at: int = 0, **fields: Any) -> FinishedWork:
    return FinishedWork(
        found[name], **{"summary": f"did {name}", "merged": "0123456789abcdef", "at": f"{at:04}", **fields}
    )


@pytest.mark.promise("campaigns.handover")
def test_the_next_agent_is_told_the_nearest_family_first_and_the_newest_last() -> None:
    deeds = [deed(TREE, "z", 1), deed(TREE, "d_done", 4), deed(TREE, "a_done", 3), deed(TREE, "c_done", 2)]
    assert account(TREE["b"], deeds, TREE).splitlines() == [
        "- a_done A_DONE (merged as 0123456789ab): did a_done",
        "- z Z (merged as 0123456789ab): did z",
        "- c_done C_DONE (merged as 0123456789ab): did c_done",
        "- d_done D_DONE (merged as 0123456789ab): did d_done",
    ]


def test_nothing_done_is_nothing_told() -> None:
    assert account(TREE["b"], [], TREE) == ""


def test_a_deed_is_one_line_however_it_was_told() -> None:
    line = account(TREE["b"], [deed(TREE, "z", summary="one\ntwo\x1b[31m " + "x" * 9000)], TREE)
    assert "\n" not in line
    assert line.startswith("- z Z (merged as 0123456789ab): one two [31m xxx")
    assert len(line) <= 600
    assert account(TREE["b"], [deed(TREE, "z", summary="", merged="")], TREE) == "- z Z: no summary was given"


@pytest.mark.promise("campaigns.handover")
def test_what_there_is_no_room_for_is_the_oldest_of_the_farthest() -> None:
    many = family(e="", f="e", near="f", me="f", g="e", **{f"far{n}": "g" for n in range(200)})
    deeds = [deed(many, "near", 0, summary="x" * 500)]
    deeds += [deed(many, f"far{n}", n + 1, summary="é" * 100) for n in range(200)]
    told = account(many["me"], deeds, many)
    assert len(told.encode()) <= LONGEST_ACCOUNT
    first, *others, last = told.splitlines()
    assert first.startswith("- near ")
    assert others[-1].startswith("- far199 ")
    assert [line.split()[1] for line in others] == [f"far{n}" for n in range(200 - len(others), 200)]
    assert last == f"({200 - len(others)} more were finished before; left out here)"
