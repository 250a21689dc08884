"""`capsule run` on a terminal: a runner is started, or one is found that runs already, and looked at.

The viewer holds nothing: killed, or with its terminal gone, it leaves the run alone. What it shows it reads, as anybody
could, from the journal, the live files and the locks.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from capsule.commands.common import flags_of, mission_state
from capsule.commands.runners import Runner, start_runner
from capsule.commands.watching import Eyes, ask_to_stop, holder
from capsule.core.errors import CapsuleError, Interrupted
from capsule.core.event import CAMPAIGN, RUN, RunEnded, RunStarted, Stopped, is_mission
from capsule.core.item import check_id
from capsule.core.notification import BELL, channels

if TYPE_CHECKING:
    from capsule.core.event import Event
    from capsule.wiring import Project


@dataclass(frozen=True)
class Subject:
    """What is looked at: the process that runs it, the stream in which that is told, and how a person names it."""

    pid: int
    stream: str
    items: tuple[str, ...]

    @property
    def name(self) -> str:
        return " and ".join(self.items) or "The queue"

    @property
    def command(self) -> str:
        return " ".join(["capsule run", *self.items])


def view_run(args: argparse.Namespace) -> int:
    from capsule.wiring import open_project

    items = tuple(check_id(name) for name in ([args.item] if args.item else []) + args.target)
    project = open_project(args.project_dir, flags_of(args))
    otherwise = args.fresh or args.rebase or args.record or args.replay
    found = None if otherwise else running_already(project, items)
    if found:
        return _watch_another(project, found)
    runner = start_runner(project.root, ["run", *args.words], Path.cwd())
    return _watch_ours(project, runner, Subject(runner.pid, items[0] if len(items) == 1 else "", items))


def running_already(project: Project, items: tuple[str, ...]) -> Subject | None:
    """Whoever runs it: its own run, or the campaign or queue that has just come to it."""
    streams = [f"{RUN}queue"] if not items else [items[0], f"{CAMPAIGN}{items[0]}", f"{RUN}run-{items[0]}"]
    journal = project.journal(read_only=True)
    for stream in streams if len(items) < 2 else ():
        pid = holder(journal, stream)
        if pid is not None:
            return Subject(pid, stream, items)
    return None


def _watch_ours(project: Project, runner: Runner, subject: Subject) -> int:
    def stop() -> str:
        runner.stop()
        return ""

    try:
        if _look(project, subject, runner.ended, stop, ours=True):
            return _goes_on(subject)
        code = runner.wait()
    except KeyboardInterrupt:  # there was no screen yet that could have taken it for a key
        code = _stopped(runner)
    return _last_words(runner, code, subject)


def _stopped(runner: Runner) -> int:
    runner.stop()
    try:
        return runner.wait()
    except KeyboardInterrupt:
        runner.stop()
        return runner.wait()


def _watch_another(project: Project, subject: Subject) -> int:
    journal = project.journal(read_only=True)
    over, stop = (lambda: holder(journal, subject.stream) is None), (lambda: ask_to_stop(journal, subject.stream))
    if _look(project, subject, over, stop, ours=False):
        return _goes_on(subject)
    return how_it_ended(project, subject)


def _look(project: Project, subject: Subject, over: Callable[[], bool], stop: Callable[[], str], *, ours: bool) -> bool:
    """True where somebody left before it was over. Where it is over before there is a screen, there is none."""
    try:
        from capsule.tui.run_view import Ending, LiveView, Reins, Scope
    except ImportError as fault:
        print(f"note: there is no live view ({fault}); the run goes on without one.", file=sys.stderr)
        return not ours
    if over():
        return False
    eyes = Eyes(project)
    mission, run = (subject.stream, "") if is_mission(subject.stream) else ("", subject.stream)
    scope = Scope(pid=subject.pid, mission=mission, run=run, title=subject.name)
    rings = BELL in channels(project.settings.notify)
    view = LiveView(scope, Reins(eyes.look, over, stop, eyes.tail), ours=ours, rings=rings)
    return view.open() is not Ending.OVER


def _goes_on(subject: Subject) -> int:
    stop = f"  stop it:  kill {subject.pid}\n" if subject.pid else ""
    who = f" (pid {subject.pid})" if subject.pid else ""
    _tell(sys.stdout, f"{subject.name} goes on{who}.\n  see it:   {subject.command}, or capsule dashboard\n{stop}")
    return 0


def _last_words(runner: Runner, code: int, subject: Subject) -> int:
    """What it printed, as if it had been printed here."""
    from capsule.reports.story import printable

    if code == -signal.SIGINT:  # before it was ready to be told
        return Interrupted.exit_code
    lines = printable(runner.err()).splitlines(keepends=True)
    _tell(sys.stderr, "".join(line for line in lines if line.startswith("note: ")))
    _tell(sys.stdout, printable(runner.out()))
    _tell(sys.stderr, "".join(line for line in lines if not line.startswith("note: ")))
    if code < 0:
        message = f"The run was ended from outside, by {signal.Signals(-code).name}; what was recorded is kept."
        raise CapsuleError(message, f"Go on with `{subject.command}`.", exit_code=128 - code)
    return code


def how_it_ended(project: Project, subject: Subject) -> int:
    """Its own words went to whoever started it; how it stands is in the journal."""
    journal = project.journal(read_only=True)
    events = [event for _, event in journal.events(subject.stream)]
    journal.close()
    if not is_mission(subject.stream):
        return _how_the_run_ended(events, subject)
    from capsule.commands.run import closing_words

    state = mission_state(project, subject.stream)
    if state.halt or state.finished:
        _tell(sys.stdout, closing_words(state, project) + "\n")
        return state.halt.exit_code if state.halt else 0
    last = events[-1] if events else None
    cause = last.cause if isinstance(last, Stopped) else "It was ended from outside."
    code = last.exit_code if isinstance(last, Stopped) else Interrupted.exit_code
    raise CapsuleError(f"{subject.name} was stopped: {cause}", f"Go on with `{subject.command}`.", exit_code=code)


def _how_the_run_ended(events: Sequence[Event], subject: Subject) -> int:
    told = [event for event in events if isinstance(event, (RunStarted, RunEnded))]
    if told and isinstance(told[-1], RunEnded):
        _tell(sys.stdout, f"{subject.name} ended: {told[-1].why}.\n  look at it:  capsule status\n")
        return told[-1].exit_code
    raise Interrupted(f"{subject.name} was stopped.", f"Go on with `{subject.command}`.")


def _tell(stream: TextIO, words: str) -> None:
    """To a terminal that may be gone by now; then nobody is told, and that is no fault."""
    try:
        stream.write(words)
        stream.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for gone in (sys.stdout, sys.stderr):  # whatever else is still to be written there
            os.dup2(nowhere, gone.fileno())
