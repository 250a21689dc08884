"""Read and judge an exam, test by test: its author has seen neither the code nor its tests.

Each test comes with a criterion, an input and an expected value. The coder learns these and the observed value of a
failed test, and nothing else. A test counts if it fails by name when the changed bodies are removed: otherwise it
proves nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

from capsule.core.evidence import ExamMark, ExamTest
from capsule.core.proof import SUFFIXES, split_name
from capsule.core.state import MissionState
from capsule.core.test_report import Result, TestReport, worst
from capsule.core.text import one_line, shortened, without_controls

MOST_TESTS = 8
_LONGEST_CODE = 16_000
_LONGEST_WORDS = 300
_FIELDS = ("criterion", "input", "expected", "file", "test", "code")


def read_exam(extra: Mapping[str, object]) -> tuple[tuple[ExamTest, ...], str]:
    """Return the tests in an examiner's signal, and the fault of a bad signal; one of the two is empty."""
    given = extra.get("exam_tests")
    if not isinstance(given, list) or not given:
        return (), "the examiner's signal has no list `exam_tests`"
    tests = []
    for number, each in enumerate(given[:MOST_TESTS], 1):
        row = each if isinstance(each, dict) else {}
        lacking = [name for name in _FIELDS if not isinstance(row.get(name), str) or not row[name].strip()]
        if lacking:
            return (), f"test {number} of the exam has no {', '.join(lacking)}"
        if not _is_inside(row["file"]) or len(row["code"]) > _LONGEST_CODE:
            return (), f"test {number} of the exam is too long, or its file lies outside of the project"
        words = {name: _words(row[name], row["code"]) for name in ("criterion", "input", "expected")}
        file = row["file"].removeprefix("./")
        code = without_controls(row["code"]).rstrip("\n") + "\n"
        tests.append(ExamTest(id=f"E{number}", **words, file=file, name=one_line(row["test"]), code=code))
    files = [test.file for test in tests]
    if len({*files}) < len(files):
        return (), "two tests of the exam are in one file"
    return tuple(tests), ""


def _is_inside(path: str) -> bool:
    first, *more = path.removeprefix("./").split("/")
    return first not in (".git", ".capsule") and not {"", ".", ".."} & {first, *more} and path.isprintable()


def _words(text: str, code: str) -> str:
    """Return one line of the examiner's words; a line of its test among them is taken out."""
    lines = [line.strip() for line in code.splitlines()]
    for line in sorted({line for line in lines if len(line) >= _A_LINE}, key=len, reverse=True):
        text = text.replace(line, "(a line of the test)")
    return shortened(one_line(text), _LONGEST_WORDS)


_A_LINE = 20


def fingerprint(tests: Sequence[ExamTest]) -> str:
    """Identify what is run: two exams of one mission must not share results."""
    text = "\0".join(f"{test.file}\0{test.name}\0{test.code}" for test in tests)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def result_of(test: ExamTest, report: TestReport) -> Result | None:
    """Return how a test of the exam ended; None if no test of that name ran. Of several cases the worst counts."""
    wanted = split_name(f"{test.file}::{test.name.rpartition('::')[2]}")[1]
    found = []
    for name, result in report.results.items():
        place, bare = split_name(name)
        here = f"/{test.file}".endswith(f"/{place}")  # its runner may have been started in a folder of the project
        if bare == wanted and (here or not place.endswith(SUFFIXES)):
            found.append(result)
    return worst(found) if found else None


def is_about_names(output: str) -> bool:
    """Tell whether a test failed because a name that it asks for does not exist."""
    return re.search(_NO_SUCH_NAME, output) is not None


_NO_SUCH_NAME = (
    r"cannot import name '\w+'|ModuleNotFoundError: No module named '|module '[\w.]+' has no attribute '\w+'"
    r"|TypeError: [\w.]+ is not a function|ReferenceError: \w+ is not defined|NameError: name '\w+' is not defined"
)


def seen_in(output: str, expected: str) -> str:
    """Describe by its values what a failed test observed, without showing its code."""
    text = output.replace("\r", "")
    for pattern in _PAIRS:
        for found in re.finditer(pattern, text):
            left, right = (one_line(each) for each in found.groups())
            if _is_value(left) and _is_value(right):
                return shortened(_other_than(expected, left, right), _LONGEST_WORDS)
    raised = [found for found in re.finditer(_RAISED, text) if "Assert" not in found[1]]
    return shortened(f"it raises {one_line(raised[-1][1])}", _LONGEST_WORDS) if raised else "something else"


def _other_than(expected: str, left: str, right: str) -> str:
    """Return the value that is not the expected one; both if the expected one is unknown."""
    bare = [each.strip("'\"") for each in (left, right)]
    in_it = [re.search(rf"(?<![\w.]){re.escape(each)}(?![\w.])", expected) is not None for each in bare]
    if in_it[0] is not in_it[1]:
        return right if in_it[0] else left
    return f"{left}, which is not {right}"


_PAIRS = (
    r"(?m)^E +(?:AssertionError: )?assert (.+?) == (.+)$",  # pytest
    r"(?m)^(?:E +)?AssertionError: (.+?) != (.+?)(?: : .*)?$",  # unittest
    r"(?m)^ *(\S.*?) !== (\S.*)$",  # node
    r"(?m)^ *Expected: (.+)\n *Received: (.+)$",  # jest, vitest
    r"(?m)^ *left: (.+)\n *right: (.+)$",  # Rust
)
_RAISED = r"(?m)^(?:E +)?(\w*(?:Error|Exception|panic))\b(?::.*)?$"


def _is_value(text: str) -> bool:
    """Tell whether a text is a literal value and not an expression."""
    if text in ("true", "false", "null", "undefined", "nil"):
        return True
    from ast import literal_eval  # noqa: PLC0415 - start-up

    try:
        literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def open_tests(state: MissionState) -> list[ExamTest]:
    """Return the tests that still count: neither dropped nor struck out."""
    dropped = {name for name, result in state.exam_results.items() if result.mark is ExamMark.DROPPED}
    return [test for test in state.exam if test.id not in dropped and test.id not in state.struck]


def joining(state: MissionState) -> dict[str, bytes]:
    """Return the files of the exam that join the suite: those of tests that passed, unless they stay hidden."""
    if state.policy.exam != "keep":
        return {}
    passed = {name for name, result in state.exam_results.items() if result.mark is ExamMark.PASSED}
    return {test.file: test.code.encode() for test in open_tests(state) if test.id in passed}
