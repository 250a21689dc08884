"""How missions are taken away: abort, clean and teardown differ in what they keep, and salvage the same way first."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, InvalidId, LockHeld, UnknownItem
from capsule.core.event import Abandoned
from capsule.core.item import check_id

if TYPE_CHECKING:
    from pathlib import Path

    from capsule.services import Services
    from capsule.wiring import Project

_PATIENCE = 15.0
"""A runner that was told to stop ends its agent (5 s at most), writes it down, and lets go."""


def worktrees(project: Project) -> tuple[list[str], list[str]]:
    """The missions that have a worktree, and the folders beside them that are somebody else's."""
    folder = project.root / ".capsule" / "worktrees"
    names = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    without_folder = {ref.split("/", 3)[3] for ref in project.git.refs("refs/capsule/base")} - names
    ours = {name for name in made_by_us(project) if _is_id(name)} if names else set()
    return sorted((names & ours) | without_folder), sorted(names - ours)


def made_by_us(project: Project) -> set[str]:
    """Every mission that Capsule began: it set a ref before it made anything, or wrote in the journal."""
    refs = project.git.refs("refs/capsule/base", "refs/capsule/checkpoints")
    journal = project.journal(read_only=True)
    streams = journal.missions()
    journal.close()
    return {*streams, *(ref.split("/", 3)[3] for ref in refs)}


def end_mission(project: Project, mission: str, *, how: str, branch: bool) -> str:
    """Salvage, remove, release, and write it down. What was kept, or '' where there was nothing to keep."""
    from capsule.engine.job import standing
    from capsule.reports.live import FanOut
    from capsule.rules import words_at
    from capsule.wiring import open_services, tracker_if_there

    tracker = tracker_if_there(project)  # a mission must be removable also where its tracker has gone
    with (
        open_services(project, tracker, words_at(project, ""), FanOut(), None) as services,
        services.journal.claim(mission),
    ):
        salvage = take_away(services, mission, why="abandoned", branch=branch)
        _release(services, mission)
        if standing(services, mission).under_way:
            services.journal.note(mission, Abandoned(at=services.clock.now(), how=how, salvage=salvage))
    return salvage


def take_away(services: Services, mission: str, *, why: str, branch: bool) -> str:
    """Its place, once all that was there is kept: files and commits under a ref, worklog and outputs in the logs."""
    from capsule.engine.actions import papers_of
    from capsule.engine.job import place_of, standing

    workspace = place_of(standing(services, mission), services, mission)
    services.archive.working_folder(mission)  # puts aside what an agent may have left in its place
    salvage = workspace.salvage(why)
    worklog = workspace.worklog()
    if worklog or services.archive.has_outputs(mission):
        services.archive.store(mission, papers_of(mission, services, worklog))
    workspace.remove(branch=branch)
    services.archive.drop_working_folder(mission)
    return salvage


def _release(services: Services, mission: str) -> None:
    if services.state_store:
        return  # nothing is claimed in a tracker that keeps the phase itself
    try:
        services.tracker.release(mission)
    except (UnknownItem, InvalidId):
        return  # the item is gone from its tracker: nothing is claimed any more
    except CapsuleError as fault:
        print(f"warning: {mission} is still claimed in its tracker: {fault.message}", file=sys.stderr)
        by_bd = f", such as with: bd update {mission} --status=open" if services.tracker.name == "beads" else "."
        print(f"  Take the claim back there{by_bd}", file=sys.stderr)


def stop_runner(project: Project, mission: str) -> bool:
    """End the mission's own process, if it runs: told to stop, waited for. True if there was one."""
    journal = project.journal()
    pid = journal.running(mission)
    if pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _PATIENCE
    while journal.running(mission) is not None:
        if time.monotonic() > deadline:
            raise LockHeld(f"{mission} (pid {pid}) does not stop.", f"End it by hand: kill {pid}.")
        time.sleep(0.05)
    return True


def leftovers(project: Project, mission: str) -> bool:
    """Whether there is anything of this mission to take away. What only has its name is not touched."""
    refs = project.git.refs(f"refs/heads/capsule-{mission}", f"refs/capsule/checkpoints/{mission}")
    place = mission_folder(project, mission)
    found = bool(refs) or place.exists() or project.papers().folder(mission).exists()
    if found and mission not in made_by_us(project):
        what = place if place.exists() else f"What is called {mission} here"
        raise CapsuleError(
            f"{what} was not made by Capsule; left alone.", "Remove it by hand, if nobody needs it.", exit_code=1
        )
    return found


def mission_folder(project: Project, mission: str) -> Path:
    return project.root / ".capsule" / "worktrees" / mission


def _is_id(name: str) -> bool:
    try:
        check_id(name)
    except CapsuleError:
        return False
    return True
