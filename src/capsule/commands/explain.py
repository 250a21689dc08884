"""Explain which item is next, and why the others are not.

It shows the item that `capsule run` takes next, the order of those after it, and what each of the rest is waiting for.
Items that are likely to conflict with a running mission come last, with the shared files. With an ID: that item, the
command that helps, what is proven of its work, and how its exam went. Nothing is changed.

  capsule explain
  capsule explain WRK-005
  capsule explain --json | jq '.[] | select(.next)'

Exit code: 0 explained; 1 there is no such item; 2 the tracker cannot be read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from capsule.app.elsewhere import held_elsewhere
from capsule.app.items import find_item
from capsule.app.missions import running, states_of
from capsule.app.ordering import queued
from capsule.app.overlap import overlaps
from capsule.commands.arguments import ITEM_ID, say
from capsule.commands.item_table import nothing_yet
from capsule.commands.watching import MissionReader
from capsule.core.campaign import is_container
from capsule.core.inbox import way_on
from capsule.core.item import Item, check_id
from capsule.core.proven import proof_of
from capsule.core.schedule import QueuePosition
from capsule.project import Project, open_project
from capsule.reports.style import clean
from capsule.reports.words import exam
from capsule.system.clock import SystemClock


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "item", metavar="ID", type=ITEM_ID, nargs="?", help="only this item, and the command that helps"
    )
    parser.add_argument("--json", action="store_true", help="a list, in the order of the queue")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    only = check_id(args.item) if args.item else None
    answers = [each for each in _answers(project) if only in (None, each["id"])]
    if only and not answers:
        find_item(project.tracker, only)
    if args.json:
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return 0
    width = max((len(each["id"]) for each in answers), default=0)
    for each in answers:
        where = "next" if each["next"] else f"after {each['after']}" if each["actionable"] else "not now"
        say(f"{each['id']:<{width}}  {where}: {each['why']}")
        if args.item:
            say(f"  next: {each['to_move_it']}")
    if not answers:
        say(f"{args.item} is closed." if args.item else nothing_yet(project.tracker))
    if only:
        with MissionReader(project) as reader:
            history = reader.history(only)
        proof = proof_of(history)
        if proof.line:
            say(f"  {proof.label}: {clean(proof.line)}")
        for line in exam(history.state):
            say(f"  exam: {clean(line)}")
    return 0


def _answers(project: Project) -> Iterator[dict[str, Any]]:
    """Describe each item's place in the queue."""
    items = project.tracker.everything()
    states = states_of(project, [item.id for item in items])
    pids = running(project, {item.id for item in items})
    busy = {name: f"it is running{f' (pid {pid})' if pid else ''}" for name, pid in pids.items()}
    elsewhere = held_elsewhere(project, look=True)
    busy = {**{name: claim.in_words(SystemClock().now()) for name, claim in elsewhere.items()}, **busy}
    helps: dict[str, str] = {}
    with MissionReader(project) as reader:
        for item in items:
            view = reader.whole(item.id, "") if item.id in states else None
            helps[item.id] = way_on(view, item)
            if view and view.halted and helps[item.id] and not item.blocked and project.tracker.traits.authoritative:
                busy[item.id] = view.sentence  # a run would only repeat that
    places = queued(project, states, items, busy)  # exactly as a run would find it, except for running missions
    overlap = overlaps(project, [place.item for place in places if place.actionable or place.item.id in pids], pids)
    before = ""
    for place in sorted(places, key=lambda place: place.item.id in overlap):
        item, can = place.item, place.actionable
        case = _Case(item, place, item.id in pids, item.id in elsewhere)
        way = next((way for applies, way in WAYS if applies(case)), "capsule run {id}")
        yield {
            "id": item.id,
            "title": item.title,
            "status": item.status.value,
            "actionable": can,
            "next": can and not before,
            "after": before if can else "",
            "why": clean("; ".join(filter(None, (place.why, overlap.get(item.id))))),
            "to_move_it": helps[item.id]
            or way.format(id=item.id, who=item.taken_by, others=" and ".join(place.waits_for)),
        }
        before = item.id if can else before


class _Case(NamedTuple):
    """An item in the queue that waits for no person."""

    item: Item
    place: QueuePosition
    runs: bool
    elsewhere: bool


WAYS: tuple[tuple[Callable[[_Case], object], str], ...] = (
    (lambda case: case.place.actionable, "capsule run {id}"),
    (lambda case: case.item.blocked, "lift the hold in its tracker"),
    (lambda case: is_container(case.item) and case.item.holds, "capsule run {id} runs the items in it"),
    (lambda case: is_container(case.item), "add an item to it: capsule add TITLE --parent {id}"),
    (lambda case: case.runs, "watch it: capsule logs {id} -f"),
    (lambda case: case.elsewhere, "leave it to that clone, or take it over: capsule run {id} --take-over"),
    (lambda case: case.item.taken_by, "wait for {who}, or reassign it in its tracker"),
    (lambda case: case.place.why.startswith("waits for itself"), "remove one of these dependencies: they form a cycle"),
    (lambda case: case.place.waits_for, "finish {others} first, or remove the dependency"),
)
"""The command that helps an item: the first that applies, in the order in which the queue objects."""
