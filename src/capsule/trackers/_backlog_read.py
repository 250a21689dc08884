"""Read items from BACKLOG.yaml: strict where a guess would be wrong, lenient about people's habits.

A file without faults takes the fast path: all items are converted at once, without their text. Only if that fails, or a
word is unknown, is the place in the text looked up, so that the fault has a line, an item and a field.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import msgspec

from capsule.core.errors import CapsuleError, TrackerError
from capsule.core.item import ACTIVE, Assessment, Blocked, Item, Status, check_id, twin_of
from capsule.core.text import nearest, without_controls
from capsule.trackers._backlog_page import BacklogPage, number_of, opened, shown

FIELDS_OF_THE_FILE = ("schema_version", "last_id", "items")

_MAY_BE_CONTROLS = ("\\", *(chr(code) for code in (*range(32), *range(0x7F, 0xA0)) if chr(code) not in "\t\n\r"))
"""Marks of a text that may hold control characters: the characters, or an escape."""
_DEGREES = ("low", "medium", "high")
_LEVELS = {"size": ("small", "medium", "large"), "complexity": _DEGREES, "risk": _DEGREES, "impact": _DEGREES}
_UNKNOWN = Assessment()
_BLOCK_TYPES = ("clarification", "decision")
_YES_AND_NO = {"yes": True, "on": True, "true": True, "no": False, "off": False, "false": False}
_STATUSES = {status.value: status for status in Status}
_BLOCK = ("blocked_from_status", "blocked_reason", "blocked_type")


class _Row(msgspec.Struct):
    """An item as in the file."""

    id: str
    title: str
    status: str
    description: str | None = None
    phase: str | None = None
    size: str | None = None
    complexity: str | None = None
    risk: str | None = None
    impact: str | None = None
    requires_human_review: bool | None = None
    origin: str | None = None
    blocked_from_status: str | None = None
    blocked_reason: str | None = None
    blocked_type: str | None = None
    unblock_context: str | None = None
    guardrail_override: Any = None
    """Checked by itself: a value with a YAML tag looks like a mapping to the converter."""
    tags: list[str] | None = None
    dependencies: list[str] | None = None
    created: str | None = None
    updated: str | None = None


class _KnownRow(_Row, forbid_unknown_fields=True):
    """An item with known fields only."""


FIELDS = _Row.__struct_fields__
_KNOWN = frozenset(FIELDS)
_REQUIRED = ("id", "title", "status")
_LISTS = ("tags", "dependencies")
_SCALARS = (str, bool, int, float)


class Backlog(msgspec.Struct, frozen=True):
    """The content of the file: its items in its own order."""

    items: dict[str, Item]
    last_id: int
    """The highest number ever given; ids up to it that are not here were archived."""
    warnings: tuple[str, ...] = ()


def read_backlog(data: bytes, where: str, endings: Callable[[], Mapping[str, str]] = dict) -> Backlog:
    """Return the items, or raise a TrackerError that names line, item and field.

    `endings` says of items that were archived why they were closed, '' for those that are done; it is asked only
    where an item depends on one of them.
    """
    page = opened(data, where)
    reader = _Reader(page)
    items = reader.without_done_dependencies(reader.items())
    _refuse_cycles(page, items)
    if reader.archived:
        known = endings()
        items |= {name: _settled(items[name], others, items, known) for name, others in reader.archived.items()}
    return Backlog(items, page.last_id, tuple(reader.warnings()))


class _Reader:
    """Read one file, and collect warnings."""

    def __init__(self, page: BacklogPage) -> None:
        self._page = page
        self._ids = page.ids
        self._clean = without_controls if any(map(page.text.__contains__, _MAY_BE_CONTROLS)) else str
        self._odd: list[str] = []
        self._assessments: dict[tuple[str | None, ...], Assessment] = {}
        self._all_known = True
        """No item was found to have a field that is not ours."""
        self.archived: dict[str, list[str]] = {}
        """Dependencies that have left the file, by the item that has them."""

    def items(self) -> dict[str, Item]:
        items = [self._item(number, row) for number, row in enumerate(self._rows())]
        return {item.id: item for item in items}

    def _rows(self) -> Iterable[_Row]:
        try:
            rows = msgspec.convert(self._page.items, list[_KnownRow])
        except msgspec.ValidationError:
            self._all_known = False
        else:
            return rows
        try:
            return msgspec.convert(self._page.items, list[_Row])
        except msgspec.ValidationError:
            return map(self._row, range(len(self._page.items)))

    def _row(self, number: int) -> _Row:
        item = self._page.items[number]
        try:
            return msgspec.convert(item, _Row)
        except msgspec.ValidationError:
            return msgspec.convert({name: self._as_meant(number, name, item.get(name)) for name in FIELDS}, _Row)

    def _as_meant(self, number: int, name: str, value: object) -> object:
        """Return the value for its field: a text stays as it was written, even if YAML reads a number."""
        if value is None and name in _REQUIRED:
            hint = f'Give it one; if it is a word of YAML\'s, quote it: {name}: "null".'
            raise self._fault(number, name, f"there is no {name}", hint)
        if value is None or name == "guardrail_override":
            return value
        meant: object = None
        if name == "requires_human_review":
            meant = value if isinstance(value, bool) else _YES_AND_NO.get(str(value).lower())
            wanted, hint = "true or false", "Write one of them."
        elif name in _LISTS:
            if isinstance(value, list) and all(isinstance(each, _SCALARS) for each in value):
                meant = self._page.written(number, name)
            wanted, hint = "a list of texts", f"Write {name}: [one, two]."
        else:
            meant = self._page.text_of(number, name) if isinstance(value, _SCALARS) else None
            wanted, hint = "a text", "Put quotes around it."
        if meant is None:
            raise self._fault(number, name, f"{name} is {shown(value)}; it must be {wanted}", hint)
        return meant

    def _item(self, number: int, row: _Row) -> Item:
        clean = self._clean
        status = _STATUSES.get(row.status) or Status(self._one_of(number, "status", row.status, _STATUSES))
        if not row.title.strip():
            raise self._fault(number, "title", "there is no title", "Give it one.")
        if status is Status.IN_PROGRESS and not row.phase:
            self._note(number, "status", "it is in progress without a phase; the first one is assumed")
        return Item(
            id=self._checked_id(number, row.id),
            title=clean(row.title),
            description=clean(row.description or ""),
            status=status,
            phase=clean(row.phase or ""),
            assessment=self._assessment(number, row),
            requires_human_review=bool(row.requires_human_review),
            blocked=self._blocked(number, row, status),
            unblock_context=clean(row.unblock_context or ""),
            guardrail_override=_UNKNOWN
            if row.guardrail_override is None
            else self._override(number, row.guardrail_override),
            origin=clean(row.origin or ""),
            tags=tuple(map(clean, row.tags)) if row.tags else (),
            dependencies=tuple(dict.fromkeys(row.dependencies)) if row.dependencies else (),
            created=clean(row.created or ""),
            updated=clean(row.updated or ""),
        )

    def _checked_id(self, number: int, item_id: str) -> str:
        try:
            return check_id(item_id)
        except CapsuleError as fault:
            raise TrackerError(f"{self._page.place(number, 'id')}: {fault.message}", fault.hint) from None

    def _one_of(self, number: int, name: str, word: str, allowed: Collection[str]) -> str:
        meant = word.strip().lower().replace("-", "_").replace(" ", "_")
        if meant in allowed:
            return meant
        near = nearest(meant, allowed)
        hint = f"Did you mean {near[0]}?" if near else "Use one of these words."
        words = f"{name} is {shown(word)}; it must be one of {', '.join(allowed)}"
        raise self._fault(number, name, words, hint)

    def _assessment(self, number: int, row: _Row) -> Assessment:
        words = (row.size, row.complexity, row.risk, row.impact)
        known = self._assessments.get(words)
        if known is None:
            given = {name: word for name, word in zip(_LEVELS, words, strict=True) if word}
            levels = {name: self._one_of(number, name, word, _LEVELS[name]) for name, word in given.items()}
            known = self._assessments[words] = Assessment(**levels)
        return known

    def _override(self, number: int, levels: object) -> Assessment:
        field = "guardrail_override"
        if not isinstance(levels, dict) or not all(isinstance(each, str) for each in (*levels, *levels.values())):
            words = f"{field} is {shown(levels)}; it must be a mapping"
            raise self._fault(number, field, words, "Write it as {size: large}.")
        for name in levels:
            if name not in _LEVELS:
                raise self._fault(number, field, f"{field} names {shown(name)}", f"There are: {', '.join(_LEVELS)}.")
        return Assessment(**{n: self._one_of(number, field, word, _LEVELS[n]) for n, word in levels.items()})

    def _blocked(self, number: int, row: _Row, status: Status) -> Blocked | None:
        if status is not Status.BLOCKED:
            for name in _BLOCK if row.blocked_from_status or row.blocked_reason or row.blocked_type else ():
                if getattr(row, name):
                    self._note(number, name, f"{name} is ignored, because the item is not blocked")
            return None
        kind = self._one_of(number, "blocked_type", row.blocked_type, _BLOCK_TYPES) if row.blocked_type else ""
        origin = Status.IN_PROGRESS if row.phase else Status.NEW
        if row.blocked_from_status:
            allowed = [each.value for each in ACTIVE]
            origin = Status(self._one_of(number, "blocked_from_status", row.blocked_from_status, allowed))
        else:
            words = f"it is blocked, but does not say from which status; {origin.value} is assumed"
            self._note(number, "status", words)
        return Blocked(origin, self._clean(row.blocked_reason or ""), kind)

    def _fault(self, number: int, name: str, words: str, hint: str) -> TrackerError:
        return TrackerError(f"{self._where(number, name)}: {words}.", hint)

    def _note(self, number: int, name: str, words: str) -> None:
        self._odd.append(f"{self._where(number, name)}: {words}.")

    def _where(self, number: int, name: str) -> str:
        return f"{self._page.place(number, name)}: {self._ids[number] or f'item {number + 1}'}"

    def without_done_dependencies(self, items: dict[str, Item]) -> dict[str, Item]:
        """Drop dependencies that are done."""
        for number, item in enumerate(items.values()):
            if item.dependencies:
                waits = [each for each in item.dependencies if self._is_open(number, each, items)]
                items[item.id] = msgspec.structs.replace(item, dependencies=tuple(waits))
        return items

    def _is_open(self, number: int, other: str, items: Mapping[str, Item]) -> bool:
        if other in items:
            return items[other].status is not Status.DONE
        last_id = self._page.last_id
        if (number_of(other) or last_id + 1) <= last_id:
            self.archived.setdefault(self._ids[number], []).append(other)
            return False
        near = nearest(other, items)
        hint = f"Did you mean {near[0]}?" if near else f"Ids up to {last_id} count as done; this was never given."
        raise self._fault(number, "dependencies", f"it depends on {shown(other)}, which there is not", hint)

    def warnings(self) -> Iterator[str]:
        yield from self._odd
        yield from self._unknown_fields()

    def _unknown_fields(self) -> Iterator[str]:
        """Name each unknown field once, where it is first: a repeated field is one warning."""
        for name in (each for each in self._page.document if each not in FIELDS_OF_THE_FILE):
            yield f"{self._page.place(None, name)}: {shown(name)} is no field of the file; it is kept."
        found: dict[str, list[int]] = {}
        if self._all_known:
            return
        for number, item in enumerate(self._page.items):
            for name in item.keys() - _KNOWN:
                found.setdefault(name, []).append(number)
        for name, numbers in found.items():
            more = f" (and in {len(numbers) - 1} other items)" if len(numbers) > 1 else ""
            near = nearest(str(name), FIELDS)
            meant = f" Did you mean {near[0]}?" if near else ""
            yield f"{self._where(numbers[0], name)}: {shown(name)} is no field of ours{more}; it is kept.{meant}"


def _settled(item: Item, archived: Iterable[str], items: Mapping[str, Item], endings: Mapping[str, str]) -> Item:
    """Replace a dependency that was a duplicate by its original; name one that was closed otherwise."""
    waits, unmet = dict.fromkeys(item.dependencies), []
    for name in archived:
        twin, seen = name, set[str]()
        while twin not in items and twin not in seen and (other := twin_of(endings.get(twin, ""))):
            seen.add(twin)
            twin = other
        if twin in items and items[twin].status is not Status.DONE and twin != item.id:
            waits[twin] = None
        elif twin not in items and endings.get(twin):
            unmet.append(f"{name} was closed: {endings[name]}")
    return msgspec.structs.replace(item, dependencies=tuple(waits), unmet=tuple(unmet))


def _refuse_cycles(page: BacklogPage, items: Mapping[str, Item]) -> None:
    try:
        TopologicalSorter({name: item.dependencies for name, item in items.items() if item.dependencies}).prepare()
    except CycleError as fault:
        circle = fault.args[1][::-1]
        place = page.place(page.numbers[circle[0]], "dependencies")
        words = f"{place}: items wait for each other: {' → '.join(circle)}."
        raise TrackerError(words, "Remove one of these dependencies.") from None
