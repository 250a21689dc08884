"""`capsule teardown`."""

from __future__ import annotations

import argparse

from capsule.app.endings import empty_output
from capsule.commands.arguments import project_option
from capsule.commands.clean import clean_everything
from capsule.project import open_project

DESCRIPTION = """\
Clean every mission that has a worktree (see `capsule clean`), and empty .capsule/output/. Archived logs and the journal
are kept, and everything else is salvaged first. A mission that is running is left alone, by name.

Exit code: 0, also where there was nothing to do.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    clean_everything(project)
    if empty_output(project):
        print("Emptied .capsule/output.")
    return 0
