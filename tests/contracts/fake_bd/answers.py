"""What all commands share: what they know, and on which stream and in which shape they say it."""

from __future__ import annotations

import json
import os
import time

from tests.contracts.fake_bd.eras import Era
from tests.contracts.fake_bd.rows import Row, Rows
from tests.contracts.fake_bd.store import Store
from tests.contracts.fake_bd.words import Words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FLAGS = {
    "title": "title", "description": "description", "acceptance": "acceptance_criteria", "design": "design",
    "notes": "notes", "assignee": "assignee", "external-ref": "external_ref", "type": "issue_type", "status": "status",
}  # fmt: skip


class Failed(Exception):
    """It ends here with exit code 1; the words are on the stream where bd has them."""

    def __init__(self, words: str, plain: bool = False, on_stderr: bool = False) -> None:
        super().__init__(words)
        self.words, self.plain, self.on_stderr = words, plain, on_stderr


class Answers:
    def __init__(self, era: Era, words: Words, store: Store, taken: object = None) -> None:
        self.era, self.words, self.store, self.taken = era, words, store, taken
        self.json = words.has("json")
        self.out: list[str] = []
        self.err: list[str] = []
        self.code = 0

    def _fail(self, failed: Failed) -> None:
        stream = self.err if failed.on_stderr or not self.json else self.out
        if failed.plain or not self.json:
            stream.append(f"Error: {failed.words}\n")
        else:
            stream.append(self._object({"error": failed.words}))

    @property
    def rows(self) -> dict[str, Row]:
        return self.store.rows

    def _rows(self) -> Rows:
        return Rows(self.era, self.rows)

    def _actor(self) -> str:
        told = self.words.flags.get("actor") or os.environ.get(self.era.actor)
        return told or git("user.name") or os.environ.get("USER", "unknown")

    def _now(self) -> str:
        """Kept to the nanosecond by SQLite, to the second by Dolt."""
        return stamp(fine=self.era.classic)

    def _array(self, rows: list[Row]) -> None:
        self.out.append(text({"data": rows, "schema_version": 1} if self.era.envelope else rows))

    def _object(self, content: Row) -> str:
        return shaped(self.era, content)

    def _not_created(self, words: str) -> Failed:
        return Failed(words, plain=not self.era.errors_as_json, on_stderr=True)

    def _priority(self, text: str) -> int:
        number = text.upper().removeprefix("P")
        if number not in ("0", "1", "2", "3", "4"):
            raise self._not_created(
                f'invalid priority "{text}" (expected 0-4 or P0-P4, not words like high/medium/low)'
            )
        return int(number)


def shaped(era: Era, content: Row) -> str:
    """An object: in an envelope, with the version of the schema among its fields, or as it is."""
    if era.envelope:
        return text({"data": content, "schema_version": 1})
    if era.schema_version:
        content = dict(sorted({**content, "schema_version": 1}.items()))
    return text(content)


def text(content: Any) -> str:
    return escaped(json.dumps(content, indent=2, ensure_ascii=False)) + "\n"


def escaped(text: str) -> str:
    """As Go writes JSON."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def stamp(fine: bool = False) -> str:
    now = time.time_ns()
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**9))
    return f"{text}.{now % 10**9:09d}Z" if fine else f"{text}Z"


def git(key: str) -> str:
    import subprocess

    return subprocess.run(["git", "config", key], capture_output=True, text=True, check=False).stdout.strip()
