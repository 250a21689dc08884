"""Stop what runs in this project, or the missions that are named; nothing is lost.

  capsule stop             every run, and every mission that is run by itself
  capsule stop demo-1.1.1  this mission; a run that works on it goes on with the others
  capsule stop demo-1      the run of this epic

It is Ctrl-C for a run in another terminal: agents end, and what is recorded is kept. It waits until all have stopped,
half a minute at most. A run does not take up again what you stopped; `capsule run ID` goes on with it.
Exit code: 0 they have stopped, or did not run; 2 there is no such item; 3 one does not stop, or runs elsewhere.
"""

from __future__ import annotations

import argparse

from capsule.app.control import StopReport, name_of, refuse_what_is_left, stop_all, stop_missions
from capsule.commands.arguments import item_argument, say, tell
from capsule.core.event import CAMPAIGN
from capsule.core.item import check_id
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="*")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    ids = [check_id(item) for item in dict.fromkeys(args.item)]
    report = stop_missions(project, ids, tell) if ids else stop_all(project, tell)
    _say_all(report)
    refuse_what_is_left(report)
    return 0


def _say_all(report: StopReport) -> None:
    for stream in report.runs:
        root = stream.removeprefix(CAMPAIGN) if stream.startswith(CAMPAIGN) else ""
        say(f"{name_of(stream)} has stopped; go on with: capsule run{f' {root}' if root else ''}")
    for mission in report.missions:
        say(f"{mission} has stopped; go on with: capsule run {mission}")
    for mission in report.idle:
        say(f"{mission} is not running{', and the run under way leaves it alone' if report.left_out else ''}.")
    if not (report.runs or report.missions or report.idle or report.left):
        say("Nothing runs in this project.")
