"""Approve an item of the backlog that waits for a decision: a spelling of `capsule answer ID --approve`.

It exceeds a guardrail, or requires a review. It returns to the status it was blocked from, and is not asked about
again. For an item that waits for an answer, and for beads, use `capsule unblock`.

  capsule approve WRK-003 WRK-004
  capsule approve WRK-003 --notes "Fine, but keep the old name."

Exit code: 0 approved; 1 it does not wait for a decision, or there is no such item; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import approve
from capsule.commands import unblock
from capsule.commands.arguments import text_of
from capsule.commands.each_item import do_each
from capsule.project import open_project

arguments = unblock.arguments


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    notes = text_of(args.notes)
    return do_each(
        args.item, lambda item: unblock.report(approve(project, item, notes, no_commit=args.no_commit), notes)
    )
