"""The ways to answer what waits for a person, the most helpful first.

Every place that names one command for a halted mission or a blocked item names the first of these.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from enum import StrEnum

import msgspec

from capsule.core.decide import Decision
from capsule.core.item import HELD, Item, Status
from capsule.core.ledger import DECISION
from capsule.core.signal import Verdict
from capsule.core.state import Halt, MissionState
from capsule.core.status import MissionStatus

_COMMAND = re.compile(r"`capsule ((?:run|merge) [^`;]+)`")


class QuestionKind(StrEnum):
    QUESTION = "question"
    """From an agent, or from a person who blocked the item."""
    DECISION = "decision"
    """A guardrail, a required review, or a hold by a person."""
    REVIEW = "review"
    """A review asks for the same thing again, or takes back what it asked for."""
    CLAIM = "claim"
    """A claim was refuted, and a person may accept it."""
    CONFLICT = "conflict"
    """It cannot be merged: a conflict, a red gate, a file in the way."""
    FAILED = "failed"
    """No retries are left, or the phase failed."""

    @property
    def words(self) -> str:
        return _KINDS[self]


_KINDS = {
    QuestionKind.QUESTION: "asks",
    QuestionKind.DECISION: "waits for your decision",
    QuestionKind.REVIEW: "its review goes in circles",
    QuestionKind.CLAIM: "its claim does not hold",
    QuestionKind.CONFLICT: "cannot be merged",
    QuestionKind.FAILED: "failed",
}


class Answer(msgspec.Struct, frozen=True):
    """One way to answer."""

    verb: str
    """answer, approve, accept, try-again, close, complete, abort or run."""
    label: str
    words: tuple[str, ...]
    """The words after `capsule`, without the text."""
    option: str = ""
    """The option for the text; '' if it takes none."""
    required: bool = False

    @property
    def text(self) -> str:
        """Return `required`, `optional`, or '' if it takes no text."""
        return ("required" if self.required else "optional") if self.option else ""

    @property
    def command(self) -> str:
        """Return the command to type, up to the text."""
        return shlex.join(["capsule", *self.words]) + (f' {self.option} "..."' if self.required else "")

    def with_text(self, text: str) -> list[str]:
        """Return the words after `capsule` with a text; one that begins with a dash would be read as an option."""
        if not self.option or not text:
            return [*self.words]
        return [*self.words, *([f"{self.option}={text}"] if text.startswith("-") else [self.option, text])]


# ---- of a mission


def kind_of_halt(state: MissionState, made: Decision | None, status: MissionStatus) -> QuestionKind:
    """Return what a halted mission needs; `made` is the decision of the phase that halted it, None if a person did."""
    blocked = state.item.blocked
    if made is None:
        return QuestionKind.DECISION if blocked and blocked.kind == DECISION else QuestionKind.QUESTION
    if made.vetoed or made.block_type == DECISION:
        return QuestionKind.DECISION
    if state.halt and state.workflow.phase(state.halt.phase).doer == "do":
        return QuestionKind.CONFLICT
    if status is MissionStatus.FAILED:
        return QuestionKind.FAILED
    if made.verdict is Verdict.REFUTED:
        return QuestionKind.CLAIM
    return QuestionKind.REVIEW if made.findings and made.verdict is not Verdict.BLOCKED else QuestionKind.QUESTION


def answers_to_halt(item: str, state: MissionState, made: Decision | None, kind: QuestionKind) -> Iterator[Answer]:
    """Yield the ways to answer a halted mission of an item, or a part of it."""
    halt = state.halt
    if kind is QuestionKind.DECISION:
        if made and made.verdict is Verdict.BLOCKED and not made.vetoed:  # an agent asks: words may be the decision
            yield answering(item)
        yield approving(item)
    if kind is QuestionKind.CONFLICT and halt:
        yield from _named_in(halt)
    if halt and halt.accept and halt.mend:  # the phase that writes tests was asked before
        yield accepting(item, halt.accept)
    if state.in_review:
        yield trying_again(item)
    if kind in (QuestionKind.QUESTION, QuestionKind.REVIEW):
        yield answering(item)
    elif kind is not QuestionKind.DECISION:
        yield trying_again(item)
    if halt and halt.accept and not halt.mend:
        yield accepting(item, halt.accept)
    if kind is QuestionKind.QUESTION and made and made.verdict is Verdict.PASS:  # it found nothing left to do
        yield Answer("complete", "It is done", ("complete", item))
    yield closing(item)


def _named_in(halt: Halt) -> Iterator[Answer]:
    """Yield the command in the reason of a phase that Capsule runs itself: an agent's reason is never one."""
    if named := _COMMAND.search(halt.reason):
        words = tuple(shlex.split(named[1]))
        yield Answer("run", "Rebuild it, and go on" if "--rebase" in words else "Go on", words)


# ---- of an item without a mission that asks


def answers_to_block(item: Item) -> tuple[Answer, ...]:
    """Return the ways to answer a blocked item; none if only its tracker can lift the block."""
    if item.status is not Status.BLOCKED or not item.blocked or item.blocked.kind == HELD:
        return ()
    return (approving(item.id) if item.blocked.kind == DECISION else answering(item.id)), closing(item.id)


# ---- each of them


def answering(item: str) -> Answer:
    return Answer("answer", "Answer", ("answer", item), "--notes", required=True)


def approving(item: str) -> Answer:
    return Answer("approve", "Approve", ("answer", item, "--approve"), "--notes")


def accepting(item: str, check: str) -> Answer:
    words = ("answer", item, "--accept", check)
    return Answer("accept", "Accept, with a reason", words, "--because", required=True)


def trying_again(item: str) -> Answer:
    return Answer("try-again", "Try again", ("answer", item, "--retry"), "--notes")


def closing(item: str) -> Answer:
    return Answer("close", "Close, with a reason", ("answer", item), "--close", required=True)


def ending(item: str) -> Answer:
    return Answer("abort", "End its mission", ("abort", item))
