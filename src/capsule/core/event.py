"""Everything that can happen, in one vocabulary with one versioned encoding.

A mission's state is these events replayed (`core.state`); screens, worklogs, JSON lines and reports render them. Stamps
are data: the engine puts them in, the core never asks for the time.
"""

from __future__ import annotations

from typing import Any

import msgspec

from capsule.core.assignment import Assignment
from capsule.core.decide import Decision, Guardrails
from capsule.core.evidence import Checkpoint, Evidence, Observation
from capsule.core.failure import Failure
from capsule.core.item import Item, Lineage
from capsule.core.signal import Signal
from capsule.core.workflow import Workflow

VERSION = 1
LONGEST_TEXT = 16 * 1024
"""Longer text in an event is cut; the full text is in the file the event names."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a mission judges, fixed when it starts and read from the base, never from the agent's worktree."""

    verify: str = "strict"
    test: str = ""
    test_globs: tuple[str, ...] = ()
    tests_in_sources: bool = False
    debris: tuple[str, ...] = ()
    test_timeout_minutes: float = 30
    guardrails: Guardrails = Guardrails()
    hooks: bool = False
    """The user's own commit hooks have a say."""
    file_discovered: bool = False
    """Work that agents notice on the way becomes items of its own, where the tracker can be added to."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of an agent run; None is unknown, never zero."""

    tokens_in: int | None = None
    """All that was read, from a cache or not."""
    tokens_out: int | None = None
    usd: float | None = None
    model: str = ""
    session: str = ""
    seconds: float | None = None
    """How long the agent ran, as we saw it."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a phase ended: what was claimed, what was seen, and where things stood afterwards."""

    signal: Signal
    evidence: tuple[Evidence, ...] = ()
    checkpoint: Checkpoint | None = None
    files: tuple[str, ...] = ()
    agent: str = ""
    seconds: float = 0.0
    log: str = ""
    usage: Usage | None = None
    failure: Failure | None = None
    """The agent's failure, if any."""
    warnings: tuple[str, ...] = ()
    facts: dict[str, str] = {}
    """Values that a later step needs from an action: a commit, a path, a reference."""


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Fields that all events share; `at` is RFC 3339, UTC."""

    at: str


class MissionStarted(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="mission_started"):
    mission: str
    item: Item
    workflow: Workflow
    base: str
    into: str
    lineage: Lineage = Lineage()
    policy: Policy = Policy()
    parent: str = ""
    earlier: str = ""
    """Work done before it in the same campaign."""


class StepBegun(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="step_begun"):
    key: str
    phase: str
    run: int
    attempt: int
    agent: str = ""
    spawns: bool = False
    """An agent is started for it."""


class StepEnded(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="step_ended"):
    key: str
    phase: str
    run: int
    outcome: Outcome
    decision: Decision
    assignments: tuple[Assignment, ...] = ()
    """Changes for the tracker, where it keeps its state in the project."""
    message: str = ""
    """The first line of the commit that holds the step."""


class Recorded(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="recorded"):
    """The step is in a commit, with its work, the item's new state, the worklog and the follow-ups."""

    key: str
    commit: str
    checkpoint: Checkpoint | None = None
    """The workspace as it stands now, nothing pending."""
    follow_ups: tuple[str, ...] = ()
    """Ids of the items that were added."""


class Observed(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="observed"):
    key: str
    observation: Observation


class Proposed(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="proposed"):
    """The merge result, before main moves, so that after a crash it can be told whether it did."""

    commit: str
    tree: str
    onto: str


class Reopened(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="reopened"):
    """A halted mission goes on; `checkpoint` and `item` are set where a human changed the work or the item."""

    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}
    """The states that reviews approved, with the human's own changes, and nothing that an agent left behind."""
    item: Item | None = None
    retries: int | None = None
    notes: str = ""
    """Notes of the human who let it go on."""


