"""Print the version of Capsule."""

from __future__ import annotations

import argparse

from capsule import __version__


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    print(f'{{"version":"{__version__}"}}' if args.json else f"capsule {__version__}")
    return 0
