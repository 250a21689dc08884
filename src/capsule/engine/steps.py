"""The one `perform` table: a step is data, and here is what doing it means.

Every step is "make it so": it inspects, then completes, and may be repeated after a crash at any point. A phase that
works in the workspace starts from the checkpoint named in the last recorded outcome, so whatever an interrupted run
left behind is out of the way (and salvaged), and it ends in a new checkpoint that holds the worklog too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from capsule.core.decide import SETBACKS, Decision, Move, decide, vetoes
from capsule.core.errors import CapsuleError, NoResult, SettingsError, WorkspaceBroken
from capsule.core.event import Outcome, Salvaged, StepEnded, cut
from capsule.core.ledger import MOST_FOLLOW_UPS
from capsule.core.signal import FollowUp, Signal, Verdict, error_signal
from capsule.core.state import MissionState, Step
from capsule.core.test_runs import matches
from capsule.core.workflow import Phase, Workflow
from capsule.core.worklog import entry, section_of, with_entry
from capsule.engine.actions import ACTIONS
from capsule.engine.bookkeeping import with_tracker_updates
from capsule.engine.children import run_child
from capsule.engine.job import Job, Report, RunUntilHalt, parked, passed, place_of
from capsule.engine.verify import CHECKS
from capsule.engine.work import run_agent, run_command
from capsule.services import Services

MOST_FILES = 200


def perform(step: Step, state: MissionState, services: Services, run_until_halt: RunUntilHalt) -> StepEnded:
    """Do it, judge it, and say how things stand."""
    job = Job(step, state, state.workflow.phase(step.phase), services, run_until_halt)
    began = services.clock.seconds()
    report = _watched(job)
    outcome = _outcome(report, round(services.clock.seconds() - began, 3))
    decision = _cleared_up(job, _judged(job, outcome))
    at = services.clock.now()
    if job.phase.doer in _WRITTEN_DOWN and report.signal.verdict is not Verdict.SKIPPED:
        outcome = _written_down(job, outcome, decision, at)
    ended = StepEnded(at=at, key=step.key, phase=step.phase, run=step.run, outcome=outcome, decision=decision)
    return with_tracker_updates(job, ended)


def unknown_names(workflow: Workflow) -> list[str]:
    """Checks and actions that a workflow names and nobody knows, as sentences."""
    found = []
    for phase in workflow.phases:
        found += [f"phase {phase.name!r} names the unknown check {c!r}." for c in phase.checks if c not in CHECKS]
        if phase.do and phase.do not in ACTIONS:
            found.append(f"phase {phase.name!r} names the unknown action {phase.do!r}.")
    return found


def check_names(workflow: Workflow) -> None:
    for complaint in unknown_names(workflow):
        choices = f"Checks: {', '.join(sorted(CHECKS))}. Actions: {', '.join(sorted(ACTIONS))}."
        raise SettingsError(f"Workflow {workflow.name!r}: {complaint}", choices)


def _act(job: Job) -> Report:
    return ACTIONS[job.phase.do](job)


_DOERS: dict[str, Callable[[Job], Report]] = {
    "prompt": run_agent,
    "run": run_command,
    "do": _act,
    "workflow": run_child,
}
_WRITTEN_DOWN = ("prompt", "run", "workflow")


def _watched(job: Job) -> Report:
    """Do the step; around a phase that works in the place, check what an agent has no business to touch."""
    if not job.phase.works_in_place:
        return _done(job)
    job.place.guard.snapshot()
    try:
        return _undisturbed(job)
    finally:
        job.place.guard.release()


def _undisturbed(job: Job) -> Report:
    """Do the step, and quarantine it where the repository itself was reached into, now or in a run that was killed."""
    left = job.place.guard.restore()
    if left:
        return _quarantined(Report(passed("")), left)
    try:
        report = _done(job)
    except CapsuleError:
        breaches = job.place.guard.restore()
        if not breaches:
            raise
        return _quarantined(Report(passed("")), breaches)
    breaches = job.place.guard.restore()
    report = replace(report, warnings=report.warnings + tuple(job.place.notices()))
    return _quarantined(report, breaches) if breaches else report


def _quarantined(report: Report, breaches: Sequence[str]) -> Report:
    """Disbelieve an agent that reached into the repository itself; a person has to look."""
    reason = f"Quarantined: while it ran, {'; '.join(breaches)}. It was put back; if it was you, do it again now."
    return replace(report, signal=parked(reason), evidence=())


def _cleared_up(job: Job, decision: Decision) -> Decision:
    """Take back what a failed step left, where steps are published one by one; the feedback says where it is kept."""
    at_it_again = decision.move in SETBACKS and decision.verdict is Verdict.REFUTED
    nothing_done = decision.move is Move.SKIP or not job.phase.works_in_place
    if decision.keeps_the_work or at_it_again or nothing_done:
        return decision
    ref = job.place.salvage_and_reset(f"left by {job.step.key}")
    if not ref:
        return decision
    job.note(Salvaged(at=job.services.clock.now(), ref=ref, why=f"left by {job.step.key}"))
    words = f"{decision.feedback}\n\nWhat that attempt left behind is kept as {ref}; the files are as they were before."
    return msgspec.structs.replace(decision, feedback=words.strip())


def spawns(step: Step, state: MissionState, services: Services) -> bool:
    """Whether doing this step starts an agent."""
    phase = state.workflow.phase(step.phase)
    return bool(phase.prompt) and _applies(phase, state, services)


def _applies(phase: Phase, state: MissionState, services: Services) -> bool:
    when = phase.when
    if when is None:
        return True
    return when.suits(state.item) and (not when.changed or _any_changed(state, services, when.changed))


def _done(job: Job) -> Report:
    if not _applies(job.phase, job.state, job.services):
        return Report(Signal(verdict=Verdict.SKIPPED, summary="its conditions do not hold"))
    try:
        return _DOERS[job.phase.doer](job)
    except WorkspaceBroken as broken:
        return Report(error_signal(broken.message))
    except NoResult as none:
        return Report(parked(none.message))


def _any_changed(state: MissionState, services: Services, globs: tuple[str, ...]) -> bool:
    place, here = place_of(state, services), state.checkpoint
    changes = place.trees.changes(state.base, place.delivered(here)) if here else ()
    return any(matches(change.path, glob) for change in changes for glob in globs)


def _outcome(report: Report, seconds: float) -> Outcome:
    signal = msgspec.structs.replace(
        report.signal,
        feedback=cut(report.signal.feedback, where=report.log),
        summary=cut(report.signal.summary, 1000),
        files_changed=report.signal.files_changed[:MOST_FILES],
        extra=report.signal.extra if len(str(report.signal.extra)) < 4096 else {},
        follow_ups=tuple(_fitting(each) for each in report.signal.follow_ups[:MOST_FOLLOW_UPS]),
    )
    dropped = len(report.signal.follow_ups) - len(signal.follow_ups)
    warnings = (f"{dropped} follow-ups more than {MOST_FOLLOW_UPS} were left out",) if dropped else ()
    return Outcome(
        signal=signal,
        evidence=report.evidence,
        checkpoint=report.checkpoint,
        files=report.files[:MOST_FILES],
        agent=report.agent,
        seconds=seconds,
        log=report.log,
        usage=report.usage,
        failure=report.failure,
        warnings=report.warnings + warnings,
        facts=report.facts,
    )


def _fitting(found: FollowUp) -> FollowUp:
    return FollowUp(cut(found.title, 1000), cut(found.context, 8000), found.suggested_size, found.suggested_risk)


def _judged(job: Job, outcome: Outcome) -> Decision:
    state = job.state
    return decide(
        state.workflow,
        job.phase.name,
        outcome.signal,
        outcome.evidence,
        strict=state.policy.verify == "strict",
        used=state.used,
        refutations=state.refutations,
        vetoed=vetoes(state.item, outcome.signal, state.policy.guardrails),
    )


def _written_down(job: Job, outcome: Outcome, decision: Decision, at: str) -> Outcome:
    """Our entry in the worklog, then a checkpoint that holds it. A workspace that is gone keeps its last one."""
    place, phase = job.place, job.phase.name
    text = entry(job.step.key, job.state.attempt(phase), outcome, decision, at)
    try:
        worklog = with_entry(place.worklog(), section_of(job.state.workflow, phase), text)
        place.write_worklog(job.services.redact(worklog))
        checkpoint = place.checkpoint(job.step.key)
    except WorkspaceBroken as broken:
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, broken.message))
    return msgspec.structs.replace(outcome, checkpoint=checkpoint)
