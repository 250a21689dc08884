"""Items as a table: a backlog as a list, other trackers as a tree; and the filters of --only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from capsule.core.campaign import counts_below, is_container
from capsule.core.errors import UsageError
from capsule.core.item import Item, Status
from capsule.core.status import MissionStatus
from capsule.core.text import did_you_mean
from capsule.reports.style import Style, clean, wrapped
from capsule.reports.table import aligned, widest

if TYPE_CHECKING:
    from capsule.adapters import Tracker

NARROWEST_TITLE = 12
GAP = "  "
ADD = 'capsule add "Describe the change in one line"'
STEP = "  "
DEEPEST = 8
"""The deepest indentation: deeper families are a mistake, or a cycle."""
LIST = ("ID", "Status", "Phase", "Title", "Impact", "Size", "Risk")
TREE = ("ID", "Status", "Pri", "Done", "Title")
DISPENSABLE = ("Risk", "Size", "Impact", "Phase", "Done", "Pri", "Status")
"""Columns that a narrow terminal leaves out, in this order."""
COLOURS = {Status.IN_PROGRESS: "green", Status.BLOCKED: "yellow", Status.NEW: "dim"}
FIELDS = ("status", "phase", "type", "tag", "priority", "parent", "size", "complexity", "risk", "impact")


class ItemRow(NamedTuple):
    """An item as it is shown: its cells, and an optional line of explanation."""

    item: Item
    cells: tuple[str, ...]
    why: str = ""


def nothing_yet(tracker: Tracker) -> str:
    traits = tracker.traits
    return f"{traits.empty.format(tracker.name)}: {ADD}{traits.own_command('add', '', '', ', or ')}"


# ---- which items


def conditions(text: str) -> dict[str, set[str]]:
    """Parse `status=new,blocked,tag=ui`: a value without a name belongs to the name before it."""
    found: dict[str, set[str]] = {}
    name = ""
    for part in filter(None, (part.strip() for part in text.split(","))):
        before, equals, value = part.rpartition("=")
        name = before.strip().lower() if equals else name
        value = value.strip() if name == "tag" else value.strip().lower()
        takes = f"It takes {', '.join(FIELDS)}, such as --only status=new."
        _check_known(name, FIELDS, f"--only has no field for {part!a}.", takes)
        if name == "status":
            known = [status.value for status in Status]
            _check_known(value, known, f"There is no status {value!a}.", ", ".join(known))
        found.setdefault(name, set()).add(value)
    return found


def _check_known(word: str, known: Sequence[str], message: str, hint: str) -> None:
    if word not in known:
        raise UsageError(message, did_you_mean(word, known, hint))


def matches(item: Item, wanted: Mapping[str, set[str]]) -> bool:
    return all(values & _values(item, name) for name, values in wanted.items())


def has_words(item: Item, words: Sequence[str]) -> bool:
    """Tell whether every word occurs in some field of the item."""
    known = (item.id, item.title, item.status.value, item.phase, item.type, *item.tags, item.description)
    text = " ".join(known).lower()
    return all(word.lower() in text for word in words)


def _values(item: Item, name: str) -> set[str]:
    if name == "tag":
        return set(item.tags)
    if name == "priority":
        return {str(item.priority), f"p{item.priority}"}
    held = item if name in ("status", "phase", "type", "parent") else item.assessment
    return {str(getattr(held, name)).lower()}


# ---- rows


def waits_for(item: Item, known: Mapping[str, Item]) -> list[str]:
    """List the open dependencies; one that is not listed is done, or never existed."""
    return [other for other in item.dependencies if other in known and known[other].status is not Status.DONE]


def _why(item: Item, waits: Sequence[str]) -> str:
    if item.blocked:
        return ": ".join(filter(None, (item.blocked.kind, clean(item.blocked.reason))))
    waiting = f"waiting for {', '.join(waits)}" if waits else ""
    asks = item.will_ask if item.unmet else ""
    return clean(f"{waiting}; {asks}" if waiting and asks else waiting or asks)


def listed(items: Sequence[Item], known: Mapping[str, Item]) -> list[ItemRow]:
    return [
        ItemRow(
            item,
            (
                *(item.id, item.status.value, clean(item.phase) or "-", clean(item.title)),
                *(level or "-" for level in (item.assessment.impact, item.assessment.size, item.assessment.risk)),
            ),
            _why(item, waits_for(item, known)),
        )
        for item in items
    ]


def as_tree(items: Sequence[Item], known: Mapping[str, Item]) -> list[ItemRow]:
    """List items in the order of the tracker, each below its parent, and indented by its depth."""
    shown, counts = {item.id for item in items}, counts_below([*known.values()])
    depths: dict[str, int] = {}
    families: list[ItemRow] = []
    alone: list[ItemRow] = []
    waiting = MissionStatus.WAITING.words
    for item in known.values():
        if item.id not in shown:
            continue
        depth = depths[item.id] = depths.get(item.parent, -1) + 1
        holds = is_container(item)
        done, of = counts[item.id] if holds else (0, 0)
        waits = [other for other in item.dependencies if other not in known or known[other].status is not Status.DONE]
        cells = (
            STEP * min(depth, DEEPEST) + item.id if depth else item.id,
            waiting if waits and item.status is Status.READY else item.status,
            f"P{item.priority}",
            f"{done}/{of}" if of else "-",
            clean(item.title),
        )
        row = ItemRow(item, cells, clean(item.blocked.reason) if item.blocked else _why(item, waits))
        (families if holds or item.parent in known else alone).append(row)
    return [*families, *alone]


def table_lines(headings: Sequence[str], rows: Sequence[ItemRow], style: Style, width: int) -> Iterator[str]:
    columns = [*zip(headings, *(row.cells for row in rows), strict=True)]
    widths = [*map(widest, columns)]
    shown = _that_fit(headings, widths, width)
    columns, widths = [columns[each] for each in shown], [widths[each] for each in shown]
    title = [heading for heading, *_ in columns].index("Title")
    room = width - sum(widths) + widths[title] - len(GAP) * (len(widths) - 1)
    widths[title] = min(widths[title], max(room, NARROWEST_TITLE))
    indent = " " * sum(cell + len(GAP) for cell in widths[:title])
    head, *lines = map(str.rstrip, map(GAP.join, zip(*map(aligned, columns, widths), strict=True)))
    yield style.paint("bold", head)
    below = indent if width - len(indent) >= NARROWEST_TITLE else STEP
    for (item, _, why), line in zip(rows, lines, strict=True):
        yield style.paint(COLOURS[item.status], line) if item.status in COLOURS else line
        if why:
            yield from wrapped(why, width, below, "")


def _that_fit(headings: Sequence[str], widths: Sequence[int], width: int) -> list[int]:
    """Return the number of columns that fit; long ids leave less room."""
    shown = list(range(len(headings)))
    for name in DISPENSABLE:
        taken = sum(widths[each] + len(GAP) for each in shown if headings[each] != "Title")
        if taken + NARROWEST_TITLE <= width:
            break
        shown = [each for each in shown if headings[each] != name]
    return shown


# ---- for programs


def as_json(items: Iterable[Item]) -> str:
    return msgspec.json.format(msgspec.json.encode([_plain(item) for item in items]), indent=2).decode()


def _plain(value: Any) -> Any:
    """Turn structs into dicts with all their fields, also the empty ones."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__struct_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
    return value
