"""`capsule run ID`: the mission's own process, from wherever it stands to its end or its halt."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from capsule.commands.arguments import (
    agent_options,
    any_items,
    dirty_option,
    judging_options,
    project_option,
    recording_options,
)
from capsule.commands.common import flags_of, mission_state, on_tape
from capsule.commands.output import JSON, NONE, output_options, wants_a_screen
from capsule.core.errors import CapsuleError, Refused, UsageError, lost_objects_of
from capsule.core.item import Item, Status, check_id
from capsule.core.text import nearest

if TYPE_CHECKING:
    from capsule.catalog import Catalog
    from capsule.core.state import MissionState
    from capsule.core.workflow import Workflow
    from capsule.doors import Observer, Tracker
    from capsule.engine.job import Order
    from capsule.wiring import Project
    from capsule.world import World

DESCRIPTION = """\
Take an item through its workflow: each phase a fresh agent, each claim checked against evidence, and main moved only
to a tree on which the tests were green. Without an item, work through the queue until nothing is left to do, the cap is
reached, or two items in a row have used up their retries.

An epic, or anything else that holds items, is run by running what it holds, dependencies first: each item starts from
the main that holds the work of those before it, is told what they did, and whatever holds only what is done is closed.

Run it again after a failure, a crash or Ctrl-C, and it goes on where it stood, keeping what was done.

  capsule run                                the queue: what is under way, what is ready, what is new
  capsule run --cap 10                       at most ten agents, retries included
  capsule run demo-1.1.1                     one task
  capsule run demo-1                         all that the epic holds; stops at the first that fails
  capsule run demo-1 --on-failure continue   goes on with what does not depend on it
  capsule run demo-1.1.1 --agent scripted --max-retries 1
  capsule run demo-1.1.1 --dry-run           what would be said and run, nothing done
  capsule run demo-1.1.1 --record bug.yaml   write down what agents are told and do
  capsule run demo-1.1.1 --replay bug.yaml   the same again, without any agent

On a terminal a live view shows it (q stops, d leaves and it goes on, ? helps); `run` again shows one that is running.
Else progress goes to stderr and the closing summary to stdout. Exit code: 0 merged, or the queue ended in order; 1
stopped for a human (retries exhausted, conflict, red gate, parked), an item of the queue failed, or an epic is not
done; 2 an agent or a prerequisite failed; 3 the circuit breaker tripped, a budget is spent, a provider has had enough,
or somebody else is at it; 130 stopped by a signal.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    any_items(parser)
    project_option(parser)
    agent_options(parser)
    judging_options(parser)
    recording_options(parser)
    parser.add_argument("--cap", metavar="N", type=int, help="how many agents to start at most, retries included")
    parser.add_argument(
        "--on-failure", choices=("stop", "continue"), help="for an epic: whether the first item that fails is the last"
    )
    parser.add_argument("--max-retries", metavar="N", type=int, help="how often each review may send work back")
    parser.add_argument("--base", metavar="REF", help="start from this commit instead of HEAD")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")
    parser.add_argument("--fresh", action="store_true", help="start over; what was there is salvaged first")
    parser.add_argument("--rebase", action="store_true", help="rebuild the work on the new main and go on from there")
    dirty_option(parser)
    output_options(parser)


def run(args: argparse.Namespace) -> int:
    if wants_a_screen(args):
        from capsule.commands.live_view import view_run

        return view_run(args)
    from capsule.wiring import open_project, open_tracker

    items = [check_id(name) for name in ([] if args.item is None else [args.item]) + args.target]
    project = open_project(args.project_dir, flags_of(args))
    tracker = open_tracker(project)
    if not items or tracker.keeps_phases:
        from capsule.commands.queue import run_queue

        _refuse_on_failure(args)
        return run_queue(project, tracker, args, items)
    return max(_run_named(project, tracker, item, args) for item in items)


def _run_named(project: Project, tracker: Tracker, item_id: str, args: argparse.Namespace) -> int:
    from capsule.commands.campaign import is_campaign, run_campaign
    from capsule.commands.queue import refuse_what_has_to_wait

    item = tracker.item(item_id)
    if is_campaign(tracker, item):
        return run_campaign(project, tracker, item, args)
    _refuse_on_failure(args)
    if not mission_state(project, item_id).under_way:  # one that is goes on: it was let start
        refuse_what_has_to_wait(tracker, item_id)
    return _run_one(project, tracker, item_id, args)


def _refuse_on_failure(args: argparse.Namespace) -> None:
    if args.on_failure:
        hint = "Name the epic or the feature: capsule run ID --on-failure HOW"
        raise UsageError("--on-failure is for an item that holds others.", hint)


