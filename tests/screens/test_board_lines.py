"""The board as text: whole sentences for whoever has no screen, and a line for each change."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from capsule.core.board import Board
from capsule.core.event import Policy
from capsule.core.item import Item
from capsule.core.outline import OutlineEntry, outline
from capsule.core.status import MissionStatus
from capsule.reports.board_lines import board_lines, changes, item_lines

from .boards import (
    ROUNDING,
    SCENES,
    at_rest,
    at_work,
    board,
    busy,
    finished,
    forty,
    refuted,
    stopped,
    to_the_end,
    up_to,
)
from .golden import assert_golden
from .missions import at_the_code, merged_on_red, shown, turned_away

GOLDENS = Path(__file__).parent / "goldens"


@pytest.mark.parametrize("name", SCENES)
def test_a_board_is_told_in_sentences(name: str) -> None:
    scene = SCENES[name]()
    items = item_lines(outline(scene.listing.items, scene.board, by_status=scene.listing.by_status))
    told = "\n".join([*items, "", *board_lines(scene.board)]) + "\n"
    assert not [character for character in told if not character.isprintable() and character != "\n"]
    assert_golden(f"board-{name}.txt", told, GOLDENS)


def test_an_item_that_waits_for_no_other_item_names_none() -> None:
    """Its mission waits to be merged, or for a provider."""
    entry = OutlineEntry(key="x-1", title="Add it", item=Item(id="x-1", title="Add it"), status=MissionStatus.WAITING)
    assert [*item_lines([entry])] == ["x-1: Add it (waiting)"]
    assert [*item_lines([replace(entry, waits_for=("x-0",))])] == ["x-1: Add it (waiting for x-0)"]


def test_what_is_the_same_is_not_told_again() -> None:
    assert list(changes(busy().board, busy().board)) == []


@pytest.mark.promise("agents.five-hours")
def test_a_wait_is_told_with_the_time_of_day_at_which_it_ends(local_time_is: Callable[[str], None]) -> None:
    local_time_is("IST-5:30")
    before, after = (Board(missions=(shown(events, 80),)) for events in (at_the_code(), turned_away()))
    wait = "waiting for the provider until 15:32: Too many requests"
    assert f"  {wait}" in list(board_lines(after))
    assert [line.partition(": ")[2] for line in changes(before, after)] == [wait]


def test_a_mission_that_appears_goes_on_and_ends_is_told_line_by_line() -> None:
    boards = [
        Board(),
        board(at_work(*ROUNDING, up_to("execute"))),
        board(at_work(*ROUNDING, refuted())),
        board(at_rest(*ROUNDING, stopped())),
        board(at_rest(*ROUNDING, to_the_end())),
    ]
    told = [list(changes(before, after)) for before, after in pairwise(boards)]
    assert told[0] == ["shop-1.1.1: running at execute (pid 4711)"]
    assert told[1] == [
        "shop-1.1.1: execute#1 claimed PASS, verdict REFUTED: the tests are red: exit code 1",
        "shop-1.1.1: running at execute (pid 4711), attempt 2",
    ]
    assert told[2] == [
        "shop-1.1.1: execute#2 claimed PASS, verdict ERROR: the tests are red: exit code 1",
        "shop-1.1.1: failed at execute: execute has used up its retries",
    ]
    assert told[3][-1] == "shop-1.1.1: merged into main as feedc0ffee01; its item is closed"


def test_what_was_merged_on_red_is_told_with_the_merge() -> None:
    red = board(shown(merged_on_red(), pid=None))
    words = "NOT GREEN: the gate was red on the merge result (verify: warn)"
    assert f"  {words}." in board_lines(red)
    assert (
        list(changes(board(shown(at_the_code(policy=Policy(verify="warn", test="x")))), red))[-1]
        == f"demo-1.1: {words}"
    )
    told = list(changes(board(shown(at_the_code())), red))
    assert "demo-1.1: execute#1 claimed PASS, verdict PASS, though refuted: the tests are red: exit code 1" in told
    assert "demo-1.1: publish#1 verdict PASS, though refuted: `pytest -q` is red on 89abcdef0123" in told


def test_a_run_is_told_when_it_begins_and_when_it_ends() -> None:
    began, over = list(changes(Board(), busy().board)), list(changes(busy().board, finished().board))
    assert "campaign shop-1: running for 2 min 0 s, 4 of 10 agents, 1 of 3 done, now at shop-1.1.1" in began
    assert "queue: ended: nothing is left to do (1 failed, 1 done), 8 of 100 agents, 1 min 40 s" in over


def test_of_many_that_ended_the_last_are_told_and_the_rest_counted() -> None:
    ended = board(*(at_rest(f"old-{n}", "Done", to_the_end()) for n in range(12)), *forty().board.missions)
    told = list(board_lines(ended))
    assert told[-1] == "And 2 more that ended before."
    assert "many-40: Task number 40" in told
