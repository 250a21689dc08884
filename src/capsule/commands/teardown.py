"""Remove all worktrees; keep logs and journal.

It cleans every mission that has a worktree (see `capsule clean`), and empties .capsule/output/. Everything that is not
kept is salvaged first. Missions that are running are named and left alone.

Exit code: 0, also if there was nothing to do.
"""

from __future__ import annotations

import argparse

from capsule.app.endings import empty_output
from capsule.commands.clean import clean_everything
from capsule.project import open_project


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    clean_everything(project)
    if empty_output(project):
        print("Emptied .capsule/output.")
    return 0
