"""What the dashboard can see and do, in terms of a project: journal, tracker, papers, and the commands themselves.

Whatever it does is `capsule` with the words that a person would type, in a process of its own. Each function is called
from a thread beside the screen; the journal is looked at always from the same one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from capsule.commands.watching import Eyes, ask_to_stop, end_of
from capsule.system.umask import of_the_user

if TYPE_CHECKING:
    from capsule.commands.logs import Shelf
    from capsule.core.event import Event
    from capsule.project import Project
    from capsule.tui.hands import Details, Hands, Listing, Said, Started

_LONGEST_DIFF = 400 * 1024
_MOST_FILES = 100
_LARGEST_FILE = "256k"
"""What is larger is not compared line by line: a diff for people, not for programs."""
_TAIL = 64 * 1024
"""Of what an agent writes, which may be of any length: what is new is at the end."""
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


def listing_of(project: Project) -> Listing:
    from capsule.project import open_tracker
    from capsule.tui.hands import Listing

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
    home = project.root / ".capsule"
    for folder in (home / "worktrees" / mission, home / "missions" / mission, home / "logs" / mission):
        if folder.is_dir() and not folder.is_symlink() and (words := end_of(folder / "worklog.md", _TAIL + 1)):
            return f"…{words[1:]}" if len(words.encode()) > _TAIL else words
    return ""


def _logs(shelf: Shelf) -> Iterator[str]:
    """The ends of what its last agents printed."""
    outputs = shelf.outputs()
    if len(outputs) > _MOST_OUTPUTS:
        yield f"(what came before: capsule logs {shelf.mission})"
    for output in outputs[-_MOST_OUTPUTS:]:
        yield f"==> {output.title}"
        yield end_of(output.file, _TAIL)


# ---- doing


def _forget_how_large_a_tab_is() -> None:
    """A tab's process is told by its environment; whatever it starts would take that for a terminal's size."""
    from capsule.tui.tab import in_a_browser

    if in_a_browser():
        for name in ("COLUMNS", "ROWS"):
            os.environ.pop(name, None)


def _do(project: Project, words: Sequence[str]) -> Said:
    from capsule.tui.hands import Said

    _forget_how_large_a_tab_is()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "capsule", *words],
        cwd=project.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        umask=of_the_user(),
        start_new_session=True,  # what was confirmed is done, also where the terminal goes away
        check=False,
    )
    return Said(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _start(project: Project, words: Sequence[str]) -> Started:
    from capsule.app.runners import start_runner
    from capsule.tui.hands import Said, Started

    _forget_how_large_a_tab_is()
    runner = start_runner(project.root, words)
    return Started(runner.pid, lambda: Said(runner.wait(), runner.out(), runner.err()))


def _stop(project: Project, stream: str, pid: int) -> Said:
    from capsule.tui.hands import Said

    journal = project.journal(read_only=True)
    try:
        cannot = ask_to_stop(journal, stream, pid)
    finally:
        journal.close()
    return (
        Said(1, err=cannot)
        if cannot
        else Said(0, "It was asked to stop: its agent is being ended, and what is done is kept.")
    )
