"""Missions with the scripted agent and the memory tracker, in a repository in memory.

A test that asks git something, or whose agents do more with it than commit, is marked `in_git` and has a real one.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from capsule.adapters import Order
from capsule.catalog import Catalog
from capsule.core.event import Event, Policy, StepEnded, kind
from capsule.core.item import Item
from capsule.core.state import MissionState
from capsule.core.workflow import Workflow, parse_workflow
from capsule.engine.run_mission import run_until_halt
from capsule.project import Project
from capsule.services import Services
from capsule.system.git import Git
from capsule.trackers.memory import MemoryTracker
from capsule.wiring import open_services
from capsule.workspaces.repository import exclude_artefacts
from tests.memory_journal import MemoryJournal
from tests.memory_place import MemoryPlace, MemoryRepository, MemoryTrunk
from tests.played_here import played_here

PASS = {"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"}
_COMMIT = re.compile(r"git add (?:-A ?)?([^&]*?) ?&& git commit -qm? .*")
GREEN_IF_CODE = "test ! -e tests.sh || sh tests.sh"
"""The project's test command: nothing to test is green, then it is up to tests.sh."""


class Watcher:
    """An observer that only listens."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Event]] = []
        self.activities: list[str] = []

    def event(self, mission: str, event: Event) -> None:
        self.events.append((mission, event))

    def activity(self, mission: str, text: str) -> None:
        self.activities.append(text)


@dataclass
class Scene:
    """A project, a script for the agents, and the means to run missions in it."""

    root: Path
    script: Path
    tracker: MemoryTracker
    services: Services
    journal: MemoryJournal
    watcher: Watcher
    in_git: bool
    policy: Policy = field(default_factory=lambda: Policy(test=GREEN_IF_CODE, test_globs=("tests.sh", "test_*")))

    def plays(self, script: dict[str, Any]) -> None:
        if not self.in_git:
            script = {
                item: {phase: [_without_git(turn) for turn in turns] for phase, turns in phases.items()}
                for item, phases in script.items()
            }
        self.script.write_text(json.dumps(script))

    def run(self, item: str, workflow: Workflow | str, **changes: Any) -> MissionState:
        flow = self.services.words.workflow(workflow) if isinstance(workflow, str) else workflow
        order = Order(
            mission=item,
            item=self.tracker.item(item),
            workflow=flow,
            base=self.services.trunk("main").tip(),
            into="main",
            policy=msgspec.structs.replace(self.policy, **changes),
        )
        return run_until_halt(order, self.services)

    def git(self, *args: str) -> str:
        if not self.in_git:
            assert args in (("rev-parse", "main"), ("rev-parse", "HEAD")), "this test is to be marked `in_git`"
            return self.services.trunk("main").tip()
        return subprocess.run(["git", *args], cwd=self.root, check=True, capture_output=True, text=True).stdout.strip()

    def ended(self, mission: str) -> list[StepEnded]:
        return [event for _, event in self.journal.events(mission) if isinstance(event, StepEnded)]

    def moves(self, mission: str) -> list[str]:
        return [f"{event.key} {event.decision.move.value}" for event in self.ended(mission)]

    def kinds(self, mission: str) -> list[str]:
        return [kind(event) for _, event in self.journal.events(mission)]

    def agent_log(self, mission: str, phase: str) -> str:
        folder = self.root / ".capsule" / "logs" / mission / "phase-outputs"
        return "".join(path.read_text() for path in sorted(folder.glob(f"{phase}-*.log")))


def _without_git(turn: dict[str, Any]) -> dict[str, Any]:
    """The turn of an agent that only commits, for a repository in memory."""
    if "run" not in turn:
        return turn
    (command,) = turn["run"]
    commit = _COMMIT.fullmatch(command)
    assert commit, f"to be marked `in_git`: {command}"
    listed = (commit[1] or ".").replace(" ", "\n")
    return {**turn, "run": [], "write": {**turn.get("write", {}), ".commit": listed}}


def workflow(**data: Any) -> Workflow:
    return parse_workflow(data, source="a test", name=data.pop("name", "flow"))


@pytest.fixture
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    root, in_git = tmp_path / "project", request.node.get_closest_marker("in_git") is not None
    root.mkdir()
    script = tmp_path / "script.json"
    (root / "README.md").write_text("A project.\n")
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "First"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    flags = {"agent": "scripted", "agents.scripted.args": [str(script)], "sandbox": "off"}
    project = Project(Git.find(root), flags, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})
    exclude_artefacts(project.git, project.git.resolve("HEAD"))
    tracker = MemoryTracker([Item(id="one", title="Say hello", description="A greeting.", acceptance="It greets.")])
    watcher, journal = Watcher(), MemoryJournal()
    with ExitStack() as stack:
        services = stack.enter_context(open_services(project, tracker, Catalog.on_disk(root), watcher, None))
        in_memory = {} if in_git else {"agent": played_here(services.agent), **_in_memory(root)}
        services = replace(services, journal=journal, **in_memory)
        yield Scene(root, script, tracker, services, journal, watcher, in_git)


def _in_memory(root: Path) -> dict[str, Any]:
    repository = MemoryRepository(root)
    repository.commit_files("main", "First", README__md="A project.\n")
    return {
        "place": cache(lambda mission, _into: MemoryPlace(repository, mission)),
        "trunk": cache(lambda branch: MemoryTrunk(repository, branch)),
    }
