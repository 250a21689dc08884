"""Fold a mission's events into its state: `state = replay(events)`. The heart of it is the list of phases still to do.

`next_step` says what comes next, `apply` what an event changes. A mission's state has no other source, so resuming
after a crash is the same as never having stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from capsule.core.budget import Spending, total
from capsule.core.decide import HALTS, MENDING, SETBACKS, Move, refutation_key
from capsule.core.event import (
    Abandoned,
    Accepted,
    Discovered,
    Event,
    ItemClosed,
    MissionStarted,
    MovedByHand,
    Observed,
    Policy,
    Proposed,
    Rebased,
    Recorded,
    Reopened,
    RequestPrepared,
    Returned,
    Reviewed,
    Spent,
    StepBegun,
    StepEnded,
    TestsFound,
    Usage,
    Waiting,
)
from capsule.core.evidence import (
    Checkpoint,
    Colour,
    Evidence,
    EvidenceStatus,
    ExamMark,
    ExamResult,
    ExamTest,
    Observation,
    mend_of,
    refuted,
)
from capsule.core.findings import Ledger, afresh, with_answers
from capsule.core.item import Item, Lineage
from capsule.core.ledger import after
from capsule.core.request import Fate, Request
from capsule.core.signal import Verdict
from capsule.core.workflow import EXAM, TESTS, Phase, Role, Workflow

CONFIRMED = EvidenceStatus.CONFIRMED
MERGED_INTO = "merged_into"
"""The fact that names the branch of a remote."""
REQUEST, REQUEST_NUMBER, REQUEST_BRANCH, REQUEST_COMMIT = "request", "request_number", "request_branch", "proposed"
"""Facts of a step that opened a request: its address and number, its branch, the commit that it proposes."""
PHASE = "phase"
"""Value of `MovedByHand.what` where the mission itself was moved."""


class Halt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Parked or aborted, not ended: `run ID` goes on from here."""

    phase: str
    move: Move
    reason: str
    feedback: str = ""
    exit_code: int = 1
    vetoed: bool = False
    """The phase itself passed: resuming continues with the next one."""
    mend: str = ""
    """The check whose evidence names who has to mend it."""
    accept: str = ""
    """The check whose refutation a person may accept."""


class Refutation(msgspec.Struct, frozen=True):
    """A claim of a phase that does not hold; it may be accepted by a person."""

    phase: str
    piece: Evidence


class Mending(msgspec.Struct, frozen=True):
    """The work went back to have its tests mended; the code stays as it is, in `approved` under the name of this."""

    judge: str
    """The phase that found it: when that passes, the mending is over."""
    check: str
    survivors: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """The next thing to do, as data; its key is unique in the mission for ever, also across retries and rework."""

    mission: str
    phase: str
    run: int

    @property
    def key(self) -> str:
        return f"{self.phase}#{self.run}"


