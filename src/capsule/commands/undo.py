"""Undo the last command that changed the backlog; repeat to undo the one before.

It undoes `add`, `import`, `edit`, `depend`, `hold`, `answer`, `unblock`, `approve`, `advance`, `complete`, `close` and
`reopen`, for all items that were named, with commits that revert theirs in the backlog and its worklog, and change
nothing else. It prints what was undone. If the same lines were changed again since, those stay as they are. A restored
item keeps its id; a mission that ended with it stays ended, and its work stays where that command kept it.

  capsule undo

Trackers other than a backlog have no such history: use `capsule edit`, or the tracker itself. For a merge, this prints
the command that reverts it, and does nothing:

  capsule undo WRK-003

Exit code: 0 undone, or the command is printed; 1 there is nothing to undo, or it is refused; 3 the item is running.
"""

from __future__ import annotations

import argparse

from capsule.app.missions import known_mission
from capsule.app.undoing import last_verb, undo
from capsule.commands.arguments import item_argument, say
from capsule.commands.each_item import do_in_turn
from capsule.core.errors import Refused
from capsule.core.item import check_id
from capsule.project import Project, open_project
from capsule.reports.style import clean


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="?")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    if args.item:
        return _of_a_merge(project, check_id(args.item))
    verbs = {verb.commit: verb for verb in last_verb(project)}
    code = do_in_turn([*verbs], lambda commit: say(f"Undone: {clean(undo(project, verbs[commit]).verb.subject)}"))
    if not code:
        say("  again:  capsule undo undoes the one before it")
    return code


def _of_a_merge(project: Project, mission: str) -> int:
    """Print how to revert a merge; a revert is work of its own, and needs its tests to be run."""
    state = known_mission(project, mission)
    merged = state.facts.get("merged", "")
    if not merged:
        hint = "`capsule undo` undoes the last command that changed the backlog."
        raise Refused(f"{mission} is not merged, so there is no merge to revert.", hint)
    parents = project.git.commit(merged).parents
    say(f"{mission} was merged into {state.into} as {merged[:12]}. This reverts it:")
    say(f"  git switch {state.into} && git revert {'-m 1 ' if parents[1:] else ''}{merged[:12]}")
    say(f"  its changes:  git diff {merged[:12]}^1 {merged[:12]}")
    say(f"  then reopen its item:  capsule reopen {mission}")
    return 0
