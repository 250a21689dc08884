"""From a plan to the new text of BACKLOG.yaml: a list of cuts, each a place and what comes there instead.

Each new piece is read again, on its own, and must mean what was meant; if it does not, nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from capsule.core.errors import TrackerError
from capsule.core.item import Value
from capsule.trackers._backlog_braces import unfolded
from capsule.trackers._backlog_layout import (
    Field,
    content_end,
    eol_of,
    fields_of,
    items_key,
    key_indent,
    laid_out,
    value_and_comment,
)
from capsule.trackers._backlog_page import BacklogPage, documents_in, number_of, opened
from capsule.trackers._backlog_read import stated_last_id
from capsule.trackers._backlog_scalars import literal, meant, scalar, written

_IN_BLOCKS = ("description",)
"""Fields whose lines are kept as lines; everything else that has several goes in quotes."""
_LEAD = re.compile(r" *#[^\n]*\n?")
_TOP_FIELD = r"^(?:{0}|\"{0}\"|'{0}')[ \t]*:([^\n]*)(?:\n|\Z)"

Cut = tuple[int, int, str]
"""From where to where, and what comes there instead."""


class EditPlan(msgspec.Struct):
    """What a list of assignments means for one file. Items are meant by their number in it."""

    last_id: int
    changed: dict[int, dict[str, Value]] = msgspec.field(default_factory=dict)
    gone: set[int] = msgspec.field(default_factory=set)
    added: dict[str, dict[str, Value]] = msgspec.field(default_factory=dict)

    def is_empty(self) -> bool:
        return not (self.changed or self.gone or self.added)


def carried_out(page: BacklogPage, plan: EditPlan) -> str:
    """The text of the file as the plan leaves it."""
    if page.items and page.dashed is None:
        raise _unreadable(page)
    page = page.dashed or page
    cuts = sorted([*_head_cuts(page, plan), *_item_cuts(page, plan)], key=lambda cut: cut[:2])
    text = _cut(page.text, cuts)
    _check_rest(page, plan, text)
    return text


def _item_cuts(page: BacklogPage, plan: EditPlan) -> Iterator[Cut]:
    eol = eol_of(page.text)
    for number, values in plan.changed.items():
        start, end = _own_lines(page, number)
        block = _edited(page, page.text[start:end], number, values, eol)
        _check_item(page, block, {**page.items[number], **values})
        yield start, end, block
    last_kept = max((number for number in range(len(page.items)) if number not in plan.gone), default=-1)
    for number in plan.gone:
        yield (*_with_its_surroundings(page, number, at_the_end=number > last_kept), "")
    if plan.added:
        yield _addition(page, plan.added, eol)
    elif plan.gone and len(plan.gone) == len(page.items):
        yield _emptied(page)


def _own_lines(page: BacklogPage, number: int) -> tuple[int, int]:
    layout = page.layout
    if layout is None:
        raise _unreadable(page)
    start, end = layout.span(number)
    return start, start + content_end(page.text[start:end], layout.indent)


def _with_its_surroundings(page: BacklogPage, number: int, *, at_the_end: bool) -> tuple[int, int]:
    """The item, the comments right above it, and the blank lines that set it apart."""
    start, end = _own_lines(page, number)
    start = _above(page.text, start, lambda line: _LEAD.fullmatch(line) is not None)
    if at_the_end:
        return _above(page.text, start, lambda line: not line.strip()), end
    blank = re.compile(r"(?:[ \t]*\r?\n)*").match(page.text, end)
    return start, blank.end() if blank else end


def _above(text: str, place: int, belongs: Callable[[str], bool]) -> int:
    while place and belongs(text[(line := text.rfind("\n", 0, place - 1) + 1) : place]):
        place = line
    return place


def _edited(page: BacklogPage, block: str, number: int, values: Mapping[str, Value], eol: str) -> str:
    block = unfolded(block, eol)
    fields = fields_of(block)
    if fields is None or [each.name for each in fields] != list(page.items[number]):
        raise _unreadable(page, number)
    indent = key_indent(block, fields)
    for each in reversed(fields):
        if each.name in values:
            value = values[each.name]
            keep = value is not None or each is fields[0]
            lines = _replaced(block, each, _value(each.name, value, indent, eol), eol)
            block = block[: each.start] + lines * keep + block[each.end :]
    there = {each.name for each in fields}
    new = {name: value for name, value in values.items() if name not in there and value is not None}
    return block + _appended(block, "".join(_line(name, value, indent, eol) for name, value in new.items()), eol)


def _replaced(block: str, old: Field, new: str, eol: str) -> str:
    """A field's lines with another value; the key as it was written and a remark behind the value stay."""
    known = value_and_comment(block[old.colon : old.end]) if eol not in new else None
    end = eol if block[: old.end].endswith("\n") else ""
    return f"{block[old.start : old.colon]} {new}{known[1] if known else ''}{end}"


def _line(name: str, value: Value, indent: int, eol: str) -> str:
    return f"{' ' * indent}{scalar(name)}: {_value(name, value, indent, eol)}{eol}"


def _value(name: str, value: Value, indent: int, eol: str) -> str:
    if name in _IN_BLOCKS and isinstance(value, str) and "\n" in value:
        return literal(value, indent + 2, eol) or written(value)
    return written(value)


def _appended(before: str, lines: str, eol: str) -> str:
    """Lines as they come after a text; where its last line has no end, the new last line has none either."""
    return lines if not lines or before.endswith("\n") else eol + lines.removesuffix(eol)


