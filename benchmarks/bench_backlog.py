"""What a backlog costs as it grows: `status`, `add` and one change of state, beside bare Python's start.

Each command is run as a user runs it, on a backlog of 100, 1,000 and 10,000 items of some fifteen lines, committed and
all. Printed are medians of interleaved rounds, each as a multiple of `python -c pass` in the same rounds: once by the
clock, once by the time that processors worked for it (git's included), which other people's work on the same machine
changes less; what one item costs (so that growth that is not linear shows); and how many lines of the file one changed
field changes. Ends with 1 if a limit is passed by the least work of any round.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

ROUNDS = int(os.environ.get("ROUNDS", "5"))
SIZES = (100, 1_000, 10_000)
MOST_FOR_STATUS = 9.0
"""With 1,000 items, as a multiple of bare Python's start."""
MOST_FOR_CHANGE = 0.5
"""With 10,000 items, in seconds."""
CAPSULE = str(Path(sys.executable).with_name("capsule"))
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    "GIT_AUTHOR_NAME": "Bench", "GIT_AUTHOR_EMAIL": "bench@localhost",
    "GIT_COMMITTER_NAME": "Bench", "GIT_COMMITTER_EMAIL": "bench@localhost",
}  # fmt: skip
ITEM = """\
  - id: WRK-{number:03}
    title: Item {number} of a long list, with a title of usual length
    status: scoped
    size: small
    complexity: low
    risk: low
    impact: {impact}
    requires_human_review: false
    origin: WRK-001/build
    tags:
      - bench
      - ui
    dependencies: []
    created: "2026-01-05T09:00:00Z"
    updated: "2026-01-05T09:00:00Z"
"""


def make_project(root: Path, count: int) -> None:
    root.mkdir()
    items = "".join(ITEM.format(number=n, impact=("low", "medium", "high")[n % 3]) for n in range(1, count + 1))
    (root / "BACKLOG.yaml").write_text(f"schema_version: 1\nlast_id: {count}\nitems:\n{items}")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, env=ENVIRONMENT, check=True)


class Cost(NamedTuple):
    clock: float
    work: float
    """Of all processors, by all processes that were started."""


def now() -> Cost:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(time.perf_counter(), used.ru_utime + used.ru_stime)


def cost(argv: Sequence[str], cwd: Path) -> Cost:
    began = now()
    subprocess.run(argv, cwd=cwd, env=ENVIRONMENT, check=True, capture_output=True)
    ended = now()
    return Cost(ended.clock - began.clock, ended.work - began.work)


def changed_lines(root: Path) -> str:
    """Of BACKLOG.yaml, by a change of one field and its stamp."""
    numbers = subprocess.run(
        ["git", "show", "--numstat", "--format=", "HEAD", "--", "BACKLOG.yaml"],
        cwd=root, env=ENVIRONMENT, check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    return f"+{numbers[0]} -{numbers[1]}"


def measure(folder: Path) -> dict[tuple[str, int], list[Cost]]:
    found: dict[tuple[str, int], list[Cost]] = {}
    for count in SIZES:
        make_project(folder / str(count), count)
    for number in range(1, ROUNDS + 1):
        found.setdefault(("bare", 0), []).append(cost([sys.executable, "-c", "pass"], folder))
        for count in SIZES:
            root = folder / str(count)
            commands = {
                "status": ["status"],
                "add": ["add", f"Something new, number {number}"],
                "change": ["advance", f"WRK-{count // 2 + number:03}"],
            }
            for name, words in commands.items():
                found.setdefault((name, count), []).append(cost([CAPSULE, *words], root))
    return found


def report(title: str, found: dict[tuple[str, int], float]) -> None:
    bare = found["bare", 0]
    print(f"{title}: bare Python start {bare * 1000:.0f} ms")
    print(f"{'':8}" + "".join(f"{count:>10,} items" for count in SIZES) + "   one more item")
    for name in ("status", "add", "change"):
        cells = "".join(f"{found[name, n] * 1000:7.0f} ms {found[name, n] / bare:4.1f}x" for n in SIZES)
        small, large = ((found[name, b] - found[name, a]) / (b - a) for a, b in pairwise(SIZES))
        print(f"{name:8}{cells}   {small * 1e6:.0f} µs, then {large * 1e6:.0f} µs")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder))
        diff = changed_lines(Path(folder) / str(SIZES[-1]))
    report("By the clock", {key: statistics.median(each.clock for each in costs) for key, costs in found.items()})
    report("By work done", {key: statistics.median(each.work for each in costs) for key, costs in found.items()})
    print(f"BACKLOG.yaml, one status moved on (status, phase, updated): {diff} lines")
    least = {key: min(each.work for each in costs) for key, costs in found.items()}
    status, change = least["status", 1_000] / least["bare", 0], least["change", 10_000]
    print(f"least work: status of 1,000 items {status:.1f}x (at most {MOST_FOR_STATUS:g}x), "
          f"a change of 10,000 {change:.2f} s (at most {MOST_FOR_CHANGE} s)")  # fmt: skip
    if status > MOST_FOR_STATUS or change > MOST_FOR_CHANGE:
        raise SystemExit("A limit is passed.")


if __name__ == "__main__":
    main()
