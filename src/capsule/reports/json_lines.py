"""`--output json`: every event as one line on stdout. The schema is that of `core.event`; see docs/reference/events."""

from __future__ import annotations

import sys
from typing import BinaryIO

from capsule.core.event import Event, as_json_line


class JsonReport:
    def __init__(self, stream: BinaryIO | None = None) -> None:
        self._stream = stream or sys.stdout.buffer
        self._count = 0

    def event(self, mission: str, event: Event) -> None:
        self._count += 1
        self._stream.write(as_json_line(mission, self._count, event) + b"\n")
        self._stream.flush()

    def activity(self, mission: str, text: str) -> None:
        """Activity is in the live file; this stream is what CI keeps."""
