"""`capsule step ID`: one agent, then stop."""

from __future__ import annotations

import argparse

from capsule.commands.arguments import agent_options, item_argument, project_option
from capsule.commands.common import flags_of
from capsule.commands.triage import limits
from capsule.core.item import check_id

DESCRIPTION = """\
Take an item one agent further: its next phase is run, checked and recorded, and then it stops. Run it again for the
next, or let `capsule run ID` go all the way.

  capsule step WRK-001

Exit code: 0 the phase ended and is recorded; 1 the item is blocked or its retries are gone; 2 an agent or a
prerequisite failed; 3 another run is at work; 130 stopped by a signal.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)
    agent_options(parser)
    limits(parser, cap=False)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.queue import run_queue
    from capsule.wiring import open_project, open_tracker

    args.cap = 1
    project = open_project(args.project_dir, flags_of(args))
    return run_queue(project, open_tracker(project), args, [check_id(args.item)])
