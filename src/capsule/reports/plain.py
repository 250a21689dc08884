"""Plain lines that a person can follow: `[2/5] test-writer ...`, attempt, verdict, seconds, and what was seen.

A run through the backlog has its own: `[WRK-001][PRD] Starting phase (attempt 1/3)`, result, progress, breaker. Where
several missions run side by side, every line of a mission begins with its id.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from capsule.core.budget import Budget, duration, in_words, left, price
from capsule.core.decide import Decision, Move
from capsule.core.event import (
    Accepted,
    Advanced,
    Discovered,
    Event,
    ItemClosed,
    JobsSet,
    MissionStarted,
    MovedByHand,
    Observed,
    Outcome,
    ParentClosed,
    Policy,
    Queued,
    Rebased,
    Recorded,
    Reopened,
    RequestPrepared,
    Returned,
    Reviewed,
    RunEnded,
    RunStarted,
    Salvaged,
    Spawned,
    StepBegun,
    StepEnded,
    Stopped,
    TestsFound,
    Usage,
    Waiting,
    Warned,
    is_mission,
)
from capsule.core.evidence import Colour, Evidence, EvidenceStatus, company
from capsule.core.findings import finding_line
from capsule.core.history import halt_status, passed_despite_evidence, unverified
from capsule.core.request import Fate
from capsule.core.run import BREAKER, Tally, agent_ended
from capsule.core.signal import Verdict
from capsule.core.stamps import clock_time
from capsule.core.state import PHASE, MissionState, apply
from capsule.core.text import count, sentence
from capsule.core.workflow import Contract
from capsule.reports.pulse import Pulse
from capsule.reports.style import TONES, Style, clean, output_width, wrapped
from capsule.reports.table import fit
from capsule.reports.words import LET_PASS, VERDICTS, evidence_lines

_INDENT = " " * 8
SIGN_OF_LIFE = 15.0
NO_LIMITS = Budget()

_CONSEQUENCES: dict[Move, Callable[[Decision], str]] = {
    Move.RETRY: lambda d: f"→ back to {d.back_to} with the evidence",
    Move.REWORK: lambda d: f"→ back to {d.back_to}: {d.reason}",
    Move.PARK: lambda d: f"→ {halt_status(d).words}: {d.reason}",
    Move.ABORT: lambda d: f"→ {halt_status(d).words}: {d.reason}",
    Move.CLOSE: lambda d: f"→ closed: {d.reason}",
}


def _moved(mission: str, event: MovedByHand) -> str:
    if event.item and event.found == "edited":
        return f"! {mission} was edited meanwhile, and goes on with that"
    if event.item:
        return f"! {mission} was moved by hand: {event.expected} → {event.found}"
    if event.what == PHASE:
        return f"{mission} goes on at {event.found}, as it was asked to"
    if event.what == "branch":
        return f"! the branch was moved by hand, to {event.found[:12]}"
    return f"! {event.what} was {event.found} by hand"


_FATES = {
    Fate.MERGED: "the request of {} was merged",
    Fate.CHANGES: "! {} goes back: its request needs changes",
    Fate.STUCK: "! the request of {} needs you",
    Fate.CLOSED: "! the request of {} was closed",
}


def _reviewed(mission: str, event: Reviewed) -> str:
    by = f" (by {', '.join(event.by)})" if event.by else ""
    why = f": {event.text.splitlines()[0]}" if event.fate is Fate.STUCK and event.text else ""
    return f"{_FATES[event.fate].format(mission)}{by}{why} {event.url}".rstrip()


def _named(event: Advanced) -> str:
    return f"{event.item} {event.title}: " if event.item else ""


_SAID: dict[type, tuple[str, Callable[[str, Any], str]]] = {
    Reopened: ("", lambda mission, event: f"{mission} resumes{', with your changes' if event.checkpoint else ''}."),
    Accepted: ("", lambda mission, event: f"{mission}: a person accepted {event.check}, because: {event.because}"),
    Rebased: (
        "",
        lambda mission, event: (
            f"! {mission} goes back to {event.re_enter}: {event.why.splitlines()[0]}"
            if event.why
            else f"{mission} was rebuilt on {event.base[:12]}; it resumes at {event.re_enter}."
        ),
    ),
    Queued: (
        _INDENT,
        lambda _, event: (
            f"waits to be merged into {event.branch}"
            + (f": {count(event.ahead, 'mission')} before it" if event.ahead else "")
        ),
    ),
    Returned: ("", lambda mission, event: f"! {mission} goes back: {event.why.splitlines()[0]}"),
    RequestPrepared: (_INDENT, lambda _, event: f"pushes {event.commit[:12]} to {event.branch}"),
    Reviewed: ("", _reviewed),
    Salvaged: (_INDENT, lambda _, event: f"salvaged: {event.ref} ({event.why})"),
    MovedByHand: (_INDENT, _moved),
    Warned: ("", lambda _, event: f"! {event.text}"),
    TestsFound: (_INDENT, lambda _, event: f"first tests: `{event.policy.test}` is the test command from now on"),
    ItemClosed: (_INDENT, lambda mission, _: f"{mission} is closed in the tracker"),
    Advanced: ("", lambda _, event: f"{_named(event)}{event.done} of {event.of} done"),
    ParentClosed: ("", lambda _, event: f"{event.item} {event.title} is closed: {event.reason}"),
    Discovered: (
        _INDENT,
        lambda _, event: f"follow-ups filed: {'; '.join(f'{item} {title}' for item, title in event.items.items())}",
    ),
}
"""Events that are one sentence: its indentation, and its words."""


class PlainReport:
    """An observer that prints. Keeps each mission's state to know its stages."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        width: int | None = None,
        standing: Callable[[str], MissionState] = lambda _: MissionState(),
        budget: Budget = NO_LIMITS,
        sign_of_life: float = SIGN_OF_LIFE,
    ) -> None:
        """`standing` returns the state of a mission that began before this report."""
        self._stream = stream or sys.stderr
        self._style = Style(self._stream, colour)
        self._width = width or max(40, output_width(self._stream))
        self._standing = standing
        self._budget = budget
        self._states: dict[str, MissionState] = {}
        self._pulse = Pulse(self._sign, sign_of_life)
        self._first = ""
        """The id that every line begins with now."""

    def event(self, mission: str, event: Event) -> None:
        if mission in self._states or isinstance(event, MissionStarted) or not is_mission(mission):
            self._states[mission] = apply(self._states.get(mission, MissionState()), event)
        else:  # it continues in the middle: the journal includes this event
            self._states[mission] = self._standing(mission)
        with self._pulse.held(), self._about(mission):
            self._tell(mission, event)

    def activity(self, mission: str, text: str) -> None:
        """Print a sign of life now and then during long phases, even without activity."""
        self._pulse.now(mission, text)

    def _tell(self, mission: str, event: Event) -> None:
        """Print the event, and pass it to the pulse for later signs of life."""
        match event:
            case MissionStarted():
                self._started(mission, event)
            case StepBegun():
                self._begun(mission, event)
                self._pulse.begin(mission, event.phase, within=bool(self._states[mission].parent))
            case StepEnded():
                self._ended(mission, event)
                self._pulse.end(mission)
            case Stopped():
                self._pulse.end(mission)
            case RunEnded():
                self._pulse.end()
            case Observed(observation=seen) if seen.edits:
                self._pulse.now(mission, "")
            case Observed(observation=seen):
                word = self._style.paint("green" if seen.colour is Colour.GREEN else "red", seen.colour.value)
                self._write(f"{_INDENT}tests on {seen.tree[:12]}: {word} ({seen.seconds:.1f} s){company(seen)}")
                self._pulse.now(mission, "")
            case Waiting(failure=failure, seconds=seconds, remote=remote):
                until = clock_time(event.at, seconds)
                self._say(f"! {sentence(failure.reason)} Waiting {duration(seconds)}, next try at {until}.", _INDENT)
                kind = "" if remote else f" ({failure.kind.value})"
                self._pulse.now(mission, f"waiting for {event.waits_for}{kind}, next try at {until}")
            case _ if type(event) in _SAID:
                indent, words = _SAID[type(event)]
                self._say(words(mission, event), indent)

    @contextmanager
    def _about(self, mission: str) -> Iterator[None]:
        """Begin each line with the mission's id if several run at a time; keep the line width."""
        if not self._pulse.in_turn or not is_mission(mission):
            yield
            return
        first, width = self._first, self._width
        self._first = f"{mission}  "
        self._width = max(20, width - len(self._first))
        try:
            yield
        finally:
            self._first, self._width = first, width

    def _sign(self, mission: str, seconds: float, text: str) -> None:
        with self._about(mission):
            self._write(fit(f"{_INDENT}{clean(f'... {duration(round(seconds))}: {text}')}", self._width))

    def _write(self, line: str) -> None:
        self._stream.write(f"{self._first}{line}\n")
        self._stream.flush()

    def _say(self, text: str, indent: str = "", colour: str = "") -> None:
        for line in wrapped(text, self._width, indent):
            self._write(self._style.paint(colour, line))

    def _started(self, mission: str, event: MissionStarted) -> None:
        self._say(f"{mission}: {event.item.title}", colour="bold")
        self._say(f"workflow {event.workflow.name}, base {event.base[:12]}, into {event.into}", "  ")
        if not self._doubted(event.policy):
            self._say(f"tests by `{event.policy.test}`", "  ")

    def _doubted(self, policy: Policy) -> bool:
        """Warn at the start about what will not be checked."""
        why = unverified(policy)
        if why:
            self._say(why, "  ", "yellow")
            if policy.verify != "off":
                self._say("Name one: evidence.test in .capsule/config.yaml.", "  ")
        return bool(why)

    def _begun(self, mission: str, event: StepBegun) -> None:
        again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
        agent = f" by {event.agent}" if event.agent else ""
        self._write(f"{self._stage(mission, event.phase)} {event.phase} ...{again}{agent}")

    def _ended(self, mission: str, event: StepEnded) -> None:
        decision, outcome = event.decision, event.outcome
        word, claimed = self._verdict(event, decision.verdict.value), outcome.signal.verdict
        cost = f", {price(outcome.usage)}" if price(outcome.usage) else ""
        claim = f" (it claimed {claimed.value})" if claimed is not decision.verdict else ""
        stage = self._stage(mission, event.phase)
        self._write(f"{stage} {event.phase} {word} {outcome.seconds:.1f} s{cost}{claim}")
        if outcome.signal.summary and decision.verdict is not Verdict.REFUTED:
            self._say(outcome.signal.summary, _INDENT)
        self._details(mission, outcome, outcome.evidence, _INDENT)
        for finding in decision.findings:
            if finding.is_open:
                self._say(finding_line(finding), _INDENT)
        if consequence := _CONSEQUENCES.get(decision.move):
            self._say(consequence(decision), _INDENT)

    def _stage(self, mission: str, phase: str) -> str:
        workflow = self._states[mission].workflow
        stages, found = workflow.stages(), workflow.phase(phase)
        return f"[{stages.index(found.stage or found.name) + 1}/{len(stages)}]"

    def _verdict(self, event: StepEnded, word: str) -> str:
        """Mark a success that the evidence contradicts."""
        verdict = event.decision.verdict
        if passed_despite_evidence(verdict, event.outcome.evidence):
            return self._style.paint("yellow", f"{word} ({LET_PASS})")
        return self._style.paint(TONES[VERDICTS[verdict].tone], word)

    def _details(self, mission: str, outcome: Outcome, evidence: Iterable[Evidence], indent: str) -> None:
        """Print the evidence, the hint for a failure, warnings, and the mission's cost so far."""
        for piece in evidence:
            for line in evidence_lines(piece, self._style, self._width, _INDENT):
                self._write(line)
        if outcome.failure and outcome.failure.hint:
            self._say(f"! {outcome.failure.kind.value}: {outcome.failure.hint}", indent)
        for warning in outcome.warnings:
            self._say(f"! {warning}", indent)
        spent, allowed = self._states[mission].spending, self._budget.mission
        # The first agent's price is the total, and was printed already.
        if price(outcome.usage) and (spent.runs > 1 or allowed != NO_LIMITS.mission):
            rest = left(spent, allowed)
            time = duration(rest.seconds) if rest.seconds is not None else ""
            parts = ", ".join(filter(None, (price(Usage(usd=rest.usd, tokens_in=rest.tokens)), time)))
            self._say(f"so far: {in_words(spent)}{f'; left of its budget: {parts}' if parts else ''}", indent)


