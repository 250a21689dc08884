"""`capsule teardown`."""

from __future__ import annotations

import argparse

from capsule.commands.arguments import project_option

DESCRIPTION = """\
Clean every mission that has a worktree (see `capsule clean`), and empty .capsule/output/. Archived logs and the journal
are kept, and everything else is salvaged first. A mission that is running is left alone, by name.

Exit code: 0, also where there was nothing to do.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    import shutil

    from capsule.commands.clean import clean_all
    from capsule.commands.ending import worktrees
    from capsule.wiring import open_project

    project = open_project(args.project_dir)
    clean_all(project, *worktrees(project))
    output = project.root / ".capsule" / "output"
    if output.is_dir():
        shutil.rmtree(output)
        print("Emptied .capsule/output.")
    return 0
