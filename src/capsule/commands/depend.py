"""Add or remove dependencies of items.

  capsule depend WRK-003 --on WRK-001
  capsule depend WRK-003 WRK-004 --on WRK-001 --on WRK-002
  capsule depend WRK-003 --off WRK-001

An item that would wait for itself is refused, with the cycle.
Exit code: 0 changed, or so already; 1 it is refused, or there is no such item; 2 usage; 3 it is running.
"""

from __future__ import annotations

import argparse
from functools import partial

from capsule.app.editing import depend
from capsule.app.items import Moved
from capsule.commands.arguments import ITEM_ID, commit_option, say, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.core.errors import UsageError
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser)
    first = "an item that must be done first; may be given several times"
    parser.add_argument("--on", metavar="ID", type=ITEM_ID, action="append", default=[], help=first)
    last = "a dependency to remove"
    parser.add_argument("--off", metavar="ID", type=ITEM_ID, action="append", default=[], help=last)
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    if not (args.on or args.off):
        raise UsageError("No other item is named.", "capsule depend ID --on OTHER")
    project = open_project(args.project_dir)
    change = partial(depend, project, on=args.on, off=args.off, no_commit=args.no_commit)
    return do_each(args.item, lambda item: _tell(item, change(item)))


def _tell(item: str, moved: Moved | None) -> None:
    if moved is None:
        say(f"{item}: nothing to change.")
        return
    warn(moved.warnings)
    waits = ", ".join(moved.after.dependencies)
    say(f"{item} waits for {waits}." if waits else f"{item} no longer waits for anything.")
