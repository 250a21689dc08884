"""`capsule run EPIC`: everything that an epic or a feature holds, dependencies first, as one undertaking."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from capsule.commands.output import JSON
from capsule.commands.queue import ProjectDesk, cap_of, go_through, laid_out, queued, rows_of, states_of
from capsule.core.campaign import closing_words, is_container, to_do
from capsule.core.errors import CapsuleError, Interrupted, Refused, UsageError
from capsule.core.event import CAMPAIGN
from capsule.core.item import Item, Status

if TYPE_CHECKING:
    from capsule.adapters import Tracker
    from capsule.commands.run import Plan
    from capsule.core.schedule import Place
    from capsule.core.state import MissionState
    from capsule.engine.campaign import Campaign
    from capsule.engine.dispatch import Desk, Errand, RunReport
    from capsule.engine.job import Order
    from capsule.services import Services
    from capsule.wiring import Project

_WIDEST_TITLE = 60
_MOST_SHOWN = 100
_FOR_ONE_TASK = {
    "fresh": "--fresh starts one task over",
    "rebase": "--rebase rebuilds the work of one task",
    "base": "--base says where one task starts",
}


def is_campaign(tracker: Tracker, item: Item) -> bool:
    """Whether it is run by running what it holds."""
    return not tracker.keeps_phases and is_container(item)


def run_campaign(project: Project, tracker: Tracker, root: Item, args: argparse.Namespace) -> int:
    from capsule.engine.campaign import Campaign
    from capsule.engine.dispatch import Errand

    members = tracker.under(root.id)
    _refuse_what_makes_no_sense(root, members, args)
    into = _into(project, args)
    if args.dry_run:
        return _show(project, tracker, members, args, into)
    if root.status is Status.DONE:
        if args.output != JSON:
            print(f"{root.id} is done: {closing_words(root, members)}.")
        return 0
    cap, stream = cap_of(project, args), f"{CAMPAIGN}{root.id}"
    stops = (args.on_failure or project.settings.campaign.on_failure) == "stop"

    def set_up(services: Services) -> tuple[Errand, Desk]:
        campaign = Campaign(root.id, services, stream)
        errand = Errand(stream, cap, to_the_end=True, undertaking=campaign, stops_at_failure=stops)
        return errand, CampaignDesk(campaign, into, project, tracker, services, args)

    try:
        return go_through(set_up, project, tracker, args, lambda report: summary(report, cap, root)).exit_code
    except Interrupted as stop:
        stop.hint = f"Go on with `capsule run {root.id}`."
        raise


def _refuse_what_makes_no_sense(root: Item, members: Sequence[Item], args: argparse.Namespace) -> None:
    if not members:
        hint = f"Put what is to be done into it (capsule add TITLE --parent {root.id}), and run it again."
        raise Refused(f"{root.id} is an {root.type} that holds nothing, so there is nothing to work on.", hint)
    left = to_do(members)
    example = left[0].id if left else members[-1].id
    for name, what in _FOR_ONE_TASK.items():
        if getattr(args, name):
            hint = f"Name it: {_example(name, example, args)}"
            raise UsageError(f"{what}, and {root.id} is run as a whole.", hint)
    if root.status is Status.DONE and left:
        hint = f"Reopen it in its tracker, or run what is left by itself: capsule run {example}"
        raise Refused(f"{root.id} is closed already, and {example} is not.", hint)


def _example(name: str, item: str, args: argparse.Namespace) -> str:
    value = f" {args.base}" if name == "base" else ""
    return f"capsule run {item} --{name}{value}"


def _into(project: Project, args: argparse.Namespace) -> str:
    """The branch that everything goes into, and that each mission starts from the tip of."""
    from capsule.workspaces import repository

    into: str = args.into or repository.main_branch(project.git, project.settings.project.main)
    if not project.git.resolve(f"refs/heads/{into}"):
        raise CapsuleError(f"There is no branch {into}.", "List the branches there are: git branch")
    return into


class CampaignDesk(ProjectDesk):
    """The queue of a project, for what one item holds: missions that halted are gone on with, as `run TASK` would."""

    def __init__(self, campaign: Campaign, into: str, *whose: Any) -> None:
        super().__init__(*whose)
        self._campaign, self._into = campaign, into

    def places(self, left_alone: Mapping[str, str]) -> Sequence[Place]:
        items = self._tracker.everything()
        states = self.states(items)
        return queued(self._project, self._tracker, states, items, left_alone, resumed=_under_way(states))

    def plan(self, item: Item) -> Plan:
        return _plan(self._project, self._tracker, item, self._args, self._into)

    def order(self, item: Item) -> tuple[Order, Services]:
        going_on = item.id in self._states and self._states[item.id].under_way
        order, services = super().order(item)
        return (order if going_on else replace(order, earlier=self._campaign.earlier(item))), services


def _plan(project: Project, tracker: Tracker, item: Item, args: argparse.Namespace, into: str) -> Plan:
    from capsule.commands.run import plan_mission

    return plan_mission(project, tracker, item.id, args, start=f"refs/heads/{into}")


def _under_way(states: Mapping[str, MissionState]) -> set[str]:
    return {name for name, state in states.items() if state.under_way}


def _show(project: Project, tracker: Tracker, members: Sequence[Item], args: argparse.Namespace, into: str) -> int:
    """`--dry-run`: the order in which everything would be done, and what the first agent would be told."""
    from capsule.commands.dry_run import show_plan
    from capsule.core.schedule import in_order

    items = tracker.everything()
    states = states_of(project, items)
    wanted = {item.id for item in to_do(members)}
    found = in_order(items, wanted, partial(queued, project, tracker, states, resumed=_under_way(states)), _MOST_SHOWN)
    for number, place in enumerate(found, 1):
        word = f"{number}. would run" if place.actionable else "not now"
        print(f"{place.item.id}  {word}: {place.why}")
    if more := len(wanted) - len(found):
        print(f"... and {more} more")
    if not found or not found[0].actionable:
        print("Nothing would be done.")
        return 0
    print()
    return show_plan(_plan(project, tracker, found[0].item, args, into), args.model or "")


def summary(report: RunReport, cap: int, root: Item) -> str:
    """What the campaign came to: how far everything is, what was not run and why, and what to type next."""
    from capsule.core.errors import Interrupted
    from capsule.reports.style import clean
    from capsule.reports.table import column, widest

    rows = rows_of(report, cap)
    rows += [("not run", f"{item}: {clean(why)}") for item, why in report.waiting.items()]
    unfinished = any(row.done < row.of for row in report.progress)
    rows += _to_undo(report)
    if unfinished:
        rows += _way_on(report, root)
    stopped = report.exit_code == Interrupted.exit_code  # the error that follows says where
    head = f"Campaign {root.id} is not at its end." if stopped else f"Campaign {root.id} ended: {report.ended_because}."
    lines = [laid_out(head, rows)]
    if report.progress:
        ids, titles = [row.item for row in report.progress], [clean(row.title) for row in report.progress]
        left, middle = widest(ids), min(widest(titles), _WIDEST_TITLE)
        lines += [
            f"  {column(row.item, left)}  {column(title, middle)}  {row.done} of {row.of} done"
            for row, title in zip(report.progress, titles, strict=True)
        ]
    return "\n".join(lines)


def _to_undo(report: RunReport) -> list[tuple[str, str]]:
    """The newest first: that is the order in which they can be taken back."""
    merges = {name: report.states[name].facts.get("merged", "") for name in report.done if name in report.states}
    return [(f"undo {name}:", f"git revert -m 1 {merged[:12]}") for name, merged in reversed(merges.items()) if merged]


def _way_on(report: RunReport, root: Item) -> list[tuple[str, str]]:
    """Commands, and nothing else: they are there to be pasted."""
    stuck = next(iter(report.stuck), "")
    return [("go on", f"capsule run {root.id}"), *([("why", f"capsule show {stuck}")] if stuck else [])]
