"""The terminal in a browser: what becomes of the processes behind it, and what nobody gets to see."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import urljoin

import aiohttp
import pytest

from capsule.commands.web import CannotServe, listen
from capsule.pages.environment import HERE
from capsule.web.admission import Answer
from capsule.web.server import PATIENCE
from capsule.web.terminal import MOST_TABS

from ..conftest import Repo
from ..costs import LONG, eventually
from .served import Server, serving, started

pytestmark = pytest.mark.slow

# A dashboard that says who it is and what it is told, in the words that Textual's web driver uses.
_TALKER = r"""
import os, sys
def draw(text):
    sys.stdout.buffer.write(b"D" + len(text.encode()).to_bytes(4, "big") + text.encode())
    sys.stdout.buffer.flush()
sys.stdout.buffer.write(b"__GANGLION__\n")
draw("I am %d, %s by %s." % (os.getpid(), os.environ["COLUMNS"], os.environ["ROWS"]))
while head := sys.stdin.buffer.read(5):
    told = sys.stdin.buffer.read(int.from_bytes(head[1:], "big")).decode()
    if told == "fail":
        sys.exit("capsule: it does not work.\n  \x1b[31mDo something else.")
    draw("I was told %s." % told)
"""
_DEAF = _TALKER.partition("while head")[0] + "import time\nwhile True: time.sleep(1)\n"
_TEXTUAL = """
from capsule.tui import tab
tab.begin()
import os
from textual.app import App
from textual.widgets import Static
class Small(App):
    def compose(self):
        yield Static("I am %d, told by %s." % (os.getpid(), sorted(n for n in os.environ if n.startswith("TEXTUAL"))))
