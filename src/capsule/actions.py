"""The actions of the dashboard: one row for each key, and the functions behind them.

Each action is a command line of `capsule` and nothing else: what is shown before it is confirmed is what is run. The
dashboard draws, and knows no project, journal or process. Every function of `DashboardActions` may be slow, or fail
with a `CapsuleError`; the dashboard calls them in threads of their own.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum

import msgspec

from capsule.core.board import Board
from capsule.core.errors import InvalidId
from capsule.core.history import MissionSummary
from capsule.core.item import Blocked, Item, Status, check_id
from capsule.core.ledger import DECISION
from capsule.core.outline import run_of


class Listing(msgspec.Struct, frozen=True):
    """The items of a tracker."""

    items: tuple[Item, ...] = ()
    by_status: bool = False
    """Listed by status, each with its phase; else as a tree of what holds what."""
    tracker: str = ""
    verbs: tuple[str, ...] = ()
    """Commands that not every tracker has a use for, and this one has."""


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one mission, each capped; '' where there is none."""

    changes: str = ""
    """The changed files, and how much each of them changed."""
    diff: str = ""
    worklog: str = ""
    logs: str = ""


class CommandResult(msgspec.Struct, frozen=True):
    """The exit code and output of a command."""

    code: int
    out: str = ""
    err: str = ""


class StartedRun(msgspec.Struct, frozen=True):
    """A run that goes on by itself."""

    pid: int
    wait: Callable[[], CommandResult]
    """Until it has ended, which may take days; its last words."""


