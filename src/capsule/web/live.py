"""Send changes to every open page.

Only changed parts of a page are rendered, once for all its viewers. A browser that does not read is dropped, and
connects again later.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping

from aiohttp import web
from yarl import URL

from capsule.core.board import Board
from capsule.web.admission import Session
from capsule.web.pages import Page
from capsule.web.reader import PULSE, Reader
from capsule.web.rendering import Renderer, sealed
from capsule.web.views import Views, board_news

MOST_STREAMS = 64
"""The most pages that get changes at the same time."""
HEARTBEAT = 15.0
PATIENCE = 20.0
"""Seconds for a browser to read what it is sent."""
NEWS_EVERY = 4.0
"""Seconds between two messages to a page."""


class Stream:
    """One open page."""

    def __init__(
        self, page: URL, seen: Mapping[str, str], request: web.Request, session: Session, out: web.StreamResponse
    ) -> None:
        """`page` is its path with its query, `seen` the digests of its parts."""
        self.page, self.session, self._request = page, session, request
        self._seen, self._out = dict(seen), out
        self._sent_at = time.monotonic()
        self._title: tuple[str, int] | None = None
        self._sending: asyncio.Task[None] | None = None
        self.over = asyncio.Event()

    @property
    def has_left(self) -> bool:
        return self._request.transport is None or self._request.transport.is_closing()

    def tell(self, page: Page, parts: Mapping[str, tuple[str, str]], news: str) -> None:
        """Send the missing parts, and a sign of life now and then. A slow one blocks no other."""
        if self._sending and not self._sending.done():
            return
        events = []
        for name, (html, mark) in parts.items():
            if self._seen.get(name) != mark:
                self._seen[name] = mark
                events.append(_event("part", {"id": name, "html": sealed(html, self.session)}))
        title = (page.title, page.waiting)
        if self._title and title != self._title:
            events.append(_event("title", {"title": page.title, "waiting": page.waiting}))
        self._title = title
        if news:
            events.append(_event("news", {"text": news}))
        if events or time.monotonic() - self._sent_at > HEARTBEAT:
            self._sending = asyncio.get_running_loop().create_task(self._send("".join(events) or ":\n\n"))

    async def _send(self, text: str) -> None:
        try:
            await asyncio.wait_for(self._out.write(text.encode()), PATIENCE)
            self._sent_at = time.monotonic()
        except (OSError, TimeoutError):
            self.over.set()


def _event(kind: str, data: Mapping[str, object]) -> str:
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


class Live:
    def __init__(self, views: Views, reader: Reader, renderer: Renderer) -> None:
        self._views, self._reader, self._renderer = views, reader, renderer
        self._streams: set[Stream] = set()
        self._task: asyncio.Task[None] | None = None
        self._board: Board | None = None
        self._news: list[str] = []
        self._told_at = float("-inf")

    @property
    def full(self) -> bool:
        return len(self._streams) >= MOST_STREAMS

    async def follow(self, stream: Stream) -> None:
        """Keep a page up to date until its browser leaves, or the server ends."""
        self._streams.add(stream)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._go_on())
        try:
            await stream.over.wait()
        finally:
            self._streams.discard(stream)

    def close(self) -> None:
        self._end_all()
        if self._task:
            self._task.cancel()

    def _end_all(self) -> None:
        for stream in self._streams:
            stream.over.set()

    async def _go_on(self) -> None:
        self._board = None
        try:
            while self._streams:
                began = time.monotonic()
                await self._once()
                await asyncio.sleep(max(0.05, PULSE - (time.monotonic() - began)))
        finally:
            self._end_all()  # after a fault browsers connect again, instead of waiting for ever

    async def _once(self) -> None:
        news = self._news_of((await self._reader.snapshot()).board)
        same: dict[URL, list[Stream]] = {}
        for stream in self._streams:
            if stream.has_left:
                stream.over.set()
            same.setdefault(stream.page, []).append(stream)
        for url, streams in same.items():
            page = await self._views.page(url.path.strip("/"), url.query)
            parts = {part.id: self._renderer.part(str(url), part) for part in page.parts}
            for stream in streams:
                stream.tell(page, parts, news)

    def _news_of(self, board: Board) -> str:
        """Return the messages for now, not too many at once."""
        if self._board is not None and board is not self._board:
            self._news += board_news(self._board, board)
        self._board = board
        if not self._news or time.monotonic() - self._told_at < NEWS_EVERY:
            return ""
        told, self._news, self._told_at = self._news, [], time.monotonic()
        more = f"; and {len(told) - 4} more" if len(told) > 4 else ""
        return "; ".join(told[:4]) + more
