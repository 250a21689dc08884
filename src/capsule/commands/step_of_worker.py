"""Do one step for a worker, which writes the task to stdin. `capsule worker` starts it; people do not."""

from __future__ import annotations

import argparse

from capsule.temporal.steps import run_step


def run(_args: argparse.Namespace) -> int:
    return run_step()
