"""Answer what needs a person: each reply does what its question needs."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from capsule.app.control import tell_answered
from capsule.app.endings import EndedMission, reopen_mission
from capsule.app.items import find_item
from capsule.app.moves import Unblocked, accept, approve, close, unblock
from capsule.core.answer_form import said_in_words
from capsule.core.answers import QuestionKind
from capsule.core.errors import Refused, UsageError
from capsule.core.event import Accepted
from capsule.core.inbox import Question
from capsule.core.item import Item
from capsule.core.ledger import DECISION
from capsule.project import Project


class Reply(Struct, frozen=True):
    """A person's answer to a question."""

    verb: str
    """answer, approve, accept, try-again or close, as in `core.answers.Answer`; text: the one that takes a text."""
    text: str = ""
    check: str = ""
    """The check of an accepted claim."""


class AcceptedClaim(NamedTuple):
    event: Accepted
    left: tuple[str, ...] = ()
    """Other refuted claims of the same phase, which have to be settled first."""
    taken_up_by: str = ""
    warnings: tuple[str, ...] = ()


class ClosedItem(NamedTuple):
    item: Item
    ended: EndedMission | None
    warnings: tuple[str, ...]


Given = Unblocked | AcceptedClaim | ClosedItem
"""The result of a reply."""


def reply_in_words(question: Question, text: str) -> Reply:
    """Return the reply in a section of a form."""
    answer, rest = said_in_words(question, text)
    if answer is None:
        return fitting(question, Reply("text", text))
    check = answer.words[-1] if answer.verb == "accept" else ""
    if answer.required and not rest:
        raise UsageError(f"{question.id}: `{text.strip()}` lacks the reason.", "Write it after the colon.")
    return Reply(answer.verb, rest, check)


def fitting(question: Question, reply: Reply) -> Reply:
    """Return the reply in the form that the question expects; refuse one that does not fit."""
    offered = {answer.verb for answer in question.answers}
    first = question.answers[0].command
    if reply.verb == "text":
        verb = next((verb for verb in ("answer", "try-again") if verb in offered), "")
        if not verb:
            raise Refused(f"{question.id} {question.kind.words}, so text alone is no answer.", _either(question))
        return Reply(verb, reply.text)
    if reply.verb == "approve" and "approve" not in offered:
        raise Refused(f"{question.id} waits for no decision: it {question.kind.words}.", f"Answer it: {first}")
    if reply.verb == "try-again" and question.kind is QuestionKind.DECISION:
        raise Refused(f"{question.id} {question.kind.words}.", _either(question))
    return reply


def _either(question: Question) -> str:
    return f"Say one of: {'; '.join(answer.command for answer in question.answers)}"


def give(project: Project, item_id: str, reply: Reply, *, no_commit: bool = False) -> Given:
    """Apply the reply; a run under way continues with the item at once."""
    if reply.verb == "accept":
        return _accept(project, item_id, reply, no_commit=no_commit)
    if reply.verb == "close":
        return ClosedItem(*close(project, item_id, " ".join(reply.text.split()), no_commit=no_commit))
    if reply.verb == "approve" and _is_asked_by_its_tracker(project, item_id):
        return approve(project, item_id, reply.text, no_commit=no_commit)
    return unblock(project, item_id, reply.text, no_commit=no_commit)


def _is_asked_by_its_tracker(project: Project, item_id: str) -> bool:
    """Tell whether the tracker holds the block; else only the mission does."""
    blocked = find_item(project.tracker, item_id).blocked
    return "approve" in project.tracker.traits.verbs and blocked is not None and blocked.kind == DECISION


def _accept(project: Project, item_id: str, reply: Reply, *, no_commit: bool) -> AcceptedClaim:
    because = " ".join(reply.text.split())
    event, left, warnings = accept(project, item_id, reply.check, because, no_commit=no_commit)
    if left:
        return AcceptedClaim(event, left, warnings=warnings)
    reopen_mission(project, find_item(project.tracker, item_id), "")
    return AcceptedClaim(event, taken_up_by=tell_answered(project, item_id), warnings=warnings)
