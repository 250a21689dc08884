"""Run agent CLIs that print events, one JSON object a line, instead of plain text.

The events go to `<log>.events` as they are; when the agent has ended, its final text is written to `<log>`. Such a
stream may be a gigabyte long, hold single lines of many megabytes, or break off in the middle of one, so it is never
read as a whole, nor is every line decoded:

- while it grows, a few of the newest lines are decoded for the live view (`Follower`);
- at its end, it is read backwards until the adapter has found what it is looking for (`Events.backwards`), and what has
  to be added up over the whole of it is found by a mark that the line must hold (`Events.marked`).

What is printed may also be no events at all: people put wrappers in a CLI's place. Then it is plain text, the status is
unknown rather than failed, and the exit code decides.
"""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct

from capsule.agents._cli import READ_FROM_THE_END, UNKNOWN, CliAgent, Files, exit_code, tail_of
from capsule.core.briefing import Briefing, Transcript
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind
from capsule.core.text import one_line
from capsule.system.files import write_atomically
from capsule.system.process import Ended

HEAD = 64 * 1024
LONGEST_EVENT = READ_FROM_THE_END
_BLOCK = 1024 * 1024
_LINES_A_LOOK = 20
_LONGEST_ACTIVITY = 200
_LONGEST_REASON = 300
_LONGEST_NAME = 200
_ENDLESS = 1e15
_STDERR_READ = 16 * 1024

_IN_A_WORKTREE = re.compile(r"/\S*/\.capsule/worktrees/[^/\s]+/")


class Event(dict[str, Any]):
    """A JSON object that a CLI printed; a part that is not of the kind that is asked for counts as missing."""

    def text(self, part: str) -> str:
        value = self.get(part)
        return value if isinstance(value, str) else ""

    def name(self, part: str) -> str:
        """Return the name of a model, session or tool, fit for the journal: printable, and of sane length."""
        return one_line(self.text(part)[:_LONGEST_NAME])

    def table(self, part: str) -> Event:
        value = self.get(part)
        return value if isinstance(value, Event) else Event()

    def tables(self, part: str) -> list[Event]:
        value = self.get(part)
        return [each for each in value if isinstance(each, Event)] if isinstance(value, list) else []

    def count(self, part: str) -> int | None:
        """Return a number of tokens."""
        value = self.get(part)
        return value if type(value) is int and 0 <= value < _ENDLESS else None

    def amount(self, part: str) -> float | None:
        """Return money or seconds."""
        value = self.get(part)
        known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _ENDLESS
        return float(value) if known else None  # type: ignore[arg-type]

    def tool(self, name: str, given: str, telling: Sequence[str]) -> str:
        """Return a tool's name and the first telling part of its input, such as `Bash: pytest -q`."""
        table = self.table(given)
        about = next((table.text(part) for part in telling if part in table), "")
        return f"{self.name(name)}: {about}" if about else self.name(name)


class StreamResult(Struct, frozen=True):
    """Result read from the events; no failure means that the CLI reported success, or nothing."""

    text: str
    failure: Failure | None = None
    usage: Usage = UNKNOWN


class Events:
    """Events that a CLI has printed; lines that are no JSON object, or are cut, do not count."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def head(self) -> list[Event]:
        """Return the events at the very beginning, where the CLI describes itself."""
        with self._opened() as file:
            lines = file.read(HEAD).split(b"\n")
        return [event for line in lines if (event := decoded(line)) is not None]

    def backwards(self, mark: bytes = b"") -> Iterator[Event]:
        """Yield events from the last one on, within the read limit; lines without the mark are not decoded."""
        for line in self._lines_backwards():
            if mark in line and (event := decoded(line)) is not None:
                yield event

    def back_to(self, *kinds: str) -> Iterator[Event]:
        """Yield events from the last one on, up to the first of these types."""
        return takewhile(lambda event: event.get("type") not in kinds, self.backwards())

    def last(self, kind: str) -> Event | None:
        """Return the last event with this top-level `type`."""
        mark = f'"{kind}"'.encode()
        return next((event for event in self.backwards(mark) if event.get("type") == kind), None)

    def marked(self, mark: bytes) -> Iterator[Event]:
        """Yield all events that hold the mark, in order, by a search through the file; a mark holds no line end."""
        with self._opened() as file:
            carried = b""
            while block := file.read(_BLOCK):
                lines, _, carried = (carried + block).rpartition(b"\n")
                yield from _decoded_with(mark, lines)
                while len(carried) > _BLOCK:  # too long to be counted: skip it
                    block = file.read(_BLOCK)
                    _, newline, rest = block.partition(b"\n")
                    carried = rest if newline or not block else carried
            yield from _decoded_with(mark, carried)

    def _lines_backwards(self) -> Iterator[bytes]:
        """Yield lines from the end; each read is twice the last, so a line of any length is joined in linear time."""
        with self._opened() as file:
            end = file.seek(0, os.SEEK_END)
            floor, reach, rest = max(0, end - READ_FROM_THE_END), HEAD, b""
            while end > floor:
                begin = max(floor, end - reach)
                file.seek(begin)
                rest, *lines = (file.read(end - begin) + rest).split(b"\n")
                yield from reversed(lines)
                end, reach = begin, reach * 2
            if floor == 0:
                yield rest

    def _opened(self) -> BinaryIO:
        """Open the file without following a link; a file that the agent removed reads as empty."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.fdopen(os.open(self.path, flags), "rb")
        except OSError:
            return Path(os.devnull).open("rb")


