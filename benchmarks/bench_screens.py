"""What screens cost: how soon the dashboard is there, how much they compute while many missions go on, what is kept.

Everything is the real program on a terminal of its own, in a real project with a real journal.

- The first frame, from the start of the process, beside an empty Textual app that draws one word: the floor.
- Processor seconds of the dashboard per second, while another process holds forty missions and writes sixty events a
  second, and lines into their live files.
- The same of the view of a run of fifty missions at a time, and those of `capsule status`, called once a second: more
  than a quarter of a core is a failure, and the exit code 1.
- Its memory after 10,000 and after 100,000 events.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROUNDS = int(os.environ.get("ROUNDS", "8"))
SECONDS = float(os.environ.get("SECONDS", "15"))
LONG = 60.0
ALTERNATE = b"\x1b[?1049h"
"""What a program writes before it draws on the whole screen."""
CAPSULE = [sys.executable, "-P", "-m", "capsule"]
MISSIONS, AT_A_TIME, PER_SECOND = 40, 50, 60
MOST = 0.25
"""Of one core."""
EMPTY = """
import gc
gc.set_threshold(100_000)
from textual.app import App
from textual.widgets import Static
class Empty(App):
    ENABLE_COMMAND_PALETTE = False
    def compose(self):
        yield Static("History")
Empty().run()
"""
WRITER = """
import contextlib, json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from capsule.core.event import RunStarted, Taken
from capsule.journals.sqlite import SqliteJournal
from tests.screens.missions import NOT_GREEN, SENT_BACK, begun, ended, started
root, missions, rate = Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
journal = SqliteJournal(root / ".git" / "capsule")
if not rate:
    journal._db().execute("PRAGMA synchronous = OFF")