Small().run()
"""
_IMPATIENT = "from capsule.web import server; server.PATIENCE = 1.0"
_PID = re.compile(r"I am (\d+)")

Got = TypeVar("Got")


@contextmanager
def _served(
    folder: Path, app: str, host: str = "127.0.0.1", *, own_modules: bool = False, before: str = ""
) -> Iterator[Server]:
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder / "<a>")], check=True)
    flags = ("-P",) if own_modules else ("-S", "-E")
    with started(
        serving(sys.executable, *flags, "-c", app, host=host, before=before), folder / "<a>", folder
    ) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with _served(tmp_path_factory.mktemp("served"), _TALKER) as server:
        yield server


class Tab:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket, self.seen = socket, ""

    async def until(self, text: str) -> str:
        while text not in self.seen:
            message = await self.socket.receive(LONG)
            assert message.type is aiohttp.WSMsgType.BINARY, f"{message} after {self.seen}"
            self.seen += message.data.decode()
        return self.seen

    async def pid(self) -> int:
        found = _PID.search(await self.until("."))
        assert found
        return int(found[1])


def _in_tabs(
    server: Server, act: Callable[..., Awaitable[Got]], *, tabs: int = 1, query: str = "", **headers: str
) -> Got:
    """What is done in so many tabs, and comes of it."""

    async def open_and_act() -> Got:
        room, cookie = server.enter()
        address = f"ws://{server.host}{room}terminal/ws{query}"
        asked = {"Origin": f"http://{server.host}", **cookie, **headers}
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(aiohttp.ClientSession())
            sockets = [await stack.enter_async_context(session.ws_connect(address, headers=asked)) for _ in range(tabs)]
            return await act(*map(Tab, sockets))

    return asyncio.run(open_and_act())


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] in "ZX"


# ---- a server, and whoever asks it


@pytest.mark.promise("screens.address")
@pytest.mark.parametrize(
    "path", ["/", "/ws", "/static/", "/static/js/textual.js", "/download/1", "/?token=guess", "//"]
)
def test_without_the_address_that_was_printed_there_is_one_line_and_nothing_else(server: Server, path: str) -> None:
    response, text = server.ask(path)
    assert (response.status, text) == (403, f"{Answer.NO_KEY.value}\n")
    assert "Set-Cookie" not in response.headers


def test_the_token_is_changed_into_a_cookie_that_no_other_port_and_no_script_sees(server: Server) -> None:
    room, cookie = server.enter()
    address = re.search(
        r"/\?token=[\w-]+", server.send("another-browser", server.form("commands", "another-browser"))[1]
    )
    assert address
    response, page = server.ask(address[0])
    assert response.status == 200
    assert not str(response.headers["Set-Cookie"]).startswith(cookie["Cookie"])
    assert set(str(response.headers["Set-Cookie"]).split("; ")[1:]) == {"HttpOnly", f"Path={room}", "SameSite=Strict"}
    assert server.token not in page + str(response.headers)
    assert server.ask(room)[0].status == 403


@pytest.mark.promise("screens.address")
def test_a_stolen_address_opens_nothing_once_it_was_opened(server: Server) -> None:
    server.enter()
    response, text = server.ask(f"/?token={server.token}")
    assert (response.status, text) == (403, f"{Answer.NO_KEY.value}\n")
    assert "Set-Cookie" not in response.headers


def test_whoever_is_in_the_room_gets_page_and_files_but_no_listing(server: Server) -> None:
    room, cookie = server.enter()
    room += "terminal/"
    response, page = server.ask(room, **cookie)
    assert response.status == 200
    assert f'data-session-websocket-url="ws://{server.host}{room}ws"' in page
    assert "<title>&lt;a&gt; · Capsule</title>" in page
    assert 'rel="icon" href="data:,"' in page, "a slow browser asks for one elsewhere"
    files = re.findall(r'(?:src|href)="([\w./]+\w)"', page)
    files += re.findall(r'url\("([^"]+)"\)', server.ask(urljoin(room, files[1]), **cookie)[1])
    assert len(files) == 6
    assert {server.ask(urljoin(room, file), **cookie)[0].status for file in files} == {200}
    lists_nothing = {server.ask(room + folder, **cookie)[0].status for folder in ("static/", "static/js/", "static")}
    assert lists_nothing <= {403, 404}


@pytest.mark.promise("screens.self-contained")
def test_nothing_is_loaded_from_elsewhere(server: Server) -> None:
    """The protocol of the socket is the page's own; a template that names a host would be another matter."""
    files = [*(HERE / "templates" / "web").iterdir(), *(HERE / name for name in ("web.js", "web.css", "terminal.css"))]
    for file in files:
        assert not re.search(r"https?:|//\w", file.read_text()), file
    room, cookie = server.enter()
    for path, hosts in (("", set()), ("terminal/", {f"ws://{server.host}"})):
        policy = str(server.ask(room + path, **cookie)[0].headers["Content-Security-Policy"])
        assert "default-src 'none'; script-src 'self'; " in policy
        assert ("unsafe" in policy) == bool(hosts)
        assert set(re.findall(r"\w+://[^\s;]+", policy)) == hosts


def test_every_answer_tells_the_browser_to_be_careful(server: Server) -> None:
    room, cookie = server.enter()
    for path in ("/", f"/?token={server.token}", room, f"{room}static/web.js", f"{room}terminal/", f"{room}nothing"):
        headers = server.ask(path, **cookie)[0].headers
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert "frame-ancestors 'none'" in str(headers["Content-Security-Policy"])
        assert not [name for name in headers if name.startswith("Access-Control")]


@pytest.mark.promise("screens.other-pages")
def test_a_name_that_is_made_to_lead_here_is_refused_even_with_the_token(server: Server) -> None:
    response, text = server.ask(f"/?token={server.token}", Host=f"evil.example:{server.port}")
    assert (response.status, text) == (403, f"{Answer.WRONG_HOST.value}\n")
    assert "evil" not in str(response.headers)


@pytest.mark.promise("screens.other-pages")
@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
def test_a_page_elsewhere_cannot_open_a_socket(server: Server, origin: str) -> None:
    async def nothing(_tab: Tab) -> None:
        raise AssertionError("it was opened")

    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        _in_tabs(server, nothing, Origin=origin)
    assert refused.value.status == 403


