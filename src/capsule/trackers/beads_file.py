"""Read and write beads without bd: the JSONL file in `.beads/`, one bead a line.

Reading is tolerant of what a row holds and strict about what a row is: unknown fields and values are data, but a line
that is no JSON object, or an id given twice, stops everything with its line number, because guessing would work on the
wrong bead. Beads whose id may not become a path are left out and reported in `warnings`.

Writing changes the fields it must inside the one line it must. Every other byte of the file, the rest of that line
included, stays as it was: its key order, number formats, escapes, line ends and the missing final newline. The file is
read again under the lock before each write, so bd or a text editor may have changed it in between.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from functools import cache, partial
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from capsule.core.errors import CapsuleError, TrackerError
from capsule.core.item import Item, ItemValues, NewItem, Status, check_id, with_holders
from capsule.core.text import cleaned
from capsule.core.tracker_traits import BEADS_EDITS, TrackerTraits
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular, sweep_temps, write_atomically
from capsule.system.lock import held
from capsule.trackers import BaseTracker
from capsule.trackers._beads import (
    FOLDER,
    USUAL_NAMES,
    Bead,
    bead_of,
    child_id,
    file_in,
    is_work,
    item_of,
    new_comment,
    new_row,
    our_name,
    parsed,
    short_id,
    splice,
    usual_row,
    with_element,
    with_line,
    with_values,
)

LARGEST = 64 * 1024 * 1024
LOCK_WAIT = 10.0
_SETTLED = 2_000_000_000
"""In nanoseconds: two changes within the grain of a file system's clock have the same time."""

_now = SystemClock().now
_CONFLICT = (b"<<<<<<<", b"=======", b">>>>>>>")


def connect(root: Path, lock: Path | None = None) -> BeadsFileTracker:
    path = file_in(root)
    if path is None:
        hint = f"`bd export -o {FOLDER}/{USUAL_NAMES[0]}` writes it; or choose another tracker in the settings."
        raise TrackerError(f"{root / FOLDER} holds no file of beads.", hint)
    return BeadsFileTracker(path, lock=lock, us=cache(partial(our_name, root, os.environ)))


class _Table(Struct, frozen=True):
    """The file as it was read: its bytes, and what they mean."""

    data: bytes
    beads: Mapping[str, Bead]
    lines: Mapping[str, int]
    """The number of each bead's line."""
    items: dict[str, Item]
    warnings: tuple[str, ...]
    others: frozenset[str] = frozenset()
    """The ids of rows that are not, or no longer, beads."""

    @property
    def taken(self) -> Set[str]:
        """Return every id in the file."""
        return self.beads.keys() | self.others


_WORDS = {Status.IN_PROGRESS: "in_progress", Status.READY: "open", Status.DONE: "closed"}


