"""Lines of the dashboard: items, missions and runs, and details of the selected one."""

from __future__ import annotations

from collections.abc import Iterator

from textual.content import Content

from capsule.actions import Target, available
from capsule.core.board import Board
from capsule.core.budget import total
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.item import Item, Status, status_and_phase
from capsule.core.outline import OutlineEntry
from capsule.core.stamps import clock_time
from capsule.core.status import MissionStatus
from capsule.core.text import count
from capsule.reports.board_lines import overview
from capsule.reports.style import clean
from capsule.reports.table import fit, width_of
from capsule.reports.words import agents_used, run_sentence
from capsule.tui import drawing
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, UNSURE, row, text
from capsule.tui.mission import phase_lines

_DEEPEST = 8
"""The deepest indentation."""
_NAMED = (MissionStatus.WAITING, MissionStatus.NEEDS_YOU, MissionStatus.FAILED, MissionStatus.STOPPED)
"""Statuses that a line names next to their sign."""
_LONGEST_TEXT = 4000


def entry_line(entry: OutlineEntry, width: int, *, folded: bool) -> Content:
    fold = ("▸ " if folded else "▾ ") if entry.holds else "  "
    indent = "  " * min(entry.depth, _DEEPEST)
    if entry.item is None:
        return row(indent, fold, text(entry.title, STRONG), text(f" {entry.of}", FAINT))
    progress = text(f" {entry.done}/{entry.of}", GOOD if entry.done == entry.of else FAINT) if entry.of else Content("")
    about = Content("")
    if entry.status is MissionStatus.RUNNING and entry.phase:
        about = row(" ", drawing.said(entry.phase, 16, BUSY))
    elif entry.status in _NAMED:
        about = text(f" {entry.status.words}", drawing.STYLES[entry.status.tone])
    sign, name = drawing.status_sign(entry.status), text(entry.key, STRONG)
    head = row(indent, fold, sign, " ", name, progress, about, "  ")
    faint = FAINT if entry.item.status is Status.DONE else ""
    return row(head, drawing.said(entry.title, max(0, width - head.cell_length), faint))


def about_item(entry: OutlineEntry, view: MissionSummary | None, target: Target, width: int) -> list[Content]:
    """Draw the details of the item under the cursor, and its actions."""
    if entry.item is None:
        return [text(f"{count(entry.of, 'item')} {entry.title}", FAINT)]
    lines = drawing.paragraph(f"{entry.key}  {entry.title}", width, STRONG)
    lines += [*_facts(entry, entry.item, width), Content("")]
    if view:
        lines += [row(drawing.status_of(view), f"  {drawing.elapsed(view.busy_seconds)}")]
        lines += drawing.paragraph(view.sentence, width)
        lines += drawing.proven(view, width)
        lines += phase_lines(view, width, folded=False)
    lines += [*doable(target, width), Content("")]
    if entry.item.description:
        lines += [*_wrapped(entry.item.description, width), Content("")]
    if entry.item.acceptance:
        lines += [text("Done when", STRONG), *_wrapped(entry.item.acceptance, width)]
    return lines


def doable(target: Target, width: int) -> list[Content]:
    """Return the keys with an action for this item."""
    lines: list[str] = []
    for verb in available(target):
        words = f"{verb.key} {verb.name}"
        if verb.of_item and lines and len(lines[-1]) + 2 + len(words) <= width:
            lines[-1] += f"  {words}"
        elif verb.of_item:
            lines.append(words)
    return [text(fit(line, width), FAINT) for line in lines]


def _facts(entry: OutlineEntry, item: Item, width: int) -> Iterator[Content]:
    levels, blocked = item.assessment, item.blocked
    known = {"size": levels.size, "complexity": levels.complexity, "risk": levels.risk, "impact": levels.impact}
    kind = f" ({blocked.kind})" if blocked and blocked.kind else ""
    waits = entry.waits_for and item.status is Status.READY
    stands = MissionStatus.WAITING.words if waits else status_and_phase(item).replace("_", " ")
    for words, style in (
        (", ".join(filter(None, (item.type, stands, f"P{item.priority}"))), FAINT),
        (f"{entry.done} of {entry.of} done" if entry.of else "", ""),
        (", ".join(f"{name} {word}" for name, word in known.items() if word), FAINT),
        (f"tags: {', '.join(item.tags)}" if item.tags else "", FAINT),
        (f"taken by {item.taken_by}" if item.taken_by else "", UNSURE),
        (f"waiting for {', '.join(entry.waits_for)}" if entry.waits_for else "", UNSURE),
        (item.will_ask, UNSURE),
        (f"blocked{kind}: {blocked.reason}" if blocked else "", UNSURE),
    ):
        if words:
            yield from drawing.paragraph(words, width, style)


def _wrapped(told: str, width: int) -> Iterator[Content]:
    for line in told[:_LONGEST_TEXT].splitlines():
        yield from drawing.paragraph(line, width)
    if len(told) > _LONGEST_TEXT:
        yield text("…", FAINT)


RUN = "run:"
"""The prefix of the key of a run's line: no mission can be called so."""
_WIDE = 110
_ROOMY = 90
_WIDEST_NAME = 24


def name_width(board: Board) -> int:
    """The width of the column of names."""
    return min(_WIDEST_NAME, max([width_of(view.mission) for view in board.missions], default=8))


def under_way(board: Board) -> list[str]:
    """Draw runs under way, then missions: those that run, those that need a person, those that have ended."""
    return [f"{RUN}{run.stream}" for run in board.runs if run.running] + [view.mission for view in board.missions]


