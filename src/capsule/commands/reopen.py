"""Reopen items that are done or closed, or whose missions have ended or failed.

An item that left the backlog comes back with its id and its fields, ready where its work had begun; the entry in the
worklog goes. An item whose merge you reverted by hand is ready again. A failed mission resumes with fresh retries, as
by `capsule answer ID --retry`. An aborted mission only has to be run again. Items of other trackers are reopened there,
and the command is named.

  capsule reopen WRK-003
  capsule reopen WRK-003 WRK-004

Exit code: 0 reopened; 1 it is open, cannot be reopened from here, or there is no such item; 3 it is running.
"""

from __future__ import annotations

import argparse

from capsule.app.items import find_item
from capsule.app.missions import mission_state
from capsule.app.moves import unblock
from capsule.app.planning import command_to_run
from capsule.app.undoing import make_ready, reopen_archived
from capsule.commands import unblock as unblocking
from capsule.commands.arguments import say
from capsule.commands.each_item import do_each, items_argument
from capsule.core.errors import Refused
from capsule.core.item import Status, status_and_phase
from capsule.project import Project, open_project
from capsule.reports.style import clean

arguments = items_argument


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    return do_each(args.item, lambda item: _reopen(project, item))


def _reopen(project: Project, item_id: str) -> None:
    tracker = project.tracker
    is_there = any(each.id == item_id for each in tracker.everything())
    if not is_there and tracker.traits.authoritative and tracker.knows(item_id):
        item = reopen_archived(project, item_id)
        say(f"{item.id} is {status_and_phase(item)} again: {clean(item.title)}")
        return
    item = find_item(tracker, item_id)
    if item.status is Status.DONE:
        there = tracker.traits.own_command("reopen", item_id, f" in {tracker.name}.")
        raise Refused(f"{item_id} is closed in its tracker, and is reopened there.", f"Reopen it{there}")
    state = mission_state(project, item_id)
    if item.blocked:
        raise Refused(f"{item_id} is blocked: {item.blocked.reason}", f"Answer it: capsule questions {item_id}")
    if state.under_way and state.halt:
        unblocking.report(unblock(project, item_id), "")
        return
    if state.abandoned:
        fresh = " --fresh" if item.phase and not state.workflow.publishes_steps else ""
        again = command_to_run(project, item, state.workflow.name, fresh)
        say(f"{item_id} is open; its mission has ended. Start over: {again}")
        return
    if state.finished and "merged" in state.facts and item.status is Status.IN_PROGRESS:
        item = make_ready(project, item_id)
        say(f"{item_id} is ready again: {clean(item.title)}")
        say(f"  run it: {command_to_run(project, item, state.workflow.name)}")
        return
    raise Refused(f"{item_id} is open: it is {status_and_phase(item)}.", f"Go on with it: capsule run {item_id}")
