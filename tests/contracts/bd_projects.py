"""Projects whose items are in bd: a stand-in for it of any era, or a real one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from capsule.core.item import Item, Status
from capsule.trackers._bd import Patience
from capsule.trackers.beads import BeadsTracker
from tests.contracts import fake_bd
from tests.contracts.fake_bd.served import ENDED, install_served

ERAS = fake_bd.ERAS
ACTOR = "tester"
NOW = "2026-01-02T03:04:05Z"

STATUS_WORDS = {
    Status.READY: "open",
    Status.IN_PROGRESS: "in_progress",
    Status.DONE: "closed",
    Status.BLOCKED: "blocked",
}


def bead(item: Item) -> dict[str, object]:
    edges = [("parent-child", item.parent)] * bool(item.parent) + [("blocks", other) for other in item.dependencies]
    row: dict[str, object] = {
        "id": item.id,
        "title": item.title,
        "description": item.description,
        "acceptance_criteria": item.acceptance,
        "status": STATUS_WORDS[item.status],
        "priority": item.priority,
        "issue_type": item.type,
        "created_at": NOW,
        "updated_at": NOW,
        "labels": list(item.tags),
        "dependencies": [
            {"issue_id": item.id, "depends_on_id": other, "type": kind, "created_at": NOW} for kind, other in edges
        ],
    }
    return row | ({"closed_at": NOW} if item.status is Status.DONE else {})


def environment(folder: Path, home: Path) -> dict[str, str]:
    """With the `bd` in that folder first, and nothing of whoever runs the tests."""
    path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "BEADS_ACTOR": ACTOR, "BD_ACTOR": ACTOR, "GIT_CONFIG_GLOBAL": os.devnull}


def opened(root: Path, folder: Path, patience: Patience | None = None) -> BeadsTracker:
    lock = root / "locks" / "tracker.lock"
    return BeadsTracker(root, lock=lock, patience=patience, env=environment(folder, root))


def faked(
    root: Path, items: Sequence[Item], era: str = "1.0.5", patience: Patience | None = None, **behaviour: object
) -> BeadsTracker:
    """Put there as the stand-in would have it after an import: not every era has one."""
    (root / ".beads").mkdir(exist_ok=True)
    state = {"prefix": "demo", "issues": {item.id: bead(item) for item in items}}
    (root / ".beads" / fake_bd.STATE).write_text(json.dumps(state))
    may_be_ended = behaviour.keys() & ENDED or (patience and patience.answer < Patience().answer)
    install = fake_bd.install if may_be_ended else install_served
    return opened(root, install(root / "bin", era, **behaviour), patience)


def real(root: Path, items: Sequence[Item], folder: Path) -> BeadsTracker:
    def run(*argv: str) -> None:
        env = environment(folder, root) | {"BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1"}
        done = subprocess.run(argv, cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 0, os.fsdecode(done.stdout + done.stderr)

    rows = root / "rows.jsonl"
    rows.write_text("".join(json.dumps(bead(item)) + "\n" for item in items))
    run("git", "init", "-q")
    run("git", "config", "user.name", ACTOR)
    run("git", "config", "user.email", "tester@example.org")
    run(str(folder / "bd"), "init", "--prefix=demo", "--quiet", "--skip-hooks")
    run(str(folder / "bd"), "import", "-i", str(rows))
    return opened(root, folder)