class MissionState(msgspec.Struct, frozen=True, kw_only=True):
    mission: str = ""
    item: Item = Item(id="", title="")
    lineage: Lineage = Lineage()
    workflow: Workflow = Workflow(name="", phases=())
    policy: Policy = Policy()
    base: str = ""
    into: str = ""
    parent: str = ""
    earlier: str = ""
    uuid: str = ""
    to_do: tuple[str, ...] = ()
    runs: dict[str, int] = {}
    """How often each phase has ended, ever: keys are made of it."""
    tries: dict[str, int] = {}
    """How often each phase has ended since the mission was started, or since its last part that succeeded."""
    used: dict[str, int] = {}
    setbacks: dict[str, int] = {}
    refutations: dict[str, int] = {}
    feedback: dict[str, str] = {}
    checkpoint: Checkpoint | None = None
    approved: dict[str, Checkpoint] = {}
    refused: dict[str, Refutation] = {}
    """By check, the claims that were refuted when its phase last ended."""
    accepted: dict[str, str] = {}
    """Reasons of people, by `acceptance_key`."""
    mending: Mending | None = None
    by_absence: bool = False
    """The new tests were red only because what they name did not exist."""
    exam: tuple[ExamTest, ...] = ()
    exam_results: dict[str, ExamResult] = {}
    """The last result, by the test's id."""
    findings: dict[str, Ledger] = {}
    """By phase, the findings of its reviews."""
    struck: dict[str, str] = {}
    """Tests of the exam that a review struck out, with its reason."""
    unsettled: bool = False
    """The last phase left its workspace in a state that no checkpoint could hold."""
    taken_over: bool = False
    """A human or a rebase changed the work itself: a worker may then add nothing."""
    answer: str = ""
    """The answer of the person who resumed it, until a step has ended."""
    let_go_on: bool = False
    """A person unblocked the item and no step has begun since: what they changed in the worktree is theirs."""
    facts: dict[str, str] = {}
    observations: dict[str, Observation] = {}
    summary: str = ""
    spent: dict[str, Spending] = {}
    """By phase, all its attempts together."""
    unaccounted: bool = False
    """An agent was started, and its usage is not reported yet."""
    begun: StepBegun | None = None
    unrecorded: StepEnded | None = None
    """The step that is not yet written to the tracker."""
    proposed: Proposed | None = None
    returned: Returned | None = None
    """Why the work has to be rebuilt on what others merged, until that is done."""
    returns: int = 0
    """How often that happened since a person last had it rebuilt."""
    met: dict[str, str] = {}
    """The missions that it conflicted with, each with its merge."""
    request: Request | None = None
    """Where its work is under review, if it is merged by a request."""
    pushed: tuple[str, ...] = ()
    """The commits that it has put on the branch of its request, or was about to, also before it was started over."""
    halt: Halt | None = None
    closed_as: str = ""
    item_closed: bool = False
    discovered: dict[str, str] = {}
    abandoned: str = ""

    @property
    def started(self) -> bool:
        return bool(self.mission)

    @property
    def finished(self) -> bool:
        """Tell whether all is done (merged and archived, or closed as not needed)."""
        return self.started and not self.to_do and not self.abandoned and not self.in_review

    @property
    def in_review(self) -> bool:
        """Tell whether it waits for the reviewers of its request."""
        return self.request is not None and self.request.waits and not self.abandoned

    @property
    def under_way(self) -> bool:
        return self.started and not self.finished and not self.abandoned

    @property
    def spending(self) -> Spending:
        """Return what its agents have used, including one whose end was never reported."""
        known = total(self.spent.values())
        return known.plus(None) if self.unaccounted and self.begun else known

    @property
    def merged_into(self) -> str:
        """Name the branch that its work is in: `main`, or `origin/main` where it was merged at a remote."""
        return self.facts.get(MERGED_INTO, self.into)

    def attempt(self, phase: str) -> int:
        return self.tries.get(phase, 0) + 1


def next_step(state: MissionState) -> Step | None:
    """Return the head of the list, unless the mission is halted, in review, abandoned or finished."""
    if not state.under_way or state.halt or state.in_review or not state.to_do:
        return None
    head = state.to_do[0]
    return Step(mission=state.mission, phase=head, run=state.runs.get(head, 0) + 1)


def replay(events: Iterable[Event]) -> MissionState:
    state = MissionState()
    for event in events:
        state = apply(state, event)
    return state


def apply(state: MissionState, event: Event) -> MissionState:
    change = _CHANGES.get(type(event))
    return change(state, event) if change else state


def baseline(state: MissionState, phase: str) -> Checkpoint | None:
    """Return the state that the last review before this phase approved: it must not change any more."""
    names = state.workflow.names()
    earlier = [p for p in state.workflow.phases[: names.index(phase)] if p.role is Role.REVIEW]
    return next((state.approved[p.name] for p in reversed(earlier) if p.name in state.approved), None)


def other_kinds(state: MissionState) -> str:
    """Return the command that starts over with a workflow for work that has nothing to make red; '' if there is none.

    A mission keeps the workflow that it began with, and a part of another mission has no choice.
    """
    if not state.workflow.otherwise or state.parent:
        return ""
    first, *others = state.workflow.otherwise
    more = f" (or {', '.join(others)})" if others else ""
    return f"`capsule run {state.mission} --fresh --workflow {first}`{more}"


def acceptance_key(check: str, tree: str) -> str:
    return f"{check} {tree}"


