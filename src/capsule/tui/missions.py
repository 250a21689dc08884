"""Missions and runs on a screen, a line each: what is under way, and what has been."""

from __future__ import annotations

from collections.abc import Mapping

from textual.content import Content

from capsule.core.board import Board, MissionView, RunView
from capsule.core.budget import total
from capsule.core.stamps import clock_time
from capsule.core.standpoint import ENDED, Word
from capsule.reports.account_words import agents_used
from capsule.reports.board_lines import run_sentence
from capsule.reports.style import clean
from capsule.reports.table import width_of
from capsule.tui import drawing
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, UNSURE, row, text

RUN = "run:"
"""What the key of a run's line begins with: no mission can be called so."""
_WIDE = 110
_ROOMY = 90
_WIDEST_NAME = 24


def name_width(board: Board) -> int:
    """So wide is the column of names."""
    return min(_WIDEST_NAME, max([width_of(view.mission) for view in board.missions], default=8))


def under_way(board: Board) -> list[str]:
    """Runs that go on, then every mission: those that run first, then those that wait for somebody, then the ended."""
    return [f"{RUN}{run.card.stream}" for run in board.runs if run.running] + [view.mission for view in board.missions]


def history(board: Board) -> list[str]:
    """What has ended, the last first."""
    ended = [(view.last, view.mission) for view in board.missions if view.word in ENDED]
    runs = [(run.card.last, f"{RUN}{run.card.stream}") for run in board.runs if run.card.ended and not run.running]
    return [key for _, key in sorted(ended + runs, reverse=True)]


def mission_line(view: MissionView, width: int, names: int) -> Content:
    attempt = f" #{view.attempt}" if view.attempt > 1 and view.phase else ""
    ended = view.word in ENDED
    stage = "" if ended else f"{view.stage}/{view.stages}"
    seconds = view.seconds if view.phase_seconds is None else view.phase_seconds
    head = row(
        pad(drawing.standing(view.word, view.unverified), 13),
        drawing.cell(view.mission, names, FAINT if ended else STRONG),
        f" {stage:>5} ",
        drawing.cell("" if ended else f"{view.phase}{attempt}", 17, BUSY if view.pid is not None else ""),
        f" {drawing.elapsed(seconds):>10} ",
        text(f"{_cost(view):>8} ", FAINT) if width >= _ROOMY else "",
    )
    room = width - head.cell_length
    if room < 1:
        return head
    now = clean(view.doing[-1]) if view.doing else ""
    if width >= _WIDE and now:
        half = room // 2
        return row(head, drawing.cell(view.title, half), " ", drawing.said(now, room - half - 1, FAINT))
    return row(head, drawing.said(view.title, room, FAINT if ended else ""))


def past_line(view: MissionView, width: int, names: int) -> Content:
    head = row(
        text(f"{moment(view.last)}  ", FAINT),
        pad(drawing.standing(view.word, view.unverified), 13),
        drawing.cell(view.mission, names, STRONG),
        f" {drawing.elapsed(view.seconds):>10} ",
        text(f"{_cost(view):>8} ", FAINT),
    )
    return row(head, drawing.said(view.title, max(0, width - head.cell_length)))


def run_line(run: RunView, width: int, *, past: bool) -> Content:
    ended = run.card.ended
    colour = BUSY if run.running else GOOD if ended and not ended.exit_code else BAD
    when = text(f"{moment(run.card.last)}  ", FAINT) if past else Content("")
    sign = "▶" if run.running else "✓" if ended else "‖"
    head = row(when, text(sign, colour), " ", text(clean(run.name), STRONG), "  ")
    return row(head, drawing.said(run_sentence(run), max(0, width - head.cell_length), "" if run.running else FAINT))


def strip_line(view: MissionView, width: int) -> Content:
    """One that runs, in short."""
    since = drawing.elapsed(view.phase_seconds if view.phase_seconds is not None else view.seconds)
    head = row(text("▶ ", BUSY), text(view.mission, STRONG), " ", drawing.said(view.phase, 18, BUSY), f" {since}  ")
    said = view.doing[-1] if view.doing else view.title
    if view.waiting:
        said = f"waits for its provider until {clock_time(view.waiting.at, view.waiting.seconds)}"
    return row(head, drawing.said(said, max(0, width - head.cell_length), FAINT))


def strip_lines(board: Board, width: int, most: int) -> list[Content]:
    running = [view for view in board.missions if view.pid is not None]
    if len(running) <= most:
        return [strip_line(view, width) for view in running]
    shown = [strip_line(view, width) for view in running[: most - 1]]
    return [*shown, text(f"  and {len(running) - most + 1} more run: 2 shows them all", FAINT)]


def totals_line(board: Board, width: int) -> Content:
    """Of all missions together: how they ended, and what their agents used up."""
    counts: dict[str, int] = {}
    for view in board.missions:
        counts[view.word] = counts.get(view.word, 0) + 1
    kinds = ", ".join(f"{number} {word}" for word, number in counts.items())
    spent = total(view.spent for view in board.missions)
    used = f"; {agents_used(spent)}" if spent.runs else ""
    many = f"{len(board.missions)} mission{'' if len(board.missions) == 1 else 's'}"
    return drawing.said(f"{many}: {kinds}{used}" if kinds else "no missions yet", width, FAINT)


def run_page(run: RunView, width: int) -> list[Content]:
    """All that is known of one run but its name: how far it is, what it did, what it did not, and why."""
    card, ended = run.card, run.card.ended
    lines = [*drawing.paragraph(run_sentence(run), width), Content("")]
    for progress in card.progress.values():
        lines += drawing.paragraph(f"{progress.item}  {progress.done} of {progress.of} done  {progress.title}", width)
    for closed in card.closed:
        lines += drawing.paragraph(f"closed {closed.item}: {closed.reason}", width, GOOD)
    if ended:
        lines += _named("done", dict.fromkeys(ended.done, ""), GOOD, width)
        lines += _named("blocked", ended.blocked, UNSURE, width)
        lines += _named("failed", ended.failed, BAD, width)
        lines += _named("not run", ended.waiting, FAINT, width)
        lines += _named("found on the way", dict.fromkeys(ended.follow_ups, ""), "", width)
    else:
        lines += drawing.paragraph(f"agents were started for: {', '.join(card.missions) or 'nothing yet'}", width)
    return lines


def _named(what: str, items: Mapping[str, str], style: str, width: int) -> list[Content]:
    return [
        line
        for name, why in items.items()
        for line in drawing.paragraph(
            f"{name}{f': {why}' if why else ''}", width, style, first=text(f"{what}  ", FAINT)
        )
    ]


def moment(stamp: str) -> str:
    """`03-01 10:00` of an RFC 3339 stamp."""
    return f"{stamp[5:10]} {stamp[11:16]}" if len(stamp) >= 16 else stamp.ljust(11)


def pad(words: Content, width: int) -> Content:
    return row(words, " " * max(0, width - words.cell_length))


def _cost(view: MissionView) -> str:
    spent = view.spent
    if not spent.runs:
        return ""
    return f"{'' if spent.priced == spent.runs else '≥'}${spent.usd:.2f}" if spent.priced else "$?"


def find_run(board: Board, key: str) -> RunView | None:
    return next((run for run in board.runs if f"{RUN}{run.card.stream}" == key), None)


def words_of(board: Board) -> dict[str, tuple[str, str]]:
    """By mission or run, what an outline shows of it: drawn anew when this changes, and not before."""
    runs = {f"{RUN}{run.card.stream}": (Word.RUNNING.value, "") for run in board.runs if run.running}
    return runs | {view.mission: (view.word, view.phase) for view in board.missions}
