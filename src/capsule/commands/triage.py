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
from capsule.commands.arguments import agent_options, dirty_option
from capsule.commands.headless import run_in_queue
from capsule.commands.request import flags_of, request_of
from capsule.project import open_project


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
    refuse_verb(project.tracker, "triage", "Its items need no triage: `capsule run` works through them.")
    return run_in_queue(project, request, args.output, triage=True)
