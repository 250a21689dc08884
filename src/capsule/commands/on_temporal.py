"""`capsule run --on temporal`: hand the run over, and watch it."""

from __future__ import annotations

import argparse
import shlex

from capsule.app.planning import RunRequest
from capsule.commands.arguments import say
from capsule.commands.running import run_of, summed_up
from capsule.commands.summary import closing_words, queue_summary
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

    def sum_up(report: RunReport) -> str:
        if len(request.items) == 1 and request.items[0] in report.states:
            return closing_words(report.states[request.items[0]], project)
        return queue_summary(report, project, shlex.join(["capsule", "run", *request.items]))

    with summed_up(run, sum_up) as report:
        try:
            return hand_over(project, request, report, run.observer)
        except KeyboardInterrupt:
            say("The run goes on without you. Watch it again: capsule run; stop it: capsule stop")
            return Interrupted.exit_code
