"""Read BACKLOG.yaml without judging its items: the parser's values, and their places in the text.

The parser forgives equal keys, reads several documents, follows aliases until the memory is full, and a few thousand
nested lists end the whole process. All of that is checked before or after it runs.

It also says what the file means but not where. Where is found by indentation: the items are the lines that start with a
dash at the list's own indent, and an item's fields are the lines at its keys' indent. YAML allows nothing else at these
two places (texts of several lines are indented further). Users of the places check them: as many dashes as items, the
same names as the parser's, and after a change the file must read as planned.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import msgspec

from capsule.core.errors import TrackerError
from capsule.core.text import without_controls
from capsule.plain_files import MOST_ALIASES, count_aliases, duplicate_keys

LARGEST = 64 * 1024 * 1024
"""Ten nested ones expand to a few dozen values; a hundred to more than there is memory."""
SCHEMA_VERSION = 1
BOM = b"\xef\xbb\xbf"

_KEY = r"""("[^"\\\n]*"|'[^'\n]*'|[^\s"'#\[\]{}&*!|>%@`,?-][^\n]*?)[ \t]*:(?=[ \t\r\n]|\Z)"""
_FIELD_KEY = re.compile(_KEY)
_TOP_KEY = re.compile("\n" + _KEY)
_FIRST_DASH = re.compile(r"[^\n]*\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*( *)-(?=[ \t\r\n]|\Z)")
_TOO_DEEP = re.compile(r"\n *+[-?][ \t]++(?:[-?][ \t]++){99}")
_TOO_FAR_IN = "\n" + " " * 1000
_PART = 32 * 1024
"""The size of the parts in which a list is parsed."""
_NUMBERED = re.compile(r".*?-(\d{1,9})", re.ASCII)
_ALL_NUMBERED = re.compile(r"\0[^\0\n]*?-(\d{1,9})(?=\0|\Z)", re.ASCII)

# Few files need these: they are compiled where they are first used, and `re` remembers them.
_DASH_BEFORE_KEY = r" *-(?: +|[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)* +)(?=[^\s#{\[])"
_LINE_AT = r"\n {%d}(?![\s#]|-[ \t\r\n]|-\Z)"
"""The start of a line with a key at some indent: no comment, no blank line, no entry of a list."""
_KEEPS_BLANKS = r":[ \t]+[|>][1-9]?\+"
_CONFLICT = rb"(?m)^(?:<{7}|>{7}|\|{7})(?: |\r?$)"
_MAY_BE_ANCHOR = r"[&](?<!\w&)[^ \t\r\n]"
_POSITION = r" ?at byte \d+ line (\d+) column (\d+)"
_MARK = "\ue000"
_NOT_TEXT = r"(?m)^%[^\n]*|\\(?:x..|u.{4}|U.{8}|.)|[|>][-+]?\d|(\d|(?i:true|false|inf|nan))"
"""In its group: what makes a value a number or a truth value. Escapes, directives and indents are left alone."""


class Field(NamedTuple):
    """Place a field in a text: its lines are `text[start:end]`, its value follows the colon that ends at `colon`."""

    name: str
    start: int
    colon: int
    end: int


