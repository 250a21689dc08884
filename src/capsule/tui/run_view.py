"""`capsule run` on a terminal: a view of the run under way.

The run is another process. A thread polls it a few times a second and posts the results; only the screen's own thread
draws. So slow work there does not block the screen, and leaving only ends this process.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from msgspec.structs import replace as replace_struct
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.history import Diff, MissionSummary, RunSummary
from capsule.core.progress import progress_of
from capsule.core.schedule import QueuePosition
from capsule.core.status import MissionStatus
from capsule.core.text import count
from capsule.reports.table import width_of
from capsule.reports.words import progress_words
from capsule.tui import drawing
from capsule.tui.app import PULSE, BackgroundTasks, CapsuleApp, Poller
from capsule.tui.drawing import BUSY, FAINT, STRONG, UNSURE, row, text
from capsule.tui.lines import cost
from capsule.tui.mission import TURNS, WIDE, mission_lines
from capsule.tui.rows import Page

_MOST_PROGRESS = 4
_FEWEST_JOBS = 4
_WIDEST_NAME = 20
_LIST = 34
"""The width of the list of items."""
_LIST_EVERY = 10.0
_PATIENCE = 20
"""A tracker is queried for at most this part of the time."""
_ENDED = (MissionStatus.NEEDS_YOU, MissionStatus.FAILED, MissionStatus.STOPPED, MissionStatus.DONE)
"""The statuses of ended missions in the list of items, in this order."""
NO_DIFF = Diff()
_TURN = 0.25
_HELP = """\
q, Ctrl-C   stop and keep progress; press twice to kill
d           close this view; the run keeps running
↑ ↓  j k    scroll; also Page Up, Page Down, Home, End and the wheel
Tab         next mission; Shift-Tab previous; f follows the running one
e           all attempts with their evidence, or only the last verdict
l           the last lines of the agent's output
?           show or hide this help

✓ done   ▶ running   ↺ sent back   ■ needs you   ✗ failed   ‖ stopped   – skipped   · to do
Attempts:  █ passed   ▄ did not   ░ under way or interrupted

A claim is unverified. The verdict is what Capsule verified:
✓ the claim holds   ✗ it does not   ? it could not be checked"""


@dataclass(frozen=True)
class Scope:
    """The process that is watched, and its mission or run by name."""

    pid: int
    mission: str = ""
    run: str = ""
    title: str = ""
    """Its name until the journal has one."""


@dataclass(frozen=True)
class RunControls:
    """Functions that the view is given. All but `stop` are called from a thread of their own."""

    look: Callable[[], Board]
    over: Callable[[], bool]
    stop: Callable[[], str]
    """Asks it to stop; returns '' or why that is impossible from here."""
    tail: Callable[[str], Sequence[str]]
    """The last lines that the agent of a mission printed."""
    to_come: Callable[[str], Sequence[QueuePosition]] = lambda _run: ()
    """The items that a run will take up, in order."""
    diff: Callable[[MissionSummary], Diff] = lambda _view: NO_DIFF
    """The size of a mission's changes so far."""


def missions_of(board: Board, scope: Scope) -> tuple[MissionSummary, ...]:
    """Return the missions of the process, in the order in which they began, children after parents."""
    run = run_of(board, scope)
    named = {scope.mission, *(run.missions if run else ())} - {""}
    held = {view.mission for view in board.missions if scope.pid in (view.pid, view.started_by) and scope.pid}
    wanted = named | held
    while more := {view.mission for view in board.missions if view.parent in wanted} - wanted:
        wanted |= more
    return tuple(
        sorted(
            (view for view in board.missions if view.mission in wanted),
            key=lambda view: (view.began, len(view.mission), view.mission),
        )
    )


def run_of(board: Board, scope: Scope) -> RunSummary | None:
    """Return the run of the queue, the campaign or the backlog item; none that ended earlier."""
    watched = board.mission(scope.mission)
    pids = {scope.pid, watched.started_by if watched else 0} - {0}
    return next((run for run in board.runs if run.stream == scope.run or run.pid in pids), None)


def followed(missions: Sequence[MissionSummary]) -> str:
    """Return the running mission; else the last one that ran."""
    running = [view.mission for view in missions if view.running]
    return (running or [view.mission for view in missions] or [""])[-1]


def ended_since(before: Board, now: Board, scope: Scope) -> list[str]:
    """Return the missions that ran at the last look, and have finished or halted since."""
    ran = {view.mission for view in before.running}
    return [view.mission for view in missions_of(now, scope) if view.mission in ran and not view.running]