def accept_command(mission: str, check: str) -> str:
    """Return the command by which a person accepts a refuted claim."""
    return f'capsule answer {mission} --accept {check} --because "..."'


def is_accepted(state: MissionState, piece: Evidence) -> bool:
    return bool(piece.tree) and acceptance_key(piece.check, piece.tree) in state.accepted


def is_waived(state: MissionState, check: str) -> bool:
    """Tell whether a person accepted a refuted claim of this check, for any tree."""
    return any(key.startswith(acceptance_key(check, "")) for key in state.accepted)


def halt_is_accepted(state: MissionState) -> bool:
    """Tell whether a person accepted every refutation of the phase that stopped the mission."""
    return bool(state.halt and _acceptances(state, state.halt.phase))


def kept_code(state: MissionState) -> Checkpoint | None:
    """Return the work as it was when it went back for better tests; None if it did not."""
    return state.approved.get(_KEPT) if state.mending else None


_KEPT = f"{MENDING}code"
"""Among what was approved, so that a person's edits and a rebase reach it too."""


def agent_for(state: MissionState, phase: Phase) -> tuple[str, str]:
    """Return the agent and model for a phase, another one after enough setbacks; empty for the settings' default."""
    plan = phase.escalate
    if plan and state.setbacks.get(phase.name, 0) >= plan.after:
        return plan.agent or phase.agent, plan.model or phase.model
    return phase.agent, phase.model


def children_of(parent: MissionState, look_up: Callable[[str], MissionState]) -> Iterator[MissionState]:
    """Yield the child missions of this one that have begun."""
    for phase in parent.workflow.phases:
        number = 1
        while phase.workflow and (child := look_up(f"{parent.mission}.{phase.name}.{number}")).started:
            yield child
            number += 1


def _started(state: MissionState, event: MissionStarted) -> MissionState:
    return MissionState(
        mission=event.mission,
        item=event.item,
        lineage=event.lineage,
        workflow=event.workflow,
        policy=event.policy,
        base=event.base,
        into=event.into,
        parent=event.parent,
        earlier=event.earlier,
        uuid=event.uuid,
        to_do=event.workflow.remaining(event.item),
        pushed=state.pushed,
        runs=state.runs,  # a mission started over keeps counting: its keys stay unique
        spent=state.spent,  # and what was paid stays paid
    )


def _begun(state: MissionState, event: StepBegun) -> MissionState:
    """Charge a step that began and never ended with an unknown amount."""
    spent = _paid(state, state.begun.phase, None) if state.unaccounted and state.begun else state.spent
    return replace(state, begun=event, spent=spent, unaccounted=event.spawns, let_go_on=False)


def _paid(state: MissionState, phase: str, usage: Usage | None) -> dict[str, Spending]:
    return {**state.spent, phase: state.spent.get(phase, Spending()).plus(usage)}


def _ended(state: MissionState, event: StepEnded) -> MissionState:
    outcome, decision = event.outcome, event.decision
    refutations = dict(state.refutations)
    if decision.verdict is Verdict.REFUTED:
        for piece in refuted(outcome.evidence):
            key = refutation_key(event.phase, piece.check)
            refutations[key] = refutations.get(key, 0) + 1
    state = replace(
        state,
        begun=None,
        answer="",
        spent=_paid(state, event.phase, outcome.usage) if outcome.agent else state.spent,
        unaccounted=False,
        runs={**state.runs, event.phase: event.run},
        tries={**state.tries, event.phase: state.tries.get(event.phase, 0) + 1},
        unsettled=outcome.checkpoint is None and state.workflow.phase(event.phase).works_in_place,
        checkpoint=outcome.checkpoint or state.checkpoint,
        facts={**state.facts, **outcome.facts},
        item=after(state.item, event.assignments),
        unrecorded=event if event.message else None,
        refutations=refutations,
        refused=_refused(state, event),
        findings=_findings(state, event),
        request=_request_of(state, event),
        by_absence=state.by_absence or any(p.by_absence and p.standing is CONFIRMED for p in outcome.evidence),
    )
    return _mending(_MOVES[decision.move](_examined(state, event), event), event)


