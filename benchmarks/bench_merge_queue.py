"""A hundred candidates that are ready at once: how near does the merge queue come to what its gates allow?

`CANDIDATES` (100) missions get ready and wait for a signal; then all hand in. The gate sleeps `GATE` (2) seconds. For
each number of gates P and each size of a batch in `PLANS` (`1x1 2x1 4x1 1x4 2x4 4x4`) it prints merges a minute beside
the limit (P gates, k together: P·k for each length of a gate) and beside a simulation of the queue's own rules, in
which cars double while they are green and nothing but the gate takes time. Every commit of main's first-parent line has
a tree that was tested.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path

CANDIDATES = int(os.environ.get("CANDIDATES", "100"))
GATE = float(os.environ.get("GATE", "2"))
PLANS = [
    tuple(map(int, plan.split("x"))) for plan in os.environ.get("PLANS", "1x1 2x1 4x1 1x4 2x4 4x4").split()
]  # gates x batch
CAPSULE = [str(Path(sys.executable).with_name("capsule"))]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CAPSULE_", "PYTHON"))},
    **{f"GIT_{who}_{what}": "bench@localhost" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}
FLOW = """\
name: short
phases:
  - {name: prep, do: prep}
  - {name: make, role: worker, prompt: make, checks: [committed]}
  - {name: publish, do: publish}
  - {name: archive, do: archive}
"""
AGENT = """\
touch made-$CAPSULE_ITEM; git add -A .; git commit -q -m "$CAPSULE_COMMIT_MSG"
touch %(ready)s/$CAPSULE_ITEM
until [ -e %(go)s ]; do sleep 0.5; done
echo '{"status":"PASS","feedback":"","files_changed":[],"summary":"done"}'
"""


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


def measure(gates: int, batch: int) -> None:
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
            while run.poll() is None and merged(root) < CANDIDATES:
                time.sleep(0.1)
            took = time.perf_counter() - began
            code = run.wait()
        limit = CANDIDATES * GATE / (gates * batch)
        commits = len(git(root, "rev-list", "--first-parent", "--merges", "main").split())
        print(
            f"{gates} gates, batches of {batch}: {merged(root)} merged with {commits} commits in {took:.1f} s, "
            f"{60 * CANDIDATES / took:.0f} a minute; limit {limit:.1f} s ({limit / took:.0%} of it, aim 80 %), "
            f"simulated {predicted(gates, batch):.1f} s; exit {code}",
            flush=True,
        )
        if code:
            print((folder / "said").read_text()[-1500:])


def merged(root: Path) -> int:
    told = git(root, "log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly,separator=)", "main")
    return len({line for line in told.splitlines() if line})


def main() -> None:
    for gates, batch in PLANS:
        measure(gates, batch)


if __name__ == "__main__":
    main()
