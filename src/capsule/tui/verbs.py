"""What can be done from the dashboard: one row for each, with its key, the command it is, and what it fits.

Each is a command line of `capsule` and nothing else: what is shown before it is confirmed is what is run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from enum import StrEnum

import msgspec

from capsule.core.board import MissionView
from capsule.core.errors import InvalidId
from capsule.core.item import Item, Status, check_id
from capsule.core.ledger import DECISION
from capsule.core.standpoint import ENDED, HALTED


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What the cursor is on: an item, its mission, or both; or a run through many."""

    id: str = ""
    item: Item | None = None
    mission: MissionView | None = None
    by_status: bool = False
    stream: str = ""
    """Whose holder can be asked to stop."""
    pid: int | None = None

    @property
    def running(self) -> bool:
        return self.pid is not None

    @property
    def under_way(self) -> bool:
        return self.mission is not None and self.mission.word not in ENDED

    @property
    def is_open(self) -> bool:
        return self.item.status is not Status.DONE if self.item else self.under_way

    @property
    def blocked(self) -> bool:
        return self.item is not None and self.item.blocked is not None


class How(StrEnum):
    WAIT = "the command is waited for, and its answer shown"
    START = "it goes on by itself, in a process of its own"
    STOP = "a signal to whoever runs it"


class Question(msgspec.Struct, frozen=True):
    """What is asked for before the command line is complete."""

    label: str
    option: str
    required: bool = False


class Verb(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    word: str
    """The command."""
    says: str
    """What it does, for the help."""
    question: str
    """What is asked before it is done; `{}` is what it is done to."""
    refuses: Callable[[Target], str]
    """Why it does not fit; '' where it does."""
    asks: Question | None = None
    how: How = How.WAIT
    alone: bool = False
    """It is about no item."""
    label: str = ""
    """Where its word says too little."""

    @property
    def name(self) -> str:
        return self.label or self.word

    def question_about(self, target: Target) -> str:
        return self.question.replace("{}", target.id or "this run")

    def unfit(self, target: Target) -> str:
        if self.alone or self.how is How.STOP:
            return self.refuses(target)
        if not target.id:
            return "There is nothing chosen."
        try:
            check_id(target.id)
        except InvalidId as fault:
            return fault.message
        return self.refuses(target)

    def words(self, target: Target, answer: str = "") -> list[str]:
        """The words after `capsule`. What begins with a dash would be read as an option, but for the equals sign."""
        about = [] if self.alone else [target.id]
        if not self.asks or not answer:
            return [self.word, *about]
        option = self.asks.option
        return [self.word, *about, *([f"{option}={answer}"] if answer.startswith("-") else [option, answer])]

    def line(self, target: Target, answer: str = "") -> str:
        """What to type for the same."""
        if self.how is How.STOP:
            return f"kill -INT {target.pid}"
        return shlex.join(["capsule", *self.words(target, answer)])


def _unless(fits: Callable[[Target], bool], words: str) -> Callable[[Target], str]:
    return lambda target: "" if fits(target) else f"{target.id} {words}"


def _run(target: Target) -> str:
    if target.running:
        return f"{target.id} is running."
    return "" if target.is_open or target.under_way else f"{target.id} is done."


def _stop(target: Target) -> str:
    if target.pid == 0:
        return "It is run from somewhere that cannot be reached from here."
    return "" if target.pid else "Nothing runs there."


def _unblock(target: Target) -> str:
    halted = target.mission is not None and target.mission.word in HALTED
    if target.running:
        return f"{target.id} is running."
    return "" if target.blocked or halted else f"{target.id} is not blocked."


def _advance(target: Target) -> str:
    if not target.by_status:
        return "Only items of a backlog have phases to be moved between."
    if target.blocked:
        return f"{target.id} is blocked: unblock it first."
    return "" if target.is_open else f"{target.id} is done."


def _approve(target: Target) -> str:
    kind = target.item.blocked.kind if target.item and target.item.blocked else ""
    return "" if target.by_status and kind == DECISION else f"{target.id} does not wait for a decision."


def _nothing(_target: Target) -> str:
    return ""


VERBS = (
    Verb(
        key="r",
        word="run",
        says="run it; an epic: all that it holds",
        question="Run {} now?",
        refuses=_run,
        how=How.START,
    ),
    Verb(
        key="R",
        word="run",
        label="queue",
        says="work through the queue",
        question="Work through the queue now?",
        refuses=_nothing,
        how=How.START,
        alone=True,
    ),
    Verb(
        key="s",
        word="stop",
        says="stop it; it can go on later",
        question="Stop {}?",
        refuses=_stop,
        how=How.STOP,
    ),
    Verb(
        key="x",
        word="abort",
        says="end its mission; its branch stays",
        question="End the mission {} for good?",
        refuses=_unless(lambda target: target.under_way, "has no mission under way."),
    ),
    Verb(
        key="u",
        word="unblock",
        says="let it go on, with notes for its next agent",
        question="Let {} go on?",
        refuses=_unblock,
        asks=Question("Notes for its next agent (may be empty)", "--notes"),
    ),
    Verb(
        key="a",
        word="advance",
        says="move it one step on, or to a phase",
        question="Move {} on?",
        refuses=_advance,
        asks=Question("To which phase (empty: the next)", "--to"),
    ),
    Verb(
        key="c",
        word="complete",
        says="say that it is done",
        question="Say that {} is done?",
        refuses=_unless(lambda target: target.is_open and not target.running, "is running, or not open."),
    ),
    Verb(
        key="C",
        word="close",
        says="say that it will not be done",
        question="Say that {} will not be done?",
        refuses=_unless(lambda target: target.is_open and not target.running, "is running, or not open."),
        asks=Question("Why will it not be done?", "--reason", required=True),
    ),
    Verb(
        key="A",
        word="approve",
        says="say yes where it waits for a decision",
        question="Say yes to {}?",
        refuses=_approve,
        asks=Question("Notes for its next agent (may be empty)", "--notes"),
    ),
)
BY_KEY = {verb.key: verb for verb in VERBS}


def fitting(target: Target) -> list[Verb]:
    return [verb for verb in VERBS if not verb.unfit(target)]
