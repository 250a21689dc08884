"""Assess every new item of the backlog.

An agent assesses each item: size, complexity, risk, impact, and whether a human should decide. Small items of low risk
are ready afterwards, others get an idea file for the research. Nothing is built. Beads need no triage: they are ready
as soon as nothing blocks them.

  capsule triage
  capsule triage --cap 5        at most five agents, retries included

It stops after two items in a row that use up their retries. Exit code: 0 all assessed, or the cap reached; 1 an item
failed; 2 a prerequisite is missing; 3 the circuit breaker tripped, or another run holds the lock; 130 stopped by a
signal.
"""

from __future__ import annotations

import argparse

from capsule.app.items import refuse_verb
from capsule.app.queue import cap_of, triage
from capsule.app.running import RunContext
from capsule.commands.arguments import agent_options, dirty_option
from capsule.commands.running import flags_of, output_for, request_of, summed_up
from capsule.commands.summary import queue_summary
from capsule.project import open_project, open_tracker
from capsule.reports.plain import QueueReport


def arguments(parser: argparse.ArgumentParser) -> None:
    agent_options(parser)
    parser.add_argument("--cap", metavar="N", type=int, help="how many agents to start at most, retries included")
    limits(parser)


def limits(parser: argparse.ArgumentParser) -> None:
    """Add the options of commands that start agents from the queue."""
    dirty_option(parser)
    parser.add_argument("--output", choices=("auto", "plain", "json"), default="auto", help="json: one event per line")


def run(args: argparse.Namespace) -> int:
    request = request_of(args)
    project = open_project(args.project_dir, flags_of(args))
    tracker = open_tracker(project)
    refuse_verb(tracker, "triage", "Beads are ready as they are: `capsule run` works through them.")
    cap = cap_of(project, request)
    output = output_for(project, args.output, QueueReport)
    with summed_up(output.form, lambda report: queue_summary(report, cap, tracker, project)) as report:
        return triage(RunContext(project, tracker, request, output), report)
