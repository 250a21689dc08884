"""beads without bd: the JSONL file in `.beads/`, one bead a line.

Reading is tolerant of what a row holds and strict about what a row is: unknown fields and values are data, but a line
that is no JSON object, or an id given twice, stops everything with its line number, because guessing would work on the
wrong bead. Beads whose id may not become a path are left out and reported in `warnings`.

Writing changes the fields it must inside the one line it must. Every other byte of the file, the rest of that line
included, stays as it was: its key order, number formats, escapes, line ends and the missing final newline. The file is
read again under the lock before each write, so bd or a text editor may have changed it in between.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from capsule.core.errors import CapsuleError, TrackerError
from capsule.core.item import Blocked, Item, Lineage, Status, check_id, lineage_of
from capsule.core.text import without_controls
from capsule.system.files import read_regular, sweep_temps, write_atomically
from capsule.system.lock import held
from capsule.trackers import already_closed, unknown

FOLDER = ".beads"
LARGEST = 64 * 1024 * 1024
LOCK_WAIT = 10.0

STATUSES = {
    "open": Status.READY,
    "in_progress": Status.IN_PROGRESS,
    "hooked": Status.IN_PROGRESS,
    "closed": Status.DONE,
}
"""Every other status (blocked, deferred, pinned, a team's own) means: not now, and not by us."""

PRIORITIES = range(5)

_USUAL_NAMES = ("issues.jsonl", "beads.jsonl")
_OTHER_TABLES = ("interactions.jsonl", "deletions.jsonl", "routes.jsonl")
_CONFLICT = (b"<<<<<<<", b"=======", b">>>>>>>")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SPACE = re.compile(r"[ \t\r\n]*")


def find(root: Path) -> Path | None:
    """The file that holds a project's beads, if there is one."""
    folder = root / FOLDER
    usual = [folder / name for name in _USUAL_NAMES if (folder / name).exists()]
    others = [path for path in sorted(folder.glob("*.jsonl")) if path.name not in _OTHER_TABLES]
    return usual[0] if usual else others[0] if len(others) == 1 else None


def connect(root: Path, lock: Path | None = None) -> BeadsFileTracker:
    path = find(root)
    if path is None:
        hint = f"`bd export` writes {FOLDER}/{_USUAL_NAMES[0]}; or choose another tracker in the settings."
        raise TrackerError(f"{root / FOLDER} holds no file of beads.", hint)
    return BeadsFileTracker(path, lock=lock)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class _Row:
    line: int
    bead: Mapping[str, Any]


@dataclass(frozen=True)
class _Table:
    """The file as it was read: its bytes, and what they mean."""

    data: bytes
    rows: Mapping[str, _Row]
    items: dict[str, Item]
    warnings: tuple[str, ...]


class BeadsFileTracker:
    name = "beads-file"
    keeps_phases = False

    def __init__(self, path: Path, *, lock: Path | None = None, now: Callable[[], str] = _now) -> None:
        self._path = path
        self._lock = lock
        self._now = now
        self._known = _Table(b"", {}, {}, ())

    @property
    def warnings(self) -> Sequence[str]:
        """What was left out when the file was read last."""
        return self._known.warnings

    def items(self) -> Sequence[Item]:
        return [item for item in self._table().items.values() if item.status is not Status.DONE]

    def everything(self) -> Sequence[Item]:
        return self.items()

    def item(self, item_id: str) -> Item:
        items = self._table().items
        if check_id(item_id) in items:
            return items[item_id]
        raise unknown(item_id, items)

    def lineage(self, item: Item) -> Lineage:
        return lineage_of(item, self._table().items)

    def claim(self, item_id: str) -> None:
        with held(self._lock, LOCK_WAIT):
            status = self.item(item_id).status
            if status is Status.DONE:
                raise already_closed(item_id)
            if status is not Status.IN_PROGRESS:
                self._change(item_id, status="in_progress")

    def release(self, item_id: str) -> None:
        with held(self._lock, LOCK_WAIT):
            if self.item(item_id).status is Status.IN_PROGRESS:
                self._change(item_id, status="open")

    def close(self, item_id: str, reason: str) -> None:
        with held(self._lock, LOCK_WAIT):
            if self.item(item_id).status is not Status.DONE:
                self._change(item_id, status="closed", closed_at=self._now(), close_reason=reason)

    def knows(self, item_id: str) -> bool:
        return item_id in self._table().items

    def parts(self, item: Item, phase: str) -> Sequence[Item]:  # noqa: ARG002 - a bead is done in one piece
        return [item]

    def own_files(self) -> Sequence[str]:
        return [FOLDER]

    def _table(self) -> _Table:
        """What the file says now. Reading is cheap; it is parsed again only when it is not what it was."""
        try:
            data = read_regular(self._path, LARGEST)
        except OSError as fault:
            hint = "Put the file back, or choose another tracker in the settings."
            raise TrackerError(f"{self._path} cannot be read: {fault.strerror}.", hint) from None
        if data != self._known.data:
            self._known = _read_table(data, self._path)
        return self._known

    def _change(self, item_id: str, **fields: str) -> None:
        table = self._known
        lines = table.data.split(b"\n")
        number = table.rows[item_id].line
        text = lines[number - 1].decode("utf-8")
        lines[number - 1] = splice(text, {**fields, "updated_at": self._now()}).encode("utf-8")
        sweep_temps(self._path.parent)
        write_atomically(self._path, b"\n".join(lines))


# ---- from bytes to items


def _read_table(data: bytes, path: Path) -> _Table:
    rows: dict[str, _Row] = {}
    warnings: list[str] = []
    for row in _rows(data, path):
        bead_id = row.bead["id"]
        try:
            check_id(bead_id)
        except CapsuleError as fault:
            warnings.append(f"{path.name}, line {row.line}: {fault.message} The bead is left out.")
            continue
        if bead_id in rows:
            where = f"lines {rows[bead_id].line} and {row.line}"
            raise TrackerError(f"{path} holds {bead_id} twice, on {where}.", "Remove one of the two lines.")
        rows[bead_id] = row
    beads = {bead_id: row.bead for bead_id, row in rows.items()}
    return _Table(data, rows, {bead_id: _item(bead, beads) for bead_id, bead in beads.items()}, tuple(warnings))


def _rows(data: bytes, path: Path) -> Iterator[_Row]:
    for number, line in enumerate(data.split(b"\n"), 1):
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        if not content.strip():
            continue
        bead = _bead(content, f"{path}, line {number}")
        if bead.get("_type", "issue") == "issue" and bead.get("status") != "tombstone":
            if not isinstance(bead.get("id"), str):
                raise TrackerError(f"{path}, line {number}: the bead has no id.", "Give it one, or remove the line.")
            yield _Row(number, bead)


def _bead(content: bytes, where: str) -> dict[str, Any]:
    try:
        bead = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError):
        bead = None
    if isinstance(bead, dict):
        return bead
    conflict = content.startswith(_CONFLICT)
    hint = "These are the marks of a merge conflict: settle it first." if conflict else "Mend or remove that line."
    raise TrackerError(f"{where}: this is not a JSON object.", hint)


