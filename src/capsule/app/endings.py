"""End missions, and finish what a killed one left unrecorded.

`abort`, `clean` and `teardown` differ in what they keep; each salvages first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from capsule.adapters import Order
from capsule.app.control import refuse_what_is_left, stop_missions
from capsule.app.missions import known_mission, mission_state, running
from capsule.core.errors import CapsuleError, InvalidId, Refused, RemoteFault, UnknownItem
from capsule.core.event import Abandoned
from capsule.core.item import Item, check_id
from capsule.core.state import MissionState
from capsule.engine.actions import close_item, logs_of
from capsule.engine.bookkeeping import sync_tracker
from capsule.engine.job import load_state, note, place_of
from capsule.engine.merging import look_for_its_merge, merges_on_the_branch
from capsule.engine.run_mission import reopen
from capsule.project import Project, tracker_if_there
from capsule.reports.live import FanOut
from capsule.rules import words_at
from capsule.services import Services
from capsule.wiring import open_services


class EndedMission(NamedTuple):
    """The end of a mission, or the reason for leaving it alone."""

    mission: str
    salvage: str = ""
    """The salvage ref; '' if there was nothing to keep."""
    was_running: bool = False
    branch_kept: bool = False
    merged: str = ""
    """The merge, if the mission only had to be archived; its item was closed, unless there is a warning."""
    running: int | None = None
    """The pid of a mission that runs, and was left alone; 0 if it is unknown here."""
    warnings: tuple[str, ...] = ()


def abandon(project: Project, mission: str, *, branch: bool) -> EndedMission | None:
    """Stop a mission and salvage its work, and its branch if that is removed; None if nothing is left of it."""
    if not _leftovers(project, mission):
        known_mission(project, mission)
        return None
    stopped = stop_missions(project, [mission], lambda _: None)
    refuse_what_is_left(stopped)
    ended = end_mission(project, mission, how="cleaned" if branch else "aborted", branch=branch, given_up=True)
    kept = bool(project.git.resolve(f"refs/heads/capsule-{mission}"))
    return ended._replace(was_running=bool(stopped.missions), branch_kept=kept)


def clean_all(project: Project, missions: Sequence[str]) -> Iterator[EndedMission]:
    """Clean these missions, except running ones; at the end, raise what kept one from it."""
    kept: RemoteFault | None = None
    for mission in missions:
        pid = running(project, {mission}).get(mission)
        if pid is not None:
            yield EndedMission(mission, running=pid)
            continue
        try:
            ended = end_mission(project, mission, how="cleaned", branch=True, given_up=True)
        except RemoteFault as fault:
            kept = kept or fault
            continue
        yield ended
    if kept:
        raise kept


def empty_output(project: Project) -> bool:
    """Empty `.capsule/output` and keep the folder; return False if it is empty."""
    output = project.root / ".capsule" / "output"
    if not output.is_dir() or not any(output.iterdir()):
        return False
    shutil.rmtree(output)
    output.mkdir()
    return True


def end_mission(project: Project, mission: str, *, how: str, branch: bool, given_up: bool = False) -> EndedMission:
    """Salvage, remove, release the item, and journal it.

    If the work is merged the item is closed, so that it is not done again.
    """
    tracker = tracker_if_there(project)  # a mission must be removable even without its tracker
    with (
        open_services(project, tracker, words_at(project, ""), FanOut(), None) as services,
        services.journal.claim(mission),
    ):
        state = load_state(services, mission)
        if given_up and state.under_way:
            look_for_its_merge(state, services)  # before anything is taken away
        salvage = take_away(services, mission, why="abandoned", branch=branch)
        state = load_state(services, mission)
        merged = _merge_of(state, services) if given_up and state.under_way else ""
        warnings = _close(services, state, merged) if merged else _release(services, mission)
        if state.in_review and state.request:
            warnings = (*warnings, f"note: its request is still open: {state.request.url}")
        if state.under_way:
            services.journal.note(mission, Abandoned(at=services.clock.now(), how=how, salvage=salvage))
        claimed = services.claims.release(mission)
        warnings += (f"warning: {claimed}",) if claimed else ()
    return EndedMission(mission, salvage, merged=merged, warnings=warnings)


def end_unmerged(services: Services, mission: str, how: str) -> tuple[str, tuple[str, ...]]:
    """End a mission whose request was closed, and free its item; return the ref that keeps the work, and warnings."""
    salvage = take_away(services, mission, why=how, branch=True)
    warnings = _release(services, mission)
    note(services, mission, Abandoned(at=services.clock.now(), how=how, salvage=salvage))
    return salvage, warnings


def record_last_step(project: Project, mission: str) -> None:
    """Write the outcome of a step to the tracker if it was killed before that."""
    words = words_at(project, mission_state(project, mission).base)
    with open_services(project, project.tracker, words, FanOut(), None) as services, services.journal.claim(mission):
        sync_tracker(load_state(services, mission), services)


def reopen_mission(project: Project, item: Item, notes: str) -> None:
    """Journal now that a halted mission is reopened, so that any later run, the queue too, continues it."""
    state = mission_state(project, item.id)
    order = Order(
        mission=item.id,
        item=item,
        workflow=state.workflow,
        base=state.base,
        into=state.into,
        policy=state.policy,
        notes=notes,
    )
    with open_services(project, project.tracker, words_at(project, state.base), FanOut(), None) as services:
        reopen(order, services)


def take_away(services: Services, mission: str, *, why: str, branch: bool) -> str:
    """Remove its place after keeping files and commits under a ref (returned), worklog and outputs in the logs."""
    place = place_of(load_state(services, mission), services, mission)
    services.archive.working_folder(mission)  # puts aside leftovers of an agent
    salvage = place.salvage(why)
    worklog = place.worklog()
    if worklog or services.archive.has_outputs(mission):
        services.archive.store(mission, logs_of(mission, services, worklog))
    place.remove(branch=branch)
    services.archive.drop_working_folder(mission)
    return salvage


def refuse_if_merged_unheard_of(state: MissionState, services: Services) -> None:
    """Refuse to start a mission over whose push to a remote arrived: it would be merged twice."""
    if not state.under_way or "merged" in state.facts or not services.trunk(state.into).at_remote:
        return
    look_for_its_merge(state, services)
    if merged := _merge_of(state, services):
        hint = f"Have that recorded: capsule run {state.mission}"
        raise Refused(f"{state.mission} was merged as {merged[:12]} already.", hint)


def refuse_to_start_over(project: Project, state: MissionState) -> None:
    """Refuse as above, where no services are open."""
    with open_services(project, project.tracker, words_at(project, state.base), FanOut(), None) as services:
        refuse_if_merged_unheard_of(state, services)


def _merge_of(state: MissionState, services: Services) -> str:
    """Return the mission's merge, also if it was killed before it recorded that; '' if it has none, or no branch."""
    with suppress(CapsuleError):
        found = (merge.commit for merge in merges_on_the_branch(state, services))
        return state.facts.get("merged") or next(found, "")
    return ""


