"""Items as an outline for screens: epics, features and tasks one below the other, or a backlog by status.

The outline is flat, a parent before what it holds, each entry with its depth: families may be as deep as somebody makes
them, and one that is drawn in a circle is told once. What is done is shown within what is not, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile

import msgspec

from capsule.core.board import Board, MissionView, RunView
from capsule.core.campaign import is_container
from capsule.core.event import CAMPAIGN, RUN
from capsule.core.item import Item, Status, as_shown, below
from capsule.core.standpoint import Word

HEADING = ":"
"""What the key of a heading begins with: no item can be called so."""


class OutlineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the outline: an item, or the heading of a status."""

    key: str
    title: str
    depth: int = 0
    item: Item | None = None
    word: str = ""
    """How its mission stands, where it has one; `running` where a run goes through all that it holds."""
    phase: str = ""
    """Where that is."""
    done: int = 0
    of: int = 0
    waits_for: tuple[str, ...] = ()
    holds: bool = False
    """Something stands below it."""


def outline(items: Sequence[Item], board: Board, *, by_status: bool) -> list[OutlineEntry]:
    missions = {view.mission: view for view in board.missions}
    entries = _by_status(items, missions) if by_status else _by_family(items, missions)
    gone_through = {run.card.stream for run in board.runs if run.running}
    return [_with_its_run(entry, gone_through) for entry in entries] if gone_through else list(entries)


def run_of(board: Board, item: str) -> RunView | None:
    """Whoever goes through all that it holds, or through its phases, right now."""
    streams = _streams(item)
    return next((run for run in board.runs if run.running and run.card.stream in streams), None)


def _streams(item: str) -> tuple[str, str]:
    return f"{CAMPAIGN}{item}", f"{RUN}run-{item}"


def _with_its_run(entry: OutlineEntry, gone_through: Container[str]) -> OutlineEntry:
    """It runs as long as its run does, also between two missions."""
    runs = entry.item is not None and any(stream in gone_through for stream in _streams(entry.key))
    return msgspec.structs.replace(entry, word=Word.RUNNING) if runs else entry


def unfolded(entries: Iterable[OutlineEntry], folded: Container[str]) -> list[OutlineEntry]:
    """Without what stands below an entry that is folded."""
    shown: list[OutlineEntry] = []
    hidden_below: int | None = None
    for entry in entries:
        if hidden_below is not None and entry.depth > hidden_below:
            continue
        hidden_below = entry.depth if entry.key in folded else None
        shown.append(entry)
    return shown


def matching(entries: Sequence[OutlineEntry], words: str) -> list[OutlineEntry]:
    """Those in which every word occurs, each below whatever holds it."""
    wanted = words.lower().split()
    above: list[OutlineEntry] = []
    kept: set[str] = set()
    for entry in entries:
        del above[entry.depth :]
        above.append(entry)
        text = _text(entry)
        if entry.item and all(word in text for word in wanted):
            kept.update(each.key for each in takewhile(lambda each: each.key not in kept, reversed(above)))
    return [entry for entry in entries if entry.key in kept]


def _text(entry: OutlineEntry) -> str:
    item = entry.item
    if item is None:
        return ""
    known = (item.id, item.title, item.status.value, item.type, item.phase, f"p{item.priority}", entry.word, *item.tags)
    return " ".join(known).lower()


def _by_status(items: Sequence[Item], missions: Mapping[str, MissionView]) -> Iterator[OutlineEntry]:
    known = {item.id: item for item in items}
    counts: dict[Status, int] = {}
    for item in items:
        counts[item.status] = counts.get(item.status, 0) + 1
    heading = None
    for item in as_shown(items):
        if item.status is not heading:
            heading = item.status
            words = heading.value.replace("_", " ")
            yield OutlineEntry(key=f"{HEADING}{heading.value}", title=words, of=counts[heading], holds=True)
        yield _entry(item, 1, known, missions)


def _by_family(items: Sequence[Item], missions: Mapping[str, MissionView]) -> Iterator[OutlineEntry]:
    known = {item.id: item for item in items}
    in_order = below("", _rooted(known))
    counts = _progress(in_order)
    depths: dict[str, int] = {}
    shown = []
    for item in in_order:
        if item.status is Status.DONE and item.parent not in depths:
            continue
        depths[item.id] = depths.get(item.parent, -1) + 1
        shown.append(item)
    holding = {item.parent for item in shown}
    for item in shown:
        done, of = counts.get(item.id, (0, 0)) if is_container(item) else (0, 0)
        entry = _entry(item, depths[item.id], known, missions)
        yield msgspec.structs.replace(entry, done=done, of=of, holds=item.id in holding)


def _rooted(known: Mapping[str, Item]) -> dict[str, Item]:
    """Whoever belongs to nobody who is known stands at the top: what holds something first, then the rest."""
    at_the_top = {name: item.parent not in known for name, item in known.items()}
    ordered = sorted(known.values(), key=lambda item: at_the_top[item.id] and not is_container(item))
    return {item.id: msgspec.structs.replace(item, parent="") if at_the_top[item.id] else item for item in ordered}


def _entry(item: Item, depth: int, known: Mapping[str, Item], missions: Mapping[str, MissionView]) -> OutlineEntry:
    mission = missions.get(item.id)
    waits = (other for other in item.dependencies if other not in known or known[other].status is not Status.DONE)
    return OutlineEntry(
        key=item.id,
        title=item.title,
        depth=depth,
        item=item,
        word=mission.word if mission else "",
        phase=mission.phase if mission else item.phase,
        waits_for=() if item.status is Status.DONE else tuple(waits),
    )


def _progress(in_order: Sequence[Item]) -> dict[str, tuple[int, int]]:
    """Of what is worked on below each, at any depth: how much is done, and how much there is."""
    counts: dict[str, tuple[int, int]] = {}
    for item in reversed(in_order):  # a parent stands before what it holds
        done, of = counts.get(item.id, (0, 0))
        if not is_container(item):
            done, of = done + (item.status is Status.DONE), of + 1
        counts[item.id] = done, of
        above = counts.get(item.parent, (0, 0))
        counts[item.parent] = above[0] + done, above[1] + of
    return counts
