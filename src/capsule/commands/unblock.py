"""Resume a blocked item, with notes for its next agent: a spelling of `capsule answer ID --notes`.

The run under way continues with it, else the next one does. Notes go to the next agent of its mission, until a phase
succeeds with them. If no mission waits, as with a bead that was blocked before work began, they become a comment, which
people read and agents do not.

An item of a backlog returns to the status it was blocked from. If a guardrail or a required review stopped it,
unblocking approves it, for this item and from now on. A bead whose mission needs you or has failed resumes there, with
fresh retries and with your changes in its worktree; a bead that its tracker calls blocked is reopened.

  capsule unblock WRK-003
  capsule unblock WRK-003 --notes "Use the second API; the first is being retired."
  capsule unblock demo-1.1.2 --notes - < answers.md

Exit code: 0 unblocked; 1 it is not blocked, or there is no such item; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.moves import Unblocked, unblock
from capsule.commands.arguments import commit_option, say, text_of, warn
from capsule.commands.each_item import do_each, items_argument
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    items_argument(parser)
    parser.add_argument("--notes", metavar="TEXT", help="for the next agent of its mission; - reads it from stdin")
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    notes = text_of(args.notes)
    return do_each(args.item, lambda item: report(unblock(project, item, notes, no_commit=args.no_commit), notes))


def report(done: Unblocked, notes: str) -> None:
    item, run = done.item.id, f"; {done.taken_up_by} goes on with it." if done.taken_up_by else ""
    warn(done.warnings)
    if done.stands:
        say(f"{item} is {done.stands} again{run or '.'}")
    elif done.goes_on_from:
        with_notes = " with your notes" if notes else ""
        say(f"{item} resumes at {done.goes_on_from}{with_notes}{run or f': capsule run {item}'}")
    else:
        say(f"{item} is open again{run or f': capsule run {item}'}")
    if done.commented:
        say("  No mission is waiting for notes, so they were added as a comment.")
        say("  Agents do not read comments: put what they must know into the description.")
