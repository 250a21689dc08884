"""What proof costs: how often and for how long the tests run in a mission without setbacks, beside the suite's time.

A project whose suite takes 1, 10 or 60 seconds (it sleeps, so it costs no processor) has one function added through
`tdd` by the scripted agent. The suite counts its runs itself. Everything is measured in one run of this program; the
suite's own time is that of a run by hand just before.

    SUITES="1 10 60" python benchmarks/bench_proof.py    the default leaves out 60, which takes 6 minutes

It fails if a run was made twice for the same files, if the suite ran more often than the journal knows, or if mutants
took longer than they may: as long as the suite, 30 seconds for a short one, 5 minutes for a long one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from capsule.core.event import Observed
from capsule.core.evidence import Observation
from capsule.project import open_project

SUITES = [int(seconds) for seconds in os.environ.get("SUITES", "1 10").split()]
KINDS = ("base", "red", "green", "canaries", "mutants")
LEAST, MOST = 30, 300
OLD = """\
import os, pathlib, time, unittest

with open(os.environ["COUNT_RUNS"], "a") as runs:
    runs.write("x")

class TestOld(unittest.TestCase):
    def test_slow(self):
        time.sleep({seconds})

    def test_add(self):
        import calc
        self.assertEqual(calc.add(1, 2), 3)
"""
NEW = """\
import unittest

class TestClamp(unittest.TestCase):
    def test_clamp(self):
        import calc
        self.assertEqual([calc.clamp(n, 1, 3) for n in (0, 1, 2, 3, 4)], [1, 1, 2, 3, 3])
"""
ADD = "def add(a, b):\n    return a + b\n"
CLAMP = """

def clamp(n, low, high):
    if n < low:
        return low
    if n > high:
        return high
    return n
"""
PASS = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
SCRIPT = {
    "test-writer": [{"write": {"tests/test_clamp.py": NEW}, "signal": PASS}],
    "test-review": [{"signal": PASS}],
    "execute": [{"write": {"calc.py": ADD + CLAMP}, "signal": PASS}],
    "execute-review": [{"signal": PASS}],
    "sign-off": [{"signal": PASS}],
    "merge": [{"run": ["git add -A && git commit -qm clamp"], "signal": PASS}],
}


def a_project(root: Path, seconds: int) -> dict[str, str]:
    """Make it; return the environment to run it in."""
    script, counted = root.parent / "script.json", root.parent / "runs"
    script.write_text(json.dumps({"*": SCRIPT}))
    files = {
        "calc.py": ADD,
        "tests/__init__.py": "",
        "tests/test_old.py": OLD.format(seconds=seconds),
        ".gitignore": "__pycache__/\n",
        ".beads/issues.jsonl": '{"id":"one","title":"Add clamp","status":"open","issue_type":"task"}\n',
        ".capsule/config.yaml": "evidence: {test: python3 -m unittest discover -v}\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))}
    signed = {f"GIT_{who}_{what}": "b@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = kept | signed | {"COUNT_RUNS": str(counted), "CAPSULE_SANDBOX": "off", "CAPSULE_AGENT": "scripted"}
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)
    return env | {"CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(script)])}


def by_hand(root: Path, env: dict[str, str]) -> float:
    """The suite's own time, and nothing counted for it."""
    began = time.perf_counter()
    argv = [sys.executable, "-m", "unittest", "discover"]
    subprocess.run(argv, cwd=root, env=env, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    Path(env["COUNT_RUNS"]).unlink()
    return seconds


def kind_of(seen: Observation, base: str) -> str:
    if seen.edits:
        return "canaries" if "\t" in seen.edits[0] else "mutants"
    return "base" if seen.tree == base else seen.colour.value


def measure(seconds: int) -> list[str]:
    """Run a mission, print its figures, and return what is wrong with them."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        root.mkdir()
        env = a_project(root, seconds)
        base = subprocess.run(["git", "rev-parse", "HEAD^{tree}"], cwd=root, capture_output=True, text=True, check=True)
        own, began = by_hand(root, env), time.perf_counter()
        argv = [str(Path(sys.executable).with_name("capsule")), "run", "one"]
        done = subprocess.run(argv, cwd=root, env=env, capture_output=True, text=True, check=False)
        whole = time.perf_counter() - began
        if done.returncode:
            return [f"the mission failed:\n{done.stdout}{done.stderr}"]
        journal = open_project(str(root)).journal()
        runs = [event for _, event in journal.events("one") if isinstance(event, Observed)]
        journal.close()
        counted = len(Path(env["COUNT_RUNS"]).read_text())
    print(f"a suite of {own:.1f} s: the mission takes {whole:.1f} s, {whole / own:.2f} times the suite")
    spent = dict.fromkeys(KINDS, 0.0)
    times = Counter(kind_of(run.observation, base.stdout.strip()) for run in runs)
    for run in runs:
        spent[kind_of(run.observation, base.stdout.strip())] += run.observation.seconds
    for kind in KINDS:
        print(f"    {kind:9} {times[kind]} runs   {spent[kind]:6.1f} s   {spent[kind] / own:5.2f} times the suite")
    all_of = sum(spent.values())
    print(f"    {'all':9} {len(runs)} runs   {all_of:6.1f} s   {all_of / own:5.2f} times the suite")
    twice = [key for key, count in Counter(run.key for run in runs).items() if count > 1]
    allowed = min(MOST, max(spent["green"], LEAST)) + spent["green"] / 2  # the last may be slower than the suite was
    return [
        *([f"{len(twice)} runs were made twice"] if twice else []),
        *([f"the suite ran {counted} times, and the journal knows of {len(runs)}"] if counted != len(runs) else []),
        *([f"mutants took {spent['mutants']:.1f} s of {allowed:.1f}"] if spent["mutants"] > allowed else []),
    ]


def main() -> int:
    faults = [fault for seconds in SUITES for fault in measure(seconds)]
    print("\n".join(faults) or "nothing ran twice for the same files, and mutants kept to their time")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
