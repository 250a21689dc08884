"""`capsule abort ID`."""

from __future__ import annotations

import argparse

from capsule.commands.arguments import item_argument, project_option
from capsule.core.item import check_id

DESCRIPTION = """\
End a mission: its process if it runs, its agent, its worktree. The branch capsule-ID stays, and whatever was not
committed is kept under refs/capsule/salvage/ID/. The item is free again.

Exit code: 0 done; 1 there is no such mission.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.common import known_mission
    from capsule.commands.ending import end_mission, leftovers, stop_runner
    from capsule.wiring import open_project

    mission = check_id(args.item)
    project = open_project(args.project_dir)
    if not leftovers(project, mission):
        known_mission(project, mission)
        print(f"{mission} has no worktree; there is nothing to end.")
        return 0
    if stop_runner(project, mission):
        print(f"{mission} was running; it has been stopped.")
    salvage = end_mission(project, mission, how="aborted", branch=False)
    branch = f"capsule-{mission}"
    kept = f"its branch {branch} is kept" if project.git.resolve(f"refs/heads/{branch}") else "what is committed stays"
    print(f"{mission} is aborted; {kept}.")
    if salvage:
        print(f"  salvaged:    {salvage}")
    print(f"  start over:  capsule run {mission}")
    return 0
