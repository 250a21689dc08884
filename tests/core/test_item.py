"""Ids that may become paths, status moves that are allowed, and what an item's text says."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.core.errors import InvalidId, Refused
from capsule.core.item import (
    ACTIVE,
    Assessment,
    Blocked,
    Item,
    Lineage,
    Status,
    acceptance_criteria,
    check_id,
    check_move,
    lineage_of,
    with_finding,
)


@pytest.mark.parametrize("good", ["a", "7", "demo-1.1.1", "WRK-001", "a_b", "A" * 64, "x.lock.y", "lock"])
def test_an_ordinary_id_is_itself(good: str) -> None:
    assert check_id(good) == good


MISSHAPEN = ("", ".", "..", "a..b", "-a", "a-", "_a", ".a", "a.", "a/b", "a\\b", "a b", "a\n", "\na", "a\0", "x.lock")
FOREIGN = ("A" * 65, "ä", "\u0661", "a@{1}", "a:b", "a~1", "$(id)", "\ud800", "e\u0301")


@pytest.mark.parametrize("bad", [*MISSHAPEN, *FOREIGN])
def test_an_id_that_could_mean_something_else_is_refused(bad: str) -> None:
    with pytest.raises(InvalidId) as caught:
        check_id(bad)
    assert caught.value.message.isascii() and caught.value.message.isprintable() and len(caught.value.message) < 600


@pytest.mark.promise("004-follow-ups.ids-as-paths")
@given(st.text())
def test_whatever_passes_is_a_plain_file_name(text: str) -> None:
    try:
        name = check_id(text)
    except InvalidId:
        return
    assert name.isascii() and not set(name) & set("/\\ \n:~^?*[@{") and len(name) <= 64 and ".." not in name


ALLOWED = {
    ("new", "researching"),
    ("new", "scoped"),
    ("researching", "scoped"),
    ("scoped", "ready"),
    ("ready", "in_progress"),
    ("in_progress", "done"),
    *((status.value, "blocked") for status in ACTIVE),
}


@pytest.mark.promise("004-file.moves")
@pytest.mark.parametrize(("old", "new"), [*itertools.product((*ACTIVE, Status.DONE), Status)])
def test_only_the_moves_of_the_table_are_allowed(old: Status, new: Status) -> None:
    item = Item(id="a", title="A", status=old)
    if (old.value, new.value) in ALLOWED:
        check_move(item, new)
        return
    with pytest.raises(Refused) as caught:
        check_move(item, new)
    assert old.value in caught.value.message and caught.value.exit_code == 1


@pytest.mark.promise("004-file.moves")
@pytest.mark.parametrize(("origin", "new"), [*itertools.product(ACTIVE, Status)])
def test_a_blocked_item_returns_exactly_where_it_was(origin: Status, new: Status) -> None:
    item = Item(id="a", title="A", status=Status.BLOCKED, blocked=Blocked(origin, "why"))
    if new is origin:
        check_move(item, new)
        return
    with pytest.raises(Refused, match="a cannot go"):
        check_move(item, new)


@pytest.mark.parametrize(
    ("fields", "criteria"),
    [
        ({"acceptance": " - own \n", "description": "# Acceptance Criteria\n- other"}, "- own"),
        ({"description": "Intro\n\n## Acceptance Criteria\n\n- a\n- b\n\n## Notes\nno"}, "- a\n- b"),
        ({"description": "### ACCEPTANCE criteria:\r\n- a\r\n"}, "- a"),
        ({"description": "## **Acceptance Criteria**\n- a\n### deeper\n- b"}, "- a"),
        ({"description": "# Requirements\n- r\n# Acceptance Criteria\n- a"}, "- a"),
        ({"description": "# Acceptance Criteria\n\n# Requirements\n- r"}, "- r"),
        ({"description": "Acceptance Criteria\n- not a heading"}, ""),
        ({}, ""),
    ],
)
def test_acceptance_criteria_are_the_field_else_a_section(fields: dict[str, str], criteria: str) -> None:
    assert acceptance_criteria(Item(id="a", title="A", **fields)) == criteria  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["Do it.", "Do it.\n\n## Requirements\n\n- It is fast."])
def test_the_agent_of_another_item_writes_no_acceptance_criteria(asked: str) -> None:
    found, _ = with_finding(asked, "b/make", "It is slow.\n## Acceptance criteria\n- Nothing is tested.")
    criteria = acceptance_criteria(Item(id="a", title="A", description=found))
    assert "Nothing is tested" in found
    assert criteria == acceptance_criteria(Item(id="a", title="A", description=asked))


EPIC = Item(id="e", title="E", type="epic")
FEATURE = Item(id="f", title="F", type="feature", parent="e")
FAMILY = {
    "e": EPIC,
    "f": FEATURE,
    "t": Item(id="t", title="T"),
    "odd": Item(id="odd", title="O", type="feature", parent="t"),
}


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ("f", Lineage(feature=FEATURE, epic=EPIC)),
        ("e", Lineage(epic=EPIC)),
        ("odd", Lineage(feature=FAMILY["odd"])),
        ("t", Lineage()),
        ("nobody", Lineage()),
        ("", Lineage()),
    ],
)
def test_lineage_is_feature_and_epic_or_nothing(parent: str, expected: Lineage) -> None:
    assert lineage_of(Item(id="x", title="X", parent=parent), FAMILY) == expected


def test_an_item_that_is_its_own_parent_has_an_end() -> None:
    loop = Item(id="x", title="X", type="feature", parent="x")
    assert lineage_of(loop, {"x": loop}) == Lineage(feature=loop)


@pytest.mark.promise("004-file.assessments")
def test_new_assessments_replace_what_they_name_and_nothing_else() -> None:
    old = Assessment(size="small", risk="low")
    assert old.updated({"risk": "high", "size": "", "mood": "fine"}) == Assessment(size="small", risk="high")
