"""Commands that start no agent, on many beads: what one bead more costs, counted in calls and not by a clock."""

from __future__ import annotations

import json
import os
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

FEW, MANY = 100, 1_100
CONFIG = "tracker: beads-file\nagent: instant\nagents: {instant: {command: [sh]}}\n"


def bead(number: int) -> str:
    """One of ten is a feature that holds the nine after it, each of which waits for the one before."""
    links = [("parent-child", number - number % 10)] if number % 10 else []
    links += [("blocks", number - 1)] if number % 10 > 1 else []
    edges = [{"issue_id": f"b-{number}", "depends_on_id": f"b-{to}", "type": kind} for kind, to in links]
    row = {"id": f"b-{number}", "title": f"Bead {number}", "status": "open", "priority": 2, "dependencies": edges}
    return json.dumps({**row, "issue_type": "task" if number % 10 else "feature", "description": "Why.\n" * 20})


def calls(folder: Path, count: int, *words: str) -> int:
    """Count the calls of Python functions, and of those that it has built in."""
    root = folder / f"{count}-{words[0]}"
    for name in (".beads", ".capsule"):
        (root / name).mkdir(parents=True)
    (root / ".beads/issues.jsonl").write_text("".join(f"{bead(number)}\n" for number in range(count)))
    (root / ".capsule/config.yaml").write_text(CONFIG)
    who = ("-c", "user.name=Me", "-c", "user.email=me@localhost")
    for git in (["init", "-q", "-b", "main"], [*who, "commit", "-q", "--allow-empty", "-m", "First"]):
        subprocess.run(["git", *git], cwd=root, check=True)
    argv = [sys.executable, "-m", "cProfile", "-o", str(root / "calls"), "-m", "capsule", *words]
    env = {**os.environ, "GIT_CONFIG_COUNT": "0"}
    subprocess.run(argv, cwd=root, env=env, check=True, stdout=subprocess.DEVNULL)
    return int(pstats.Stats(str(root / "calls")).total_calls)  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.promise("speed.each-bead")
@pytest.mark.parametrize(("words", "most"), [(["status"], 58), (["run", "--dry-run"], 57)])
def test_one_bead_more_costs_few_calls(tmp_path: Path, words: list[str], most: int) -> None:
    more = calls(tmp_path, MANY, *words) - calls(tmp_path, FEW, *words)
    assert more <= most * (MANY - FEW)
