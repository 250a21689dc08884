"""The heart: one table, read by one pure function.

    role \\ verdict  PASS     MORE     NEEDS_WORK  FAILED  BLOCKED  ERROR  REFUTED   retries gone
    worker          advance  abort    abort       abort   park     abort  retry     abort
    review          advance  abort    rework      abort   park     abort  rework    abort
    solo            advance  repeat   retry       retry   park     retry  retry     park
    action          advance  abort    rework*     park    park     abort  rework*   park

    * where the phase names a rework, else park

REFUTED is ours: the agent said PASS and the evidence says no. The evidence becomes the feedback.
Vetoes (a guardrail, a human's review) can only turn advance or repeat into park.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from capsule.core.evidence import Evidence, as_feedback, refuted
from capsule.core.item import LEVELS, Assessment, Item
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Phase, Role, Workflow


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


_LONGEST_QUESTION = 2000


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
    vetoed: bool = False
    """Whether the phase passed, but a person must approve the item."""
    block_type: str = ""

    @property
    def keeps_the_work(self) -> bool:
        """Tell whether the phase itself passed, also where a human has to decide."""
        return self.vetoed or self.move in PROGRESS


def verdict_of(signal: Signal, evidence: tuple[Evidence, ...], *, strict: bool = True) -> Verdict:
    """Return the verdict; a claim of success stands only where no evidence refutes it."""
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
    """Return why an item is not ready by itself; nothing where it is."""
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
) -> Decision:
    """Turn phase, signal, evidence and retries used into the one thing to do next."""
    phase = workflow.phase(name)
    verdict = verdict_of(signal, evidence, strict=strict)
    if verdict is Verdict.PASS and phase.may_close and signal.closes and not vetoed:
        reason = f"duplicate of {signal.duplicate_of}" if signal.duplicate_of else f"already done: {signal.summary}"
        return Decision(Move.CLOSE, verdict, reason)
    move = REACTIONS[phase.role][verdict]
    if move is Move.REWORK and not phase.rework:
        move = Move.PARK
    if move in (Move.ADVANCE, Move.REPEAT) and vetoed:
        return Decision(Move.PARK, verdict, "; ".join(vetoed), exit_code=1, vetoed=True, block_type="decision")
    feedback = as_feedback(evidence) if verdict is Verdict.REFUTED else signal.feedback or signal.summary
    reason = _reason(verdict, signal, evidence)
    if move in SETBACKS:
        worn_out = (
            piece
            for piece in (refuted(evidence) if verdict is Verdict.REFUTED else ())
            if piece.patience is not None
            and (refutations or {}).get(refutation_key(name, piece.check), 0) >= piece.patience
        )
        if piece := next(worn_out, None):
            return Decision(Move.PARK, verdict, piece.instead or piece.observed, feedback, exit_code=1)
        return _setback(workflow, phase, Decision(move, verdict, reason, feedback), used or {})
    if move in HALTS:
        if verdict is Verdict.BLOCKED:  # the whole question: whoever answers may have nothing but the tracker to read
            reason = " ".join((signal.feedback or signal.summary).split())[:_LONGEST_QUESTION] or "no reason was given"
        code = 1 if move is Move.PARK else 2
        return Decision(move, verdict, reason, feedback, exit_code=code, block_type=signal.block_type)
    return Decision(move, verdict, signal.summary)


def refutation_key(phase: str, check: str) -> str:
    return f"{phase}/{check}"


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
    """Return one line: the claim that did not hold, or the first thing that was said."""
    for piece in refuted(evidence) if verdict is Verdict.REFUTED else ():
        return f"it claimed that {piece.claimed}, and {piece.observed}"
    lines = [line.strip() for line in (signal.feedback or signal.summary).splitlines() if line.strip()]
    return lines[0] if lines else "no reason was given"
