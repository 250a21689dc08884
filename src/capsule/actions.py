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
    edits: tuple[str, ...] = ()
    """Fields of an item that can be changed."""


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
    do: Callable[[Sequence[str], str], CommandResult]
    """Runs `capsule` with these words and this text on stdin, and waits for it."""
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
    edits: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()
    """The open items that must be done first."""
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

    @property
    def merged(self) -> bool:
        return self.mission is not None and bool(self.mission.merged)

    @property
    def in_backlog(self) -> bool:
        return "advance" in self.verbs

    @property
    def may_continue(self) -> bool:
        """Its mission was allowed to start, and continues whatever its tracker says now."""
        return self.under_way and not self.in_backlog


_Need = tuple[Callable[[Target], bool], str]
"""What has to hold, and the words where it does not; `{}` is the item."""


class How(StrEnum):
    WAIT = "wait for the command and show its output"
    READ = "wait for the command and show its output until it is left"
    START = "start a process that runs in the background"
    STOP = "send a signal to the runner"


class Asked(msgspec.Struct, frozen=True):
    """An argument that the dialog asks for."""

    label: str
    option: str = ""
    """'' for an argument that stands by itself."""
    required: bool = False
    many: bool = False
    """Several values, separated by spaces or commas."""
    field: str = ""
    """It changes this field of the item."""

    def present(self, target: Target) -> str:
        """Return the value that the item has; only another one becomes words."""
        if not self.field or target.item is None:
            return ""
        item = target.item
        return str(getattr(item.assessment if hasattr(item.assessment, self.field) else item, self.field))

    def words(self, answer: str) -> list[str]:
        """Return the words of an answer. A value that begins with a dash is passed with an equals sign, else it is
        read as an option."""
        values = answer.replace(",", " ").split() if self.many else [answer]
        pairs = ([f"{self.option}={each}"] if each.startswith("-") else [self.option, each] for each in values)
        return [word for pair in pairs for word in pair] if self.option else values


class DashboardVerb(msgspec.Struct, frozen=True):
    key: str
    word: str
    """The command."""
    says: str
    """Its line in the help."""
    question: str
    """The title of its dialog; `{}` is the item."""
    asks: tuple[Asked, ...] = ()
    how: How = How.WAIT
    label: str = ""
    """Its name on screens where it is about no item, or not the only one of its command."""
    of_item: bool = True
    needs_one: bool = False
    """One of the answers at least must be given."""

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

    def asked_of(self, target: Target) -> list[Asked]:
        """Return what is asked; of fields only those that the item has."""
        return [each for each in self.asks if not each.field or each.field in target.edits]

    def unanswered(self, target: Target, answers: Sequence[str]) -> int:
        """Return the number of the first question that must be answered still; -1 if there is none."""
        asked = self.asked_of(target)
        missing = (number for number, each in enumerate(asked) if each.required and not answers[number])
        given = not self.needs_one or self.words(target, answers) != self.words(target)
        return next(missing, -1 if given else 0)

    def words(self, target: Target, answers: Sequence[str] = ()) -> list[str]:
        """Return the words after `capsule`; without the answers that change nothing."""
        words = [self.word, target.id] if self.of_item else [self.word]
        for asked, answer in zip(self.asked_of(target), answers, strict=False):
            if answer != asked.present(target):
                words += ["--"] * (answer.startswith("-") and not asked.option) + asked.words(answer)
        return words

    def line(self, target: Target, answers: Sequence[str] = ()) -> str:
        """Return the command line for a shell."""
        if self.how is How.STOP:
            return f"kill -INT {target.pid}"
        return shlex.join(["capsule", *self.words(target, answers)])


_NOT_RUNNING: _Need = (lambda target: not target.running, "{} is running.")
_CLOSABLE: _Need = (lambda target: target.is_open and not target.running, "{} is running, or not open.")
_OPEN: _Need = (lambda target: target.is_open, "{} is done.")
_NAMED: _Need = (lambda target: bool(target.id), "Nothing is selected.")
_LISTED: _Need = (lambda target: target.item is not None, "{} is no item of the tracker any more.")


def _has(field: str) -> _Need:
    return lambda target: field in target.edits, "Items of this tracker are changed in the tracker itself."


