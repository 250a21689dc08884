"""The demo project as `capsule setup-template` makes it with a real bd, and what a person does there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.conftest import UNSANDBOXED, Repo
from tests.live.missions import SCRIPT
from tests.live.table import survivors

EPIC, FEATURE, FIRST, SECOND = BEADS = ("demo-1", "demo-1.1", "demo-1.1.1", "demo-1.1.2")
_TESTS = (sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
_PATIENCE = 600

Done = subprocess.CompletedProcess[str]


class Demo:
    def __init__(self, folder: Path, bd: Path) -> None:
        self.bd, self._folder = bd, folder
        self.repo = Repo(folder / "project")
        (folder / "home").mkdir()
        made = self._run(folder, [sys.executable, "-m", "capsule", "setup-template", str(self.repo.path)])
        assert made.returncode == 0, made.stderr

    def env(self) -> Mapping[str, str]:
        """bd comes first on the PATH; of the agent there is only its script."""
        return {
            **{name: value for name, value in os.environ.items() if name.startswith("GIT_")},
            "PATH": f"{self.bd.parent}:{os.environ['PATH']}",
            "HOME": str(self._folder / "home"),
            **UNSANDBOXED,
            "CAPSULE_AGENT": "scripted",
            "CAPSULE_AGENTS__SCRIPTED__ARGS": json.dumps([str(SCRIPT)]),
        }

    def capsule(self, *words: str, **settings: str) -> Done:
        """`settings` are CAPSULE_ variables, without the prefix."""
        env = {**self.env(), **{f"CAPSULE_{name}": value for name, value in settings.items()}}
        return self._run(self.repo.path, [sys.executable, "-m", "capsule", *words], env)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "capsule", *words],
            cwd=self.repo.path,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: str) -> Done:
        """bd itself, as typed in another terminal."""
        env = {**self.env(), "BEADS_NO_DAEMON": "1"}
        return self._run(self.repo.path, [str(self.bd), *words], env)

    def told(self, *words: str) -> str:
        done = self.ask(*words)
        assert done.returncode == 0, f"bd {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def beads(self) -> dict[str, dict[str, Any]]:
        rows = (json.loads(line) for line in self.told("export").splitlines())
        return {row["id"]: row for row in rows if "id" in row}

    def statuses(self) -> dict[str, str]:
        beads = self.beads()
        return {name: beads[name]["status"] for name in BEADS}

    def has_begun(self, item: str) -> bool:
        """An agent is at work: its claim is made, looked at and done with."""
        return any((self.repo.path / ".capsule" / "missions" / item).glob("live.jsonl"))

    def merges(self) -> Sequence[str]:
        """Ids, in the order in which they came to main."""
        subjects = self.repo.git("log", "--merges", "--reverse", "--format=%s", "main").splitlines()
        return [subject.removeprefix("Merge ").partition(":")[0] for subject in subjects]

    def assert_sound(self) -> None:
        """main is green, and nothing is left lying or running."""
        assert subprocess.run(_TESTS, cwd=self.repo.path, capture_output=True, check=False).returncode == 0
        assert all(".beads/" in line for line in self.repo.status().splitlines()), self.repo.status()
        assert self.repo.git("worktree", "list").count("\n") == 0
        assert not [*(self.repo.path / ".beads").glob("daemon.pid"), *(self.repo.path / ".beads").glob("bd.sock")]
        assert survivors(self._folder) == []

    def _run(self, cwd: Path, words: Sequence[str], env: Mapping[str, str] | None = None) -> Done:
        return subprocess.run(
            words,
            cwd=cwd,
            env=env or self.env(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
