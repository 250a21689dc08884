"""Work for missions on Temporal: do their steps on this machine, until you stop it.

Start one on each machine, in a clone of the project. The settings say which server (`temporal.address`), and which
project (`project.id`). Ctrl-C, or SIGTERM, drains it: steps under way are finished, and no new one is begun. A second
one ends them; their missions go on elsewhere from the last checkpoint.

  capsule worker                     do one step at a time
  capsule worker --slots 8           up to eight at the same time
  capsule worker --can gpu,java      also those of projects that ask for a label (temporal.label)
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from capsule.commands.arguments import say
from capsule.core.errors import PrerequisiteMissing, UsageError
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--slots", metavar="N", type=int, default=1, help="how many steps to do at the same time")
    parser.add_argument("--can", metavar="LABELS", default="", help="labels of this machine, such as gpu,java")


def run(args: argparse.Namespace) -> int:
    if args.slots < 1:
        raise UsageError("--slots must be 1 or more.", "It counts the steps that this machine does at the same time.")
    project = open_project(args.project_dir)
    refuse_without_sdk()
    from capsule.temporal.worker import work  # noqa: PLC0415 - an optional dependency

    labels = [label.strip() for label in args.can.split(",") if label.strip()]
    asyncio.run(work(project, args.slots, labels, say))
    sys.stdout.flush()
    os._exit(0)  # threads of the SDK are still there, and Python would crash when it ends beside them


def refuse_without_sdk() -> None:
    """Refuse to go on without the SDK, and say how to get it."""
    try:
        import temporalio  # noqa: F401, PLC0415 - an optional dependency
    except ImportError:
        raise PrerequisiteMissing(
            "Temporal's SDK is not installed.", "Install it with Capsule: pip install 'capsule-pipeline[temporal]'"
        ) from None
