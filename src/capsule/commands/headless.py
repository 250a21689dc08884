"""`capsule run` without a screen: lines, JSON or nothing until the closing summary."""

from __future__ import annotations

import argparse
import shlex

from capsule.app.planning import RunRequest
from capsule.app.queue import run_campaign, run_queue
from capsule.app.queue_plan import plan_campaign, plan_task, refuse_on_failure, runs_as_queue
from capsule.app.running import JSON, run_item
from capsule.commands.arguments import say
from capsule.commands.running import run_of, summed_up
from capsule.commands.summary import campaign_summary, closing_words, queue_summary, say_summary
from capsule.core.campaign import closing_words as closing_words_of_group
from capsule.core.campaign import is_container
from capsule.core.item import Item
from capsule.project import Project
from capsule.reports.plain import QueueReport


def start(project: Project, request: RunRequest, args: argparse.Namespace) -> int:
    """Run the items or the queue; return the exit code."""
    if runs_as_queue(project, request):
        return run_in_queue(project, request, args.output)
    return max(_run_named(project, item, request, args.output) for item in request.items)


def run_in_queue(project: Project, request: RunRequest, how: str, *, triage: bool = False) -> int:
    """Run the queue, or the named items of a backlog, with a summary at the end; or only triage what is new."""
    refuse_on_failure(request)
    run = run_of(project, request, how, QueueReport)
    again = shlex.join(["capsule", "triage" if triage else "run", *request.items])
    with summed_up(run, lambda report: queue_summary(report, project, again)) as report:
        return run_queue(run, report, triage=triage)


def _run_named(project: Project, item_id: str, request: RunRequest, how: str) -> int:
    item = project.tracker.item(item_id)
    if is_container(item):
        return _run_campaign(project, item, request, how)
    plan = plan_task(project, item_id, request)
    state = run_item(plan, run_of(project, request, how))
    if how != JSON and plan.done:
        say(f"{item_id} is done: merged as {state.facts.get('merged', 'nothing')[:12]}.")
    elif how != JSON:
        say_summary(closing_words(state, project), project)
    return state.halt.exit_code if state.halt else 0


def _run_campaign(project: Project, root: Item, request: RunRequest, how: str) -> int:
    plan = plan_campaign(project, root, request)
    if plan.done:
        if how != JSON:
            say(f"{root.id} is done: {closing_words_of_group(root, plan.members)}.")
        return 0
    run = run_of(project, request, how, QueueReport)
    with summed_up(run, lambda report: campaign_summary(report, root.id, project)) as report:
        return run_campaign(plan, run, report)
