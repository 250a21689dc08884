"""A project with a backlog, what its backlog holds, and what came of it.

The project's code is the file `answer`; its test command is green while `answer` holds 42 or is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capsule.core.event import Event, StepBegun, StepEnded
from capsule.core.item import Item
from capsule.plain_files import parse_yaml
from capsule.trackers.backlog import BacklogTracker

from ..git_server import GitServer, run
from .at_a_server import AtServer
from .backlog_script import honest
from .conftest import Project, Said, Script, begin

STAMP = "2026-02-11T09:30:00Z"


class BacklogProject(Project):
    test = "test ! -e answer || grep -qx 42 answer"
    """Settings of the environment go before those of the project, so it need not be committed."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._plays: dict[str, Script] = {}
        super().__init__(path, folder)
        self.play(honest())

    def play(self, script: Script, item: str = "WRK-001") -> None:
        """What the agents of this item will do from now on; those of others do what they did."""
        self._plays[item] = script
        self._script.write_text(json.dumps(self._plays))

    def environment(self, **more: str) -> dict[str, str]:
        return super().environment(**{"CAPSULE_EVIDENCE__TEST": self.test, **more})

    def run(self, *words: str, **env: str) -> Said:
        return self.say("run", *words, env=env)

    def add(self, title: str = "Find the answer", *words: str) -> str:
        return self.say("add", title, *words).out.split()[0]

    def settings(self, text: str) -> None:
        """Committed, so that missions are judged by them."""
        config = self.path / ".capsule" / "config.yaml"
        config.write_text(f"{config.read_text()}\n{text}\n")
        self.git("add", "-f", ".capsule/config.yaml")
        self.git("commit", "-q", "-m", "settings")

    # ---- the backlog

    @property
    def backlog(self) -> Path:
        return self.path / "BACKLOG.yaml"

    @property
    def tracker(self) -> BacklogTracker:
        return BacklogTracker(self.path)

    def hold(self, *items: dict[str, Any], last_id: int = 0) -> None:
        """These items are in the backlog; the file is the tracker's own, so it need not be committed."""
        rows = ["schema_version: 1", f"last_id: {last_id or len(items)}", "items:" if items else "items: []"]
        for number, item in enumerate(items, 1):
            values = {"id": f"WRK-{number:03}", "title": f"Item {number}", "status": "new", "created": STAMP} | item
            first, *rest = (f"{name}: {value}" for name, value in values.items())
            rows += [f"  - {first}", *(f"    {row}" for row in rest)]
        self.backlog.write_text("\n".join(rows) + "\n")

    def edit(self, before: str, after: str) -> None:
        """A human changes the backlog with an editor."""
        text = self.backlog.read_text()
        assert before in text, text
        self.backlog.write_text(text.replace(before, after))

    def item(self, item_id: str = "WRK-001") -> Item:
        return self.tracker.item(item_id)

    def ids(self) -> list[str]:
        return [item.id for item in self.tracker.everything()]

    def fields(self, item_id: str = "WRK-001") -> dict[str, Any]:
        """An item exactly as the file has it."""
        data: Any = parse_yaml(self.backlog.read_bytes(), "BACKLOG.yaml")
        return next(item for item in data["items"] if item["id"] == item_id)

    def documents(self, *kinds: str, item: str = "WRK-001", text: str = "written\n") -> None:
        for kind in kinds:
            self.write(f"changes/{item}_item-1/{item}_item-1_{kind}.md", text)
        self.commit("documents")

    # ---- what came of it

    def subjects(self, since: str = "") -> list[str]:
        """Of all commits, or of those after one; the oldest first."""
        return self.git("log", "--reverse", "--format=%s", *([f"{since}.."] if since else [])).splitlines()

    def events(self, mission: str = "WRK-001") -> list[Event]:
        return super().events(mission)

    def moves(self, mission: str = "WRK-001") -> list[str]:
        """The steps that came to an end, in order, as `prd retry`."""
        ended = [event for event in self.events(mission) if isinstance(event, StepEnded)]
        return [f"{event.phase} {event.decision.move.value}" for event in ended]

    def spawns(self, mission: str = "WRK-001") -> int:
        return sum(isinstance(event, StepBegun) and event.spawns for event in self.events(mission))


class BacklogAtServer(AtServer):
    """A backlog whose main is on a server, and its other clones."""

    def __init__(
        self, project: BacklogProject, server: GitServer, name: str = "project", *, to: str = "remote"
    ) -> None:
        super().__init__(project, server, name, to=to)
        self.project = project

    def clone(self, name: str = "clone", *options: str) -> BacklogProject:
        folder = self.project.path.parent / name
        folder.mkdir()
        run("clone", "-q", *options, self.server.url(self.name), str(folder / "project"))
        clone = BacklogProject(folder / "project", folder)
        clone.git("config", "user.name", "Bob")
        clone.git("config", "user.email", "bob@example.org")
        clone.test, clone.always = self.project.test, self.project.always
        return clone


def blocked(kind: str = "clarification", **fields: Any) -> dict[str, Any]:
    """An item that waits for a human, as the file has it."""
    reason = "which colour?" if kind == "clarification" else "risk is high, above the guardrail low"
    came_from = {"blocked_from_status": "ready", "blocked_reason": f'"{reason}"', "blocked_type": kind}
    return {"status": "blocked", **came_from, **fields}


@contextmanager
def unchanged(project: BacklogProject) -> Iterator[None]:
    """Neither a commit nor a byte of any file of the project; Capsule's own folder in .git is not looked at."""
    before = project.head(), _files(project.path)
    yield
    assert (project.head(), _files(project.path)) == before


def _files(root: Path) -> dict[str, bytes]:
    inside = (path for path in root.rglob("*") if ".git" not in path.relative_to(root).parts[:1])
    return {str(path): path.read_bytes() for path in inside if path.is_file()}


def begun_by_a_newcomer(folder: Path) -> BacklogProject:
    """Code, tests that can be found, a codex that is installed, and nothing of Capsule."""
    project = BacklogProject(begin(folder / "shop").path, folder)
    project.test = ""
    project.write("Makefile", "test:\n\techo fine\n")
    project.commit("start", README="hello\n")
    (folder / "bin").mkdir()
    (folder / "bin/codex").write_text("#!/bin/sh\nexit 0\n")
    (folder / "bin/codex").chmod(0o755)
    project.always |= {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "CAPSULE_AGENT": ""}
    return project
