"""Do the same to several items: what fails is told, and the others are done all the same."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from capsule.commands.arguments import ITEM_ID, tell
from capsule.core.errors import CapsuleError
from capsule.core.item import check_id


def items_argument(parser: argparse.ArgumentParser, *, nargs: str = "+") -> None:
    parser.add_argument("item", metavar="ID", type=ITEM_ID, nargs=nargs, help="the ids of items in their tracker")


def do_each(ids: Sequence[str], do: Callable[[str], object]) -> int:
    """Do it to each item once; return 0, or the highest exit code of those that failed."""
    names = [check_id(item) for item in dict.fromkeys(ids)]
    if len(names) == 1:
        do(names[0])
        return 0
    worst = 0
    for name in names:
        try:
            do(name)
        except CapsuleError as fault:
            worst = max(worst, fault.exit_code)
            tell("\n  ".join(filter(None, (f"capsule: {fault.message}", fault.hint))))
    return worst
