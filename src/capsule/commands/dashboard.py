"""`capsule dashboard`: items, missions and history on one screen."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import project_option
from capsule.commands.output import what_stands_against_a_screen
from capsule.core.errors import CapsuleError, UsageError

if TYPE_CHECKING:
    from capsule.core.board import Board

DESCRIPTION = """\
Browse the items, watch every mission, whoever started it and wherever, look into those that have ended, and do what
there is to do: run, stop, abort, unblock, advance, approve, complete, close. Each asks first, and is the command of
that name. Missions are processes of their own: they go on when the dashboard is left or killed.

  capsule dashboard                  on this terminal: ? says what each key does
  capsule dashboard --plain          as text, and then a line for each change; for screen readers, files and pipes
  capsule dashboard --plain --once   as text, and that is all
  capsule dashboard --web            in a browser, on this machine

Exit code: 0 left; 2 there is no terminal, or nothing can be shown; 130 ended by Ctrl-C.
"""

_AS_TEXT = "Have it as text: capsule dashboard --plain"


def arguments(parser: argparse.ArgumentParser) -> None:
    project_option(parser)
    parser.add_argument("--plain", action="store_true", help="text instead of a screen")
    parser.add_argument("--once", action="store_true", help="with --plain: how things stand now, and nothing after it")
    parser.add_argument("--web", action="store_true", help="serve it to a browser")
    parser.add_argument("--port", metavar="N", type=int, help="with --web: the port (default: a free one)")
    parser.add_argument(
        "--host", metavar="ADDR", help="with --web: the address to serve on (default: this machine only)"
    )


def run(args: argparse.Namespace) -> int:
    _refuse_what_makes_no_sense(args)
    if args.web:
        from capsule.commands.web import serve

        return serve(args)
    from capsule.project import open_project

    if args.plain:
        from capsule.commands.board_plain import show_board

        return show_board(open_project(args.project_dir), once=args.once)
    _refuse_without_a_screen()
    from capsule.commands.dashboard_hands import hands_for

    try:
        from capsule.tui.dashboard import Dashboard
    except ImportError as fault:
        raise CapsuleError(f"The dashboard cannot be loaded: {fault}.", f"Install Capsule again. {_AS_TEXT}") from None
    dashboard = Dashboard(hands_for(open_project(args.project_dir)))
    dashboard.open()
    _say_what_goes_on(dashboard.desk.board)
    return 0


def _refuse_what_makes_no_sense(args: argparse.Namespace) -> None:
    if args.web and args.plain:
        raise UsageError("--web and --plain are two ways to show the same.", "Drop one of them.")
    if args.once and not args.plain:
        raise UsageError("--once is for text.", "Say --plain --once.")
    if (args.port is not None or args.host) and not args.web:
        raise UsageError("--port and --host are for a browser.", "Say --web, too.")


def _refuse_without_a_screen() -> None:
    from capsule.tui.tab import in_a_browser

    if in_a_browser():
        return
    if against := what_stands_against_a_screen():
        raise UsageError(f"The dashboard needs a terminal, and {against}.", _AS_TEXT)


def _say_what_goes_on(board: Board) -> None:
    from capsule.tui.tab import in_a_browser

    running = [view.mission for view in board.missions if view.pid is not None and not view.parent]
    if running and not in_a_browser():
        named = ", ".join(running[:3]) + (f" and {len(running) - 3} more" if len(running) > 3 else "")
        print(f"{named} go{'es' if len(running) == 1 else ''} on. See it again: capsule dashboard")