_NEEDS: dict[str, tuple[_Need, ...]] = {
    "run": (
        *(_NAMED, _NOT_RUNNING, (lambda target: target.is_open or target.under_way, "{} is done.")),
        (lambda target: target.may_continue or not target.blocked, "{} is blocked: answer it first (u)."),
        (lambda target: target.may_continue or not target.waits_for, "{} waits for another item."),
    ),
    "queue": (),
    "add": (),
    "import": (),
    "stop": (
        (lambda target: target.pid != 0, "It runs in another container or on another machine: stop it there."),
        (lambda target: target.running, "It is not running."),
    ),
    "abort": (_NAMED, (lambda target: target.under_way, "{} has no mission to abort.")),
    "answer": (_NAMED, _NOT_RUNNING, (lambda target: bool(target.blocked or target.halted), "{} does not need you.")),
    "edit": (_NAMED, _has("title"), _LISTED, _OPEN, _NOT_RUNNING),
    "depend": (_NAMED, _has("dependencies"), _LISTED, _OPEN, _NOT_RUNNING),
    "hold": (
        *(_NAMED, _has("status"), _LISTED, _OPEN, _NOT_RUNNING),
        (lambda target: not target.blocked, "{} is blocked already."),
    ),
    "advance": (
        _NAMED,
        (lambda target: target.in_backlog, "Only backlog items can be advanced."),
        (lambda target: not target.blocked, "{} is blocked: answer it first (u)."),
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
    "reopen": (
        *(_NAMED, _NOT_RUNNING, (lambda target: not target.blocked, "{} is blocked: answer it first (u).")),
        (lambda target: target.halted or not target.is_open, "{} is open."),
        (lambda target: target.halted or (target.in_backlog and not target.item), "{} is reopened in its tracker."),
    ),
    "revert": (_NAMED, (lambda target: target.merged, "{} is not merged.")),
    "undo": ((lambda target: target.in_backlog, "Only changes of a backlog can be undone."),),
}
"""By action, what has to hold, and what is said where it does not."""
_NOTES = Asked("Notes for the next agent (optional)", "--notes")
_PHASE = Asked("Phase (empty: the next)", "--to")
_REASON = Asked("Reason", "--reason", required=True)
_FIELDS = (
    Asked("Title", "--title", field="title"),
    *(Asked(f"{name.capitalize()} (low, medium, high)", f"--{name}", field=name) for name in ("impact", "risk")),
    Asked("Size (small, medium, large)", "--size", field="size"),
    Asked("Complexity (low, medium, high)", "--complexity", field="complexity"),
    Asked("Priority (0 most urgent, to 4)", "--priority", field="priority"),
    Asked("Type", "--type", field="type"),
    Asked("Parent", "--parent", field="parent"),
    Asked("Tags to add", "--tag", many=True),
    Asked("Tags to remove", "--untag", many=True),
)
_OTHERS = (
    Asked("Items that must be done first", "--on", many=True),
    Asked("No longer waits for", "--off", many=True),
)
_FILE = Asked("A file: Markdown list, CSV, or JSON of `gh issue list`", required=True)

VERBS = (
    DashboardVerb("r", "run", "run it; an epic or feature: everything in it", "Run {}", how=How.START),
    DashboardVerb(
        *("u", "unblock", "answer a question; notes go to the next agent", "Answer {}", (_NOTES,)), label="answer"
    ),
    DashboardVerb("A", "approve", "approve it where a decision is asked", "Approve {}", (_NOTES,)),
    DashboardVerb("s", "stop", "stop and keep progress", "Stop {}", how=How.STOP),
    DashboardVerb("n", "add", "add an item", "Add an item", (Asked("Title", required=True),), of_item=False),
    DashboardVerb("R", "run", "run the queue", "Run the queue", how=How.START, label="queue", of_item=False),
    DashboardVerb("x", "abort", "abort its mission; the branch stays", "Abort mission {}"),
    DashboardVerb("o", "reopen", "reopen it: done, closed or failed", "Reopen {}"),
    DashboardVerb("E", "edit", "edit title, levels, tags", "Edit {}", _FIELDS, needs_one=True),
    DashboardVerb("d", "depend", "say which items must be done first", "What {} waits for", _OTHERS, needs_one=True),
    DashboardVerb("H", "hold", "put it on hold, with the reason", "Hold {}", (_REASON,)),
    DashboardVerb("a", "advance", "move it to the next phase, or to a named one", "Advance {}", (_PHASE,)),
    DashboardVerb("c", "complete", "mark it done", "Mark {} done"),
    DashboardVerb("C", "close", "close it without doing it", "Close {} without doing it", (_REASON,)),
    DashboardVerb("Z", "undo", "revert its merge by a commit", "Undo the merge of {}", how=How.READ, label="revert"),
    DashboardVerb("i", "import", "add many items from a file", "Import items", (_FILE,), of_item=False),
    DashboardVerb("z", "undo", "undo the last change of the backlog", "Undo the last change", of_item=False),
)
BY_KEY = {verb.key: verb for verb in VERBS}


def target_of(board: Board, listing: Listing, name: str) -> Target:
    """Return an item, its mission, and what runs of it."""
    view = board.mission(name)
    item = next((item for item in listing.items if item.id == name), None)
    if view is None and item is None:
        return target_of_none(listing)
    run, pid = run_of(board, name), view.pid if view else None
    if view is not None and view.parent and item is None:  # part of another: that one can be told something
        return Target(stream=name, pid=pid)
    stream = name
    if run and pid is None:
        stream, pid = run.stream, run.pid
    is_open = {each.id for each in listing.items if each.status is not Status.DONE}
    return Target(
        id=name,
        item=item,
        mission=view,
        verbs=listing.verbs,
        edits=listing.edits,
        waits_for=tuple(other for other in item.dependencies if other in is_open) if item else (),
        stream=stream,
        pid=pid,
    )


def target_of_none(listing: Listing) -> Target:
    """Return the target of what is about no item."""
    return Target(verbs=listing.verbs)


def available(target: Target) -> list[DashboardVerb]:
    return [verb for verb in VERBS if not verb.refusal(target)]
