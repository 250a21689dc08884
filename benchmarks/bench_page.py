"""What the page in a browser costs, with 300 items and 50 missions that run: bytes, time, and processor at both ends.

Everything is the real program in a real project. Another process holds fifty missions and writes twenty events a
second, and lines into their live files; ten pages are open and are sent what changes.

- Bytes of each page, and the time until it is there.
- Processor seconds of the server per second: while nobody looks, and while ten pages are open.
- The first paint in Chromium, where there is one, and processor seconds of all its processes per second, while it shows
  the page and is sent what changes.

More than a limit is a failure, and the exit code 1.
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
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from bench_screens import CAPSULE, WRITER  # noqa: E402 - beside this one
from tests.live.browser import browser, found  # noqa: E402

ITEMS, MISSIONS, PER_SECOND, READERS = 300, 50, 20, 10
SECONDS = float(os.environ.get("SECONDS", "10"))
PAGES = ("", "board", "items", "item/many-01", "runs", "merges", "commands")
HEARD: list[int] = []
"""Bytes that the open pages were sent."""
LIMITS = {
    "kB of a page": 100.0,
    "ms to a page": 50.0,
    "% of a processor, server, nobody looks": 2.0,
    "% of a processor, server, pages open": 20.0,
    "ms to the first paint": 2000.0,
    "% of a processor, Chromium": 20.0,
}
"""Twice what was measured on two cores, while others kept them busy."""
BYTES, ANSWER, ALONE, OPEN, PAINT, SHOWN = LIMITS
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

    def pids(self) -> list[int]:
        return [self.process.pid]

    def follow(self, path: str) -> socket.socket:
        reader = socket.create_connection((self.host, self.port), 60)
        lines = f"GET {self.room}live?page={path} HTTP/1.1", f"Host: {self.host}:{self.port}", f"Cookie: {self.cookie}"
        reader.sendall("\r\n".join([*lines, "", ""]).encode())
        return reader


def stat_of(pid: int) -> list[str]:
    """Return the fields after the name; none of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def of_session(leader: int) -> list[int]:
    everybody = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    return [pid for pid in everybody if stat_of(pid)[3:4] == [str(leader)]]


def share(pids: Callable[[], list[int]]) -> float:
    """Return the percentage of a processor that they use."""

    def used() -> dict[int, int]:
        return {pid: int(fields[11]) + int(fields[12]) for pid in pids() if (fields := stat_of(pid))}

    before, began = used(), time.monotonic()
    time.sleep(SECONDS)
    ticks = sum(ticks - before.get(pid, 0) for pid, ticks in used().items())
    return 100 * ticks / os.sysconf("SC_CLK_TCK") / (time.monotonic() - began)


def said(words: str, **measured: float) -> int:
    """Print it, and return how many limits it exceeds."""
    over = [f"{value:.0f} {what}" for what, value in measured.items() if value > LIMITS[what]]
    print(words + "".join(f"  TOO MUCH: {each}" for each in over))
    return len(over)


def main() -> int:
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
            over = measure(page)
            writer.stdin.write("1000000\n")
            writer.stdin.flush()
            alone = share(page.pids)
            over += said(f"server, nobody looks: {alone:.1f} % of a processor", **{ALONE: alone})
            readers = [page.follow(PAGES[number % len(PAGES)]) for number in range(READERS)]
            for reader in readers:
                threading.Thread(target=drain, args=(reader,), daemon=True).start()
            time.sleep(2)
            before, busy = sum(HEARD), share(page.pids)
            told = (sum(HEARD) - before) / SECONDS / READERS / 1000
            line = f"server, {READERS} pages open, {PER_SECOND} events a second: {busy:.1f} %, {told:.0f} kB/s each"
            over += said(line, **{OPEN: busy})
            return 1 if over + in_chromium(page, Path(folder)) else 0
        finally:
            writer.kill()
            page.process.send_signal(signal.SIGINT)
            page.process.wait()


def drain(reader: socket.socket) -> None:
    while data := reader.recv(1 << 16):
        HEARD.append(len(data))


def measure(page: Page) -> int:
    over = 0
    for path in PAGES:
        took = []
        for _ in range(3):
            began = time.monotonic()
            _, text = page.ask(page.room + path, Cookie=page.cookie)
            took.append(time.monotonic() - began)
        size, best = len(text.encode()) / 1000, 1000 * min(took)
        line = f"/{path}: {size:.0f} kB, {1000 * took[0]:.0f} ms, best {best:.0f}"
        over += said(line, **{BYTES: size, ANSWER: best})
    return over


def in_chromium(page: Page, folder: Path) -> int:
    program, over = found(), 0
    if program is None:
        return 0
    with browser(program, folder) as tab:
        tab.go(f"http://{page.host}:{page.port}/")
        name, _, value = page.cookie.partition("=")
        tab.set_cookie(name, value, f"http://{page.host}:{page.port}{page.room}", page.room)
        for path in ("", "board"):
            tab.go(f"http://{page.host}:{page.port}{page.room}{path}")
            time.sleep(3)
            painted = tab.value("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
            busy = share(lambda: of_session(tab.pid))
            line = f"Chromium, /{path}: first paint {painted:.0f} ms, then {busy:.1f} % of a processor"
            over += said(line, **{PAINT: painted, SHOWN: busy})
    return over


if __name__ == "__main__":
    sys.exit(main())
