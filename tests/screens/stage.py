"""The dashboard on a stage: boards and items as values, everything it does written down, and keys pressed by a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from textual.events import Key
from textual.pilot import Pilot

from capsule.actions import CommandResult, DashboardActions, Details, Listing, StartedRun
from capsule.core.board import Board
from capsule.tui.dashboard import Dashboard
from capsule.tui.dialogs import CommandOutput, Confirm
from capsule.tui.rows import Rows
from capsule.tui.screens import MissionScreen
from tests.costs import LONG

from . import golden
from .boards import Scene
from .golden import lines_of, picture

SMALL, LARGE = (80, 24), (160, 50)
PATIENCE = 20.0
"""Seconds until a picture that looks different is taken at its word."""
DETAILS = Details(
    changes=" src/prices.py | 2 +-",
    diff="--- a/src/prices.py\n+++ b/src/prices.py\n@@ -1 +1 @@\n-old [bold]\n+new\x1b[31m",
    worklog="# Worklog\n\nIt began [b]well[/b].",
    logs="==> execute#1 PASS 1.0 s\nI am done.\x1b[2J",
)


class Stage:
    """What the dashboard is handed. `did`, `began` and `stopped` are what it was asked to do."""

    def __init__(self, scene: Scene) -> None:
        self.board: Board | Exception = scene.board
        self.listing: Listing | Exception = scene.listing
        self.answer = CommandResult(0, "Done as asked.")
        self.did: list[list[str]] = []
        self.began: list[list[str]] = []
        self.stopped: list[tuple[str, int]] = []
        self.asked: list[str] = []

    def actions(self) -> DashboardActions:
        return DashboardActions(
            name="shop",
            look=self._look,
            items=self._items,
            details=self._details,
            do=self._do,
            start=self._start,
            stop=self._stop,
        )

    def _look(self) -> Board:
        if isinstance(self.board, Exception):
            raise self.board
        return self.board

    def _items(self) -> Listing:
        if isinstance(self.listing, Exception):
            raise self.listing
        return self.listing

    def _details(self, mission: str) -> Details:
        self.asked.append(mission)
        return DETAILS

    def _do(self, words: Sequence[str], _text: str) -> CommandResult:
        self.did.append(list(words))
        return self.answer

    def _start(self, words: Sequence[str]) -> StartedRun:
        self.began.append(list(words))
        return StartedRun(4321, lambda: self.answer)

    def _stop(self, stream: str, pid: int) -> CommandResult:
        self.stopped.append((stream, pid))
        return self.answer


class Remembering(Dashboard):
    """What it said is gone after seconds, which may be over before a test has looked: it is remembered."""

    def __init__(self, actions: DashboardActions) -> None:
        super().__init__(actions)
        self.told: list[str] = []

    def notify(self, message: str, *, title: str = "", **how: Any) -> None:
        self.told.append(f"{title} {message}")
        super().notify(message, title=title, **how)


async def until(pilot: Pilot[Any], promise: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while time.monotonic() < deadline:
        await pilot.pause()
        if promise():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to that; the screen:\n" + "\n".join(lines_of(pilot.app)))


async def looks_as(name: str, pilot: Pilot[Any]) -> None:
    """Some time: what is under way to the screen may be late, but what is there in the end is compared."""
    deadline = time.monotonic() + PATIENCE
    before, now = "", picture(pilot.app)
    while time.monotonic() < deadline and not (now == before if golden._UPDATE else is_golden(name, now)):
        await pilot.pause(0.05)
        before, now = now, picture(pilot.app)
    golden.assert_golden(name, now)


def is_golden(name: str, drawn: str) -> bool:
    file = golden.SNAPSHOTS / name
    return file.exists() and drawn == file.read_text()


class Play:
    """A test's hands and eyes."""

    def __init__(self, app: Remembering, pilot: Pilot[None], stage: Stage) -> None:
        self.app, self.pilot, self.stage = app, pilot, stage

    async def press(self, *keys: str) -> None:
        """What they lead to is waited for with `until`: a message may still be under way."""
        await self.pilot.press(*keys)

    async def confirm(self, key: str = "enter") -> None:
        await self.until(self.asks)
        await self.press(key)

    def burst(self, keys: Sequence[str]) -> None:
        """All at once, as from a paste or a script: nothing waits for what the key before has done."""
        for key in keys:
            name = {"/": "slash", "\r": "enter"}.get(key, key)
            self.app.post_message(Key(name, key))

    async def until(self, promise: Callable[[], object]) -> None:
        await until(self.pilot, promise)

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words))

    def asks(self) -> bool:
        """A question is drawn, and waits for its answer."""
        return isinstance(self.app.screen, Confirm) and self.app.screen.is_drawn

    def answers(self) -> bool:
        return isinstance(self.app.screen, CommandOutput) and self.app.screen.is_drawn

    def lists(self) -> bool:
        """Nothing lies above the lists."""
        return len(self.app.screen_stack) == 1 and self.app.focused is self.rows

    @property
    def asked_to_do_anything(self) -> bool:
        return bool(self.stage.did or self.stage.began or self.stage.stopped)

    def read_items_now(self) -> None:
        self.app._read_at = 0.0

    async def go_to(self, key: str) -> None:
        self.rows.put_cursor(key)
        await self.until(lambda: self.rows.key == key)

    @property
    def rows(self) -> Rows:
        return self.app.screen_stack[0].query_one(f"#{self.app.model.view}", Rows)

    @property
    def mission_screen(self) -> MissionScreen:
        assert isinstance(self.app.screen, MissionScreen)
        return self.app.screen

    @property
    def text(self) -> str:
        return "\n".join(lines_of(self.app))

    @property
    def toasts(self) -> list[str]:
        """All there ever were."""
        return self.app.told


def play(
    scene: Scene, act: Callable[[Play], Awaitable[None]], size: tuple[int, int] = SMALL, *, at: str = "items"
) -> None:
    """Opens the dashboard, waits until it shows the scene, goes to its items or stays `at` what needs you, and acts."""

    async def through() -> None:
        stage = Stage(scene)
        app = Remembering(stage.actions())
        async with app.run_test(size=size) as pilot:
            on_stage = Play(app, pilot, stage)
            await on_stage.until(lambda: app._settled)
            if at == "items":
                first = scene.listing.items[0].id if not scene.listing.by_status else "WRK-001"
                await on_stage.press("2")
                await on_stage.shows(first)
            await act(on_stage)

    asyncio.run(through())