@dataclass(frozen=True)
class _Snapshot:
    """One poll; without a board if it could not be read after the run ended."""

    board: Board | None
    tail: Sequence[str] = ()
    over: bool = False
    diff: Diff = NO_DIFF
    """Of the selected mission."""

    def compared_by(self) -> object:
        seen = self.board and (self.board.missions, self.board.runs, self.board.merges)
        return seen, self.tail, self.over, self.diff


class LiveView(CapsuleApp[bool]):
    """The screen of a run. `open` returns whether the run is over."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "stop"),
        Binding("ctrl+c", "stop", priority=True),
        Binding("d", "leave"),
        Binding("ctrl+q", "leave", priority=True),
        Binding("tab", "turn(1)", priority=True),
        Binding("shift+tab", "turn(-1)", priority=True),
        Binding("f", "choose('')"),
        Binding("e", "unfold"),
        Binding("l", "tail"),
        Binding("question_mark,f1", "explain"),
        Binding("escape", "unexplain"),
    ]

    def __init__(
        self, scope: Scope, reins: RunControls, *, ours: bool = True, rings: bool = False, pulse: float = PULSE
    ) -> None:
        """`ours` is a run that was started for this view; for any other, the stop key names its pid.

        `rings` the bell when a mission comes to its end or its halt.
        """
        super().__init__()
        self._rings = rings
        self._scope, self._reins, self._ours = scope, reins, ours
        self._board = Board()
        self._chosen = ""
        """The selected mission; '' follows the running one."""
        self._stops, self._unseen = 0, False
        self._drawn, self._tail_of = "", ""
        self._tail: Sequence[str] = ()
        self._whole = False
        self._counted: tuple[object, Diff] = None, NO_DIFF
        """The last count, and its input."""
        self._diff = NO_DIFF
        self._to_come: Sequence[QueuePosition] = ()
        self._listed_at, self._took, self._listed_for = 0.0, 0.0, ("", 0)
        self._turn = 0
        self._beside = BackgroundTasks(self.call_later)
        self._looking = Poller(self._look, self.call_later, self._looked, _Snapshot.compared_by, pulse)
        self.pane = Page(id="pane")
        self._run, self._notice = Static(markup=False, id="run"), Static(markup=False, id="notice")
        self._missions, self._keys = Static(id="missions"), Static(id="keys", classes="bar")
        self._missions.auto_links = self._keys.auto_links = False  # links keep their colours
        self._help = Static(_HELP, markup=False, id="help")
        self._list = Page(id="list")
        self._list.can_focus = False

    def compose(self) -> ComposeResult:
        self._run.display = self._missions.display = self._notice.display = self._help.display = False
        self._list.display = False
        yield from (self._run, self._missions)
        with Horizontal(id="sides"):
            yield from (self._list, self.pane)
        yield from (self._help, self._notice, self._keys)

    def on_mount(self) -> None:
        self.pane.focus()
        self._show()
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.action_stop)
            for number in (signal.SIGHUP, signal.SIGTERM):  # the terminal is gone or closing: the run continues
                loop.add_signal_handler(number, self.action_leave)
        self._looking.start()
        if self.animation_level != "none":
            self.set_interval(_TURN, self._move)

    def _move(self) -> None:
        """Move the sign of activity."""
        view = self._board.mission(self.shown)
        if view is not None and view.status is MissionStatus.RUNNING:
            self._turn += 1
            self._show_mission()

    def _look(self) -> _Snapshot:
        """Take a snapshot. Check first whether the run is over, so that it holds everything up to the end."""
        over, tail_of = self._reins.over(), self._tail_of
        try:
            board = self._reins.look()
            view = board.mission(self._chosen or followed(missions_of(board, self._scope)))
            tail = self._reins.tail(tail_of) if tail_of else ()
            return _Snapshot(board, tail, over, self._count(view) if view else NO_DIFF)
        except CapsuleError:
            if over:
                return _Snapshot(None, over=True)
            raise

    def _count(self, view: MissionSummary) -> Diff:
        """Count lines again only if the compared commits differ."""
        asked = view.mission, view.to_compare()
        if asked != self._counted[0]:
            self._counted = asked, self._reins.diff(view)
        return self._counted[1]

    def on_unmount(self) -> None:
        self._looking.end()

    def _looked(self, got: _Snapshot | CapsuleError) -> None:
        if isinstance(got, CapsuleError):
            self._say(f"Cannot read the journal: {got.message}")
            self._unseen = True
            return
        if got.board is not None:
            before, self._board, self._tail, self._diff = self._board, got.board, got.tail, got.diff
            if self._rings and ended_since(before, got.board, self._scope):
                self.bell()
            if self._unseen:
                self._unseen = self._notice.display = False
            self._show()
        if got.over:
            self.exit(True)

    def on_rows_sized(self) -> None:
        self._show()

    def action_stop(self) -> None:
        """Ask the run to stop; at the second press, end it at once."""
        cannot = self._reins.stop()
        if cannot:
            self._say(cannot)
            return
        self._stops += 1
        self._say("Stopping; progress is kept. Press again to kill." if self._stops == 1 else "Killing the run.")

    def action_leave(self) -> None:
        self.exit(False)

    def action_turn(self, way: int) -> None:
        names = [view.mission for view in missions_of(self._board, self._scope)]
        if names:
            at = names.index(self.shown) if self.shown in names else 0
            self.action_choose(names[(at + way) % len(names)])

    def action_choose(self, mission: str) -> None:
        """Show this mission; '' follows the running one."""
        self._chosen = mission
        self._show()

    def action_unfold(self) -> None:
        self._whole = not self._whole
        self._show()

    def action_tail(self) -> None:
        self._tail_of, self._tail = "" if self._tail_of else self.shown, ()
        self._show()

    def action_explain(self) -> None:
        self._help.display = not self._help.display

    def action_unexplain(self) -> None:
        self._help.display = False

    @property
    def shown(self) -> str:
        return self._chosen or followed(missions_of(self._board, self._scope))

    def _show(self) -> None:
        run = run_of(self._board, self._scope)
        if run is not None:  # it is still this one after its lock is released
            self._scope = replace(self._scope, run=run.stream)
        missions = missions_of(self._board, self._scope)
        told = run is not None and (len(missions) != 1 or bool(run.progress))
        if run is not None and told:
            width, head = self.size.width - 2, run_lines(run, self.size.width - 2)
            if run.jobs > 1:
                room = max(_FEWEST_JOBS, self.size.height // 2 - len(head))
                head += [*side_by_side(self._board, missions, run, width), *job_lines(missions, width, room)]
            drawing.put(self._run, drawing.block(head))
        self._run.display = told
        self._ask_what_is_to_come(run)
        self._show_list(missions)
        self._show_missions(missions)
        self._show_keys()
        self._show_mission()

    def _ask_what_is_to_come(self, run: RunSummary | None) -> None:
        """Ask when a mission has begun or ended, else now and then, and only if there is room for the answer."""
        if run is None or self.size.width < WIDE:
            return
        busy, since = (run.stream, len(run.missions)), time.monotonic() - self._listed_at
        due = _LIST_EVERY if busy == self._listed_for else 1.0
        if self._listed_at and since < max(due, self._took * _PATIENCE):
            return
        began, stream = time.monotonic(), run.stream

        def came(got: Sequence[QueuePosition] | CapsuleError) -> None:
            self._listed_at = time.monotonic()
            self._took, self._listed_for = self._listed_at - began, busy
            if not isinstance(got, CapsuleError):
                self._to_come = got
                self._show()

        self._beside.ask("items", lambda: self._reins.to_come(stream), came)

    def _show_list(self, missions: Sequence[MissionSummary]) -> None:
        lines = list_lines(missions, self._to_come, _LIST - 3) if self.size.width >= WIDE else []
        self._list.display = bool(lines) and (len(missions) > 1 or bool(self._to_come))
        self._list.read(lines)

    def _show_missions(self, missions: Sequence[MissionSummary]) -> None:
        """Show as many missions as fit, including the selected one."""
        self._missions.display = len(missions) > 1
        names = [view.mission for view in missions]
        room = max(1, self.size.width // (max(map(len, names), default=0) + 5))
        first = max(0, (names.index(self.shown) if self.shown in names else 0) - room + 1)
        chips = [text("… ", FAINT)] if first else []
        for view in missions[first:]:
            style = f"{STRONG} reverse" if view.mission == self.shown else ""
            name = row(drawing.status_of(view)[:1], " ", drawing.said(view.mission, self.size.width, style))
            chips.append(row(drawing.link(name, f"app.choose({view.mission!r})"), "   "))
        drawing.put(self._missions, row(*chips))

    def _show_keys(self) -> None:
        stop = "stop" if self._ours else f"stop pid {self._scope.pid}"
        keys = [("q", stop, "stop"), ("d", "close", "leave")]
        keys += [("Tab", "next", "turn(1)")] if self._missions.display else []
        keys += [("e", "evidence", "unfold"), ("l", "output", "tail"), ("?", "help", "explain")]
        drawing.put(self._keys, row(*(row(drawing.hint(key, word, f"app.{do}"), " ") for key, word, do in keys)))

    def _show_mission(self) -> None:
        view, before = self._board.mission(self.shown), self._drawn
        self._drawn = self.shown
        if before != self.shown:
            self.pane.scroll_home(animate=False)
        if self._tail_of and self._tail_of != self.shown:
            self._tail_of, self._tail = self.shown, ()
        if view is None:
            self.pane.read([text(f"{self._scope.title or 'The run'} is starting …", FAINT)])
        else:
            tail, turn = self._tail if self._tail_of else None, TURNS[self._turn % len(TURNS)] if self._turn else ""
            width, height = max(20, self.pane.room), self.size.height
            view = replace_struct(view, diff=self._diff)
            lines = mission_lines(view, width, whole=self._whole, tail=tail, height=height, turn=turn)
            self.pane.read([*lines])

    def _say(self, words: str) -> None:
        drawing.put(self._notice, drawing.said(words, max(20, self.size.width - 2), UNSURE))
        self._notice.display = True


def run_lines(run: RunSummary, width: int) -> list[Content]:
    """Draw a run: its name, its agents, and the progress of each epic and feature."""
    agents = f"{run.spawns} of {count(run.cap, 'agent')}" if run.cap else count(run.spawns, "agent")
    head = drawing.both_ends(text(run.name, STRONG), text(f"{agents}  {drawing.elapsed(run.seconds)}"), width)
    rows = [progress for progress in run.progress.values() if progress.of and progress.item]
    names = max([len(one.item) for one in rows], default=0)
    lines = [head]
    for one in rows[:_MOST_PROGRESS]:
        name, done = drawing.cell(one.item, names), text(bar(one.done, one.of), BUSY)
        title = drawing.said(one.title, max(8, width - names - 24))
        lines.append(row(name, " ", done, f" {one.done} of {one.of}  ", title))
    return lines


def side_by_side(board: Board, missions: Sequence[MissionSummary], run: RunSummary, width: int) -> list[Content]:
    """Draw the progress of several missions: `███░░ 12/40 · 6 running · 2 in the merge queue · $4.10 of $10`."""
    progress = progress_of(run, missions, board.missions, board.queued)
    first = row(text(bar(progress.done, progress.of), BUSY), " ") if progress.of else ""
    return drawing.paragraph(" · ".join(progress_words(progress)), width, first=first)


def job_lines(missions: Sequence[MissionSummary], width: int, most: int) -> list[Content]:
    """Draw a line for each running mission: phase, attempt, active time, cost, activity; count the rest."""
    running = [view for view in missions if view.running]
    names = min(_WIDEST_NAME, max([len(view.mission) for view in running], default=0))
    lines = []
    for view in running if len(running) <= most else running[: most - 1]:
        attempt = f" #{view.attempt}" if view.attempt > 1 else ""
        head = row(
            *(drawing.status_sign(view.status), " ", drawing.cell(view.mission, names, STRONG), " "),
            *(drawing.cell(f"{view.phase}{attempt}", 16, BUSY), f" {drawing.elapsed(int(view.busy_seconds)):>10} "),
            text(f"{cost(view):>7}  ", FAINT),
        )
        waits = f"to be merged: {view.place}" if view.place else view.sentence
        now = waits if view.status is MissionStatus.WAITING else view.doing[-1] if view.doing else view.title
        lines.append(row(head, drawing.said(now, max(0, width - head.cell_length), FAINT)))
    left = len(running) - len(lines)
    return [*lines, text(f"  and {left} more running", FAINT)] if left else lines


def list_lines(missions: Sequence[MissionSummary], to_come: Sequence[QueuePosition], width: int) -> list[Content]:
    """Draw the items to come, and below them the ended missions, those that need a person first."""
    own = [view for view in missions if not view.parent and not view.running]
    named = [*(place.item.id for place in to_come), *(view.mission for view in own)]
    names = min(width // 2, max(map(width_of, named), default=0))

    def line(status: MissionStatus, name: str, title: str) -> Content:
        head = row(drawing.status_sign(status), " ", drawing.cell(name, names, STRONG), " ")
        return row(head, drawing.said(title, max(0, width - head.cell_length), FAINT))

    over = {view.mission for view in own if view.status in _ENDED}
    left = [place for place in to_come if place.item.id not in over]
    lines = [text(f"To come ({len(left)})", STRONG)]
    for place in left:
        status = MissionStatus.READY if place.actionable else MissionStatus.WAITING
        lines.append(line(status, place.item.id, place.item.title))
    for status in _ENDED:
        ended = [view for view in own if view.status is status]
        if ended:
            lines += [Content(""), text(f"{status.words.capitalize()} ({len(ended)})", drawing.STYLES[status.tone])]
            lines += [line(status, view.mission, view.title) for view in reversed(ended)]
    return lines


def bar(done: int, of: int, cells: int = 10) -> str:
    full = cells * done // max(1, of)
    return "█" * full + "░" * (cells - full)