def _close(services: Services, state: MissionState, merged: str) -> tuple[str, ...]:
    """Close an item in its tracker; return a warning if it refuses."""
    try:
        close_item(replace(state, facts={**state.facts, "merged": merged}), services)
    except CapsuleError as fault:
        return (f"warning: {state.item.id} is merged, but could not be closed in the tracker: {fault.message}",)
    return ()


def _release(services: Services, mission: str) -> tuple[str, ...]:
    """Take back our claim in the tracker; return a warning if it refuses."""
    try:
        services.state_store.release(mission)
    except (UnknownItem, InvalidId):
        return ()  # the item is gone from its tracker: nothing is claimed any more
    except CapsuleError as fault:
        there = services.tracker.traits.own_command("release", mission, ".", ", such as with: ")
        claimed = f"warning: {mission} is still claimed in its tracker: {fault.message}"
        return (f"{claimed}\n  Release the claim there{there}",)
    return ()


def _leftovers(project: Project, mission: str) -> bool:
    """Tell whether anything of this mission is left; refuse folders and branches that only share its name."""
    refs = project.git.refs(f"refs/heads/capsule-{mission}", f"refs/capsule/checkpoints/{mission}")
    place = project.root / ".capsule" / "worktrees" / mission
    found = bool(refs) or place.exists() or project.logs().folder(mission).exists()
    if found and mission not in _made_by_us(project):
        what = place if place.exists() else f"The folder or branch {mission}"
        raise CapsuleError(
            f"{what} was not made by Capsule; left alone.", "If it is not needed, remove it yourself.", exit_code=1
        )
    return found


def worktrees(project: Project) -> tuple[list[str], list[str]]:
    """Name the missions with a worktree, and other folders next to them."""
    folder = project.root / ".capsule" / "worktrees"
    names = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
    without_folder = {ref.split("/", 3)[3] for ref in project.git.refs("refs/capsule/base")} - names
    ours = set()
    for name in _made_by_us(project) if names else ():
        with suppress(InvalidId):
            ours.add(check_id(name))
    return sorted((names & ours) | without_folder), sorted(names - ours)


def _made_by_us(project: Project) -> set[str]:
    """Name every mission that Capsule began, by its ref or its journal."""
    refs = project.git.refs("refs/capsule/base", "refs/capsule/checkpoints")
    journal = project.journal(read_only=True)
    streams = journal.missions()
    journal.close()
    return {*streams, *(ref.split("/", 3)[3] for ref in refs)}