def history(board: Board) -> list[str]:
    """List missions and runs that ended, the last first."""
    ended = [(view.last, view.mission) for view in board.missions if view.over]
    runs = [(run.last, f"{RUN}{run.stream}") for run in board.runs if run.ended and not run.running]
    return [key for _, key in sorted(ended + runs, reverse=True)]


def mission_line(view: MissionSummary, width: int, names: int) -> Content:
    attempt = f" #{view.attempt}" if view.attempt > 1 and view.phase else ""
    ended = view.over
    stage = "" if ended else f"{view.stage}/{view.stages}"
    seconds = view.busy_seconds if view.phase_seconds is None else view.phase_seconds
    head = row(
        pad(drawing.status_of(view), 13),
        drawing.cell(view.mission, names, FAINT if ended else STRONG),
        f" {stage:>5} ",
        drawing.cell("" if ended else f"{view.phase}{attempt}", 17, BUSY if view.pid is not None else ""),
        f" {drawing.elapsed(seconds):>10} ",
        text(f"{cost(view):>8} ", FAINT) if width >= _ROOMY else "",
    )
    room = width - head.cell_length
    if room < 1:
        return head
    now = clean(view.doing[-1]) if view.doing else ""
    if width >= _WIDE and now:
        half = room // 2
        return row(head, drawing.cell(view.title, half), " ", drawing.said(now, room - half - 1, FAINT))
    return row(head, drawing.said(view.title, room, FAINT if ended else ""))


def past_line(view: MissionSummary, width: int, names: int) -> Content:
    head = row(
        text(f"{moment(view.last)}  ", FAINT),
        pad(drawing.status_of(view), 13),
        drawing.cell(view.mission, names, STRONG),
        f" {drawing.elapsed(view.busy_seconds):>10} ",
        text(f"{cost(view):>8} ", FAINT),
    )
    return row(head, drawing.said(view.title, max(0, width - head.cell_length)))


def run_line(run: RunSummary, width: int, *, past: bool) -> Content:
    when = text(f"{moment(run.last)}  ", FAINT) if past else Content("")
    head = row(when, drawing.status_sign(run.status), " ", text(clean(run.name), STRONG), "  ")
    return row(head, drawing.said(run_sentence(run), max(0, width - head.cell_length), "" if run.running else FAINT))


def strip_lines(board: Board, width: int, most: int) -> list[Content]:
    """Draw running missions, a short line each."""
    shown = []
    for view in board.running if len(board.running) <= most else board.running[: most - 1]:
        since = drawing.elapsed(view.phase_seconds if view.phase_seconds is not None else view.busy_seconds)
        head = row(
            drawing.status_sign(view.status),
            " ",
            text(view.mission, STRONG),
            " ",
            drawing.said(view.phase, 18, BUSY),
            f" {since}  ",
        )
        said = view.doing[-1] if view.doing else view.title
        if view.waiting:
            said = f"waiting for {view.waiting.waits_for} until {clock_time(view.waiting.at, view.waiting.seconds)}"
        shown.append(row(head, drawing.said(said, max(0, width - head.cell_length), FAINT)))
    left = len(board.running) - len(shown)
    return [*shown, text(f"  and {left} more running: press 2", FAINT)] if left else shown


def totals_line(board: Board, width: int) -> Content:
    """Sum up all missions: their statuses, and what their agents used."""
    spent = total(view.spent for view in board.missions)
    used = f"; {agents_used(spent)}" if spent.runs else ""
    many = f"{count(len(board.missions), 'mission')}: " if board.missions else ""
    return drawing.said(f"{many}{overview(board)}{used}", width, FAINT)


def run_page(run: RunSummary, width: int) -> list[Content]:
    """Draw the details of one run: its progress, its results, and skipped items with reasons."""
    ended = run.ended
    lines = [*drawing.paragraph(run_sentence(run), width), Content("")]
    for progress in run.progress.values():
        named = f"{progress.item}  {progress.done} of {progress.of} done  {progress.title}"
        lines += drawing.paragraph(named.strip(), width)
    for closed in run.closed:
        lines += drawing.paragraph(f"closed {closed.item}: {closed.reason}", width, GOOD)
    if not ended:
        return lines + drawing.paragraph(f"items: {', '.join(run.missions) or 'none yet'}", width)
    for what, items, style in (
        ("done", dict.fromkeys(ended.done, ""), GOOD),
        ("needs you", ended.blocked, UNSURE),
        ("failed", ended.failed, BAD),
        ("not started", ended.waiting, FAINT),
        ("follow-ups", dict.fromkeys(ended.follow_ups, ""), ""),
    ):
        for name, why in items.items():
            named = f"{name}{f': {why}' if why else ''}"
            lines += drawing.paragraph(named, width, style, first=text(f"{what}  ", FAINT))
    return lines


def moment(stamp: str) -> str:
    """`03-01 10:00` of an RFC 3339 stamp."""
    return f"{stamp[5:10]} {stamp[11:16]}" if len(stamp) >= 16 else stamp.ljust(11)


def pad(words: Content, width: int) -> Content:
    return row(words, " " * max(0, width - words.cell_length))


def cost(view: MissionSummary) -> str:
    spent = view.spent_with_parts
    if not spent.runs:
        return ""
    return f"{'' if spent.priced == spent.runs else '≥'}${spent.usd:.2f}" if spent.priced else "$?"


def find_run(board: Board, key: str) -> RunSummary | None:
    return next((run for run in board.runs if f"{RUN}{run.stream}" == key), None)


def words_of(board: Board) -> dict[str, tuple[str, str]]:
    """Return, by mission or run, its words in an outline, which is drawn again when they change."""
    runs = {f"{RUN}{run.stream}": (MissionStatus.RUNNING.value, "") for run in board.runs if run.running}
    return runs | {view.mission: (view.status.value, view.phase) for view in board.missions}
