"""What the dashboard can see and do, in terms of a project: journal, tracker, papers, and the commands themselves.

Whatever it does is `capsule` with the words that a person would type, in a process of its own. Each function is called
from a thread beside the screen; the journal is looked at always from the same one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, LockHeld

if TYPE_CHECKING:
    from capsule.commands.logs import Shelf
    from capsule.core.board import Board
    from capsule.core.event import Event
    from capsule.journals.watch import Watch
    from capsule.tui.hands import Details, Hands, Listing, Said, Started
    from capsule.wiring import Project

_LONGEST_DIFF = 400 * 1024
_MOST_FILES = 100
_LARGEST_FILE = "256k"
"""What is larger is not compared line by line: a diff for people, not for programs."""
_LONGEST_WORKLOG = 8 * 1024 * 1024
_TAIL = 64 * 1024
_MOST_OUTPUTS = 6
_LISTED = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


def hands_for(project: Project) -> Hands:
    from capsule.tui.hands import Hands

    eyes = Eyes(project)
    return Hands(
        name=project.root.name,
        look=eyes.look,
        items=lambda: listing_of(project),
        details=lambda mission: details_of(project, mission),
        do=lambda words: _do(project, words),
        start=lambda words: _start(project, words),
        stop=lambda stream, pid: _stop(project, stream, pid),
    )


class Eyes:
    """Opens the journal where it is looked at, which is not where the screen is drawn."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._watch: Watch | None = None

    def look(self) -> Board:
        from capsule.system.clock import SystemClock

        try:
            if self._watch is None:
                self._watch = self._open()
            return self._watch.look(SystemClock().now())
        except CapsuleError:
            self._watch = None  # what is mended meanwhile is opened anew
            raise

    def _open(self) -> Watch:
        from capsule.journals.watch import Watch
        from capsule.wiring import budget_of

        project = self._project
        allowed = budget_of(project.settings).mission
        return Watch(project.journal(read_only=True), project.papers().folder, allowed)


def listing_of(project: Project) -> Listing:
    from capsule.tui.hands import Listing
    from capsule.wiring import open_tracker

    tracker = open_tracker(project)
    items = tracker.everything() if tracker.keeps_phases else tracker.under("")
    return Listing(tuple(items), tracker.keeps_phases, tracker.name)


# ---- what is on disk of a mission


def details_of(project: Project, mission: str) -> Details:
    from capsule.commands.logs import Shelf
    from capsule.core.item import check_id
    from capsule.tui.hands import Details

    check_id(mission)
    journal = project.journal(read_only=True)
    try:
        events = [event for _, event in journal.events(mission)]
        changes, diff = _diff(project, events)
        return Details(
            changes=changes,
            diff=diff,
            worklog=_worklog(project, mission),
            logs="\n".join(_logs(Shelf(project, journal, mission))),
        )
    finally:
        journal.close()


def _diff(project: Project, events: Sequence[Event]) -> tuple[str, str]:
    """Which files, and what in them: of a mission that is merged what it brought, else what it has so far."""
    from capsule.core.account import to_compare
    from capsule.core.state import replay

    pairs, note = to_compare(events, replay(events))
    changes, diffs = [note], []
    room = _LONGEST_DIFF
    for old, new in pairs:
        paths = [os.fsdecode(each.path) for each in project.git.differences(old, new)]
        if not paths:
            continue
        few = ["--", *paths[:_MOST_FILES]]
        big = ("--literal-pathspecs", "-c", f"core.bigFileThreshold={_LARGEST_FILE}", *_LISTED)
        changes.append(project.git.content(*big, "--stat=78", old, new, *few).out.decode(errors="replace"))
        diff = project.git.content(*big, "-p", old, new, *few).out[:room].decode(errors="replace")
        room -= len(diff)
        diffs.append(diff)
        if len(paths) > _MOST_FILES:
            changes.append(f"... and {len(paths) - _MOST_FILES} more files")
        if room <= 0:
            changes.append(f"(what follows is cut: git diff {old[:12]} {new[:12]} shows all)")
            break
    return "\n".join(changes), "\n".join(diffs)


def _worklog(project: Project, mission: str) -> str:
    """While it is under way it lies beside the work, afterwards with the papers."""
    from capsule.system.files import read_regular

    home = project.root / ".capsule"
    for folder in (home / "worktrees" / mission, home / "missions" / mission, home / "logs" / mission):
        try:
            if folder.is_dir() and not folder.is_symlink():
                return read_regular(folder / "worklog.md", _LONGEST_WORKLOG).decode(errors="replace")
        except OSError:
            continue
    return ""


def _logs(shelf: Shelf) -> Iterator[str]:
    """The ends of what its last agents printed."""
    outputs = shelf.outputs()
    if len(outputs) > _MOST_OUTPUTS:
        yield f"(what came before: capsule logs {shelf.mission})"
    for output in outputs[-_MOST_OUTPUTS:]:
        yield f"==> {output.title}"
        yield _end_of(output.file)


def _end_of(file: Path) -> str:
    try:
        with file.open("rb") as source:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(0, size - _TAIL))
            return source.read(_TAIL).decode(errors="replace")
    except OSError:  # archived between two looks: the next one finds it
        return ""


# ---- doing


def _do(project: Project, words: Sequence[str]) -> Said:
    from capsule.tui.hands import Said

    done = subprocess.run(
        [sys.executable, "-P", "-m", "capsule", *words],
        cwd=project.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        start_new_session=True,  # what was confirmed is done, also where the terminal goes away
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _start(project: Project, words: Sequence[str]) -> Started:
    from capsule.commands.runners import start_runner
    from capsule.tui.hands import Said, Started

    runner = start_runner(project.root, words)
    return Started(runner.pid, lambda: Said(runner.wait(), runner.out(), runner.err()))


def _stop(project: Project, stream: str, pid: int) -> Said:
    """Asked again just before: the number may be somebody else's by now."""
    from capsule.tui.hands import Said

    journal = project.journal(read_only=True)
    try:
        holder = journal.running(stream)
    except LockHeld:
        holder = None
    finally:
        journal.close()
    if holder is None or holder != pid:
        return Said(1, err="It does not run any more.")
    try:
        os.kill(pid, signal.SIGINT)
    except OSError as fault:
        return Said(1, err=f"It cannot be stopped from here: {fault.strerror}.")
    return Said(0, "It was asked to stop: its agent is being ended, and what is done is kept.")