names = [f"many-{number:02}" for number in range(1, missions + 1)]
runs = dict.fromkeys(names, 1)
with contextlib.ExitStack() as held:
    held.enter_context(journal.claim("_queue"))
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    journal.note("_queue", RunStarted(at=now, cap=1000, jobs=missions))
    for name in names:
        held.enter_context(journal.claim(name))
        folder = root / ".capsule" / "missions" / name
        folder.mkdir(parents=True, exist_ok=True)
        journal.note("_queue", Taken(at=now, mission=name))
        journal.note(name, started(name, f"Task {name}"))
        journal.note(name, begun("execute", 1))
    written, began = 2 * missions, time.monotonic()
    print(written, flush=True)
    for line in sys.stdin:
        wanted = int(line)
        while written < wanted:
            name = names[(written // 2) % missions]
            run = runs[name]
            journal.note(name, ended("execute", written / 60, NOT_GREEN, run=run, decision=SENT_BACK))
            journal.note(name, begun("execute", written / 60, run=run + 1))
            runs[name], written = run + 1, written + 2
            with (root / ".capsule" / "missions" / name / "live.jsonl").open("a") as live:
                live.write(json.dumps({"at": "2026-03-01T10:00:00Z", "activity": f"edits file {written}"}) + chr(10))
            if rate:
                time.sleep(max(0, began + written / rate - time.monotonic()))
        print(written, flush=True)
"""


class Terminal:
    """A program on a terminal of its own; what it draws is counted, and its end kept."""

    def __init__(self, argv: Sequence[str], cwd: Path, size: tuple[int, int] = (80, 24)) -> None:
        self._ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.drawn, self._over = b"", threading.Event()
        env = {**os.environ, "TERM": "xterm-256color"}
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while not self._over.is_set():
            if select.select([self._ours], [], [], 0.1)[0]:
                try:
                    self.drawn = (self.drawn + os.read(self._ours, 65536))[-1_000_000:]
                except OSError:  # the last one who could write has gone
                    return

    def press(self, key: str) -> None:
        os.write(self._ours, key.encode())

    def wait_for(self, words: str) -> None:
        deadline = time.monotonic() + LONG
        while words.encode() not in self.drawn.partition(ALTERNATE)[2]:
            if time.monotonic() > deadline:
                raise SystemExit(f"it never showed {words!r}: {self.drawn[-2000:]!r}")
            time.sleep(0.001)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._over.set()
        self._reader.join()
        os.close(self._ours)


def main() -> int:
    with a_project() as project:
        first_frame(project)
        processor(project)
    with a_project() as project:
        shares = side_by_side(project)
    with a_project() as project:
        memory(project)
    return any(share > MOST for share in shares)


@contextmanager
def a_project() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="bench-screens-") as folder:
        project = Path(folder) / "project"
        subprocess.run([*CAPSULE, "setup-template", "--tracker=file", str(project)], check=True, capture_output=True)
        yield project


def first_frame(project: Path) -> None:
    """Each in turn, so that whatever else the machine does hits both."""
    floor, ours, filled = [], [], []
    for _ in range(ROUNDS):
        floor.append(until(project, [sys.executable, "-P", "-c", EMPTY], "History"))
        ours.append(until(project, [*CAPSULE, "dashboard"], "History"))
        filled.append(until(project, [*CAPSULE, "dashboard"], "demo-1"))
    for what, times in (("empty Textual app", floor), ("dashboard", ours), ("dashboard with its items", filled)):
        print(f"first frame, {what}: best {min(times) * 1000:.0f} ms, median {statistics.median(times) * 1000:.0f} ms")
    print(f"ratio to the floor: {min(ours) / min(floor):.2f} (best), {min(ours) / 0.6:.2f} of the 600 ms allowed")


def until(project: Path, argv: list[str], words: str) -> float:
    began = time.perf_counter()
    with Terminal(argv, project) as terminal:
        terminal.wait_for(words)
        return time.perf_counter() - began


def writer(project: Path, rate: float, missions: int = MISSIONS) -> subprocess.Popen[str]:
    here = str(Path(__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, here, str(project), str(missions), str(rate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    process.stdout.readline()
    return process


def processor(project: Path) -> None:
    written = writer(project, PER_SECOND)
    assert written.stdin
    try:
        print(1_000_000, file=written.stdin, flush=True)
        for view in ("1", "2"):
            with Terminal([*CAPSULE, "dashboard"], project, (160, 50)) as terminal:
                terminal.wait_for("40 running")
                terminal.press(view)
                time.sleep(2)
                share = used_per_second(terminal.process.pid, SECONDS)
                told = f"forty missions, {PER_SECOND} events/s, view {view}"
                print(f"{told}: {share:.1%} of one core, {share / MOST:.2f} of the {MOST:.0%} allowed")
    finally:
        written.kill()
        written.wait()


def side_by_side(project: Path) -> list[float]:
    """Return the shares of a core that the view of a run takes, and `status`, while fifty missions run."""
    names = [f"many-{number:02}" for number in range(1, AT_A_TIME + 1)]
    rows = ({"id": name, "title": f"Task {name}", "status": "open", "issue_type": "task"} for name in names)
    with (project / ".beads" / "issues.jsonl").open("a") as beads:
        beads.writelines(f"{json.dumps(row)}\n" for row in rows)
    written = writer(project, PER_SECOND, AT_A_TIME)
    assert written.stdin
    try:
        print(1_000_000, file=written.stdin, flush=True)
        with Terminal([*CAPSULE, "run"], project) as terminal:
            terminal.wait_for(f"{AT_A_TIME} running")
            time.sleep(2)
            view = used_per_second(terminal.process.pid, SECONDS)
        before = children_seconds()
        for _ in range(ROUNDS):
            said = subprocess.run([*CAPSULE, "status"], cwd=project, check=True, capture_output=True, text=True).stdout
            assert f"{AT_A_TIME} running" in said, said
        status = (children_seconds() - before) / ROUNDS
    finally:
        written.kill()
        written.wait()
    for what, share in (("view of the run", view), ("status once a second", status)):
        told = f"{AT_A_TIME} at a time, {PER_SECOND} events/s, {what}"
        print(f"{told}: {share:.1%} of one core, {share / MOST:.2f} of the {MOST:.0%} allowed")
    return [view, status]


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def used_per_second(pid: int, seconds: float) -> float:
    began, before = time.monotonic(), processor_seconds(pid)
    time.sleep(seconds)
    return (processor_seconds(pid) - before) / (time.monotonic() - began)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(project: Path) -> None:
    written = writer(project, 0)
    assert written.stdin
    assert written.stdout
    sizes = {}
    try:
        with Terminal([*CAPSULE, "dashboard"], project, (160, 50)) as terminal:
            terminal.wait_for("40 running")
            terminal.press("2")
            for events in (10_000, 40_000, 70_000, 100_000):
                print(events, file=written.stdin, flush=True)
                written.stdout.readline()
                time.sleep(3)  # it looks four times a second
                sizes[events] = resident(terminal.process.pid)
                print(f"memory after {events:,} events: {sizes[events] / 1024:.1f} MiB")
        print(f"ratio: {sizes[100_000] / sizes[10_000]:.3f}")
    finally:
        written.kill()
        written.wait()


def resident(pid: int) -> int:
    """KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


if __name__ == "__main__":
    sys.exit(main())