def _item(bead: Mapping[str, Any], beads: Mapping[str, Mapping[str, Any]]) -> Item:
    status = _text(bead, "status") or "open"
    ours = STATUSES.get(status, Status.BLOCKED)
    priority = bead.get("priority")
    return Item(
        id=bead["id"],
        title=_text(bead, "title"),
        description=_text(bead, "description"),
        acceptance=_text(bead, "acceptance_criteria"),
        type=_text(bead, "issue_type") or "task",
        status=ours,
        priority=priority if type(priority) is int and priority in PRIORITIES else 2,
        parent=_parent(bead, beads),
        blocked=Blocked(Status.READY, f"beads says {status}") if ours is Status.BLOCKED else None,
        tags=tuple(_clean(label) for label in _list(bead, "labels") if isinstance(label, str)),
        dependencies=_blockers(bead, beads),
        created=_text(bead, "created_at"),
        updated=_text(bead, "updated_at"),
    )


def _text(bead: Mapping[str, Any], key: str) -> str:
    value = bead.get(key)
    return "" if value is None else _clean(value if isinstance(value, str) else json.dumps(value))


def _clean(text: str) -> str:
    """JSON can spell half a character, which nothing after us could write down, and a NUL, which nobody could pass."""
    return _LONE_SURROGATE.sub("\ufffd", without_controls(text))


def _list(bead: Mapping[str, Any], key: str) -> list[Any]:
    value = bead.get(key)
    return value if isinstance(value, list) else []


def _edges(bead: Mapping[str, Any], kind: str) -> Iterator[str]:
    """What this bead points to; an edge that is stored with it but belongs to another bead is not ours."""
    for edge in _list(bead, "dependencies"):
        if isinstance(edge, dict) and edge.get("type") == kind and edge.get("issue_id", bead["id"]) == bead["id"]:
            yield str(edge.get("depends_on_id", ""))


def _parent(bead: Mapping[str, Any], beads: Mapping[str, Any]) -> str:
    stated = [*_edges(bead, "parent-child"), _text(bead, "parent"), bead["id"].rpartition(".")[0]]
    return next((parent for parent in stated if parent in beads and parent != bead["id"]), "")


def _blockers(bead: Mapping[str, Any], beads: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Only what is still to be done holds a bead up; bd ignores edges to beads that are gone, and so do we."""
    wanted = dict.fromkeys(_edges(bead, "blocks"))
    return tuple(other for other in wanted if other in beads and beads[other].get("status") != "closed")


# ---- changing fields inside a line


def splice(text: str, fields: Mapping[str, str]) -> str:
    """The text of a JSON object with these top-level fields set; all its other characters stay as they are."""
    spans = {key: (start, end) for key, start, end in _members(text)}
    missing = [key for key in fields if key not in spans]
    for key, (start, end) in sorted(spans.items(), key=lambda entry: entry[1], reverse=True):
        if key in fields:
            text = text[:start] + json.dumps(fields[key]) + text[end:]
    closing = text.rindex("}")
    head = text[:closing].rstrip()
    colon = ": " if re.search(r'":\s', text) else ":"
    comma = ", " if re.search(r'[\]}"\d],\s', text) else ","
    added = comma.join(f"{json.dumps(key)}{colon}{json.dumps(fields[key])}" for key in missing)
    return head + (comma if added and spans else "") + added + text[len(head) :]


def _members(text: str) -> Iterator[tuple[str, int, int]]:
    """Each top-level key of a valid JSON object, with where its value starts and ends."""
    decoder = json.JSONDecoder()
    at = text.index("{") + 1
    while text[(at := _skip(text, at))] != "}":
        key, at = decoder.raw_decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = decoder.raw_decode(text, start)
        yield key, start, at
        at = _skip(text, at)
        at += text[at] == ","


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at
