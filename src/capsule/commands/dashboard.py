"""Browse items, watch and control missions, and look into past ones.

Actions: run, stop, abort, unblock, advance, approve, complete, close. Each asks for confirmation and is the command of
that name. Missions are processes of their own: they keep running when the dashboard is closed or killed.

  capsule dashboard                  on this terminal; ? lists the keys
  capsule dashboard --plain          as text, then one line for each change; for screen readers, files and pipes
  capsule dashboard --plain --once   as text, then exit
  capsule dashboard --web            in a browser, on this machine

Exit code: 0 closed; 2 there is no terminal, or nothing can be shown; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from capsule.app.runners import start_runner
from capsule.commands.arguments import say, tell
from capsule.commands.logs import Shelf
from capsule.commands.output import why_no_screen
from capsule.commands.watching import JournalWatcher, MissionReader, ask_to_stop, end_of
from capsule.core.board import Board
from capsule.core.errors import CapsuleError, UsageError
from capsule.core.history import MissionSummary
from capsule.core.item import check_id
from capsule.core.outline import outline
from capsule.project import Project, open_project, open_tracker
from capsule.reports.board_lines import board_lines, changes, item_lines
from capsule.system.umask import of_the_user
from capsule.tui.actions import CommandResult, DashboardActions, Details, Listing, StartedRun
from capsule.tui.tab import in_a_browser

PULSE = 0.5
_AS_TEXT = "Use text: capsule dashboard --plain"
_LONGEST_DIFF = 400 * 1024
_MOST_FILES = 100
_LARGEST_FILE = "256k"
"""Larger files are not compared line by line: a diff for people, not for programs."""
_TAIL = 64 * 1024
"""Agents write files of any length; what is new is at the end."""
_MOST_OUTPUTS = 6
_LISTED = ("diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--plain", action="store_true", help="text instead of a screen")
    parser.add_argument("--once", action="store_true", help="with --plain: print once and exit")
    parser.add_argument("--web", action="store_true", help="serve it to a browser")
    parser.add_argument("--port", metavar="N", type=int, help="with --web: the port (default: a free one)")
    parser.add_argument(
        "--host", metavar="ADDR", help="with --web: the address to serve on (default: this machine only)"
    )


def run(args: argparse.Namespace) -> int:
    if args.web and args.plain:
        raise UsageError("--web and --plain exclude each other.", "Drop one of them.")
    if args.once and not args.plain:
        raise UsageError("--once requires --plain.", "capsule dashboard --plain --once")
    if (args.port is not None or args.host) and not args.web:
        raise UsageError("--port and --host require --web.", "capsule dashboard --web --port N")
    if args.web:
        from capsule.commands.web import serve  # noqa: PLC0415 - only for a browser

        return serve(args)
    if args.plain:
        return show_board(open_project(args.project_dir), once=args.once)
    against = "" if in_a_browser() else why_no_screen()
    if against:
        raise UsageError(f"The dashboard needs a terminal, and {against}.", _AS_TEXT)
    try:
        from capsule.tui.dashboard import Dashboard  # noqa: PLC0415 - Textual is loaded only for a screen
    except ImportError as fault:
        raise CapsuleError(f"The dashboard cannot be loaded: {fault}.", f"Install Capsule again. {_AS_TEXT}") from None
    dashboard = Dashboard(actions_for(open_project(args.project_dir)))
    dashboard.open()
    running = [view.mission for view in dashboard.model.board.missions if view.running and not view.parent]
    if running and not in_a_browser():
        named = ", ".join(running[:3]) + (f" and {len(running) - 3} more" if len(running) > 3 else "")
        say(f"Still running: {named}. Watch: capsule dashboard")
    return 0


def show_board(project: Project, *, once: bool) -> int:
    watcher = JournalWatcher(project)
    board = watcher.look()
    say("\n".join([*board_lines(board), ""]))  # a tracker may take long
    say("\n".join(_items(project, board)))
    while not once:
        time.sleep(PULSE)
        before, board = board, watcher.look()
        for line in changes(before, board):
            say(f"{board.at[11:19]} {line}")
    return 0


def _items(project: Project, board: Board) -> Iterator[str]:
    """List the items; a tracker that cannot be read is reported, and the missions are shown all the same."""
    try:
        listing = listing_of(project)
    except CapsuleError as fault:
        tell(f"capsule: {fault.message}\n  {fault.hint}")
        yield "Items: cannot be read."
        return
    entries = outline(listing.items, board, by_status=listing.by_status)
    yield f"Items: {sum(entry.item is not None for entry in entries)} in {listing.tracker}."
    yield from item_lines(entries)


# ---- what the screen is given


def actions_for(project: Project) -> DashboardActions:
    """Return the functions that the screen calls from threads; the journal is always read by the same one.

    What changes anything is `capsule` with the words that a person would type, in a process of its own.
    """
    watcher = JournalWatcher(project)
    return DashboardActions(
        name=project.root.name,
        look=watcher.look,
        items=lambda: listing_of(project),
        details=lambda mission: details_of(project, mission),
        do=lambda words: _do(project, words),
        start=lambda words: _start(project, words),
        stop=lambda stream, pid: _stop(project, stream, pid),
    )


def listing_of(project: Project) -> Listing:
    tracker = open_tracker(project)
    return Listing(tuple(tracker.under("")), tracker.traits.by_status, tracker.name, tracker.traits.verbs)


def details_of(project: Project, mission: str) -> Details:
    """Read what is on disk of a mission."""
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
    """Return which files differ, and how: of a merged mission what it brought, else what it has so far."""
    pairs, note = summary.to_compare()
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
            changes.append(f"(cut here; all of it: git diff {old[:12]} {new[:12]})")
            break
    return "\n".join(changes), "\n".join(diffs)


def _worklog(project: Project, mission: str) -> str:
    """Return the worklog: beside the work while the mission is under way, afterwards with the logs."""
    home = project.root / ".capsule"
    for folder in (home / "worktrees" / mission, home / "missions" / mission, home / "logs" / mission):
        if folder.is_dir() and not folder.is_symlink() and (words := end_of(folder / "worklog.md", _TAIL + 1)):
            return f"…{words[1:]}" if len(words.encode()) > _TAIL else words
    return ""


def _logs(shelf: Shelf) -> Iterator[str]:
    """Yield the end of what each of the last agents printed."""
    outputs = shelf.outputs()
    if len(outputs) > _MOST_OUTPUTS:
        yield f"(earlier output: capsule logs {shelf.mission})"
    for output in outputs[-_MOST_OUTPUTS:]:
        yield f"==> {output.title}"
        yield end_of(output.file, _TAIL)


# ---- doing


def _remove_tab_size() -> None:
    """Remove the size of a browser tab from the environment: commands would take it for a terminal's."""
    if in_a_browser():
        for name in ("COLUMNS", "ROWS"):
            os.environ.pop(name, None)


def _do(project: Project, words: Sequence[str]) -> CommandResult:
    _remove_tab_size()
    done = subprocess.run(
        [sys.executable, "-P", "-m", "capsule", *words],
        cwd=project.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        umask=of_the_user(),
        start_new_session=True,  # what was confirmed is done, also where the terminal goes away
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
