"""The journal of a clone whose missions run on other machines: their events come from git, and ours go there.

Before it is read, events that were fetched are copied into the file on disk, so that every screen reads them as if the
missions had run here. Whoever writes to a mission, to answer it for example, holds it here, and what they add is put at
the remote when they let go. A mission that other machines work on cannot be held.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

from capsule.core.errors import CapsuleError, LockHeld
from capsule.core.event import Event, Stopped, is_mission
from capsule.core.state import replay
from capsule.journals.sqlite import SqliteJournal

_FRESH = 2.0
"""Seconds for which fetched events are read without fetching again."""
_NOTE = "events-fetched"


class EventStore(Protocol):
    """The events of missions at a remote (workspaces/mission_events.py)."""

    def fetch(self, mission: str) -> str: ...

    def fetch_all(self) -> object: ...

    def known(self) -> Mapping[str, str]: ...

    def read(self, commit: str) -> list[Event]: ...

    def add(self, mission: str, onto: str, events: Sequence[Event], fence: str, now: str) -> str: ...


class MirroredJournal(SqliteJournal):
    """A SqliteJournal that follows the events of missions at a remote."""

    def __init__(
        self,
        folder: Path,
        store: EventStore,
        *,
        read_only: bool = False,
        redact: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        super().__init__(folder, read_only=read_only, redact=redact)
        self._store, self._looked = store, 0.0
        self._elsewhere: dict[str, str] = {}
        """The missions whose events are at the remote, each with the commit that was copied."""
        self._works: dict[str, tuple[int, bool]] = {}

    def follow(self) -> None:
        """Fetch what other machines have done, unless that was done a moment ago, and copy it."""
        note = self._folder / _NOTE
        with suppress(FileNotFoundError):
            if time.time() - note.stat().st_mtime < _FRESH and self._elsewhere:
                return
        with suppress(FileNotFoundError, CapsuleError):  # offline: as it was fetched last
            self._store.fetch_all()
            note.touch()
        self._copy()

    def _copy(self) -> None:
        known = self._store.known()
        changed = {mission: commit for mission, commit in known.items() if self._elsewhere.get(mission) != commit}
        if not changed:
            return
        writer = SqliteJournal(self._folder) if self._read_only else self
        for mission, commit in changed.items():
            writer.become(mission, self._store.read(commit))
        if writer is not self:
            writer.close()
        self._elsewhere = dict(known)

    @contextmanager
    def claim(self, stream: str) -> Iterator[int]:
        if not is_mission(stream) or not self._store.fetch(stream):
            with super().claim(stream) as epoch:
                yield epoch
            return
        self._copy()
        if self._is_worked_on(stream):
            raise LockHeld(f"{stream} is running on another machine.", f"Stop it first: capsule stop {stream}")
        with super().claim(stream) as epoch:
            before = len(super().events(stream))
            try:
                yield epoch
            finally:
                new = [event for _, event in super().events(stream, after=before)]
                if new:
                    # No step of a workflow that has ended has a fence as high as the time.
                    onto, fence = self._elsewhere[stream], f"{time.time():015.3f}-00000"
                    self._elsewhere[stream] = self._store.add(stream, onto, new, fence, new[-1].at)

    def events(self, stream: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        self.follow()
        return super().events(stream, after)

    def streams(self) -> Sequence[str]:
        self.follow()
        return super().streams()

    def epochs(self) -> Mapping[str, int]:
        """Count a mission that runs elsewhere as claimed anew with each of its events."""
        return {**super().epochs(), **{name: n for name, n in self.counts().items() if name in self._elsewhere}}

    def is_held(self, stream: str) -> bool:
        return super().is_held(stream) or self._is_worked_on(stream)

    def holder(self, stream: str) -> int | None:
        pid = super().holder(stream)
        return 0 if pid is None and self._is_worked_on(stream) else pid

    def _is_worked_on(self, stream: str) -> bool:
        """Tell whether other machines work on a mission, by its events."""
        if stream not in self._elsewhere:
            return False
        rows = super().events(stream)
        count, works = self._works.get(stream, (0, False))
        if count != len(rows):
            events = [event for _, event in rows]
            state = replay(events)
            works = state.under_way and not (state.halt or state.in_review or isinstance(events[-1], Stopped))
            self._works[stream] = len(rows), works
        return works
