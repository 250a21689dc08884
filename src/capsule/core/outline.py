"""Items as an outline for screens: epics, features and tasks one below the other, or a backlog by status.

The outline is flat, a parent before what it holds, each entry with its depth: families may be of any depth, and a cycle
is listed once. Finished items are only shown below unfinished ones.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile

import msgspec

from capsule.core.board import Board
from capsule.core.campaign import counts_below, is_container
from capsule.core.event import CAMPAIGN, RUN
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.item import HELD, Item, Status, as_shown, below
from capsule.core.status import MissionStatus

HEADING = ":"
"""What the key of a heading begins with: no item can be called so."""


class OutlineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the outline: an item, or the heading of a status."""

    key: str
    title: str
    depth: int = 0
    item: Item | None = None
    status: MissionStatus = MissionStatus.READY
    """The status of its running mission, or of a run over all its items; else of the item."""
    phase: str = ""
    done: int = 0
    of: int = 0
    waits_for: tuple[str, ...] = ()
    holds: bool = False
    """It has entries below it."""


def outline(items: Sequence[Item], board: Board, *, by_status: bool) -> list[OutlineEntry]:
    missions = {view.mission: view for view in board.missions}
    entries = _by_status(items, missions) if by_status else _by_family(items, missions)
    running = {run.stream for run in board.runs if run.running}
    if not running:
        return list(entries)
    return [  # an item runs as long as its run does, also between two missions
        msgspec.structs.replace(entry, status=MissionStatus.RUNNING)
        if entry.item and not running.isdisjoint(_streams(entry.key))
        else entry
        for entry in entries
    ]


def run_of(board: Board, item: str) -> RunSummary | None:
    """Find the current run over all its items, or over its phases."""
    streams = _streams(item)
    return next((run for run in board.runs if run.running and run.stream in streams), None)


def _streams(item: str) -> tuple[str, str]:
    return f"{CAMPAIGN}{item}", f"{RUN}run-{item}"


def unfolded(entries: Iterable[OutlineEntry], folded: Container[str]) -> list[OutlineEntry]:
    """Leave out the entries below a folded one."""
    shown: list[OutlineEntry] = []
    hidden_below: int | None = None
    for entry in entries:
        if hidden_below is not None and entry.depth > hidden_below:
            continue
        hidden_below = entry.depth if entry.key in folded else None
        shown.append(entry)
    return shown


def matching(entries: Sequence[OutlineEntry], words: str) -> list[OutlineEntry]:
    """Keep the entries that contain every word, with their parents."""
    wanted = words.lower().split()
    above: list[OutlineEntry] = []
    kept: set[str] = set()
    for entry in entries:
        del above[entry.depth :]
        above.append(entry)
        item = entry.item
        if item is None:
            continue
        known = (item.id, item.title, item.status.value, item.type, item.phase, f"p{item.priority}", entry.status.words)
        text = " ".join((*known, *item.tags)).lower()
        if all(word in text for word in wanted):
            kept.update(each.key for each in takewhile(lambda each: each.key not in kept, reversed(above)))
    return [entry for entry in entries if entry.key in kept]


def _by_status(items: Sequence[Item], missions: Mapping[str, MissionSummary]) -> Iterator[OutlineEntry]:
    known = {item.id: item for item in items}
    for status, listed in groupby(as_shown(items), key=lambda item: item.status):
        entries = [_entry(item, 1, known, missions) for item in listed]
        waiting = [entry for entry in entries if status is Status.READY and entry.waits_for]
        free = [entry for entry in entries if not (status is Status.READY and entry.waits_for)]
        for name, group in ((status.value, free), (MissionStatus.WAITING.value, waiting)):
            if group:
                title = name.replace("_", " ")
                yield OutlineEntry(key=f"{HEADING}{name}", title=title, of=len(group), holds=True)
                yield from group


def _by_family(items: Sequence[Item], missions: Mapping[str, MissionSummary]) -> Iterator[OutlineEntry]:
    known = {item.id: item for item in items}
    top = {name for name, item in known.items() if item.parent not in known}
    ordered = sorted(
        known.values(), key=lambda item: item.id in top and not is_container(item)
    )  # epics and features first
    rooted = {item.id: msgspec.structs.replace(item, parent="") if item.id in top else item for item in ordered}
    in_order = below("", rooted)
    counts = counts_below(in_order)
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


def _entry(item: Item, depth: int, known: Mapping[str, Item], missions: Mapping[str, MissionSummary]) -> OutlineEntry:
    mission = missions.get(item.id)
    waits = tuple(other for other in item.dependencies if other not in known or known[other].status is not Status.DONE)
    waits = () if item.status is Status.DONE else waits
    if mission and not mission.over:
        status = mission.status
    elif item.status is Status.DONE:
        status = MissionStatus.DONE
    elif item.blocked and item.blocked.kind != HELD:
        status = MissionStatus.NEEDS_YOU
    elif item.blocked or waits or item.taken_by:
        status = MissionStatus.WAITING
    else:  # what has begun can be resumed, also without a known mission
        status = MissionStatus.STOPPED if item.status is Status.IN_PROGRESS else MissionStatus.READY
    return OutlineEntry(
        key=item.id,
        title=item.title,
        depth=depth,
        item=item,
        status=status,
        phase=mission.phase if mission else item.phase,
        waits_for=waits,
    )
