"""`capsule clean ID` and `capsule clean --all`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.core.errors import UsageError
from capsule.core.item import check_id

if TYPE_CHECKING:
    from capsule.wiring import Project

DESCRIPTION = """\
End a mission as `abort` does, delete its branch too, and prune. Commits and uncommitted files stay reachable under
refs/capsule/salvage/ID/; logs and journal are kept. `--all` does it for every mission that has a worktree, except
those that are running.

Exit code: 0 done; 1 there is no such mission.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="?")
    parser.add_argument("--all", action="store_true", help="every mission that has a worktree")
    project_option(parser)


def run(args: argparse.Namespace) -> int:
    from capsule.commands.ending import worktrees
    from capsule.wiring import open_project

    if bool(args.item) == args.all:
        raise UsageError("`clean` takes an ID, or --all.", "`capsule clean --help` says what each does.")
    project = open_project(args.project_dir)
    if args.all:
        return clean_all(project, *worktrees(project))
    return _clean_one(project, check_id(args.item))


def _clean_one(project: Project, mission: str) -> int:
    from capsule.commands.common import known_mission
    from capsule.commands.ending import end_mission, leftovers, stop_runner

    if not leftovers(project, mission):
        known_mission(project, mission)
        print(f"{mission} has nothing left to clean.")
        return 0
    stop_runner(project, mission)
    _say(mission, end_mission(project, mission, how="cleaned", branch=True))
    return 0


def clean_all(project: Project, missions: list[str], strangers: list[str]) -> int:
    """A running mission is left alone, by name; so is a folder that is not ours."""
    from capsule.commands.ending import end_mission
    from capsule.reports.style import clean

    for name in strangers:
        print(f".capsule/worktrees/{clean(name)} was not made by Capsule; left alone.")
    journal = project.journal()
    for mission in missions:
        pid = journal.running(mission)
        if pid is not None:
            print(f"{mission} is running (pid {pid}); left alone. `capsule abort {mission}` ends it.")
        else:
            _say(mission, end_mission(project, mission, how="cleaned", branch=True))
    if not missions:
        print("Nothing to clean.")
    return 0


def _say(mission: str, salvage: str) -> None:
    print(f"{mission} is cleaned.{f' Salvaged: {salvage}' if salvage else ''}")
