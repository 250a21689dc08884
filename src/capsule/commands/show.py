"""`capsule show ID`: where a mission stands."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from typing import TYPE_CHECKING

from capsule.commands.arguments import item_argument, project_option
from capsule.core.item import check_id

if TYPE_CHECKING:
    from capsule.reports.story import Story
    from capsule.wiring import Project

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


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser)
    project_option(parser)
    parser.add_argument("--json", action="store_true", help="everything as one JSON object")


def run(args: argparse.Namespace) -> int:
    from capsule.reports.story import facts, lines
    from capsule.reports.style import Style
    from capsule.wiring import open_project

    story = tell(open_project(args.project_dir), check_id(args.item))
    if args.json:
        print(json.dumps(facts(story), indent=2))
        return 0
    width = shutil.get_terminal_size((100, 24)).columns
    print("\n".join(lines(story, Style(sys.stdout), width)))
    return 0


def tell(project: Project, mission: str) -> Story:
    from capsule.commands.common import known_mission
    from capsule.core.state import children_of, replay
    from capsule.reports.story import Story

    known_mission(project, mission)
    journal = project.journal(read_only=True)
    try:
        events = [event for _, event in journal.events(mission)]
        children = children_of(replay(events), lambda child: replay(event for _, event in journal.events(child)))
        return Story(events, journal.running(mission), project.root, tuple(children))
    finally:
        journal.close()
