"""The Journal adapter for tests: it forgets when the process ends."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from capsule.adapters import Beside, Journal
from capsule.core.errors import LockHeld
from capsule.core.event import Event, Spawned, StepBegun, StepEnded, decode, encode
from capsule.core.run import admitted, open_run
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

    def once(
        self,
        step: Step,
        begun: StepBegun,
        perform: Callable[[], StepEnded],
        beside: Beside | None = None,
        ends_beside: Callable[[StepEnded], Beside | None] = lambda _: None,
    ) -> StepEnded:
        for _, event in self.events(step.mission):
            if isinstance(event, StepEnded) and event.key == step.key:
                return event
        self.note(step.mission, begun, beside)
        ended = perform()
        self.note(step.mission, ended, ends_beside(ended))
        return ended

    def note(self, stream: str, event: Event, beside: Beside | None = None) -> None:
        if stream not in self._held:
            raise LockHeld(f"{stream} is written to without its claim.", "Claim it first.")
        if beside and isinstance(beside[1], Spawned):
            beside = beside[0], admitted(beside[1], open_run(event for _, event in self.events(beside[0])))
        for name, each in [(stream, event), *([beside] if beside else [])]:
            self._streams[name].append(encode(each))

    def events(self, stream: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        rows = self._streams.get(stream, [])
        return [(number, decode(row)) for number, row in enumerate(rows, 1) if number > after]

    def streams(self) -> Sequence[str]:
        return sorted(self._streams)

    def is_held(self, stream: str) -> bool:
        return stream in self._held

    def holder(self, stream: str) -> int | None:
        return os.getpid() if stream in self._held else None

    def epochs(self) -> Mapping[str, int]:
        return dict(self._epochs)

    def version(self) -> int:
        return sum(map(len, self._streams.values())) + sum(self._epochs.values())

    def close(self) -> None:
        """Nothing is open."""
