"""`capsule run` without an item, `triage`, `step`, and every run of a backlog's items: the queue works itself."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from capsule.commands.common import mission_state, on_tape
from capsule.commands.output import JSON, NONE
from capsule.core.campaign import is_container
from capsule.core.errors import Refused, UsageError
from capsule.core.event import RUN
from capsule.core.item import HELD, Item

if TYPE_CHECKING:
    from capsule.adapters import Observer, Tracker
    from capsule.commands.run import Plan
    from capsule.core.decide import Guardrails
    from capsule.core.schedule import Place
    from capsule.core.state import MissionState
    from capsule.core.workflow import Workflow
    from capsule.engine.dispatch import Desk, Errand, RunReport
    from capsule.engine.job import Order
    from capsule.reports.queue_lines import QueueReport
    from capsule.services import Services
    from capsule.wiring import Project

    SetUp = Callable[[Services], tuple[Errand, Desk]]
    """What is to be done, and where the queue lies, once the services are open."""

QUEUE = f"{RUN}queue"
"""The stream of a run; no item can have this name."""


def run_queue(project: Project, tracker: Tracker, args: argparse.Namespace, only: Sequence[str] = ()) -> int:
    """Through the whole queue, or through these items to their end."""
    from capsule.engine.dispatch import Errand

    if args.fresh and not only:
        raise UsageError("--fresh starts one item over: which?", "Name it: capsule run ID --fresh")
    for item_id in only:
        _make_way(project, tracker, tracker.item(item_id), args)
    if args.dry_run:
        return _show_queue(project, tracker, args, only)
    stream = f"{RUN}run-{only[0]}" if only else QUEUE
    errand = Errand(stream, cap_of(project, args), only=only or None, to_the_end=bool(only))
    return carry_out(errand, project, tracker, args)


def carry_out(errand: Errand, project: Project, tracker: Tracker, args: argparse.Namespace) -> int:
    """Of those items, in this order, with a summary at the end."""

    def set_up(services: Services) -> tuple[Errand, Desk]:
        return errand, ProjectDesk(project, tracker, services, args, errand.only or ())

    report = go_through(set_up, project, tracker, args, lambda report: summary(report, errand.cap, tracker))
    return max([report.exit_code, *report.halts]) if errand.only else report.exit_code


def go_through(
    set_up: SetUp, project: Project, tracker: Tracker, args: argparse.Namespace, sum_up: Callable[[RunReport], str]
) -> RunReport:
    """The summary is printed however the run ends, once there is something to sum up."""
    from capsule.engine.dispatch import RunReport

    report = RunReport()
    try:
        _work(set_up, project, tracker, args, report)
    finally:
        if args.output != JSON and report.ended_because and (report.spawns or report.exit_code != 2):
            print(sum_up(report), flush=True)
    return report


def cap_of(project: Project, args: argparse.Namespace) -> int:
    """How many agents this run may start."""
    cap: int = project.settings.execution.default_phase_cap if args.cap is None else args.cap
    if cap < 1:
        raise UsageError("--cap must be 1 or more.", "It counts every agent that is started, retries included.")
    return cap


def _make_way(project: Project, tracker: Tracker, item: Item, args: argparse.Namespace) -> None:
    """A named item is run, or it is said why not."""
    from capsule.commands.restarting import rebuild, start_anew

    if is_container(item) and not tracker.keeps_phases:
        raise Refused(f"{item.id} holds others, and these are worked on.", f"Run them all: capsule run {item.id}")
    if args.dry_run:
        return
    if args.fresh:
        start_anew(project, tracker, item)
    elif args.rebase:
        rebuild(project, tracker, item)
    elif item.blocked and tracker.keeps_phases:
        raise Refused(f"{item.id} is blocked ({item.blocked.kind}): {item.blocked.reason}", way_on(item.id, item))
    if tracker.keeps_phases or not mission_state(project, item.id).under_way:
        refuse_what_has_to_wait(tracker, item.id)


def refuse_what_has_to_wait(tracker: Tracker, item_id: str) -> None:
    """Something else comes first, as somebody has said: a tracker would not let it be closed."""
    from capsule.core.schedule import queue

    place = next((place for place in queue(tracker.items()) if place.item.id == item_id), None)
    if place and place.item.taken_by:
        raise Refused(f"{item_id} is {place.why}.", "Let them finish, or take it from them in the tracker.")
    if place and place.waits_for:
        raise Refused(f"{item_id} {place.why}.", f"Run that first, or take the dependency out of {item_id}.")
    if place and place.item.blocked:
        held = place.item.blocked.kind == HELD
        hint = f"Settle it in {tracker.name}, then go on." if held else f"Let it go on: capsule unblock {item_id}"
        raise Refused(f"{item_id} is {place.why}.", hint)


_SPENT = re.compile(r"The budget of the (?P<whose>\w+) is spent")


def way_on(item_id: str, item: Item | None, why: str = "") -> str:
    """What to type for an item that waits for a human, or for money."""
    spent = _SPENT.match(why)
    if spent and not (item and item.blocked):
        return f"raise budget.{spent['whose']}, then: capsule run {item_id}"
    if item and item.blocked and item.blocked.kind == "decision":
        return f"Decide it: capsule approve {item_id}"
    if item and not item.blocked:
        return f"capsule run {item_id}"
    return f'Answer it: capsule unblock {item_id} --notes "..."'


def _work(set_up: SetUp, project: Project, tracker: Tracker, args: argparse.Namespace, report: RunReport) -> None:
    from capsule.commands.notifying import notified
    from capsule.engine.dispatch import work_through
    from capsule.reports.queue_lines import QueueReport
    from capsule.rules import words_at
    from capsule.system.stop import Stop
    from capsule.wiring import budget_of, open_services
    from capsule.workspaces.upgrade import put_away_old_work

    lines = QueueReport(standing=partial(mission_state, project), budget=budget_of(project.settings))
    with (
        Stop() as stop,
        notified(project, _observer(project, tracker, args, lines)) as observer,
        open_services(project, tracker, words_at(project, ""), observer, stop, model=args.model or "") as opened,
    ):
        services = on_tape(opened, project, args)
        if services.state_store:
            services.state_store.finish()
            for kept in put_away_old_work(project.git):
                print(f"note: what an earlier version's agent left in your checkout is kept as {kept}", file=sys.stderr)
        work_through(*set_up(services), services, report)


def _observer(project: Project, tracker: Tracker, args: argparse.Namespace, lines: QueueReport) -> Observer:
    from capsule.commands.run import say_if_unconfined
    from capsule.reports.live import FanOut, LiveFile
    from capsule.system.clock import SystemClock

    tracker.items()  # what is odd about it shows when it is read
    for warning in (*project.loaded.warnings, *tracker.warnings):
        print(f"note: {warning}", file=sys.stderr)
    live = LiveFile(project.papers().folder, SystemClock().now)
    if args.output == JSON:
        from capsule.reports.json_lines import JsonReport

        return FanOut(JsonReport(), live)
    say_if_unconfined(project)
    return live if args.output == NONE else FanOut(lines, live)


class ProjectDesk:
    """The queue of a project, and the orders for its missions."""

    def __init__(
        self,
        project: Project,
        tracker: Tracker,
        services: Services,
        args: argparse.Namespace,
        named: Collection[str] = (),
    ) -> None:
        from capsule.rules import guardrails_of

        self.guardrails: Guardrails = guardrails_of(project.settings)
        self._project, self._tracker, self._services, self._args, self._named = project, tracker, services, args, named
        self._states = states_of(project, tracker.everything())
        self._told = set(project.loaded.warnings)  # by `_observer`
        self._taken: set[str] = set()

    def places(self, left_alone: Mapping[str, str]) -> Sequence[Place]:
        items = self._tracker.everything()
        states = self.states(items)
        return queued(self._project, self._tracker, states, items, left_alone, resumed=self._named)

    def states(self, items: Sequence[Item]) -> dict[str, MissionState]:
        """The missions as this run found them, and those that it took up as they are now."""
        if self._tracker.keeps_phases:
            return self._states
        return self._states | states_of(self._project, [item for item in items if item.id in self._taken])

    def workflow(self, item: Item) -> Workflow:
        from capsule.rules import choose_workflow, words_at

        base = self._project.git.resolve("HEAD")
        return choose_workflow(self._project, item, words_at(self._project, base), self._args.workflow)

    def plan(self, item: Item) -> Plan:
        from capsule.commands.run import plan_mission

        return plan_mission(self._project, self._tracker, item.id, self._args)

    def order(self, item: Item) -> tuple[Order, Services]:
        from capsule.commands.run import check_agents, make_place_ready, refuse_dirty

        plan = self.plan(item)
        if plan.order.workflow.publishes_steps and not self._taken:  # afterwards people may edit what they like
            refuse_dirty(self._project, self._tracker, self._args)
        if plan.merged_already:  # a mission of its own would do it all again
            hint = "Close it by hand, or run it again once the tracker lets it be closed."
            raise Refused(f"{item.id} is merged, and its tracker did not let it be closed.", hint)
        for note in plan.notes:
            if note not in self._told:
                self._told.add(note)
                print(f"note: {note}", file=sys.stderr)
        services = replace(self._services, words=plan.words)
        check_agents(plan, services)
        make_place_ready(plan)
        interrupted = self._states.pop(item.id, None)
        self._taken.add(item.id)
        if interrupted and interrupted.under_way and not interrupted.halt and self._args.output not in (JSON, NONE):
            print(f"Resuming {item.id} at {interrupted.to_do[0]}", file=sys.stderr)
        return plan.order, services


def states_of(project: Project, items: Sequence[Item]) -> dict[str, MissionState]:
    """The missions of these items, as the journal has them."""
    from capsule.core.state import replay

    journal = project.journal(read_only=True)
    known = set(journal.missions())
    found = {i.id: replay(event for _, event in journal.events(i.id)) for i in items if i.id in known}
    journal.close()
    return found


def queued(
    project: Project,
    tracker: Tracker,
    states: Mapping[str, MissionState],
    items: Sequence[Item],
    left_alone: Mapping[str, str] | None = None,
    *,
    resumed: Collection[str] = (),
) -> list[Place]:
    """These items as a queue. `resumed` go on although they halted, or are taken up although somebody began by hand."""
    from capsule.core.schedule import queue
    from capsule.rules import guardrails_of

    guardrails = guardrails_of(project.settings)
    if tracker.keeps_phases:
        interrupted = {n for n, state in states.items() if state.begun and not state.halt and n not in resumed}
        return queue(items, under_way=interrupted, left_alone=left_alone, guardrails=guardrails)
    standing = {name: words for name, state in states.items() if (words := _standing(state))}
    return queue(
        items,
        under_way={name for name, state in states.items() if state.under_way and not state.halt},
        halted={name: _halted(state) for name, state in states.items() if state.halt and name not in resumed},
        left_alone=left_alone,
        ours={*standing, *resumed},
        standing=standing,
        guardrails=guardrails,
        by_priority=True,
    )


def _standing(state: MissionState) -> str:
    """How a mission goes on; '' where it has come to its end."""
    from capsule.engine.job import only_to_be_closed

    if only_to_be_closed(state) or (state.under_way and "merged" in state.facts):
        return "is merged and only has to be closed"
    return f"goes on at {state.to_do[0]}" if state.under_way else ""


def _halted(state: MissionState) -> str:
    assert state.halt
    return f"its mission stopped at {state.halt.phase}: {state.halt.reason}; `capsule run {state.mission}` goes on"


def _show_queue(project: Project, tracker: Tracker, args: argparse.Namespace, only: Sequence[str]) -> int:
    """`--dry-run`: the order things would be taken in, and what the first agent would be told."""
    from capsule.commands.dry_run import show_plan
    from capsule.commands.run import plan_mission
    from capsule.core.schedule import choose

    items = tracker.everything()
    found = queued(project, tracker, states_of(project, items), items)
    for place in found:
        if not only or place.item.id in only:
            print(f"{place.item.id}  {'would run' if place.actionable else 'not now'}: {place.why}")
    item = choose(found, only or None)
    if item is None:
        print("Nothing would be done.")
        return 0
    print()
    return show_plan(plan_mission(project, tracker, item.id, args), args.model or "")


def summary(report: RunReport, cap: int, tracker: Tracker) -> str:
    """What the run came to, and what to type next."""
    rows = rows_of(report, cap)
    waiting = [*report.blocked, *report.failed]
    if waiting and tracker.keeps_phases:
        item = next((item for item in tracker.items() if item.id == waiting[0]), None)
        why = report.blocked.get(waiting[0], "")
        rows.append(("go on", way_on(waiting[0], item, why)))
    elif waiting:
        rows.append(("go on", f"capsule run {waiting[0]}"))
    return laid_out(f"Run ended: {report.ended_because}.", rows)


def rows_of(report: RunReport, cap: int) -> list[tuple[str, str]]:
    from capsule.core.budget import duration, in_words
    from capsule.reports.style import clean

    rows = [("phases", f"{report.spawns} of {cap}")]
    if report.done:
        rows.append(("done", ", ".join(report.done)))
    rows += [("blocked", f"{item}: {clean(why)}") for item, why in report.blocked.items()]
    rows += [("failed", f"{item}: {clean(why)}") for item, why in report.failed.items()]
    if report.follow_ups:
        rows.append(("new", ", ".join(report.follow_ups)))
    rows.append(("time", duration(report.seconds)))
    if report.spent.priced or report.spent.counted:
        rows.append(("agents", f"used {in_words(report.spent)}"))
    return rows


def laid_out(head: str, rows: Sequence[tuple[str, str]]) -> str:
    return "\n".join([head, *(f"  {name:<8} {text}" for name, text in rows)])
