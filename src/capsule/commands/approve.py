"""`capsule approve ID`: yes to an item that waits for a decision."""

from __future__ import annotations

import argparse

from capsule.app.moves import approve
from capsule.commands import unblock
from capsule.commands.arguments import text_of
from capsule.project import open_project, open_tracker

DESCRIPTION = """\
Say yes to an item that was blocked for a decision: a guardrail that it exceeds, a review that it requires. It goes back
to where it was, and is not asked about again. An item that waits for an answer is left alone: that is for unblock, and
so are beads, which wait for no decisions.

  capsule approve WRK-003
  capsule approve WRK-003 --notes "Fine, but keep the old name."

Exit code: 0 approved; 1 it does not wait for a decision, or there is no such item; 3 it is running.
"""

arguments = unblock.arguments


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    done = approve(project, open_tracker(project), args.item, text_of(args.notes), no_commit=args.no_commit)
    return unblock.report(done)
