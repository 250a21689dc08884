"""`capsule run` on a terminal: the run under way, as long as it is under way.

The run is another process. A thread looks at it a few times a second and posts what it saw; only the screen's own
thread draws. So nothing that is slow there is felt here, and leaving is ending this process and nothing else.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Static

from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.history import MissionSummary, RunSummary
from capsule.core.progress import progress_of
from capsule.core.status import MissionStatus
from capsule.core.text import count
from capsule.reports.words import progress_words
from capsule.tui import drawing
from capsule.tui.app import PULSE, CapsuleApp, Poller
from capsule.tui.drawing import BUSY, FAINT, STRONG, UNSURE, row, text
from capsule.tui.lines import cost
from capsule.tui.mission import mission_lines
from capsule.tui.rows import Page

_MOST_PROGRESS = 4
_FEWEST_JOBS = 4
_WIDEST_NAME = 20
_HELP = """\
q, Ctrl-C   stop and keep progress; press twice to kill
d           close this view; the run keeps running
↑ ↓  j k    scroll; also Page Up, Page Down, Home, End and the wheel
Tab         next mission; Shift-Tab previous; f follows the running one
e           all attempts with their evidence, or only the last verdict
l           the last lines of the agent's output
?           show or hide this help

✓ done   ▶ running   ↺ sent back   ■ needs you   ✗ failed   ‖ stopped   – skipped   · to do
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
    """Asks it to stop; '' or why that cannot be done from here."""
    tail: Callable[[str], Sequence[str]]
    """The last lines that the agent of a mission printed."""


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
    """The queue's, the campaign's, or the backlog item's; one that ended earlier is not this one."""
    watched = board.mission(scope.mission)
    pids = {scope.pid, watched.started_by if watched else 0} - {0}
    return next((run for run in board.runs if run.stream == scope.run or run.pid in pids), None)


def followed(missions: Sequence[MissionSummary]) -> str:
    """Return the running mission; else the last one that ran."""
    running = [view.mission for view in missions if view.running]
    return (running or [view.mission for view in missions] or [""])[-1]


def ended_since(before: Board, now: Board, scope: Scope) -> list[str]:
    """The missions that ran at the last look, and have come to their end or their halt."""
    ran = {view.mission for view in before.running}
    return [view.mission for view in missions_of(now, scope) if view.mission in ran and not view.running]


@dataclass(frozen=True)
class _Snapshot:
    """One look; without a board where it could not be read any more after the run ended."""

    board: Board | None
    tail: Sequence[str] = ()
    over: bool = False

    def compared_by(self) -> object:
        return self.board and (self.board.missions, self.board.runs, self.board.merges), self.tail, self.over


class LiveView(CapsuleApp[bool]):
    """`open` returns whether the run is over; where somebody left before, it is not."""

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
        """`ours` is a run that was started for this view; any other is somebody else's, and called so.

        `rings` the bell when a mission comes to its end or its halt.
        """
        super().__init__()
        self._rings = rings
        self._scope, self._reins, self._ours = scope, reins, ours
        self._board = Board()
        self._chosen = ""
        """The mission that somebody asked for; '' follows whichever runs."""
        self._stops, self._unseen = 0, False
        self._drawn, self._tail_of = "", ""
        self._tail: Sequence[str] = ()
        self._whole = False
        self._looking = Poller(self._look, self.call_later, self._looked, _Snapshot.compared_by, pulse)
        self.pane = Page(id="pane")
        self._run, self._notice = Static(markup=False, id="run"), Static(markup=False, id="notice")
        self._missions, self._keys = Static(id="missions"), Static(id="keys", classes="bar")
        self._missions.auto_links = self._keys.auto_links = False  # what can be clicked keeps its colours
        self._help = Static(_HELP, markup=False, id="help")

    def compose(self) -> ComposeResult:
        self._run.display = self._missions.display = self._notice.display = self._help.display = False
        yield from (self._run, self._missions, self.pane, self._help, self._notice, self._keys)

    def on_mount(self) -> None:
        self.pane.focus()
        self._show()
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGINT, self.action_stop)
            for number in (signal.SIGHUP, signal.SIGTERM):  # the terminal is gone, or is to be: the run goes on
                loop.add_signal_handler(number, self.action_leave)
        self._looking.start()

    def _look(self) -> _Snapshot:
        """Take a snapshot. Ask first whether the run is over, so that everything up to its end is in it."""
        over, tail_of = self._reins.over(), self._tail_of
        try:
            return _Snapshot(self._reins.look(), self._reins.tail(tail_of) if tail_of else (), over)
        except CapsuleError:
            if over:
                return _Snapshot(None, over=True)
            raise

    def on_unmount(self) -> None:
        self._looking.end()

    def _looked(self, got: _Snapshot | CapsuleError) -> None:
        if isinstance(got, CapsuleError):
            self._say(f"Cannot read the journal: {got.message}")
            self._unseen = True
            return
        if got.board is not None:
            before, self._board, self._tail = self._board, got.board, got.tail
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
        """The first time it is asked to, the second time it is told to."""
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
        """Show this mission; '' follows whichever runs."""
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
        if run is not None:  # it is still this one when nobody holds it any more
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
        self._show_missions(missions)
        self._show_keys()
        self._show_mission()

    def _show_missions(self, missions: Sequence[MissionSummary]) -> None:
        """As many as there is room for, the one that is shown among them."""
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
        keys += [("Tab", "next mission", "turn(1)")] if self._missions.display else []
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
            tail = self._tail if self._tail_of else None
            self.pane.read([*mission_lines(view, max(20, self.pane.room), whole=self._whole, tail=tail)])

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
    """Draw how far several missions at a time are: `███░░ 12/40 · 6 running · 2 in the merge queue · $4.10 of $10`."""
    progress = progress_of(run, missions, board.missions, board.queued)
    first = row(text(bar(progress.done, progress.of), BUSY), " ") if progress.of else ""
    return drawing.paragraph(" · ".join(progress_words(progress)), width, first=first)


def job_lines(missions: Sequence[MissionSummary], width: int, most: int) -> list[Content]:
    """Draw a line for each mission that runs: phase, attempt, age, cost, what it does; the rest is counted."""
    running = [view for view in missions if view.running]
    names = min(_WIDEST_NAME, max([len(view.mission) for view in running], default=0))
    lines = []
    for view in running if len(running) <= most else running[: most - 1]:
        attempt = f" #{view.attempt}" if view.attempt > 1 else ""
        head = row(
            *(drawing.status_sign(view.status), " ", drawing.cell(view.mission, names, STRONG), " "),
            *(drawing.cell(f"{view.phase}{attempt}", 16, BUSY), f" {drawing.elapsed(int(view.wall_seconds)):>10} "),
            text(f"{cost(view):>7}  ", FAINT),
        )
        waits = f"to be merged: {view.place}" if view.place else view.sentence
        now = waits if view.status is MissionStatus.WAITING else view.doing[-1] if view.doing else view.title
        lines.append(row(head, drawing.said(now, max(0, width - head.cell_length), FAINT)))
    left = len(running) - len(lines)
    return [*lines, text(f"  and {left} more running", FAINT)] if left else lines


def bar(done: int, of: int, cells: int = 10) -> str:
    full = cells * done // max(1, of)
    return "█" * full + "░" * (cells - full)
