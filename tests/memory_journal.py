"""The Journal adapter for tests: it forgets when the process ends."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from capsule.adapters import Journal
from capsule.core.errors import LockHeld
from capsule.core.event import Event, Spawned, StepBegun, StepEnded, decode, encode
from capsule.core.schedule import refuse_over_cap
from capsule.core.state import Step


class MemoryJournal(Journal):
    def __init__(self) -> None:
        self._streams: dict[str, list[bytes]] = defaultdict(list)
        self._epochs: dict[str, int] = defaultdict(int)
        self._held: set[str] = set()

    @contextmanager
    def claim(self, stream: str) -> Iterator[int]:
        if stream in self._held:
            raise LockHeld(f"{stream} is running.", "Wait until it has ended.")
        self._held.add(stream)
        self._epochs[stream] += 1
        try:
            yield self._epochs[stream]
        finally:
            self._held.remove(stream)

    @contextmanager
    def join(self, stream: str, epoch: int) -> Iterator[None]:
        yield

    def once(
        self,
        step: Step,
        begun: StepBegun,
        perform: Callable[[], StepEnded],
        beside: tuple[str, Event] | None = None,
    ) -> StepEnded:
        for _, event in self.events(step.mission):
            if isinstance(event, StepEnded) and event.key == step.key:
                return event
        self.note(step.mission, begun, beside)
        ended = perform()
        self.note(step.mission, ended)
        return ended

    def note(self, stream: str, event: Event, beside: tuple[str, Event] | None = None) -> None:
        rows = [(stream, event), *([beside] if beside else [])]
        for name, each in rows:
            if name not in self._held:
                raise LockHeld(f"{name} is written to without its claim.", "Claim it first.")
            if isinstance(each, Spawned):
                refuse_over_cap(event for _, event in self.events(name))
        for name, each in rows:
            self._streams[name].append(encode(each))

    def events(self, stream: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        rows = self._streams.get(stream, [])
        return [(number, decode(row)) for number, row in enumerate(rows, 1) if number > after]

    def streams(self) -> Sequence[str]:
        return sorted(self._streams)

    def holder(self, stream: str) -> int | None:
        return os.getpid() if stream in self._held else None

    def epochs(self) -> Mapping[str, int]:
        return dict(self._epochs)

    def version(self) -> int:
        return sum(map(len, self._streams.values())) + sum(self._epochs.values())

    def close(self) -> None:
        """Nothing is open."""
