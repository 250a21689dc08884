"""The functions for screens and the page in a browser: everything they can see and do in a project."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence

from capsule.actions import CommandResult, DashboardActions, Details, Listing, StartedRun
from capsule.app.changes import compared
from capsule.app.runners import start_runner
from capsule.commands.logs import Shelf
from capsule.commands.watching import JournalWatcher, MissionReader, ask_to_stop, end_of
from capsule.core.history import MissionSummary
from capsule.core.item import check_id
from capsule.project import Project, open_tracker
from capsule.system.umask import of_the_user
from capsule.tui.tab import in_a_browser

_LONGEST_DIFF = 400 * 1024
_MOST_FILES = 100
_LARGEST_FILE = "256k"
"""Larger files are not compared line by line: a diff for people, not for programs."""
_TAIL = 64 * 1024
"""Agents write files of any length; the end is the newest."""
_MOST_OUTPUTS = 6
_MARK = re.compile(r"(?m)^<!-- capsule [^\n]*-->\n")
"""Which step an entry of the worklog is of: for Capsule itself."""
_LISTED = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


def actions_for(project: Project) -> DashboardActions:
    """Return the functions that the screen calls from threads; the journal is always read by the same one.

    Changes are made by `capsule` with the words that a person would type, in a process of its own.
    """
    watcher = JournalWatcher(project)
    return DashboardActions(
        name=project.root.name,
        look=watcher.look,
        items=lambda: listing_of(project),
        details=lambda mission: details_of(project, mission),
        do=lambda words, text: _do(project, words, text),
        start=lambda words: _start(project, words),
        stop=lambda stream, pid: _stop(project, stream, pid),
    )


def listing_of(project: Project) -> Listing:
    tracker = open_tracker(project)
    traits = tracker.traits
    return Listing(tuple(tracker.under("")), traits.by_status, tracker.name, traits.verbs, traits.edits)


def details_of(project: Project, mission: str) -> Details:
    """Read a mission's files on disk."""
    check_id(mission)
    with MissionReader(project) as reader:
        changes, diff = _diff(project, reader.summary(mission, ""))
        return Details(
            changes=changes,
            diff=diff,
            worklog=_worklog(project, mission),
            logs="\n".join(_logs(Shelf(project, reader.journal, mission))),
        )


def _diff(project: Project, summary: MissionSummary) -> tuple[str, str]:
    """Return the changed files and their diff: of a merged mission its merge, else its work so far."""
    _, note = summary.to_compare()
    changes, diffs = [], []
    room = _LONGEST_DIFF
    for old, new, paths in compared(project, summary):
        few = ["--", *map(os.fsdecode, paths[:_MOST_FILES])]
        big = ("--literal-pathspecs", "-c", f"core.bigFileThreshold={_LARGEST_FILE}", *_LISTED)
        changes.append(project.git.content(*big, "--stat=78", old, new, *few).out.decode(errors="replace"))
        diff = project.git.content(*big, "-p", old, new, *few).out[:room].decode(errors="replace")
        room -= len(diff)
        diffs.append(diff)
        if len(paths) > _MOST_FILES:
            changes.append(f"... and {len(paths) - _MOST_FILES} more files")
        if room <= 0:
            changes.append(f"(cut here; all of it: git diff {old[:12]} {new[:12]})")
            break
    return "\n".join([note, *changes]) if changes else "", "\n".join(diffs)


def _worklog(project: Project, mission: str) -> str:
    """Return the worklog: from the worktree while the mission is under way, later from the logs."""
    home = project.root / ".capsule"
    for folder in (home / "worktrees" / mission, home / "missions" / mission, home / "logs" / mission):
        if folder.is_dir() and not folder.is_symlink() and (words := end_of(folder / "worklog.md", _TAIL + 1)):
            return _MARK.sub("", f"…{words[1:]}" if len(words.encode()) > _TAIL else words).strip("\n")
    return ""


def _logs(shelf: Shelf) -> Iterator[str]:
    """Yield the end of what each of the last agents printed."""
    outputs = shelf.outputs()
    if len(outputs) > _MOST_OUTPUTS:
        yield f"(earlier output: capsule logs {shelf.mission})"
    for output in outputs[-_MOST_OUTPUTS:]:
        yield f"==> {output.title}"
        yield end_of(output.file, _TAIL) or "Nothing was printed.\n"


# ---- doing


def _remove_tab_size() -> None:
    """Remove the size of a browser tab from the environment: commands would mistake it for a terminal's."""
    if in_a_browser():
        for name in ("COLUMNS", "ROWS"):
            os.environ.pop(name, None)


def _do(project: Project, words: Sequence[str], text: str) -> CommandResult:
    _remove_tab_size()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "capsule", *words],
        cwd=project.root,
        input=text.encode(errors="replace"),
        capture_output=True,
        umask=of_the_user(),
        start_new_session=True,  # a confirmed action is completed even if the terminal goes away
        check=False,
    )
    return CommandResult(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def _start(project: Project, words: Sequence[str]) -> StartedRun:
    _remove_tab_size()
    runner = start_runner(project.root, words)
    return StartedRun(runner.pid, lambda: CommandResult(runner.wait(), runner.out(), runner.err()))


def _stop(project: Project, stream: str, pid: int) -> CommandResult:
    with MissionReader(project) as reader:
        cannot = ask_to_stop(reader.journal, stream, pid)
    return CommandResult(1, err=cannot) if cannot else CommandResult(0, "Stopping; progress is kept.")
