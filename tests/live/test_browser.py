"""The terminal in a real browser: an item is looked at, run and seen to be merged; whoever else comes is kept out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import UNSANDBOXED, Repo
from tests.costs import LONG, eventually
from tests.live.browser import Browser, browser
from tests.live.missions import SCRIPT
from tests.live.table import survivors

_PICTURES = Path(__file__).parents[2] / ".cache"
ITEM, TITLE = "demo-1.1.1", "Validate email format"
_MISSION = 300.0
"""Seconds in which a mission of the demo has ended on any machine."""


@pytest.fixture
def project(tmp_path: Path) -> Repo:
    (tmp_path / "home").mkdir()
    words = [sys.executable, "-m", "capsule", "setup-template", "--tracker=file", str(tmp_path / "project")]
    subprocess.run(words, env=_environment(tmp_path), check=True, capture_output=True)
    return Repo(tmp_path / "project")


def _environment(folder: Path, script: Path = SCRIPT) -> Mapping[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if name.startswith("GIT_")},
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        **UNSANDBOXED,
        "CAPSULE_AGENT": "scripted",
        "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(script)]),
    }


@contextmanager
def _served(project: Repo, script: Path = SCRIPT) -> Iterator[str]:
    """The address; afterwards the server is told to stop, and does, and leaves nobody behind."""
    with _started(project, script) as (server, address):
        yield address
        server.send_signal(signal.SIGINT)
        said = server.communicate(timeout=LONG)
        assert (server.returncode, said) == (0, ("", "Press Ctrl-C to stop serving; missions keep running.\n"))
        assert eventually(lambda: survivors(project.path.parent) == [])


@contextmanager
def _started(project: Repo, script: Path = SCRIPT) -> Iterator[tuple[subprocess.Popen[str], str]]:
    server = subprocess.Popen(
        [sys.executable, "-m", "capsule", "dashboard", "--web"],
        cwd=project.path,
        env=_environment(project.path.parent, script),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert server.stdout
        yield server, server.stdout.readline().removeprefix("Dashboard: ").strip()
    finally:
        server.kill()
        server.communicate()


@pytest.mark.promise("screens.browser")
def test_an_item_is_looked_at_run_and_merged_in_a_browser(chromium: Path, project: Repo, tmp_path: Path) -> None:
    with _served(project) as address, browser(chromium, tmp_path) as page:
        _open_terminal(page, address)
        page.until_it_shows(ITEM, TITLE)
        assert page.address() != address
        assert urlsplit(address).query not in page.address()

        _run_it(page)
        page.until_it_shows("merged into main", seconds=_MISSION)
        _keep("dashboard-in-a-browser.png", page.picture())
        assert _merges(project) == [f"Merge {ITEM}: {TITLE}"]

        elsewhere = [url for url in page.requests if urlsplit(url).netloc != urlsplit(address).netloc]
        assert (elsewhere, page.complaints) == ([], [])
        page.press("q")
        assert eventually(lambda: "has ended" in str(page.value("document.querySelector('.over').innerText")))


@pytest.mark.promise("screens.other-pages")
def test_no_other_page_gets_in_though_the_browser_has_the_key(chromium: Path, project: Repo, tmp_path: Path) -> None:
    with _served(project) as address, browser(chromium, tmp_path) as page, _another_page() as (other, seen):
        page.go(address.partition("?")[0])
        assert eventually(lambda: "without it this is closed" in str(page.value("document.body.innerText")))
        _open_terminal(page, address)
        page.until_it_shows(ITEM)
        room = page.address()

        page.go(other)
        assert eventually(lambda: page.value("document.title") == "another")
        assert seen
        assert not [headers for headers in seen if "Cookie" in headers]
        assert _said_in(page, f"new WebSocket('ws{room.removeprefix('http')}ws')") == "refused"
        assert _said_in(page, f"Object.assign(new XMLHttpRequest(), {{withCredentials: true}})|{room}") == "refused"


@pytest.mark.promise("screens.tabs")
def test_a_killed_server_takes_its_dashboards_along_and_no_mission(
    chromium: Path, project: Repo, tmp_path: Path
) -> None:
    with _started(project) as (server, address), browser(chromium, tmp_path) as page:
        _open_terminal(page, address)
        page.until_it_shows(ITEM)
        _run_it(page)
        page.until_it_shows("running at")
        server.kill()
        assert eventually(lambda: "has ended" in str(page.value("document.querySelector('.over').innerText")))
        assert eventually(lambda: not [one for one in survivors(tmp_path) if "dashboard" in one])
        assert eventually(lambda: _merges(project), _MISSION)
    assert eventually(lambda: survivors(tmp_path) == [], _MISSION)


def _open_terminal(page: Browser, address: str) -> None:
    page.go(address)
    assert eventually(lambda: page.value("!!document.querySelector('main')"))
    page.go(f"{page.address()}terminal/")


def _run_it(page: Browser) -> None:
    page.click(ITEM)
    page.press("r")
    page.until_it_shows(f"capsule run {ITEM}")
    page.click("OK")


def _merges(project: Repo) -> list[str]:
    return project.git("log", "--merges", "--format=%s", "main").splitlines()


def _said_in(page: Browser, expression: str) -> str:
    """What becomes of a socket, or of a request, that the page makes."""
    made, _, address = expression.partition("|")
    page.value(
        f"window.became = ''; window.made = {made};"
        "made.onopen = made.onload = () => { became = 'open' }; made.onerror = () => { became = 'refused' };"
        + (f"made.open('GET', '{address}'); made.send(); 0" if address else "0")
    )
    assert eventually(lambda: page.value("became"))
    return str(page.value("became"))


@contextmanager
def _another_page() -> Iterator[tuple[str, list[Mapping[str, str]]]]:
    """Of somebody else, on another port of this machine; and the headers that it is sent."""
    seen: list[Mapping[str, str]] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(dict(self.headers.items()))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>another</title>")

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", seen
        server.shutdown()
        thread.join()


def _keep(name: str, picture: bytes) -> None:
    """For whoever wants to see it; one with nothing on it would have nearly all rows alike."""
    _PICTURES.mkdir(parents=True, exist_ok=True)
    (_PICTURES / name).write_bytes(picture)
    assert len(set(_rows_of(picture))) > 100


def _rows_of(png: bytes) -> list[bytes]:
    """As they are packed: each row of pixels, told by the one above it."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    packed, position, height = b"", 8, 0
    while position < len(png):
        size, kind = int.from_bytes(png[position : position + 4], "big"), png[position + 4 : position + 8]
        body = png[position + 8 : position + 8 + size]
        height = int.from_bytes(body[4:8], "big") if kind == b"IHDR" else height
        packed += body if kind == b"IDAT" else b""
        position += 12 + size
    pixels = zlib.decompress(packed)
    length = len(pixels) // height
    return [pixels[start : start + length] for start in range(0, len(pixels), length)]
