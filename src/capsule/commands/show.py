"""Show the state of a mission: phases, claims against evidence, feedback.

It shows the status, each phase with its attempts, the agent's claims and what Capsule verified, feedback for the next
attempt, the paths of worktree and logs, and the next command.

  ✓ the claim holds      ✗ the claim is refuted, with the proof      ? it could not be checked

Nothing is changed, so it is safe while the mission runs. Resume a stopped mission with `capsule run ID`.

  capsule show demo-1.1.1
  capsule show demo-1.1.1 --json | jq '.attempts[] | select(.verdict == "REFUTED")'

Exit code: 0 shown, 1 there is no such mission.
"""

from __future__ import annotations

import argparse
import json
import sys

from msgspec.structs import replace

from capsule.app.missions import known_mission, mission_state
from capsule.commands.arguments import item_argument
from capsule.commands.watching import MissionReader
from capsule.core.campaign import is_container
from capsule.core.errors import CapsuleError, UnknownItem
from capsule.core.history import MissionSummary
from capsule.core.inbox import way_on
from capsule.core.item import Item, Status, check_id
from capsule.core.state import MissionState
from capsule.project import Project, open_project, open_tracker, tracker_if_there
from capsule.reports.facts import mission_facts
from capsule.reports.show import show_lines
from capsule.reports.style import Style, output_width
from capsule.system.clock import SystemClock

_NAMED = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    summary = summarize(project, check_id(args.item))
    if args.json:
        print(json.dumps(mission_facts(summary, project.root), indent=2))
        return 0
    print("\n".join(show_lines(summary, project.root, Style(sys.stdout), output_width(sys.stdout))))
    return 0


def summarize(project: Project, mission: str) -> MissionSummary:
    """Read a mission with its child missions."""
    state = find_mission(project, mission, "show")
    now = SystemClock().now()
    with MissionReader(project) as reader:
        summary = reader.whole(mission, now)
    if state.abandoned:
        return replace(summary, next=f"capsule logs {mission}") if is_closed(project, mission) else summary
    item = _opened_again(project, mission) if state.finished and state.item_closed else None
    if item is None:
        return summary
    from capsule.app.planning import command_to_run  # noqa: PLC0415 - start-up

    at = f" at {item.phase}" if item.phase else ""
    told = summary.sentence.replace("its item is closed", f"its item was opened again: {item.status.value}{at}")
    anew = " --fresh" if summary.merged and item.status is Status.IN_PROGRESS else ""  # the work was reverted, too
    again = way_on(None, item) or command_to_run(project, item, state.workflow.name, anew)
    return replace(summary, sentence=told, next=again)


def find_mission(project: Project, name: str, verb: str) -> MissionState:
    """Return the state of a known mission; for an epic or a feature, name the missions of its items."""
    state = mission_state(project, name)
    below = [] if state.started else _held_by(project, name)
    if not below:
        return known_mission(project, name)
    named = f"{', '.join(below[:_NAMED])}{', ...' if len(below) > _NAMED else ''}"
    hint = f"`capsule status` shows it; `capsule {verb} ID` is for one of {named}."
    raise CapsuleError(f"{name} is run as a whole and has no mission of its own.", hint, exit_code=1)


def _held_by(project: Project, name: str) -> list[str]:
    """List the tasks below it; none if the tracker cannot be read."""
    try:
        tracker = tracker_if_there(project)
        members = tracker.under(name)
    except CapsuleError:
        return []
    return [item.id for item in members if not is_container(item)]


def _opened_again(project: Project, name: str) -> Item | None:
    """Return the open item of a finished mission: a person reopened it, or reverted the commit that closed it."""
    try:
        item = open_tracker(project).item(name)
    except CapsuleError:
        return None
    return None if item.status is Status.DONE else item


def is_closed(project: Project, name: str) -> bool:
    """Tell whether its tracker has closed or archived an item."""
    try:
        return open_tracker(project).item(name).status is Status.DONE
    except UnknownItem:
        return True
    except CapsuleError:
        return False
