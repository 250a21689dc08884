"""`capsule advance ID`: a human moves an item on."""

from __future__ import annotations

import argparse

from capsule.app.moves import advance
from capsule.commands.arguments import commit_option, item_argument, project_option, warn
from capsule.core.item import stands_at
from capsule.project import open_project, open_tracker

DESCRIPTION = """\
Move an item one step on: new and researching ones become scoped, scoped ones ready, ready ones are begun, and one that
is in progress goes to its next phase. With --to it goes to that phase: forwards where the documents of every phase in
between are written, backwards always. It is for the items of a backlog: beads have no phases to be moved between.

  capsule advance WRK-003
  capsule advance WRK-003 --to build      the PRD, TECH_RESEARCH, DESIGN and SPEC are there already
  capsule advance WRK-003 --to design     design it again

Exit code: 0 moved; 1 the move is refused, or there is no such item; 2 there is no such phase; 3 it is running.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--to", metavar="PHASE", help="the phase to go on from")
    commit_option(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    moved = advance(project, open_tracker(project), args.item, to=args.to or "", no_commit=args.no_commit)
    warn(moved.warnings)
    print(f"{moved.before.id} is {stands_at(moved.after)}; it was {stands_at(moved.before)}.")
    return 0
