"""Answer requests: admission, pages, forms."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import socket

from aiohttp import web
from aiohttp.http import HttpProcessingError
from yarl import URL

from capsule.pages.environment import HERE, render
from capsule.web.actions import WebActions
from capsule.web.admission import Answer, Asked, Keys, Served, Session, judge
from capsule.web.forms import LONGEST_TEXT, TOO_LONG, Faulty, command_line, stdin_of, tidy, words_of
from capsule.web.jobs import Jobs
from capsule.web.live import Live, Stream
from capsule.web.pages import Page
from capsule.web.reader import Reader
from capsule.web.rendering import Renderer
from capsule.web.terminal import GRACE, Terminal
from capsule.web.views import Views, missing

PATIENCE = 20.0
"""Seconds for a client to send a whole request, or the next one on the same connection."""
MOST_CONNECTIONS = 512
LARGEST_BODY = 4 * LONGEST_TEXT
"""A form encodes each special character as three."""
_ANEW = "Start `capsule dashboard --web` again."
_NOT_OURS = "This form is not of this session. Go back, reload the page, and try again."
_STATUS = {Answer.ONLY_LOOKING: 405}
_FILES = {
    "report.css": "text/css",
    "web.css": "text/css",
    "web.js": "text/javascript",
    "terminal.css": "text/css",
    "terminal.js": "text/javascript",
}
_HARDENED = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), clipboard-read=(), display-capture=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",  # with none at all, a browser hides the origin of a form
    "Server": "capsule",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_TERMINALS_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; font-src 'self'; img-src 'self' data:; "
    "connect-src 'self' ws://{host}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SESSION = web.RequestKey("session", Session)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Server:
    """`command` is started for each terminal; `say` prints messages for a person."""

    keys: Keys
    served: Served
    actions: WebActions
    command: Sequence[str]
    say: Callable[[str], None]

    def serve(self, listening: socket) -> None:
        """Serve until SIGINT, SIGTERM or SIGHUP."""
        _say_faults_in_one_line(self.say)
        asyncio.run(self._serve(listening))

    async def _serve(self, listening: socket) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, stop.set)
        runner = web.AppRunner(
            self._app(),
            access_log=None,
            shutdown_timeout=2 * GRACE,
            keepalive_timeout=PATIENCE,
        )
        await runner.setup()
        assert runner.server
        try:
            server = await loop.create_server(_Door(runner.server), sock=listening)
            await stop.wait()
            server.close()
        finally:
            await runner.cleanup()

    def _app(self) -> web.Application:
        room, title = f"/{self.keys.room}", self.actions.dashboard.name
        self._reader = Reader(self.actions.dashboard)
        self._jobs = Jobs(self.actions.dashboard, self._reader.forget_items)
        self._views = Views(self.actions, self._reader, self._jobs)
        self._renderer = Renderer(self.keys.room, title)
        self._live = Live(self._views, self._reader, self._renderer)
        terminal = Terminal(f"{room}/terminal", self.command, title, self.say)
        app = web.Application(middlewares=[self._admit], client_max_size=LARGEST_BODY)
        app.add_routes(
            [
                web.get(f"{room}/live", self._follow, allow_head=False),
                web.get(f"{room}/static/{{name}}", _file, allow_head=False),
                *terminal.routes(),
                web.get(f"{room}/{{path:.*}}", self._page, allow_head=False),
                web.post(f"{room}/command/{{verb}}", self._command),
                web.post(f"{room}/answer/{{item}}/{{verb}}", self._answer),
                web.post(f"{room}/preview/command/{{verb}}", self._preview_command),
                web.post(f"{room}/preview/answer/{{item}}/{{verb}}", self._preview_answer),
                web.post(f"{room}/another-browser", self._another_browser),
            ]
        )
        app.on_response_prepare.append(_harden)
        app.on_shutdown.append(self._close)
        app.on_shutdown.append(terminal.close)
        return app

    async def _close(self, _app: web.Application) -> None:
        self._live.close()

    # ---- admission

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        site, mode = (request.headers.get(f"Sec-Fetch-{name}", "") for name in ("Site", "Mode"))
        cookie = request.cookies.get(self.keys.room)
        asked = Asked(
            method=request.method,
            path=request.path,
            host=request.headers.get("Host", ""),
            origin=request.headers.get("Origin", ""),
            token=request.query.get("token"),
            cookie=cookie,
            opens_a_socket="Upgrade" in request.headers or request.path.endswith("/ws"),
            built_in=site in ("same-site", "cross-site") and mode != "navigate",
        )
        answer = judge(asked, self.keys, self.served)
        if answer is Answer.GIVE_COOKIE:
            return self._welcome()
        session = self.keys.session(cookie)
        if answer is not Answer.COME_IN or session is None:
            return web.Response(status=_STATUS.get(answer, 403), text=f"{answer.value}\n")
        request[_SESSION] = session
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed:
            return self._html(request, missing("There is nothing to send to here.", 405))
        except web.HTTPRequestEntityTooLarge:
            return self._html(request, missing(f"That is more than {LONGEST_TEXT:,} characters.", 413))

    def _welcome(self) -> web.Response:
        """Set the cookie, named after the room: a server on another port of this host cannot replace it."""
        room, session = self.keys.room, self.keys.enter()
        response = web.Response(text=render("web/welcome.html", {"room": room}), content_type="text/html")
        response.set_cookie(room, session.cookie, path=f"/{room}/", httponly=True, samesite="Strict")
        return response

    async def _another_browser(self, request: web.Request) -> web.Response:
        """Make an address that opens once, for another browser."""
        if isinstance(sent := await self._sent(request), web.Response):
            return sent
        token = self.keys.renew()
        if not token:
            return self._html(request, missing(f"Too many browsers were let in. {_ANEW}", 403))
        words = f"Open this address once, in another browser: http://{request.headers['Host']}/?token={token}"
        return self._html(request, missing(words, 200))

    # ---- pages

    async def _page(self, request: web.Request) -> web.Response:
        return self._html(request, await self._views.page(request.match_info["path"].rstrip("/"), request.query))

    def _html(self, request: web.Request, page: Page) -> web.Response:
        path = request.path_qs.removeprefix(f"/{self.keys.room}/") if request.method == "GET" else ""
        html = self._renderer.page(path, self._views.framed(page), request[_SESSION])
        return web.Response(text=html, content_type="text/html", status=page.status)

    async def _follow(self, request: web.Request) -> web.StreamResponse:
        """Send the changes of a page while its stream is open."""
        if self._live.full:
            return web.Response(status=503, text="Too many pages are open.\n", headers={"Retry-After": "20"})
        try:
            page = URL(request.query.get("page", ""))
        except ValueError:
            return web.Response(status=400, text="There is no such page.\n")
        seen = request.query.get("seen", "")
        marks = dict(pair.split(":", 1) for pair in seen.split(",") if ":" in pair)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await self._live.follow(Stream(page, marks, request, request[_SESSION], response))
        return response

    # ---- forms

    async def _sent(self, request: web.Request) -> Mapping[str, list[str]] | web.Response:
        """Return the values of our form, or the response if it is invalid or was sent before."""
        try:
            data = await asyncio.wait_for(request.post(), PATIENCE)
        except TimeoutError:
            return web.Response(status=408, text="The request took too long.\n")
        fields: dict[str, list[str]] = {}
        for name, value in data.items():
            if isinstance(value, str):
                fields.setdefault(name, []).append(value)
        seal, form_id = fields.pop("seal", [""])[0], fields.pop("form", [""])[0]
        seals = request[_SESSION].seals
        if not seals.is_ours(seal, form_id):
            return self._html(request, missing(_NOT_OURS, 403))
        if led_to := seals.sent(form_id):
            return _lead(led_to)
        if seals.used_up:
            return self._html(request, missing(f"This session has sent too much. {_ANEW}", 403))
        request[_FORM] = form_id
        return fields

    async def _command(self, request: web.Request) -> web.Response:
        if isinstance(sent := await self._sent(request), web.Response):
            return sent
        verb, form = request.match_info["verb"], self.actions.forms.get(request.match_info["verb"])
        if form is None:
            return self._html(request, missing(f"There is no command {verb} here."))
        try:
            words = words_of(form, sent)
        except Faulty as fault:
            return self._html(request, self._views.command(verb, sent, str(fault)))
        if "show" in sent:
            return self._html(request, self._views.command(verb, sent, line=command_line(words)))
        return self._begin(request, words, stdin_of(form, sent), starts=form.starts)

    async def _answer(self, request: web.Request) -> web.Response:
        if isinstance(sent := await self._sent(request), web.Response):
            return sent
        item, verb = request.match_info["item"], request.match_info["verb"]
        await self._reader.snapshot()
        question = self._views.question(item)
        answer = next((each for each in question.answers if each.verb == verb), None) if question else None
        if question is None or answer is None:
            return self._html(request, missing(f"{item} does not wait for that any more."))
        text = tidy("".join(sent.get("text", [])))
        fault = ""
        if answer.required and not text:
            fault = f"{answer.label}: write a text first."
        if len(text.encode()) > LONGEST_TEXT:
            fault = f"{answer.label}: {TOO_LONG}"
        words = answer.with_text(text)
        if fault or "show" in sent:
            line = "" if fault else command_line(words)
            return self._html(request, self._views.answer(question, verb, text, fault, line))
        form = self.actions.forms.get(words[0])
        return self._begin(request, words, starts=bool(form and form.starts))

    def _begin(self, request: web.Request, words: Sequence[str], stdin: str = "", *, starts: bool) -> web.Response:
        """Run the shown command, and redirect to its result; from now on the form leads there, too."""
        if self._jobs.busy:
            return self._html(request, missing("Too many commands are under way. Wait for one to end.", 503))
        job = self._jobs.begin(words, stdin, starts=starts)
        led_to = f"/{self.keys.room}/done/{job.name}"
        request[_SESSION].seals.remember(request[_FORM], led_to)
        return _lead(led_to)

    async def _preview_command(self, request: web.Request) -> web.Response:
        form = self.actions.forms.get(request.match_info["verb"])
        data = await asyncio.wait_for(request.post(), PATIENCE)
        values = {name: [str(value) for value in data.getall(name)] for name in data}
        try:
            return web.Response(text=command_line(words_of(form, values)) if form else "")
        except Faulty:
            return web.Response(text="")

    async def _preview_answer(self, request: web.Request) -> web.Response:
        question = self._views.question(request.match_info["item"])
        data = await asyncio.wait_for(request.post(), PATIENCE)
        verb, text = request.match_info["verb"], tidy(str(data.get("text", "")))
        for answer in question.answers if question else ():
            if answer.verb == verb:
                return web.Response(text=command_line(answer.with_text(text)) if text else answer.command)
        return web.Response(text="")


_FORM = web.RequestKey("form", str)


class _Door:
    """Accept so many connections at a time; close others at once."""

    def __init__(self, server: web.Server) -> None:
        self._server = server

    def __call__(self) -> asyncio.Protocol:
        return self._server() if len(self._server.connections) < MOST_CONNECTIONS else _Closed()


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _lead(where: str) -> web.Response:
    return web.Response(status=303, headers={"Location": where})


async def _file(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    if name not in _FILES:
        return web.Response(status=404, text="There is no such file.\n")
    return web.Response(text=_text_of(HERE / name), content_type=_FILES[name], charset="utf-8")


@cache
def _text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


async def _harden(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers; the host of a refused request is not repeated."""
    in_terminal = len(parts := request.path.split("/")) > 2 and parts[2] == "terminal"
    host = request.headers.get("Host", "") if response.status < 400 else "127.0.0.1"
    policy = _TERMINALS_POLICY.format(host=host) if in_terminal else _POLICY
    response.headers.update({**_HARDENED, "Content-Security-Policy": policy})


def _say_faults_in_one_line(say: Callable[[str], None]) -> None:
    """Report faults by their kind alone: a log line may hold the address, and with it the token.

    Invalid requests are not our fault, and may come a thousand times a second; so each kind is reported once.
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