def _run_one(project: Project, tracker: Tracker, item_id: str, args: argparse.Namespace) -> int:
    plan = plan_mission(project, tracker, item_id, args)
    if args.dry_run:
        from capsule.commands.dry_run import show_plan

        return show_plan(plan, args.model or "")
    if plan.done:
        from capsule.system.process import end_leftovers

        end_leftovers(project.roll)  # a run that was killed right after its last step had no time to
        if args.output == JSON:
            return 0
        print(f"{item_id} is done: merged as {plan.state.facts.get('merged', 'nothing')[:12]}.")
        return 0
    state = pursue_plan(plan, args)
    if args.output != JSON:
        print(closing_words(state, project))
    return state.halt.exit_code if state.halt else 0


@dataclass(frozen=True)
class Plan:
    """Everything looked at before anything is made."""

    project: Project
    tracker: Tracker
    words: Catalog
    item: Item
    state: MissionState
    order: Order
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return self.state.finished and self.item.status is Status.DONE

    @property
    def began(self) -> bool:
        """There is something to start over from: a mission, or a worktree that `prep` made."""
        ref = f"refs/capsule/base/{self.order.mission}"
        return self.state.started or ref in self.project.git.refs(ref)

    @property
    def merged_already(self) -> bool:
        """All but the tracker knows it: there is nothing to run, only an item to close."""
        from capsule.engine.job import only_to_be_closed

        return only_to_be_closed(self.state) and self.item.status is Status.IN_PROGRESS


def plan_mission(
    project: Project, tracker: Tracker, item_id: str, args: argparse.Namespace, *, start: str = ""
) -> Plan:
    """What is missing is named here, with how to get it; nothing has been created yet.

    `start` is the ref that a mission with a worktree of its own starts from, where it is not what is checked out.
    """
    from capsule.engine.job import Order
    from capsule.rules import choose_workflow, policy_at, words_at
    from capsule.system.git import check_version
    from capsule.workspaces import repository

    item = tracker.item(item_id)
    state = mission_state(project, item_id)
    if item.status is Status.DONE and not tracker.keeps_phases and not state.under_way and not state.finished:
        raise Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
    check_version()
    project.git.identity  # noqa: B018 - raises where git does not know who we are
    repository.refuse_if_under_way(project.git)
    going_on = state.under_way and not args.fresh
    prepared = "" if state.started or args.fresh else _prepared_base(project, item_id)
    base = state.base if going_on else prepared or repository.base_of(project.git, args.base or start or "HEAD")
    with lost_objects_of(item_id):
        words = words_at(project, base)
        policy, warnings = policy_at(project, base)
        if going_on and state.workflow.workspace == "worktree" and "merged" not in state.facts:
            repository.refuse_if_rewritten(project.git, item_id, base, state.into, rebase=args.rebase)
    workflow = state.workflow if going_on else choose_workflow(project, item, words, args.workflow)
    _refuse_unknown_phase(item, workflow)
    if going_on:
        into, notes = state.into, _fixed_at_the_start(args)
        if workflow.publishes_steps and into != project.branch:
            on = f"{project.branch} is checked out" if project.branch else "HEAD is detached"
            raise Refused(f"{item_id} works for {into}, and {on}.", f"Go back to it: git switch {into}")
    elif workflow.publishes_steps:
        into, notes = _step_by_step(project, args)
        base = repository.base_of(project.git, f"refs/heads/{into}")
    else:
        into, notes = _merged_at_the_end(project, tracker, base, args, held=bool(prepared or args.base or start))
    order = Order(
        mission=item_id,
        item=item,
        workflow=workflow,
        base=base,
        into=into,
        policy=policy,
        lineage=tracker.lineage(item),
        retries=args.max_retries,
        rebase=args.rebase,
    )
    return Plan(
        project,
        tracker,
        words,
        item,
        state,
        order,
        (*project.loaded.warnings, *_unheard(project, words, workflow), *notes, *warnings),
    )


def _refuse_unknown_phase(item: Item, workflow: Workflow) -> None:
    """A phase that somebody mistyped must not be taken for the first one."""
    if item.phase and item.phase.lower() not in workflow.names():
        near = nearest(item.phase, workflow.names())
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(workflow.names())}."
        raise CapsuleError(f"{item.id}: {item.phase!a} is no phase of the workflow {workflow.name}.", hint)


