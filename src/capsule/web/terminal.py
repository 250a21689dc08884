"""The dashboard of the terminal in a browser: textual-serve's page and its way to talk to an app.

textual-serve accepts every client, serves its folders, loads a font from elsewhere and waits for an app without a
limit. We only use its files for the browser, and its protocol with an app; clients were admitted before. Each tab is a
process (see `capsule.tui.tab`), so that one that hangs affects only its own tab.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import textual_serve
from aiohttp import WSCloseCode, WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from capsule.pages.environment import render

MOST_TABS = 8
_STATICS = Path(textual_serve.__file__).with_name("static")
GRACE = 1.0
_HEARTBEAT = 15.0
_LARGEST_PACKET = 1 << 24
_LARGEST_MESSAGE = 1 << 20
_LAST_WORDS = 4096
_CAUSE_AND_HINT = 2
# One side has left, or breaks the protocol: either way the connection is over.
_OVER = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError, KeyError)
_FONT_SIZE = "15"
_UNPRINTABLE = re.compile(r"[^\S\n]|[^\x20-\U0010ffff\n]|[\x7f-\x9f]")


class Terminal:
    """`command` is started for each tab; `say` is told what a person should know."""

    def __init__(self, path: str, command: Sequence[str], title: str, say: Callable[[str], None]) -> None:
        self._path, self._command, self._title, self._say = path, command, title, say
        self._tabs: set[web.WebSocketResponse] = set()

    def routes(self) -> list[web.AbstractRouteDef]:
        return [
            web.get(f"{self._path}/", self._page, allow_head=False),
            web.get(f"{self._path}/ws", self._tab, allow_head=False),
            web.static(f"{self._path}/static", _STATICS),
        ]

    async def close(self, _app: web.Application) -> None:
        await asyncio.gather(*(tab.close(code=WSCloseCode.GOING_AWAY) for tab in self._tabs), return_exceptions=True)

    async def _page(self, request: web.Request) -> web.Response:
        address = f"ws://{request.headers['Host']}{self._path}/ws"
        page = render("web/terminal.html", {"title": self._title, "socket": address, "size": _FONT_SIZE})
        return web.Response(text=page, content_type="text/html")

    async def _tab(self, request: web.Request) -> web.WebSocketResponse:
        browser = web.WebSocketResponse(timeout=GRACE, heartbeat=_HEARTBEAT, max_msg_size=_LARGEST_MESSAGE)
        await browser.prepare(request)
        if len(self._tabs) >= MOST_TABS:
            await browser.send_bytes(_shown(f"{MOST_TABS} dashboards are open already. Close one first."))
            await browser.close(code=WSCloseCode.TRY_AGAIN_LATER)
            return browser
        self._tabs.add(browser)
        dashboard = _Dashboard(self._command, browser, self._say)
        try:
            await dashboard.start(*_size(request.query.get("width"), request.query.get("height")))
            await _listen(browser, dashboard)
        finally:
            await dashboard.stop()
            self._tabs.discard(browser)
        return browser


async def _listen(browser: web.WebSocketResponse, dashboard: AppService) -> None:
    """Pass on a browser's messages, which a page may have forged; ignore unknown ones."""
    async for message in browser:
        match _envelope(message.data) if message.type is WSMsgType.TEXT else None:
            case ["stdin", str(typed)]:
                await dashboard.send_bytes(typed.encode(errors="replace"))
            case ["resize", {"width": width, "height": height}]:
                await dashboard.set_terminal_size(*_size(width, height))
            case ["ping", str(when)]:
                await browser.send_json(["pong", when])
            case ["focus"]:
                await dashboard.focus()
            case ["blur"]:
                await dashboard.blur()


def _envelope(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _size(width: object, height: object) -> tuple[int, int]:
    return _within(width, 20, 80, 500), _within(height, 5, 24, 200)


def _within(asked: object, least: int, usual: int, most: int) -> int:
    try:
        return max(least, min(int(str(asked)), most))
    except ValueError:
        return usual


class _Dashboard(AppService):
    """A process that draws for one tab. It ends with its standard input, or is ended."""

    def __init__(self, command: Sequence[str], browser: web.WebSocketResponse, say: Callable[[str], None]) -> None:
        super().__init__(
            command[0],
            write_bytes=browser.send_bytes,
            write_str=browser.send_str,
            close=self._close_browser,
            download_manager=DownloadManager(),
        )
        self._argv, self._browser, self._say = command, browser, say

    async def _open_app_process(self, width: int = 80, height: int = 24) -> asyncio.subprocess.Process:
        self._process = await asyncio.create_subprocess_exec(
            *self._argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._build_environment(width, height),
            start_new_session=True,  # Ctrl-C is for the server
        )
        self._stdin = self._process.stdin
        return self._process

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        return {
            **os.environ,
            "TEXTUAL_DRIVER": "textual.drivers.web_driver:WebDriver",
            "TEXTUAL_COLOR_SYSTEM": "truecolor",
            "COLUMNS": str(width),
            "ROWS": str(height),
        }

    async def run(self) -> None:
        """Pass on the output until one side is gone; then end the other."""
        process = self._process
        assert process and process.stdout and process.stderr
        words = asyncio.create_task(_last_words(process.stderr))
        try:
            with suppress(*_OVER):
                await self._hand_on(process.stdout)
            with suppress(*_OVER, TimeoutError):
                if await asyncio.wait_for(process.wait(), GRACE) and (said := await asyncio.wait_for(words, GRACE)):
                    self._say(said)
                    await self._browser.send_bytes(_shown(said))
        finally:
            words.cancel()
            await self._close_browser()

    async def _hand_on(self, drawn: asyncio.StreamReader) -> None:
        await drawn.readuntil(b"__GANGLION__\n")
        while True:
            kind = await drawn.readexactly(1)
            size = int.from_bytes(await drawn.readexactly(4), "big")
            if size > _LARGEST_PACKET:
                raise ValueError(size)
            payload = await drawn.readexactly(size)
            if kind == b"D":
                await self.on_data(payload)
            elif kind == b"M":
                await self.on_meta(payload)

    async def on_meta(self, data: bytes) -> None:
        """Open addresses, but serve no file: a page by an agent would have our origin."""
        match json.loads(data):
            case {"type": "open_url", "url": str(url)} if url.startswith(("http://", "https://")):
                await super().on_meta(data)

    async def _close_browser(self) -> None:
        await self._browser.close()

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin:
            process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), GRACE)
        except TimeoutError:
            process.kill()
            await process.wait()
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def _last_words(errors: asyncio.StreamReader) -> str:
    """Return the end of a process's stderr, without control characters. Read all, so that the process never blocks."""
    kept = b""
    while more := await errors.read(_LAST_WORDS):
        kept = (kept + more)[-_LAST_WORDS:]
    lines = _UNPRINTABLE.sub(" ", kept.decode(errors="replace")).strip().splitlines()
    return "\n".join(lines[-_CAUSE_AND_HINT:])


def _shown(words: str) -> bytes:
    """Clear the terminal, and show these words."""
    return f"\x1b[?1049l\x1b[2J\x1b[H{words}".replace("\n", "\r\n").encode()
