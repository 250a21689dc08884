"""Treat an epic or a feature as one unit: its items, its open work, its progress, and containers to close.

Items name their parents and children; everything here is computed from that on each call. A cycle of parents ends where
it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from capsule.core.item import Item, Status
from capsule.core.text import one_line, shortened

LONGEST_ACCOUNT = 8 * 1024
"""The most an agent is told of earlier work, in bytes."""
_LONGEST_LINE = 600


class Progress(msgspec.Struct, frozen=True):
    """Progress of a container: how many work items below it are done, at any depth, of how many."""

    item: Item
    done: int
    of: int


class FinishedWork(msgspec.Struct, frozen=True):
    """The work of a finished mission, in one line, and the merge that brought it."""

    item: Item
    summary: str
    merged: str = ""
    at: str = ""
    """When it was finished."""


def is_container(item: Item) -> bool:
    """Tell whether it is done when what it holds is done: an epic, or anything that holds items."""
    return bool(item.holds) or item.type == "epic"


def ancestors(item: Item, known: Mapping[str, Item]) -> Iterator[Item]:
    """Yield the items that hold it, the nearest first."""
    seen = {item.id}
    above = known.get(item.parent)
    while above and above.id not in seen:
        seen.add(above.id)
        yield above
        above = known.get(above.parent)


def unfinished(known: Mapping[str, Item]) -> dict[str, dict[str, str]]:
    """Return what each waiting item waits for, each with the item that depends on it: this one, or one above it.

    A container's dependency on something inside it only says when the container is done.
    """
    found: dict[str, dict[str, str]] = {}
    parents = set()
    for item in known.values():
        parents.add(item.parent)
        if item.dependencies and (first := {other: item.id for other in item.dependencies if other in known}):
            found[item.id] = first
    handed_down = {
        holder: {other: holder for other in found[holder] if not _holds(holder, other, known)}
        for holder in parents & found.keys()
    }
    for item in known.values() if handed_down else ():
        for holder in ancestors(item, known):
            if more := handed_down.get(holder.id):
                found.setdefault(item.id, {}).update(more)
    return found


def _holds(holder: str, other: str, known: Mapping[str, Item]) -> bool:
    """Tell whether an item is another one, or holds it at any depth."""
    return holder == other or any(above.id == holder for above in ancestors(known[other], known))


def to_do(members: Iterable[Item]) -> list[Item]:
    """Return the items that are not done."""
    return [item for item in members if item.status is not Status.DONE and not is_container(item)]


def progress(root: Item, members: Sequence[Item]) -> list[Progress]:
    """Return the progress of each container, the outermost first."""
    whole = (root, *members)
    counts = counts_below(whole)
    return [Progress(item, *counts[item.id]) for item in whole if is_container(item)]


def counts_below(in_order: Sequence[Item]) -> dict[str, tuple[int, int]]:
    """Count the work items below each container, at any depth: how many are done, and how many there are.

    Parents come before their children.
    """
    counts: dict[str, tuple[int, int]] = {}
    for item in reversed(in_order):
        done, of = counts.get(item.id, (0, 0))
        if is_container(item):
            counts[item.id] = done, of
        else:
            done, of = done + (item.status is Status.DONE), of + 1
        if item.parent:
            above = counts.get(item.parent, (0, 0))
            counts[item.parent] = above[0] + done, above[1] + of
    return counts


def to_close(root: Item, members: Sequence[Item]) -> list[Item]:
    """Return containers that hold only what is done and are not closed themselves, the innermost first."""
    below_it: dict[str, list[str]] = {}
    for item in members:
        below_it.setdefault(item.parent, []).append(item.id)
    done: set[str] = set()
    found = []
    for item in reversed((root, *members)):  # parents come before their children
        held = below_it.get(item.id, [])
        if not done.issuperset(held):
            continue
        if item.status is Status.DONE or held:
            done.add(item.id)
        if item.status is not Status.DONE and held:
            found.append(item)
    return found


def closing_words(item: Item, members: Sequence[Item]) -> str:
    """Return why a container is closed: `all 2 items it holds are done`."""
    held = sum(other.parent == item.id for other in members)
    return "the one item it holds is done" if held == 1 else f"all {held} items it holds are done"


# ---- what was done before


def account(item: Item, deeds: Iterable[FinishedWork], family: Mapping[str, Item], limit: int = LONGEST_ACCOUNT) -> str:
    """List the work done before this item, one line each: the nearest relatives first, the newest last.

    If there is no room for all, the most distant and then the oldest are left out.
    """
    ranked = sorted(deeds, key=lambda deed: (_distance(item, deed.item, family), deed.at))
    lines = {}
    for deed in ranked:
        merge = f" (merged as {deed.merged[:12]})" if deed.merged else ""
        did = one_line(deed.summary) or "no summary was given"
        line = f"- {deed.item.id} {one_line(deed.item.title)}{merge}: {did}"
        lines[deed.item.id] = shortened(line, _LONGEST_LINE)
    nearest_and_newest = sorted(ranked, key=lambda deed: deed.at, reverse=True)
    nearest_and_newest.sort(key=lambda deed: _distance(item, deed.item, family))
    kept, room = set(), limit - len(_left_out(len(ranked)).encode())
    for deed in nearest_and_newest:
        room -= len(lines[deed.item.id].encode()) + 1
        if room < 0:
            break
        kept.add(deed.item.id)
    told = [lines[deed.item.id] for deed in ranked if deed.item.id in kept]
    return "\n".join([*told, *([_left_out(len(ranked) - len(kept))] if len(kept) < len(ranked) else [])])


def _left_out(number: int) -> str:
    return f"({number} more {'was' if number == 1 else 'were'} finished before; left out here)"


def _distance(one: Item, other: Item, family: Mapping[str, Item]) -> int:
    """Return the number of levels up to the first common container."""
    above = {each.id for each in ancestors(other, family)}
    return next((steps for steps, each in enumerate(ancestors(one, family)) if each.id in above), len(family))
