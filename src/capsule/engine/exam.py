"""Run an exam on finished work: find the tests that count, those that pass, and the feedback on failed ones.

All run together first. One that does not pass runs once more alone, so that the observation is about it alone, and a
file that cannot be loaded does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from capsule.core.evidence import Evidence, EvidenceStatus, ExamMark, ExamResult, ExamTest, Observation, ProofPart
from capsule.core.exam import fingerprint, is_about_names, open_tests, result_of, seen_in
from capsule.core.state import MissionState, exam_feedback
from capsule.core.test_report import RED, Result, TestReport

Run = Callable[[str, Mapping[str, bytes], Sequence[str]], tuple[Observation, TestReport]]
"""Run the tests with some files added, as a variant: (variant, files, one line for each)."""
Stubs = Callable[[bool], Mapping[str, bytes]]
"""Return the changed files with their bodies removed; with other values if asked."""
Read = Callable[[str], bytes | None]

CHECK = "exam-passed"
_SAID = "it does what was asked, also by tests that its coder has not seen"
_HIDDEN = """\
Another agent wrote tests from the task and its criteria alone. You do not see them: this is what fails. Mend the code \
for every input of that kind, not for these alone. If you hold that an expectation does not follow from the criteria, \
leave that as it is and say so in your feedback: the review decides."""
_NO_NAMES = "it cannot find its names"
_NOT_LOADED = "it cannot be loaded"
_VACUOUS = "it passes with the change taken out"
_NOT_TRIED = "it could not be tried with the change taken out"


def examine(state: MissionState, run: Run, stubs: Stubs, read: Read) -> Evidence:
    """Judge each test of the exam that still counts, and summarize all results."""
    tests = open_tests(state)
    in_the_way = [test for test in tests if read(test.file) not in (None, test.code.encode())]
    results = {test.id: ExamResult(test.id, ExamMark.DROPPED, "its file is there already") for test in in_the_way}
    tests = [test for test in tests if test not in in_the_way]
    together = _run(run, tests)[1] if tests else TestReport()
    for test in tests:
        results[test.id] = _judged(test, state, run, together)
    sound = {name for name, known in state.exam_results.items() if known.mark is not ExamMark.DROPPED}
    unproven = [t for t in tests if t.id not in sound and results[t.id].mark is not ExamMark.DROPPED]
    results |= _vacuous(unproven, run, stubs)
    results |= {name: ExamResult(name, ExamMark.STRUCK, because) for name, because in state.struck.items()}
    earlier = {name: known for name, known in state.exam_results.items() if name not in results}
    return _evidence(state, {test.id: {**earlier, **results}[test.id] for test in state.exam})


def _run(
    run: Run, tests: Sequence[ExamTest], stubbed: Mapping[str, bytes] | None = None, how: str = ""
) -> tuple[Observation, TestReport]:
    files = {**(stubbed or {}), **{test.file: test.code.encode() for test in tests}}
    lines = [f"exam test {test.id} in {test.file}{how}" for test in tests]
    return run(f"exam {fingerprint(tests)}{how}", files, lines)


def _judged(test: ExamTest, state: MissionState, run: Run, together: TestReport) -> ExamResult:
    """Judge one test on the finished work. One that counted before still counts if a name was removed."""
    if result_of(test, together) is Result.PASSED:
        return ExamResult(test.id, ExamMark.PASSED)
    seen, report = _run(run, [test])
    result, known = result_of(test, report), state.exam_results.get(test.id)
    if result is Result.PASSED:
        return ExamResult(test.id, ExamMark.PASSED)
    about_names = is_about_names(seen.tail) or any(is_about_names(error.text) for error in report.errors)
    fault = _NO_NAMES if about_names else "" if result in RED else _NOT_LOADED
    if fault and not (known and known.mark is not ExamMark.DROPPED):
        return ExamResult(test.id, ExamMark.DROPPED, fault)
    return ExamResult(test.id, ExamMark.FAILED, fault or seen_in(seen.tail, test.expected))


def _vacuous(tests: Sequence[ExamTest], run: Run, stubs: Stubs) -> dict[str, ExamResult]:
    """Return the tests that do not fail by name when the change is removed: they prove nothing."""
    left, ran = list(tests), set[str]()
    for other, how in ((False, ", with the change taken out"), (True, ", with other values in its place")):
        bodies = stubs(other)
        report = _run(run, left, bodies, how)[1] if left and bodies else TestReport()
        ended = {test.id: result_of(test, report) for test in left}
        ran |= {name for name, result in ended.items() if result is not None}
        left = [test for test in left if ended[test.id] not in RED]
    return {t.id: ExamResult(t.id, ExamMark.DROPPED, _VACUOUS if t.id in ran else _NOT_TRIED) for t in left}


def _evidence(state: MissionState, results: Mapping[str, ExamResult]) -> Evidence:
    by_mark = {mark: [each for each in results.values() if each.mark is mark] for mark in ExamMark}
    passed, failing = by_mark[ExamMark.PASSED], by_mark[ExamMark.FAILED]
    count = len(passed) + len(failing)
    seen = [f"{len(passed)} of {count} exam tests pass" if count else "no exam test is left that proves anything"]
    seen += [f"{', '.join(each.id for each in failing)} fail{'s' if len(failing) == 1 else ''}"] if failing else []
    for mark in (ExamMark.DROPPED, ExamMark.STRUCK):
        seen += [f"{each.id} {mark.value} ({each.seen})" for each in by_mark[mark]]
    status = EvidenceStatus.CONFIRMED if count else EvidenceStatus.UNVERIFIED
    if not failing:
        proven = {ProofPart.EXAM.value: f"{len(passed)} of {count} exam tests pass"} if count else {}
        return Evidence(CHECK, _SAID, "; ".join(seen), status, exam=tuple(results.values()), proven=proven)
    detail = f"{exam_feedback(state.exam, results)}\n\n{_HIDDEN}"
    return Evidence(CHECK, _SAID, "; ".join(seen), EvidenceStatus.REFUTED, detail, exam=tuple(results.values()))