def _request_of(state: MissionState, event: StepEnded) -> Request | None:
    """Return the request that a step has opened, or brought up to date; none once the step itself has merged."""
    facts, known = event.outcome.facts, state.request
    if REQUEST not in facts:
        return None if known and known.phase == event.phase and "merged" in facts else known
    return Request(
        url=facts[REQUEST],
        number=int(facts.get(REQUEST_NUMBER) or 0),
        branch=facts.get(REQUEST_BRANCH, ""),
        commit=facts.get(REQUEST_COMMIT, ""),
        phase=event.phase,
        rounds=known.rounds if known else 0,
        heard=known.heard if known else (),
    )


def _examined(state: MissionState, event: StepEnded) -> MissionState:
    """Keep an exam and its results; tell the phase that may strike out a test which of them fail."""
    outcome, phase = event.outcome, state.workflow.phase(event.phase)
    if outcome.exam:
        state = replace(state, exam=outcome.exam, exam_results={}, struck={})
    results = {result.id: result for piece in outcome.evidence for result in piece.exam}
    if results:
        told = exam_feedback(state.exam, results)
        judges = [p.name for p in state.workflow.phases if p.may_strike]
        feedback = {**state.feedback, **dict.fromkeys(judges, f"{told}\n\n{_STRIKE}")} if told else state.feedback
        state = replace(state, exam_results={**state.exam_results, **results}, feedback=feedback)
    struck = (
        struck_test(state, outcome.signal.extra) if phase.may_strike and event.decision.move is Move.ADVANCE else {}
    )
    return replace(state, struck={**state.struck, **struck}) if struck else state


def exam_feedback(exam: tuple[ExamTest, ...], results: Mapping[str, ExamResult]) -> str:
    """Describe each failed test by its criterion, its expected and its observed value, never by its code."""
    failing = [(test, results[test.id]) for test in exam if test.id in results]
    return "\n\n".join(
        f"{test.id}\n  criterion: {test.criterion}\n  input: {test.input}\n  expected: {test.expected}\n"
        f"  seen: {result.seen}"
        for test, result in failing
        if result.mark is ExamMark.FAILED
    )


def struck_test(state: MissionState, extra: Mapping[str, object]) -> dict[str, str]:
    """Return the test of the exam that a signal strikes out, with the reason: one that fails, and only in writing."""
    said = extra.get("struck")
    given = said[0] if isinstance(said, list) and said else said
    name, because = (given.get(key) for key in ("test", "because")) if isinstance(given, dict) else (None, None)
    result = state.exam_results.get(name) if isinstance(name, str) else None
    fails = result is not None and result.mark is ExamMark.FAILED
    return {str(name): because.strip()} if fails and isinstance(because, str) and because.strip() else {}


_STRIKE = """\
These are tests of an exam, written from the task and its criteria alone. You see what they ask, not their
code, and so does the coder. Try each input yourself. Where the code is wrong, send it back. Where the expectation does
not follow from the criteria, or the code does what is expected and the test is mistaken, you may strike out one of
them, in writing: report PASS, and add to your signal

"struck": {"test": "E1", "because": "the reason, for people to read"}"""


def _findings(state: MissionState, event: StepEnded) -> dict[str, Ledger]:
    """Keep what a review has found; note what the worker answers to the reviews that send work back to it."""
    if event.decision.findings:
        return {**state.findings, event.phase: event.decision.findings}
    if event.decision.move is not Move.ADVANCE:
        return state.findings
    return {
        judge: with_answers(ledger, event.outcome.signal)
        if state.workflow.phase(judge).rework == event.phase
        else ledger
        for judge, ledger in state.findings.items()
    }


def _refused(state: MissionState, event: StepEnded) -> dict[str, Refutation]:
    others = {check: known for check, known in state.refused.items() if known.phase != event.phase}
    found = {piece.check: Refutation(event.phase, piece) for piece in refuted(event.outcome.evidence)}
    return {**others, **found}


def _mending(state: MissionState, event: StepEnded) -> MissionState:
    """Record what has to be mended, with the current code; drop it when the phase that found it has passed."""
    piece = mend_of(event.outcome.evidence) if event.decision.mend else None
    if piece and state.checkpoint:
        known = Mending(event.phase, piece.check, piece.survivors, piece.not_covered)
        approved = {**state.approved, _KEPT: state.checkpoint}
        return replace(state, mending=known, approved=approved, feedback=_with_reviews_told(state, event.phase))
    over = state.mending and state.mending.judge == event.phase and event.decision.move in (Move.ADVANCE, Move.SKIP)
    return replace(state, mending=None) if over else state