class BacklogPage(msgspec.Struct, frozen=True, dict=True):
    """The file, read but not judged: its items are mappings with any content."""

    where: str
    text: str
    document: dict[str, Any]
    items: list[dict[str, Any]]

    @cached_property
    def top(self) -> dict[str, Field]:
        """Find the fields of the file itself."""
        fields: dict[str, Field] = {}
        found = [key for key in _TOP_KEY.finditer("\n" + self.text) if _name(key) in self.document]
        lines = pairwise([*(key.start() for key in found), len(self.text)])
        for key, (start, end) in zip(found, lines, strict=True):
            name = _name(key)
            if name in fields:
                first, second = self.line_at(fields[name].start), self.line_at(start)
                words = f"{self.where}, line {second}: `{name}` was given on line {first} already."
                raise TrackerError(words, "Keep one.")
            fields[name] = Field(name, start, key.end() - 1, _trimmed(self.text, start, end, 0))
        return fields

    @cached_property
    def spans(self) -> list[tuple[int, int]]:
        """Find where the lines of each item start and end; nothing if the list is not written with dashes."""
        first = _FIRST_DASH.match(self.text, self.top["items"].colon) if "items" in self.top else None
        if first is None:
            return []
        indent, start = first[1], first.start(1)
        after = _after_list(indent).search(self.text, start)
        end = after.start() + 1 if after else len(self.text)
        # Written out, line and indent are looked for as one word.
        dashes = re.compile(rf"\n{indent}-(?=[ \t\r\n]|\Z)").finditer(self.text, start - 1, end)
        starts = [found.start() + 1 for found in dashes]
        return list(pairwise([*starts, end])) if len(starts) == len(self.items) else []

    @cached_property
    def indent(self) -> int:
        """Count the spaces before the dashes of the list."""
        start = self.spans[0][0] if self.spans else 0
        return self.text.index("-", start) - start if self.spans else 2

    @property
    def may_have_anchors(self) -> bool:
        """Tell whether the file may have anchors and aliases."""
        return "&" in self.text and re.search(_MAY_BE_ANCHOR, self.text) is not None

    def block(self, number: int) -> str:
        start, end = self.spans[number]
        return self.text[start:end]

    def own_lines(self, number: int) -> tuple[int, int]:
        """Find an item's own lines, comments at its fields' indent included; the rest belongs to what follows."""
        start, end = self.spans[number]
        fields = fields_of(self.text[start:end])
        return start, _trimmed(self.text, start + (fields[-1].start if fields else 0), end, self.indent)

    @cached_property
    def _line_ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]

    def line_at(self, place: int) -> int:
        return bisect.bisect_left(self._line_ends, place) + 1

    def place(self, number: int | None, name: str = "") -> str:
        """Return `BACKLOG.yaml, line 12`, for an item's field, an item, or a field of the file."""
        if number is None:
            return f"{self.where}, line {self.line_at(self.top[name].start)}" if name in self.top else self.where
        if not self.spans:
            return self.where
        within = next((each.start for each in fields_of(self.block(number)) if each.name == name), 0)
        return f"{self.where}, line {self.line_at(self.spans[number][0] + within)}"

    @cached_property
    def _marked_items(self) -> list[dict[str, Any]]:
        """Parse the items once more, from a text in which every value looks like a text."""
        text = re.sub(_NOT_TEXT, lambda found: (_MARK if found[1] else "") + found[0], self.text)
        try:
            items: list[dict[str, Any]] = documents_in(text)[0]["items"]
        except ValueError:
            return self.items
        return items

    def written(self, number: int, name: str) -> Any:
        """Return a field's value with texts in place of numbers and truth values, as they were written: `0123`."""
        return _as_texts(self.items[number], self._marked_items[number]).get(name)

    def text_of(self, number: int, name: str) -> str:
        """Return a field's value as it was written; '' if there is none."""
        value = self.items[number].get(name)
        return value if isinstance(value, str) else "" if value is None else str(self.written(number, name))

    @cached_property
    def ids(self) -> list[str]:
        """List the id of each item as it was written: `007` is a text like any other. '' if there is none."""
        written: list[Any] = [item.get("id") for item in self.items]
        if {*map(type, written)} <= {str}:
            return written
        return [self.text_of(number, "id") for number in range(len(self.items))]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Map each id to the number of its item."""
        return {name: number for number, name in enumerate(self.ids)}

    @cached_property
    def stated_last_id(self) -> int:
        """Return the last number given, as the file itself says."""
        stated = self.document.get("last_id") or 0
        if type(stated) is not int or stated < 0:
            words = f"{self.place(None, 'last_id')}: last_id is {shown(stated)}; it must be a number."
            raise TrackerError(words, "It is the number of the newest item ever added: ids are never given twice.")
        return stated

    @cached_property
    def last_id(self) -> int:
        """Return the last number given: as the file says, or as its items say if they were numbered by hand."""
        return max([self.stated_last_id, *map(int, _ALL_NUMBERED.findall("\0" + "\0".join(self.ids)))])


def number_of(item_id: str) -> int | None:
    """Return 14 for WRK-014; None if an id has no number of that form."""
    found = _NUMBERED.fullmatch(item_id)
    return int(found.group(1)) if found else None


def shown(value: object) -> str:
    text = str(value)
    return f'"{without_controls(text if len(text) <= 60 else text[:57] + "...")}"'.replace("\n", " ")


def documents_in(text: str) -> list[Any]:
    import yaml12  # noqa: PLC0415 - start-up of commands that read no backlog

    return list(yaml12.parse_yaml(text, multi=True))


def _in_parts(text: str) -> list[Any]:
    """Parse a long list some items at a time; return nothing if it only makes sense as a whole.

    The parser makes a tree of all that it is given before it makes values of it. Small trees lie in the same memory one
    after the other, a large one takes a third longer. What is cut in two somewhere else than between items does not
    parse, for then a quote, a bracket or an alias has lost its other end.
    """
    top = text.find("\nitems:")
    first = _FIRST_DASH.match(text, top + len("\nitems:")) if 0 <= top < len(text) - 2 * _PART else None
    directives = "\n%" in "\n" + text[: top + 1]
    if first is None or directives or "\r" in text or _after_list(first[1]).search(text, first.start(1)):
        return []
    dash, cuts, at = f"\n{first[1]}- ", [0], first.start(1)
    while (at := text.find(dash, at + _PART)) > 0:
        cuts.append(at + 1)
    try:
        # A dash ends each part but the last: where a text of several lines ends, the parser minds what follows.
        found = [documents_in(text[start:end] + dash[1:]) for start, end in pairwise(cuts)]
        document, *parts = [each for (each,) in (*found, documents_in(text[cuts[-1] :]))]
    except ValueError:  # also where there is more than one document, or none
        return []
    lists: list[Any] = [document.get("items"), *parts] if isinstance(document, dict) else [None]
    if not all(isinstance(each, list) for each in lists) or any(each[-1:] != [None] for each in lists[:-1]):
        return []
    items = chain.from_iterable(each[:-1] for each in lists[:-1])
    return [{**document, "items": [*items, *lists[-1]]}]


@lru_cache(maxsize=3)
def opened(data: bytes, where: str) -> BacklogPage:
    """Return the file's meaning if it is one document of ours; raise a TrackerError with the place of the fault.

    One command reads the same bytes several times: to judge them, to change them, to save them after the commit. So the
    last meanings are kept, by content; a page must not be changed.
    """
    text = _decoded(data, where)
    _refuse_bombs(text, where)
    documents = _parsed(data, text, where)
    if not documents or documents[0] is None:
        lost = "" if text.strip() else f"Restore it with `git checkout -- {where}`. "
        raise TrackerError(
            f"{where} is empty.", f"{lost}A backlog without items is `schema_version: 1` and `items: []`."
        )
    if len(documents) > 1:
        raise TrackerError(f"{where} holds {len(documents)} YAML documents.", "Keep one; remove the `---` between.")
    document = documents[0]
    if not isinstance(document, dict):
        raise TrackerError(f"{where} is not a mapping.", "It starts with `schema_version: 1`, then `items:`.")
    items: Any = document.get("items")
    if not isinstance(items, list | None):
        hint = "Start each item with `- id: ...`, or write `items: []`."
        raise TrackerError(f"{where}: `items` is not a list.", hint)
    page = BacklogPage(where, text, document, items or [])
    _check_version(page)
    for number, item in enumerate(items or []):
        if not isinstance(item, dict):
            hint = "Write `- id: ...`, then its fields."
            raise TrackerError(f"{page.place(number)}: item {number + 1} is not a mapping.", hint)
    _refuse_equal_ids(page)
    _refuse_equal_keys(page)
    return page


# ---- fields


def _after_list(indent: str) -> re.Pattern[str]:
    """Match the first line that is not part of a list whose dashes have this indent."""
    return re.compile(rf"\n(?!{indent}(?: |-[ \t\r\n]|-\Z)) {{0,{len(indent)}}}[^ \t\r\n#]")


def fields_of(block: str) -> list[Field]:
    """Find the fields of an item that is written with one key a line; empty if it is not."""
    starts = _key_starts(block)
    keys = [found for start in starts if (found := _FIELD_KEY.match(block, start))]
    if not keys or len(keys) < len(starts):
        return []
    indent = starts[0] - (block.rfind("\n", 0, starts[0]) + 1)
    lines = [starts[0], *(start - indent for start in starts[1:]), len(block)]
    return [
        Field(_name(key), start, key.end(), _trimmed(block, start, end, indent))
        for key, (start, end) in zip(keys, pairwise(lines), strict=True)
    ]


def _key_starts(block: str) -> list[int]:
    """Find where the keys of an item start."""
    dash = re.match(_DASH_BEFORE_KEY, block)
    if dash is None:
        return []
    line = re.compile(_LINE_AT % (dash.end() - (block.rfind("\n", 0, dash.end()) + 1)))
    return [dash.end(), *(found.end() for found in line.finditer(block, dash.end()))]


def _name(key: re.Match[str]) -> str:
    return str(documents_in(key[1])[0]) if key[1][0] in "\"'" else key[1]


def _trimmed(text: str, start: int, end: int, indent: int) -> int:
    """Find the end of a field that has its lines in here: comments and blank lines after it belong to what follows."""
    below = text.find("\n", start, end) + 1
    if below and re.compile(_KEEPS_BLANKS).search(text, start, below):
        outside = re.compile(rf"\n {{0,{indent}}}\S").search(text, below - 1, end)
        return outside.start() + 1 if outside else end
    foreign = re.compile(rf" {{0,{indent}}}#|\s*\Z")
    while start < (line := text.rfind("\n", start, end - 1) + 1) < end and foreign.match(text, line, end):
        end = line
    return end


def _as_texts(value: Any, marked: Any) -> Any:
    if isinstance(value, list):
        return [_as_texts(*each) for each in zip(value, marked, strict=False)]
    if isinstance(value, dict):
        pairs = zip(value.items(), marked.values(), strict=False)
        return {name: _as_texts(each, text) for (name, each), text in pairs}
    return value if value is None or isinstance(value, str) else str(marked).replace(_MARK, "")


# ---- refusals


def _decoded(data: bytes, where: str) -> str:
    if len(data) > LARGEST:
        raise TrackerError(f"{where} is larger than {LARGEST // 1024**2} MiB.", "Archive what is done, then try again.")
    try:
        return data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.removeprefix(BOM).count(b"\n", 0, fault.start) + 1
        raise TrackerError(f"{where}, line {line}: this is not UTF-8 text.", "Save the file as UTF-8.") from None


def _parsed(data: bytes, text: str, where: str) -> list[Any]:
    marks = re.search(_CONFLICT, data) if b"<<<<<<<" in data or b">>>>>>>" in data else None
    if marks:
        line = data.count(b"\n", 0, marks.start()) + 1
        raise TrackerError(
            f"{where}, line {line}: this is the marker of a merge conflict.", "Resolve the conflict first."
        )
    try:
        return _in_parts(text) or documents_in(text)
    except ValueError as fault:
        words = str(fault).removeprefix("YAML parse error: ")
        found = re.search(_POSITION, words)
        place = f"{where}, line {found.group(1)}, column {found.group(2)}" if found else where
        hint = "Not valid YAML: look at this line and those just before it."
        if "mapping values" in words:
            hint = 'A text with ": " in it needs quotes around it.'
        raise TrackerError(f"{place}: {re.sub(_POSITION, '', words)}.", hint) from None


def _refuse_bombs(text: str, where: str) -> None:
    if _TOO_FAR_IN in text or _TOO_DEEP.search(text) or _TOO_DEEP.match("\n" + text[:1000]):
        raise TrackerError(f"{where} is nested too deeply.", "Items are a flat list of mappings.")
    if (aliases := count_aliases(text)) > MOST_ALIASES:
        raise TrackerError(f"{where} uses {aliases} YAML aliases.", f"Write them out: {MOST_ALIASES} are the most.")


def _check_version(page: BacklogPage) -> None:
    version = page.document.get("schema_version")
    if type(version) is int and version == SCHEMA_VERSION:
        return
    if version is None:
        hint = f"Write `schema_version: {SCHEMA_VERSION}` on its first line."
        raise TrackerError(f"{page.where} has no schema_version.", hint)
    newer = type(version) is int and version > SCHEMA_VERSION
    hint = (
        "It was made by a newer Capsule: upgrade Capsule." if newer else f"This Capsule knows version {SCHEMA_VERSION}."
    )
    words = f"{page.place(None, 'schema_version')}: schema_version is {shown(version)}, not {SCHEMA_VERSION}."
    raise TrackerError(words, hint)


def _refuse_equal_ids(page: BacklogPage) -> None:
    if len(page.numbers) == len(page.ids):
        return
    seen: dict[str, int] = {}
    for number, name in enumerate(page.ids):
        if name and name in seen:
            lines = [page.line_at(page.spans[each][0]) for each in (seen[name], number) if page.spans]
            where = f" on lines {lines[0]} and {lines[1]}" if lines else ""
            raise TrackerError(f"{page.where} holds {name} twice{where}.", "Give one of the two another id.")
        seen[name] = number


def _refuse_equal_keys(page: BacklogPage) -> None:
    """Refuse equal keys: the parser keeps the last of them, so that fewer are left than there are lines."""
    for start, text in _doubtful(page):
        for key, first, second in duplicate_keys(text):
            lines = page.line_at(start) - 1
            words = f"line {lines + second}: the key `{key}` was given on line {lines + first} already."
            raise TrackerError(f"{page.where}, {words}", "Keep one of the two.")


def _doubtful(page: BacklogPage) -> Iterator[tuple[int, str]]:
    """Yield places and texts that may hold a key twice: items with mappings inside, or not written key by key."""
    if not page.spans:
        yield 0, page.text
        return
    no_doubt = _one_line_per_key(page)
    if no_doubt and dict not in {*map(type, chain.from_iterable(map(dict.values, page.items)))}:
        return
    for number, item in enumerate(page.items):
        if dict in map(type, item.values()) or not (no_doubt or len(_key_starts(page.block(number))) == len(item)):
            yield page.spans[number][0], page.block(number)


def _one_line_per_key(page: BacklogPage) -> bool:
    """Tell whether the list has no more lines that may start with a key than the parser found keys.

    An item that starts with `- name` has no fewer, so that then each item has as many lines as keys.
    """
    text, start, end = page.text, page.spans[0][0], page.spans[-1][1]
    first = len(re.compile(rf"\n{' ' * page.indent}- \w").findall(text, start - 1, end))
    line = "\n" + " " * (page.indent + 2)
    others, *no_keys = (text.count(line + more, start, end) for more in ("", " ", "#", "- "))
    even = first == len(page.items) and first + others - sum(no_keys) == sum(map(len, page.items))
    return even and ("\r" not in text or text.count("\r") == text.count("\r\n"))  # alone it ends a line for the parser