_RESULTS = {Verdict.PASS: "PHASE_COMPLETE", Verdict.MORE: "SUBPHASE_COMPLETE"}


class QueueReport(PlainReport):
    """Print phases and results of a backlog run; missions with stages (a child, a bead) as `PlainReport` does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cap = 0
        self._tally = Tally()

    def _tell(self, mission: str, event: Event) -> None:
        match event:
            case RunStarted(cap=cap, spawns=spawns, jobs=jobs):
                self._cap, self._tally = cap, Tally(spawns=spawns)
                self._pulse.in_turn = jobs > 1
                if spawns:
                    self._say(f"Resuming an interrupted run: {spawns}/{cap} phases used")
            case JobsSet(jobs=jobs):
                self._pulse.in_turn |= jobs > 1  # with fewer allowed, others may still run
                self._say(f"Jobs: {count(jobs, 'mission')} at a time from now on")
            case Spawned():
                self._tally = self._tally.spawned()
            case Recorded(follow_ups=new) if new:
                self._say(f"Follow-ups: {count(len(new), 'new item')} added to backlog ({', '.join(new)})")
            case _:
                super()._tell(mission, event)

    def _by_result(self, mission: str) -> bool:
        return self._states[mission].workflow.contract is Contract.RESULT

    def _started(self, mission: str, event: MissionStarted) -> None:
        if not self._by_result(mission):
            super()._started(mission, event)
            return
        where = event.item.phase or event.item.status.value
        self._say(f"{mission}: {event.item.title} (at {where})", colour="bold")
        self._doubted(event.policy)

    def _begun(self, mission: str, event: StepBegun) -> None:
        if not self._by_result(mission):
            super()._begun(mission, event)
        elif event.spawns:
            # After a halt the count continues, while the limit is per start.
            allowed = max(event.attempt, self._states[mission].workflow.allowed_retries(event.phase) + 1)
            self._say(f"[{mission}][{event.phase.upper()}] Starting phase (attempt {event.attempt}/{allowed})")

    def _ended(self, mission: str, event: StepEnded) -> None:
        by_agent = bool(self._states[mission].workflow.phase(event.phase).prompt)
        skipped = event.decision.verdict is Verdict.SKIPPED
        if not self._by_result(mission):
            super()._ended(mission, event)
        elif event.message and not by_agent:
            self._say(event.message)
        elif not skipped:
            self._result(mission, event)
        if by_agent and not skipped:
            ended = agent_ended(mission, event)
            self._tally = self._tally.ended(ended)
            self._say(f"Progress: {self._tally.spawns}/{self._cap} phases used")
            if ended.exhausted:
                self._say(f"Circuit breaker: {self._tally.failures_in_a_row}/{BREAKER} consecutive failures")

    def _result(self, mission: str, event: StepEnded) -> None:
        decision, outcome = event.decision, event.outcome
        word = _RESULTS.get(decision.verdict, decision.verdict.value)
        said = outcome.signal.summary if decision.verdict in _RESULTS else decision.reason
        first, *rest = wrapped(f"[{mission}][{event.phase.upper()}] Result: {word} — {said}", self._width)
        self._write(first.replace(f" {word}", f" {self._verdict(event, word)}", 1))
        for line in rest:
            self._write(line)
        doubts = [piece for piece in outcome.evidence if piece.standing is not EvidenceStatus.CONFIRMED]
        self._details(mission, outcome, doubts, "  ")
        if decision.vetoed or (decision.exhausted and decision.verdict not in _RESULTS):
            self._say(f"{mission} is blocked: {decision.reason}", "  ")
