"""Stop all runs of this project, or the named missions; recorded progress is kept.

  capsule stop             every run, and every mission outside of a run
  capsule stop demo-1.1.1  this mission; its run continues with the others
  capsule stop demo-1      the run of this epic

It works like Ctrl-C in the terminal of the run: agents end, and recorded progress is kept. It waits until all have
stopped, half a minute at most. A run does not restart a mission that you stopped; `capsule run ID` resumes it.
Exit code: 0 all are stopped; 2 there is no such item; 3 one does not stop, or runs elsewhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from capsule.app.control import StopReport, name_of, refuse_what_is_left, stop_all, stop_missions
from capsule.commands.arguments import item_argument, say, tell
from capsule.commands.worker import refuse_without_sdk
from capsule.core.event import CAMPAIGN
from capsule.core.item import check_id
from capsule.project import Project, open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="*")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    ids = [check_id(item) for item in dict.fromkeys(args.item)]
    if project.settings.engine == "temporal":
        return _stop_elsewhere(project, ids)
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
        say(f"{mission} is not running{', and the run under way does not start it' if report.left_out else ''}.")
    if not (report.runs or report.missions or report.idle or report.left):
        say("Nothing is running in this project.")


def _stop_elsewhere(project: Project, ids: Sequence[str]) -> int:
    refuse_without_sdk()
    from capsule.temporal.control import stop_run  # noqa: PLC0415 - an optional dependency

    for mission in stop_run(project, ids):
        say(f"{mission} was asked to stop; go on with: capsule run {mission}")
    return 0
