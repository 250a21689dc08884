"""Work out what the end of a step means for its item: its state, follow-ups, and the worklog's entry.

The answer is a list of assignments, journaled with the step's outcome and applied afterwards. The mission's own picture
of its item is made from the same list, so the two cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from capsule.core.assignment import Absent, Assign, Assignment, Exists
from capsule.core.decide import Decision, Guardrails, Move, above, objections
from capsule.core.item import EARLY, LEVELS, Assessment, Item, Status, Value, check_move, with_values
from capsule.core.project_log import CLOSED, COMPLETED, log_entry
from capsule.core.signal import DEFAULT_BLOCK_TYPE, Signal, Verdict
from capsule.core.text import one_line
from capsule.core.workflow import Phase, Workflow

_TOLD = (Move.ADVANCE, Move.REPEAT, Move.PARK, Move.CLOSE)
"""Moves that are always written to the tracker."""
DECISION = "decision"
BEFORE_WORKFLOW = (Status.SCOPED, Status.READY)
MOST_FOLLOW_UPS = 20
"""The most follow-ups of one step: more than that are one finding, not many."""
_LONGEST_SUBJECT = _LONGEST_TITLE = 200
_LONGEST_CONTEXT = 4000


class Ending(msgspec.Struct, frozen=True):
    """The end of one phase of one item; `closed_as` is set where the item ends without being done."""

    workflow: Workflow
    phase: Phase
    key: str
    item: Item
    signal: Signal
    decision: Decision
    closed_as: str = ""

    @property
    def is_the_last(self) -> bool:
        return self.decision.move is Move.ADVANCE and self.phase.name == self.workflow.names()[-1]

    @property
    def is_news(self) -> bool:
        """Tell whether to write it to the tracker: a failure that is retried counts only with new information."""
        learnt = bool(self.signal.assessments or self.signal.follow_ups)
        failed = self.decision.move is Move.RETRY and self.decision.verdict is not Verdict.REFUTED
        return self.decision.move in _TOLD or (failed and learnt)

    @property
    def summary(self) -> str:
        halted = self.decision.move in (Move.PARK, Move.CLOSE)
        return self.decision.reason if halted else self.signal.summary


def assignments_of(ending: Ending, at: str) -> tuple[Assignment, ...]:
    """Return all changes to the tracker after the end of a phase."""
    if not ending.is_news:
        return ()
    item, phase = ending.item, ending.phase.name
    if ending.is_the_last:
        return archived(item, at, phase, ending.closed_as)
    values = guarded(with_values(item, _values(ending)))
    outcome = "BLOCKED" if ending.decision.move is Move.PARK else ending.decision.verdict.value
    found = []
    for number, follow_up in enumerate(ending.signal.follow_ups[:MOST_FOLLOW_UPS]):
        fields: dict[str, Value] = {
            "title": one_line(follow_up.title)[:_LONGEST_TITLE].rstrip(),
            "status": Status.NEW.value,
            "size": follow_up.suggested_size or None,
            "risk": follow_up.suggested_risk or None,
            "origin": f"{ending.item.id}/{ending.phase.name}",
            "description": follow_up.context[:_LONGEST_CONTEXT] or None,
            "created": at,
            "updated": at,
        }
        found.append(Exists(f"{ending.item.id}/{ending.key}/{number}", fields, unless_known=True))
    return (
        Assign(item.id, {**values, "updated": at}),
        *found,
        *([log_entry(item, at, phase, outcome, ending.summary)] if outcome == "BLOCKED" or not ending.phase.do else []),
    )


def archived(item: Item, at: str, phase: str, why: str = "") -> tuple[Assignment, ...]:
    """Take the item out of the backlog and record it in the worklog."""
    outcome, summary = (CLOSED, why) if why else (COMPLETED, "Done.")
    return (Absent(item.id), log_entry(item, at, phase, outcome, summary))


def subject(ending: Ending) -> str:
    """Return the first line of the commit that holds a step: `[WRK-001][PRD] what was done`."""
    if ending.is_the_last:
        return archive_subject(ending.item, ending.phase.name, ending.closed_as)
    tag = "blocked" if ending.decision.move is Move.PARK else ending.phase.name
    return tagged(ending.item.id, tag, ending.summary)


def archive_subject(item: Item, phase: str, why: str = "") -> str:
    words = f"{CLOSED}: {item.title} ({why})" if why else f"{COMPLETED}: {item.title}"
    return tagged(item.id, phase, words)


def tagged(item_id: str, tag: str, words: str) -> str:
    """Return one short line, safe to print."""
    return f"[{item_id}][{tag.upper()}] {one_line(words)}"[:_LONGEST_SUBJECT].rstrip()


def guarded(item: Item) -> dict[str, Value]:
    """Return the values of the fields that only the outcome of a step may change while it runs."""
    block = item.blocked
    return {
        "status": item.status.value,
        "phase": item.phase or None,
        **{name: getattr(item.assessment, name) or None for name in item.assessment.__struct_fields__},
        "requires_human_review": item.requires_human_review,
        "blocked_from_status": block.from_status.value if block else None,
        "blocked_reason": block.reason if block else None,
        "blocked_type": block.kind if block else None,
        "unblock_context": item.unblock_context or None,
        "guardrail_override": {**_levels(item.guardrail_override)} or None,
    }


def after(item: Item, assignments: Iterable[Assignment]) -> Item:
    """Return the item after these assignments."""
    for assignment in assignments:
        if isinstance(assignment, Assign) and assignment.item == item.id:
            item = with_values(item, assignment.values)
    return item


def _values(ending: Ending) -> dict[str, Value]:
    phase, item, decision = ending.phase, ending.item, ending.decision
    if decision.move is Move.CLOSE:
        return {}
    if decision.move is Move.RETRY:
        return {**ending.signal.assessments}
    if decision.move is Move.PARK and not decision.vetoed:
        review = {"requires_human_review": True} if ending.signal.requires_human_review else {}
        working = {**ending.signal.assessments, **review, **_working(phase)}
        asks = decision.verdict is Verdict.BLOCKED and not decision.exhausted
        kind = decision.block_type or (DEFAULT_BLOCK_TYPE if asks else "")
        return working | blocked(with_values(item, working), decision.reason, kind)
    values: dict[str, Value] = {**ending.signal.assessments, "unblock_context": None}
    more = decision.verdict is Verdict.MORE
    values |= _working(phase) if more else _values_after_pass(ending, with_values(item, values))
    if decision.vetoed:
        values |= vetoed(with_values(item, values), decision.reason)
    return values


def _working(phase: Phase) -> dict[str, Value]:
    """Return an item's fields while this phase runs; a phase for an earlier status keeps that status."""
    early = phase.when and phase.when.status
    return {} if early else {"status": Status.IN_PROGRESS.value, "phase": phase.name}


