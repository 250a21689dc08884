"""What every screen looks at, and how it asks whoever runs something to stop: journal, live files, locks, a signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, LockHeld

if TYPE_CHECKING:
    from pathlib import Path

    from capsule.core.board import Board
    from capsule.journals.sqlite import SqliteJournal
    from capsule.journals.watch import Watch
    from capsule.project import Project

_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 12


class Eyes:
    """Looks at the project's missions. What it opens belongs to the thread that looks first."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._journal: SqliteJournal | None = None
        self._watch: Watch | None = None

    def look(self) -> Board:
        from capsule.system.clock import SystemClock

        try:
            if self._watch is None:
                self._watch = self._open()
            return self._watch.look(SystemClock().now())
        except CapsuleError:
            self._watch = None  # what is mended meanwhile is opened anew
            raise

    def _open(self) -> Watch:
        from capsule.journals.watch import Watch
        from capsule.wiring import budget_of

        self._journal = self._project.journal(read_only=True)
        return Watch(self._journal, self._project.papers().folder, budget_of(self._project.settings).mission)

    def tail(self, mission: str) -> Sequence[str]:
        """The last lines of what its agent printed last."""
        from capsule.commands.logs import Shelf

        assert self._journal
        outputs = Shelf(self._project, self._journal, mission).outputs()
        return end_of(outputs[-1].file, _TAIL_BYTES).splitlines()[-_TAIL_LINES:] if outputs else ()


def end_of(file: Path, limit: int) -> str:
    """'' where it is not there: it may be archived between two looks, and the next one finds it."""
    from capsule.system.files import tail_bytes

    try:
        return tail_bytes(file, limit).decode(errors="replace")
    except OSError:
        return ""


def holder(journal: SqliteJournal, stream: str) -> int | None:
    """Who runs it; 0 is somebody who cannot be named from here."""
    try:
        return journal.running(stream)
    except LockHeld:
        return 0


def ask_to_stop(journal: SqliteJournal, stream: str, shown: int | None = None) -> str:
    """'' where it was asked, else why it could not be.

    Who holds it is found out just before: a number that was `shown` to somebody may be another's by now.
    """
    pid = holder(journal, stream)
    if pid is None:
        return "It does not run any more."
    if pid == 0:
        return "It runs where it cannot be reached from here."
    if shown not in (None, pid):
        return f"It is run by another process now (pid {pid})."
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as fault:
        return f"It cannot be stopped from here: {fault.strerror}."
    return ""