def _unheard(project: Project, words: Catalog, workflow: Workflow) -> tuple[str, ...]:
    """Whoever sets what has no effect here is told so."""
    from capsule.wiring import SKILLS, uses_skills

    named = {name for agent in project.settings.agents.values() for name in agent.phases}
    strange = sorted(named - {*workflow.names()})
    known = {*workflow.names(), *(_every_phase(words) if strange else ())}
    notes = [f"agents: there is no phase {name!r}.{_meant(name, known)}" for name in strange if name not in known]
    if any(phase.skill for phase in workflow.phases) and project.settings.skills == "auto":
        idle = (project.root / SKILLS).is_dir() and not uses_skills(project)
        agent = project.settings.agent
        notes += [f"the skills in {SKILLS} are not used: agents.{agent}.trust_project lets {agent} find them."] * idle
    return tuple(notes)


def _every_phase(words: Catalog) -> Iterator[str]:
    for name in words.names("workflow"):
        with suppress(CapsuleError):  # one that cannot be read is somebody else's to complain about
            yield from words.workflow(name).names()


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f" Did you mean {near[0]}?" if near else ""


def _fixed_at_the_start(args: argparse.Namespace) -> tuple[str, ...]:
    """Whoever sets what cannot be changed any more is told so."""
    names = ("base", "into", "workflow", "verify")
    given = ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None)
    note = f"{given}: fixed when the mission started, and left as it was; --fresh starts over."
    return (note,) if given else ()


def _prepared_base(project: Project, item_id: str) -> str:
    """A worktree that `prep` made keeps the base it was made from."""
    ref = f"refs/capsule/base/{item_id}"
    return project.git.refs(ref).get(ref, "")


def _merged_at_the_end(
    project: Project, tracker: Tracker, base: str, args: argparse.Namespace, *, held: bool
) -> tuple[str, tuple[str, ...]]:
    """Say which branch the work is merged into, and note uncommitted edits, which are no part of it."""
    from capsule.workspaces import repository

    git = project.git
    into = args.into or repository.main_branch(git, project.settings.project.main)
    if args.into and not git.resolve(f"refs/heads/{into}"):
        raise CapsuleError(f"There is no branch {into}.", "List the branches there are: git branch")
    repository.refuse_if_ahead(git, base, into)
    dirty = repository.dirty_paths(git, tracker.own_files(), head="" if held else base)
    what = f"{len(dirty)} uncommitted change{'s are' if len(dirty) > 1 else ' is'} left alone in your checkout"
    note = f"{what}; the mission starts from {base[:12]}."
    return into, (note,) if dirty else ()


def _step_by_step(project: Project, args: argparse.Namespace) -> tuple[str, tuple[str, ...]]:
    """Say which branch the steps are committed to: the one that was checked out when the run began."""
    if args.base or args.into:
        hint = "Set workspace.publish to merge to have the work merged at the end."
        raise UsageError("--base and --into are for work that is merged; this one is published step by step.", hint)
    if not project.branch:
        hint = "Choose a branch: git switch NAME, or git switch -c NAME for a new one"
        raise CapsuleError("HEAD is detached, and steps are committed to a branch.", hint)
    return project.branch, ()


def refuse_dirty(project: Project, tracker: Tracker, args: argparse.Namespace) -> None:
    """Refuse to begin on uncommitted changes, unless the user has said to go on beside them."""
    from capsule.workspaces import repository

    repository.refuse_if_gone(project.git)
    recording = os.path.relpath(args.record, project.root) if getattr(args, "record", None) else ""
    dirty = [] if args.allow_dirty else repository.dirty_paths(project.git, (*tracker.own_files(), recording))
    if dirty:
        more = f" and {len(dirty) - 5} more" if len(dirty) > 5 else ""
        hint = "Commit them; or --allow-dirty goes on, leaves your edits alone, and asks where work would touch them."
        raise CapsuleError(f"The checkout has uncommitted changes: {', '.join(dirty[:5])}{more}.", hint)


def pursue_plan(plan: Plan, args: argparse.Namespace) -> MissionState:
    from capsule.commands.notifying import notified
    from capsule.engine.job import standing
    from capsule.engine.run_mission import close_what_is_merged, pursue
    from capsule.system.stop import Stop
    from capsule.wiring import open_world

    with (
        Stop() as stop,
        notified(plan.project, observer_for(plan, args)) as observer,
        open_world(plan.project, plan.tracker, plan.words, observer, stop, model=args.model or "") as opened,
    ):
        world = on_tape(opened, plan.project, args)
        check_agents(plan, world)
        make_place_ready(plan)
        for closed in close_what_is_merged(world):
            print(f"note: {closed} was merged earlier; its item is closed now", file=sys.stderr)
        if plan.merged_already:
            return standing(world, plan.order.mission)
        if plan.state.abandoned or (args.fresh and plan.began):
            start_over(plan.order.mission, world)
        return pursue(plan.order, world)


