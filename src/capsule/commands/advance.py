"""Move a backlog item to its next step, or to a phase.

New and researching items become scoped, scoped ones ready, ready ones start, and one in progress goes to its next
phase. --to PHASE goes forward if the documents of every phase in between exist, and backward always. Beads have no
phases to move between.

  capsule advance WRK-003
  capsule advance WRK-004 WRK-005
  capsule advance WRK-003 --to build      the PRD, TECH_RESEARCH, DESIGN and SPEC exist already
  capsule advance WRK-003 --to design     design it again

Exit code: 0 moved; 1 the move is refused, or there is no such item; 2 there is no such phase; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.items import Moved
from capsule.app.moves import advance
from capsule.commands.arguments import commit_option, say, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.core.item import status_and_phase
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser)
    parser.add_argument("--to", metavar="PHASE", help="the phase to continue from")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    to = args.to or ""
    return do_each(args.item, lambda item: _tell(advance(project, item, to=to, no_commit=args.no_commit)))


def _tell(moved: Moved) -> None:
    warn(moved.warnings)
    say(f"{moved.before.id} is {status_and_phase(moved.after)}; it was {status_and_phase(moved.before)}.")
