"""What agent CLIs have in common that print events, one JSON object a line, instead of plain words.

The events go to `<log>.events` as they are; when the agent has ended, its final text is written to `<log>`. Such a
stream may be a gigabyte long, hold single lines of many megabytes, or break off in the middle of one, so nobody here
ever reads it whole or decodes every line:

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

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

Event = dict[str, Any]


@dataclass(frozen=True)
class StreamResult:
    """What the events come to. No failure means that the CLI said it went well, or said nothing about it."""

    text: str
    failure: Failure | None = None
    usage: Usage = UNKNOWN


class Events:
    """The events a CLI has printed. Lines that are no JSON object, or are cut, do not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def head(self) -> list[Event]:
        """Those at the very beginning: what the CLI says about itself."""
        with self._opened() as file:
            lines = file.read(HEAD).split(b"\n")
        return [event for line in lines if (event := decoded(line)) is not None]

    def backwards(self, mark: bytes = b"") -> Iterator[Event]:
        """From the last one on, as far back as we agreed to read. Lines without the mark are not even decoded."""
        for line in self._lines_backwards():
            if mark in line and (event := decoded(line)) is not None:
                yield event

    def last(self, kind: str) -> Event | None:
        """The last event of a type, by its top-level `type`."""
        mark = f'"{kind}"'.encode()
        return next((event for event in self.backwards(mark) if event.get("type") == kind), None)

    def marked(self, mark: bytes) -> Iterator[Event]:
        """All that hold the mark, in order, at the cost of a search through the file. A mark holds no line end."""
        with self._opened() as file:
            carried = b""
            while block := file.read(_BLOCK):
                lines, _, carried = (carried + block).rpartition(b"\n")
                yield from _decoded_with(mark, lines)
                if len(carried) > _BLOCK:
                    carried = _end_of_line(file)
            yield from _decoded_with(mark, carried)

    def _lines_backwards(self) -> Iterator[bytes]:
        """Each step reads twice as much as the one before: a line of any length is joined in linear time."""
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
        """A file that the agent took away reads as an empty one; a link in its place is not followed."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            return os.fdopen(os.open(self.path, flags), "rb")
        except OSError:
            return Path(os.devnull).open("rb")


def decoded(line: bytes) -> Event | None:
    """One line as an event, or None: text, half a line, other JSON, nested too deep, of a type that is no word."""
    if not line.startswith(b"{") or len(line) > LONGEST_EVENT:
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("type", ""), str) else None


def _decoded_with(mark: bytes, lines: bytes) -> Iterator[Event]:
    at = lines.find(mark)
    while at >= 0:
        begin, end = lines.rfind(b"\n", 0, at) + 1, lines.find(b"\n", at)
        event = decoded(lines[begin : end if end >= 0 else None])
        if event is not None:
            yield event
        at = lines.find(mark, end) if end >= 0 else -1


def _end_of_line(file: BinaryIO) -> bytes:
    """Passes over the rest of a line too long to be one of those that are counted; what follows it."""
    while block := file.read(_BLOCK):
        _, newline, rest = block.partition(b"\n")
        if newline:
            return rest
    return b""


class Follower:
    """Looks at what has been added since the last look, and at no more than the end of that."""

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
    """An adapter says the command line, how to read the events, and what one of them shows a person who watches."""

    prints = ".events"
    quiet_after_event = 10.0
    """Seconds of silence after which it is ended, where the last event it printed is its final one."""
    kinds: frozenset[str] = frozenset()
    """The types of event by which its output is known for its own."""

    def quiet_allowed(self, briefing: Briefing, files: Files) -> float | None:
        """By its final event alone; the words of whatever stands in the CLI's place are read as plain ones."""
        events = Events(files.printed)
        if not self.prints_events(events):
            return super().quiet_allowed(briefing, files)
        last = next(events.backwards(), None)
        return self.quiet_after_event if last is not None and self.is_final(last) else None

    def prints_events(self, events: Events) -> bool:
        return any(event.get("type") in self.kinds for event in events.head)

    def has_answered(self, briefing: Briefing, files: Files) -> bool:
        """A result file is no last word where the CLI has a way to say that it is done."""
        return self.quiet_allowed(briefing, files) is not None

    @abstractmethod
    def read(self, events: Events, ended: Ended, stderr: str) -> StreamResult | None:
        """What the events say; None where they are not this CLI's and stderr does not explain it either."""

    def is_final(self, event: Event) -> bool:  # noqa: ARG002
        """Tell whether the CLI prints this event when it is done, and never before."""
        return False

    def activity(self, event: Event) -> str:  # noqa: ARG002
        """One line for the live view, such as `Bash: pytest -q`, or nothing."""
        return ""

    def teller(self, mission: str, files: Files) -> Callable[[], None]:
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
            return self._as_plain_text(ended, files)
        text = _last_words(reading.text)
        if files.printed.exists():
            write_atomically(files.log, text)
        failure = reading.failure or self.how_it_was_ended(ended) or self._badly_ended(ended, reading)
        return self.transcript(ended, files, text, failure, reading.usage)

    def _as_plain_text(self, ended: Ended, files: Files) -> Transcript:
        """What was printed is the log."""
        if files.printed.exists():
            files.printed.replace(files.log)
        return super().conclude(ended, files)

    def _badly_ended(self, ended: Ended, reading: StreamResult) -> Failure | None:
        """It has not said that anything went wrong, and yet."""
        if ended.why != "exited":
            return None
        if code := exit_code(ended):
            return Failure(Kind.CRASH, f"The agent `{self.name}` ended with exit code {code}, and did not say why.")
        if not reading.text.strip():
            return Failure(Kind.SILENT, f"The agent `{self.name}` ended without a word.")
        return None


