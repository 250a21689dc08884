"""Take an item through its workflow, to main.

Each phase is a fresh agent, each claim is checked against evidence, and main moves only to a tree on which the tests
were green. Without an item, it works through the queue until nothing is left to do, the cap is reached, or two items in
a row have used up their retries.

An epic, or any other item that holds others, is run by running what it holds, dependencies first. Each item starts from
the main that has the work of those before it, and is told what they did. A parent whose items are all done is closed.

Run it again after a failure, a crash or Ctrl-C: it resumes where it stopped, and keeps what was done.

  capsule run                                the queue: items under way, then ready, then new
  capsule run --cap 10                       at most ten agents from now on, retries included
  capsule run --jobs 4                       four missions at the same time; auto: as many as fit
  capsule run --triage-first                 assess new items first, so that urgent ones are known
  capsule run demo-1.1.1                     one task
  capsule run demo-1                         everything in the epic; stops at the first failure
  capsule run demo-1 --on-failure continue   continues with what does not depend on it
  capsule run demo-1.1.1 --agent scripted --max-retries 1
  capsule run demo-1.1.1 --dry-run           show prompts and commands, do nothing
  capsule run demo-1.1.1 --record bug.yaml   record what agents are told and do
  capsule run demo-1.1.1 --replay bug.yaml   replay it without any agent

On a terminal a live view shows the run (q stops it, d detaches, ? shows help); `run` again attaches to one that is
running. Otherwise progress goes to stderr and the closing summary to stdout. Exit code: 0 merged, or the queue ended
normally; 1 it failed or needs you (retries exhausted, conflict, red gate, a question), an item of the queue failed, or
an epic is not done; 2 an agent or a prerequisite failed; 3 the circuit breaker tripped, a budget is spent, the
provider's rate limit outlasted the wait, or another run holds the lock; 130 stopped by a signal.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable

from capsule.app.dry_run import preview, preview_campaign, preview_queue
from capsule.app.planning import RunRequest, plan_mission
from capsule.app.queue import (
    jobs_of,
    plan_campaign,
    refuse_what_has_to_wait,
    run_campaign,
    run_queue,
)
from capsule.app.running import JSON, run_item
from capsule.commands.arguments import ITEM_ID, agent_options, dirty_option, item_argument, say
from capsule.commands.output import output_options, wants_a_screen
from capsule.commands.running import flags_of, request_of, run_of, summed_up
from capsule.commands.summary import campaign_summary, closing_words, queue_summary, say_summary
from capsule.core.campaign import closing_words as closing_words_of_group
from capsule.core.campaign import is_container
from capsule.core.errors import UsageError
from capsule.core.item import Item
from capsule.project import Project, open_project
from capsule.reports.plain import QueueReport


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="?")
    again = "the same as naming the item"
    parser.add_argument("--target", metavar="ID", type=ITEM_ID, action="append", default=[], help=again)
    agent_options(parser)
    parser.add_argument("--workflow", metavar="NAME", help="the workflow (default: by the item's kind)")
    verify = "strict: a refuted PASS goes back; warn: it is recorded; off: nothing is checked"
    parser.add_argument("--verify", metavar="HOW", help=verify)
    parser.add_argument("--dry-run", action="store_true", help="show prompts, commands and gate; do nothing")
    record = "record what agents are told and do; an existing recording is continued"
    parser.add_argument("--record", metavar="FILE", help=record)
    parser.add_argument("--replay", metavar="FILE", help="replay a recording instead of running agents")
    parser.add_argument("--cap", metavar="N", type=int, help="how many agents to start at most, retries included")
    jobs = "how many missions to run at the same time (a number, or auto)"
    parser.add_argument("--jobs", metavar="N", type=_number_or_word, help=jobs)
    first = "assess every new item of a backlog before working on the others"
    parser.add_argument("--triage-first", action="store_true", help=first)
    parser.add_argument(
        "--on-failure", choices=("stop", "continue"), help="for an epic: stop at the first item that fails, or continue"
    )
    parser.add_argument("--max-retries", metavar="N", type=int, help="how often each review may send work back")
    parser.add_argument("--base", metavar="REF", help="start from this commit instead of HEAD")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")
    parser.add_argument("--fresh", action="store_true", help="start over; what was there is salvaged first")
    parser.add_argument(
        "--rebase", action="store_true", help="rebuild the work on the new main and continue from there"
    )
    dirty_option(parser)
    output_options(parser)


def run(args: argparse.Namespace) -> int:
    on_screen = wants_a_screen(args)
    request = request_of(args)
    project = open_project(args.project_dir, flags_of(args))
    if on_screen:
        from capsule.commands.live_view import view_run  # noqa: PLC0415 - start-up

        return view_run(project, request, args.words)
    if not request.items or project.tracker.traits.authoritative or _share_a_run(project, request):
        return run_in_queue(project, request, args.output, dry=args.dry_run)
    return max(_run_named(project, item, request, args.output, dry=args.dry_run) for item in request.items)


def _number_or_word(text: str) -> int | str:
    """Read a number; the settings check any other word."""
    return int(text) if text.removeprefix("-").isdecimal() else text


def _share_a_run(project: Project, request: RunRequest) -> bool:
    """Tell whether named tasks run at the same time, or under one cap."""
    several = jobs_of(project) > 1 and len(request.items) > 1 and not (request.fresh or request.rebase)
    capped = request.cap is not None and not (request.fresh or request.rebase)
    return (several or capped) and not any(is_container(project.tracker.item(item)) for item in request.items)


def run_in_queue(project: Project, request: RunRequest, how: str, *, dry: bool = False, triage: bool = False) -> int:
    """Run the queue, or the named items of a backlog, with a summary at the end; or only triage what is new."""
    _refuse_on_failure(request)
    if dry:
        return _print_all(preview_queue(project, request))
    run = run_of(project, request, how, QueueReport)
    again = shlex.join(["capsule", "triage" if triage else "run", *request.items])
    with summed_up(run, lambda report: queue_summary(report, project, again)) as report:
        return run_queue(run, report, triage=triage)


def _run_named(project: Project, item_id: str, request: RunRequest, how: str, *, dry: bool) -> int:
    item = project.tracker.item(item_id)
    if is_container(item):
        return _run_campaign(project, item, request, how, dry=dry)
    _refuse_on_failure(request)
    if request.cap is not None:
        hint = "Leave the cap out: `budget.mission.tokens` and `budget.mission.usd` limit a mission however it is run."
        raise UsageError("--cap does not go with --fresh or --rebase of a task.", hint)
    refuse_what_has_to_wait(project, item_id)
    plan = plan_mission(project, item_id, request)
    if dry:
        return _print_all(preview(plan, request.model))
    state = run_item(plan, run_of(project, request, how))
    if how != JSON and plan.done:
        say(f"{item_id} is done: merged as {state.facts.get('merged', 'nothing')[:12]}.")
    elif how != JSON:
        say_summary(closing_words(state, project), project)
    return state.halt.exit_code if state.halt else 0


def _run_campaign(project: Project, root: Item, request: RunRequest, how: str, *, dry: bool) -> int:
    plan = plan_campaign(project, root, request)
    if dry:
        return _print_all(preview_campaign(plan, project, request))
    if plan.done:
        if how != JSON:
            say(f"{root.id} is done: {closing_words_of_group(root, plan.members)}.")
        return 0
    run = run_of(project, request, how, QueueReport)
    with summed_up(run, lambda report: campaign_summary(report, root.id, project)) as report:
        return run_campaign(plan, run, report)


def _refuse_on_failure(request: RunRequest) -> None:
    if request.on_failure:
        hint = "Name an epic or a feature: capsule run ID --on-failure HOW"
        raise UsageError("--on-failure is for an item that holds others.", hint)


def _print_all(lines: Iterable[str]) -> int:
    say("\n".join(lines))
    return 0