class BeadsFileTracker(BaseTracker):
    name = "beads-file"

    def __init__(
        self,
        path: Path,
        *,
        lock: Path | None = None,
        now: Callable[[], str] = _now,
        us: Callable[[], str] = str,
    ) -> None:
        self._path = path
        self._lock = lock
        self._now = now
        self._us = us
        self._known = _Table(b"", {}, {}, {}, ())
        self._stamp: tuple[int, ...] = ()
        reopen = f'set "status" of {{}} to "open" in {FOLDER}/{path.name}'
        self.traits = TrackerTraits(edits=BEADS_EDITS, own_commands={"reopen": reopen})

    @property
    def warnings(self) -> Sequence[str]:
        """Return what was left out at the last reading of the file."""
        return self._known.warnings

    def writing(self) -> AbstractContextManager[object]:
        return held(self._lock, LOCK_WAIT)

    def all_items(self) -> Mapping[str, Item]:
        return self._table().items

    def set_status(self, item_id: str, status: Status, reason: str = "") -> None:
        closed = {"closed_at": self._now(), "close_reason": reason} if status is Status.DONE else {}
        fields = {"status": _WORDS[status], **closed, "updated_at": self._now()}
        self._edit(item_id, lambda line: splice(line, fields))

    def create(self, new: NewItem) -> str:
        table = self._table()
        for known, bead in table.beads.items():
            if new.reference and bead.external_ref == new.reference:
                return known
        if new.parent:
            name = child_id(new.parent, table.taken)
        else:  # a short name that no row has, deleted ones included
            seed = f"{new.title}\n{self._now()}"
            name = short_id(table.items, table.taken, self._path.parent.parent.name, seed)
        line = new_row(name, new, self._now(), found_in=new.found_in if new.found_in in table.items else "")
        self._write(with_line(table.data, line))
        return name

    def change(self, item_id: str, values: ItemValues) -> None:
        with self.writing():
            self.item(item_id)
            self._edit(item_id, lambda line: with_values(line, values, self._now()))

    def comment(self, item_id: str, text: str) -> None:
        with self.writing():
            table, bead_id = self._table(), self.item(item_id).id
            if words := cleaned(text).strip():
                remark = new_comment(bead_id, words, self._now(), table.beads.values())
                self._edit(bead_id, lambda line: with_element(line, "comments", remark))

    def own_files(self) -> Sequence[str]:
        return [FOLDER]

    def _table(self) -> _Table:
        """Return the current content of the file; read it again only if it may have changed, parse it if it has."""
        try:
            stamp = _stamp(self._path)
            if stamp and stamp == self._stamp:
                return self._known
            data = read_regular(self._path, LARGEST)
        except OSError as fault:
            hint = "Put the file back, or choose another tracker in the settings."
            raise TrackerError(f"{self._path} cannot be read: {fault.strerror}.", hint) from None
        if data != self._known.data:
            self._known = _read_table(data, self._path, self._us)
        self._stamp = stamp
        return self._known

    def _edit(self, item_id: str, changed: Callable[[str], str]) -> None:
        table = self._known
        lines = table.data.split(b"\n")
        number = table.lines[item_id]
        lines[number - 1] = changed(lines[number - 1].decode("utf-8")).encode("utf-8")
        self._write(b"\n".join(lines))

    def _write(self, data: bytes) -> None:
        sweep_temps(self._path.parent)
        write_atomically(self._path, data)


# ---- from bytes to items


def _stamp(path: Path) -> tuple[int, ...]:
    """Return what any later change of the file will change; nothing while a change may still leave it as it is."""
    found = path.lstat()
    settled = time.time_ns() - found.st_ctime_ns > _SETTLED
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns) if settled else ()


def _read_table(data: bytes, path: Path, us: Callable[[], str]) -> _Table:
    beads: dict[str, Bead] = {}
    lines: dict[str, int] = {}
    warnings: list[str] = []
    others: set[str] = set()
    for number, bead in _rows(data, path):
        bead_id = bead.id
        if not is_work(bead):
            others.add(bead_id)
            continue
        try:
            check_id(bead_id)
        except CapsuleError as fault:
            warnings.append(f"{path.name}, line {number}: {fault.message} The bead is left out.")
            others.add(bead_id)
            continue
        if bead_id in beads:
            where = f"lines {lines[bead_id]} and {number}"
            raise TrackerError(f"{path} holds {bead_id} twice, on {where}.", "Remove one of the two lines.")
        beads[bead_id] = bead
        lines[bead_id] = number
    items = with_holders({bead_id: item_of(bead, beads, us) for bead_id, bead in beads.items()})
    return _Table(data, beads, lines, items, tuple(warnings), frozenset(others))


def _rows(data: bytes, path: Path) -> Iterator[tuple[int, Bead]]:
    """Yield each bead with the number of its line."""
    whole = _is_utf8(data)  # a reader of some fields does not check the others
    for number, line in enumerate(BytesIO(data), 1):  # one at a time: new memory is what costs most
        content = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        bead = usual_row(content) if whole else None
        if bead is None and content.strip():
            bead = _unusual_row(content, f"{path}, line {number}")
        if bead:
            yield number, bead


def _unusual_row(content: bytes, where: str) -> Bead | None:
    """Read a row that bd would write differently; None if it is no bead; refuse what is no row."""
    try:
        row = parsed(content)
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        conflict = "These are the marks of a merge conflict: resolve it first."
        hint = conflict if content.startswith(_CONFLICT) else "Fix or remove that line."
        raise TrackerError(f"{where}: this is not a JSON object.", hint)
    if isinstance(row.get("id"), str):
        return bead_of(row)
    if is_work(bead_of({**row, "id": ""})):
        raise TrackerError(f"{where}: the bead has no id.", "Give it one, or remove the line.")
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False
