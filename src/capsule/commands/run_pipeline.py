"""`capsule run-pipeline ID`: `capsule run` for exactly the items that are named, never for the queue."""

from __future__ import annotations

import argparse

from capsule.commands import run as run_command
from capsule.core.errors import UsageError

DESCRIPTION = """\
The same as `capsule run ID`, for scripts: it takes the items that are named and nothing else. Without an id it is
refused, where `capsule run` would work through the whole queue.

  capsule run-pipeline demo-1.1.1
  capsule run-pipeline demo-1.1.1 --max-retries=2 --project-dir=../shop

Exit codes are those of `capsule run`; 2 also where no id is given.
"""

arguments = run_command.arguments


def run(args: argparse.Namespace) -> int:
    if args.item is None and not args.target:
        hint = "Say `capsule run-pipeline ID`; `capsule run` works through the queue."
        raise UsageError("`capsule run-pipeline` needs the id of an item.", hint)
    return run_command.run(args)
