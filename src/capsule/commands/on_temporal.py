"""`capsule run --on temporal`: hand the run over, and watch it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence

from capsule.app.planning import RunRequest
from capsule.commands.arguments import say
from capsule.commands.running import run_of, summed_up
from capsule.commands.summary import queue_summary
from capsule.commands.worker import refuse_without_sdk
from capsule.core.errors import Interrupted
from capsule.engine.dispatch import RunReport
from capsule.project import Project
from capsule.reports.plain import QueueReport


def start(project: Project, request: RunRequest, args: argparse.Namespace) -> int:
    """Hand the items over, or the queue; return the exit code."""
    refuse_without_sdk()
    from capsule.temporal.hand_over import hand_over  # noqa: PLC0415 - an optional dependency

    run = run_of(project, request, args.output, QueueReport)
    journal, seen = project.journal(read_only=True), dict[str, int]()

    def show(missions: Sequence[str]) -> None:
        for mission in missions:
            for number, event in journal.events(mission, after=seen.get(mission, 0)):
                seen[mission] = number
                run.observer.event(mission, event)

    def sum_up(report: RunReport) -> str:
        return queue_summary(report, project, shlex.join(["capsule", "run", *request.items]))

    with summed_up(run, sum_up) as report:
        try:
            return hand_over(project, request, report, show)
        except KeyboardInterrupt:
            say("The run goes on without you. Watch it again: capsule run; stop it: capsule stop")
            return Interrupted.exit_code
