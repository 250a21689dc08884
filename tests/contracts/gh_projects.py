"""Projects whose items are issues on GitHub: behind a stand-in for gh, or a real one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capsule.settings import GitHubOptions
from capsule.trackers._gh import Patience
from capsule.trackers.github import GitHubTracker
from tests.contracts import fake_gh
from tests.contracts.fake_gh.hub import NAME, OWNER, Row, new_hub

REPOSITORY = f"{OWNER}/{NAME}"


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