class Rebased(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="rebased"):
    base: str
    checkpoint: Checkpoint
    re_enter: str
    approved: dict[str, Checkpoint] = {}
    """The states that reviews approved, rebuilt in the same way as the work."""
    conflicts: tuple[str, ...] = ()
    item: Item | None = None
    """The item as its tracker has it, where a step could not be recorded and is done again."""
    why: str = ""
    """Feedback for the phase."""


class MovedByHand(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="moved_by_hand"):
    """A human moved the item, the phase or a ref; after a moved phase the mission goes on from there."""

    what: str
    expected: str
    found: str
    item: Item | None = None
    """As the tracker has it now, where it is the item that was moved."""
    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}


class Salvaged(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="salvaged"):
    ref: str
    why: str


class Warned(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="warned"):
    text: str


class Waiting(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="waiting"):
    """The agent's provider turned it away; it is started again after a pause, and no retry is spent."""

    key: str
    failure: Failure
    seconds: float


class Spent(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="spent"):
    """Usage of an agent that did not reach the end of its phase: it was turned away, or stopped."""

    key: str
    phase: str
    usage: Usage


class Stopped(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="stopped"):
    """The run ended without a verdict (a signal, an agent that could not run); the mission is where it was."""

    cause: str
    exit_code: int


class RunStarted(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """A run works through the queue; the stream is the queue's own."""

    cap: int
    spawns: int = 0
    """Agents that a killed run had started already: this one goes on counting."""


class Spawned(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="spawned"):
    """An agent was started for the run; written in one transaction with the step's beginning, so every one counts."""

    mission: str
    key: str


class RunEnded(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    why: str
    exit_code: int = 0
    spawns: int = 0
    done: tuple[str, ...] = ()
    blocked: dict[str, str] = {}
    failed: dict[str, str] = {}
    waiting: dict[str, str] = {}
    """Of a campaign: what was not run, and why."""
    follow_ups: tuple[str, ...] = ()
    spent: dict[str, float | None] = {}
    """The sum of what its agents used; None is unknown."""


class ParentClosed(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="parent_closed"):
    """A container whose items are all done was closed in the tracker; in the stream of the campaign."""

    item: str
    title: str
    reason: str


class Advanced(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """Progress of a campaign: of a container, how many of its items are done, at any depth."""

    item: str
    title: str
    done: int
    of: int


class Discovered(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="discovered"):
    """Work that agents noticed and that is not this item's was put into the tracker: titles by id."""

    items: dict[str, str]


class Abandoned(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="abandoned"):
    how: str
    salvage: str = ""


class ItemClosed(EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="item_closed"):
    reason: str = ""


Event = (
    MissionStarted
    | StepBegun
    | StepEnded
    | Observed
    | Recorded
    | Proposed
    | Reopened
    | Rebased
    | MovedByHand
    | Salvaged
    | Warned
    | Waiting
    | Spent
    | Stopped
    | Abandoned
    | ItemClosed
    | RunStarted
    | Spawned
    | RunEnded
    | ParentClosed
    | Advanced
    | Discovered
)

RUN = "_"
"""Prefix of a run's stream: no item can be called so."""
CAMPAIGN = f"{RUN}campaign-"
"""And that of a campaign's; the item that it is about follows."""


def is_mission(stream: str) -> bool:
    return not stream.startswith(RUN)


_encoder = msgspec.json.Encoder(order="deterministic")
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    return _decoder.decode(data)


def kind(event: Event) -> str:
    return str(event.__struct_config__.tag)


def as_json_line(mission: str, seq: int, event: Event) -> bytes:
    """Return the public form of an event: `--output json`, `journal.jsonl`."""
    body: dict[str, Any] = msgspec.to_builtins(event)
    return _encoder.encode({"v": VERSION, "mission": mission, "seq": seq, **body})


def cut(text: str, limit: int = LONGEST_TEXT, where: str = "") -> str:
    """Cut text to fit into an event: its beginning, its end, and where the whole of it is."""
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"\n\n[... {len(text) - 2 * half} characters left out{f'; full text: {where}' if where else ''} ...]\n\n"
    return text[:half] + note + text[-half:]
