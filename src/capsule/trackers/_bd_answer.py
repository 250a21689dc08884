"""What bd printed, taken apart: as many shapes as it has had versions.

An array, an object, or either in an envelope; errors as JSON on stdout or on stderr, or as text, with exit code 0 or 1;
warnings before all of that.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

from capsule.core.errors import TrackerError
from capsule.core.text import one_line

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
"""Lines of warnings that begin like a value; whoever prints more does not mean to be understood."""


@dataclass(frozen=True)
class BdResult:
    """What a call printed, and how it ended; without a code it was ended by us, because it took too long."""

    args: tuple[str, ...]
    code: int | None
    out: str
    err: str

    @property
    def late(self) -> bool:
        return self.code is None

    @property
    def failed(self) -> bool:
        """Some versions complain on stderr only, and leave with 0."""
        return self.code != 0 or self._error is not None or (not self.out.strip() and bool(_telling_lines(self.err)))

    @property
    def busy(self) -> bool:
        return not self.late and self.failed and _BUSY.search(self.err + self.out) is not None

    @property
    def not_found(self) -> bool:
        """In the older versions: silence, and all is well."""
        return not self.late and (self.code == 0 or _NOT_FOUND.search(self.err + self.out) is not None)

    @property
    def unknown_here(self) -> bool:
        return self.failed and NO_COMMAND.search(self.err + self.out) is not None

    @cached_property
    def value(self) -> object:
        """The JSON on stdout, after whatever stands before it and out of its envelope; None if there is none."""
        return _unwrapped(_value_in(self.out))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The beads in it, one or many."""
        value = self.value
        if isinstance(value, dict) and "id" not in value:
            value = value.get("issues", value.get("closed"))
        rows = value if isinstance(value, list) else [value]
        return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The rows of JSON lines; text between them is passed over, half a row is not."""
        rows = [row for line in self.out.split("\n") if line.startswith("{") for row in _listed(_row(line, self))]
        return [row for row in rows if isinstance(row, dict)]

    @property
    def words(self) -> str:
        """What bd said went wrong, on one line."""
        said = self._error
        if said is None:
            plain = [line for line in map(one_line, self.err.splitlines()) if line and not _ASIDE.match(line)]
            telling = _telling_lines(self.err) or plain or [one_line(self.out)]
            said = telling[0]
        cut = one_line(said.removeprefix("Error: "))
        return cut if len(cut) <= _LONGEST else f"{cut[:_LONGEST]}..."

    @cached_property
    def _error(self) -> str | None:
        for text in (self.out, self.err):
            value = _unwrapped(_value_in(text))
            if isinstance(value, dict) and "error" in value and "id" not in value:
                return str(value["error"])
        return None


def _value_in(text: str) -> object:
    """The first value that is beads or an object, at the beginning of a line."""
    decoder = json.JSONDecoder()
    for start in islice(_VALUE.finditer(text), _MOST_BEGINNINGS):
        try:
            value, _ = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or all(isinstance(row, dict) for row in value):
            return value
    return None


def _unwrapped(value: object) -> object:
    is_envelope = isinstance(value, dict) and "data" in value and "schema_version" in value and "id" not in value
    return value["data"] if isinstance(value, dict) and is_envelope else value


def _row(line: str, answer: BdResult) -> object:
    try:
        return _unwrapped(json.loads(line))
    except (ValueError, RecursionError):
        hint = f"See what `bd {answer.args[0]}` prints by hand."
        raise TrackerError(f"`bd {answer.args[0]}` printed a row that is cut short: {line[:60]!a}", hint) from None


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _telling_lines(text: str) -> list[str]:
    lines = [one_line(line) for line in text.splitlines()]
    return [line for line in lines if _TELLING.match(line) and not _ASIDE.match(line)]
