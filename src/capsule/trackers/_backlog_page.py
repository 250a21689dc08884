"""BACKLOG.yaml, read but not judged: one document of ours, whose items are mappings.

The parser forgives equal keys, reads several documents, follows aliases until the memory is full, and a few thousand
nested lists end the whole process. All of that is looked for before or after it has its turn.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache

import msgspec

from capsule.core.errors import SettingsError, TrackerError
from capsule.plain_files import parse_yaml
from capsule.trackers._backlog_braces import unfolded
from capsule.trackers._backlog_layout import (
    Layout,
    all_key_lines,
    fields_of,
    key_lines,
    laid_out,
    top_keys,
    value_and_comment,
    without_brackets,
)

LARGEST = 64 * 1024 * 1024
MOST_ALIASES = 10
"""Ten that are nested stand for a few dozen values; a hundred for more than there is memory."""
BOM = b"\xef\xbb\xbf"

_TOO_DEEP = re.compile(r"\n *+[-?][ \t]++(?:[-?][ \t]++){99}")
_TOO_FAR_IN = "\n" + " " * 1000
_NUMBERED = re.compile(r".*?-(\d{1,9})", re.ASCII)

# Few files need these: they are compiled where they are first used, and `re` remembers them.
_MARKS = rb"(?m)^(?:<{7}|>{7}|\|{7})(?: |\r?$)"
_ANCHOR = r"[&](?<=[\s\[{,]&)([^\s\[\]{},&]+)"
_ALIAS = r"[*](?<=[\s\[{,]\*)([^\s\[\]{},*]+)"
_POSITION = r" ?at byte \d+ line (\d+) column (\d+)"


class BacklogPage(msgspec.Struct, frozen=True, dict=True):
    """The file, read but not judged: its items are mappings, whatever they hold."""

    where: str
    text: str
    document: dict[str, object]
    items: list[dict[str, object]]

    @cached_property
    def layout(self) -> Layout | None:
        found = laid_out(self.text)
        return found if found and len(found.starts) == len(self.items) else None

    @cached_property
    def has_anchors(self) -> bool:
        return "&" in self.text and re.search(_ANCHOR, self.text) is not None

    @cached_property
    def _line_ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]

    def line_at(self, place: int) -> int:
        return bisect.bisect_left(self._line_ends, place) + 1

    def block(self, number: int) -> str:
        """The lines of one item; '' where they cannot be told apart."""
        if self.layout is None:
            return ""
        start, end = self.layout.span(number)
        return self.text[start:end]

    def place(self, number: int | None, name: str = "") -> str:
        """`BACKLOG.yaml, line 12`: of an item's field, of the item, or of a field of the file."""
        if number is None:
            found = next((start for key, start in top_keys(self.text) if key == name), None)
            return self.where if found is None else f"{self.where}, line {self.line_at(found)}"
        if self.layout is None:
            return self.where
        within = next((each.start for each in fields_of(self.block(number)) or () if each.name == name), 0)
        return f"{self.where}, line {self.line_at(self.layout.starts[number] + within)}"

    @cached_property
    def dashed(self) -> BacklogPage | None:
        """The same with one item a line, where the list is written in brackets."""
        if self.layout:
            return self
        text = without_brackets(self.text)
        page = BacklogPage(self.where, text, self.document, self.items)
        return page if page.layout and _meaning(text) == [self.document] else None

    def value_text(self, number: int, name: str) -> str:
        """What stands behind a field's colon, as it was written; '' where it cannot be told."""
        block = unfolded(self.dashed.block(number), "\n") if self.dashed else ""
        return next((block[each.colon : each.end] for each in fields_of(block) or () if each.name == name), "")

    def source(self, number: int, name: str) -> str:
        """A one-line value as it was written; '' where it cannot be told."""
        found = value_and_comment(self.value_text(number, name))
        return found[0].strip() if found else ""

    @cached_property
    def ids(self) -> list[str]:
        """Of each item, as it was written: `007` is a text like any other. '' where there is none."""
        values = [item.get("id") for item in self.items]
        return [each if isinstance(each, str) else self._odd_id(number, each) for number, each in enumerate(values)]

    def _odd_id(self, number: int, value: object) -> str:
        return "" if value is None else self.source(number, "id") or str(value)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Which item of the file has this id."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def highest_number(self) -> int:
        return max((number_of(each) or 0 for each in self.ids), default=0)


def number_of(item_id: str) -> int | None:
    """14 for WRK-014; None where an id has no number of that form."""
    found = _NUMBERED.fullmatch(item_id)
    return int(found.group(1)) if found else None


@lru_cache(maxsize=2)
def opened(data: bytes, where: str) -> BacklogPage:
    """The file's meaning, where it is one document of ours; raises TrackerError that says where it is not.

    One command reads the same bytes several times: to judge them, to change them, to save them after the commit. So
    the last meanings are kept, by content; nobody may change a page.
    """
    text = _decoded(data, where)
    _refuse_bombs(text, where)
    documents = _parsed(data, text, where)
    if not documents or documents[0] is None:
        raise TrackerError(f"{where} is empty.", f"Take it back with `git checkout -- {where}`, or `capsule init`.")
    if len(documents) > 1:
        raise TrackerError(f"{where} holds {len(documents)} YAML documents.", "Keep one; remove the `---` between.")
    document = documents[0]
    if not isinstance(document, dict):
        raise TrackerError(f"{where} is not a mapping.", "It starts with `schema_version: 1`, then `items:`.")
    _refuse_equal_keys(text, document, where)
    page = BacklogPage(where, text, document, _mappings(document.get("items"), text, where))
    _refuse_equal_ids(page)
    return page


