"""Run one mission for a queue, which writes the task to stdin. `capsule run` starts it; people do not."""

from __future__ import annotations

import argparse

from capsule.app.mission_processes import run_for_queue


def run(_args: argparse.Namespace) -> int:
    return run_for_queue()
