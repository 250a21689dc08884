"""`capsule run ID`: the mission's own process, from wherever it stands to its end or its halt."""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from capsule.commands.arguments import agent_options, judging_options, project_option
from capsule.commands.common import flags_of, mission_state
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.item import Item, Status, check_id

if TYPE_CHECKING:
    from capsule.catalog import Catalog
    from capsule.core.state import MissionState
    from capsule.doors import Observer, Tracker, World
    from capsule.engine.job import Order
    from capsule.wiring import Project

DESCRIPTION = """\
Take an item through its workflow: each phase a fresh agent in the item's own worktree, each claim checked against
evidence, and main moved only to a tree on which the tests were green.

Run it again after a failure, a crash or Ctrl-C, and it goes on where it stood, keeping what was done.

  capsule run demo-1.1.1
  capsule run demo-1.1.1 --agent scripted --max-retries 1
  capsule run demo-1.1.1 --dry-run           what would be said and run, nothing done

Progress goes to stderr, the closing summary to stdout. Exit code: 0 merged; 1 stopped for a human (retries exhausted,
conflict, red gate, parked); 2 an agent or a prerequisite failed; 3 somebody else is at it; 130 stopped by a signal.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("item", metavar="ID", nargs="?", help="the item, as its tracker calls it")
    parser.add_argument("--target", metavar="ID", action="append", default=[], help="the same as naming the item")
    project_option(parser)
    agent_options(parser)
    judging_options(parser)
    parser.add_argument("--max-retries", metavar="N", type=int, help="how often each review may send work back")
    parser.add_argument("--base", metavar="REF", help="start from this commit instead of HEAD")
    parser.add_argument("--into", metavar="BRANCH", help="merge into this branch instead of main")
    parser.add_argument("--fresh", action="store_true", help="start over; what was there is salvaged first")
    parser.add_argument("--rebase", action="store_true", help="rebuild the work on the new main and go on from there")
    parser.add_argument(
        "--output", choices=("auto", "plain", "json"), default="auto", help="json: one event per line on stdout"
    )
    parser.add_argument("--no-tui", action="store_true", help="plain lines, also on a terminal")


def run(args: argparse.Namespace) -> int:
    from capsule.wiring import open_project

    items = [check_id(name) for name in ([args.item] if args.item else []) + args.target]
    project = open_project(args.project_dir, flags_of(args))
    if not items:
        raise _no_item(project)
    codes = [_run_one(project, item, args) for item in items]
    return max(codes)


def _no_item(project: Project) -> CapsuleError:
    from capsule.wiring import open_tracker

    ready = [item.id for item in open_tracker(project).items() if item.status is Status.READY and item.type == "task"]
    shown = ", ".join(ready[:5]) or "none is open"
    return UsageError("Which item? `capsule run` takes an ID.", f"Tasks that are open: {shown}.")


def _run_one(project: Project, item_id: str, args: argparse.Namespace) -> int:
    plan = plan_mission(project, item_id, args)
    if args.dry_run:
        from capsule.commands.dry_run import show_plan

        return show_plan(plan, args.model or "")
    if plan.done:
        if args.output == "json":
            return 0
        print(f"{item_id} is done: merged as {plan.state.facts.get('merged', 'nothing')[:12]}.")
        return 0
    state = pursue_plan(plan, args)
    if args.output != "json":
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
        unclosed = self.state.finished and not self.state.item_closed and "merged" in self.state.facts
        return unclosed and self.item.status is Status.IN_PROGRESS


def plan_mission(project: Project, item_id: str, args: argparse.Namespace) -> Plan:
    """What is missing is named here, with how to get it; nothing has been created yet."""
    from capsule.engine.job import Order
    from capsule.system.git import check_version
    from capsule.wiring import choose_workflow, open_tracker, policy_at, words_at
    from capsule.workspaces import repository

    if project.settings.sandbox == "required":
        hint = "Set sandbox to auto to run agents with your own permissions."
        raise CapsuleError("The settings require a sandbox, and this version has none yet.", hint)
    tracker = open_tracker(project)
    item = tracker.item(item_id)
    state = mission_state(project, item_id)
    if item.status is Status.DONE and not state.under_way and not state.finished:
        raise Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
    check_version()
    project.git.identity  # noqa: B018 - raises where git does not know who we are
    repository.refuse_if_under_way(project.git)
    going_on = state.under_way and not args.fresh
    notes: tuple[str, ...] = ()
    if going_on:
        base, into, notes = state.base, state.into, _fixed_at_the_start(args)
    else:
        base, into, notes = _start_point(project, tracker, item_id, args, fresh=args.fresh or state.started)
    words = words_at(project, base)
    policy, warnings = policy_at(project, base)
    workflow = state.workflow if going_on else choose_workflow(project, item, words, args.workflow)
    if workflow.workspace != "worktree":
        raise CapsuleError(
            f"The workflow {workflow.name!r} works in the checkout, which is not built yet.",
            "Use a workflow with `workspace: worktree`, such as tdd.",
        )
    order = Order(
        mission=item_id,
        item=item,
        workflow=workflow,
        base=base,
        into=into,
        policy=policy,
        lineage=tracker.lineage(item),
        retries=args.max_retries,
    )
    return Plan(
        project,
        tracker,
        words,
        item,
        state,
        order,
        (*project.loaded.warnings, *_which_tracker(project), *notes, *warnings),
    )


def _which_tracker(project: Project) -> tuple[str, ...]:
    """Whoever has bd installed may expect it to be asked."""
    beside = project.settings.tracker == "auto" and shutil.which("bd")
    return ("items are read from the JSONL in .beads, although bd is installed.",) if beside else ()


def _fixed_at_the_start(args: argparse.Namespace) -> tuple[str, ...]:
    """Whoever sets what cannot be changed any more is told so."""
    names = ("base", "into", "workflow", "verify")
    given = ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None)
    note = f"{given}: fixed when the mission started, and left as it was; --fresh starts over."
    return (note,) if given else ()


def _start_point(
    project: Project, tracker: Tracker, item_id: str, args: argparse.Namespace, *, fresh: bool
) -> tuple[str, str, tuple[str, ...]]:
    """Where a new mission starts from and goes into. A worktree that `prep` made keeps the base it was made from."""
    from capsule.workspaces import repository

    git, ref = project.git, f"refs/capsule/base/{item_id}"
    prepared = "" if fresh else git.refs(ref).get(ref, "")
    base = prepared or repository.base_of(git, args.base or "HEAD")
    into = args.into or repository.main_branch(git, project.settings.project.main)
    if args.into and not git.resolve(f"refs/heads/{into}"):
        raise CapsuleError(f"There is no branch {into}.", "List the branches there are: git branch")
    repository.refuse_if_ahead(git, base, into)
    dirty = repository.dirty_paths(git, tracker.own_files(), head="" if prepared or args.base else base)
    what = f"{len(dirty)} uncommitted change{'s are' if len(dirty) > 1 else ' is'} left alone in your checkout"
    note = f"{what}; the mission starts from {base[:12]}."
    return base, into, (note,) if dirty else ()


def pursue_plan(plan: Plan, args: argparse.Namespace) -> MissionState:
    from capsule.engine.run_mission import close_what_is_merged, pursue, standing
    from capsule.system.stop import Stop
    from capsule.wiring import open_world
    from capsule.workspaces import repository

    observer = observer_for(plan, args)
    with (
        Stop() as stop,
        open_world(plan.project, plan.tracker, plan.words, observer, stop, model=args.model or "") as world,
    ):
        check_agents(plan, world)
        repository.exclude_artefacts(plan.project.git, plan.order.base)
        for closed in close_what_is_merged(world):
            print(f"note: {closed} was merged earlier; its item is closed now", file=sys.stderr)
        if plan.merged_already:
            return standing(world, plan.order.mission)
        if plan.state.abandoned or (args.fresh and plan.began):
            start_over(plan.order.mission, world)
        return pursue(plan.order, world, rebase=args.rebase)


def observer_for(plan: Plan, args: argparse.Namespace) -> Observer:
    from capsule.reports.live import LiveFile, Several
    from capsule.wiring import SystemClock

    for note in plan.notes:
        print(f"note: {note}", file=sys.stderr)
    live = LiveFile(plan.project.papers().folder, SystemClock().now)
    if args.output == "json":
        from capsule.reports.json_lines import JsonReport

        return Several(JsonReport(), live)
    from capsule.reports.plain import PlainReport

    plain = PlainReport()
    if plan.state.under_way and not args.fresh:
        plain.resume(plan.order.mission, plan.state)
    return Several(plain, live)


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
    if not state.policy.test or state.policy.verify == "off":
        lines.append("  UNVERIFIED: no test command was run on it")
    if merged and state.policy.verify == "warn":
        lines += _if_merged_on_red(project, state.mission)
    lines.append(f"  papers:      .capsule/logs/{state.mission}/")
    return "\n".join(lines)


def _if_merged_on_red(project: Project, mission: str) -> list[str]:
    from capsule.reports.story import NOT_GREEN, merged_on_red

    journal = project.journal(read_only=True)
    events = [event for _, event in journal.events(mission)]
    journal.close()
    return [f"  {NOT_GREEN}"] if merged_on_red(events) else []


def _halted_words(state: MissionState, project: Project) -> str:
    from capsule.reports.style import clean

    assert state.halt
    word = "parked" if state.halt.move.value == "park" else "stopped"
    worktree = project.root / ".capsule" / "worktrees" / state.mission
    return "\n".join(
        [
            f"{state.mission} {word} at {state.halt.phase}: {clean(state.halt.reason)}",
            f"  look at it:  capsule show {state.mission}",
            f"  worktree:    {worktree}",
            f"  go on:       capsule run {state.mission}",
        ]
    )
