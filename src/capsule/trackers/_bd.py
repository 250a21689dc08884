"""Run bd, one call at a time in a repository, with time limits, and read its output.

A change is verified afterwards (see beads.py), and before each new attempt: bd's output and exit code are no proof.

What it prints has had as many shapes as bd has had versions: an array, an object, or either in an envelope; errors as
JSON on stdout or on stderr, or as text, with exit code 0 or 1; warnings before all of that.

We never run `init`, `migrate` or `doctor --fix`, and never say `--force`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from capsule.core.errors import PrerequisiteMissing, TrackerError
from capsule.core.text import one_line, sentence
from capsule.system.environment import for_commands
from capsule.system.lock import held
from capsule.system.program import call
from capsule.trackers._beads import Bead, bead_of, file_in, parsed, usual_row

GET_BD = "https://github.com/steveyegge/beads"
OLDEST = (0, 44)
EVERYTHING = "--limit=1000000"
"""Every version cuts lists short unless told otherwise; only some take 0 for all."""

_BY_HAND = "`tracker: beads-file` in .capsule/config.yaml does without bd"
_GET_ANOTHER = f"Get 0.47.1, or 1.0.5 and newer: {GET_BD}. Or: {_BY_HAND}."
_OWN_VARIABLES = ("BD_*", "BEADS_*", "DOLT_*")
_ELSEWHERE = ("BEADS_DIR", "BEADS_DB", "BD_DB", "BEADS_DATABASE")
"""Would have us change the beads of another project."""
_QUIET = {"BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1", "NO_COLOR": "1", "TERM": "dumb", "LC_ALL": "C.UTF-8"}

_NO_DATABASE = re.compile(r"no beads database|database .{0,40}not (?:found|initiali[sz]ed)|no \.beads", re.IGNORECASE)
_SKEW = re.compile(
    r"schema[ _-]?(?:skew|drift)|schema version mismatch|migrations ahead|newer schema|schema .{0,60}\bnewer",
    re.IGNORECASE,
)
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")


_BUSY = re.compile(
    r"database is locked|locked by another|another (?:bd )?process|(?:acquir\w*|obtain|get) .{0,40}lock"
    r"|lock (?:timeout|held)|database table is locked|resource temporarily unavailable|cannot update manifest"
    r"|database is (?:busy|in use)",
    re.IGNORECASE,
)
NO_COMMAND = re.compile(r"unknown (?:command|flag|shorthand)", re.IGNORECASE)
_NOT_FOUND = re.compile(r"no issues? found|not found|ambiguous", re.IGNORECASE)
_ASIDE = re.compile(r"\W*(?:warning|hint|note|usage|⚠)", re.IGNORECASE)
_TELLING = re.compile(r"error|cannot|failed|fatal|panic", re.IGNORECASE)
_VALUE = re.compile(r"^[\[{]", re.MULTILINE)
_LONGEST = 300
_MOST_BEGINNINGS = 20
"""The most lines of warnings that begin like a value."""


class BdResult(Struct, frozen=True, dict=True):
    """The output of a call, and how it ended; without a code it was ended by us, because it took too long."""

    args: tuple[str, ...]
    code: int | None
    out: str
    err: str

    @property
    def late(self) -> bool:
        return self.code is None

    @property
    def failed(self) -> bool:
        """Tell whether it failed; some versions complain on stderr only, and leave with 0."""
        return self.code != 0 or self._error is not None or (not self.out.strip() and bool(_telling_lines(self.err)))

    @property
    def busy(self) -> bool:
        return not self.late and self.failed and _BUSY.search(self.err + self.out) is not None

    @property
    def not_found(self) -> bool:
        """Tell whether the bead does not exist; older versions print nothing and leave with 0."""
        return not self.late and (self.code == 0 or _NOT_FOUND.search(self.err + self.out) is not None)

    @property
    def unknown_here(self) -> bool:
        return self.failed and NO_COMMAND.search(self.err + self.out) is not None

    @cached_property
    def value(self) -> object:
        """Return the JSON on stdout, without text before it and its envelope; None if there is none."""
        return _unwrapped(_value_in(self.out))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Return the beads in it, one or many."""
        value = self.value
        if isinstance(value, dict) and "id" not in value:
            value = value.get("issues", value.get("closed"))
        rows = value if isinstance(value, list) else [value]
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    @property
    def beads(self) -> list[Bead]:
        """Return the beads of JSON lines; text between them is skipped, half a row is an error."""
        beads: list[Bead] = []
        for line in BytesIO(self.out.encode("utf-8", "replace")):
            if line.startswith(b"{"):
                if bead := usual_row(line):
                    beads.append(bead)
                else:
                    beads += self._unusual_rows(line.rstrip(b"\n"))
        return beads

    def _unusual_rows(self, line: bytes) -> Iterator[Bead]:
        """Read a line that holds an envelope, no bead, or one that bd would write differently."""
        try:
            value = _unwrapped(parsed(line))
        except (ValueError, RecursionError):
            command = f"bd {self.args[0]}"
            cause = f"`{command}` printed a row that is cut short: {line[:60].decode(errors='replace')!a}"
            raise TrackerError(cause, f"See what `{command}` prints by hand.") from None
        for row in value if isinstance(value, list) else [value]:
            if isinstance(row, dict) and isinstance(row.get("id"), str):
                yield bead_of(row)

    @property
    def words(self) -> str:
        """Return bd's error message, on one line."""
        said = self._error
        if said is None:
            plain = [line for line in map(one_line, self.err.splitlines()) if line and not _ASIDE.match(line)]
            telling = _telling_lines(self.err) or plain or [one_line(self.out)]
            said = telling[0]
        cut = one_line(said.removeprefix("Error: "))
        return cut if len(cut) <= _LONGEST else f"{cut[:_LONGEST]}..."

    @cached_property
    def _error(self) -> str | None:
        for value in (self.value, _unwrapped(_value_in(self.err))):
            if isinstance(value, dict) and "error" in value and "id" not in value:
                return str(value["error"])
        return None


