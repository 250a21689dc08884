"""An exam: how an examiner's signal is read, which of its tests count, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from capsule.core.decide import Decision, Move
from capsule.core.event import MissionStarted, Outcome, Reopened, StepEnded
from capsule.core.evidence import (
    Colour,
    Evidence,
    EvidenceStatus,
    ExamMark,
    ExamResult,
    ExamTest,
    Observation,
)
from capsule.core.exam import MOST_TESTS, joining, read_exam, result_of, seen_in
from capsule.core.item import Item
from capsule.core.proven import line_of
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, Step, apply, replay
from capsule.core.syntax import signatures
from capsule.core.test_report import LoadError, Result, TestReport
from capsule.core.workflow import EXAM, Phase, Role, Workflow
from capsule.engine.exam import _evidence, examine
from capsule.engine.steps import spawns
from capsule.services import Services

CODE = "import calc\n\n\ndef test_high():\n    assert calc.clamp(71, 2, 40) == 40\n"
ROW = {
    "criterion": "never more than high",
    "input": "71, 2, 40",
    "expected": "40",
    "file": "tests/test_exam.py",
    "test": "test_high",
    "code": CODE,
}
FLOW = Workflow(
    name="any",
    phases=(
        Phase(name="build", prompt="p"),
        Phase(name="look", role=Role.REVIEW, prompt="p", rework="build", may_strike=True),
        Phase(name="ask", role=Role.REVIEW, prompt="p", rework="build", writes=EXAM),
    ),
)


def a_test(number: int = 1, name: str = "test_high") -> ExamTest:
    words = {key: ROW[key] for key in ("criterion", "input", "expected")}
    return ExamTest(id=f"E{number}", **words, file=f"tests/test_{number}.py", name=name, code=CODE)


def an_exam(*tests: ExamTest, **more: Any) -> MissionState:
    return MissionState(mission="m", workflow=FLOW, exam=tests, **more)


@pytest.mark.promise("exam.hidden")
def test_an_examiners_signal_is_read_without_lines_of_code_in_what_the_coder_hears() -> None:
    (test,), fault = read_exam({"exam_tests": [{**ROW, "input": "see assert calc.clamp(71, 2, 40) == 40\nplease"}]})
    assert not fault
    assert (test.id, test.name, test.file) == ("E1", "test_high", "tests/test_exam.py")
    assert test.input == "see (a line of the test) please"
    tests, _ = read_exam({"exam_tests": [{**ROW, "file": f"tests/test_{n}.py"} for n in range(30)]})
    assert len(tests) == MOST_TESTS


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (None, "no list `exam_tests`"),
        ([], "no list `exam_tests`"),
        (["a test"], "test 1 of the exam has no criterion"),
        ([{**ROW, "code": " "}], "test 1 of the exam has no code"),
        ([{**ROW, "file": "../conftest.py"}], "outside of the project"),
        ([{**ROW, "file": "/tmp/x.py"}], "outside of the project"),
        ([{**ROW, "file": ".git/hooks/x"}], "outside of the project"),
        ([ROW, ROW], "in one file"),
    ],
)
def test_an_exam_that_cannot_be_held_is_refused_with_its_fault(given: object, fault: str) -> None:
    tests, said = read_exam({"exam_tests": given})
    assert not tests
    assert fault in said


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("tests/test_1.py::test_high", True),
        ("tests/test_1.py::Exam::test_high", True),
        ("calc/tests::test_high", True),
        ("tests/test_2.py::test_high", False),
        ("tests/test_1.py::test_low", False),
    ],
)
def test_a_test_of_an_exam_is_found_by_its_name_and_file(name: str, found: bool) -> None:
    assert (result_of(a_test(), TestReport({name: Result.PASSED})) is Result.PASSED) is found


@pytest.mark.parametrize(
    ("output", "seen"),
    [
        ("E       assert 71 == 40\nE        +  where 71 = clamp(71, 2, 40)", "71"),
        ("E   AssertionError: assert 71 == 40", "71"),
        ("AssertionError: 71 != 40", "71"),
        ("  Expected values to be strictly equal:\n\n  71 !== 40\n", "71"),
        ("    Expected: 40\n    Received: 71", "71"),
        ("  left: 71\n right: 40", "71"),
        ("AssertionError: 1 != 2", "1, which is not 2"),
        ("E   KeyError: 71", "it raises KeyError"),
        ("E   assert clamp(71, secret) == expected()", "something else"),
        ("--- FAIL: TestHigh", "something else"),
    ],
)
@pytest.mark.promise("exam.hidden")
def test_what_was_seen_is_a_value_and_never_code(output: str, seen: str) -> None:
    assert seen_in(output, "40") == seen


_PYTHON = "def add(a, b):\n    return a\n"
_CLAMP = "\ndef clamp(n: int, low=0) -> int:\n    return n\n\ndef _own():\n    return 1\n"
_METHOD = "class A:\n    def go(self, x: str) -> None:\n        self.x = x\n"
_GO = "func Clamp(n, low int) int {\n\treturn n\n}\n\nfunc own() {\n\tprintln()\n}\n"


@pytest.mark.parametrize(
    ("path", "before", "after", "heads"),
    [
        ("calc.py", _PYTHON, _PYTHON + _CLAMP, ["def clamp(n: int, low=0) -> int"]),
        ("a.py", "", _METHOD, ["A: def go(self, x: str) -> None"]),
        ("a.go", "", _GO, ["func Clamp(n, low int) int"]),
        ("a.ts", "", "export const clamp = (n: number): number => n;\n", ["clamp = (n: number): number"]),
        ("a.rs", "", "pub fn clamp(n: i32) -> i32 {\n    n\n}\n", ["pub fn clamp(n: i32) -> i32"]),
        ("notes.txt", "", "clamp", []),
    ],
)
@pytest.mark.promise("exam.hidden")
def test_an_examiner_is_given_heads_of_what_changed_and_no_bodies(
    path: str, before: str, after: str, heads: list[str]
) -> None:
    assert signatures(path, before.encode(), after.encode()) == heads


class Gate:
    """Answers as a gate would: by the files that are added, how each test ended."""

    def __init__(self, real: Mapping[str, Result | None], stubbed: Mapping[str, Result | None]) -> None:
        self.real, self.stubbed, self.runs = real, stubbed, 0

    def __call__(
        self, _variant: str, files: Mapping[str, bytes], _lines: Sequence[str]
    ) -> tuple[Observation, TestReport]:
        self.runs += 1
        known = self.stubbed if "calc.py" in files else self.real
        results = {f"{f}::test_high": r for f, r in known.items() if f in files and r is not None}
        errors = tuple(LoadError(f, "cannot import name 'clip'") for f, r in known.items() if f in files and r is None)
        tail = "E   assert 71 == 40" if Result.FAILED in results.values() else ""
        return Observation("t", "c", Colour.RED, tail=tail), TestReport(results, errors, 1, complete=True)


def held(state: MissionState, real: Mapping[str, Result | None], stubbed: Mapping[str, Result | None]) -> Evidence:
    return examine(state, Gate(real, stubbed), lambda _: {"calc.py": b""}, lambda _: None)


ONE, FAILS = "tests/test_1.py", {"tests/test_1.py": Result.FAILED}


@pytest.mark.promise("exam.counts")
@pytest.mark.parametrize(
    ("real", "stubbed", "mark", "status"),
    [
        (Result.PASSED, Result.FAILED, ExamMark.PASSED, EvidenceStatus.CONFIRMED),
        (Result.FAILED, Result.FAILED, ExamMark.FAILED, EvidenceStatus.REFUTED),
        (Result.PASSED, Result.PASSED, ExamMark.DROPPED, EvidenceStatus.UNVERIFIED),
        (Result.PASSED, None, ExamMark.DROPPED, EvidenceStatus.UNVERIFIED),
        (Result.FAILED, Result.PASSED, ExamMark.DROPPED, EvidenceStatus.UNVERIFIED),
        (None, None, ExamMark.DROPPED, EvidenceStatus.UNVERIFIED),
        (Result.SKIPPED, Result.SKIPPED, ExamMark.DROPPED, EvidenceStatus.UNVERIFIED),
    ],
)
def test_a_test_counts_only_if_it_fails_by_name_without_the_change(
    real: Result | None, stubbed: Result | None, mark: ExamMark, status: EvidenceStatus
) -> None:
    piece = held(an_exam(a_test()), {ONE: real}, {ONE: stubbed})
    assert (piece.exam[0].mark, piece.standing) == (mark, status)


@pytest.mark.promise("exam.counts")
def test_a_test_that_counted_cannot_be_lost_by_taking_its_name_away() -> None:
    known = {"E1": ExamResult("E1", ExamMark.FAILED, "71")}
    piece = held(an_exam(a_test(), exam_results=known), {ONE: None}, {})
    assert (piece.exam[0].mark, piece.exam[0].seen) == (ExamMark.FAILED, "it cannot find its names")


@pytest.mark.promise("exam.hidden")
def test_what_goes_back_is_criterion_input_expected_and_seen() -> None:
    piece = held(an_exam(a_test()), FAILS, FAILS)
    assert "criterion: never more than high\n  input: 71, 2, 40\n  expected: 40\n  seen: 71\n" in piece.detail
    assert "test_high" not in str(piece)
    assert "assert" not in piece.detail


def story(*steps: StepEnded) -> MissionState:
    item = Item(id="i-1", title="t")
    return replay([MissionStarted(at="", mission="i-1", item=item, workflow=FLOW, base="b", into="main"), *steps])


def ended(phase: str, move: Move, run: int = 1, back_to: str = "", **more: Any) -> StepEnded:
    extra = more.pop("extra", {})
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS, extra=extra), **more)
    made = Decision(move, Verdict.PASS, back_to=back_to, counter="ask" if back_to else "")
    event = StepEnded(at="", key=f"{phase}#{run}", phase=phase, run=run, outcome=outcome, decision=made)
    return msgspec.json.decode(msgspec.json.encode(event), type=StepEnded)  # as the journal gives it back


def after_a_failure(*, by: str = "look", struck: object) -> MissionState:
    piece = held(an_exam(a_test()), FAILS, FAILS)
    sent_back = ended("ask", Move.REWORK, back_to="build", exam=(a_test(),), evidence=(piece,))
    more: dict[str, Any] = {"extra": {"struck": struck}}
    return story(
        ended("build", Move.ADVANCE),
        ended("look", Move.ADVANCE),
        sent_back,
        ended("build", Move.ADVANCE, 2, **(more if by == "build" else {})),
        ended("look", Move.ADVANCE, 2, **(more if by == "look" else {})),
    )


@pytest.mark.promise("exam.counts")
@pytest.mark.parametrize(
    ("by", "struck", "counts"),
    [
        ("look", {"test": "E1", "because": "the task says less"}, False),
        ("look", [{"test": "E1", "because": "the task says less"}], False),
        ("look", {"test": "E1", "because": " "}, True),
        ("look", {"test": "E9", "because": "no such test"}, True),
        ("look", "E1", True),
        ("build", {"test": "E1", "because": "says its coder"}, True),
    ],
)
def test_only_a_review_that_may_strikes_a_failing_test_out_and_only_in_writing(
    by: str, struck: object, counts: bool
) -> None:
    state = after_a_failure(by=by, struck=struck)
    piece = held(state, FAILS, FAILS)
    assert (piece.standing is EvidenceStatus.REFUTED) is counts
    assert (piece.exam[0].mark is ExamMark.STRUCK) is not counts


@pytest.mark.promise("exam.counts")
def test_whoever_may_strike_is_told_what_fails_and_the_exam_outlives_a_replay() -> None:
    piece = held(an_exam(a_test()), FAILS, FAILS)
    state = story(
        ended("build", Move.ADVANCE),
        ended("look", Move.ADVANCE),
        ended("ask", Move.REWORK, back_to="build", exam=(a_test(),), evidence=(piece,)),
    )
    assert state.exam == (a_test(),)
    assert "input: 71, 2, 40" in state.feedback["look"]
    assert '"struck"' in state.feedback["look"]
    assert "test_high" not in "".join(state.feedback.values())


@pytest.mark.promise("exam.joins")
def test_only_tests_that_passed_join_the_suite_and_only_if_they_are_kept() -> None:
    results = {"E1": ExamResult("E1", ExamMark.PASSED), "E2": ExamResult("E2", ExamMark.DROPPED)}
    state = an_exam(a_test(1), a_test(2), exam_results=results)
    assert [*joining(state)] == ["tests/test_1.py"]
    assert not joining(replace(state, policy=replace(state.policy, exam="drop")))


@pytest.mark.promise("exam.counts")
def test_an_exam_is_written_once_and_held_again_without_an_agent() -> None:
    nobody = cast("Services", None)
    assert spawns(Step("m", "ask", 1), an_exam(), nobody)
    assert not spawns(Step("m", "ask", 2), an_exam(a_test()), nobody)


@pytest.mark.parametrize(
    ("move", "code", "phase"),
    [(Move.ABORT, 2, "ask"), (Move.PARK, 1, "ask"), (Move.ABORT, 1, "build")],
    ids=["its exam cannot be read", "it asks a person", "the code failed it too often"],
)
def test_an_examiner_that_stopped_by_itself_is_asked_again_and_the_coder_is_not(
    move: Move, code: int, phase: str
) -> None:
    stopped = ended("ask", move)
    stopped = replace(stopped, decision=replace(stopped.decision, exit_code=code, feedback="no code"))
    state = story(ended("build", Move.ADVANCE), ended("look", Move.ADVANCE), stopped)
    assert apply(state, Reopened(at="")).to_do[0] == phase


def test_an_exam_that_is_passed_is_part_of_what_was_proven() -> None:
    results = {"E1": ExamResult("E1", ExamMark.PASSED), "E2": ExamResult("E2", ExamMark.DROPPED, "it proves nothing")}
    assert line_of([_evidence(MissionState(), results)]) == "1 of 1 exam tests pass"
