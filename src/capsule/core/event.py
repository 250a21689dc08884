"""Events: everything that can happen to a mission or a run, with one versioned encoding.

A mission's state is these events replayed (`core.state`); screens, worklogs, JSON lines and reports render them. Stamps
are data: the engine puts them in, the core never asks for the time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from capsule.core.assignment import Assignment
from capsule.core.decide import Decision, Guardrails
from capsule.core.evidence import Checkpoint, Evidence, ExamTest, Observation
from capsule.core.failure import Failure
from capsule.core.item import Item, Lineage
from capsule.core.request import Fate
from capsule.core.signal import Signal
from capsule.core.workflow import Workflow

VERSION = 1
LONGEST_TEXT = 16 * 1024
"""Longer text in an event is cut; the file that the event names has all of it."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules a mission is judged by, fixed when it starts and read from the base, never from the worktree."""

    verify: str = "strict"
    """As in the settings: `strict`, `warn` or `off`."""
    test: str = ""
    """The test command; empty if there is none."""
    test_globs: tuple[str, ...] = ()
    """Which files are tests."""
    tests_in_sources: bool = False
    """Whether tests live inside source files, so that file names do not tell them apart."""
    debris: tuple[str, ...] = ()
    """Globs of files that must not be left behind."""
    allow: tuple[str, ...] = ()
    """Globs of files that may hold what looks like a secret."""
    test_timeout_minutes: float = 30
    """Time limit of the test command."""
    guardrails: Guardrails = Guardrails()
    hooks: bool = False
    """Whether the user's own commit hooks are checked."""
    base: str = "strict"
    """As in the settings: `known` or `strict`."""
    mutants: int = 0
    """How many mutants of a change are tried at most."""
    mutant_minutes: float = 5
    """For how long."""
    report: tuple[str, ...] = ()
    """Globs of JUnit XML that the test command writes."""
    file_discovered: bool = False
    """Whether unrelated work that agents notice is filed as new items."""
    already_done: str = "ask"
    """As in the settings: `ask` or `trust`."""
    exam: str = "keep"
    """As in the settings: `keep` or `drop`."""
    detect: bool = False
    """Whether no test command was found, so that the search is repeated once there are tests."""
    first_tests: bool = False
    """Whether the test command was found in the work itself: the base has no tests."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Usage of an agent. null is unknown, never zero."""

    tokens_in: int | None = None
    """Input tokens, cached ones included."""
    tokens_out: int | None = None
    usd: float | None = None
    model: str = ""
    session: str = ""
    seconds: float | None = None
    """How long the agent ran, measured by Capsule."""


class Allowance(msgspec.Struct, frozen=True, omit_defaults=True):
    """Limits of money, tokens and seconds; null is no limit."""

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a phase: the claim, the evidence, and the state of the worktree afterwards."""

    signal: Signal
    """The claim."""
    evidence: tuple[Evidence, ...] = ()
    """What was checked, if anything."""
    checkpoint: Checkpoint | None = None
    """The worktree afterwards."""
    files: tuple[str, ...] = ()
    """Files that differ from when the phase began."""
    agent: str = ""
    seconds: float = 0.0
    log: str = ""
    """The file with the output."""
    usage: Usage | None = None
    failure: Failure | None = None
    """The failure of the agent, if there was one."""
    warnings: tuple[str, ...] = ()
    facts: dict[str, str] = {}
    """Values of an action for a later step: a commit, a path, a reference."""
    exam: tuple[ExamTest, ...] = ()
    """The tests that an examiner wrote."""


class _EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Fields of all events. `at` is RFC 3339, UTC."""

    at: str


class MissionStarted(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="mission_started"):
    """A mission begins. Item, workflow and rules are fixed here."""

    mission: str
    item: Item
    workflow: Workflow
    base: str
    """The commit it starts from."""
    into: str
    """The branch it is merged into."""
    lineage: Lineage = Lineage()
    policy: Policy = Policy()
    parent: str = ""
    """The mission that started this one as a child."""
    earlier: str = ""
    """Summary of what was done before in the same campaign."""
    uuid: str = ""
    """A name that no other mission has, also of another clone or after this one was started over."""


