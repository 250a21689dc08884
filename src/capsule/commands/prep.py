"""Create a worktree and a worklog for an item, nothing more.

The worktree is .capsule/worktrees/ID, on branch capsule-ID, from HEAD; its worklog.md holds the item's briefing.
`capsule run ID` adopts it later.

Prints the worktree, the branch and the worklog. Exit code: 0 made; 1 anything else.
"""

from __future__ import annotations

import argparse

from capsule.app.running import prepare
from capsule.commands.arguments import item_argument, warn
from capsule.core.errors import CapsuleError
from capsule.core.item import check_id
from capsule.project import open_project

arguments = item_argument


def run(args: argparse.Namespace) -> int:
    try:
        item = check_id(args.item)
        project = open_project(args.project_dir)
        worktree, branch, notes = prepare(project, item)
    except CapsuleError as refused:
        refused.exit_code = refused.exit_code if refused.exit_code == 3 else 1
        raise
    warn(f"note: {note}" for note in notes)
    print(f"Worktree: {worktree}")
    print(f"Branch: {branch}")
    print(f"Worklog: {worktree / 'worklog.md'}")
    return 0
