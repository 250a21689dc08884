"""Change BACKLOG.yaml in its text: one field is one line, and every other byte stays as a person left it.

The assignments become a plan: which items change, are removed, or are new. They may be applied twice, so a plan holds
only differences. The plan becomes cuts, each a range and its replacement. An item in braces is written anew with one
key a line, a list in brackets with one item after the other. The result is read again, and must mean what was meant; if
it does not, nothing is changed. It is read without the items that are far from every cut: they begin and end as they
did, if their neighbours do. Only where that is not as it was meant is the whole read.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import msgspec

from capsule.core.assignment import Absent, Assign, Assignment, Exists, LogEntry
from capsule.core.errors import TrackerError
from capsule.core.item import Status, with_finding
from capsule.core.project_log import same_title
from capsule.trackers._backlog_page import BOM, LARGEST, BacklogPage, Field, documents_in, fields_of, number_of, opened

_IN_BLOCKS = ("description",)
"""Fields whose lines are kept as lines; everything else that has several goes in quotes."""
_COMMENT = re.compile(r" *#[^\n]*\n?")
_BLANK = re.compile(r"[ \t]*\r?\n")

Cut = tuple[int, int, str]
"""Start, end and the replacement."""


class Rewrite(msgspec.Struct, frozen=True):
    data: bytes
    added: tuple[str, ...] = ()
    """Ids of new items, in the order of their assignments."""
    known: tuple[str, ...] = ()
    """One sentence for each known item that was not added."""


def rewritten(
    data: bytes,
    assignments: Sequence[Assignment],
    *,
    where: str,
    prefix: str,
    archived: Callable[[], Mapping[str, str]],
    ids: Sequence[str] = (),
    above: Callable[[], int] = lambda: 0,
) -> Rewrite:
    """Return the file as these assignments leave it.

    `ids` are those that an earlier application of the same list gave; new ones are above `above`, which is only called
    for new items.
    """
    page = opened(data, where)
    plan = _Plan(page, prefix, archived, above, list(ids))
    plan.include(assignments)
    if not (plan.changed or plan.gone or plan.added):
        return Rewrite(data, (), tuple(plan.known))
    cuts = [*_head_cuts(page, plan), *_item_cuts(page, plan)]
    after = (BOM if data.startswith(BOM) else b"") + _cut(page.text, cuts).encode()
    if not (_near_is_meant(page, plan, cuts, after) or _is_meant(page, plan, after, range(len(page.items)))):
        raise _unreadable(page)
    return Rewrite(after, tuple(plan.added), tuple(plan.known))


def with_entry(worklog: bytes, entry: LogEntry) -> bytes:
    """Return the month's worklog with this entry on top. An existing one is not repeated."""
    eol = b"\r\n" if b"\r\n" in worklog else b"\n"
    text = entry.text.strip("\n").encode("utf-8", "replace")
    if b"\n" + text + b"\n" in b"\n" + worklog.replace(b"\r\n", b"\n") + b"\n":
        return worklog
    heading, _, rest = worklog.partition(b"\n") if worklog.startswith((b"# ", BOM + b"# ")) else (b"", b"", worklog)
    heading = heading.rstrip(b"\r") or f"# Worklog {entry.month}".encode()
    rest = rest.lstrip(b"\r\n")
    return heading + eol * 2 + text.replace(b"\n", eol) + eol + (eol + rest if rest else b"")


# ---- the plan


