"""Red and green by name."""

from __future__ import annotations

import pytest

from capsule.core.proof import TestEdits, baseline_of, edits_of, judge_green, judge_red, red_by_absence
from capsule.core.test_report import LoadError, Result, TestReport

OLD = "tests/test_old.py::test_old"
NEW = "tests/test_new.py::test_new"
NEW_FILE = TestEdits(("tests/test_new.py",))


def report(**results: str) -> TestReport:
    names = {"old": OLD, "new": NEW}
    return TestReport({names[key]: Result(value) for key, value in results.items()}, invocations=1, complete=True)


BASE = baseline_of(report(old="passed"))


def test_a_new_test_that_fails_is_red() -> None:
    found = judge_red(BASE, report(old="passed", new="failed"), NEW_FILE)
    assert (found.holds, found.observed) == (True, "red by name (1 new)")


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        (report(old="passed", new="passed"), "no new test fails"),
        (report(old="passed"), "there is no new test"),
        (report(old="failed", new="failed"), f"{OLD} fails"),
        (report(old="skipped", new="failed"), f"{OLD} is skipped"),
        (report(old="xfailed", new="failed"), f"{OLD} is expected to fail"),
        (report(new="failed"), f"{OLD} did not run"),
    ],
)
def test_red_without_a_failing_new_test_or_with_a_harmed_old_one_is_refuted(now: TestReport, seen: str) -> None:
    found = judge_red(BASE, now, NEW_FILE)
    assert not found.holds
    assert seen in found.observed


def test_a_new_test_that_passes_at_once_is_named() -> None:
    now = report(old="passed", new="failed")
    now.results["tests/test_new.py::test_easy"] = Result.PASSED
    assert "1 new test passes before there is code" in judge_red(BASE, now, NEW_FILE).observed


REWRITTEN = TestEdits(("tests/test_old.py",), {"tests/test_old.py": ("test_old",)})


def test_an_old_test_that_was_rewritten_must_fail_because_the_requirement_changed() -> None:
    assert judge_red(BASE, report(old="failed"), REWRITTEN).holds
    weakened = judge_red(BASE, report(old="passed", new="failed"), REWRITTEN)
    assert not weakened.holds
    assert f"{OLD} was rewritten and passes as before" in weakened.observed


def test_green_needs_every_new_test_by_name_and_every_old_one() -> None:
    found = judge_green(BASE, report(old="passed", new="passed"), NEW_FILE, [NEW])
    assert (found.holds, found.observed) == (True, "green by name (1 new, 1 other unharmed)")


@pytest.mark.parametrize(
    ("now", "seen"),
    [
        (report(old="passed", new="skipped"), f"{NEW} is skipped"),
        (report(old="passed", new="xfailed"), f"{NEW} is expected to fail"),
        (report(old="passed"), f"{NEW} did not run"),
        (report(old="failed", new="passed"), f"{OLD} fails"),
        (report(new="passed"), f"{OLD} did not run"),
    ],
)
def test_a_test_that_does_not_pass_is_no_green(now: TestReport, seen: str) -> None:
    found = judge_green(BASE, now, NEW_FILE, [NEW])
    assert not found.holds
    assert seen in found.observed


def test_what_failed_on_the_base_may_stay_failing() -> None:
    base = baseline_of(report(old="failed"), report(old="failed"))
    found = judge_green(base, report(old="failed", new="passed"), NEW_FILE)
    assert found.holds
    assert f"1 known to fail on the base: {OLD}" in found.observed


def test_what_failed_once_of_two_runs_is_flaky_and_has_to_pass() -> None:
    base = baseline_of(report(old="failed"), report(old="passed"))
    assert base.flaky == (OLD,)
    assert not judge_green(base, report(old="failed", new="passed"), NEW_FILE).holds
    assert judge_green(base, report(old="passed", new="passed"), NEW_FILE).holds


BEFORE = b"def helper():\n    return 1\n\ndef test_a():\n    assert helper() == 1\n\ndef test_b():\n    assert True\n"


def test_only_definitions_that_read_otherwise_are_touched() -> None:
    after = BEFORE.replace(b"assert True", b"assert  True") + b"\ndef test_c():\n    assert 0\n"
    assert edits_of([("tests/test_x.py", BEFORE, after)]).touched == {}


def test_a_changed_helper_touches_the_tests_that_call_it() -> None:
    after = BEFORE.replace(b"return 1", b"return 2")
    assert edits_of([("tests/test_x.py", BEFORE, after)]).touched == {"tests/test_x.py": ("helper", "test_a")}