def documents_in(text: str) -> list[object]:
    import yaml12  # noqa: PLC0415 - commands that read no backlog do not pay for it

    return list(yaml12.parse_yaml(text, multi=True))


def _meaning(text: str) -> list[object]:
    try:
        return documents_in(text)
    except ValueError:
        return []


def refuse_equal_fields(page: BacklogPage) -> None:
    """The parser keeps the last of two equal keys, so that fewer of them are left than there are lines."""
    layout = page.layout
    if layout is None:
        return _strictly(page.text, page, 0)
    for number in _doubtful(page, layout):
        start, end = layout.span(number)
        _strictly(page.text[start:end], page, start)
    return None


def _doubtful(page: BacklogPage, layout: Layout) -> Iterator[int]:
    """Items that may hold a key twice. An item written key by key has no fewer lines than keys, so if the file has as
    many of both, then each item has, and only mappings inside of items are left to look at."""
    keys = sum(map(len, page.items))
    even = not page.has_anchors and all_key_lines(page.text, layout) == keys
    for number, item in enumerate(page.items):
        if dict in map(type, item.values()) or not (even or key_lines(page.text, *layout.span(number)) == len(item)):
            yield number


# ---- refusals


def _decoded(data: bytes, where: str) -> str:
    if len(data) > LARGEST:
        raise TrackerError(f"{where} is larger than {LARGEST // 1024**2} MiB.", "Archive what is done, then try again.")
    try:
        return data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.removeprefix(BOM).count(b"\n", 0, fault.start) + 1
        raise TrackerError(f"{where}, line {line}: this is not UTF-8 text.", "Save the file as UTF-8.") from None


def _parsed(data: bytes, text: str, where: str) -> list[object]:
    marks = re.search(_MARKS, data) if b"<<<<<<<" in data or b">>>>>>>" in data else None
    if marks:
        line = data.count(b"\n", 0, marks.start()) + 1
        raise TrackerError(f"{where}, line {line}: these are the marks of a merge conflict.", "Settle it first.")
    try:
        return documents_in(text)
    except ValueError as fault:
        raise _no_yaml(fault, where) from None


def _no_yaml(fault: ValueError, where: str) -> TrackerError:
    words = str(fault).removeprefix("YAML parse error: ")
    found = re.search(_POSITION, words)
    place = f"{where}, line {found.group(1)}, column {found.group(2)}" if found else where
    hint = "That is no valid YAML: look at this line and the ones just before it."
    if "mapping values" in words:
        hint = 'A text with ": " in it needs quotes around it.'
    return TrackerError(f"{place}: {re.sub(_POSITION, '', words)}.", hint)


def _refuse_bombs(text: str, where: str) -> None:
    if _TOO_FAR_IN in text or _TOO_DEEP.search(text) or _TOO_DEEP.match("\n" + text[:1000]):
        raise TrackerError(f"{where} is nested too deeply.", "Items are a flat list of mappings.")
    anchors = set(re.findall(_ANCHOR, text)) if "&" in text else set()
    aliases = sum(name in anchors for name in re.findall(_ALIAS, text)) if anchors else 0
    if aliases > MOST_ALIASES:
        raise TrackerError(f"{where} uses {aliases} YAML aliases.", f"Write them out: {MOST_ALIASES} are the most.")


def _mappings(items: object, text: str, where: str) -> list[dict[str, object]]:
    if items is None:
        return []
    if not isinstance(items, list):
        raise TrackerError(
            f"{where}: `items` is not a list.", "Start each item with `- id: ...`, or write `items: []`."
        )
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            layout = laid_out(text)
            known = layout is not None and len(layout.starts) == len(items)
            line = f", line {text.count(chr(10), 0, layout.starts[number]) + 1}" if layout and known else ""
            raise TrackerError(
                f"{where}{line}: item {number + 1} is no mapping.", "Write `- id: ...`, then its fields."
            )
    return items


def _refuse_equal_ids(page: BacklogPage) -> None:
    if len(page.numbers) == len(page.ids):
        return
    seen: dict[str, int] = {}
    for number, name in enumerate(page.ids):
        if name and name in seen:
            first, second = (page.place(each).rpartition("line ")[2] for each in (seen[name], number))
            where = f" on lines {first} and {second}" if page.layout else ""
            raise TrackerError(f"{page.where} holds {name} twice{where}.", "Give one of the two another id.")
        seen[name] = number


def _refuse_equal_keys(text: str, document: dict[str, object], where: str) -> None:
    seen: dict[str, int] = {}
    for name, start in top_keys(text) if document else ():
        if name in seen and name in document:
            first, second = (text.count("\n", 0, place) + 1 for place in (seen[name], start))
            raise TrackerError(f"{where}, line {second}: `{name}` was given on line {first} already.", "Keep one.")
        seen[name] = start


def _strictly(text: str, page: BacklogPage, start: int) -> None:
    """Equal keys somewhere in this part of the file are refused, by a slower reading."""
    try:
        parse_yaml(text.encode(), page.where)
    except SettingsError:
        try:
            parse_yaml(("\n" * (page.line_at(start) - 1) + text).encode(), page.where)
        except SettingsError as fault:
            if "was given on line" in fault.message:
                raise TrackerError(fault.message, fault.hint) from None
