"""Print the ids of the open items, for shell completion; nothing outside of a project."""

from __future__ import annotations

import argparse

from capsule.core.errors import CapsuleError
from capsule.project import open_project


def run(_: argparse.Namespace) -> int:
    try:
        print("\n".join(item.id for item in open_project(None).tracker.items()))
    except CapsuleError:
        return 1  # a completion prints no errors
    return 0