def _with_reviews_told(state: MissionState, judge: str) -> dict[str, str]:
    """Tell the reviews of mended tests that the code exists: they would ask why nothing fails."""
    writer = state.workflow.writer(TESTS, judge)
    reviews = [p.name for p in state.workflow.phases if p.role is Role.REVIEW and p.rework == writer]
    return {**state.feedback, **dict.fromkeys(reviews, _CODE_IS_THERE)}


_CODE_IS_THERE = """\
The tests were sent back to be mended, after the code was written: so they pass now, and that is right. Judge whether \
they hold the code: would one of them fail if the code were wrong? A test that fails has found a fault."""


def _advance(state: MissionState, event: StepEnded) -> MissionState:
    return replace(
        state,
        to_do=state.to_do[1:],
        summary=event.outcome.signal.summary or state.summary,
        approved={**state.approved, event.phase: state.checkpoint} if state.checkpoint else state.approved,
        feedback={name: text for name, text in state.feedback.items() if name != event.phase},
    )


def _repeat(state: MissionState, event: StepEnded) -> MissionState:
    """Begin the next part afresh: with all retries, and without feedback that was answered."""
    return replace(
        state,
        summary=event.outcome.signal.summary or state.summary,
        used={**state.used, state.workflow.counter(event.phase): 0},
        tries={**state.tries, event.phase: 0},
        refutations={k: n for k, n in state.refutations.items() if not k.startswith(refutation_key(event.phase, ""))},
        feedback={name: text for name, text in state.feedback.items() if name != event.phase},
    )


def _set_back(state: MissionState, event: StepEnded) -> MissionState:
    decision, target = event.decision, event.decision.back_to
    return replace(
        state,
        to_do=state.workflow.sent_back(event.phase, target) + state.to_do[1:],
        used={**state.used, decision.counter: state.used.get(decision.counter, 0) + 1},
        setbacks={**state.setbacks, target: state.setbacks.get(target, 0) + 1},
        feedback={**state.feedback, target: decision.feedback},
    )


def _halted(state: MissionState, event: StepEnded) -> MissionState:
    made = event.decision
    if made.vetoed:
        state = (_repeat if made.verdict is Verdict.MORE else _advance)(state, event)
    halt = Halt(event.phase, made.move, made.reason, made.feedback, made.exit_code, made.vetoed, made.mend, made.accept)
    return replace(state, halt=halt)


_MOVES: dict[Move, Callable[[MissionState, StepEnded], MissionState]] = {
    Move.ADVANCE: _advance,
    Move.REPEAT: _repeat,
    Move.SKIP: lambda state, _: replace(state, to_do=state.to_do[1:]),
    Move.CLOSE: lambda state, event: replace(state, to_do=state.workflow.closing(), closed_as=event.decision.reason),
    **dict.fromkeys(SETBACKS, _set_back),
    **dict.fromkeys(HALTS, _halted),
}


def _reopened(state: MissionState, event: Reopened) -> MissionState:
    """Give the halted phase its retries afresh; re-enter a review at the worker it sends back to."""
    halt = state.halt
    state = replace(
        state,
        halt=None,
        answer=event.notes or state.answer,
        checkpoint=event.checkpoint or state.checkpoint,
        item=event.item or state.item,
        workflow=state.workflow if event.retries is None else replace(state.workflow, retries=event.retries),
        observations=_without_red(state),
        findings=afresh(state.findings),
    )
    if event.checkpoint:  # a person's edits are the new state
        state = replace(state, approved=event.approved, taken_over=True)
    if state.in_review:
        return _review_resumed(state, halt, event)
    if halt is None or halt.vetoed:
        return state
    phase = state.workflow.phase(halt.phase)
    accepted = _acceptances(state, phase.name)
    target = phase.name if accepted else _re_entry(state, halt)
    counter = state.workflow.counter(phase.name)
    answer = f"Notes from the person who let it go on; build on them:\n\n{event.notes}" if event.notes else ""
    words = "\n\n".join(filter(None, (halt.feedback, *accepted, answer)))
    return replace(
        state,
        to_do=state.workflow.sent_back(phase.name, target) + state.to_do[1:],
        used={**{k: n for k, n in state.used.items() if not k.startswith(MENDING)}, counter: 0},
        setbacks={**state.setbacks, target: state.setbacks.get(target, 0) + 1},
        refutations={k: n for k, n in state.refutations.items() if not k.startswith(refutation_key(phase.name, ""))},
        feedback={**state.feedback, **_answer_to_review(state, phase, answer), **({target: words} if words else {})},
    )


