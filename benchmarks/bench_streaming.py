"""What it costs that everything a command prints goes through the supervisor, with secrets taken out on the way.

The floor is a plain loop in a process of its own that copies the same bytes from a pipe to a file, in reads of the same
size; both are measured in one run, round by round in turn. Printed: CPU of each for 100 MB of events and the ratio of
their medians, without secrets, with one, two and six; and the supervisor's peak memory after 10 MB and after 100 MB.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from capsule.system.process import Command, SupervisorClient
from capsule.system.secrets import spelled
from capsule.system.streams import AT_ONCE

ROUNDS = int(os.environ.get("ROUNDS", "5"))
MEGABYTES = 100
WORDS = ["the", "function", "returns", "None", "import", "os\n", '"quoted"', "src/shop/prices.py", "→", "def it():"]
FLOOR = f"""
import fcntl, os, resource, sys
fcntl.fcntl(0, getattr(fcntl, "F_SETPIPE_SZ", 1031), {AT_ONCE})
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
before = resource.getrusage(resource.RUSAGE_SELF)
while piece := os.read(0, {AT_ONCE}):
    os.write(out, piece)
after = resource.getrusage(resource.RUSAGE_SELF)
print(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
"""


def main() -> None:
    random.seed(4)
    with tempfile.TemporaryDirectory(prefix="bench-streaming-") as folder:
        place = Path(folder)
        events = place / "events.jsonl"
        write_events(events, MEGABYTES * 1_000_000)
        copying = []
        through: dict[int, list[float]] = {0: [], 1: [], 2: [], 6: []}
        for _ in range(ROUNDS):
            copying.append(floor(place, events))
            for count, seconds in through.items():
                seconds.append(kept(place, events, count))
        report(copying, through)
        memory(place, events)


def write_events(path: Path, size: int) -> None:
    block = b"".join(event(number) for number in range(4000))
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(block)


def event(number: int) -> bytes:
    text = " ".join(random.choices(WORDS, k=random.randint(5, 200)))
    session = f"{random.getrandbits(128):032x}"
    message = {"id": f"msg_{number}", "content": [{"type": "text", "text": text}], "usage": {"output_tokens": number}}
    return json.dumps({"type": "assistant", "message": message, "session_id": session}).encode() + b"\n"


def some_secrets(count: int) -> tuple[str, ...]:
    """As keys look: forty characters, with all their spellings."""
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return spelled("key-" + "".join(random.choices(letters, k=36)) for _ in range(count))


def floor(place: Path, events: Path) -> float:
    feeder = subprocess.Popen(["cat", str(events)], stdout=subprocess.PIPE)
    argv = [sys.executable, "-I", "-S", "-c", FLOOR, str(place / "copied")]
    seconds = float(subprocess.run(argv, stdin=feeder.stdout, check=True, capture_output=True).stdout)
    feeder.wait()
    return seconds


def kept(place: Path, events: Path, count: int) -> float:
    with SupervisorClient(secrets=some_secrets(count)) as supervisor:
        supervisor.run(command(place, "true"))
        before = cpu_of(supervisor)
        assert supervisor.run(command(place, "cat", str(events))).ok
        assert (place / "out").stat().st_size == events.stat().st_size
        return cpu_of(supervisor) - before


def command(place: Path, *argv: str) -> Command:
    return Command(argv, place, {"PATH": os.environ["PATH"]}, place / "out", place / "err")


def cpu_of(supervisor: SupervisorClient) -> float:
    """From the scheduler's own count, in nanoseconds: the usual one ticks only a hundred times a second."""
    return int(Path(f"/proc/{supervisor.pid}/schedstat").read_text().split()[0]) / 1e9


def report(copying: list[float], through: dict[int, list[float]]) -> None:
    base = statistics.median(copying)
    print(f"copying {MEGABYTES} MB of events from a pipe to a file: {base * 1000:.0f} ms of CPU")
    for count, seconds in through.items():
        spent = statistics.median(seconds)
        print(f"through the supervisor, {count} secrets: {spent * 1000:.0f} ms of CPU, {spent / base:.2f} × copying")


def memory(place: Path, events: Path) -> None:
    peaks = dict(peak_memory(place, events))
    told = ", ".join(f"{kib / 1024:.1f} MiB after {megabytes} MB" for megabytes, kib in peaks.items())
    print(f"peak memory of the supervisor: {told} ({peaks[MEGABYTES] / peaks[10]:.2f} ×)")


def peak_memory(place: Path, events: Path) -> Iterator[tuple[int, int]]:
    for megabytes in (10, MEGABYTES):
        with SupervisorClient(secrets=some_secrets(2)) as supervisor:
            supervisor.run(command(place, "head", "-c", str(megabytes * 1_000_000), str(events)))
            status = Path(f"/proc/{supervisor.pid}/status").read_text()
            yield megabytes, int(status.partition("VmHWM:")[2].split()[0])


if __name__ == "__main__":
    if not Path("/proc/self/schedstat").exists():
        sys.exit("This benchmark reads /proc: it runs on Linux.")
    main()