class StepBegun(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="step_begun"):
    """A phase begins. Its key is unique in the mission."""

    key: str
    phase: str
    run: int
    """How often this phase has begun."""
    attempt: int
    """Which attempt this is, as people count; an interrupted one does not count."""
    agent: str = ""
    spawns: bool = False
    """Whether an agent is started."""


class StepEnded(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="step_ended"):
    """A phase has ended, and its decision is recorded before it is acted on."""

    key: str
    phase: str
    run: int
    outcome: Outcome
    decision: Decision
    assignments: tuple[Assignment, ...] = ()
    """Changes to the tracker's files, if it keeps its state in the project."""
    message: str = ""
    """The first line of the commit for this step."""


class Recorded(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="recorded"):
    """The step is committed, with its work, the new state of the item, the worklog and the follow-ups."""

    key: str
    commit: str
    checkpoint: Checkpoint | None = None
    """The worktree now, with nothing pending."""
    follow_ups: tuple[str, ...] = ()
    """Ids of the new items."""


class Observed(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="observed"):
    """The test command ran on a tree; the same tree is not tested twice."""

    key: str
    """Identifies tree and command."""
    observation: Observation


class TestsFound(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="tests_found"):
    """The work holds the first tests of the project, and a command to run them was found: it is judged by them."""

    __test__ = False

    policy: Policy
    """The rules from now on."""


class Proposed(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="proposed"):
    """The merge result, recorded before main moves, so that a later run can find out whether it did."""

    commit: str
    tree: str
    onto: str
    """The commit of main it was built on."""
    archived_at: str = ""
    """When the item was archived, if the same commit removes it from its tracker."""


class RequestPrepared(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="request_prepared"):
    """The commit that a request proposes, recorded before it is pushed: one that is not recorded is somebody else's."""

    commit: str
    branch: str
    base: str
    """The branch that it is to be merged into."""


class Reviewed(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="reviewed"):
    """The forge says something new about the mission's request."""

    fate: Fate
    """`merged`, `changes`: it goes back; `stuck`: it needs a person."""
    url: str = ""
    text: str = ""
    """The feedback of reviewers and checks, or the reason."""
    by: tuple[str, ...] = ()
    """Who reviewed, and which checks failed."""
    ids: tuple[str, ...] = ()
    """Identify what has come back, so that it comes back once."""
    commit: str = ""
    """The commit that merged it."""
    onto: str = ""
    """Its first parent, if that is known here."""
    squashed: bool = False
    """Whether it has no other parent."""


class Reopened(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="reopened"):
    """A stopped mission is resumed. `checkpoint` and `item` are set if a person changed the work or the item."""

    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}
    """The reviewed states with the person's own changes, without what an agent left behind."""
    item: Item | None = None
    retries: int | None = None
    notes: str = ""
    """Notes of the person who resumed it."""


class Accepted(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="accepted"):
    """A person accepted a refuted claim in writing. It holds for that check on that tree only."""

    phase: str
    """The phase whose claim was refuted."""
    check: str
    tree: str
    """Identifies what was judged."""
    claimed: str
    observed: str
    because: str
    """The person's reason."""


class Rebased(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="rebased"):
    """The work was moved onto a newer base."""

    base: str
    checkpoint: Checkpoint
    re_enter: str
    """The phase to continue with."""
    approved: dict[str, Checkpoint] = {}
    """The reviewed states, rebuilt in the same way as the work."""
    conflicts: tuple[str, ...] = ()
    """Files with conflicts."""
    item: Item | None = None
    """The item as its tracker has it, if a step could not be recorded and is repeated."""
    why: str = ""
    """The reason given to the phase."""
    others: dict[str, str] = {}
    """The mission with which a step does not go together, with its commit; or a person's commit, as in `returned`."""


class MovedByHand(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="moved_by_hand"):
    """A person moved a branch or an item. If the item has another status, the mission continues from there."""

    what: str
    """What was moved, such as `item`."""
    expected: str
    found: str
    item: Item | None = None
    """The item as its tracker has it now, if the item was moved."""
    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}


class Salvaged(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="salvaged"):
    """Work that would have been lost is kept under a ref."""

    ref: str
    why: str


class Warned(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="warned"):
    """A warning for people."""

    text: str


