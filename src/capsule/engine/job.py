"""One step with all it may look at, and what comes back from doing it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from capsule.adapters import Place, StateStore
from capsule.core.event import Event, Policy, Usage
from capsule.core.evidence import Checkpoint, Evidence
from capsule.core.failure import Failure
from capsule.core.item import Item, Lineage
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, Step, replay
from capsule.core.text import one_line
from capsule.core.workflow import Phase, Workflow
from capsule.services import Services


@dataclass(frozen=True)
class Order:
    """What to start a mission with, where there is none yet."""

    mission: str
    item: Item
    workflow: Workflow
    base: str
    into: str
    policy: Policy
    lineage: Lineage = field(default_factory=Lineage)
    parent: str = ""
    retries: int | None = None
    """How often each review may send back from now on, where a mission goes on."""
    rebase: bool = False
    """Rebuild the work on the branch it goes into, and go on from there."""
    notes: str = ""
    """What a human had to say when they let it go on."""
    earlier: str = ""
    """What was done before it in the same campaign."""


RunUntilHalt = Callable[[Order, Services], MissionState]


@dataclass(frozen=True)
class Job:
    step: Step
    state: MissionState
    phase: Phase
    services: Services
    run_until_halt: RunUntilHalt
    """How a mission is run: a phase may be one."""

    @property
    def mission(self) -> str:
        return self.state.mission

    @property
    def place(self) -> Place:
        return place_of(self.state, self.services)

    def note(self, event: Event) -> None:
        note(self.services, self.mission, event)


@dataclass(frozen=True)
class Report:
    """What a doer brings back, before it is judged."""

    signal: Signal
    evidence: tuple[Evidence, ...] = ()
    checkpoint: Checkpoint | None = None
    files: tuple[str, ...] = ()
    agent: str = ""
    log: str = ""
    usage: Usage | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)


def state_store_of(state: MissionState, services: Services) -> StateStore | None:
    """Where this mission's steps are recorded; a child's are recorded by its parent."""
    return None if state.parent else services.state_store


def claims_its_item(state: MissionState, services: Services) -> bool:
    """Whether the tracker is told by claim and close, and by nothing in between."""
    return not state.parent and services.state_store is None


def standing(services: Services, mission: str) -> MissionState:
    """Where a mission stands: its journal, replayed."""
    return replay(event for _, event in services.journal.events(mission))


def only_to_be_archived(state: MissionState) -> bool:
    """Closed by its own mission, which was cut short then. One that somebody closed by hand is left to them."""
    return state.under_way and not state.halt and bool(state.closed_as or "merged" in state.facts)


def only_to_be_closed(state: MissionState) -> bool:
    """Merged and archived, and its tracker did not let it be closed."""
    return state.finished and not state.item_closed and "merged" in state.facts


def place_of(state: MissionState, services: Services, mission: str = "") -> Place:
    """Where this mission's agents work."""
    return services.place(mission or state.mission, state.into if state.workflow.publishes_steps else "")


def note(services: Services, mission: str, event: Event) -> None:
    """Journal a fact, then tell whoever watches."""
    services.journal.note(mission, event)
    services.observer.event(mission, event)


def passed(summary: str) -> Signal:
    return Signal(verdict=Verdict.PASS, summary=summary)


def sent_back(feedback: str) -> Signal:
    return Signal(verdict=Verdict.NEEDS_WORK, feedback=feedback, summary=feedback.splitlines()[0])


def parked(reason: str) -> Signal:
    return Signal(verdict=Verdict.BLOCKED, feedback=reason, summary=reason.splitlines()[0])


def commit_message(item_id: str, title: str) -> str:
    """One line of sane length, whatever the title holds."""
    return f"{item_id}: {one_line(title)}"[:300]
