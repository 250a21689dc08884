"""Lines for a run through the backlog: `[WRK-001][PRD] Starting phase (attempt 1/3)`, result, progress, breaker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capsule.core.event import MissionStarted, Recorded, RunStarted, Spawned, StepBegun, StepEnded
from capsule.core.evidence import EvidenceStatus
from capsule.core.schedule import BREAKER, Tally
from capsule.core.signal import Verdict
from capsule.core.workflow import Contract
from capsule.reports.plain import PlainReport
from capsule.reports.style import clean

_SAID = {Verdict.PASS: "PHASE_COMPLETE", Verdict.MORE: "SUBPHASE_COMPLETE"}


class QueueReport(PlainReport):
    """Speaks of phases and results; of missions with stages (a child, a bead) it speaks as `PlainReport` does."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cap = 0
        self._tally = Tally()

    def lines(self) -> dict[type, Callable[..., None]]:
        ours: dict[type, Callable[..., None]] = {
            MissionStarted: QueueReport._mission_started,
            StepBegun: QueueReport._phase_begun,
            StepEnded: QueueReport._phase_ended,
            Recorded: QueueReport._recorded,
            RunStarted: QueueReport._run_started,
            Spawned: QueueReport._spawned,
        }
        return super().lines() | ours

    def _by_result(self, mission: str) -> bool:
        return self._states[mission].workflow.contract is Contract.RESULT

    def _run_started(self, _stream: str, event: RunStarted) -> None:
        self._cap, self._tally = event.cap, Tally(spawns=event.spawns)
        if event.spawns:
            self._say(f"Resuming an interrupted run: {event.spawns}/{event.cap} phases used")

    def _spawned(self, _stream: str, _: Spawned) -> None:
        self._tally = self._tally.spawned()

    def _mission_started(self, mission: str, event: MissionStarted) -> None:
        if not self._by_result(mission):
            self._started(mission, event)
            return
        where = event.item.phase or event.item.status.value
        self._print("bold", f"{mission}: {clean(event.item.title)} (at {where})")
        self._doubted(event.policy)

    def _phase_begun(self, mission: str, event: StepBegun) -> None:
        if not self._by_result(mission):
            self._begun(mission, event)
            return
        workflow = self._states[mission].workflow
        if not event.spawns:
            return
        attempts = workflow.allowed_retries(event.phase) + 1
        self._say(f"{_tag(mission, event.phase)} Starting phase (attempt {_within(event.attempt, attempts)})")

    def _phase_ended(self, mission: str, event: StepEnded) -> None:
        verdict = event.decision.verdict
        if not self._by_result(mission):
            self._ended(mission, event)
        elif event.message and not self._states[mission].workflow.phase(event.phase).prompt:
            self._say(event.message)
        elif verdict is not Verdict.SKIPPED:
            self._result(mission, event)
        if self._states[mission].workflow.phase(event.phase).prompt and verdict is not Verdict.SKIPPED:
            self._progress(event)

    def _result(self, mission: str, event: StepEnded) -> None:
        decision, outcome = event.decision, event.outcome
        word = _SAID.get(decision.verdict, decision.verdict.value)
        said = outcome.signal.summary if decision.verdict in _SAID else decision.reason
        painted = self._verdict(event, word)
        self._stream.write(f"{_tag(mission, event.phase)} Result: {painted} — {clean(said)}\n")
        for piece in outcome.evidence:
            if piece.standing is not EvidenceStatus.CONFIRMED:
                self._evidence(piece)
        self._failure(outcome, "  ")
        for warning in outcome.warnings:
            self._say(f"! {warning}", "  ")
        self._cost(mission, outcome, "  ")
        if decision.vetoed or (decision.exhausted and decision.verdict not in _SAID):
            self._say(f"{mission} is blocked: {decision.reason}", "  ")

    def _progress(self, event: StepEnded) -> None:
        self._tally = self._tally.ended(event.decision)
        self._say(f"Progress: {self._tally.spawns}/{self._cap} phases used")
        if event.decision.exhausted:
            self._say(f"Circuit breaker: {self._tally.failures_in_a_row}/{BREAKER} consecutive failures")

    def _recorded(self, _mission: str, event: Recorded) -> None:
        new = event.follow_ups
        if new:
            items = "item" if len(new) == 1 else "items"
            self._say(f"Follow-ups: {len(new)} new {items} added to backlog ({', '.join(new)})")


def _tag(mission: str, phase: str) -> str:
    return f"[{mission}][{phase.upper()}]"


def _within(attempt: int, allowed: int) -> str:
    """Going on after a halt counts on: the attempts allowed are those of one go."""
    return f"{attempt}/{max(attempt, allowed)}"
