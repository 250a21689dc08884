"""Cache the state of a stream: each call reads only the events that are new."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from capsule.core.event import Event

State = TypeVar("State")
ReadEvents = Callable[[str, int], Sequence[tuple[int, Event]]]
"""Returns the numbered events of a stream that follow a number (`JournalReader.events`)."""


class CachedState(Generic[State]):
    """The state of a stream as of the last call."""

    def __init__(self, events: ReadEvents, stream: str, start: State, after: Callable[[State, Event], State]) -> None:
        self.stream = stream
        self._events, self._after = events, after
        self._state, self._seen = start, 0

    def now(self) -> State:
        """Apply what is new, and return the state: the same object as before, where `after` changes it in place."""
        for number, event in self._events(self.stream, self._seen):
            self._state, self._seen = self._after(self._state, event), number
        return self._state