class Waiting(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="waiting"):
    """The provider refused the agent, or a remote cannot be reached; it tries again after a pause, without a retry."""

    key: str
    failure: Failure
    seconds: float
    remote: str = ""
    """The remote that it waits for; empty: the agent's provider."""

    @property
    def waits_for(self) -> str:
        """Name what it waits for: `origin`, `the provider`."""
        return self.remote or "the provider"


class Limited(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="limited"):
    """A provider limits an agent; other missions that are about to start the same agent wait as well."""

    agent: str
    mission: str
    """The mission that found it."""
    epoch: int
    """The claim that its mission is run by: with another or none, the wait is over."""
    failure: Failure
    seconds: float


class Spent(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="spent"):
    """Usage of an agent that did not finish its phase, because the provider refused it or it was stopped."""

    key: str
    phase: str
    usage: Usage


class Queued(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="queued"):
    """The work is ready, and waits until others have been merged into the same branch."""

    branch: str
    ahead: int
    """How many are before it."""


class Returned(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="returned"):
    """The work does not go together with what others merged: it is rebuilt on that, and goes on from there."""

    why: str
    """What does not go together, and with what; the phase that it goes back to gets it."""
    others: dict[str, str] = {}
    """The mission with which it does not go together, with its merge; or a person's commit, by short id and subject."""


class Stopped(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="stopped"):
    """The run ended without a verdict (a signal, an agent that could not run); the mission stays where it was."""

    cause: str
    exit_code: int
    error: str = ""
    """The name of its class."""
    hint: str = ""


