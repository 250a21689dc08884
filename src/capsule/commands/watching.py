"""Read the journal for screens and reports, and ask a runner to stop."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from capsule.core.board import Board
from capsule.core.errors import CapsuleError, LockHeld
from capsule.core.event import Event
from capsule.core.history import MissionHistory, MissionSummary, Presence, RunSummary, read_mission, read_run
from capsule.journals.sqlite import SqliteJournal
from capsule.journals.watch import Watch
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.files import tail_bytes


class JournalWatcher:
    """Look at the project's missions again and again. The thread that looks first owns what it opens."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.journal: SqliteJournal | None = None
        self._watch: Watch | None = None

    def look(self) -> Board:
        try:
            if self._watch is None:
                from capsule.wiring import budget_of  # noqa: PLC0415 - start-up of `show`

                self.journal = self._project.journal(read_only=True)
                self._watch = Watch(self.journal, self._project.logs().folder, budget_of(self._project.settings))
            return self._watch.look(SystemClock().now())
        except CapsuleError:
            self._watch = None  # what is mended meanwhile is opened anew
            raise


class MissionReader:
    """Read the journal once: each stream when it is first asked for."""

    def __init__(self, project: Project) -> None:
        self.journal = project.journal(read_only=True)
        self._events: dict[str, list[Event]] = {}
        self._histories: dict[str, MissionHistory] = {}

    def __enter__(self) -> MissionReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()

    def missions(self) -> Sequence[str]:
        return self.journal.missions()

    def events(self, stream: str) -> list[Event]:
        if stream not in self._events:
            self._events[stream] = [event for _, event in self.journal.events(stream)]
        return self._events[stream]

    def history(self, mission: str) -> MissionHistory:
        if mission not in self._histories:
            self._histories[mission] = read_mission(self.events(mission))
        return self._histories[mission]

    def run(self, stream: str, now: str) -> RunSummary:
        return read_run(stream, self.events(stream)).summary(Presence(holder(self.journal, stream)), now)

    def summary(self, mission: str, now: str) -> MissionSummary:
        return self.history(mission).summary(Presence(holder(self.journal, mission)), now)


def end_of(file: Path, limit: int) -> str:
    """Return the end of a file; '' where it is gone: archived between two looks, and the next one finds it there."""
    try:
        return tail_bytes(file, limit).decode(errors="replace")
    except OSError:
        return ""


def holder(journal: SqliteJournal, stream: str) -> int | None:
    """Return the pid of the runner; 0 is one that cannot be named from here."""
    try:
        return journal.running(stream)
    except LockHeld:
        return 0


def ask_to_stop(journal: SqliteJournal, stream: str, shown: int | None = None) -> str:
    """Send SIGINT to the runner; return '' or why that was not possible.

    The runner is looked up just before: the pid that was `shown` to somebody may belong to another process by now.
    """
    pid = holder(journal, stream)
    if pid is None:
        return "It is not running any more."
    if pid == 0:
        return "It runs in another container or on another machine: stop it there."
    if shown not in (None, pid):
        return f"Another process runs it now (pid {pid})."
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as fault:
        return f"It cannot be stopped from here: {fault.strerror}."
    return ""