class DashboardActions(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    """Of the project."""
    look: Callable[[], Board]
    items: Callable[[], Listing]
    details: Callable[[str], Details]
    do: Callable[[Sequence[str]], CommandResult]
    """Runs `capsule` with these words, and waits for it."""
    start: Callable[[Sequence[str]], StartedRun]
    """Runs `capsule` with these words in a process of its own, which goes on without us."""
    stop: Callable[[str, int], CommandResult]
    """Asks the holder of this mission, by its process id, to stop."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The item under the cursor, its mission, or both; or a run through many."""

    id: str = ""
    item: Item | None = None
    mission: MissionSummary | None = None
    verbs: tuple[str, ...] = ()
    stream: str = ""
    """The mission or run whose process can be asked to stop."""
    pid: int | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def under_way(self) -> bool:
        return self.mission is not None and not self.mission.over

    @property
    def is_open(self) -> bool:
        return self.item.status is not Status.DONE if self.item else self.under_way

    @property
    def blocked(self) -> Blocked | None:
        return self.item.blocked if self.item else None

    @property
    def halted(self) -> bool:
        return self.mission is not None and self.mission.halted


_Need = tuple[Callable[[Target], bool], str]
"""What has to hold, and the words where it does not; `{}` is the item."""


class How(StrEnum):
    WAIT = "wait for the command and show its output"
    START = "start a process that runs in the background"
    STOP = "send a signal to the runner"


class _Question(msgspec.Struct, frozen=True):
    """An argument that the dialog asks for."""

    label: str
    option: str
    required: bool = False


class DashboardVerb(msgspec.Struct, frozen=True):
    key: str
    word: str
    """The command."""
    says: str
    """Its line in the help."""
    question: str
    """The title of its dialog; `{}` is the item."""
    asks: _Question | None = None
    how: How = How.WAIT
    label: str = ""
    """Its name on screens where it is about no item."""

    @property
    def name(self) -> str:
        return self.label or self.word

    def refusal(self, target: Target) -> str:
        """Say why it does not fit; '' where it does."""
        needs = _NEEDS[self.name]
        if _NAMED in needs and target.id:
            try:
                check_id(target.id)
            except InvalidId as fault:
                return fault.message
        return next((said.replace("{}", target.id) for holds, said in needs if not holds(target)), "")

    def words(self, target: Target, answer: str = "") -> list[str]:
        """Return the words after `capsule`. A value that begins with a dash is passed with an equals sign, else it is
        read as an option."""
        words = [self.word] if self.label else [self.word, target.id]
        if not self.asks or not answer:
            return words
        option = self.asks.option
        return [*words, *([f"{option}={answer}"] if answer.startswith("-") else [option, answer])]

    def line(self, target: Target, answer: str = "") -> str:
        """Return the command line for a shell."""
        if self.how is How.STOP:
            return f"kill -INT {target.pid}"
        return shlex.join(["capsule", *self.words(target, answer)])


_NOT_RUNNING: _Need = (lambda target: not target.running, "{} is running.")
_CLOSABLE: _Need = (lambda target: target.is_open and not target.running, "{} is running, or not open.")
_OPEN: _Need = (lambda target: target.is_open, "{} is done.")
_NAMED: _Need = (lambda target: bool(target.id), "Nothing is selected.")
_NEEDS: dict[str, tuple[_Need, ...]] = {
    "run": (_NAMED, _NOT_RUNNING, (lambda target: target.is_open or target.under_way, "{} is done.")),
    "queue": (),
    "stop": (
        (lambda target: target.pid != 0, "It runs in another container or on another machine: stop it there."),
        (lambda target: target.running, "It is not running."),
    ),
    "abort": (_NAMED, (lambda target: target.under_way, "{} has no mission to abort.")),
    "unblock": (_NAMED, _NOT_RUNNING, (lambda target: bool(target.blocked or target.halted), "{} is not blocked.")),
    "advance": (
        _NAMED,
        (lambda target: "advance" in target.verbs, "Only backlog items can be advanced."),
        (lambda target: not target.blocked, "{} is blocked: unblock it first (u)."),
        _OPEN,
    ),
    "complete": (_NAMED, _CLOSABLE),
    "close": (_NAMED, _CLOSABLE),
    "approve": (
        _NAMED,
        (
            lambda target: "approve" in target.verbs and bool(target.blocked and target.blocked.kind == DECISION),
            "{} is not waiting for a decision.",
        ),
    ),
}
"""By action, what has to hold, and what is said where it does not."""
_NOTES = _Question("Notes for the next agent (optional)", "--notes")
_PHASE = _Question("Phase (empty: the next)", "--to")
_REASON = _Question("Reason", "--reason", required=True)

VERBS = (
    DashboardVerb("r", "run", "run it; an epic or feature: everything in it", "Run {}", how=How.START),
    DashboardVerb("R", "run", "run the queue", "Run the queue", how=How.START, label="queue"),
    DashboardVerb("s", "stop", "stop and keep progress", "Stop {}", how=How.STOP),
    DashboardVerb("x", "abort", "abort its mission; the branch stays", "Abort mission {}"),
    DashboardVerb("u", "unblock", "answer a question; notes go to the next agent", "Answer {}", _NOTES),
    DashboardVerb("a", "advance", "move it to the next phase, or to a named one", "Advance {}", _PHASE),
    DashboardVerb("c", "complete", "mark it done", "Mark {} done"),
    DashboardVerb("C", "close", "close it without doing it", "Close {} without doing it", _REASON),
    DashboardVerb("A", "approve", "approve it where a decision is asked", "Approve {}", _NOTES),
)
BY_KEY = {verb.key: verb for verb in VERBS}


def target_of(board: Board, listing: Listing, name: str) -> Target:
    """Return an item, its mission, and what runs of it."""
    view = board.mission(name)
    item = next((item for item in listing.items if item.id == name), None)
    if view is None and item is None:
        return Target()
    run, pid = run_of(board, name), view.pid if view else None
    if view is not None and view.parent and item is None:  # part of another: that one can be told something
        return Target(stream=name, pid=pid)
    stream = name
    if run and pid is None:
        stream, pid = run.stream, run.pid
    return Target(id=name, item=item, mission=view, verbs=listing.verbs, stream=stream, pid=pid)


def available(target: Target) -> list[DashboardVerb]:
    return [verb for verb in VERBS if not verb.refusal(target)]
