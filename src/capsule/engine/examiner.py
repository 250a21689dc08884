"""Let an examiner write an exam: a fresh agent, in a copy of the base, with the task and the signatures of the change.

Its answer is kept only in the journal, with the end of its step: the coder's git directory borrows the repository's
objects, so it could read a commit. Only its tests are passed on.
"""

from __future__ import annotations

from msgspec.structs import replace

from capsule.core.exam import read_exam
from capsule.core.signal import Verdict, error_signal
from capsule.core.state import MissionState
from capsule.core.workflow import EXAM, Phase
from capsule.engine.job import Job, Report, passed
from capsule.engine.work import run_agent, start_from_checkpoint


def writes_exam(phase: Phase, state: MissionState) -> bool:
    """Tell whether a phase has to write an exam."""
    return phase.writes == EXAM and not state.exam


def run_examiner(job: Job) -> Report:
    """Start the examiner, once per mission; later the same exam is used again."""
    if not writes_exam(job.phase, job.state):
        return Report(passed("the exam is held again"), start_from_checkpoint(job))
    report = run_agent(job)
    if report.signal.synthetic:
        return report
    tests, fault = read_exam(report.signal.extra)
    if report.signal.verdict is not Verdict.PASS or fault:
        reason = fault or "the examiner wrote no exam"
        return replace(report, signal=error_signal(f"{reason}: `capsule logs {job.mission}` has its own words"))
    count = f"{len(tests)} exam test{'s' if len(tests) != 1 else ''}"
    return replace(report, signal=passed(f"{count} written"), exam=tests)
