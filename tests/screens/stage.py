"""The dashboard on a stage: boards and items as values, everything it does written down, and keys pressed by a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from textual.pilot import Pilot

from capsule.core.board import Board
from capsule.tui.dashboard import Dashboard
from capsule.tui.details import MissionScreen
from capsule.tui.hands import Details, Hands, Listing, Said, Started
from capsule.tui.rows import Rows
from tests.costs import LONG

from .boards import Scene

SMALL, LARGE = (80, 24), (160, 50)
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
        self.answer = Said(0, "Done as asked.")
        self.did: list[list[str]] = []
        self.began: list[list[str]] = []
        self.stopped: list[tuple[str, int]] = []
        self.asked: list[str] = []
        self.ended = asyncio.Event()

    def hands(self) -> Hands:
        return Hands(
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

    def _do(self, words: Sequence[str]) -> Said:
        self.did.append(list(words))
        return self.answer

    def _start(self, words: Sequence[str]) -> Started:
        self.began.append(list(words))
        return Started(4321, lambda: self.answer)

    def _stop(self, stream: str, pid: int) -> Said:
        self.stopped.append((stream, pid))
        return self.answer


class Play:
    """A test's hands and eyes."""

    def __init__(self, app: Dashboard, pilot: Pilot[None], stage: Stage) -> None:
        self.app, self.pilot, self.stage = app, pilot, stage

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def until(self, promise: Callable[[], object]) -> None:
        deadline = time.monotonic() + LONG
        while time.monotonic() < deadline:
            await self.pilot.pause()
            if promise():
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"it never came to that; the screen:\n{self.text}")

    async def shows(self, *words: str) -> None:
        await self.until(lambda: all(word in self.text for word in words))

    async def at_rest(self) -> None:
        """Until two looks at the screen show the same."""
        before = ""
        while before != self.text:
            before = self.text
            await self.pilot.pause(0.05)

    def read_items_now(self) -> None:
        self.app._read_at = 0.0

    async def go_to(self, key: str) -> None:
        self.rows.put_cursor(key)
        await self.until(lambda: self.rows.key == key)

    @property
    def rows(self) -> Rows:
        return self.app.screen_stack[0].query_one(f"#{self.app.desk.view}", Rows)

    @property
    def mission_screen(self) -> MissionScreen:
        assert isinstance(self.app.screen, MissionScreen)
        return self.app.screen

    @property
    def text(self) -> str:
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip) for strip in strips)

    @property
    def toasts(self) -> list[str]:
        return [f"{note.title} {note.message}" for note in self.app._notifications]


def play(scene: Scene, act: Callable[[Play], Awaitable[None]], size: tuple[int, int] = SMALL) -> None:
    """Opens the dashboard, waits until it shows the scene, and acts."""

    async def through() -> None:
        stage = Stage(scene)
        app = Dashboard(stage.hands())
        async with app.run_test(size=size) as pilot:
            on_stage = Play(app, pilot, stage)
            first = scene.listing.items[0].id if not scene.listing.by_status else "WRK-001"
            await on_stage.shows(first)
            await act(on_stage)

    asyncio.run(through())
