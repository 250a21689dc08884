"""`--output json`: every event as one line on stdout. The schema is that of `core.event`; see docs/reference/events."""

from __future__ import annotations

import sys
from typing import BinaryIO

from capsule.core.event import Event, Proposed, StepEnded, as_json_line
from capsule.system.output import LastingOutput


class JsonReport:
    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._count = 0
        self._published = False

    def event(self, mission: str, event: Event) -> None:
        """Write one line. If that fails the run ends, unless it has published work: then it goes on without output."""
        self._count += 1
        self._published = self._published or _publishes(event)
        try:
            self._stream.write(as_json_line(mission, self._count, event) + b"\n")
            self._stream.flush()
        except OSError as fault:
            if not (self._published and isinstance(sys.stdout, LastingOutput)):
                raise
            sys.stdout.lose(fault)

    def activity(self, mission: str, text: str) -> None:
        """Activity is in the live file; this stream is what CI keeps."""


def _publishes(event: Event) -> bool:
    """Tell whether main moves right after this event, or has moved; an item of a backlog counts when it is archived."""
    ended = isinstance(event, StepEnded) and {"merged", "archive"} & event.outcome.facts.keys()
    return isinstance(event, Proposed) or bool(ended)
