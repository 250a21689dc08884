"""Plan a run of several items: refuse before anything is created. Nothing in here starts an agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from capsule.app.inbox import command_for
from capsule.app.missions import mission_state
from capsule.app.planning import MissionPlan, RunRequest, plan_mission
from capsule.core.campaign import is_container, to_do
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.item import Item, Status
from capsule.core.schedule import queue
from capsule.core.state import MissionState
from capsule.project import Project
from capsule.system.machine import most_jobs
from capsule.workspaces import repository

_FOR_ONE_TASK = {
    "fresh": "--fresh starts one task over",
    "rebase": "--rebase rebuilds the work of one task",
    "base": "--base says where one task starts",
    "take_over": "--take-over takes one task over from another clone",
}


def runs_as_queue(project: Project, request: RunRequest) -> bool:
    """Tell whether the items go through a queue: a backlog does, and tasks that run at the same time or under a cap."""
    if not request.items or project.tracker.traits.authoritative:
        return True
    several = jobs_of(project) > 1 and len(request.items) > 1 and not (request.fresh or request.rebase)
    capped = request.cap is not None and not (request.fresh or request.rebase)
    return (several or capped) and not any(is_container(project.tracker.item(item)) for item in request.items)


def plan_task(project: Project, item_id: str, request: RunRequest) -> MissionPlan:
    """Plan the mission of a task that is run by itself; refuse options that make no sense for it."""
    refuse_on_failure(request)
    if request.cap is not None:
        hint = "Leave the cap out: `budget.mission.tokens` and `budget.mission.usd` limit a mission however it is run."
        raise UsageError("--cap does not go with --fresh or --rebase of a task.", hint)
    refuse_what_has_to_wait(project, item_id)
    return plan_mission(project, item_id, request)


def refuse_on_failure(request: RunRequest) -> None:
    """Refuse an option that is for an epic."""
    if request.on_failure:
        hint = "Name an epic or a feature: capsule run ID --on-failure HOW"
        raise UsageError("--on-failure is for an item that holds others.", hint)


def refuse_whole_queue(request: RunRequest) -> None:
    """Refuse to start a whole queue over, or to take it over."""
    if request.take_over and not request.items:
        raise UsageError("--take-over is for an item, and none is named.", "Name it: capsule run ID --take-over")
    if request.fresh and not request.items:
        raise UsageError("--fresh starts one item over, and none is named.", "Name it: capsule run ID --fresh")


def cap_of(project: Project, request: RunRequest) -> int:
    """Return how many agents this run may start."""
    cap: int = project.settings.execution.default_phase_cap if request.cap is None else request.cap
    if cap < 1:
        raise UsageError("--cap must be 1 or more.", "It counts every agent that is started, retries included.")
    return cap


def jobs_of(project: Project) -> int:
    """Return how many missions a run of this project works on at the same time."""
    jobs = project.settings.execution.jobs
    return most_jobs() if jobs == "auto" else jobs


def refuse_container(item: Item) -> None:
    """Refuse a container where a task is required."""
    if is_container(item):
        raise Refused(
            f"{item.id} holds other items, and is run by running them.", f"Run them all: capsule run {item.id}"
        )


def refuse_what_has_to_wait(project: Project, item_id: str) -> None:
    """Refuse an item with open dependencies: a tracker would not let it be closed."""
    tracker = project.tracker
    if not tracker.traits.authoritative and mission_state(project, item_id).under_way:
        return  # it was allowed to start
    place = next((place for place in queue(tracker.items()) if place.item.id == item_id), None)
    if place and place.item.taken_by:
        raise Refused(f"{item_id} is {place.why}.", "Wait until they finish, or reassign it in the tracker.")
    if place and place.waits_for:
        raise Refused(f"{item_id} {place.why}.", f"Run that first, or remove the dependency from {item_id}.")
    if place and place.item.blocked:
        helps = command_for(project, place.item)
        hint = f"Answer it: {helps}" if helps else f"Resolve it in {tracker.name}, then go on."
        raise Refused(f"{item_id} is {place.why}", hint)


class CampaignPlan(Struct, frozen=True):
    """An epic or a feature that can be run: its items, and the branch that they are merged into."""

    root: Item
    members: Sequence[Item]
    into: str
    cap: int
    stop_on_failure: bool

    @property
    def done(self) -> bool:
        return self.root.status is Status.DONE


def plan_campaign(project: Project, root: Item, request: RunRequest) -> CampaignPlan:
    """Plan a campaign; refuse options that make no sense for it."""
    members = project.tracker.under(root.id)
    if not members:
        hint = f"Add what it should hold (capsule add TITLE --parent {root.id}), and run it again."
        raise Refused(f"{root.id} is an {root.type} that holds nothing, so there is nothing to work on.", hint)
    left = to_do(members)
    example = left[0].id if left else members[-1].id
    for name, what in _FOR_ONE_TASK.items():
        if getattr(request, name):
            value = f" {request.base}" if name == "base" else ""
            hint = f"Name it: capsule run {example} --{name}{value}"
            raise UsageError(f"{what}, and {root.id} is run as a whole.", hint)
    if root.status is Status.DONE and left:
        hint = f"Reopen it in its tracker, or run what is left by itself: capsule run {example}"
        raise Refused(f"{root.id} is closed already, and {example} is not.", hint)
    into = request.into or repository.main_branch(project.git, project.settings.project.main)
    if not project.git.resolve(f"refs/heads/{into}"):
        raise CapsuleError(f"There is no branch {into}.", "List the branches there are: git branch")
    stop = (request.on_failure or project.settings.campaign.on_failure) == "stop"
    return CampaignPlan(root, members, into, cap_of(project, request), stop)


def under_way_in(states: Mapping[str, MissionState]) -> set[str]:
    """Name the missions that began and are not finished: a campaign continues them."""
    return {name for name, state in states.items() if state.under_way}
