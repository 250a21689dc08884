"""Write activity between two events to `.capsule/missions/<id>/live.jsonl`, capped."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from capsule.adapters import Observer
from capsule.core.event import Event, is_mission, kind
from capsule.core.redaction import Redactor
from capsule.reports.style import clean
from capsule.system.files import CannotWrite, append_line

LARGEST = 4 * 1024 * 1024


class LiveFile:
    def __init__(self, folder: Callable[[str], Path], now: Callable[[], str]) -> None:
        self._folder = folder
        self._now = now

    def event(self, mission: str, event: Event) -> None:
        self._append(mission, {"at": event.at, "event": kind(event), "key": getattr(event, "key", "")})

    def activity(self, mission: str, text: str) -> None:
        self._append(mission, {"at": self._now(), "activity": clean(text)[:500]})

    def _append(self, mission: str, line: dict[str, str]) -> None:
        """Append to the live file, only while the mission is under way, as its folder goes with the archive.

        Only screens read it, so a failed write is ignored.
        """
        if not is_mission(mission):
            return
        folder = self._folder(mission)
        path = folder / "live.jsonl"
        with contextlib.suppress(OSError, CannotWrite):
            if folder.is_dir():
                if path.exists() and path.stat().st_size >= LARGEST:
                    path.unlink()  # readers want new lines, and begin at the top of the next file
                append_line(path, json.dumps(line, ensure_ascii=False))


class FanOut:
    """Pass everything on to all observers, without secrets."""

    def __init__(self, *observers: Observer, redactor: Redactor | None = None) -> None:
        self._observers, self._redactor = observers, redactor

    def event(self, mission: str, event: Event) -> None:
        event = self._redactor.event(event) if self._redactor else event
        for observer in self._observers:
            observer.event(mission, event)

    def activity(self, mission: str, text: str) -> None:
        text = self._redactor.text(text) if self._redactor else text
        for observer in self._observers:
            observer.activity(mission, text)
