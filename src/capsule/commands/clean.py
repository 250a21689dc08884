"""End missions as `abort` does, and delete their branches.

Commits and uncommitted files stay reachable under refs/capsule/salvage/ID/; logs and journal are kept. --all cleans
every mission that has a worktree, except those that are running.

Exit code: 0 done; 1 there is no such mission.
"""

from __future__ import annotations

import argparse

from capsule.app.endings import EndedMission, abandon, clean_all, worktrees
from capsule.commands.arguments import say, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.core.errors import UsageError
from capsule.project import Project, open_project
from capsule.reports.style import clean


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser, nargs="*")
    parser.add_argument("--all", action="store_true", help="every mission that has a worktree")


def run(args: argparse.Namespace) -> int:
    if bool(args.item) == args.all:
        raise UsageError("`clean` takes IDs, or --all.", "`capsule clean --help` describes both.")
    project = open_project(args.project_dir)
    if args.all:
        return clean_everything(project)
    return do_each(args.item, lambda mission: _clean(project, mission))


def _clean(project: Project, mission: str) -> None:
    ended = abandon(project, mission, branch=True)
    if ended is None:
        say(f"{mission} has nothing left to clean.")
    else:
        _print(ended)


def clean_everything(project: Project) -> int:
    """Clean every mission that does not run, and report the others."""
    missions, foreign = worktrees(project)
    for name in foreign:
        say(f".capsule/worktrees/{clean(name)} was not made by Capsule; left alone.")
    ended = None
    for ended in clean_all(project, missions):
        _print(ended)
    if ended is None:
        say("Nothing to clean.")
    return 0


def _print(ended: EndedMission) -> None:
    warn(ended.warnings)
    if ended.running is not None:
        where = f"(pid {ended.running}); left alone. `capsule abort {ended.mission}` ends it."
        say(f"{ended.mission} is running {where if ended.running else 'somewhere else; left alone.'}")
    else:
        say(f"{ended.mission} is cleaned.{f' Salvaged: {ended.salvage}' if ended.salvage else ''}")
        if ended.merged:
            say(merged_already(ended))


def merged_already(ended: EndedMission) -> str:
    """Report a merged item, which must not be done again."""
    closed = "" if ended.warnings else "; its item is closed"
    return f"{ended.mission} was merged as {ended.merged[:12]}{closed}."
