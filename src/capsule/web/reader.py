"""The shared reader of all pages: reads journal and tracker once for all viewers."""

from __future__ import annotations

import asyncio
import time
from functools import cached_property

import msgspec

from capsule.actions import DashboardActions, Listing
from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.history import MissionSummary
from capsule.core.inbox import Question, inbox
from capsule.core.item import Item
from capsule.core.outline import OutlineEntry, outline
from capsule.web.threads import Crew

PULSE = 0.5
"""Seconds between two reads of the journal while a page is open."""
_LISTED_EVERY = 5.0
"""Seconds between two reads of the tracker, if no mission has changed its status."""
_SHARE = 10
"""A slow tracker is read so rarely that it takes a tenth of the time."""


class Trouble(msgspec.Struct, frozen=True):
    message: str
    hint: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The project at one moment: the only changing input of pages."""

    number: int = 0
    """Increases with every visible change."""
    board: Board = Board()
    listing: Listing = Listing()
    questions: tuple[Question, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    missions: dict[str, MissionSummary] = {}
    items: dict[str, Item] = {}

    @cached_property
    def entries(self) -> list[OutlineEntry]:
        return outline(self.listing.items, self.board, by_status=self.listing.by_status)


class Reader:
    def __init__(self, actions: DashboardActions) -> None:
        self._actions = actions
        self._crew = Crew("reader")
        self._now = Snapshot()
        self._looked_at = self._listed_at = float("-inf")
        self._listing: Listing | None = None
        self._listing_trouble: Trouble | None = None
        self._pause = 0.0
        self._looking: asyncio.Task[Snapshot] | None = None
        self._is_old = True
        self._seen: tuple[object, ...] = ()

    def forget_items(self) -> None:
        """Read the tracker again, after a command."""
        self._is_old = True

    @property
    def last(self) -> Snapshot:
        """Return the last snapshot."""
        return self._now

    async def snapshot(self, oldest: float = PULSE) -> Snapshot:
        """Return the current state, at most so many seconds old."""
        if self._looking is None:
            if not self._is_old and time.monotonic() - self._looked_at < oldest:
                return self._now
            self._looking = asyncio.get_running_loop().create_task(self._crew.do(self._look))
            self._looking.add_done_callback(self._has_looked)
        return await asyncio.shield(self._looking)

    def _has_looked(self, _task: asyncio.Task[Snapshot]) -> None:
        self._looking = None

    def _look(self) -> Snapshot:
        began, trouble = time.monotonic(), []
        old, self._is_old = self._is_old, False
        try:
            board = self._actions.look()
        except CapsuleError as fault:
            board, trouble = self._now.board, [Trouble(fault.message, fault.hint)]
        standing = {view.mission: view.status for view in board.missions}
        before = {view.mission: view.status for view in self._now.board.missions}
        if old or standing != before or began - self._listed_at > max(_LISTED_EVERY, self._pause):
            self._list()
        listing = self._listing or Listing()
        if self._listing_trouble:
            trouble.append(self._listing_trouble)
        key = (*_key(board), listing, tuple(trouble))
        if key != self._seen or not self._now.number:
            self._seen = key
            self._now = Snapshot(
                number=self._now.number + 1,
                board=board,
                listing=listing,
                questions=inbox(board, None if self._listing_trouble else listing.items),
                trouble=tuple(trouble),
                missions={view.mission: view for view in board.missions},
                items={item.id: item for item in listing.items},
            )
        self._looked_at = time.monotonic()
        return self._now

    def _list(self) -> None:
        began = time.monotonic()
        try:
            self._listing, self._listing_trouble = self._actions.items(), None
        except CapsuleError as fault:
            self._listing_trouble = Trouble(fault.message, fault.hint)
        self._listed_at = time.monotonic()
        self._pause = _SHARE * (self._listed_at - began)


def _key(board: Board) -> tuple[object, ...]:
    """Return a key that changes when a page must change: without the time, which pages count themselves."""
    return (
        tuple(mission_key(view) for view in board.missions),
        tuple((run.stream, run.last, run.pid, run.ended is None) for run in board.runs),
        tuple((each.branch, each.at_it, each.places, each.cars, len(each.train.turns)) for each in board.merges),
    )


def mission_key(view: MissionSummary) -> tuple[object, ...]:
    """Return a key that changes with a mission, but not with time alone."""
    parts = tuple(mission_key(part) for part in view.parts)
    return (view.mission, view.starts, view.events, view.status, view.sentence, view.pid, view.doing, view.last, parts)
