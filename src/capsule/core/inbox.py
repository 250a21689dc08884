"""Everything that waits for a person: questions, decisions, reviews in circles, refuted claims, conflicts, failures.

One `Question` for each item or mission, oldest first, with what a person needs to answer it and the commands that do.
Screens, reports and `capsule questions` render it. The texts come from agents and trackers: they are printed clean.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from capsule.core.board import Board
from capsule.core.budget import Spending
from capsule.core.decide import HALTS
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Attempt, MissionSummary
from capsule.core.item import HELD, Item, Status
from capsule.core.ledger import DECISION
from capsule.core.signal import Verdict
from capsule.core.state import halt_is_accepted
from capsule.core.status import MissionStatus
from capsule.core.text import count

_SHORT = 12
"""Characters of a commit that are shown."""


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


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One item or mission that needs a person."""

    id: str
    title: str
    status: MissionStatus = MissionStatus.NEEDS_YOU
    kind: QuestionKind = QuestionKind.QUESTION
    asked: str
    """The question or reason in full, with its line breaks."""
    phase: str = ""
    since: str = ""
    done: tuple[str, ...] = ()
    """The work so far, one line for each phase: `execute REFUTED (2 attempts)`."""
    spent: Spending = Spending()
    seconds: float = 0.0
    """The active time."""
    evidence: tuple[Evidence, ...] = ()
    """The evidence of the attempt in question, refuted claims first."""
    diff: str = ""
    """The command that shows the work in question; '' if there is none."""
    answers: tuple[Answer, ...] = ()
    """The most helpful one first."""

    @property
    def heading(self) -> str:
        return f"{self.id}: {self.title}"


def inbox(board: Board, items: Sequence[Item] | None) -> tuple[Question, ...]:
    """Return what waits for a person, oldest first; `items` is None if the tracker could not be read."""
    known = None if items is None else {item.id: item for item in items}
    found = [*_of_missions(board.missions, known), *_of_items(board, known or {})]
    return tuple(sorted(found, key=lambda each: (each.since, each.id)))


def needs_you(questions: Sequence[Question]) -> str:
    """Return the heading of the list: `Needs you (3)`."""
    return f"Needs you ({len(questions)})"


# ---- missions


def _of_missions(missions: Iterable[MissionSummary], items: Mapping[str, Item] | None) -> Iterator[Question]:
    for view in missions:
        if view.halted and not view.running and not view.parent and not _is_answered(view, items):
            yield _of_mission(view, is_known=items is None or view.mission in items)


def _is_answered(view: MissionSummary, items: Mapping[str, Item] | None) -> bool:
    """Tell whether a person has answered it already, perhaps in the tracker, and the mission has yet to see that."""
    item = (items or {}).get(view.mission)
    if halt_is_accepted(view.state) or (item and item.status is Status.DONE):
        return True
    was_blocked = view.commits and view.state.item.blocked
    return bool(item and was_blocked and not item.blocked)


def _of_mission(view: MissionSummary, *, is_known: bool) -> Question:
    at_fault = _at_fault(view)
    attempt = _last_of(at_fault)
    kind = _kind_of(at_fault, attempt)
    return Question(
        id=view.mission,
        title=view.title,
        status=view.status,
        kind=kind,
        asked=_asked(at_fault, attempt),
        phase=at_fault.phase,
        since=view.ended or view.last,
        done=tuple(_done(view)),
        spent=view.spent_with_parts,
        seconds=view.busy_seconds,
        evidence=tuple(sorted(attempt.evidence if attempt else (), key=_weight)),
        diff=_diff(at_fault),
        answers=tuple(_answers(view, at_fault, kind)) if is_known else (_ending(view.mission),),
    )


def _at_fault(view: MissionSummary) -> MissionSummary:
    """Return the mission, or the part of it that halted and stopped it."""
    part = next((each for each in reversed(view.parts) if each.halted), None)
    return _at_fault(part) if part else view


def _last_of(view: MissionSummary) -> Attempt | None:
    """Return the attempt that halted it; None if a person did."""
    last = view.attempts[-1] if view.attempts else None
    return last if last and last.phase == view.phase and last.decision and last.decision.move in HALTS else None


def _kind_of(view: MissionSummary, attempt: Attempt | None) -> QuestionKind:
    made, blocked = attempt.decision if attempt else None, view.state.item.blocked
    if made is None:
        return QuestionKind.DECISION if blocked and blocked.kind == DECISION else QuestionKind.QUESTION
    if made.vetoed or made.block_type == DECISION:
        return QuestionKind.DECISION
    if view.state.workflow.phase(view.phase).doer == "do":
        return QuestionKind.CONFLICT
    if view.status is MissionStatus.FAILED:
        return QuestionKind.FAILED
    if made.verdict is Verdict.REFUTED:
        return QuestionKind.CLAIM
    return QuestionKind.REVIEW if made.findings and made.verdict is not Verdict.BLOCKED else QuestionKind.QUESTION


