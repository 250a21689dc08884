"""Choose how a run is shown: on a screen, in plain lines, as JSON, or not at all until it ends."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

from capsule.core.errors import UsageError

AUTO, PLAIN, JSON, TUI, NONE = "auto", "plain", "json", "tui", "none"
WAYS = (AUTO, PLAIN, JSON, TUI, NONE)


def output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        choices=WAYS,
        default=AUTO,
        help="tui: a live view; plain: lines; json: one event per line on stdout; none: the closing summary alone; "
        "auto: a live view on a terminal, else plain",
    )
    parser.add_argument("--no-tui", action="store_true", help="plain lines, also on a terminal")


def wants_a_screen(args: argparse.Namespace) -> bool:
    """Tell whether a run is shown in a live view; a dry run never is."""
    if args.no_tui or args.dry_run or args.output not in (AUTO, TUI):
        return False
    against = why_no_screen()
    if against and args.output == TUI:
        raise UsageError(f"No live view: {against}.", "Leave out --output tui for plain lines.")
    if against or (args.output == AUTO and _in_ci()):
        return False
    if find_spec("textual"):
        return True
    print("note: Textual is not installed, so there is no live view; install Capsule again.", file=sys.stderr)
    return False


def is_for_a_screen() -> bool:
    """Tell whether there is an interactive terminal that can show a screen."""
    return not why_no_screen() and not _in_ci() and find_spec("textual") is not None


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def why_no_screen() -> str:
    """Say why there can be no screen, or '': it needs stderr to draw on, stdin for keys, stdout for the summary."""
    for name, stream in (("stdin", sys.stdin), ("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None or not stream.isatty():
            return f"{name} is not a terminal"
    return "TERM is dumb" if os.environ.get("TERM", "dumb") in ("dumb", "") else ""
