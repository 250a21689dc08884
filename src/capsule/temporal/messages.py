"""What workflows, activities and clients send each other."""

from __future__ import annotations

from msgspec import Struct, field

from capsule.core.budget import Spending
from capsule.core.event import AgentEnded, Allowance, Event
from capsule.core.run import Tally
from capsule.core.state import MissionState

MISSION, RUN, MERGES = "mission", "run", "merges"
"""Kinds of workflows; with the project, they are part of a workflow's id."""
STEP, HAND_IN, IS_OPEN = "step", "hand_in", "is_open"
"""Kinds of activities: do a step; queue up to merge; tell whether a workflow is under way."""


def mission_id(project: str, item: str) -> str:
    """Return the id of an item's workflow: there is one at a time, so nobody runs an item twice."""
    return f"{project}/{item}"


def run_id(project: str) -> str:
    """Return the id of the workflow of a project's run."""
    return f"{project}/_run"


def merges_id(project: str, branch: str) -> str:
    """Return the id of the merge queue of a branch."""
    return f"{project}/_merges/{branch}"


def shared_queue(project: str, label: str = "") -> str:
    """Return the task queue of a project's workers, or of those with a label."""
    return f"{project}/{label}" if label else project


def host_queue(project: str, host: str) -> str:
    """Return the task queue of one worker."""
    return f"{project}@{host}"


class Where(Struct, frozen=True):
    """The settings that workflows go by, as of the start of a mission."""

    project: str
    label: str = ""
    """Workers with this label do the steps."""
    heartbeat_seconds: float = 20.0
    """A step whose worker is not heard of for so long is done by another one."""
    step_seconds: float = 24 * 3600.0
    """Time limit of a step, waiting for a provider included."""
    wait_seconds: float = 6 * 3600.0
    """How long a mission waits for a remote that cannot be reached."""
    prefer_seconds: float = 10.0
    """How long a step waits for the worker that did the one before it."""


class Asked(Struct, frozen=True, omit_defaults=True):
    """How a mission is to be started or continued, by a person's options."""

    item: str
    workflow: str = ""
    model: str = ""
    verify: str = ""
    agent: str = ""
    max_retries: int | None = None
    fresh: bool = False
    rebase: bool = False
    take_over: bool = False
    notes: str = ""


class Permit(Struct, frozen=True, omit_defaults=True):
    """The answer of a run to a mission that wants to start an agent."""

    request: str
    refused: str = ""
    """Why no agent may start any more in this run; '' if it may."""
    share: Allowance | None = None
    spent: Spending = field(default_factory=Spending)
    """What the run has used so far."""


class Wish(Struct, frozen=True):
    """A mission asks its run whether it may start an agent; repeated with the same `request`, it is the same wish."""

    mission: str
    key: str
    request: str


class Ended(Struct, frozen=True):
    """A mission tells its run that an agent has ended, or was lost."""

    event: AgentEnded


class TurnWish(Struct, frozen=True):
    """A mission asks for its turn to merge, or gives it back (`over`)."""

    mission: str
    """Its workflow."""
    request: str
    queue: str
    """The workflow of the merge queue."""
    over: bool = False


class MergesJob(Struct, frozen=True, omit_defaults=True):
    """What the workflow of a merge queue is started with."""

    queue: str
    """The task queue of the project's workers."""
    line: tuple[TurnWish, ...] = ()


class Upcoming(Struct, frozen=True, omit_defaults=True):
    """The next step of a mission."""

    key: str
    spawns: bool = False


class Trouble(Struct, frozen=True, omit_defaults=True):
    """An error that stopped a mission."""

    kind: str
    message: str
    hint: str = ""
    exit_code: int = 2
    passes: bool = False
    """It is worth trying again: a remote cannot be reached, or the mission is being ended on that machine."""


class StepTask(Struct, frozen=True, omit_defaults=True):
    """One activity: a step, or what has to be done before the first one."""

    asked: Asked
    fence: str
    """Grows with each activity of a mission; the highest one is the one that counts."""
    owner: str
    """The workflow that the item is claimed for."""
    at: str = ""
    """The commit that holds the mission's recorded events; '' if there is none yet."""
    key: str = ""
    """The step to do; '' to start or continue the mission."""
    permit: Permit | None = None
    turn: bool = False
    """The mission has its turn to merge."""
    stays: bool = False
    """The step before this one was done by the same worker."""
    lost: tuple[str, ...] = ()
    """When it was begun by workers that were lost: that goes on record with this one."""
    leaves: Trouble | None = None
    """Instead of a step: put on record why the mission stops here."""
    host: str = ""
    """The worker that does it, as the worker itself fills in."""
    tidies: bool = False
    """Instead of a step: remove the place of a mission that has ended on another machine."""


class StepReport(Struct, frozen=True, omit_defaults=True):
    """What an activity has done."""

    host: str
    at: str
    """The commit that holds the mission's events now."""
    events: tuple[Event, ...] = ()
    """New ones, in order."""
    state: MissionState | None = None
    """The mission's state before those events, where the workflow does not know it."""
    upcoming: Upcoming | None = None
    """The next step; None if the mission has ended, or waits for a person."""
    word: str = ""
    """How the mission stands, as every screen says it."""
    why: str = ""
    """What it waits for, or why it failed."""
    wants_turn: str = ""
    """The branch that the mission wants its turn to merge into: the step has done nothing yet."""
    trouble: Trouble | None = None


class MissionJob(Struct, frozen=True, omit_defaults=True):
    """What a mission's workflow is started with."""

    asked: Asked
    where: Where
    run: str = ""
    """The workflow of its run; '' for one that no run limits."""


class MissionEnd(Struct, frozen=True, omit_defaults=True):
    """How a mission's workflow ended."""

    item: str
    word: str
    """How the mission stands, as every screen says it."""
    why: str = ""
    exit_code: int = 0
    merged: str = ""
    spent: Spending = field(default_factory=Spending)


class RunItem(Struct, frozen=True, omit_defaults=True):
    """An item of a run, with those items of the same run that have to be done before it."""

    asked: Asked
    after: tuple[str, ...] = ()


class RunCarried(Struct, frozen=True, omit_defaults=True):
    """What a run takes along into a new history."""

    events: tuple[Event, ...]
    """Those from which its counts are made again: its start, the agents at work, the failures in a row."""
    tally: Tally
    spent: Spending
    most: Spending
    under_way: tuple[str, ...] = ()
    ended: tuple[MissionEnd, ...] = ()
    wishes: tuple[Wish, ...] = ()
    answers: tuple[tuple[str, Permit], ...] = ()
    """By mission."""
    stopped: tuple[str, ...] = ()
    stopping: str = ""


class RunJob(Struct, frozen=True, omit_defaults=True):
    """What the workflow of a run is started with."""

    items: tuple[RunItem, ...]
    where: Where
    cap: int
    jobs: int
    budget: Allowance = Allowance()
    carried: RunCarried | None = None


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """How a run stands, for whoever watches it."""

    under_way: tuple[str, ...] = ()
    ended: tuple[MissionEnd, ...] = ()
    left: tuple[str, ...] = ()
    spawns: int = 0
    cap: int = 0
    jobs: int = 0
    spent: Spending = field(default_factory=Spending)
    why: str = ""
    """Why it starts nothing new; '' if it does."""
