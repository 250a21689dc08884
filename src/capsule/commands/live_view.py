"""Show `capsule run` on a terminal: start a runner, or find one that runs already, and watch it.

The viewer holds no locks: if it is killed, or its terminal closes, the run continues. It reads the journal, the live
files and the locks, as any process could.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import dropwhile, takewhile
from pathlib import Path
from types import FrameType
from typing import TextIO

from msgspec import Struct

from capsule.app.changes import with_diffs
from capsule.app.missions import mission_state
from capsule.app.ordering import still_to_come
from capsule.app.planning import RunRequest
from capsule.app.runners import Runner, start_runner
from capsule.commands.logs import Shelf, last_lines, wording_of
from capsule.commands.summary import closing_words, dressed
from capsule.commands.watching import JournalWatcher, MissionReader, ask_to_stop
from capsule.core.errors import CapsuleError, Interrupted
from capsule.core.event import CAMPAIGN, RUN, RunEnded, RunStarted, Stopped, is_mission
from capsule.core.history import Diff, MissionSummary, read_run
from capsule.core.notification import BELL, channels
from capsule.core.schedule import QueuePosition
from capsule.project import Project
from capsule.reports.style import printable

ASK_AGAIN = 1.0
"""Seconds until a request to stop is repeated."""
_NOTE = "note: "


class Subject(Struct, frozen=True):
    """The process that is watched, its stream in the journal, and its name for people."""

    pid: int
    stream: str
    items: tuple[str, ...]

    @property
    def name(self) -> str:
        return " and ".join(self.items) or "The queue"

    @property
    def command(self) -> str:
        return " ".join(["capsule run", *self.items])


class _HeldBack:
    """Count Ctrl-C instead of obeying it, within the `with` block or until `reopen`.

    A Python handler, not a mask: child processes would inherit a mask.
    """

    def __init__(self) -> None:
        self.presses = 0

    def __enter__(self) -> _HeldBack:
        self._before = signal.signal(signal.SIGINT, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()

    def reopen(self) -> None:
        """Restore the handler, and raise the signal that was held back."""
        self._restore()
        if self.presses:
            signal.raise_signal(signal.SIGINT)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        self.presses += 1

    def _restore(self) -> None:
        if signal.getsignal(signal.SIGINT) == self._hear:  # else another handler is installed by now
            signal.signal(signal.SIGINT, signal.SIG_DFL if self._before is None else self._before)


def start(project: Project, request: RunRequest, args: argparse.Namespace) -> int:
    """Start `capsule run WORDS` as a process of its own, or find it running, and show it."""
    items, otherwise = request.items, request.fresh or request.rebase or request.record or request.replay
    found = None if otherwise else running_already(project, items)
    if found:
        journal = project.journal(read_only=True)
        over, stop = (lambda: not journal.is_held(found.stream)), (lambda: ask_to_stop(journal, found.stream))
        if _look(project, found, over, stop, ours=False):
            return _goes_on(found, sys.stdout)
        return how_it_ended(project, found)
    with _HeldBack() as ctrl_c:  # a runner that was started must always be stoppable
        runner = start_runner(project.root, ["run", *args.words], Path.cwd())
        subject = Subject(runner.pid, items[0] if len(items) == 1 else "", items)
        return _watch_own_run(project, runner, subject, ctrl_c)


def running_already(project: Project, items: tuple[str, ...]) -> Subject | None:
    """Find a runner of these items: their own, or a campaign or queue that works on them."""
    journal = project.journal(read_only=True)
    for stream in _streams(items) if len(items) < 2 else ():
        pid = journal.holder(stream)
        if pid is not None:
            return Subject(pid, stream, items)
    return None


def _streams(items: tuple[str, ...]) -> list[str]:
    """Name every stream that a runner of these items may hold."""
    if not items:
        return [f"{RUN}queue"]
    return [stream for item in items for stream in (item, f"{CAMPAIGN}{item}", f"{RUN}run-{item}")]


def _watch_own_run(project: Project, runner: Runner, subject: Subject, ctrl_c: _HeldBack) -> int:
    def stop() -> str:
        runner.stop()
        return ""

    try:
        ctrl_c.reopen()
        if _look(project, subject, runner.ended, stop, ours=True):
            return _goes_on(subject, sys.stdout)
        code = runner.wait()
    except KeyboardInterrupt:  # no screen was there to read it as a key
        code = _stopped(project, runner, subject)
    return last_words(runner, code, subject, project.root)


def _stopped(project: Project, runner: Runner, subject: Subject) -> int:
    """Ask the runner to stop, and again with each further Ctrl-C; return its exit code.

    While it starts, a signal may be lost. So the request is repeated until it has ended, or holds a stream, and then
    handles signals.
    """
    with _HeldBack() as ctrl_c:
        obeyed, heard = 0, False
        while True:
            if not heard or obeyed < ctrl_c.presses:
                obeyed = ctrl_c.presses
                with suppress(CapsuleError):  # then one request is too many
                    journal = project.journal(read_only=True)
                    heard = heard or any(journal.holder(stream) == subject.pid for stream in _streams(subject.items))
                runner.stop()
            code = runner.wait_for(ASK_AGAIN)
            if code is not None:
                return code


def _look(project: Project, subject: Subject, over: Callable[[], bool], stop: Callable[[], str], *, ours: bool) -> bool:
    """Show the run; return True if the view was closed before the run was over."""
    try:
        return _show(project, subject, over, stop, ours=ours)
    except ImportError as fault:
        print(f"note: no live view ({fault}); the run continues without one.", file=sys.stderr)
        return not ours
    except (Exception, KeyboardInterrupt) as end:  # of the view, not of the run
        is_stopped_next = ours and isinstance(end, KeyboardInterrupt)
        if not is_stopped_next and not over():
            _goes_on(subject, sys.stderr)
        raise


def _show(project: Project, subject: Subject, over: Callable[[], bool], stop: Callable[[], str], *, ours: bool) -> bool:
    from capsule.tui import run_view  # noqa: PLC0415 - Textual is loaded only for a screen

    if over():
        return False
    watcher = JournalWatcher(project)
    mission, run = (subject.stream, "") if is_mission(subject.stream) else ("", subject.stream)
    scope = run_view.Scope(pid=subject.pid, mission=mission, run=run, title=subject.name)
    rings = BELL in channels(project.settings.notify)

    wording = cache(partial(wording_of, project))

    def tail(mission: str) -> Sequence[str]:
        assert watcher.journal
        return last_lines(Shelf(project, watcher.journal, mission), wording)

    def diff(mission: MissionSummary) -> Diff:
        return with_diffs(project, [mission])[0].diff

    def to_come(stream: str) -> Sequence[QueuePosition]:
        return still_to_come(project, stream, subject.items)

    reins = run_view.RunControls(watcher.look, over, stop, tail, to_come, diff)
    view = run_view.LiveView(scope, reins, ours=ours, rings=rings)
    return not view.open()


def _goes_on(subject: Subject, stream: TextIO) -> int:
    stop = f"  stop:   kill {subject.pid}\n" if subject.pid else ""
    who = f" (pid {subject.pid})" if subject.pid else ""
    _tell(stream, f"{subject.name} keeps running{who}.\n  watch:  {subject.command}, or capsule dashboard\n{stop}")
    return 0


def last_words(runner: Runner, code: int, subject: Subject, root: Path) -> int:
    """Print the runner's output as if it had been printed here, and the cause if it names none."""
    out, lines = printable(runner.out()), printable(runner.err()).splitlines(keepends=True)
    cause = [line for line in lines if not line.startswith(_NOTE)]
    if runner.asked or code == -signal.SIGINT:  # without Python's traceback of a signal while it starts or ends
        ours = dropwhile(lambda line: not line.startswith("capsule: "), cause)
        cause = list(takewhile(lambda line: not line.startswith(("Traceback", "Exception ignored")), ours))
    _tell(sys.stderr, "".join(line for line in lines if line.startswith(_NOTE)))
    _tell(sys.stdout, dressed(out, root, sys.stdout))
    _tell(sys.stderr, "".join(cause))
    fault = None if cause and code >= 0 else _why_it_ended(runner, code, subject, silent=not out)
    if fault:
        raise fault
    return code


