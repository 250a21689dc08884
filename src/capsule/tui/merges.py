"""Lines of the merge queues: by branch the one being merged, waiting ones, batches, and the last results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from textual.content import Content

from capsule.core.board import Board
from capsule.core.merge_train import Car, MergeSummary, WaitingMission
from capsule.core.merges import MergeRecord, MergeResult, Passage, merge_records
from capsule.core.stamps import clock_time, seconds_between
from capsule.core.status import MissionStatus
from capsule.reports.words import car_words, passage_words, queue_words
from capsule.tui import drawing
from capsule.tui.drawing import BUSY, FAINT, STRONG, row, text

KEY = "merge:"
"""The prefix of the key of a line: no mission can be called so. It ends with the mission, if there is one."""
_MOST_RESULTS = 50
_STANDING = 20
_TIME = 11


class MergeLine(NamedTuple):
    """A line, and its words for a filter; none for a line that is always shown."""

    key: str
    draw: Callable[[int], Content]
    words: str = ""


def mission_of(key: str) -> str:
    """Return the mission that a line of a merge queue is about; '' for a heading; any other key as it is."""
    return key.rpartition(":")[2] if key.startswith(KEY) else key


def merge_lines(board: Board, names: int) -> list[MergeLine]:
    """`names` is how wide the column of missions is."""
    queues = {queue.branch: queue for queue in board.merges}
    records = {record.branch: record for record in merge_records([q.train for q in board.merges], board.missions)}
    shown = [
        branch
        for branch in sorted({*queues, *records})
        if branch in records or queues[branch].at_it or queues[branch].places
    ]
    return [line for branch in shown for line in _branch(board, branch, queues.get(branch), records.get(branch), names)]


def _branch(
    board: Board, branch: str, queue: MergeSummary | None, record: MergeRecord | None, names: int
) -> Iterator[MergeLine]:
    key = f"{KEY}{branch}"
    heading = row(drawing.said(branch, 40, STRONG), "  ", text(queue_words(queue), FAINT))
    yield MergeLine(f"{key}:", lambda _width: heading)
    if queue and queue.at_it:
        yield _merging(board, queue, f"{key}:now:{queue.at_it}", names)
    for place in queue.places if queue else ():
        yield _waiting(board, place, f"{key}:place:{place.mission}", names)
    for number, car in enumerate(queue.cars if queue else ()):
        yield _tested(car, f"{key}:car:{number}:")
    for passage in reversed(record.passages[-_MOST_RESULTS:] if record else ()):
        yield _result(passage, f"{key}:{passage.ended}:{passage.mission}", names)


def _merging(board: Board, queue: MergeSummary, key: str, names: int) -> MergeLine:
    view = board.mission(queue.at_it)
    title, since = view.title if view else "", queue.turn_began or (view.begun.at if view and view.begun else "")
    took = drawing.elapsed(seconds_between(since, board.at)) if since else ""
    parts = [_sign(MissionStatus.RUNNING), _name(queue.at_it, names), drawing.cell("being merged", _STANDING, BUSY)]
    head = row(*parts, drawing.cell(took, _TIME))
    return MergeLine(key, lambda width: _with(head, title, width), f"{queue.at_it} {title} being merged")


def _waiting(board: Board, place: WaitingMission, key: str, names: int) -> MergeLine:
    view = board.mission(place.mission)
    title, since = view.title if view else "", f"since {clock_time(place.came)}  "
    parts = [_sign(MissionStatus.WAITING), _name(place.mission, names), drawing.cell(place.words, _STANDING)]
    head = row(*parts, drawing.cell(drawing.elapsed(seconds_between(place.came, board.at)), _TIME), text(since, FAINT))
    return MergeLine(key, lambda width: _with(head, title, width), f"{place.mission} {title} waiting")


def _tested(car: Car, key: str) -> MergeLine:
    sign, words = _sign(MissionStatus.DONE if car.green else MissionStatus.RUNNING), car_words(car)
    return MergeLine(key, lambda width: _with(sign, words, width), words)


def _result(passage: Passage, key: str, names: int) -> MergeLine:
    style = drawing.STYLES[passage.result.tone]
    done = passage.result is MergeResult.MERGED
    head = row(
        *("  ", text(passage.result.sign, style), " ", _name(passage.mission, names, FAINT if done else STRONG)),
        *(drawing.cell(passage.result.value, _STANDING, style), text(f"{clock_time(passage.ended)} ", FAINT)),
    )
    words = passage_words(passage)
    return MergeLine(
        key, lambda width: _with(head, words, width, FAINT), f"{passage.mission} {passage.result.value} {words}"
    )


def _sign(status: MissionStatus) -> Content:
    return row("  ", drawing.status_sign(status), " ")


def _name(mission: str, names: int, style: str = STRONG) -> Content:
    return row(drawing.cell(mission, names, style), " ")


def _with(head: Content, words: str, width: int, style: str = "") -> Content:
    return row(head, drawing.said(words, max(0, width - head.cell_length), style))


def matching(lines: Sequence[MergeLine], words: Sequence[str]) -> list[MergeLine]:
    """Keep the lines in which every word occurs, and headings above them."""
    found = [line for line in lines if not line.words or all(word in line.words.lower() for word in words)]
    kept = {line.key.split(":")[1] for line in found if line.words}
    return [line for line in found if line.key.split(":")[1] in kept]
