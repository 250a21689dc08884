"""The heart: one table, read by one pure function.

    role \\ verdict  PASS     MORE     NEEDS_WORK  FAILED  BLOCKED  ERROR  REFUTED   retries gone
    worker          advance  abort    abort       abort   park     abort  retry     abort
    review          advance  abort    rework      abort   park     abort  rework    abort
    solo            advance  repeat   retry       retry   park     retry  retry     park
    action          advance  abort    rework*     park    park     abort  rework*   park

    * where the phase names a rework, else park

REFUTED is ours: the agent said PASS and the evidence says no. The evidence becomes the feedback. Evidence that says
who has to mend it (`mend`) sends the work to the phase that writes that, where there is one before; once per check,
with a counter of its own, and then it is for a person.
Vetoes (a guardrail, a human's review) can only turn advance or repeat into park. A review that asks for the same thing
a third time, or takes back what it asked for, is parked with the question, also where no retries are left
(`core.findings` has the table).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from capsule.core.evidence import Evidence, as_feedback, mend_of, refuted
from capsule.core.findings import Finding, Ledger, finding_list, next_number, review_round, settle_all, stuck
from capsule.core.item import LEVELS, Assessment, Item, duplicate_of
from capsule.core.signal import DEFAULT_BLOCK_TYPE, Signal, Verdict
from capsule.core.workflow import EXAM, Phase, Role, Workflow


class Move(StrEnum):
    ADVANCE = "advance"
    REPEAT = "repeat"
    RETRY = "retry"
    REWORK = "rework"
    SKIP = "skip"
    PARK = "park"
    ABORT = "abort"
    CLOSE = "close"


PROGRESS = (Move.ADVANCE, Move.REPEAT, Move.CLOSE)
SETBACKS = (Move.RETRY, Move.REWORK)
HALTS = (Move.PARK, Move.ABORT)

_VERDICTS = (
    *(Verdict.PASS, Verdict.MORE, Verdict.NEEDS_WORK, Verdict.FAILED, Verdict.BLOCKED, Verdict.ERROR, Verdict.REFUTED),
    Verdict.SKIPPED,
)
REACTIONS: dict[Role, dict[Verdict, Move]] = {
    role: dict(zip(_VERDICTS, map(Move, moves.split()), strict=True))
    for role, moves in {
        Role.WORKER: "advance abort  abort  abort park abort retry  skip",
        Role.REVIEW: "advance abort  rework abort park abort rework skip",
        Role.SOLO: "advance repeat retry  retry park retry retry  skip",
        Role.ACTION: "advance abort  rework park  park abort rework skip",
    }.items()
}

EXHAUSTED = {Role.WORKER: Move.ABORT, Role.REVIEW: Move.ABORT, Role.SOLO: Move.PARK, Role.ACTION: Move.PARK}


_ALREADY_DONE = "already done according to its agent (if so: `capsule complete`; if not: `capsule unblock --notes`)"


class Guardrails(msgspec.Struct, frozen=True, omit_defaults=True):
    """Above these a person decides. Empty: no limit."""

    max_size: str = ""
    max_complexity: str = ""
    max_risk: str = ""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """The next move and its reason. `back_to` and `counter` are set for setbacks, `exit_code` for stops."""

    move: Move
    verdict: Verdict
    reason: str = ""
    feedback: str = ""
    back_to: str = ""
    counter: str = ""
    exit_code: int = 0
    exhausted: bool = False
    """Whether it stopped because no retries are left."""
    by_others: bool = False
    """Whether the work had gone back because of what others merged: then the run is not to blame."""
    vetoed: bool = False
    """Whether the phase passed, but a person must approve the item."""
    block_type: str = ""
    mend: str = ""
    """The check whose evidence sent the work to the phase that has to mend it, with everything else kept."""
    accept: str = ""
    """Of a stop: the check whose refutation a person may accept."""
    findings: tuple[Finding, ...] = ()
    """Of a review: all its findings, in their current state."""

    @property
    def keeps_the_work(self) -> bool:
        """Tell whether the phase itself passed, also where a human has to decide."""
        return self.vetoed or self.move in PROGRESS


def verdict_of(signal: Signal, evidence: tuple[Evidence, ...], *, strict: bool = True) -> Verdict:
    """Return the verdict; a claim of success only counts if no evidence refutes it."""
    claims_success = signal.verdict in (Verdict.PASS, Verdict.MORE)
    return Verdict.REFUTED if strict and claims_success and refuted(evidence) else signal.verdict


def above(assessment: Assessment, guardrails: Guardrails) -> dict[str, str]:
    """Return the assessments above the guardrails; impact has none."""
    found = {}
    for dimension in ("size", "complexity", "risk"):
        level, limit = getattr(assessment, dimension), getattr(guardrails, f"max_{dimension}")
        if limit and LEVELS.get(level, 0) > LEVELS[limit]:
            found[dimension] = level
    return found


def vetoes(item: Item, signal: Signal, guardrails: Guardrails) -> tuple[str, ...]:
    """Return why a human must decide before this item goes on; equal to the maximum passes, unknown passes."""
    assessment = item.assessment.updated(signal.assessments)
    found = [
        f"{dimension} is {level}, above the guardrail {getattr(guardrails, f'max_{dimension}')}"
        for dimension, level in above(assessment, guardrails).items()
        if LEVELS[level] > LEVELS.get(getattr(item.guardrail_override, dimension), 0)
    ]
    if signal.requires_human_review or item.requires_human_review:
        found.append("a human review is required")
    return tuple(found)


def objections(item: Item, guardrails: Guardrails) -> tuple[str, ...]:
    """Return why an item does not become ready by itself; empty if it does."""
    return vetoes(item, Signal(verdict=Verdict.PASS), guardrails)


def decide(
    workflow: Workflow,
    name: str,
    signal: Signal,
    evidence: tuple[Evidence, ...] = (),
    *,
    strict: bool = True,
    used: Mapping[str, int] | None = None,
    refutations: Mapping[str, int] | None = None,
    vetoed: tuple[str, ...] = (),
    trusts_done: bool = False,
    findings: Mapping[str, Ledger] | None = None,
) -> Decision:
    """Turn phase, signal, evidence, retries used and earlier findings into the one thing to do next."""
    phase = workflow.phase(name)
    made = _decided(
        workflow,
        phase,
        signal,
        evidence,
        verdict=verdict_of(signal, evidence, strict=strict),
        used=used or {},
        refutations=refutations or {},
        vetoed=vetoed,
        trusts_done=trusts_done,
    )
    if _has_findings(phase):
        made = _with_findings(phase, signal, made, findings or {})
    acceptable = (piece.check for piece in refuted(evidence) if piece.tree)
    return replace(made, accept=next(acceptable, "")) if made.move in HALTS and not made.vetoed else made


def _decided(
    workflow: Workflow,
    phase: Phase,
    signal: Signal,
    evidence: tuple[Evidence, ...],
    *,
    verdict: Verdict,
    used: Mapping[str, int],
    refutations: Mapping[str, int],
    vetoed: tuple[str, ...],
    trusts_done: bool,
) -> Decision:
    if verdict is Verdict.PASS and phase.may_close and signal.closes and not vetoed:
        return _closed(signal, trusts_done=trusts_done)
    move = REACTIONS[phase.role][verdict]
    if move is Move.REWORK and not phase.rework:
        move = Move.PARK
    if move in (Move.ADVANCE, Move.REPEAT) and vetoed:
        return Decision(Move.PARK, verdict, "; ".join(vetoed), exit_code=1, vetoed=True, block_type="decision")
    feedback = as_feedback(evidence) if verdict is Verdict.REFUTED else signal.feedback or signal.summary
    reason = _reason(verdict, signal, evidence)
    planned = Decision(move, verdict, reason, feedback)
    against = evidence if verdict is Verdict.REFUTED else ()
    if mend_of(against):
        return _to_be_mended(workflow, phase, planned, against, used)
    if move in SETBACKS:
        worn_out = _worn_out(phase, against, refutations)
        parked = worn_out and replace(
            planned, move=Move.PARK, reason=worn_out.instead or worn_out.observed, exit_code=1
        )
        return parked or _setback(workflow, phase, planned, used)
    if move in HALTS:
        if verdict is Verdict.BLOCKED:  # the whole question: the person who answers may see nothing but the tracker
            reason = " ".join((signal.feedback or signal.summary).split()) or "no reason was given"
        code = 1 if move is Move.PARK else 2
        return Decision(move, verdict, reason, feedback, exit_code=code, block_type=signal.block_type)
    return Decision(move, verdict, signal.summary)


def _has_findings(phase: Phase) -> bool:
    """Tell whether an agent reviews here, and its findings are no secret."""
    return bool(phase.prompt) and phase.role in (Role.REVIEW, Role.SOLO) and phase.writes != EXAM


def _with_findings(phase: Phase, signal: Signal, made: Decision, findings: Mapping[str, Ledger]) -> Decision:
    """Keep the findings of a review; park one that goes round in circles, also where no retries are left."""
    ledger = findings.get(phase.name, ())
    if made.verdict in (Verdict.PASS, Verdict.MORE):
        return replace(made, findings=settle_all(ledger, signal))
    sent_back = made.verdict in (Verdict.NEEDS_WORK, Verdict.FAILED) and (made.move in SETBACKS or made.exhausted)
    if not sent_back or signal.synthetic or (phase.role is Role.SOLO and not signal.findings):
        return made
    judged = review_round(ledger, signal, next_number(findings.values()))
    listed = finding_list(each for each in judged.ledger if each.is_open) if judged.by_remarks else ""
    made = replace(made, findings=judged.ledger, feedback="\n\n".join(filter(None, (made.feedback, listed))))
    why = stuck(judged, phase.rework or phase.name)
    if not why:
        return made
    made = replace(made, move=Move.PARK, reason=why, exit_code=1, block_type=DEFAULT_BLOCK_TYPE)
    return replace(made, back_to="", counter="", exhausted=False)


def _worn_out(phase: Phase, evidence: tuple[Evidence, ...], refutations: Mapping[str, int]) -> Evidence | None:
    """Return the evidence that was refuted too often for another try."""
    for piece in refuted(evidence):
        seen = refutations.get(refutation_key(phase.name, piece.check), 0)
        if piece.patience is not None and seen >= piece.patience:
            return piece
    return None


def _closed(signal: Signal, *, trusts_done: bool) -> Decision:
    """Close a verified duplicate; park an item that its agent calls done, for a person to confirm."""
    if signal.duplicate_of:
        return Decision(Move.CLOSE, signal.verdict, duplicate_of(signal.duplicate_of))
    said = signal.summary or "no reason was given"
    if trusts_done:
        return Decision(Move.CLOSE, signal.verdict, f"already done: {said}")
    reason = f"{_ALREADY_DONE}: {said}"
    return Decision(Move.PARK, signal.verdict, reason, exit_code=1, block_type=DEFAULT_BLOCK_TYPE)


def refutation_key(phase: str, check: str) -> str:
    return f"{phase}/{check}"


MENDING = "mend/"
"""Prefix of the counters of returns to the phase that has to mend something; no phase has such a name."""
RETURNS = 1
"""How often the evidence of one check sends work there."""
_NOT_HELD = """\
The code is written, and it passes its tests. Capsule checked those, and they do not hold it as they should. Mend the \
tests, and leave the code as it is: each test that you add or change has to pass on it."""


def _to_be_mended(
    workflow: Workflow, phase: Phase, planned: Decision, evidence: tuple[Evidence, ...], used: Mapping[str, int]
) -> Decision:
    """Send the work to the phase that writes what has to be mended; without one, keep the row's own move."""
    piece = mend_of(evidence)
    assert piece
    counter, writer = MENDING + piece.check, workflow.writer(piece.mend, phase.name)
    if writer:
        feedback = as_feedback(evidence, _NOT_HELD)
        planned = replace(planned, move=Move.REWORK, back_to=writer, mend=piece.check, feedback=feedback)
    elif planned.move in SETBACKS:
        target = phase.rework if planned.move is Move.REWORK else phase.name
        frozen = target != phase.name and "untouched-tests" in workflow.phase(target).checks
        planned = replace(planned, back_to="" if frozen else target)
    if not planned.back_to or used.get(counter, 0) >= RETURNS:
        reason = piece.instead or piece.observed
        return replace(planned, move=Move.PARK, reason=reason, back_to="", exit_code=1)
    return replace(planned, counter=counter)


def _setback(workflow: Workflow, phase: Phase, planned: Decision, used: Mapping[str, int]) -> Decision:
    """Send the work back, or stop where no retries are left."""
    counter = workflow.counter(phase.name)
    allowed = workflow.allowed_retries(counter)
    if used.get(counter, 0) >= allowed:
        reason = f"retries exhausted ({allowed} allowed): {planned.reason}"
        return replace(planned, move=EXHAUSTED[phase.role], reason=reason, exit_code=1, exhausted=True)
    back_to = phase.rework if planned.move is Move.REWORK else phase.name
    return replace(planned, back_to=back_to, counter=counter)


def _reason(verdict: Verdict, signal: Signal, evidence: tuple[Evidence, ...]) -> str:
    """Return one line: the refuted claim, or the first line of the agent's words."""
    for piece in refuted(evidence) if verdict is Verdict.REFUTED else ():
        return f"it claimed that {piece.claimed}, and {piece.observed}"
    lines = [line.strip() for line in (signal.feedback or signal.summary).splitlines() if line.strip()]
    return lines[0] if lines else "no reason was given"
