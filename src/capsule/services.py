"""Every adapter, chosen, and its limits. `wiring` makes Services; the engine is handed it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from capsule.adapters import (
    Agent,
    Archive,
    Beside,
    Claims,
    Clock,
    Forge,
    Journal,
    Observer,
    Place,
    RequestBranch,
    Runners,
    Shell,
    StateStore,
    Tracker,
    Trunk,
    Words,
)
from capsule.core.briefing import Briefing, Transcript
from capsule.core.budget import Budget, Spending
from capsule.core.event import Allowance, Spent, StepEnded
from capsule.core.evidence import Evidence
from capsule.core.state import MissionState, Step


class Limits(Struct, frozen=True):
    """What a phase may take where it does not say so itself, and what agents may use up."""

    phase_seconds: float = 1800
    idle_seconds: float = 600
    wait_seconds: float = 6 * 3600
    """How long it waits in all for a provider that turns its agent away."""
    budget: Budget = field(default_factory=Budget)
    batch: int = 1
    """How many missions may be merged with one commit."""
    gates: int = 1
    """How many merges into one branch are tested at the same time."""

    @property
    def stacks_merges(self) -> bool:
        """Tell whether missions that wait to be merged build their merges on each other."""
        return self.batch * self.gates > 1


StartRecording = Callable[[Place, str], Callable[[Briefing, Transcript], None]]
"""Told of a place and the tree it holds before an agent works there; what it answers is told how the agent fared."""


class RunLimits(Struct, frozen=True):
    """The limits of a run on its missions. This one has none, and counts nothing."""

    def should_stop(self, state: MissionState, *, spawns: bool) -> bool:  # noqa: ARG002
        """Tell whether to stop before the next step, which starts an agent or not. The next run goes on from there."""
        return False

    def spawn_event(self, step: Step) -> Beside | None:  # noqa: ARG002
        """Return what a start of an agent adds to the run's own stream, in the transaction that begins the step."""
        return None

    def end_event(self, step: Step, ended: StepEnded) -> Beside | None:  # noqa: ARG002
        """Return what the end of an agent adds to the run's own stream, in the transaction that ends the step."""
        return None

    def spent_event(self, step: Step, spent: Spent, *, final: bool = False) -> Beside | None:  # noqa: ARG002
        """Return what an agent without a verdict adds to the run's own stream; `final` if its step begins anew."""
        return None

    def spending(self) -> Spending | None:
        """Return what the run has used up so far; None where nothing is counted."""
        return None

    def may_use(self, step: Step) -> Allowance | None:  # noqa: ARG002
        """Return the share of the run's budget that is left for the agent of this step; None where nothing is
        counted."""
        return None


class Requests(Struct, frozen=True):
    """How work is merged by a request: its forge, its branch, what it says."""

    forge: Forge
    branch: RequestBranch
    body: Callable[[str, Sequence[Evidence]], str]
    """Describes a mission, and what was seen of its merge, in Markdown."""


def _no_requests() -> Requests:
    raise AssertionError("nothing here is merged by a request")


class Services(Struct, frozen=True):
    """Every adapter, chosen. `wiring` makes one; the engine is handed it."""

    tracker: Tracker
    journal: Journal
    agent: Callable[[str, str], Agent]
    """By name and model; empty names mean the settings' default."""
    place: Callable[[str, str], Place]
    """By mission, and by the branch that its steps are published to ('' where it is merged at the end)."""
    trunk: Callable[[str], Trunk]
    shell: Shell
    words: Words
    archive: Archive
    clock: Clock
    observer: Observer
    state_store: StateStore = field(default_factory=StateStore)
    """How the tracker learns where its items stand."""
    claims: Claims = field(default_factory=Claims)
    """Which clone works on an item."""
    run_limits: RunLimits = RunLimits()
    redact: Callable[[str], str] = str
    """Takes secrets out of what is written where journal and archive do not see it."""
    token: Callable[[], str] = lambda: "R0"
    """Returns a random name that no agent can have known."""
    pid: int = 0
    limits: Limits = Limits()
    exported: Callable[[], Mapping[str, str]] = dict
    """Returns the environment that agents and commands are given on top of their own."""
    skills: bool = False
    """The project has skills of its own for the phases that name one, and they are to be used."""
    recorder: StartRecording = lambda _place, _before: lambda _briefing, _transcript: None
    by_request: bool = False
    """Whether work is merged by a request. Those that wait are followed even if it is not any more."""
    requests: Callable[[], Requests] = _no_requests
    """How requests are opened and followed."""
    runners: Runners | None = None
    """Who runs the missions of a queue; None: they are run in its own process."""
