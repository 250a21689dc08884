"""The dashboard in a browser: textual-serve's page and its way to talk to an app, behind a gate of our own.

textual-serve lets everybody in, shows what lies in its folders, loads a font from elsewhere and waits for an app as
long as that takes. Of it we use what is in the browser, and the conversation with an app; `admission` lets people in.
Each tab is a process (see `tab`), so that one that hangs is one tab's affair.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from socket import socket
from string import Template

import textual_serve
from aiohttp import WSCloseCode, WSMsgType, web
from aiohttp.http import HttpProcessingError
from textual_serve.app_service import AppService
from textual_serve.download_manager import DownloadManager

from capsule.tui.admission import Answer, Asked, Keys, Served, judge

MOST_TABS = 8
_STATICS = Path(textual_serve.__file__).with_name("static")
_TEMPLATES = Path(__file__).with_name("templates")
_GRACE = 1.0
_HEARTBEAT = 15.0
PATIENCE = 20.0
"""Seconds in which a visitor has to send a whole request, or the next one on the same connection."""
_LARGEST_PACKET = 1 << 24
_LARGEST_MESSAGE = 1 << 20
_LAST_WORDS = 4096
_CAUSE_AND_HINT = 2
# One of the two has left, or talks nonsense: either way the conversation is over.
_OVER = (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError, ValueError, KeyError)
_FONT_SIZE = "15"
_UNPRINTABLE = re.compile(r"[^\S\n]|[^\x20-\U0010ffff\n]|[\x7f-\x9f]")
_STATUS = {Answer.ONLY_LOOKING: 405}
_HARDENED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), clipboard-read=(), display-capture=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "Server": "capsule",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """`command` is started for each tab; `say` is told what a person should know."""

    keys: Keys
    served: Served
    command: Sequence[str]
    title: str
    say: Callable[[str], None]
    _tabs: set[web.WebSocketResponse] = field(default_factory=set)

    def serve(self, listening: socket) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP."""
        _say_faults_in_one_line(self.say)
        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=2 * _GRACE, keepalive_timeout=PATIENCE)
        await runner.setup()
        try:
            await web.SockSite(runner, listening).start()
            await stop.wait()
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        room = f"/{self.keys.room}"
        app.add_routes(
            [
                web.get(f"{room}/", self._page, allow_head=False),
                web.get(f"{room}/page.js", _script, allow_head=False),
                web.get(f"{room}/ws", self._tab, allow_head=False),
                web.static(f"{room}/static", _STATICS),
            ]
        )
        app.on_response_prepare.append(_harden)
        app.on_shutdown.append(self._close_tabs)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        asked = Asked(
            method=request.method,
            path=request.path,
            host=request.headers.get("Host", ""),
            origin=request.headers.get("Origin", ""),
            token=request.query.get("token"),
            cookie=request.cookies.get(self.keys.room),
            opens_a_socket="Upgrade" in request.headers or request.path.endswith("/ws"),
        )
        answer = judge(asked, self.keys, self.served)
        if answer is Answer.COME_IN:
            return await handler(request)
        if answer is Answer.GIVE_COOKIE:
            return self._welcome()
        return web.Response(status=_STATUS.get(answer, 403), text=f"{answer.value}\n")

    def _welcome(self) -> web.Response:
        """Give the cookie, named after the room: nobody on another port of this host can put another in its place."""
        room = self.keys.room
        response = web.Response(text=_filled("welcome.html", room=room), content_type="text/html")
        response.set_cookie(room, self.keys.cookie, path=f"/{room}/", httponly=True, samesite="Strict")
        return response

    async def _page(self, request: web.Request) -> web.Response:
        address = f"ws://{request.headers['Host']}/{self.keys.room}/ws"
        page = _filled("dashboard.html", title=self.title, socket=address, size=_FONT_SIZE)
        return web.Response(text=page, content_type="text/html")

    async def _tab(self, request: web.Request) -> web.WebSocketResponse:
        browser = web.WebSocketResponse(timeout=_GRACE, heartbeat=_HEARTBEAT, max_msg_size=_LARGEST_MESSAGE)
        await browser.prepare(request)
        if len(self._tabs) >= MOST_TABS:
            await browser.send_bytes(_shown(f"{MOST_TABS} dashboards are open already. Close one first."))
            await browser.close(code=WSCloseCode.TRY_AGAIN_LATER)
            return browser
        self._tabs.add(browser)
        dashboard = _Dashboard(self.command, browser, self.say)
        try:
            await dashboard.start(*_size(request.query.get("width"), request.query.get("height")))
            await _listen(browser, dashboard)
        finally:
            await dashboard.stop()
            self._tabs.discard(browser)
        return browser

    async def _close_tabs(self, _app: web.Application) -> None:
        await asyncio.gather(*(tab.close(code=WSCloseCode.GOING_AWAY) for tab in self._tabs), return_exceptions=True)


async def _listen(browser: web.WebSocketResponse, dashboard: AppService) -> None:
    """Pass on what a browser sends, which a page may have made up; ignore what is not understood."""
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


async def _script(_request: web.Request) -> web.FileResponse:
    return web.FileResponse(_TEMPLATES / "page.js")


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
    """A process that draws for one tab. It ends when its standard input does; where it does not, it is ended."""

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
        """Pass on what is drawn until one of the two is gone; then end the other."""
        process = self._process
        assert process and process.stdout and process.stderr
        words = asyncio.create_task(_last_words(process.stderr))
        try:
            with suppress(*_OVER):
                await self._hand_on(process.stdout)
            with suppress(*_OVER, TimeoutError):
                if await asyncio.wait_for(process.wait(), _GRACE) and (said := await asyncio.wait_for(words, _GRACE)):
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
        """Open addresses, and hand out no file: a page made of what an agent wrote would be one of ours."""
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
            await asyncio.wait_for(process.wait(), _GRACE)
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


def _filled(template: str, **values: str) -> str:
    text = (_TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute({name: escape(value) for name, value in values.items()})


async def _harden(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers; the host of a refused request is not repeated."""
    host = request.headers.get("Host", "") if response.status < 400 else "127.0.0.1"
    headers: Mapping[str, str] = {**_HARDENED, "Content-Security-Policy": _POLICY.format(host=host)}
    response.headers.update(headers)


def _say_faults_in_one_line(say: Callable[[str], None]) -> None:
    """Report faults by their kind alone: a log line may hold the address, and with it the token.

    That somebody sends what is no request is no fault of anybody here, and could be done a thousand times a second; so
    each kind is told once.
    """
    told: set[str] = set()

    class OneLine(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            fault = record.exc_info[0] if record.exc_info else None
            words = f"note: {record.name}: {fault.__name__ if fault else record.levelname}"
            if words not in told and not (fault and issubclass(fault, HttpProcessingError)):
                told.add(words)
                say(words)

    logging.getLogger().handlers[:] = [OneLine(logging.WARNING)]
