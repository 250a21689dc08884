"""Close an item that will not be done, with the reason.

A mission under way ends; its uncommitted work is salvaged first. An item of a backlog is removed from it, and this
month's worklog records item and reason. A bead is closed with the reason, unless it holds open items: close these
first. If its tracker refuses, because the bead is blocked or waits at a gate, nothing is changed and the reason is
shown.

  capsule close WRK-003 --reason "the customer has left"
  capsule close demo-1.1.2 demo-1.1.3 --reason "nobody phones any more"

For an item that is done, use `capsule complete`.
Exit code: 0 archived or closed; 1 there is no such item, or its tracker refuses; 2 no reason is given; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import close
from capsule.commands import complete
from capsule.commands.arguments import text_of
from capsule.commands.each_item import do_each
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    complete.arguments(parser)
    parser.add_argument("--reason", metavar="TEXT", required=True, help="the reason; - reads it from stdin")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    why = " ".join(text_of(args.reason).split())
    return do_each(
        args.item, lambda item: complete.report(close(project, item, why, no_commit=args.no_commit), "closed")
    )
