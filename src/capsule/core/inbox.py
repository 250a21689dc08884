"""Everything that waits for a person: questions, decisions, reviews in circles, refuted claims, conflicts, failures.

One `Question` for each item or mission, oldest first, with what a person needs to answer it and the commands that do.
Screens, reports and `capsule questions` render it. The texts come from agents and trackers: they are printed clean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from capsule.core.answers import Answer, QuestionKind, answers_to_block, ending
from capsule.core.board import Board
from capsule.core.budget import Spending
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Attempt, MissionSummary
from capsule.core.item import Item, Status
from capsule.core.ledger import DECISION
from capsule.core.signal import Verdict
from capsule.core.state import halt_is_accepted
from capsule.core.status import MissionStatus
from capsule.core.text import count

_SHORT = 12
"""Characters of a commit that are shown."""


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


def way_on(view: MissionSummary | None, item: Item | None) -> str:
    """Return the command that helps an item that waits for a person or a budget; '' for any other."""
    if view and view.halted and not _is_answered(view, {item.id: item} if item else None):
        return view.next
    if item and (answers := answers_to_block(item)):
        return answers[0].command
    return view.next if view and view.out_of_budget else ""


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
    at_fault = view.at_fault
    attempt = at_fault.halted_by
    return Question(
        id=view.mission,
        title=view.title,
        status=view.status,
        kind=at_fault.asks,
        asked=_asked(at_fault, attempt),
        phase=at_fault.phase,
        since=view.ended or view.last,
        done=tuple(_done(view)),
        spent=view.spent_with_parts,
        seconds=view.busy_seconds,
        evidence=tuple(sorted(attempt.evidence if attempt else (), key=_weight)),
        diff=_diff(at_fault),
        answers=view.answers if is_known else (ending(view.mission),),
    )


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
    compared, _ = view.to_compare()
    pairs = [pair for pair in compared if pair[0] != pair[1]]
    if len(pairs) == 1 and not pairs[0][0].endswith("^"):
        return f"git diff {' '.join(commit[:_SHORT] for commit in pairs[0])}"
    return f"git show {' '.join(commit[:_SHORT] for _, commit in pairs)}" if pairs else ""


# ---- items that no mission asks for


def _of_items(board: Board, items: Mapping[str, Item]) -> Iterator[Question]:
    """Yield blocked items without a running or halted mission."""
    busy = {view.mission for view in board.missions if view.running or view.halted}
    for item in items.values():
        answers = answers_to_block(item) if item.id not in busy else ()
        if item.blocked and answers:
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
                answers=answers,
            )
