"""Undo the last command that changed the backlog; repeat to undo the one before.

It undoes `add`, `import`, `edit`, `depend`, `hold`, `answer`, `unblock`, `approve`, `advance`, `complete`, `close` and
`reopen`, for all items that were named, with commits that revert theirs in the backlog and its worklog, and change
nothing else. It prints what was undone. If the same lines were changed again since, those stay as they are. A restored
item keeps its id; a mission that ended with it stays ended, and its work stays where that command kept it.

  capsule undo

Trackers other than a backlog have no such history: use `capsule edit`, or the tracker itself.

With an id it undoes the merge of that mission, in any tracker: a commit on the same branch reverts it, by which an item
of a backlog is ready again; other trackers reopen theirs by the command that is printed. Later work and your own edits
are kept; where they changed the same lines, nothing is undone. No test runs on the result: run yours before you push.

  capsule undo WRK-003

Exit code: 0 undone; 1 there is nothing to undo, or it is refused; 3 the item is running.
"""

from __future__ import annotations

import argparse

from capsule.app.undoing import last_verb, undo, undo_merge
from capsule.commands.arguments import item_argument, say
from capsule.commands.each_item import do_in_turn
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
    """Revert a merge, and say how its item is done again."""
    done = undo_merge(project, mission)
    tracker, merged = project.tracker, done.verb.commit[:12]
    say(f"Undone: {clean(done.verb.subject)}")
    say(f"  reverted by {done.commit[:12]} on {project.branch}; no test ran on it")
    say(f"  its changes:  git diff {merged}^1 {merged}")
    if not tracker.traits.authoritative:
        say(f"  reopen it:  {tracker.traits.own_command('reopen', mission, f'in {tracker.name}', '')}")
    say(f"  next:  {done.again}")
    return 0