@pytest.mark.promise("screens.token")
def test_nonsense_is_survived_and_nothing_of_it_is_printed(server: Server) -> None:
    nonsense = (
        b"\0\xff\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET /%ff%00?token=%ff HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\n\r\n",
        b"GET http://evil/?token=%b HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" % server.token.encode(),
        b"GET /" + b"a" * 100_000,
    )
    before = server.errors()
    for words in nonsense:
        with socket.create_connection(("127.0.0.1", server.port), LONG) as connection:
            connection.sendall(words)
            connection.shutdown(socket.SHUT_WR)
            try:
                answer = connection.recv(100)
            except ConnectionResetError:
                answer = b""  # it was not even read to its end
            assert b" 200 " not in answer
    assert server.ask("/")[0].status == 403
    assert server.errors() == before
    assert before.startswith("Press Ctrl-C to stop serving; missions keep running.\n")


@pytest.mark.promise("screens.loopback")
def test_it_listens_on_loopback_and_nowhere_else(server: Server) -> None:
    assert server.name == "127.0.0.1"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", server.port), LONG)


@pytest.mark.promise("screens.loopback")
def test_beyond_loopback_only_when_asked_loudly_and_with_the_token(tmp_path: Path) -> None:
    with _served(tmp_path, _TALKER, "0.0.0.0") as server:
        with socket.create_connection(("127.0.0.2", server.port), LONG):
            assert server.ask("/", Host=f"127.0.0.2:{server.port}")[0].status == 403
        assert server.ask(f"/?token={server.token}", Host=f"127.0.0.2:{server.port}")[0].status == 200
        assert eventually(lambda: "WARNING: served beyond this machine (0.0.0.0)" in server.errors())


@pytest.mark.parametrize(
    ("host", "port", "cause"),
    [
        ("127.0.0.1", 70000, "There is no port 70000."),
        ("no such host", 0, "no such host is not an address of this machine."),
        ("192.0.2.1", 0, "192.0.2.1 is not an address of this machine."),
    ],
)
def test_where_nothing_can_be_served_is_said_with_what_to_do(host: str, port: int, cause: str) -> None:
    with pytest.raises(CannotServe) as refused:
        listen(host, port)
    assert refused.value.message == cause
    assert "--" in refused.value.hint


def test_a_busy_port_is_said_with_what_to_do(server: Server) -> None:
    with pytest.raises(CannotServe) as refused:
        listen("127.0.0.1", server.port)
    assert refused.value.message == f"Port {server.port} is in use on 127.0.0.1."
    assert "--port" in refused.value.hint