def _why_it_ended(runner: Runner, code: int, subject: Subject, *, silent: bool) -> CapsuleError | None:
    """Return why the runner ended, if it printed no reason."""
    go_on = f"Resume with `{subject.command}`."
    if code in (-signal.SIGINT, Interrupted.exit_code) or (runner.asked and code > 0 and silent):
        return Interrupted(f"{subject.name} was killed; recorded progress is kept.", go_on)
    if code < 0:
        message = f"The run was killed by {signal.Signals(-code).name}; recorded progress is kept."
        return CapsuleError(message, go_on, exit_code=128 - code)
    if code > 0 and silent:
        message = f"{subject.name} ended with exit code {code} and no output: the disk may be full."
        return CapsuleError(message, f"Free some space, then: `{subject.command} --no-tui`.", exit_code=code)
    return None


def how_it_ended(project: Project, subject: Subject) -> int:
    """Describe from the journal how a run that was started elsewhere ended."""
    with MissionReader(project) as reader:
        events = reader.events(subject.stream)
    if not is_mission(subject.stream):
        told = [event for event in events if isinstance(event, (RunStarted, RunEnded))]
        if told and isinstance(told[-1], RunEnded):
            sign = read_run(subject.stream, told).status.sign
            words = f"{sign} {subject.name} ended: {told[-1].why}.\n  next:  capsule status"
            _tell(sys.stdout, dressed(words, project.root, sys.stdout) + "\n")
            return told[-1].exit_code
        raise Interrupted(f"{subject.name} was stopped.", f"Resume with `{subject.command}`.")
    state = mission_state(project, subject.stream)
    if state.halt or state.finished:
        _tell(sys.stdout, dressed(closing_words(state, project), project.root, sys.stdout) + "\n")
        return state.halt.exit_code if state.halt else 0
    last = events[-1] if events else None
    cause = last.cause if isinstance(last, Stopped) else "the process was killed."
    code = last.exit_code if isinstance(last, Stopped) else Interrupted.exit_code
    raise CapsuleError(f"{subject.name} was stopped: {cause}", f"Resume with `{subject.command}`.", exit_code=code)


def _tell(stream: TextIO, words: str) -> None:
    """Write to a terminal; ignore one that was closed meanwhile."""
    try:
        stream.write(words)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for gone in (sys.stdout, sys.stderr):  # later writes to them are discarded
            os.dup2(nowhere, gone.fileno())
