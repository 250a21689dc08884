"""Plays back what a real CLI printed: a shell script stands in its place, so that nothing has to be installed.

The events in `recorded/` came from the real CLIs (the versions that tests/live pins) against a scripted model.
"""

from __future__ import annotations

import json
import shlex
from importlib import import_module
from pathlib import Path
from typing import Any

from capsule.agents._stream import StreamAgent
from capsule.core.briefing import Briefing, Transcript
from capsule.core.failure import Kind
from capsule.system.process import SupervisorClient
from tests.shared import a_connection

RECORDINGS = Path(__file__).parent / "recorded"
Endings = dict[str, tuple[int, Kind | None, str]]
"""Recording → exit code, the kind it must come out as, and words that the reason must hold."""


class Bench:
    """A CLI on the PATH that does what the test says, and a user's home."""

    def __init__(self, name: str, folder: Path, supervisor: SupervisorClient) -> None:
        self.name, self.folder, self.supervisor = name, folder, supervisor
        self.home, self.place, self.told = folder / "home", folder / "place", list[str]()
        self.home.mkdir()
        self.place.mkdir()

    def agent(self, **more: Any) -> StreamAgent:
        env = {"PATH": f"{self.folder}:/usr/bin:/bin", "HOME": str(self.home), **more.pop("base_env", {})}
        about = {"base_env": env, "tell": lambda _mission, text: self.told.append(text), **more}
        connection = a_connection(name=self.name, supervisor=self.supervisor, root=self.folder, **about)
        made: StreamAgent = import_module(f"capsule.agents.{self.name}").connect(connection)
        return made

    def briefing(self, **more: Any) -> Briefing:
        about = {"mission": "m", "item": "m", "phase": "code", "run": 1, "timeout": 30.0, "idle_timeout": 0.0}
        log = self.place / ".capsule" / "output" / "code-1-2.log"
        return Briefing(**{"prompt": "Do it.", "cwd": str(self.place), "log": str(log), **about, **more})

    def printed(self) -> bool:
        """Whether it has got as far as to say something."""
        return any(file.stat().st_size for file in (self.place / ".capsule" / "output").glob("code-1-2.log*"))

    def log(self, ending: str = "") -> str:
        return (self.place / ".capsule" / "output" / f"code-1-2.log{ending}").read_text()

    def does(self, script: str) -> None:
        program = self.folder / self.name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def plays(self, recording: str, code: int = 0, stderr: str = "", then: str = "", **more: Any) -> Transcript:
        events = shlex.quote(str(RECORDINGS / self.name / f"{recording}.jsonl"))
        self.does(f"cat {events}; printf %s {shlex.quote(stderr)} >&2; {then or ':'}; exit {code}")
        return self.agent().run(self.briefing(**more))

    def prints(self, *events: dict[str, Any], code: int = 0) -> Transcript:
        lines = " ".join(shlex.quote(json.dumps(event)) for event in events)
        self.does(f"printf '%s\\n' {lines}; exit {code}")
        return self.agent().run(self.briefing())

    def sees(self, script: str, **more: Any) -> str:
        """What a script prints that stands in the CLI's place; the output is no event, so it is the text."""
        self.does(script)
        return self.agent(**more).run(self.briefing()).text.decode()

    def assert_ends(self, recording: str, endings: Endings) -> None:
        code, kind, words = endings[recording]
        failure = self.plays(recording, code).failure
        assert (failure.kind if failure else None) is kind, failure
        assert words in (failure.reason if failure else "")
        assert "\n" not in (failure.reason if failure else "")


def recorded(name: str) -> list[str]:
    return sorted(file.stem for file in (RECORDINGS / name).glob("*.jsonl"))
