"""A hundred candidates that are ready at once: how near does the merge queue come to what its gates allow?

`CANDIDATES` (100) missions get ready and wait for a signal; then all hand in. The gate sleeps `GATE` (2) seconds. For
each number of gates P and each size of a batch k in `PLANS` (`1x1 2x1 4x1 1x4 2x4 4x4`) it prints merges a minute
beside what a formula allows while nothing is red (a train P, a batch k for each length of a gate) and beside a
simulation of the queue's own rules, in which cars double while they are green and nothing but the gate takes time.

The exit code is 1 where less than 80 % of the formula was reached, where a mission was not merged, or without its work,
and where main's first-parent line has a tree that was not tested. For a train of batches there is no formula, and P·k
cannot be reached: its cars begin with one, and as many as there are gates are under way before the first is green. It
is compared with the simulation.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from pathlib import Path

from capsule.core.event import Observed
from capsule.core.evidence import Colour
from capsule.project import open_project

CANDIDATES = int(os.environ.get("CANDIDATES", "100"))
GATE = float(os.environ.get("GATE", "2"))
PLANS = [
    tuple(map(int, plan.split("x"))) for plan in os.environ.get("PLANS", "1x1 2x1 4x1 1x4 2x4 4x4").split()
]  # gates x batch
AIM = 0.8
NO_FORMULA = "no formula for a train of batches, whose cars begin with one: compared with the simulation"
CAPSULE = [str(Path(sys.executable).with_name("capsule"))]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    **{f"GIT_{who}_{what}": "bench@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
FLOW = """\
name: short
phases:
  - {name: prep, role: action, do: prep}
  - {name: make, role: worker, prompt: make, checks: [committed]}
  - {name: publish, role: action, do: publish}
  - {name: archive, role: action, do: archive}
"""
AGENT = """\
touch made-$CAPSULE_ITEM; git add -A .; git commit -q -m "$CAPSULE_COMMIT_MSG"
touch %(ready)s/$CAPSULE_ITEM
until [ -e %(go)s ]; do sleep 0.5; done
echo '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
"""


def formula(gates: int, batch: int) -> float | None:
    """Seconds until all are merged: k for each length of a gate in batches, P in a train; None for both together."""
    return None if gates > 1 and batch > 1 else CANDIDATES * GATE / (gates * batch)


def predicted(gates: int, batch: int) -> float:
    """Seconds until all are merged, if only gates take time: cars begin in order, and double while they are green."""
    left, size, now, at_work = CANDIDATES, 1, 0.0, deque[tuple[float, int]]()
    while left or at_work:
        while left and len(at_work) < gates:
            taken = min(size, batch, left)
            at_work.append((now + GATE, taken))
            left -= taken
        now, _ = at_work.popleft()
        size *= 2
    return now


def make_project(folder: Path, names: list[str], gates: int, batch: int) -> Path:
    root, agent = folder / "project", folder / "agent.sh"
    for each in (root / ".beads", root / ".capsule/workflows", root / ".capsule/prompts", folder / "ready"):
        each.mkdir(parents=True)
    agent.write_text(AGENT % {"ready": folder / "ready", "go": folder / "go"})
    rows = ({"id": name, "title": f"Make {name}", "status": "open", "issue_type": "task"} for name in names)
    (root / ".beads/issues.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (root / ".capsule/workflows/short.yaml").write_text(FLOW)
    (root / ".capsule/prompts/make.md").write_text("Make {{item_id}}.\n")
    test = f"ls made-* > /dev/null 2>&1 || exit 0; sleep {GATE}"
    (root / ".capsule/config.yaml").write_text(
        f"agent: ready\nagents: {{ready: {{command: [sh, {agent}]}}}}\nsandbox: 'off'\nworkflow: {{default: short}}\n"
        f'merge: {{batch: {batch}}}\nexecution: {{gates: {gates}}}\nevidence: {{test: "{test}"}}\n'
    )
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        git(root, *command)
    return root


def git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def measure(gates: int, batch: int) -> list[str]:
    """Print how long it takes until all are merged; return what is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder, names = Path(name), [f"task-{number}" for number in range(CANDIDATES)]
        root = make_project(folder, names, gates, batch)
        with (folder / "said").open("wb") as said:
            command = [*CAPSULE, "run", "--jobs", str(CANDIDATES), "--cap", str(2 * CANDIDATES)]
            run = subprocess.Popen(command, cwd=root, env=ENVIRONMENT, stdout=said, stderr=said)
            while run.poll() is None and len(list((folder / "ready").iterdir())) < CANDIDATES:
                time.sleep(0.2)
            (folder / "go").touch()
            began = time.perf_counter()
            while run.poll() is None and len(merged(root)) < CANDIDATES:
                time.sleep(0.1)
            took = time.perf_counter() - began
            code = run.wait()
        limit, foretold = formula(gates, batch), predicted(gates, batch)
        by_formula = f"formula {limit:.1f} s ({limit / took:.0%} of it)" if limit else NO_FORMULA
        possible = limit or foretold
        commits, found = git(root, "rev-list", "--first-parent", "--merges", "main").split(), merged(root)
        print(
            f"{gates} gates, batches of {batch}: {len(found)} merged with {len(commits)} commits in {took:.1f} s, "
            f"{60 * CANDIDATES / took:.0f} a minute; {by_formula}, "
            f"simulated {foretold:.1f} s ({foretold / took:.0%}); aim {AIM:.0%}; exit {code}",
            flush=True,
        )
        brought, tested = git(root, "ls-tree", "--name-only", "main").split(), trees_tested(root, names)
        faults = [f"{item} is not merged with its work" for item in names if f"made-{item}" not in brought]
        faults += [f"{item} is merged {count} times" for item, count in found.items() if count > 1]
        untested = [commit for commit in commits if git(root, "rev-parse", f"{commit}^{{tree}}").strip() not in tested]
        faults += [f"the tree of {commit} was not tested" for commit in untested]
        faults += [f"{took:.1f} s, and {possible:.1f} s are possible"] * (possible < AIM * took)
        if code or faults:
            print((folder / "said").read_text()[-1500:])
        return [
            f"{gates} gates, batches of {batch}: {fault}" for fault in (*faults, *([f"exit {code}"] if code else []))
        ]


def trees_tested(root: Path, names: list[str]) -> set[str]:
    """Read from the journal which trees were seen to be green."""
    journal = open_project(str(root)).journal()
    events = [event for name in names for _, event in journal.events(name)]
    journal.close()
    seen = (event.observation for event in events if isinstance(event, Observed))
    return {each.tree for each in seen if each.colour is Colour.GREEN}


def merged(root: Path) -> Counter[str]:
    told = git(root, "log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly,separator=)", "main")
    return Counter(told.split())


def main() -> int:
    faults = [fault for gates, batch in PLANS for fault in measure(gates, batch)]
    print("\n".join(faults) or "all were merged, every tree was tested, and the gates were the limit")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