class _Plan:
    """Collect the changes that a list of assignments makes to one file, with its items named by their numbers."""

    def __init__(
        self,
        page: BacklogPage,
        prefix: str,
        archived: Callable[[], Mapping[str, str]],
        above: Callable[[], int],
        ids: list[str],
    ) -> None:
        self._page, self._prefix, self._ids = page, prefix, ids
        self._archived, self._above = cache(archived), cache(above)
        self.last_id = page.last_id
        self.changed: dict[int, dict[str, Any]] = {}
        self.gone: set[int] = set()
        self.added: dict[str, dict[str, Any]] = {}
        self.known: list[str] = []

    def include(self, assignments: Sequence[Assignment]) -> None:
        numbers = self._page.numbers
        for assignment in assignments:
            if isinstance(assignment, Assign) and assignment.item in numbers:
                self.changed.setdefault(numbers[assignment.item], {}).update(_meant(assignment.values))
            elif isinstance(assignment, Absent) and assignment.item in numbers:
                self.gone.add(numbers[assignment.item])
            elif isinstance(assignment, Exists):
                self._add(assignment)
        changed = ((number, self._differing(number, values)) for number, values in self.changed.items())
        self.changed = {number: values for number, values in changed if values and number not in self.gone}

    def _differing(self, number: int, values: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out values that do not change: an empty value and no value are the same."""
        old = self._page.items[number]
        wanted = {name: value for name, value in values.items() if name != "id" and value != old.get(name)}
        return {name: value for name, value in wanted.items() if value or old.get(name)}

    def _add(self, wanted: Exists) -> None:
        title = _told_apart(str(wanted.values["title"]))
        if wanted.id:
            if self._title_of(wanted.id) is None:
                values = {name: value for name, value in _meant(wanted.values).items() if value}
                self.added[wanted.id] = {"id": wanted.id, **values}
            return
        if self._ids and self._title_of(self._ids[0]) == title:
            self._ids.pop(0)
            return
        if wanted.unless_known and (title in self._titles or title in self._archived()):
            self._add_to_known(wanted, title)
            return
        earlier = self._ids.pop(0) if self._ids else ""
        if earlier and (self._title_of(earlier) is not None or (number_of(earlier) or 0) <= self.last_id):
            return
        if not earlier:
            self.last_id = max(self.last_id, self._above())
        item_id = earlier or f"{self._prefix}-{self.last_id + 1:03}"
        self.last_id = max(self.last_id + 1, number_of(item_id) or 0)
        values = {name: value for name, value in _meant(wanted.values).items() if value is not None}
        start = {"id": item_id, "title": values["title"], "status": Status.NEW.value}
        self.added[item_id] = {**start, **values, "id": item_id}
        self._titles.add(title)

    def _add_to_known(self, wanted: Exists, title: str) -> None:
        """Add new information to a known item's description; an archived one is only named."""
        number = next((n for n, other in enumerate(self._page_titles) if other == title), None)
        if number is None:
            if title not in map(_told_apart, (str(each["title"]) for each in self.added.values())):
                item = self._archived()[title]
                self.known.append(f"a follow-up is not new, it was archived as {item}: {wanted.values['title']}")
            return
        told, origin = _meant(wanted.values.get("description")) or "", str(wanted.values.get("origin", ""))
        held = self.changed.get(number, {}).get("description") or self._page.text_of(number, "description")
        description, where = with_finding(held, origin, told)
        if description != held:
            self.changed.setdefault(number, {})["description"] = description
        self.known.append(f"a follow-up is known already, as {self._page.ids[number]}{where}")

    def _title_of(self, item_id: str) -> str | None:
        """Return the title by which an item is known; None if there is no such item."""
        if item_id in self.added:
            return _told_apart(self.added[item_id]["title"])
        number = self._page.numbers.get(item_id)
        return None if number is None else _told_apart(self._page.text_of(number, "title"))

    @cached_property
    def _page_titles(self) -> list[str]:
        return [_told_apart(self._page.text_of(number, "title")) for number in range(len(self._page.items))]

    @cached_property
    def _titles(self) -> set[str]:
        return set(self._page_titles)

    @property
    def raises_last_id(self) -> bool:
        """Tell whether the file must record a new last id: an item that leaves the file takes its number along."""
        left = [number_of(self._page.ids[number]) or 0 for number in self.gone]
        return bool(self.added) or max(left, default=0) > self._page.stated_last_id


def _told_apart(title: str) -> str:
    return same_title(title) or title


def _meant(value: Any) -> Any:
    """Return the value as it reads back: a lone surrogate, which no file can hold, is replaced."""
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if isinstance(value, Mapping):
        return {name: _meant(each) for name, each in value.items()}
    return [_meant(each) for each in value] if isinstance(value, list) else value


# ---- from the plan to cuts


def _head_cuts(page: BacklogPage, plan: _Plan) -> Iterator[Cut]:
    if not plan.raises_last_id:
        return
    eol = _eol(page)
    if stated := page.top.get("last_id"):
        yield _replacement(page.text, stated, str(plan.last_id), page.document["last_id"], eol)
        return
    version, items = page.top.get("schema_version"), page.top.get("items")
    place = version.end if version else items.start if items else 0
    yield (
        place,
        place,
        _appended(page.text[:place], f"last_id: {plan.last_id}{eol}", eol, within=place < len(page.text)),
    )


def _item_cuts(page: BacklogPage, plan: _Plan) -> Iterator[Cut]:
    eol = _eol(page)
    new = [_block(_texts(values, page.indent, eol), page.indent, eol) for values in plan.added.values()]
    if not page.spans:
        yield _new_list(page, plan, new, eol)
        return
    for number, values in plan.changed.items():
        yield (*page.own_lines(number), _edited(page, number, values, eol))
    last = len(page.items) - 1
    last_kept = max((number for number in range(last + 1) if number not in plan.gone), default=-1)
    for number in plan.gone:
        lead, above = _surroundings(page, number)
        end = page.own_lines(number)[1]
        while number < last_kept and (blank := _BLANK.match(page.text, end)):
            end = blank.end()
        yield lead if number < last_kept else above, end, ""
    if new:
        lead, above = _surroundings(page, last)
        apart = eol if last > 0 and above < lead else ""
        place = page.own_lines(last)[1]
        yield place, place, _appended(page.text[:place], apart + apart.join(new), eol)
    elif last_kept < 0:
        yield page.top["items"].colon, page.top["items"].colon, " []"


def _new_list(page: BacklogPage, plan: _Plan, new: list[str], eol: str) -> Cut:
    """Write all items again under `items:`, if they are in brackets, or there are none, or no such line."""
    kept = [number for number in range(len(page.items)) if number not in plan.gone]
    blocks = "".join([*(_restated(page, number, plan.changed.get(number, {}), eol) for number in kept), *new])
    items = page.top.get("items")
    if items is None:
        return len(page.text), len(page.text), _appended(page.text, f"items:{eol}{blocks}", eol)
    value = page.text[items.colon : items.end]
    if page.items and not value.lstrip().startswith("["):
        raise _unreadable(page)
    remark = _remark(value, page.document["items"])
    return items.colon, items.end, f"{'' if blocks else ' []'}{remark}{eol}{blocks}"


def _surroundings(page: BacklogPage, number: int) -> tuple[int, int]:
    """Find where the comments right above an item start, and the blank lines above these."""
    lead = _above(page.text, page.spans[number][0], _COMMENT)
    return lead, _above(page.text, lead, _BLANK)


def _above(text: str, place: int, belongs: re.Pattern[str]) -> int:
    while place and belongs.fullmatch(text, line := text.rfind("\n", 0, place - 1) + 1, place):
        place = line
    return place


def _edited(page: BacklogPage, number: int, values: Mapping[str, Any], eol: str) -> str:
    start, end = page.own_lines(number)
    block, item = page.text[start:end], page.items[number]
    fields = fields_of(block)
    if block[page.indent + 1 :].lstrip(" ").startswith("{"):
        return _appended("\n", _restated(page, number, values, eol), eol, within=block.endswith("\n"))
    if [each.name for each in fields] != list(item):
        raise _unreadable(page, number)
    indent = fields[0].start - (block.rfind("\n", 0, fields[0].start) + 1)
    texts = _texts(values, indent - 2, eol)
    cuts = []
    for field in fields:
        if field.name in values:
            cut = _replacement(block, field, texts[field.name], item[field.name], eol)
            gone = values[field.name] is None and field is not fields[0]
            cuts.append((field.start, field.end, "") if gone else cut)
    new = {name: text for name, text in texts.items() if name not in item and values[name] is not None}
    lines = "".join(f"{' ' * indent}{scalar(name)}: {text}{eol}" for name, text in new.items())
    return _cut(block, cuts) + _appended(block, lines, eol)


def _restated(page: BacklogPage, number: int, values: Mapping[str, Any], eol: str) -> str:
    """Write an item again with one key a line, numbers as they were written; keep its comment."""
    item, own = page.items[number], page.text[slice(*page.own_lines(number))] if page.spans else ""
    texts = {name: written(value, page.written(number, name)) for name, value in item.items()}
    texts |= _texts(values, page.indent, eol)
    kept = {name: text for name, text in texts.items() if name not in values or values[name] is not None}
    first, *others = _block(kept, page.indent, eol).split(eol)
    return eol.join([first + _remark(own[page.indent + 1 :], item), *others])


def _texts(values: Mapping[str, Any], indent: int, eol: str) -> dict[str, str]:
    """Return each value as text, for an item whose dash has this indent."""
    return {
        name: (_literal(value, indent + 4, eol) if name in _IN_BLOCKS else "") or written(value)
        for name, value in values.items()
    }


def _block(texts: Mapping[str, str], indent: int, eol: str) -> str:
    lines = "".join(f"{' ' * (indent + 2)}{scalar(str(name))}: {text}{eol}" for name, text in texts.items())
    return f"{' ' * indent}- {lines[indent + 2 :]}"


def _replacement(text: str, field: Field, new: str, old: object, eol: str) -> Cut:
    """Replace the value of a field; keep its comment."""
    remark = _remark(text[field.colon : field.end], old) if eol not in new else ""
    return field.colon, field.end, f" {new}{remark}{eol if text[: field.end].endswith(chr(10)) else ''}"


def _remark(text: str, value: object) -> str:
    """Return the comment behind a value: the first one without which the text still means the value."""
    for found in re.finditer(r"[ \t]+#", text):
        before = text[: found.start()]
        try:
            if before.lstrip().startswith("*") or (documents_in(before) or [None]) == [value]:
                return text[found.start() :].rstrip()
        except ValueError:
            continue
    return ""


def _appended(before: str, lines: str, eol: str, *, within: bool = False) -> str:
    """Return lines to put after a text; if its last line has no line end, the new last line has none either."""
    if not lines or before.endswith("\n") or not before:
        return lines
    return eol + lines if within else eol + lines.removesuffix(eol)


def _cut(text: str, cuts: Sequence[Cut]) -> str:
    pieces, at = [], 0
    for start, end, new in sorted(cuts, key=lambda cut: cut[:2]):
        pieces += [text[at : max(at, start)], new]
        at = max(at, end)
    return "".join([*pieces, text[at:]])


def _eol(page: BacklogPage) -> str:
    return "\r\n" if "\r\n" in page.text[: page.text.find("\n") + 1] else "\n"


# ---- verify what was written


def _near_is_meant(page: BacklogPage, plan: _Plan, cuts: Sequence[Cut], data: bytes) -> bool:
    """Tell whether the text near the cuts reads as planned, and the rest of the file cannot read differently."""
    if page.may_have_anchors or len(data) > LARGEST or plan.added.keys() & page.numbers.keys():
        return False
    starts, near = [start for start, _ in page.spans], set[int]()
    for start, end, _ in cuts:
        near.update(range(bisect.bisect_left(starts, start) - 2, bisect.bisect_right(starts, end) + 1))
    numbers = sorted(near.intersection(range(len(starts))))
    far = [(a + 1, b - 1) for a, b in pairwise([-1, *numbers, len(starts)]) if b - a > 1]
    gaps = [(page.spans[first][0], page.spans[last][1], "") for first, last in far]
    return bool(gaps) and _is_meant(page, plan, _cut(page.text, [*cuts, *gaps]).encode(), numbers)


def _is_meant(page: BacklogPage, plan: _Plan, data: bytes, numbers: Iterable[int]) -> bool:
    """Tell whether a text of these items reads as planned."""
    try:
        after = opened(data, page.where)
    except TrackerError:
        return False
    kept = [{**page.items[n], **plan.changed.get(n, {})} for n in numbers if n not in plan.gone]
    last_id = {"last_id": plan.last_id} if plan.raises_last_id else {}
    wanted = {**page.document, **last_id, "items": [_filled(item) for item in (*kept, *plan.added.values())]}
    found = {**after.document, "items": [_filled(item) for item in after.items]}
    return found == wanted or repr(found) == repr(wanted)  # what is not a number equals nothing


def _filled(item: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out fields that are null: they mean the same as missing fields."""
    return {name: value for name, value in item.items() if value is not None}


def _unreadable(page: BacklogPage, number: int | None = None) -> TrackerError:
    place = page.place(number) if number is not None else page.where
    hint = "Write each item as `- id: ...` with one `field: value` a line below it."
    return TrackerError(f"{place} is written in a way that cannot be changed safely; nothing was changed.", hint)


# ---- values as text
#
# YAML 1.2 and YAML 1.1 disagree about words like `no`, `12:30`, `0123` and dates, and a person's file may be read by
# either. So a text is left plain only where both take it for a text; everything else stands in double quotes. The
# parsers we know are looser than the standards (`+-0` and `0x-1` are numbers to one), and so is the pattern here.

_INDICATORS = "-?:,[]{}#&*!|>'\"%@`"
_ENDS_A_PLAIN_TEXT = r": | #|:$|^\s|\s$"
_PLAIN_IN_A_LIST = r"\w+(?:[-./ ]\w+)*"
_NEVER_RAW = "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
_MEANS_SOMETHING_ELSE = r"""(?xia)
    ~ | = | << | null | true | false | yes | no | on | off | y | n
    | [-+]* (?: 0b[01_]+ | 0x[-+]?[\da-f_]+ | 0o?[-+]?[0-7_]+ )
    | [-+]* [\d_]* (?: : [0-5]?\d )+ (?: \.[\d_]* )?
    | [-+]* [\d_.]+ (?: e[-+]?\d* )?
    | [-+]* \.(?: inf | nan )
    | \d{4}-\d\d?-\d\d? (?: (?: t | \s+ ) \d.* )?"""


def written(value: Any, source: Any = None, *, listed: bool = False) -> str:
    """Return the value on one line; copy a value that is no text from the source, if there is one."""
    if isinstance(value, str):
        return scalar(value, listed=listed)
    if isinstance(value, list):
        sources = source or [None] * len(value)
        return f"[{', '.join(written(each, s, listed=True) for each, s in zip(value, sources, strict=True))}]"
    if isinstance(value, dict):
        sources = source or {}
        pairs = (
            f"{scalar(str(key), listed=True)}: {written(value[key], sources.get(key), listed=True)}" for key in value
        )
        return f"{{{', '.join(pairs)}}}"
    return "null" if value is None else str(source or value).lower() if isinstance(value, bool) else str(source)


def scalar(text: str, *, listed: bool = False) -> str:
    """Return the text unchanged if that is safe, else quoted; inside brackets fewer texts are safe."""
    unsafe = (
        not text
        or text[0] in _INDICATORS
        or re.search(_ENDS_A_PLAIN_TEXT, text)
        or re.search(_NEVER_RAW, text)
        or re.fullmatch(_MEANS_SOMETHING_ELSE, text)
        or (listed and not re.fullmatch(_PLAIN_IN_A_LIST, text))
    )
    if not unsafe:
        return text
    inner = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return '"' + re.sub(_NEVER_RAW, lambda found: f"\\u{ord(found[0]):04x}", inner) + '"'


def _literal(text: object, indent: int, eol: str) -> str:
    """Return a text of several lines as a block of lines; '' where only quotes can hold it.

    A line end at its very end is such a case: in a file without one, parsers disagree whether it is part of the text.
    """
    lines = text.split("\n") if isinstance(text, str) else [""]
    fits = len(lines) > 1 and not lines[0][:1].isspace() and lines[0] and lines[-1].strip()
    if not fits or any(re.search(_NEVER_RAW, line.replace("\t", "")) or line != line.rstrip() for line in lines):
        return ""
    return "|-" + "".join(eol + (" " * indent + line if line else "") for line in lines)
