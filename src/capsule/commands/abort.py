"""End a mission: its process if it runs, its agent, its worktree.

The branch capsule-ID stays, and uncommitted work is kept under refs/capsule/salvage/ID/. The item is free again.

Exit code: 0 done; 1 there is no such mission.
"""

from __future__ import annotations

import argparse

from capsule.app.endings import abandon
from capsule.app.inbox import command_for
from capsule.commands.arguments import say, warn
from capsule.commands.clean import merged_already
from capsule.commands.each_item import do_each, items_argument
from capsule.project import Project, open_project

arguments = items_argument


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    return do_each(args.item, lambda mission: _abort(project, mission))


def _abort(project: Project, mission: str) -> None:
    ended = abandon(project, mission, branch=False)
    if ended is None:
        say(f"{mission} has no worktree; there is nothing to end.")
        return
    warn(ended.warnings)
    if ended.was_running:
        say(f"{mission} was running; it has been stopped.")
    kept = f"its branch capsule-{mission} is kept" if ended.branch_kept else "what is committed stays"
    say(f"{mission} is aborted; {kept}.")
    if ended.salvage:
        say(f"  salvaged:    {ended.salvage}")
    item = next((item for item in project.tracker.items() if item.id == mission), None)
    helps = command_for(project, item) if item else ""
    if ended.merged:
        say(f"  {merged_already(ended)}")
    elif helps:
        say(f"  next:        {helps}")
    else:  # steps that are committed are not done again
        say(f"  {'start over:' if ended.branch_kept else 'go on:     '}  capsule run {mission}")