def _addition(page: BacklogPage, added: Mapping[str, Mapping[str, Value]], eol: str) -> Cut:
    indent = page.layout.indent if page.layout else 2
    blocks = [_new_block(page, values, indent, eol) for values in added.values()]
    if page.layout is None:
        return _first_items(page, "".join(blocks), eol)
    last = len(page.items) - 1
    place = _own_lines(page, last)[1]
    apart = eol if last > 0 and _is_set_apart(page, last) else ""
    return place, place, _appended(page.text[place - 1 : place], apart + apart.join(blocks), eol)


def _is_set_apart(page: BacklogPage, number: int) -> bool:
    start = _above(page.text, _own_lines(page, number)[0], lambda line: _LEAD.fullmatch(line) is not None)
    return _above(page.text, start, lambda line: not line.strip()) < start


def _new_block(page: BacklogPage, values: Mapping[str, Value], indent: int, eol: str) -> str:
    lines = "".join(_line(name, value, indent + 2, eol) for name, value in values.items())
    block = f"{' ' * indent}- {lines[indent + 2 :]}"
    _check_item(page, block, {name: meant(value) for name, value in values.items()})
    return block


def _first_items(page: BacklogPage, blocks: str, eol: str) -> Cut:
    """Items come under `items:`, which is there with nothing, or `[]`, or `null`; or is not there at all."""
    key = items_key(page.text)
    if key is None:
        return len(page.text), len(page.text), _appended(page.text[-1:], f"items:{eol}{blocks}", eol)
    line = page.text[key[0] : key[1]]
    name, _, rest = line.partition(":")
    known = value_and_comment(rest)
    if known is None or known[0].strip().replace(" ", "") not in ("", "[]", "null", "~"):
        raise _unreadable(page)
    return key[0], key[1], f"{name}:{known[1]}{eol}{blocks}"


def _emptied(page: BacklogPage) -> Cut:
    key = items_key(page.text)
    if key is None:
        raise _unreadable(page)
    colon = page.text.index(":", key[0]) + 1
    return colon, colon, " []"


def _head_cuts(page: BacklogPage, plan: EditPlan) -> Iterator[Cut]:
    """The number up to which ids were given is kept in the file, because items leave it."""
    if not _raises_last_id(page, plan):
        return
    eol = eol_of(page.text)
    stated = _top_line(page, "last_id")
    if stated:
        comment = (value_and_comment(stated.group(1)) or ("", ""))[1]
        end = "\r" if eol == "\r\n" else ""
        yield stated.start(1), stated.end(1), f" {plan.last_id}{comment}{end}"
        return
    version = _top_line(page, "schema_version")
    key = items_key(page.text)
    place = version.end() if version else key[0] if key else 0
    broken = eol if place and page.text[place - 1] != "\n" else ""
    yield place, place, f"{broken}last_id: {plan.last_id}{eol}"


def _raises_last_id(page: BacklogPage, plan: EditPlan) -> bool:
    left = [number_of(page.ids[number]) or 0 for number in plan.gone]
    return bool(plan.added) or max(left, default=0) > stated_last_id(page)


def _top_line(page: BacklogPage, name: str) -> re.Match[str] | None:
    return re.search(_TOP_FIELD.format(name), page.text, re.MULTILINE) if name in page.document else None


def _cut(text: str, cuts: Sequence[Cut]) -> str:
    pieces, at = [], 0
    for start, end, new in cuts:
        pieces += [text[at : max(at, start)], new]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


# ---- what was written must read as it was meant


def _check_item(page: BacklogPage, block: str, expected: Mapping[str, object]) -> None:
    if page.has_anchors:
        return  # what an alias stands for may be elsewhere: the whole file is read again at the end
    try:
        read = documents_in(block)
    except ValueError:
        read = []
    if not _same(read, [[dict(expected)]]):
        raise _unreadable(page)


def _check_rest(page: BacklogPage, plan: EditPlan, text: str) -> None:
    """The rest of the file, without its items, still says what it said, and the last id; no item more, none less."""
    found = laid_out(text)
    if (len(found.starts) if found else 0) != len(page.items) - len(plan.gone) + len(plan.added):
        raise _unreadable(page)
    if page.has_anchors:
        whole = opened(text.encode(), page.where)
        kept = [{**item, **plan.changed.get(n, {})} for n, item in enumerate(page.items) if n not in plan.gone]
        if not _same([whole.items], [[*kept, *plan.added.values()]]):
            raise _unreadable(page)
    again = _without_items(text)
    expected = {name: value for name, value in page.document.items() if name != "items"}
    if _raises_last_id(page, plan):
        expected["last_id"] = plan.last_id
    if not _same([[again]], [[expected]]):
        raise _unreadable(page)


def _without_items(text: str) -> object:
    key = items_key(text)
    following = re.compile(r"\n(?=[^\s#-])").search(text, key[1] - 1) if key else None
    rest = text[following.end() :] if following else ""
    try:
        documents = documents_in(text[: key[0] if key else len(text)] + rest)
    except ValueError:
        return None
    return documents[0] if documents else None


def _same(read: Sequence[object], expected: Sequence[Sequence[Mapping[str, object]]]) -> bool:
    found = [[_filled(item) for item in items] for items in read if isinstance(items, list)]
    wanted = [[_filled(item) for item in items] for items in expected]
    return found == wanted or repr(found) == repr(wanted)


def _filled(item: object) -> object:
    """A field that is null and one that is not there are the same."""
    return {name: value for name, value in item.items() if value is not None} if isinstance(item, Mapping) else item


def _unreadable(page: BacklogPage, number: int | None = None) -> TrackerError:
    place = page.place(number) if number is not None else page.where
    hint = "Write each item as `- id: ...` with one `field: value` a line below it."
    return TrackerError(f"{place} is written in a way that cannot be changed safely; nothing was changed.", hint)