def test_tests_named_by_a_call_are_definitions_too() -> None:
    before = b"describe('x', () => { it('adds', () => { expect(1).toBe(1) }); it('stays', () => {}) })"
    edits = edits_of([("a.test.js", before, before.replace(b"toBe(1)", b"toBe(2)"))])
    assert edits.touches("a.test.js::x > adds")
    assert not edits.touches("a.test.js::x > stays")


@pytest.mark.parametrize(
    ("path", "where", "text", "name"),
    [
        ("x_test.go", "example.org/x", "./x_test.go:6:33: undefined: Sub", "Sub"),
        ("tests/i.rs", "tests/i.rs", "error[E0432]: unresolved import `x::sub`\n --> tests/i.rs:1:5", "x::sub"),
        ("tests/test_x.py", "tests/test_x.py", "ImportError: cannot import name 'sub' from 'calc' (calc.py)", "sub"),
        ("tests/test_x.py", "tests.test_x", "ModuleNotFoundError: No module named 'calc.sub'", "calc.sub"),
        ("test/b.test.js", "test/b.test.js", "Cannot find module '/p/src/sub.js' imported from", "/p/src/sub.js"),
    ],
)
def test_a_name_that_does_not_exist_yet_is_red_by_absence(path: str, where: str, text: str, name: str) -> None:
    errors = [LoadError(where, text)]
    assert red_by_absence(errors, TestEdits((path,)), lambda _: True) == [name]
    assert red_by_absence(errors, TestEdits((path,)), lambda _: False) == []


def test_an_error_that_names_nothing_is_no_red() -> None:
    errors = [LoadError("tests/test_x.py", "SyntaxError: invalid syntax")]
    assert red_by_absence(errors, TestEdits(("tests/test_x.py",)), lambda _: True) == []


GROWS = [
    ("test_x.py", "def test_a():\n    assert one() == 1\n", "    assert two() == 2\n"),
    ("a.test.js", 'it("adds", () => {\n  expect(one()).toBe(1)\n})\n', "  expect(two()).toBe(2)\n"),
    ("x_test.go", "func TestA(t *testing.T) {\n\tif one() != 1 {\n\t\tt.Fatal()\n\t}\n}\n", "\tt.Log(two())\n"),
]


@pytest.mark.parametrize(("path", "before", "more"), GROWS, ids=[path for path, _, _ in GROWS])
def test_a_test_that_was_given_more_lines_at_its_end_is_told_from_one_that_was_rewritten(
    path: str, before: str, more: str
) -> None:
    end = before.rfind("}") if "}" in before else len(before)
    name = (
        f"{path}::adds"
        if path.endswith(".js")
        else "example.org/x::TestA"
        if path.endswith(".go")
        else f"{path}::test_a"
    )
    edits = edits_of([(path, before.encode(), (before[:end] + more + before[end:]).encode())])
    assert edits.touches(name) and edits.only_adds_to(name)
    weaker = before.replace("1", "1 || true") if "}" in before else before.replace("== 1", "== 1 or True")
    edits = edits_of([(path, before.encode(), weaker.encode())])
    assert edits.touches(name) and not edits.only_adds_to(name)


@pytest.mark.parametrize(
    "after",
    [
        "def test_a():\n    return\n    with raises(E):\n        one()\n",
        "def test_a():\n    with raises(E):\n        one()\n        raise E\n",
        "def test_a():\n    with raises(E):\n        one()\n    yield\n",
        "@skip\ndef test_a():\n    with raises(E):\n        one()\n    assert two()\n",
    ],
    ids=["returns first", "in the block", "a generator", "skipped"],
)
def test_lines_that_take_the_rest_of_a_test_away_are_no_addition(after: str) -> None:
    before = "def test_a():\n    with raises(E):\n        one()\n"
    assert not edits_of([("test_x.py", before.encode(), after.encode())]).only_adds_to("test_x.py::test_a")


def test_a_test_with_more_lines_is_rewritten_if_its_helper_is() -> None:
    before = "def helper():\n    return 1\n\n\ndef test_a():\n    assert helper() == 1\n"
    after = before.replace("return 1", "return 2") + "    assert two() == 2\n"
    assert not edits_of([("test_x.py", before.encode(), after.encode())]).only_adds_to("test_x.py::test_a")
