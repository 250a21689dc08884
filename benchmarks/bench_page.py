"""What the page in a browser costs, with 300 items and 50 missions that run: bytes, time, and processor of the server.

Everything is the real program in a real project. Another process holds fifty missions and writes twenty events a
second, and lines into their live files; ten pages are open and are sent what changes.

- Bytes of each page, and the time until it is there.
- Processor seconds of the server per second: while nobody looks, and while ten pages are open.
- The first paint in Chromium, where there is one.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from bench_screens import CAPSULE, WRITER  # noqa: E402 - beside this one
from tests.live.browser import browser, found  # noqa: E402

ITEMS, MISSIONS, PER_SECOND, READERS = 300, 50, 20, 10
SECONDS = float(os.environ.get("SECONDS", "10"))
PAGES = ("", "board", "items", "item/many-01", "runs", "merges", "commands")
HEARD: list[int] = []
"""Bytes that the open pages were sent."""
ROOT = Path(__file__).parents[1]


class Page:
    """A server, and who was let in."""

    def __init__(self, project: Path) -> None:
        self.process = subprocess.Popen(
            [*CAPSULE, "dashboard", "--web"], cwd=project, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        said = re.search(r"http://([\d.]+):(\d+)(\S+)", self.process.stdout.readline())
        assert said
        self.host, self.port, self.token = said[1], int(said[2]), said[3]

    def enter(self) -> None:
        response, text = self.ask(self.token)
        room = re.search(r"url=(/[\w-]+/)", text)
        assert room
        self.room, self.cookie = room[1], str(response.headers["Set-Cookie"]).partition(";")[0]

    def ask(self, path: str, **headers: str) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.request("GET", path, headers={"Host": f"{self.host}:{self.port}", **headers})
        response = connection.getresponse()
        return response, response.read().decode()

    def seconds_used(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def share(self) -> float:
        before, began = self.seconds_used(), time.monotonic()
        time.sleep(SECONDS)
        return (self.seconds_used() - before) / (time.monotonic() - began)

    def follow(self, path: str) -> socket.socket:
        reader = socket.create_connection((self.host, self.port), 60)
        lines = f"GET {self.room}live?page={path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Cookie: {self.cookie}"
        reader.sendall("\r\n".join([*lines, "", ""]).encode())
        return reader


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="bench-page-") as folder:
        project = Path(folder) / "project"
        subprocess.run([*CAPSULE, "setup-template", "--tracker=file", str(project)], check=True, capture_output=True)
        beads = [
            {"id": f"many-{number:02}", "title": f"Task {number}", "status": "open"} for number in range(1, ITEMS + 1)
        ]
        (project / ".beads" / "issues.jsonl").write_text("".join(json.dumps(bead) + "\n" for bead in beads))
        words = [sys.executable, "-c", WRITER, str(ROOT), str(project), str(MISSIONS), str(PER_SECOND)]
        writer = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert writer.stdin and writer.stdout
        writer.stdout.readline()
        page = Page(project)
        try:
            page.enter()
            measure(page)
            writer.stdin.write("1000000\n")
            writer.stdin.flush()
            print(f"server, nobody looks: {100 * page.share():.1f} % of a processor")
            readers = [page.follow(PAGES[number % len(PAGES)]) for number in range(READERS)]
            for reader in readers:
                threading.Thread(target=drain, args=(reader,), daemon=True).start()
            time.sleep(2)
            before, share = sum(HEARD), page.share()
            told = (sum(HEARD) - before) / SECONDS / READERS / 1000
            print(
                f"server, {READERS} pages open, {PER_SECOND} events a second: {100 * share:.1f} %, {told:.0f} kB/s each"
            )
            in_chromium(page, Path(folder))
        finally:
            writer.kill()
            page.process.send_signal(signal.SIGINT)
            page.process.wait()


def drain(reader: socket.socket) -> None:
    while data := reader.recv(1 << 16):
        HEARD.append(len(data))


def measure(page: Page) -> None:
    for path in PAGES:
        took = []
        for _ in range(3):
            began = time.monotonic()
            _, text = page.ask(page.room + path, Cookie=page.cookie)
            took.append(time.monotonic() - began)
        print(f"/{path}: {len(text.encode()) / 1000:.0f} kB, {1000 * took[0]:.0f} ms, best {1000 * min(took):.0f}")


def in_chromium(page: Page, folder: Path) -> None:
    program = found()
    if program is None:
        return
    with browser(program, folder) as tab:
        tab.go(f"http://{page.host}:{page.port}/")
        name, _, value = page.cookie.partition("=")
        tab.set_cookie(name, value, f"http://{page.host}:{page.port}{page.room}", page.room)
        for path in ("", "board"):
            tab.go(f"http://{page.host}:{page.port}{page.room}{path}")
            time.sleep(3)
            painted = tab.value("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            print(f"Chromium, first paint of /{path}: {painted and round(painted)} ms")


if __name__ == "__main__":
    main()
