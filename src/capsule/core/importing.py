"""Read items out of a Markdown list, a CSV table, or the JSON that `gh issue list` prints."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from capsule.core.errors import UsageError
from capsule.core.text import one_line, without_controls

COLUMNS = ("title", "description", "tags", "size", "complexity", "risk", "impact", "type", "priority", "parent")
"""Columns of a table by the names of an item's fields."""
_OTHERWISE = {
    **{"name": "title", "summary": "title", "subject": "title"},
    **{"body": "description", "notes": "description", "details": "description"},
    **{"labels": "tags", "tag": "tags", "label": "tags"},
    **{"url": "reference", "id": "reference", "key": "reference", "reference": "reference"},
}
"""Names that other programs use."""
_LONGEST_TITLE = 500
_ENTRY = re.compile(r"(?P<indent>[ \t]*)(?:[-*+]|\d{1,4}[.)])[ \t]+(?:\[(?P<box>[ xX])\][ \t]+)?(?P<title>\S.*)")
_HEADING = re.compile(r"#{1,6}[ \t]")


class Imported(msgspec.Struct, frozen=True):
    """One entry of the list, unchanged."""

    title: str
    fields: dict[str, str] = {}
    tags: tuple[str, ...] = ()
    reference: str = ""
    """Its name in the source; '' if it has none."""


def read_items(text: str) -> list[Imported]:
    """Return the entries of a text, in any of the three formats; leave out what is done."""
    kind = next((kind for is_it, kind in _KINDS if is_it(text)), None)
    found = [*kind(text)] if kind else []
    if not found:
        hint = "It takes a Markdown list (- title), CSV with a column `title`, or the JSON of `gh issue list`."
        raise UsageError("It holds no items.", hint)
    return found


# ---- JSON


def _is_json(text: str) -> bool:
    return text.lstrip()[:1] in ("[", "{")


def _from_json(text: str) -> Iterator[Imported]:
    try:
        rows = msgspec.json.decode(text.strip())
    except (msgspec.DecodeError, RecursionError) as fault:
        raise UsageError(
            f"It is not valid JSON: {fault}.", "gh issue list --json number,title,body,labels,url"
        ) from None
    known = [row for row in (rows if isinstance(rows, list) else [rows]) if isinstance(row, dict)]
    left = [row for row in known if str(row.get("state", "open")).lower() in ("open", "opened")]
    if known and not left:
        raise UsageError("All items in it are closed.", "Without --state, `gh issue list` lists the open ones.")
    for number, row in enumerate(left, 1):
        yield _of_row({str(name): _plain(value) for name, value in row.items()}, f"Entry {number}")


def _plain(value: Any) -> str:
    """Return a value as a table would have it: names of labels joined by commas."""
    if isinstance(value, list):
        return ",".join(map(_plain, value))
    if isinstance(value, dict):
        return str(value.get("name") or value.get("title") or "")
    return "" if value is None else str(value)


# ---- CSV


def _is_csv(text: str) -> bool:
    head = next(csv.reader(text.lstrip("\ufeff\n").splitlines(keepends=True)), [])
    return "title" in map(_field, head)


def _from_csv(text: str) -> Iterator[Imported]:
    rows = csv.DictReader(text.lstrip("\ufeff\n").splitlines(keepends=True))
    for row in rows:
        if any(isinstance(value, str) and value.strip() for value in row.values()):
            yield _of_row(
                {name: value for name, value in row.items() if isinstance(name, str) and isinstance(value, str)},
                f"Line {rows.line_num}",
            )


def _field(column: str) -> str:
    name = column.strip().lower()
    return _OTHERWISE.get(name, name)


def _of_row(row: Mapping[str, str], where: str) -> Imported:
    """Return the entry of a row; of two columns that mean the same, the first that is filled in counts."""
    values: dict[str, str] = {}
    for column, value in row.items():
        name, text = _field(column), without_controls(value).strip()
        if text and (name not in values or column.strip().lower() == "url"):
            values[name] = text
    title = _title(values.get("title", ""))
    if not title:
        raise UsageError(f"{where} has no title.", f"It has: {', '.join(values) or 'nothing'}. Nothing was added.")
    fields = {name: values[name] for name in COLUMNS if name in values and name not in ("title", "tags")}
    tags = tuple(dict.fromkeys(filter(None, (tag.strip() for tag in re.split(r"[,;]", values.get("tags", ""))))))
    return Imported(title, fields, tags, one_line(values.get("reference", "")))


# ---- Markdown


def _from_markdown(text: str) -> Iterator[Imported]:
    """Yield the entries at the margin; text below one, or between it and the next, is its description."""
    title, done, below = "", False, list[str]()
    boxes: list[bool] = []
    margin: int | None = None
    for line in [*without_controls(text).splitlines(), "- end"]:
        entry = _ENTRY.fullmatch(line)
        indent = len(entry["indent"].expandtabs(4)) if entry else 0
        if entry and margin is None:
            margin = indent
        if entry and margin is not None and indent <= margin:
            if title and not done:
                description = "\n".join(below).strip("\n")
                yield Imported(title, {"description": description} if description.strip() else {})
            title, done, below = _title(entry["title"]), entry["box"] in ("x", "X"), []
            boxes.append(done)
        elif title and _HEADING.match(line):
            below.append("")
        elif title:
            below.append(line.strip() if not line.startswith((" " * 4, "\t")) else line[2:].rstrip())
    if boxes[:-1] and all(boxes[:-1]):  # the last is our own
        raise UsageError("All items in it are done.", "An entry is added if its box is empty, or if it has none.")


def without_marker(line: str) -> str:
    """Return the title in a line of a list, without its bullet, number and box."""
    entry = _ENTRY.fullmatch(line)
    return entry["title"] if entry else line


def _title(text: str) -> str:
    return one_line(text)[:_LONGEST_TITLE].rstrip()


_KINDS: tuple[tuple[Callable[[str], bool], Callable[[str], Iterator[Imported]]], ...] = (
    (_is_json, _from_json),
    (_is_csv, _from_csv),
    (lambda _: True, _from_markdown),
)