def table(value: object) -> dict[str, Any]:
    """A part of an event that should be a JSON object; an empty one where it is something else."""
    return value if isinstance(value, dict) else {}


def tables(value: object) -> list[dict[str, Any]]:
    """A part that should be a list of JSON objects: those of them that are."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def word(value: object) -> str:
    """A part that should be text; none where it is something else, which `str` might be unable to say."""
    return value if isinstance(value, str) else ""


def called(value: object) -> str:
    """A model, a session or a tool by its name, fit for the journal: printable, and of sane length."""
    return one_line(word(value)[:_LONGEST_NAME])


def tool_line(name: object, given: object, telling: Sequence[str]) -> str:
    """`Bash: pytest -q`: a tool, and the first of the telling parts of its input that it has."""
    about = next((word(table(given)[part]) for part in telling if part in table(given)), "")
    return f"{called(name)}: {about}" if about else called(name)


def count(value: object) -> int | None:
    """A number of tokens as a CLI reports it; anything else is unknown."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _ENDLESS
    return value if known else None  # type: ignore[return-value]


def amount(value: object) -> float | None:
    """Money or seconds as a CLI reports them; anything else is unknown."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _ENDLESS
    return float(value) if known else None  # type: ignore[arg-type]


def added_up(usages: Iterable[Usage]) -> Usage:
    """The tokens of several messages together; unknown where none of them says."""
    each = list(usages)
    read, written = (
        [known for usage in each if (known := getattr(usage, name)) is not None] for name in ("tokens_in", "tokens_out")
    )
    return Usage(tokens_in=count(sum(read)) if read else None, tokens_out=count(sum(written)) if written else None)


def in_short(text: str) -> str:
    """A CLI's own words about what went wrong, fit for one line."""
    words = one_line(text)
    return words if len(words) <= _LONGEST_REASON else f"{words[: _LONGEST_REASON - 1]}…"


def _last_words(text: str) -> bytes:
    """As a CLI would have printed it: with a line end, and at most what we read of plain text too."""
    words = text.encode(errors="replace")[-READ_FROM_THE_END:]
    return words if words.endswith(b"\n") or not words else words + b"\n"