def _review_resumed(state: MissionState, halt: Halt | None, event: Reopened) -> MissionState:
    """Take what reviewers ask for back to an agent; without that, push again and look for the request."""
    if halt is None or state.request is None:
        return state
    request = replace(state.request, rounds=0, waits=False)
    why = "\n\n".join(filter(None, (halt.feedback, event.notes)))
    returned = Returned(at=event.at, why=why) if why else None
    return replace(state, request=request, returned=returned, to_do=_from_request(state, request))


def _reviewed(state: MissionState, event: Reviewed) -> MissionState:
    """Go on after an answer of the forge: to the end, or back to an agent; or halt for a person."""
    if state.request is None:
        return state
    request = replace(state.request, heard=(*state.request.heard, *event.ids)[-_MOST_HEARD:])
    if event.fate is Fate.STUCK:
        reason, _, feedback = event.text.partition("\n\n")
        at = state.to_do[0] if state.to_do else request.phase
        return replace(state, request=request, halt=Halt(at, Move.PARK, reason, feedback))
    if event.fate is Fate.MERGED:
        facts = {"merged": event.commit or request.commit, "onto": event.onto or state.base}
        return replace(state, request=replace(request, waits=False), facts={**state.facts, **facts}, halt=None)
    request = replace(request, waits=False, rounds=request.rounds + 1)
    why = Returned(at=event.at, why=event.text)
    return replace(state, request=request, returned=why, to_do=_from_request(state, request))


def _from_request(state: MissionState, request: Request) -> tuple[str, ...]:
    names = state.workflow.names()
    return names[names.index(request.phase) :]


_MOST_HEARD, _MOST_PUSHED = 500, 200


def _answer_to_review(state: MissionState, phase: Phase, answer: str) -> dict[str, str]:
    """Pass a person's answer to a review with findings, too: it would ask for the same again."""
    return {phase.name: answer} if answer and phase.name in state.findings else {}


def _re_entry(state: MissionState, halt: Halt) -> str:
    """Return the phase that has to mend what halted the mission."""
    phase = state.workflow.phase(halt.phase)
    if phase.writes == EXAM and (
        halt.move is Move.PARK or halt.exit_code != 1
    ):  # its own fault or question: no coder's
        return phase.name
    writer = state.workflow.writer(TESTS, phase.name) if halt.mend else ""
    return writer or (phase.rework if phase.role is Role.REVIEW else phase.name)


def _acceptances(state: MissionState, phase: str) -> list[str]:
    """Describe a person's acceptance of all refuted claims of a phase; '' if not all were accepted."""
    pieces = [known.piece for known in state.refused.values() if known.phase == phase]
    if not all(is_accepted(state, piece) for piece in pieces):
        return []
    return [
        f"A person accepted that {piece.claimed}, although {piece.observed}: leave it as it is.\n\nTheir reason: "
        + state.accepted[acceptance_key(piece.check, piece.tree)]
        for piece in pieces
    ]


def _accepted(state: MissionState, event: Accepted) -> MissionState:
    return replace(state, accepted={**state.accepted, acceptance_key(event.check, event.tree): event.because})


def _without_red(state: MissionState) -> dict[str, Observation]:
    """Forget red observations: after a halt the machine may have been mended."""
    return {key: seen for key, seen in state.observations.items() if seen.colour is Colour.GREEN}


