"""`capsule show ID`: where a mission stands."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.core.errors import CapsuleError, UnknownItem
from capsule.core.item import Status, check_id

if TYPE_CHECKING:
    from capsule.core.state import MissionState
    from capsule.project import Project
    from capsule.reports.story import Story

DESCRIPTION = """\
Show where a mission stands: each phase with its attempts, what the agent claimed there and what Capsule saw for itself,
the feedback that waits for the next agent, where its papers are, and the command to type next.

  ✓ the claim held      ✗ the claim was refuted, with the proof      ? it could not be checked

Nothing is changed, so it is safe while the mission runs. A mission that began a phase and that nobody holds is shown as
interrupted; `capsule run ID` goes on with it.

  capsule show demo-1.1.1
  capsule show demo-1.1.1 --json | jq '.attempts[] | select(.verdict == "REFUTED")'

Exit code: 0 shown, 1 there is no such mission.
"""

_NAMED = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    from capsule.project import open_project
    from capsule.reports.story import facts, lines
    from capsule.reports.style import Style

    story = tell(open_project(args.project_dir), check_id(args.item))
    if args.json:
        print(json.dumps(facts(story), indent=2))
        return 0
    width = shutil.get_terminal_size((100, 24)).columns
    print("\n".join(lines(story, Style(sys.stdout), width)))
    return 0


def tell(project: Project, mission: str) -> Story:
    from msgspec.structs import replace

    from capsule.core.standpoint import Standpoint
    from capsule.core.state import children_of, replay
    from capsule.reports.story import Story

    class Over(Story):
        """Its item is closed: there is nothing to run any more."""

        def standpoint(self) -> Standpoint:
            return replace(super().standpoint(), next=f"capsule logs {self.mission}")

    state = find_mission(project, mission, "show")
    kind = Over if state.abandoned and _is_closed(project, mission) else Story
    journal = project.journal(read_only=True)
    try:
        events = [event for _, event in journal.events(mission)]
        children = children_of(replay(events), lambda child: replay(event for _, event in journal.events(child)))
        return kind(events, journal.running(mission), project.root, tuple(children))
    finally:
        journal.close()


def find_mission(project: Project, name: str, verb: str) -> MissionState:
    """Where it stands. What is run as a whole has no mission of its own: those of what it holds are named."""
    from capsule.app.missions import known_mission, mission_state

    state = mission_state(project, name)
    below = [] if state.started else _held_by(project, name)
    if not below:
        return known_mission(project, name)
    named = f"{', '.join(below[:_NAMED])}{', ...' if len(below) > _NAMED else ''}"
    hint = f"`capsule status` shows it; `capsule {verb} ID` is for one of {named}."
    raise CapsuleError(f"{name} is run as a whole, and has no mission of its own.", hint, exit_code=1)


def _held_by(project: Project, name: str) -> list[str]:
    """What is worked on below it; nothing where nobody can tell."""
    from capsule.core.campaign import is_container
    from capsule.project import tracker_if_there

    try:
        tracker = tracker_if_there(project)
        members = () if tracker.keeps_phases else tracker.under(name)
    except CapsuleError:
        return []
    return [item.id for item in members if not is_container(item)]


def _is_closed(project: Project, name: str) -> bool:
    from capsule.project import open_tracker

    try:
        return open_tracker(project).item(name).status is Status.DONE
    except UnknownItem:
        return True
    except CapsuleError:
        return False