def observer_for(plan: Plan, args: argparse.Namespace) -> Observer:
    from capsule.reports.live import LiveFile, Several
    from capsule.system.clock import SystemClock

    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    live = LiveFile(plan.project.papers().folder, SystemClock().now)
    if args.output == JSON:
        from capsule.reports.json_lines import JsonReport

        return Several(JsonReport(), live)
    say_if_unconfined(plan.project)
    if args.output == NONE:
        return live
    from capsule.reports.plain import PlainReport
    from capsule.wiring import budget_of

    budget = budget_of(plan.project.settings)
    return Several(PlainReport(standing=partial(mission_state, plan.project), budget=budget), live)


def say_if_unconfined(project: Project) -> None:
    """Whoever thinks that agents are kept in their place, and they are not, is told so before the first one starts."""
    from capsule.system.sandbox import level

    settings = project.settings
    found = level(settings.sandbox, project.env)
    if not found.program and settings.sandbox != "off":
        kept = "hooks and settings of the repository are checked after each phase"
        print(f"note: not sandboxed: {found.why}; {kept}.", file=sys.stderr)


def make_place_ready(plan: Plan) -> None:
    """The last thing before a mission starts: git is told what to ignore."""
    from capsule.workspaces import repository

    steps = plan.order.workflow.publishes_steps
    repository.exclude_artefacts(plan.project.git, plan.order.base, worklog=not steps)


def check_agents(plan: Plan, world: World) -> None:
    """Every agent that the workflow may call is there before the first is paid."""
    for phase in plan.order.workflow.phases:
        if phase.prompt:
            world.agent(phase.agent, phase.model).check()
        if phase.escalate and phase.escalate.agent:
            world.agent(phase.escalate.agent, phase.escalate.model).check()


def start_over(mission: str, world: World) -> None:
    from capsule.commands.ending import take_away
    from capsule.core.event import Abandoned
    from capsule.engine.job import note

    with world.journal.claim(mission):
        salvage = take_away(world, mission, why="started over", branch=True)
        note(world, mission, Abandoned(at=world.clock.now(), how="started over", salvage=salvage))
    if salvage:
        print(f"note: what was there is kept as {salvage}", file=sys.stderr)


def closing_words(state: MissionState, project: Project) -> str:
    """What happened, where it is, and what to type next."""
    from capsule.reports.style import clean

    if state.halt:
        return _halted_words(state, project)
    merged = state.facts.get("merged", "")
    end = f"merged into {state.into} as {merged[:12]}" if merged else f"closed: {clean(state.closed_as)}"
    lines = [f"{state.mission} is {end}."]
    if merged:
        lines.append(f"  to undo it:  git revert -m 1 {merged[:12]}")
    if not state.item_closed:
        lines.append("  its item could not be closed in the tracker; the next run tries again")
    if state.discovered:
        lines.append(f"  new items:   {', '.join(state.discovered)}")
    if not state.policy.test or state.policy.verify == "off":
        lines.append("  UNVERIFIED: no test command was run on it")
    if merged and state.policy.verify == "warn":
        lines += _if_merged_on_red(project, state.mission)
    lines += _used(state)
    lines.append(f"  papers:      .capsule/logs/{state.mission}/")
    return "\n".join(lines)


def _used(state: MissionState) -> list[str]:
    """Left out where no agent has said anything about it: `show` says that it is unknown."""
    from capsule.core.budget import in_words

    spent = state.spending
    return [f"  agents used: {in_words(spent)}"] if spent.priced or spent.counted else []


def _if_merged_on_red(project: Project, mission: str) -> list[str]:
    from capsule.core.history import NOT_GREEN, read_mission

    journal = project.journal(read_only=True)
    events = [event for _, event in journal.events(mission)]
    journal.close()
    return [f"  {NOT_GREEN}"] if read_mission(events).on_red else []


def _halted_words(state: MissionState, project: Project) -> str:
    from capsule.reports.style import clean

    assert state.halt
    word = "parked" if state.halt.move.value == "park" else "stopped"
    worktree = project.root / ".capsule" / "worktrees" / state.mission
    return "\n".join(
        [
            f"{state.mission} {word} at {state.halt.phase}: {clean(state.halt.reason)}",
            *_used(state),
            f"  look at it:  capsule show {state.mission}",
            f"  worktree:    {worktree}",
            f"  go on:       capsule run {state.mission}",
        ]
    )
