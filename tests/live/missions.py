"""Whole missions: the demo project, `capsule run` as a user types it, a real agent CLI, a scripted model behind it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import capsule
from capsule.commands.demo import SHOP, SHOP_FILES
from capsule.commands.setup_template import make_project
from capsule.system.process import GRACE
from tests.conftest import UNSANDBOXED, Repo
from tests.costs import LONG, eventually
from tests.live.conftest import program
from tests.live.model_server import Mission, Say, Script, turns
from tests.live.model_server.server import ModelServer
from tests.live.table import ENDLESS, Cli, survivors

SCRIPT = Path(capsule.__file__).parent / "templates" / "demo-capsule" / "demo.script.yaml"
BACKLOG_SCRIPT, RECEIPT = SHOP / "demo.script.yaml", "WRK-001"
SENT_BACK_ONCE, DISHONEST = "demo-1.1.1", "demo-1.1.2"
"""The demo's two stories: one review that sends work back, one agent that claims what is not so."""
_TESTS = (sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
_PATIENCE = 600


@dataclass(frozen=True)
class Flown:
    """What a mission has come to."""

    run: subprocess.CompletedProcess[str]
    repo: Repo
    model: ModelServer
    shown: str
    """`capsule show --json` of it."""
    survivors: Sequence[str]

    def assert_merged_and_green(self, item: str) -> None:
        assert self.run.returncode == 0, f"{self.run.stdout}\n{self.run.stderr}"
        merges = self.repo.git("log", "--merges", "--format=%s", "main").splitlines()
        assert [merge.startswith(f"Merge {item}: ") for merge in merges] == [True]
        self._assert_green_and_tidy(item)

    def assert_committed_and_green(self, item: str) -> None:
        assert self.run.returncode == 0, f"{self.run.stdout}\n{self.run.stderr}"
        assert self.repo.git("log", "-1", "--format=%s", "main").startswith(f"[{item}][ARCHIVE] Completed: ")
        self._assert_green_and_tidy(item)

    def _assert_green_and_tidy(self, item: str) -> None:
        assert subprocess.run(_TESTS, cwd=self.repo.path, capture_output=True, check=False).returncode == 0
        assert all(".beads/" in line for line in self.repo.status().splitlines()), self.repo.status()
        assert not (self.repo.path / ".capsule" / "worktrees" / item).exists()
        assert list(self.survivors) == []


def fly(cli: Cli, item: str, folder: Path, *, path: str = "", script: Script | None = None, **settings: str) -> Flown:
    """The item from the tracker to main. `settings` are CAPSULE_ variables, without the prefix."""
    home, project = folder / "home", folder / "project"
    home.mkdir()
    with ModelServer(script or Mission(SCRIPT, item)) as model:
        env = environment(cli, model, home, path, settings)
        capsule_in(folder, env, "setup-template", "--tracker=file", str(project))
        run = capsule_in(project, env, "run", item, "--no-tui")
        shown = capsule_in(project, env, "show", item, "--json").stdout
    return Flown(run, Repo(project), model, shown, survivors(folder))


def fly_backlog(cli: Cli, folder: Path, *, path: str = "", **settings: str) -> Flown:
    """One idea of a backlog, from a line to its last commit on main."""
    home, project = folder / "home", folder / "project"
    home.mkdir()
    make_project(project, "none", template=SHOP, files=SHOP_FILES, message="A shop")
    with ModelServer(Mission(BACKLOG_SCRIPT, RECEIPT)) as model:
        env = environment(cli, model, home, path, settings)
        for words in (("init",), ("add", "Print a receipt")):
            capsule_in(project, env, *words).check_returncode()
        run = capsule_in(project, env, "run", RECEIPT, "--no-tui")
        shown = capsule_in(project, env, "show", RECEIPT, "--json").stdout
    return Flown(run, Repo(project), model, shown, survivors(folder))


def killed_in_the_middle(cli: Cli, folder: Path, **settings: str) -> bool:
    """Starts a mission whose agent runs a tool that does not end, and kills Capsule with -9; are all gone then?"""
    home, project = folder / "home", folder / "project"
    home.mkdir()
    with ModelServer(turns(ENDLESS, Say())) as model:
        env = environment(cli, model, home, "", settings)
        capsule_in(folder, env, "setup-template", "--tracker=file", str(project))
        words = [sys.executable, "-m", "capsule", "run", SENT_BACK_ONCE, "--no-tui"]
        with subprocess.Popen(words, cwd=project, env=env, stderr=subprocess.DEVNULL) as runner:
            assert eventually(lambda: any("tail -f" in process for process in survivors(folder)), 2 * LONG)
            runner.kill()
        return eventually(lambda: not survivors(folder), GRACE + 60)


def environment(cli: Cli, model: ModelServer, home: Path, path: str, settings: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in cli.env(model.url, home).items() if name != "HOME"}
    agent = f"CAPSULE_AGENTS__{cli.name.upper()}"
    found = [entry for entry in (str(program(cli.name).parent), path, "/usr/local/bin", "/usr/bin", "/bin") if entry]
    return {
        **{name: value for name, value in os.environ.items() if name.startswith("GIT_")},
        "PATH": ":".join(found),
        "HOME": str(home),
        **UNSANDBOXED,
        "CAPSULE_AGENT": cli.name,
        f"{agent}__ENV": json.dumps(own),
        f"{agent}__ARGS": json.dumps(cli.args.get("*", ())),
        **{f"CAPSULE_{name}": value for name, value in settings.items()},
    }


def capsule_in(cwd: Path, env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "capsule", *words],
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PATIENCE,
        check=False,
    )