def _rebased(state: MissionState, event: Rebased) -> MissionState:
    names = state.workflow.names()
    by_itself = bool(state.returned or event.why)
    request = state.request and replace(state.request, waits=False)
    conflicts = f"Resolve these conflicts first: {', '.join(event.conflicts)}." if event.conflicts else ""
    rebuilt = conflicts and f"The work was rebuilt on the new main. {conflicts}"
    note = event.why or "\n\n".join(filter(None, (state.returned.why if state.returned else "", rebuilt)))
    return replace(
        state,
        base=event.base,
        halt=None,
        request=request,
        checkpoint=event.checkpoint,
        approved=event.approved,
        taken_over=True,
        observations=_without_red(state),
        to_do=names[names.index(event.re_enter) :],
        used={},
        findings=afresh(state.findings),
        feedback={**state.feedback, event.re_enter: note} if note else state.feedback,
        item=event.item or state.item,
        unrecorded=None,
        returned=None,
        closed_as="",
        returns=state.returns if by_itself else 0,
        met={**state.met, **event.others} if by_itself else {},
    )


def _recorded(state: MissionState, event: Recorded) -> MissionState:
    on_the_branch = state.workflow.publishes_steps and event.checkpoint
    return replace(
        state,
        unrecorded=None,
        met={} if on_the_branch else state.met,
        checkpoint=event.checkpoint or state.checkpoint,
        item_closed=state.item_closed or not state.to_do,
    )


def _item_moved(state: MissionState, item: Item, event: MovedByHand) -> MissionState:
    """Continue from the item's status in the tracker, with fresh retries."""
    moved = (item.status, item.phase) != (state.item.status, state.item.phase)
    halt, remaining = state.halt, state.workflow.remaining(item)
    state = replace(state, item=item, begun=None)
    if event.checkpoint:
        state = replace(state, checkpoint=event.checkpoint, approved=event.approved, taken_over=True)
    if not moved:
        return state
    feedback = {**state.feedback, halt.phase: halt.feedback} if halt and halt.feedback else state.feedback
    return replace(
        state,
        to_do=remaining,
        used={},
        tries={},
        refutations={},
        findings=afresh(state.findings),
        feedback=feedback,
        halt=Halt(next(iter(remaining), ""), Move.PARK, item.blocked.reason) if item.blocked else None,
        let_go_on=halt is not None and not item.blocked,
    )


def _moved_by_hand(state: MissionState, event: MovedByHand) -> MissionState:
    if event.item:
        return _item_moved(state, event.item, event)
    names = state.workflow.names()
    if event.what != PHASE or event.found not in names:
        return state
    position = names.index(event.found)
    here = event.checkpoint or state.checkpoint
    approved = event.approved or (dict.fromkeys(names[:position], here) if here else state.approved)
    fresh, request = afresh(state.findings), state.request and replace(state.request, waits=False)
    state = replace(state, request=request)
    return replace(state, to_do=names[position:], halt=None, checkpoint=here, approved=approved, findings=fresh)


_CHANGES: dict[type, Callable[[MissionState, Any], MissionState]] = {
    MissionStarted: _started,
    StepBegun: _begun,
    StepEnded: _ended,
    Waiting: lambda state, _: replace(state, unaccounted=bool(state.begun and state.begun.spawns)),
    Spent: lambda state, event: replace(state, spent=_paid(state, event.phase, event.usage), unaccounted=False),
    Observed: lambda state, event: replace(state, observations={**state.observations, event.key: event.observation}),
    TestsFound: lambda state, event: replace(state, policy=event.policy),
    Recorded: _recorded,
    Returned: lambda state, event: replace(
        state, returned=event, returns=state.returns + 1, met={**state.met, **event.others}, begun=None
    ),
    Proposed: lambda state, event: replace(state, proposed=event),
    RequestPrepared: lambda state, event: replace(
        state, pushed=(*(one for one in state.pushed if one != event.commit), event.commit)[-_MOST_PUSHED:]
    ),
    Reviewed: _reviewed,
    Reopened: _reopened,
    Accepted: _accepted,
    Rebased: _rebased,
    MovedByHand: _moved_by_hand,
    Abandoned: lambda state, event: replace(state, abandoned=event.how, begun=None),
    ItemClosed: lambda state, _: replace(state, item_closed=True),
    Discovered: lambda state, event: replace(state, discovered=event.items),
}
