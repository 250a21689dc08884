"""Print the output of a mission's agents, phase by phase.

Each output follows a line such as `==> test-writer#1 PASS 12.3 s`; the number counts the runs of that phase. With -f it
follows until the mission stops, as `tail -f` does.

  capsule logs demo-1.1.1
  capsule logs demo-1.1.1 -f
  capsule logs demo-1.1.1 --phase execute --stderr

On a terminal, colours and control characters are left out. A pipe or a file gets the stored bytes: what the agent
printed, without the secrets that Capsule knows. Some agents print events (claude, codex, gemini, opencode). While they
work, the events are shown, on a terminal in words; afterwards, their final message.
Exit code: 0 printed, 1 there is no such mission or phase, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from capsule.commands.arguments import item_argument
from capsule.commands.show import find_mission
from capsule.commands.watching import end_of
from capsule.core.errors import CapsuleError
from capsule.core.event import Event, StepBegun, StepEnded
from capsule.core.item import check_id
from capsule.journals.sqlite import SqliteJournal
from capsule.project import Project, open_project
from capsule.reports.style import printable
from capsule.system.process import SupervisorClient

CHUNK = 256 * 1024
PULSE = 0.25
_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 12
Wording = Callable[[dict[str, Any]], str]
"""Describe an event of an agent in a few words; '' if it is not worth showing."""
Copy = Callable[[BinaryIO, BinaryIO, int], None]
_AGENT_LOG = re.compile(r"(?P<phase>.+)-\d{14,}-\d+[\d.-]*\.log")
_EVENTS = ".events"


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("-f", "--follow", action="store_true", help="follow until the mission stops")
    parser.add_argument("--phase", metavar="NAME", help="only this phase")
    parser.add_argument("--stderr", action="store_true", help="their stderr instead of their stdout")


def run(args: argparse.Namespace) -> int:
    project, mission = open_project(args.project_dir), check_id(args.item)
    phases = find_mission(project, mission, "logs").workflow.names()
    if args.phase and args.phase not in phases:
        raise CapsuleError(f"{mission} has no phase {args.phase!r}.", f"It has: {', '.join(phases)}.", exit_code=1)
    journal = project.journal(read_only=True)
    try:
        shelf = Shelf(project, journal, mission, phase=args.phase or "", suffix=".stderr" if args.stderr else "")
        printer = Printer(sys.stdout.buffer, safely=sys.stdout.isatty(), wording=cache(partial(wording_of, project)))
        while True:
            # Checked first, so that everything up to the end of the mission is printed.
            running = args.follow and journal.is_held(mission)
            for output in shelf.outputs():
                printer.catch_up(output)
            if not running:
                break
            time.sleep(PULSE)
    finally:
        journal.close()
    if not printer.printed:
        print(f"{mission} has no output yet.", file=sys.stderr)
    return 0


def wording_of(project: Project, agent: str) -> Wording:
    """Return the function of an agent's adapter that puts its events into words."""
    from capsule.wiring import agent_maker  # noqa: PLC0415 - start-up

    try:
        adapter = agent_maker(project.settings, project.root, SupervisorClient(), None)(agent, "")
    except CapsuleError:  # no longer in the settings
        return lambda _: ""
    wording: Wording = getattr(adapter, "in_words", lambda _: "")
    return wording


class Output(Struct, frozen=True):
    """One file, and the phase run that it belongs to."""

    file: Path
    phase: str
    title: str
    agent: str = ""
    """'' is the default agent."""


class Shelf(Struct, frozen=True):
    """The outputs of one mission, in the order in which its agents ran.

    While a mission is under way its outputs grow in `.capsule/missions/<id>/outputs/`; once it is archived they are in
    `.capsule/logs/<id>/phase-outputs/`, under the same names. An agent whose CLI prints events has no log before its
    end: until then its events are its output, in a file beside it.
    """

    project: Project
    journal: SqliteJournal
    mission: str
    phase: str = ""
    suffix: str = ""

    def outputs(self) -> list[Output]:
        """List the outputs by the last change of their files: agents run one after the other."""
        home = self.project.root / ".capsule"
        working, archived = home / "missions" / self.mission, home / "logs" / self.mission / "phase-outputs"
        known = _known_runs(event for _, event in self.journal.events(self.mission))
        outputs = []
        for log in sorted(_logs(working / "outputs") | _logs(working) or _logs(archived), key=_last_change):
            named = _AGENT_LOG.fullmatch(log.name)
            run = known.get(log.name)
            if run is None and named:  # without an outcome: running or interrupted
                phase = named["phase"]
                run = known.get(phase) or Output(log, phase, f"{phase}, interrupted")
            suffix = self.suffix or ("" if os.path.lexists(log) else _EVENTS)  # an agent may have no log yet
            file = log.with_name(log.name + suffix)
            if run and self.phase in ("", run.phase) and _is_regular(file):
                outputs.append(replace(run, file=file))
        return outputs


