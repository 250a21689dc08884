"""Run the next phase of an item, then stop.

The phase is checked and recorded. Run it again for the phase after that; `capsule run ID` runs them all.

  capsule step WRK-001

Exit code: 0 the phase ended and is recorded; 1 the item is blocked or its retries are gone; 2 an agent or a
prerequisite failed; 3 another run holds the lock; 130 stopped by a signal.
"""

from __future__ import annotations

import argparse

from msgspec.structs import replace

from capsule.commands.arguments import agent_options, item_argument
from capsule.commands.headless import run_in_queue
from capsule.commands.request import flags_of, request_of
from capsule.commands.triage import limits
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    agent_options(parser)
    limits(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir, flags_of(args))
    return run_in_queue(project, replace(request_of(args), cap=1), args.output)
