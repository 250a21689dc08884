"""Merge a mission whose sign-off has passed.

An agent commits in the worktree, the merge result is built and tested, and main moves to it. Use it after a manual fix:
it needs the sign-off and a green gate, not the same tree.

Exit code: 0 merged; 1 not signed off, conflict, red gate, or the agent found something; 2 anything else.
"""

from __future__ import annotations

import argparse

from capsule.app.planning import plan_mission
from capsule.app.running import PLAIN, merge
from capsule.commands.arguments import agent_options, item_argument
from capsule.commands.request import flags_of, request_of
from capsule.commands.running import run_of
from capsule.commands.summary import closing_words, say_summary
from capsule.project import open_project


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    agent_options(parser)
    parser.add_argument("--verify", metavar="HOW", help="strict, warn or off")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")


def run(args: argparse.Namespace) -> int:
    request = request_of(args)
    project = open_project(args.project_dir, flags_of(args))
    plan = plan_mission(project, request.items[0], request)
    state = merge(plan, run_of(project, request, PLAIN))
    say_summary(closing_words(state, project), project)
    return state.halt.exit_code if state.halt else 0