def _asked(view: MissionSummary, attempt: Attempt | None) -> str:
    """Return the reason of a halt, with the agent's full text where the reason is a part of it."""
    reason = view.state.halt.reason if view.state.halt else view.sentence
    signal = attempt.ended.outcome.signal if attempt and attempt.ended else None
    whole = (signal.feedback or signal.summary).strip() if signal else ""
    first = next((line.strip() for line in whole.splitlines() if line.strip()), "")
    if " ".join(whole.split()) == reason:
        return whole
    return f"{reason.removesuffix(first)}{whole}" if first and reason.endswith(first) else reason


_FIRST = (EvidenceStatus.REFUTED, EvidenceStatus.UNVERIFIED, EvidenceStatus.ACCEPTED, EvidenceStatus.CONFIRMED)


def _weight(piece: Evidence) -> int:
    return _FIRST.index(piece.standing)


def _done(view: MissionSummary, whose: str = "") -> Iterator[str]:
    for line in view.lines:
        attempt, phase = line.attempt, view.state.workflow.phase(line.phase)
        if attempt.ended and attempt.verdict != Verdict.SKIPPED and phase.doer != "do":
            made = sum(each.phase == line.phase and not each.repeated for each in view.attempts)
            tries = max(made, view.state.tries.get(line.phase, 0))
            often = f" ({count(tries, 'attempt')})" if tries > 1 else ""
            yield f"{whose}{line.phase} {attempt.verdict}{often}"
    for part in view.parts:
        yield from _done(part, f"{part.mission}: ")


def _diff(view: MissionSummary) -> str:
    pairs, _ = view.to_compare()
    if len(pairs) == 1 and not pairs[0][0].endswith("^"):
        return f"git diff {' '.join(commit[:_SHORT] for commit in pairs[0])}"
    return f"git show {' '.join(commit[:_SHORT] for _, commit in pairs)}" if pairs else ""


# ---- items that no mission asks for


def _of_items(board: Board, items: Mapping[str, Item]) -> Iterator[Question]:
    """Yield blocked items without a running or halted mission."""
    busy = {view.mission for view in board.missions if view.running or view.halted}
    for item in items.values():
        if item.blocked and item.blocked.kind != HELD and item.status is Status.BLOCKED and item.id not in busy:
            kind = QuestionKind.DECISION if item.blocked.kind == DECISION else QuestionKind.QUESTION
            mission = board.mission(item.id)
            yield Question(
                id=item.id,
                title=item.title,
                kind=kind,
                asked=item.blocked.reason,
                phase=item.phase,
                since=item.updated or item.created,
                done=tuple(_done(mission)) if mission else (),
                spent=mission.spent_with_parts if mission else Spending(),
                seconds=mission.busy_seconds if mission else 0.0,
                diff=_diff(mission) if mission and not mission.over else "",
                answers=(approving(item.id) if kind is QuestionKind.DECISION else answering(item.id), closing(item.id)),
            )


# ---- answers


def _answers(view: MissionSummary, at_fault: MissionSummary, kind: QuestionKind) -> Iterator[Answer]:
    """Yield the ways to answer, the one that helps most first."""
    item, halt, attempt = view.mission, at_fault.state.halt, _last_of(at_fault)
    made = attempt.decision if attempt else None
    if kind is QuestionKind.DECISION:
        if made and made.verdict is Verdict.BLOCKED and not made.vetoed:  # an agent asks: words may be the decision
            yield answering(item)
        yield approving(item)
    if kind is QuestionKind.CONFLICT and ";" not in view.next:
        yield _running(view.next)
    if halt and halt.accept and halt.mend:  # the phase that writes tests was asked before
        yield accepting(item, halt.accept)
    if kind in (QuestionKind.QUESTION, QuestionKind.REVIEW):
        yield answering(item)
    elif kind is not QuestionKind.DECISION:
        yield trying_again(item)
    if halt and halt.accept and not halt.mend:
        yield accepting(item, halt.accept)
    if kind is QuestionKind.QUESTION and made and made.verdict is Verdict.PASS:  # it found nothing left to do
        yield Answer("complete", "It is done", ("complete", item))
    yield closing(item)


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


def _running(command: str) -> Answer:
    words = tuple(shlex.split(command)[1:])
    return Answer("run", "Rebuild it, and go on" if "--rebase" in words else "Go on", words)


def _ending(item: str) -> Answer:
    return Answer("abort", "End its mission", ("abort", item))
