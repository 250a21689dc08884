"""`capsule close ID --reason TEXT`: it will not be done."""

from __future__ import annotations

import argparse

from capsule.commands import complete

DESCRIPTION = """\
Say that an item will not be done, and why: it leaves the backlog, and the worklog of this month remembers both. A
mission that was under way ends; what it left uncommitted is salvaged first.

  capsule close WRK-003 --reason "the customer has left"

For an item that is done there is `capsule complete`.
Exit code: 0 archived; 1 there is no such item; 2 no reason is given; 3 it is running.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    complete.arguments(parser)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="why not; - reads it from stdin")


def run(args: argparse.Namespace) -> int:
    from capsule.commands.moving import text_of
    from capsule.core.errors import UsageError

    why = " ".join(text_of(args.reason).split())
    if not why:
        raise UsageError("The reason is empty.", "Say why it will not be done: somebody will ask.")
    return complete.archive(args, why)