def _value_in(text: str) -> object:
    """Return the first value that is beads or an object, at the beginning of a line."""
    with contextlib.suppress(msgspec.DecodeError, RecursionError):  # usually there is nothing around it
        if _are_beads(value := msgspec.json.decode(text)):
            return value
    decoder = json.JSONDecoder()
    for start in islice(_VALUE.finditer(text), _MOST_BEGINNINGS):
        try:
            value, _ = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        if _are_beads(value):
            return value
    return None


def _are_beads(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(row, dict) for row in value))


def _unwrapped(value: object) -> object:
    is_envelope = isinstance(value, dict) and "data" in value and "schema_version" in value and "id" not in value
    return value["data"] if isinstance(value, dict) and is_envelope else value


def _telling_lines(text: str) -> list[str]:
    lines = [one_line(line) for line in text.splitlines()]
    return [line for line in lines if _TELLING.match(line) and not _ASIDE.match(line)]


class Patience(Struct, frozen=True):
    """How long we wait, in seconds."""

    answer: float = 60.0
    """For one call."""
    turn: float = 120.0
    """For other processes of ours that use it."""
    pauses: tuple[float, ...] = (0.2, 0.5, 1.0, 2.0, 4.0)
    """Before each new attempt while another program holds the database."""


class Bd:
    """The bd on the PATH, for the project at `root`."""

    def __init__(
        self,
        root: Path,
        *,
        lock: Path | None = None,
        patience: Patience | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._root = root
        self._lock = lock
        ours = for_commands(os.environ if env is None else env, _OWN_VARIABLES) | _QUIET
        self._env = {name: value for name, value in ours.items() if name not in _ELSEWHERE}

    @cached_property
    def program(self) -> str:
        found = shutil.which("bd", path=self._env.get("PATH", ""))  # which has no relative entries any more
        if found is None:
            raise PrerequisiteMissing("bd (beads) is not on the PATH.", f"Get it: {GET_BD}. Or: {_BY_HAND}.")
        return found

    @cached_property
    def version(self) -> str:
        """Return bd's version; '' if it does not report one."""
        known = _VERSIONS.get(mark := (self.program, Path(self.program).stat().st_mtime_ns))
        if known is None:
            answer = self._run(("version", "--json"))
            if answer.late:
                raise self.fault(answer)
            value = answer.value
            stated = value.get("version") if isinstance(value, dict) else None
            found = _VERSION.search(str(stated or answer.out)) or _VERSION.search(self._run(("version",)).out)
            known = _VERSIONS[mark] = found.group() if found else ""
        return known

    @property
    def warnings(self) -> list[str]:
        """Return the known problems of the installed version."""
        numbers, version = _numbers(self.version), self.version
        if not numbers:
            return ["bd does not say which version it is; what it answers is taken as it comes."]
        if (0, 51) <= numbers < (0, 63):
            return [f"bd {version} is one of those (0.51 to 0.62) whose storage was being rebuilt; use 1.0.5 or newer."]
        if numbers in ((1, 2, 0), (1, 2, 1)):
            return [f"bd {version} converts a database on reading, and older ones cannot open it then; 1.2.2 does not."]
        return [f"bd {version} is newer than any that was tried."] if numbers[0] > 1 else []

    def read(self, *args: str) -> BdResult:
        """Ask, again while the database is locked; raise TrackerError without an answer."""
        answer = self.ask(*args)
        if answer.failed:
            raise self.fault(answer)
        return answer

    def ask(self, *args: str) -> BdResult:
        """Ask, again while the database is locked; return any answer."""
        answer = self.run(*args)
        for pause in self.patience.pauses:
            if not answer.busy:
                break
            time.sleep(pause)
            answer = self.run(*args)
        return answer

    def run(self, *args: str) -> BdResult:
        """Make one call; refuse a version that cannot do what we need."""
        numbers = _numbers(self.version)
        if numbers and numbers[:2] < OLDEST:
            raise TrackerError(f"bd {self.version} is too old: it lacks features that Capsule needs.", _GET_ANOTHER)
        return self._run(args)

    def fault(self, answer: BdResult) -> TrackerError:
        """Return the error of a failed call, with a hint."""
        command, said = f"bd {answer.args[0]}", answer.err + answer.out
        if answer.late:
            hint = f"See whether `{command}` answers by hand: another process may hold the database. Then go on."
            return TrackerError(f"`{command}` gave no answer for {self.patience.answer:g} s and was ended.", hint)
        if answer.busy:
            hint = "Another program is at the database of beads: wait until it has ended, then go on."
            return TrackerError(f"`{command}` found the database locked: {sentence(answer.words)}", hint)
        if _SKEW.search(said):
            hint = f"Get the bd that the database was made with, or a newer one: {GET_BD}. Or: {_BY_HAND}."
            return TrackerError(f"The database of beads is newer than bd {self.version}, which refuses it.", hint)
        if _NO_DATABASE.search(said):
            file = file_in(self._root)
            if file and file.stat().st_size:
                hint = f"A fresh clone has only the file: `bd init` by hand makes a database. Or: {_BY_HAND}."
            else:
                hint = "The beads are not in this clone: by hand, `bd init` and then `bd dolt pull` fetch them."
            return TrackerError("bd finds no database of beads in this project.", hint)
        if answer.unknown_here:
            return TrackerError(f"bd {self.version} cannot do what is needed: {sentence(answer.words)}", _GET_ANOTHER)
        words = answer.words or f"exit code {answer.code}, and not a word"
        return TrackerError(f"`{command}` failed: {sentence(words)}", f"Try `{command}` by hand in {self._root}.")

    def is_refusal(self, answer: BdResult) -> bool:
        """Tell whether bd understood and refused; any other error is a fault."""
        said = answer.err + answer.out
        known = (_SKEW, _NO_DATABASE, NO_COMMAND)
        return not (answer.late or answer.busy or any(kind.search(said) for kind in known)) and bool(answer.words)

    def _run(self, args: tuple[str, ...]) -> BdResult:
        with held(self._lock, self.patience.turn):
            try:
                code, out, err = call([self.program, *args], self._root, self._env, self.patience.answer)
            except (OSError, ValueError) as fault:
                why = fault.strerror if isinstance(fault, OSError) else str(fault)
                hint = f"Get a bd that runs: {GET_BD}"
                raise TrackerError(f"`bd {args[0]}` cannot be started: {why}.", hint) from None
            return BdResult(args, code, out, err)


_VERSIONS: dict[tuple[str, int], str] = {}
"""The version of each program, by path and time: it is asked once."""


def _numbers(version: str) -> tuple[int, ...]:
    found = _VERSION.match(version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
