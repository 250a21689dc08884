"""`capsule dashboard --plain`: the same board as text, and then one line for each change."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from capsule.core.board import Board
    from capsule.project import Project

PULSE = 0.5


def show_board(project: Project, *, once: bool) -> int:
    from capsule.commands.watching import Eyes
    from capsule.reports.board_lines import board_lines, changes

    eyes = Eyes(project)
    board = eyes.look()
    print("\n".join([*board_lines(board), ""]), flush=True)  # a tracker may take long
    print("\n".join(_items(project, board)), flush=True)
    while not once:
        time.sleep(PULSE)
        before, board = board, eyes.look()
        for line in changes(before, board):
            print(f"{board.at[11:19]} {line}", flush=True)
    return 0


def _items(project: Project, board: Board) -> Iterator[str]:
    """A tracker that cannot be read takes nothing away from the missions."""
    from capsule.commands.dashboard_hands import listing_of
    from capsule.core.outline import outline
    from capsule.reports.board_lines import item_lines

    try:
        listing = listing_of(project)
    except CapsuleError as fault:
        print(f"capsule: {fault.message}\n  {fault.hint}", file=sys.stderr)
        yield "Items: they cannot be read."
        return
    entries = outline(listing.items, board, by_status=listing.by_status)
    yield f"Items: {sum(entry.item is not None for entry in entries)} in {listing.tracker}."
    yield from item_lines(entries)