class RunStarted(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """A run of the queue begins, in the stream of the queue."""

    cap: int
    """How many agents it may start."""
    spawns: int = 0
    """How many agents the killed run that this one continues had started; its missions may have started more since."""
    jobs: int = 1
    """How many missions it may run at the same time."""
    budget: Allowance = Allowance()
    """What all its agents together may use."""


class JobsSet(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="jobs_set"):
    """A person changed how many missions the run may work on at the same time."""

    jobs: int


class StopAsked(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="stop_asked"):
    """A person stopped one mission: the run continues with the others and does not take it up again."""

    mission: str


class AnswerGiven(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="answer_given"):
    """A person resumed an item: the run takes it up again if it had skipped it."""

    mission: str


class Taken(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="taken"):
    """The run takes up a mission: its process is about to be started."""

    mission: str


class Closing(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="run_closing"):
    """The run starts no more agents, and ends when the running ones have ended."""

    why: str


class HandedIn(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="handed_in"):
    """A mission waits for its turn, in the stream of the branch's merge queue."""

    mission: str
    key: str
    """The step that merges it."""
    epoch: int
    """The claim that its mission is run by: with another, or none, it does not wait any more."""


class Served(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="served"):
    """A mission has had its turn in the merge queue."""

    mission: str
    key: str
    seconds: float
    """How long its turn took."""


class Stacked(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="stacked"):
    """A mission of the merge queue has built its merge on top of those before it."""

    mission: str
    commit: str
    """'' if it conflicts with them; those behind it are built without it."""
    tree: str
    onto: str
    """The commit that it was built on."""
    under: str
    """The tree of that commit."""
    gate: str = ""
    """Identifies how its merge is tested: only merges with the same value are tested together."""


class Batched(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="batched"):
    """Missions of the merge queue were tested together."""

    missions: tuple[str, ...]
    """In the order in which they were built upon each other."""
    tree: str
    green: bool
    commit: str = ""
    """The one commit that merges them all."""
    gate: str = ""
    """Identifies how they were tested."""
    seconds: float = 0.0


class Spawned(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="spawned"):
    """An agent was started for the run; written in the same transaction as the beginning of its step."""

    mission: str
    key: str
    may_use: Allowance = Allowance()
    """Its share of the run's budget."""


class AgentEnded(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="agent_ended"):
    """An agent of the run has ended; written in the same transaction as the end of its step."""

    mission: str
    key: str
    usage: Usage | None = None
    final: bool = True
    """Whether its step is over too; otherwise the provider refused the agent, and it starts again."""
    exhausted: bool = False
    """Whether the item has no retries left."""
    progress: bool = False
    """Whether the item got further."""


class RunEnded(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    """A run of the queue has ended."""

    why: str
    exit_code: int = 0
    spawns: int = 0
    done: tuple[str, ...] = ()
    """Ids of completed items."""
    blocked: dict[str, str] = {}
    """Reasons by id."""
    failed: dict[str, str] = {}
    """Reasons by id."""
    stopped: tuple[str, ...] = ()
    """Ids of items whose mission a person stopped."""
    waiting: dict[str, str] = {}
    """For a campaign: items that did not run, with the reason."""
    follow_ups: tuple[str, ...] = ()
    spent: dict[str, float | None] = {}
    """What its agents used; null is unknown."""


class ParentClosed(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="parent_closed"):
    """An item whose children are all done was closed in the tracker; in the stream of the campaign."""

    item: str
    title: str
    reason: str


class Advanced(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="progress"):
    """Progress of a run: how many items below this one are done, at any depth."""

    item: str
    """'' if several missions run at a time outside an epic or feature."""
    title: str
    done: int
    of: int
    """Without an item: all that the run has taken up and can still take up."""


class Discovered(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="discovered"):
    """Unrelated work that agents noticed was filed in the tracker: titles by id."""

    items: dict[str, str]


class Abandoned(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="abandoned"):
    """A mission was given up."""

    how: str
    """By which command or event, such as `aborted` or `started over`."""
    salvage: str = ""
    """The ref that holds its work."""


class ItemClosed(_EventBase, frozen=True, kw_only=True, omit_defaults=True, tag="item_closed"):
    """The item was closed in its tracker."""

    reason: str = ""


Event = (
    MissionStarted
    | StepBegun
    | StepEnded
    | Observed
    | TestsFound
    | Recorded
    | Proposed
    | RequestPrepared
    | Reviewed
    | Reopened
    | Accepted
    | Rebased
    | MovedByHand
    | Salvaged
    | Warned
    | Waiting
    | Limited
    | Spent
    | Queued
    | Returned
    | Stopped
    | Abandoned
    | ItemClosed
    | RunStarted
    | JobsSet
    | StopAsked
    | AnswerGiven
    | Taken
    | Closing
    | Spawned
    | AgentEnded
    | RunEnded
    | HandedIn
    | Served
    | Stacked
    | Batched
    | ParentClosed
    | Advanced
    | Discovered
)

RUN = "_"
"""Prefix of the stream of a run; no item id begins with it."""
CAMPAIGN = f"{RUN}campaign-"
"""Prefix of the stream of a campaign, followed by its item."""
MERGES = f"{RUN}merges-"
"""Prefix of the stream of a merge queue, followed by its branch."""
LIMITS = f"{RUN}limits"
"""The stream of provider limits, shared by all missions with the same agent."""
CONTROL = f"{RUN}control"
"""The stream of requests that people made to running runs."""


def is_mission(stream: str) -> bool:
    return not stream.startswith(RUN)


def is_run(stream: str) -> bool:
    return stream.startswith(RUN) and not stream.startswith((MERGES, LIMITS, CONTROL))


_encoder = msgspec.json.Encoder(order="deterministic")


@cache
def _decoder() -> msgspec.json.Decoder[Event]:
    """Build the decoder of all events once: that is slow, and many commands read no events."""
    return msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    return _encoder.encode(event)


def decode(data: bytes | str) -> Event:
    return _decoder().decode(data)


def kind(event: Event) -> str:
    return str(event.__struct_config__.tag)


def as_json_line(mission: str, seq: int, event: Event) -> bytes:
    """Encode an event for `--output json` and `journal.jsonl`."""
    body: dict[str, Any] = msgspec.to_builtins(event)
    return _encoder.encode({"v": VERSION, "mission": mission, "seq": seq, **body})


def cut(text: str, limit: int = LONGEST_TEXT, where: str = "") -> str:
    """Shorten text to fit into an event: keep beginning and end, and name the file with the full text."""
    if len(text) <= limit:
        return text
    half = limit // 2
    note = f"\n\n[... {len(text) - 2 * half} characters left out{f'; full text: {where}' if where else ''} ...]\n\n"
    return text[:half] + note + text[-half:]
