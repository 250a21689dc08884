"""Take the named items through their workflow; never the queue.

It is `capsule run ID` for scripts. Without an id it is refused, whereas `capsule run` works through the whole queue.

  capsule run-pipeline demo-1.1.1
  capsule run-pipeline demo-1.1.1 --max-retries=2 --project-dir=../shop

Exit codes are those of `capsule run`; 2 also if no id is given.
"""

from __future__ import annotations

import argparse

from capsule.commands import run as run_command
from capsule.core.errors import UsageError

arguments = run_command.arguments


def run(args: argparse.Namespace) -> int:
    if args.item is None and not args.target:
        hint = "Use `capsule run-pipeline ID`; `capsule run` works through the queue."
        raise UsageError("`capsule run-pipeline` needs the id of an item.", hint)
    return run_command.run(args)
