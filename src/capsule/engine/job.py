"""One step with its services, and the report of doing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext

from msgspec import Struct, field

from capsule.adapters import Beside, Order, Place, StateStore, Trunk
from capsule.core.briefing import SandboxPaths
from capsule.core.errors import UnknownItem
from capsule.core.event import Event, Usage
from capsule.core.evidence import Checkpoint, Evidence, ExamTest
from capsule.core.failure import Failure
from capsule.core.item import Status
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, Step, replay
from capsule.core.text import one_line
from capsule.core.workflow import Phase
from capsule.services import Services

MOST_ROUNDS = 8
"""How often a branch may move while work is tested for it before it counts as too busy."""
_UNDISTURBED_AFTER = 2
"""So often it may move because of other missions, too; then they wait until the work is on it."""

RunUntilHalt = Callable[[Order, Services], MissionState]


class Job(Struct, frozen=True):
    step: Step
    state: MissionState
    phase: Phase
    services: Services
    run_until_halt: RunUntilHalt
    """Runs a mission: a phase may be one."""

    @property
    def mission(self) -> str:
        return self.state.mission

    @property
    def place(self) -> Place:
        return place_of(self.state, self.services)

    def note(self, event: Event) -> None:
        note(self.services, self.mission, event)


class Report(Struct, frozen=True):
    """The result of a phase before it is judged."""

    signal: Signal
    before: str = ""
    """The tree that an agent or a command started from, if its claim has to be verified."""
    evidence: tuple[Evidence, ...] = ()
    checkpoint: Checkpoint | None = None
    files: tuple[str, ...] = ()
    agent: str = ""
    log: str = ""
    usage: Usage | None = None
    failure: Failure | None = None
    warnings: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    exam: tuple[ExamTest, ...] = ()


_KEPT_BY_ITS_PARENT = StateStore()


def state_store_of(state: MissionState, services: Services) -> StateStore:
    """Return the store that records this mission's steps."""
    return _KEPT_BY_ITS_PARENT if state.parent else services.state_store


def load_state(services: Services, mission: str) -> MissionState:
    """Replay a mission's journal."""
    return replay(event for _, event in services.journal.events(mission))


def only_to_be_archived(state: MissionState) -> bool:
    """Tell whether its own mission closed it and was then interrupted; not if a person closed it."""
    return state.under_way and not state.halt and bool(state.closed_as or "merged" in state.facts)


def only_to_be_closed(state: MissionState) -> bool:
    """Tell whether it is merged and archived, and its tracker refused to close it."""
    return state.finished and not state.item_closed and "merged" in state.facts


def has_left(item: str, services: Services) -> bool:
    """Tell whether its tracker has closed the item, or lists it no more."""
    try:
        return services.tracker.item(item).status is Status.DONE
    except UnknownItem:
        return True


def place_of(state: MissionState, services: Services, mission: str = "") -> Place:
    """Return the place for this mission's agents."""
    return services.place(mission or state.mission, state.into if state.workflow.publishes_steps else "")


LOST_WORKLOG = "worklog.md was missing; it is restored as the phase before left it"


def lost_worklog(place: Place, checkpoint: Checkpoint | None) -> str:
    """Return the worklog as it was recorded last if the place has none, or an empty one; '' if it is there."""
    if checkpoint is None or place.worklog().strip():
        return ""
    return (place.trees.read(checkpoint.commit, "worklog.md") or b"").decode(errors="replace")


@contextmanager
def guard_repository(place: Place) -> Iterator[list[str]]:
    """Guard the repository while agents or tests run; fill the list with breaches, also after an error."""
    breaches: list[str] = []
    breaches += place.guard.snapshot()
    try:
        yield breaches
    finally:
        try:
            breaches[:] = place.guard.restore()  # a stopped agent may have planted something, too
        finally:
            place.guard.release()


@contextmanager
def round_on(trunk: Trunk, number: int) -> Iterator[None]:
    """Test work for a branch and move it; other missions that move it often are kept from it after the first rounds."""
    with trunk.kept_still() if number >= _UNDISTURBED_AFTER else nullcontext():
        yield


@contextmanager
def sandbox(place: Place) -> Iterator[SandboxPaths]:
    """Let one agent or command work in the place, and import what it committed there."""
    yield place.open_sandbox()
    place.guard.restore()  # before our git touches what it left; breaches are reported when the phase is over
    place.import_commits()


def note(services: Services, mission: str, event: Event, beside: Beside | None = None) -> None:
    """Journal an event, with one for another stream, then notify the observer."""
    services.journal.note(mission, event, beside)
    services.observer.event(mission, event)


def passed(summary: str) -> Signal:
    return Signal(verdict=Verdict.PASS, summary=summary)


def sent_back(feedback: str) -> Signal:
    return Signal(verdict=Verdict.NEEDS_WORK, feedback=feedback, summary=feedback.splitlines()[0])


def parked(reason: str) -> Signal:
    return Signal(verdict=Verdict.BLOCKED, feedback=reason, summary=reason.splitlines()[0])


def quarantined(breaches: Iterable[str]) -> Signal:
    """Park a phase whose agent or tests reached into the repository."""
    return parked(
        f"Quarantined: while it ran, {'; '.join(breaches)}. The change was reverted; if it was yours, repeat it now."
    )


def commit_message(item_id: str, title: str) -> str:
    """Return the item's id and title in one short line."""
    return f"{item_id}: {one_line(title)}"[:300]
