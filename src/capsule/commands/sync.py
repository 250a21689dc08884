"""Ask the forge what has become of requests that wait for review, and go on as it says.

A request that is merged closes its item, also if it was squashed or rebased. One that is closed without a merge frees
its item; the work is kept. Where changes are requested or checks have failed, that is the feedback for the next agent:
`capsule run` goes on with it. No agent is started here. The queue asks by itself, now and then.

  capsule sync             all requests
  capsule sync demo-1.1.1  the request of one item

Exit code: 0 all were asked about; 1 one needs you; 3 the forge or the remote cannot be reached.
"""

from __future__ import annotations

import argparse

from capsule.app.missions import known_mission
from capsule.app.requests import Followed, follow_all, in_review, words_of
from capsule.commands.arguments import item_argument, say, tell
from capsule.core.item import check_id
from capsule.core.request import Fate
from capsule.project import open_project
from capsule.reports.live import FanOut
from capsule.reports.style import clean
from capsule.rules import words_at
from capsule.system.stop import Stop
from capsule.wiring import open_services


def arguments(parser: argparse.ArgumentParser) -> None:
    item_argument(parser, nargs="*")


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    named = [check_id(item) for item in dict.fromkeys(args.item)]
    states = {item: known_mission(project, item) for item in named}
    missions = [item for item in named if states[item].in_review] if named else in_review(project)
    for item in named:
        if item not in missions:
            say(f"{item} does not wait for a review.")
    if not missions:
        if not named:
            say("Nothing waits for a review.")
        return 0
    with Stop() as stop, open_services(project, project.tracker, words_at(project, ""), FanOut(), stop) as services:
        return max((_told(found) for found in follow_all(services, missions)), default=0)


def _told(found: Followed) -> int:
    """Print what has become of one request; return the exit code."""
    say(clean(words_of(found)))
    for warning in found.warnings:
        tell(warning)
    if found.fault:
        if found.fault.hint:
            say(f"  next: {clean(found.fault.hint)}")
        return found.fault.exit_code
    if found.state.halt:
        say("  next: capsule questions")
        return 1
    if found.news and found.news.fate is Fate.CHANGES:
        say(f"  next: capsule run {found.state.mission}")
    return 0