def _values_after_pass(ending: Ending, item: Item) -> dict[str, Value]:
    workflow, phase, vetoed = ending.workflow, ending.phase, ending.decision.vetoed
    route = phase.route(item)
    if route:
        promoted = route.status is Status.SCOPED and not vetoed
        return promotion(workflow) if promoted else {"status": route.status.value}
    names = workflow.names()
    rest = names[names.index(phase.name) + 1 :]
    closing = all(workflow.phase(name).closing for name in rest)
    if (
        closing and not vetoed
    ):  # it stays there until it is archived, so that reverting that commit brings it back there
        return {"status": Status.IN_PROGRESS.value, "phase": phase.name}
    return {"status": Status.IN_PROGRESS.value, "phase": rest[0] if rest else phase.name}


def promotion(workflow: Workflow) -> dict[str, Value]:
    """Return the fields that make a scoped item ready, at the workflow's first phase."""
    return {"status": Status.READY.value, "phase": workflow.entry()}


def values_at_entry(item: Item, workflow: Workflow, guardrails: Guardrails) -> dict[str, Value]:
    """Return the changes to an item before it enters its workflow: blocked for a person, made ready, or nothing."""
    return values_asking_person(item, guardrails) or (promotion(workflow) if item.status is Status.SCOPED else {})


def values_asking_person(item: Item, guardrails: Guardrails) -> dict[str, Value]:
    """Return the fields that block an item on a person's decision before it enters its workflow; else nothing."""
    if item.unmet and item.status in (*EARLY, *BEFORE_WORKFLOW):
        return blocked(item, f"it depends on what was closed: {'; '.join(item.unmet)}", DECISION)
    reasons = objections(item, guardrails) if item.status in BEFORE_WORKFLOW else ()
    return vetoed(item, "; ".join(reasons)) if reasons else {}


def vetoed(item: Item, reason: str) -> dict[str, Value]:
    """Return the fields of an item that needs a decision by a person."""
    return {"requires_human_review": True, **blocked(item, reason, DECISION)}


def blocked(item: Item, reason: str, kind: str = "") -> dict[str, Value]:
    """Return the fields of an item that waits for a person and remembers its position."""
    return {
        "status": Status.BLOCKED.value,
        "blocked_from_status": item.status.value,
        "blocked_reason": one_line(reason),
        "blocked_type": kind or None,
    }


def unblocked(item: Item, guardrails: Guardrails, notes: str = "") -> dict[str, Value]:
    """Return the fields that restore an item's position; the same decision is not asked again."""
    if item.blocked is None:
        return {}
    check_move(item, item.blocked.from_status)
    values: dict[str, Value] = {"status": item.blocked.from_status.value, "blocked_from_status": None}
    values |= {"blocked_reason": None, "blocked_type": None}
    if notes:
        values["unblock_context"] = notes
    if item.blocked.kind == DECISION:
        let_pass = _levels(item.guardrail_override)
        for name, level in above(item.assessment, guardrails).items():  # of each dimension, the higher level
            let_pass[name] = max(let_pass.get(name, ""), level, key=lambda known: LEVELS[known])
        values |= {"guardrail_override": let_pass} if let_pass else {}
        values |= {"requires_human_review": False} if item.requires_human_review else {}
        values |= {"dependencies": [*item.dependencies] or None} if item.unmet else {}
    return values


def _levels(assessment: Assessment) -> dict[str, str]:
    return {name: level for name in assessment.__struct_fields__ if (level := getattr(assessment, name))}
