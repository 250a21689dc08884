"""Browse items, watch and control missions, and look into past ones.

Actions: run, stop, abort, unblock, advance, approve, complete, close. Each asks for confirmation and is the command of
that name. Missions are processes of their own: they keep running when the dashboard is closed or killed.

It opens on what needs you, if anything does: each question in full, with its answers.

  capsule dashboard                  on this terminal; ? lists the keys
  capsule dashboard --plain          as text, then one line for each change; for screen readers, files and pipes
  capsule dashboard --plain --once   as text, then exit
  capsule dashboard --web            a page in a browser, on this machine

Exit code: 0 closed; 2 there is no terminal, or nothing can be shown; 130 ended by Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

from capsule.actions import Listing
from capsule.commands.arguments import say, tell
from capsule.commands.output import why_no_screen
from capsule.commands.screen_actions import actions_for, listing_of
from capsule.commands.watching import JournalWatcher
from capsule.core.board import Board
from capsule.core.errors import CapsuleError, UsageError
from capsule.core.inbox import inbox
from capsule.core.outline import outline
from capsule.project import Project, open_project
from capsule.reports.board_lines import board_lines, changes, item_lines
from capsule.reports.questions import question_lines
from capsule.reports.style import Style, output_width
from capsule.tui.tab import in_a_browser

PULSE = 0.5
_AS_TEXT = "Use text: capsule dashboard --plain"


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
    listing = _read(project)
    asked = inbox(board, listing.items if listing else None)
    say("\n".join([*question_lines(asked, board.at, Style(sys.stdout), output_width(sys.stdout)), ""]))
    say("\n".join([*board_lines(board), ""]))
    say("\n".join(_items(listing, board)))
    while not once:
        time.sleep(PULSE)
        before, board = board, watcher.look()
        for line in changes(before, board):
            say(f"{board.at[11:19]} {line}")
    return 0


def _read(project: Project) -> Listing | None:
    """Read the items; a tracker that cannot be read is reported, and the missions are shown all the same."""
    try:
        return listing_of(project)
    except CapsuleError as fault:
        tell(f"capsule: {fault.message}\n  {fault.hint}")
        return None


def _items(listing: Listing | None, board: Board) -> Iterator[str]:
    if listing is None:
        yield "Items: cannot be read."
        return
    entries = outline(listing.items, board, by_status=listing.by_status)
    yield f"Items: {sum(entry.item is not None for entry in entries)} in {listing.tracker}."
    yield from item_lines(entries)
