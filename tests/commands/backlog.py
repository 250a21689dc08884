"""A project with a backlog, an agent that plays what a test tells it, and `capsule` in this very process.

The project's code is the file `answer`; its test command is green while `answer` holds 42 or is not there.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from capsule.cli import main
from capsule.core.event import Event, StepBegun, StepEnded
from capsule.core.item import Item
from capsule.journals.sqlite import SqliteJournal
from capsule.trackers.backlog import BacklogTracker

from ..conftest import Repo

Turn = dict[str, Any]
Script = dict[str, list[Turn]]
TEST = "test ! -e answer || grep -qx 42 answer"
SPEC = """\
### Phase 1: one

**Phase Status:** not_started

- [ ] it

### Phase 2: two

**Phase Status:** not_started

- [ ] more
"""
HALF = SPEC.replace("not_started", "complete", 1).replace("[ ]", "[x]", 1)
WHOLE = SPEC.replace("not_started", "complete").replace("[ ]", "[x]")


class Said(NamedTuple):
    code: int
    out: str
    err: str


def folder(item: str = "WRK-001", title: str = "find-the-answer") -> str:
    return f"changes/{item}_{title}/{item}_{title}"


def says(phase: str, code: str = "PHASE_COMPLETE", item: str = "WRK-001", **more: Any) -> dict[str, Any]:
    return {"item_id": item, "phase": phase, "result": code, "summary": f"{phase} done", **more}


def turn(phase: str, code: str = "PHASE_COMPLETE", *, item: str = "WRK-001", **more: Any) -> Turn:
    """One run of a phase: what is written, and the result that is claimed."""
    acts: Turn = {name: more.pop(name) for name in ("write", "run", "sleep", "remove", "exit", "say") if name in more}
    return {**acts, "result": says(phase, code, item, **more)}


def honest(item: str = "WRK-001", title: str = "find-the-answer", **instead: list[Turn]) -> Script:
    """An agent that does what it is asked; a phase may be given other turns, as `idea_research=[...]`."""
    stem = folder(item, title)
    small = {"size": "small", "complexity": "low", "risk": "low", "impact": "high"}

    def document(phase: str, kind: str, text: str = "# Words\n") -> list[Turn]:
        return [turn(phase, item=item, write={f"{stem}_{kind}.md": text})]

    plays: Script = {
        "triage": [turn("triage", item=item, updated_assessments=small)],
        "idea-research": [turn("idea-research", item=item, write={f"_ideas/{item}_{title}.md": "# An idea\n"})],
        "prd": document("prd", "PRD"),
        "research": document("research", "TECH_RESEARCH"),
        "design": document("design", "DESIGN"),
        "spec": document("spec", "SPEC", SPEC),
        "build": [
            turn("build", "SUBPHASE_COMPLETE", item=item, write={"answer": "42\n", f"{stem}_SPEC.md": HALF}),
            turn("build", item=item, write={"question": "6x9\n", f"{stem}_SPEC.md": WHOLE}),
        ],
        "review": [turn("review", item=item)],
    }
    return plays | {name.replace("_", "-"): turns for name, turns in instead.items()}


class BacklogProject(Repo):
    def __init__(self, path: Path, script: Path, capfd: pytest.CaptureFixture[str]) -> None:
        super().__init__(path)
        self._script = script
        self._capfd = capfd
        self._plays: dict[str, Script] = {}

    def play(self, script: Script, item: str = "WRK-001") -> None:
        self._plays[item] = script
        self._script.write_text(json.dumps(self._plays))

    def capsule(self, *words: str) -> Said:
        self._capfd.readouterr()
        code = main([words[0], "--project-dir", str(self.path), *words[1:]])
        out, err = self._capfd.readouterr()
        return Said(code, out, err)

    def run(self, *words: str) -> Said:
        return self.capsule("run", *words)

    def add(self, title: str = "Find the answer", *words: str) -> str:
        return self.capsule("add", title, *words).out.split()[0]

    @property
    def tracker(self) -> BacklogTracker:
        return BacklogTracker(self.path)

    def item(self, item_id: str = "WRK-001") -> Item:
        return self.tracker.item(item_id)

    def ids(self) -> list[str]:
        return [item.id for item in self.tracker.everything()]

    def subjects(self, since: str = "") -> list[str]:
        return self.git("log", "--reverse", "--format=%s", *([f"{since}.."] if since else [])).splitlines()

    def events(self, stream: str = "WRK-001") -> list[Event]:
        journal = SqliteJournal(self.path / ".git" / "capsule", read_only=True)
        found = [event for _, event in journal.events(stream)]
        journal.close()
        return found

    def moves(self, mission: str = "WRK-001") -> list[str]:
        ended = [event for event in self.events(mission) if isinstance(event, StepEnded)]
        return [f"{event.phase} {event.decision.move.value}" for event in ended]

    def spawns(self, mission: str = "WRK-001") -> int:
        return sum(isinstance(event, StepBegun) and event.spawns for event in self.events(mission))

    def settings(self, text: str) -> None:
        """Committed, so that missions are judged by them."""
        config = self.path / ".capsule" / "config.yaml"
        config.write_text(f"{config.read_text()}\n{text}\n")
        self.git("add", "-f", ".capsule/config.yaml")
        self.git("commit", "-q", "-m", "settings")


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> BacklogProject:
    """After `capsule init`, in a repository with one commit."""
    root, script = tmp_path / "project", tmp_path / "script.json"
    root.mkdir()
    project = BacklogProject(root, script, capfd)
    project.git("init", "-q", "-b", "main")
    project.git("commit", "-q", "--allow-empty", "-m", "First")
    monkeypatch.setenv("CAPSULE_AGENT", "scripted")
    monkeypatch.setenv("CAPSULE_AGENTS__SCRIPTED__ARGS", json.dumps([str(script)]))
    monkeypatch.setenv("CAPSULE_EVIDENCE__TEST", TEST)
    project.play(honest())
    assert project.capsule("init").code == 0
    return project
