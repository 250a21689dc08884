"""`capsule merge ID`: the last stage by itself, for work that is signed off."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from capsule.commands.arguments import agent_options, item_argument, project_option
from capsule.core.errors import CapsuleError, Refused
from capsule.core.item import check_id
from capsule.core.workflow import Role

if TYPE_CHECKING:
    from capsule.commands.run import Plan
    from capsule.core.state import MissionState
    from capsule.core.workflow import Workflow
    from capsule.services import Services

DESCRIPTION = """\
Merge a mission whose sign-off has passed: an agent commits in the worktree, the merge result is built and tested, and
main moves to it. Use it after a manual fix: the sign-off and a green gate are needed, not the same tree.

Exit code: 0 merged; 1 not signed off, conflict, red gate, or the agent found something; 2 anything else.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)
    agent_options(parser)
    parser.add_argument("--verify", metavar="HOW", help="strict, warn or off")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")
    parser.set_defaults(
        target=[], workflow=None, dry_run=False, max_retries=None, base=None, fresh=False, rebase=False, output="plain"
    )


def run(args: argparse.Namespace) -> int:
    from capsule.commands.common import flags_of
    from capsule.commands.run import closing_words, plan_mission
    from capsule.wiring import open_project, open_tracker

    mission = check_id(args.item)
    project = open_project(args.project_dir, flags_of(args))
    plan = plan_mission(project, open_tracker(project), mission, args)
    state = _merge(plan, args)
    print(closing_words(state, project))
    return state.halt.exit_code if state.halt else 0


def _merge(plan: Plan, args: argparse.Namespace) -> MissionState:
    from capsule.commands.run import check_agents, observer_for
    from capsule.engine.run_mission import move_to, run_until_halt
    from capsule.system.stop import Stop
    from capsule.wiring import open_services

    observer = observer_for(plan, args)
    with (
        Stop() as stop,
        open_services(plan.project, plan.tracker, plan.words, observer, stop, model=args.model or "") as services,
    ):
        _check_signed_off(plan, services)
        check_agents(plan, services)
        if not _only_waits_to_be_published(plan, services):
            move_to(plan.order, services, _after_last_review(plan.order.workflow))
        return run_until_halt(plan.order, services)


def _only_waits_to_be_published(plan: Plan, services: Services) -> bool:
    """The merge agent has done its part, and nobody has changed the place since: no agent is needed again."""
    from capsule.engine.job import place_of

    state, names = plan.state, plan.order.workflow.names()
    if not (state.under_way and state.halt and state.checkpoint):
        return False
    place = place_of(state, services)
    past = names.index(state.to_do[0]) > names.index(_after_last_review(plan.order.workflow))
    return past and place.head() == state.checkpoint.head and not place.touched_outside_commit()


def _check_signed_off(plan: Plan, services: Services) -> None:
    """By the journal where the mission has one, else by the last verdict in the worklog's own section."""
    from capsule.core.worklog import section_of, signed_off

    mission, workflow = plan.order.mission, plan.order.workflow
    workspace = services.place(mission, plan.order.into if workflow.publishes_steps else "")
    if not workspace.path.is_dir():
        raise CapsuleError(f"{mission} has no worktree.", f"Make one with `capsule run {mission}`.")
    last = _last_review(plan.order.workflow)
    walked = bool(plan.state.runs) and plan.state.under_way
    passed = (
        last in plan.state.approved
        if walked
        else signed_off(workspace.worklog(), section_of(plan.order.workflow, last))
    )
    if not passed:
        raise Refused(f"{mission} is not signed off: {last} has not passed.", f"Go on with `capsule run {mission}`.")


def _last_review(workflow: Workflow) -> str:
    reviews = [phase.name for phase in workflow.phases[:-1] if phase.role is Role.REVIEW]
    if not reviews:
        raise Refused(
            f"The workflow {workflow.name!r} has no review that could sign off.", "Use `capsule run` instead."
        )
    return reviews[-1]


def _after_last_review(workflow: Workflow) -> str:
    names = workflow.names()
    return names[names.index(_last_review(workflow)) + 1]
