"""A long question is on every screen of 80 columns, to its last word."""

from __future__ import annotations

import asyncio
import re

import pytest
from msgspec.structs import replace

from capsule.core.board import Board
from capsule.core.decide import Decision, Move
from capsule.core.event import Event
from capsule.core.item import Blocked, Status
from capsule.core.signal import Verdict
from capsule.tui.run_view import LiveView, RunControls, Scope

from .boards import BACKLOG, Scene, at_rest, blocked, board, up_to
from .golden import lines_of
from .missions import PID, ended
from .stage import Play, play, until

TALL = (80, 60)
WORDS = [f"word{number}色" for number in range(80)]
QUESTION = " ".join(WORDS)


def parked() -> list[Event]:
    asks = Decision(Move.PARK, Verdict.BLOCKED, reason=QUESTION)
    return [*up_to("execute"), ended("execute", 60, claimed=Verdict.BLOCKED, decision=asks, summary="I need an answer")]


def asked() -> Board:
    return board(at_rest("WRK-002", "Delete old orders", parked()))


def has_the_question(lines: list[str]) -> bool:
    found = re.findall(r"word\d+色", "\n".join(lines))
    return any(found[start : start + len(WORDS)] == WORDS for start in range(len(found)))


@pytest.mark.promise("screens.eighty-columns")
def test_beside_the_list_of_items() -> None:
    items = tuple(
        replace(item, blocked=Blocked(Status.READY, QUESTION)) if item.id == "WRK-003" else item for item in BACKLOG
    )

    async def act(on: Play) -> None:
        await on.go_to("WRK-003")
        await on.until(lambda: has_the_question(lines_of(on.app)))

    play(Scene(blocked().board, replace(blocked().listing, items=items)), act, TALL)


@pytest.mark.promise("screens.eighty-columns")
def test_on_the_page_of_a_mission() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        await on.go_to("WRK-002")
        await on.press("enter")
        await on.until(lambda: len(on.app.screen_stack) > 1 and has_the_question(lines_of(on.app)))

    play(Scene(asked(), blocked().listing), act, TALL)


@pytest.mark.promise("screens.eighty-columns")
def test_in_the_live_view() -> None:
    app = LiveView(
        Scope(pid=PID, mission="WRK-002", run="", title="WRK-002"),
        RunControls(asked, lambda: False, lambda: "", lambda _: []),
        ours=True,
    )

    async def watch() -> None:
        async with app.run_test(size=TALL) as pilot:
            await until(pilot, lambda: has_the_question(lines_of(app)))

    asyncio.run(watch())
