"""Show how many missions run at the same time, or change it during the run.

  capsule jobs        how many are allowed, and which run
  capsule jobs 4      four at a time from now on
  capsule jobs auto   as many as fit on this machine

It applies to every run of this project that is under way. With a higher number, more missions start within a second or
two; with a lower one, running missions continue, and none starts until enough have ended.
Exit code: 0 done; 1 no run is under way; 2 it is not a number.
"""

from __future__ import annotations

import argparse

from capsule.app.control import jobs_of_runs, name_of, set_jobs
from capsule.commands.arguments import say, tell
from capsule.commands.worker import refuse_without_sdk
from capsule.core.errors import UsageError
from capsule.project import open_project
from capsule.system.machine import most_jobs
from capsule.workspaces.disk_space import disk_shortage


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("jobs", metavar="N", nargs="?", help="how many missions at the same time: a number, or auto")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    if args.jobs is None:
        for each in jobs_of_runs(project):
            running = ", ".join(each.running)
            say(f"{name_of(each.stream)}: {each.allowed} at a time; running: {running or 'none'}")
        return 0
    jobs = _number(args.jobs)
    if project.settings.engine == "temporal":
        refuse_without_sdk()
        from capsule.temporal.control import set_jobs as set_jobs_elsewhere  # noqa: PLC0415 - an optional dependency

        say(f"{jobs} at a time from now on (before: {set_jobs_elsewhere(project, jobs)})")
        return 0
    for before in set_jobs(project, jobs):
        say(f"{name_of(before.stream)}: {jobs} at a time from now on (before: {before.allowed})")
        if len(before.running) > jobs:
            say(f"  {', '.join(before.running)} continue; no mission starts while {jobs} or more are running")
    if room := disk_shortage(project.git, project.env, jobs):
        tell(f"note: {room}")
    return 0


def _number(text: str) -> int:
    if text == "auto":
        return most_jobs()
    if not text.isdecimal() or int(text) < 1:
        message = f"The number of jobs must be auto or a whole number, 1 or more, not {text!r}."
        raise UsageError(message, "For example: capsule jobs 3")
    return int(text)
