"""Print the version of Capsule."""

from __future__ import annotations

import argparse

from capsule import __version__


def run(_args: argparse.Namespace) -> int:
    print(f"capsule {__version__}")
    return 0
