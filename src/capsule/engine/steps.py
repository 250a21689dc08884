"""Perform one step of a mission: do the phase, verify what it claims, decide, and keep the work or take it back.

A step is data. Each can be killed anywhere and repeated: it inspects, then completes. A phase that works in the place
starts from the checkpoint named in the last recorded outcome, so the leftovers of an interrupted run are salvaged and
removed, and it ends in a new checkpoint that holds the worklog too.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from capsule.core.decide import HALTS, SETBACKS, Decision, Move, decide, vetoes
from capsule.core.errors import CapsuleError, NoResult, SettingsError, WorkspaceBroken
from capsule.core.event import Outcome, Salvaged, StepEnded, cut
from capsule.core.findings import MOST_REMARKS
from capsule.core.globs import matches
from capsule.core.ledger import MOST_FOLLOW_UPS
from capsule.core.merge_queue import merged_meanwhile
from capsule.core.signal import Remark, Signal, Verdict, error_signal
from capsule.core.state import MissionState, Step, accept_command, other_kinds
from capsule.core.workflow import EXAM, TESTS, Phase, Role, Workflow
from capsule.core.worklog import entry, section_of, with_entry
from capsule.engine.actions import ACTIONS
from capsule.engine.bookkeeping import with_tracker_updates
from capsule.engine.checks import CHECKS, verify
from capsule.engine.children import run_child
from capsule.engine.examiner import run_examiner, writes_exam
from capsule.engine.job import (
    LOST_WORKLOG,
    Job,
    Report,
    RunUntilHalt,
    guard_repository,
    lost_worklog,
    parked,
    passed,
    place_of,
    quarantined,
)
from capsule.engine.verification import Verification
from capsule.engine.work import run_agent, run_command
from capsule.services import Services

MOST_FILES = 200
_LONGEST_NAME = 1000


def perform(step: Step, state: MissionState, services: Services, run_until_halt: RunUntilHalt) -> StepEnded:
    """Do the phase, verify its claim, decide, keep the work or take it back, and return the outcome."""
    job = Job(step, state, state.workflow.phase(step.phase), services, run_until_halt)
    began = services.clock.seconds()
    report = _do_guarded(job)
    outcome = _outcome(report, round(services.clock.seconds() - began, 3))
    decision = decide(
        state.workflow,
        job.phase.name,
        outcome.signal,
        outcome.evidence,
        strict=state.policy.verify == "strict",
        used=state.used,
        refutations=state.refutations,
        vetoed=vetoes(state.item, outcome.signal, state.policy.guardrails),
        trusts_done=state.policy.already_done == "trust",
        findings=state.findings,
    )
    decision = _with_others(job, _with_way_out(job, outcome, decision))
    decision = _take_back_what_failed(job, decision)
    at = services.clock.now()
    if not job.phase.do and report.signal.verdict is not Verdict.SKIPPED:
        outcome = _kept(job, outcome, decision, at)
    ended = StepEnded(at=at, key=step.key, phase=step.phase, run=step.run, outcome=outcome, decision=decision)
    return with_tracker_updates(job, ended)


def _with_way_out(job: Job, outcome: Outcome, decision: Decision) -> Decision:
    """Add the command that helps: another workflow if no test can be red, or accepting the refuted claim.

    If retries are gone, resuming helps most; other commands are kept apart from the reason.
    """
    state, offer = job.state, ""
    if decision.accept and not decision.exhausted and "`capsule " not in decision.reason:
        offer = f"to accept it: `{accept_command(state.parent or state.mission, decision.accept)}`"
    elif _gave_up_on_tests(job, outcome, decision):
        offer = f"if there is nothing to make red: {other_kinds(state)}"
    if not offer:
        return decision
    first, newline, rest = decision.reason.partition("\n")
    return msgspec.structs.replace(decision, reason=f"{first.rstrip('.')}; {offer}{newline}{rest}")


def _with_others(job: Job, decision: Decision) -> Decision:
    """Name the missions that the work conflicts with, in feedback and in the question to a person."""
    others = merged_meanwhile(job.state.met)
    judged = decision.move in (*SETBACKS, *HALTS) and decision.verdict is not Verdict.BLOCKED
    if not (others and judged and job.phase.works_in_place):  # a merge names them itself
        return decision
    first, newline, rest = decision.reason.partition("\n")
    reason = f"{first.rstrip('.')}; {others}{newline}{rest}" if decision.move in HALTS else decision.reason
    feedback = f"{decision.feedback}\n\n{others[:1].upper()}{others[1:]}." if decision.feedback else ""
    return msgspec.structs.replace(decision, reason=reason, feedback=feedback, by_others=True)


def _gave_up_on_tests(job: Job, outcome: Outcome, decision: Decision) -> bool:
    """Tell whether the agent that writes tests first reports that it cannot."""
    said = outcome.signal
    gave_up = said.verdict in (Verdict.ERROR, Verdict.FAILED, Verdict.NEEDS_WORK)
    itself = gave_up and not said.synthetic and outcome.failure is None
    writes_first = job.phase.writes == TESTS and not job.state.mending
    return itself and writes_first and decision.move in HALTS and bool(other_kinds(job.state))


def _do_guarded(job: Job) -> Report:
    """Do the phase and verify it; quarantine it if the repository was tampered with, now or in a killed run."""
    if not job.phase.works_in_place:
        return _do(job)
    report, breaches = Report(passed("")), list[str]()
    try:
        with guard_repository(job.place) as breaches:
            report = report if breaches else _do(job)
    except CapsuleError:
        if not breaches:  # else the breach may be the cause
            raise
    report = replace(report, warnings=report.warnings + tuple(job.place.notices()))
    if not breaches:
        return report
    return replace(report, signal=quarantined(breaches), evidence=())


def _do(job: Job) -> Report:
    if not _applies(job.phase, job.state, job.services):
        why = "the code passes the mended tests" if job.state.mending else "its conditions do not hold"
        return Report(Signal(verdict=Verdict.SKIPPED, summary=why))
    try:
        report = _DOERS[job.phase.doer](job)
        if not report.before:
            return report
        tree = job.place.tree()
        if job.phase.reads_only:
            report, tree = _drop_what_it_wrote(job, report, tree)
        return _verified(job, report, tree)
    except WorkspaceBroken as broken:
        return Report(error_signal(broken.message))
    except NoResult as none:
        return Report(parked(none.message))


def _drop_what_it_wrote(job: Job, report: Report, tree: str) -> tuple[Report, str]:
    """Restore the work after a read-only phase, and name what is dropped; keep its worklog.

    Return the report and the restored tree.
    """
    place, given = job.place, job.state.checkpoint
    written = place.trees.changes(report.before, tree)
    if given is None or (not written and place.head() == given.head):
        return report, tree
    worklog = place.worklog()
    ref = place.restore(given)
    if worklog:
        place.write_worklog(worklog)
    named = ", ".join(change.path for change in written[:_MOST_NAMED]) or "its commits"
    more = f" and {len(written) - _MOST_NAMED} more" if len(written) > _MOST_NAMED else ""
    kept = f"; kept as {ref}" if ref else ""
    said = f"{job.phase.name} may only read: {named}{more} dropped{kept}"
    return replace(report, warnings=(*report.warnings, said)), place.tree()


_MOST_NAMED = 5


def _verified(job: Job, report: Report, tree: str) -> Report:
    """Verify the claim; a check without a result parks the mission."""
    report = replace(report, files=tuple(change.path for change in job.place.trees.changes(report.before, tree)))
    state = msgspec.structs.replace(job.state, exam=report.exam) if report.exam else job.state
    claim = Verification(state, job.phase, report.signal, job.place, job.services, tree, report.before)
    try:
        return replace(report, evidence=verify(claim))
    except NoResult as none:  # caught here, so that the agent's usage is recorded
        return replace(report, signal=parked(none.message))


_DOERS: dict[str, Callable[[Job], Report]] = {
    "prompt": lambda job: run_examiner(job) if job.phase.writes == EXAM else run_agent(job),
    "run": run_command,
    "do": lambda job: ACTIONS[job.phase.do](job),
    "workflow": run_child,
}


def unknown_names(workflow: Workflow) -> list[str]:
    """Return the unknown checks and actions that a workflow names, as sentences."""
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


def _take_back_what_failed(job: Job, decision: Decision) -> Decision:
    """Undo a failed step if steps are published one by one; say in the feedback where its work is kept."""
    at_it_again = decision.move in SETBACKS and decision.verdict is Verdict.REFUTED
    nothing_done = decision.move is Move.SKIP or not job.phase.works_in_place
    if decision.keeps_the_work or at_it_again or nothing_done:
        return decision
    ref = job.place.salvage_and_reset(f"left by {job.step.key}")
    if not ref:
        return decision
    job.note(Salvaged(at=job.services.clock.now(), ref=ref, why=f"left by {job.step.key}"))
    words = f"{decision.feedback}\n\nThe work of that attempt is kept as {ref}; the files are as they were before."
    return msgspec.structs.replace(decision, feedback=words.strip())


def spawns(step: Step, state: MissionState, services: Services) -> bool:
    """Tell whether doing this step starts an agent."""
    phase = state.workflow.phase(step.phase)
    held_again = phase.writes == EXAM and not writes_exam(phase, state)
    return bool(phase.prompt) and not held_again and _applies(phase, state, services)


def _applies(phase: Phase, state: MissionState, services: Services) -> bool:
    when = phase.when
    if state.mending and _has_nothing_to_do(phase, state, services):
        return False
    if when is None:
        return True
    return when.matches_item(state.item) and (not when.changed or _any_changed(state, services, when.changed))


def _has_nothing_to_do(phase: Phase, state: MissionState, services: Services) -> bool:
    """Tell whether only tests were mended, and the existing code passes them already."""
    if phase.role is not Role.WORKER or phase.writes or "green" not in phase.checks or not state.checkpoint:
        return False
    place = place_of(state, services)
    tree = place.delivered(state.checkpoint)
    return Verification(state, phase, passed(""), place, services, tree, tree).is_green()


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
        follow_ups=tuple(
            msgspec.structs.replace(each, title=cut(each.title, 1000), context=cut(each.context, 8000))
            for each in report.signal.follow_ups[:MOST_FOLLOW_UPS]
        ),
        findings=tuple(_fitting(remark, report.log) for remark in report.signal.findings[:MOST_REMARKS]),
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
        exam=report.exam,
    )


def _fitting(remark: Remark, log: str) -> Remark:
    """Cut the texts of a remark to the size of an event."""
    names = {name: cut(getattr(remark, name), _LONGEST_NAME) for name in ("id", "file", "reverses")}
    return msgspec.structs.replace(remark, text=cut(remark.text, where=log), **names)


def _kept(job: Job, outcome: Outcome, decision: Decision, at: str) -> Outcome:
    """Write Capsule's worklog entry, then make a checkpoint with it; keep the last one if the place is gone."""
    place, phase = job.place, job.phase.name
    if lost := lost_worklog(place, job.state.checkpoint) if place.path.exists() else "":
        outcome = msgspec.structs.replace(outcome, warnings=(*outcome.warnings, LOST_WORKLOG))
    text = entry(job.step.key, job.state.attempt(phase), outcome, decision, at, answer=job.state.answer)
    try:
        worklog = with_entry(lost or place.worklog(), section_of(job.state.workflow, phase), text)
        place.write_worklog(job.services.redact(worklog))
        checkpoint = place.checkpoint(job.step.key)
    except WorkspaceBroken as broken:
        return msgspec.structs.replace(outcome, warnings=(*outcome.warnings, broken.message))
    return msgspec.structs.replace(outcome, checkpoint=checkpoint)
