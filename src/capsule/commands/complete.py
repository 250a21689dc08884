"""Mark an item as done, in any status.

A mission under way ends; its uncommitted work is salvaged first. An item of a backlog is removed from it and recorded
in this month's worklog; its id is never reused. A bead is closed, unless it holds open items: complete these first. If
its tracker refuses, because the bead is blocked or waits at a gate, nothing is changed and the reason is shown.

  capsule complete WRK-003 WRK-004
  capsule complete demo-1.1.1

For an item that will not be done, use `capsule close`.
Exit code: 0 archived or closed; 1 there is no such item, or its tracker refuses; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import Archived, complete
from capsule.commands.arguments import commit_option, say, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.project import open_project
from capsule.reports.style import clean


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser)
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    return do_each(args.item, lambda item: report(complete(project, item, no_commit=args.no_commit), "completed"))


def report(done: Archived, how: str) -> None:
    item, ended, warnings = done
    warn(warnings)
    say(f"{item.id} is {how}: {clean(item.title)}")
    if ended:
        say(f"  its mission has ended{f'; its work is kept as {ended.salvage}' if ended.salvage else ''}")