def last_lines(shelf: Shelf, wording: Callable[[str], Wording]) -> list[str]:
    """Return the last lines that the mission's agent printed, with complete events in words."""
    outputs = shelf.outputs()
    if not outputs:
        return []
    text = end_of(outputs[-1].file, _TAIL_BYTES)
    lines = text.splitlines()
    if outputs[-1].file.name.endswith(_EVENTS):
        whole = lines if text.endswith("\n") else lines[:-1]
        whole = whole[1:] if len(text.encode()) >= _TAIL_BYTES else whole
        in_words = wording(outputs[-1].agent)
        lines = [printable(said) for line in whole if (said := _in_words(line.encode(), in_words))]
    return lines[-_TAIL_LINES:]


def _logs(folder: Path) -> set[Path]:
    """Return the logs in a folder, and expected ones."""
    to_come = (events.with_name(events.name.removesuffix(_EVENTS)) for events in folder.glob(f"*.log{_EVENTS}"))
    return {*folder.glob("*.log"), *to_come}


def _known_runs(events: Iterable[Event]) -> dict[str, Output]:
    """Map file names to runs and their ends; a run without an end is found by its phase's name."""
    known: dict[str, Output] = {}
    for event in events:
        if isinstance(event, StepBegun):
            known[event.phase] = Output(Path(), event.phase, f"{event.key}, no verdict yet", event.agent)
        elif isinstance(event, StepEnded):
            known.pop(event.phase, None)
            title = f"{event.key} {event.decision.verdict.value} {event.outcome.seconds:.1f} s"
            log = Path(event.outcome.log)
            known[log.name] = Output(log, event.phase, title, event.outcome.agent)
    return known


def _last_change(file: Path) -> tuple[int, str]:
    for there in (file, file.with_name(file.name + _EVENTS)):
        with suppress(OSError):  # not written yet, or archived meanwhile
            return there.stat().st_mtime_ns, file.name
    return 0, file.name


def _is_regular(file: Path) -> bool:
    """Tell whether this is a regular file: an agent can put a link or a pipe there."""
    return file.is_file() and not file.is_symlink()


class Printer:
    """Print what was added to files since the last call, in pieces of bounded size."""

    def __init__(self, stream: BinaryIO, *, safely: bool, wording: Callable[[str], Wording] | None = None) -> None:
        """`wording` puts events of an agent into words; it is used on a terminal."""
        self._stream = stream
        self._copy: Copy = _copy_printable if safely else _copy_as_it_is
        self._wording = wording if safely else None
        self._read: dict[str, int] = {}
        self._by_events: set[str] = set()
        self._shown = ""

    @property
    def printed(self) -> bool:
        return bool(self._read)

    def catch_up(self, output: Output) -> None:
        """Print new output; one that began as events continues as events while they exist."""
        name = output.file.name.removesuffix(_EVENTS)
        events = output.file.with_name(name + _EVENTS)
        if output.file == events:
            self._by_events.add(name)
        file = events if name in self._by_events and _is_regular(events) else output.file
        copy = self._copy
        if self._wording and file.name.endswith(_EVENTS):
            copy = partial(_copy_in_words, self._wording(output.agent))
        try:
            source = file.open("rb")
        except FileNotFoundError:  # archived meanwhile: the next call finds it there
            return
        with source:
            before = self._read.get(name)
            gained = source.seek(0, os.SEEK_END) - (before or 0)
            if before is not None and gained <= 0:
                return
            if name != self._shown:
                self._stream.write(b"\n" if self._shown else b"")
                self._stream.write(f"==> {output.title}\n".encode())
                self._shown = name
            source.seek(before or 0)
            copy(source, self._stream, gained)
            self._read[name] = source.tell()
        self._stream.flush()


def _copy_as_it_is(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0 and (chunk := source.read(min(size, CHUNK))):
        target.write(chunk)
        size -= len(chunk)


def _copy_printable(source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy line by line, so that a sequence or a character is seldom cut in two; even then it is harmless."""
    while size > 0 and (line := source.readline(min(size, CHUNK))):
        target.write(printable(line.decode(errors="replace")).encode())
        size -= len(line)


def _copy_in_words(wording: Wording, source: BinaryIO, target: BinaryIO, size: int) -> None:
    """Copy whole events in words; read half an event again once it is complete, and skip one that is too long."""
    end = source.tell() + size
    while (begin := source.tell()) < end and (line := source.readline(min(end - begin, CHUNK))):
        if line.endswith(b"\n"):
            text = _in_words(line, wording)
            target.write(f"{printable(text)}\n".encode() if text else b"")
            continue
        while line and not line.endswith(b"\n"):
            line = source.readline(CHUNK)
        if not line:
            source.seek(begin)
            return


def _in_words(line: bytes, wording: Wording) -> str:
    try:
        event = json.loads(line) if line.startswith(b"{") else None
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("type", ""), str):
        return line.decode(errors="replace").strip()
    return " ".join(wording(event).split())
