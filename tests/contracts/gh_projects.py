"""Projects whose items are issues on GitHub: behind a stand-in for gh, or a real one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capsule.core.item import Item, Status
from capsule.settings import GitHubOptions
from capsule.trackers._gh import Patience
from capsule.trackers.github import PREFIX, GitHubTracker
from tests.contracts import fake_gh
from tests.contracts.fake_gh.hub import NAME, OWNER, Row, new_hub
from tests.contracts.tracker_suite import ITEMS

REPOSITORY = f"{OWNER}/{NAME}"
LABEL = "capsule"
NUMBERS = {item.id: number for number, item in enumerate(ITEMS, 1)}
NAMES = {name: f"{PREFIX}{number}" for name, number in NUMBERS.items()} | {
    "demo-1.1.7": f"{PREFIX}33",  # nobody's
    "demo-33": f"{PREFIX}98",
    "demo-77": f"{PREFIX}97",
}
_KINDS = {"bug": "bug", "feature": "enhancement", "epic": "epic"}


def issue(item: Item) -> dict[str, Any]:
    """The issue that somebody would write for an item of the suite."""
    lines = [
        *[f"Part of #{NUMBERS[name]}" for name in [item.parent] if name],
        *[f"Depends on #{NUMBERS[other]}" for other in item.dependencies],
    ]
    block = "\n".join(("", "", "<!-- capsule: -->", *lines, "<!-- /capsule -->")) if lines else ""
    labels = [
        LABEL,
        *[label for kind, label in _KINDS.items() if kind == item.type],
        *[f"P{item.priority}"] * (item.priority != 2),
        *["blocked"] * (item.status is Status.BLOCKED),
        *item.tags,
    ]
    state = "CLOSED" if item.status is Status.DONE else "OPEN"
    body = f"{item.description}{block}"
    return {"number": NUMBERS[item.id], "title": item.title, "body": body, "labels": labels, "state": state}


def environment(folder: Path, home: Path) -> dict[str, str]:
    """With the `gh` in that folder first, and nothing of whoever runs the tests."""
    path = os.pathsep.join([str(folder), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "GIT_CONFIG_GLOBAL": os.devnull}


def faked(
    root: Path,
    issues: Sequence[Row],
    options: GitHubOptions | None = None,
    patience: Patience | None = None,
    **more: Any,
) -> GitHubTracker:
    hub = root / "hub.json"
    hub.write_text(json.dumps(new_hub([*issues], **more)))
    folder = fake_gh.install(root / "bin", hub)
    return opened(root, options, environment(folder, root), patience)


def opened(
    root: Path, options: GitHubOptions | None, env: Mapping[str, str], patience: Patience | None = None
) -> GitHubTracker:
    chosen = options or GitHubOptions(repository=REPOSITORY)
    return GitHubTracker(root, chosen, lock=root / "locks/tracker.lock", env=env, patience=patience)