def test_the_dashboard_itself_is_served_and_a_second_one_is_told_that_the_port_is_taken(
    a_repo: Repo, tmp_path: Path
) -> None:
    a_repo.commit("backlog", BACKLOG__yaml="schema_version: 1\nitems:\n- {id: WRK-001, title: Answer, status: new}\n")
    words = [sys.executable, "-m", "capsule", "dashboard", "--web", "--project-dir", str(a_repo.path)]
    with started(words, tmp_path, tmp_path) as server:

        async def see_the_item(tab: Tab) -> bool:
            return "WRK-001" in await tab.until("Answer")

        again = subprocess.Popen(
            [*words, "--port", str(server.port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert _in_tabs(server, see_the_item)
        out, err = again.communicate(timeout=LONG)
    assert (again.returncode, out) == (2, "")
    assert re.fullmatch(r"capsule: Port \d+ is in use on 127\.0\.0\.1\.\n  .*--port.*\n", err)


# ---- tabs, and the processes behind them


def test_what_is_typed_arrives_and_what_is_not_understood_does_not(server: Server) -> None:
    async def talk(tab: Tab) -> str:
        assert "20 by 200." in await tab.until(".")
        for nonsense in ("{", "[]", '["stdin", 7]', '["resize", []]', "[" * 5000, '["stop"]', "null"):
            await tab.socket.send_str(nonsense)
        await tab.socket.send_bytes(b"\0")
        await tab.socket.send_json(["resize", {"width": 10**12, "height": "x"}])
        await tab.socket.send_json(["stdin", "ü"])
        return await tab.until("told ü.")

    seen = _in_tabs(server, talk, query="?width=-1&height=1000000")
    assert re.findall(r"told (.*?)\.(?=I|$)", seen) == ['{"type": "resize", "width": 500, "height": 24}', "ü"]


def test_a_dashboard_that_fails_leaves_its_words_in_the_tab_and_here(server: Server) -> None:
    async def fail(tab: Tab) -> str:
        await tab.until(".")
        await tab.socket.send_json(["stdin", "fail"])
        seen = await tab.until("else.")
        assert (await tab.socket.receive(LONG)).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)
        return seen

    before = server.errors()
    seen = _in_tabs(server, fail)
    assert seen.endswith("capsule: it does not work.\r\n   [31mDo something else.")
    said = "capsule: it does not work.\n   [31mDo something else.\n"
    assert eventually(lambda: server.errors().removeprefix(before) == said)


@pytest.mark.promise("screens.tabs")
def test_a_closed_tab_is_one_process_less_and_only_so_many_are_opened(server: Server) -> None:
    async def pids(*tabs: Tab) -> list[int]:
        return [await tab.pid() for tab in tabs]

    async def one_too_many(*tabs: Tab) -> list[int]:
        last = await tabs[-1].until(".")
        assert last.endswith(f"{MOST_TABS} dashboards are open already. Close one first.")
        return await pids(*tabs[:-1])

    async def opens(tab: Tab) -> bool:
        return "I am" in await tab.until(".")

    gone = _in_tabs(server, one_too_many, tabs=MOST_TABS + 1)
    assert len(set(gone)) == MOST_TABS
    assert eventually(lambda: all(map(_is_gone, gone)))
    assert eventually(lambda: _in_tabs(server, opens))


def test_a_tab_that_does_not_listen_is_ended_and_the_server_with_it(tmp_path: Path) -> None:
    with _served(tmp_path, _DEAF) as server:

        async def terminate(tab: Tab) -> int:
            pid = await tab.pid()
            server.process.send_signal(signal.SIGTERM)
            await tab.socket.receive(LONG)
            return pid

        pid = _in_tabs(server, terminate)
        assert server.process.wait(LONG) == 0
        assert _is_gone(pid)


Killed = tuple[str, int, list[str], str]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A real Textual app in a tab: what it drew, who it was, what anybody can read of it; then its server is killed."""
    with _served(tmp_path_factory.mktemp("killed"), _TEXTUAL, own_modules=True) as server:

        async def look_and_kill(tab: Tab) -> Killed:
            seen, pid = await tab.until("told by"), await tab.pid()
            about = [
                Path(f"/proc/{who}/{what}") for who in (pid, server.process.pid) for what in ("cmdline", "environ")
            ]
            readable = [file.read_bytes().decode(errors="replace") for file in about if file.exists()]
            server.process.kill()
            return seen, pid, readable, server.token

        return _in_tabs(server, look_and_kill)


@pytest.mark.promise("screens.tabs")
def test_a_server_that_is_killed_leaves_no_dashboard_behind(killed: Killed) -> None:
    assert eventually(lambda: _is_gone(killed[1]))


def test_what_is_started_from_a_tab_is_not_told_how_that_is_drawn(killed: Killed) -> None:
    assert "told by []." in killed[0]


@pytest.mark.promise("screens.token")
def test_the_token_is_in_no_command_line_and_no_environment(killed: Killed) -> None:
    _, _, readable, token = killed
    assert not [text for text in readable if token in text]


@pytest.mark.promise("screens.slow-visitors")
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
def test_a_visitor_that_never_ends_its_request_is_closed(tmp_path: Path, sent: bytes) -> None:
    with (
        _served(tmp_path, _TALKER, before=_IMPATIENT) as server,
        socket.create_connection(("127.0.0.1", server.port), LONG) as slow,
    ):
        slow.sendall(sent)
        assert slow.recv(1024) == b""
        assert server.ask(f"/?token={server.token}")[0].status == 200


def test_a_visitor_has_some_seconds_for_its_request() -> None:
    assert 5 <= PATIENCE <= 60
