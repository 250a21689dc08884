"""`capsule triage`: every new item of the backlog is looked at once, and none goes further."""

from __future__ import annotations

import argparse

from capsule.commands.arguments import agent_options, dirty_option, project_option
from capsule.commands.common import flags_of
from capsule.core.item import Status

DESCRIPTION = """\
Have an agent assess each new item of the backlog: size, complexity, risk, impact, and whether a human should decide.
Small items of low risk are ready afterwards, others get an idea file to be researched. Nothing is built. Beads need no
triage: they are ready as soon as nothing blocks them.

  capsule triage
  capsule triage --cap 5        at most five agents, retries included

Two items in a row that use up their retries stop it. Exit code: 0 all looked at, or the cap reached; 1 an item failed;
2 a prerequisite is missing; 3 the circuit breaker tripped, or another run is at work; 130 stopped by a signal.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    project_option(parser)
    agent_options(parser)
    limits(parser)


def limits(parser: argparse.ArgumentParser, *, cap: bool = True) -> None:
    """Options of commands that start agents from the queue; what only `run` can set has its usual value."""
    if cap:
        parser.add_argument("--cap", metavar="N", type=int, help="how many agents to start at most, retries included")
    dirty_option(parser)
    parser.add_argument("--output", choices=("auto", "plain", "json"), default="auto", help="json: one event per line")
    parser.set_defaults(
        workflow=None, verify=None, max_retries=None, base=None, into=None, fresh=False, rebase=False, dry_run=False
    )


def run(args: argparse.Namespace) -> int:
    from capsule.commands.moving import refuse_beads
    from capsule.commands.queue import cap_of, carry_out
    from capsule.core.event import RUN
    from capsule.engine.dispatch import Errand
    from capsule.wiring import open_project, open_tracker

    project = open_project(args.project_dir, flags_of(args))
    tracker = open_tracker(project)
    refuse_beads(tracker, "triage", "Beads are ready as they are: `capsule run` works through them.")
    errand = Errand(f"{RUN}triage", cap_of(project, args), statuses=(Status.NEW,))
    return carry_out(errand, project, tracker, args)