def decoded(line: bytes) -> Event | None:
    """Decode one line as an event; None for text, half a line, other JSON or a `type` that is no text."""
    if not line.startswith(b"{") or len(line) > LONGEST_EVENT:
        return None
    try:
        event = json.loads(line, object_hook=Event)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, Event) and isinstance(event.get("type", ""), str) else None


def _decoded_with(mark: bytes, lines: bytes) -> Iterator[Event]:
    at = lines.find(mark)
    while at >= 0:
        begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
        event = decoded(lines[begin : end if end >= 0 else None])
        if event is not None:
            yield event
        at = lines.find(mark, end) if end >= 0 else -1


class Follower:
    """Read what was added since the last call, and only the end of that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0

    def new_lines(self) -> Sequence[bytes]:
        try:
            size = self._path.stat().st_size
        except OSError:
            return ()
        fresh = tail_of(self._path, min(max(0, size - self._seen), HEAD))
        whole, newline, _ = fresh.rpartition(b"\n")
        if not newline:
            return ()
        self._seen = size - (len(fresh) - len(whole) - 1)
        return whole.split(b"\n")[-_LINES_A_LOOK:]


class StreamAgent(CliAgent):
    """Run a CLI that prints events; adapters give the command line and say what the events mean."""

    prints = ".events"
    quiet_after_event = 10.0
    """Seconds of silence after which it is ended, if it has printed its final event."""
    kinds: frozenset[str] = frozenset()
    """The types of event that identify its output."""

    def allowed_silence(self, briefing: Briefing, files: Files) -> float | None:
        """Go by its final event alone; output that is no events is read as plain text."""
        events = Events(files.printed)
        if not self.prints_events(events):
            return super().allowed_silence(briefing, files)
        last = next(events.backwards(), None)
        return self.quiet_after_event if last is not None and self.is_final(last) else None

    def prints_events(self, events: Events) -> bool:
        return any(event.get("type") in self.kinds for event in events.head)

    def has_answered(self, briefing: Briefing, files: Files) -> bool:
        """Use the final event, not a result file: the CLI itself reports when it is done."""
        return self.allowed_silence(briefing, files) is not None

    @abstractmethod
    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        """Read the events; None if they are not this CLI's and stderr does not explain it either."""

    def is_final(self, event: Event) -> bool:  # noqa: ARG002
        """Tell whether the CLI prints this event when it is done, and never before."""
        return False

    def activity(self, event: Event) -> str:  # noqa: ARG002
        """Return one line for the live view, such as `Bash: pytest -q`, or nothing."""
        return ""

    def in_words(self, event: dict[str, Any]) -> str:
        """Return the same line for a decoded event."""
        return self.activity(decoded(json.dumps(event).encode()) or Event())

    def progress_reporter(self, mission: str, files: Files) -> Callable[[], None]:
        follower = Follower(files.printed)

        def tell() -> None:
            for line in follower.new_lines():
                event = decoded(line)
                text = self.activity(event) if event is not None else line.decode(errors="replace")
                if text.strip():
                    self.connection.tell(mission, _IN_A_WORKTREE.sub("", one_line(text))[:_LONGEST_ACTIVITY])

        return tell

    def conclude(self, ended: Ended, files: Files) -> Transcript:
        stderr = tail_of(files.errors, _STDERR_READ).decode(errors="replace")
        reading = self.read(Events(files.printed), ended, stderr)
        if reading is None:
            # Not this CLI's events: what was printed is the log.
            if files.printed.exists():
                files.printed.replace(files.log)
            return super().conclude(ended, files)
        # As a CLI would have printed it: with a line end, and no more than we read of plain text.
        words = reading.text.encode(errors="replace")[-READ_FROM_THE_END:]
        text = words if words.endswith(b"\n") or not words else words + b"\n"
        if files.printed.exists():
            write_atomically(files.log, text)
        failure = reading.failure or self.how_it_was_ended(ended)
        if failure is None and ended.why == "exited":
            if code := exit_code(ended):
                last = shortened("".join(stderr.strip().splitlines()[-1:]))
                said = f": {last}" if last else ", and did not say why."
                reason = f"The agent `{self.name}` exited with {code}{said}"
                failure = Failure(Kind.CRASH, reason)
            elif not reading.text.strip():
                failure = Failure(Kind.SILENT, f"The agent `{self.name}` ended without any output.")
        return self.transcript(ended, files, text, failure, reading.usage)


def usage_of(tables: Collection[Event], read: Sequence[str], written: Sequence[str]) -> Usage:
    """Add up the tokens that these tables have under these names; unknown if none of them has any."""
    sums = []
    for parts in (read, written):
        known = [tokens for table in tables for part in parts if (tokens := table.count(part)) is not None]
        sums.append(sum(known) if known and sum(known) < _ENDLESS else None)
    return Usage(tokens_in=sums[0], tokens_out=sums[1])


def shortened(text: str) -> str:
    """Shorten a CLI's error message to one line."""
    words = one_line(text)
    return words if len(words) <= _LONGEST_REASON else f"{words[: _LONGEST_REASON - 1]}…"
