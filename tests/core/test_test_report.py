"""Every runner's tests by name, from real outputs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.live.record import WHOLE
from tests.live.runner_projects import CASES, RUNNERS, SAYS

from capsule.core.evidence import Colour
from capsule.core.test_report import Result, TestReport, read_report, readable
from capsule.core.test_runs import colour_of

OUTPUTS = Path(__file__).parent / "runner_outputs"


def printed(name: str) -> str:
    return (OUTPUTS / f"{name}.txt").read_text()


def rows(*lines: str) -> str:
    return "\n".join(lines)


PYTEST = rows(
    '{"runner": "pytest"}',
    '{"test": "tests/test_x.py::test_ok", "result": "passed"}',
    '{"test": "tests/test_x.py::test_bad", "result": "failed"}',
    '{"ended": 1}',
)


def test_cargo_is_read_from_its_lines_with_the_target_in_each_name() -> None:
    assert read_report({}, printed("cargo")) == TestReport(
        {
            "x:src/lib.rs::tests::ign": Result.SKIPPED,
            "x:src/lib.rs::tests::ok": Result.PASSED,
            "x:src/lib.rs::tests::bad": Result.FAILED,
            "x:src/lib.rs::tests::pan": Result.PASSED,
            "i:tests/i.rs::integ": Result.PASSED,
            "x:doc::src/lib.rs - add": Result.PASSED,
        },
        invocations=3,
        complete=True,
    )


def test_a_cargo_binary_that_ends_without_a_result_makes_the_report_incomplete() -> None:
    text = printed("cargo")
    cut = text[: text.index("test result: ok. 1 passed")]
    assert not read_report({}, cut).complete


def test_ctest_is_read_from_its_lines() -> None:
    assert read_report({}, printed("ctest")).results == {
        "ctest::ok": Result.PASSED,
        "ctest::bad": Result.FAILED,
        "ctest::sk": Result.SKIPPED,
        "ctest::gone": Result.FAILED,
        "ctest::seg": Result.FAILED,
        "ctest::off": Result.SKIPPED,
    }


def test_what_processes_wrote_is_put_together() -> None:
    other = rows('{"runner": "pytest"}', '{"test": "lib/test_y.py::test_y", "result": "passed"}', '{"ended": 0}')
    report = read_report({"pytest-1.jsonl": PYTEST, "pytest-2.jsonl": other}, "")
    assert (report.invocations, report.complete) == (2, True)
    assert report.passed == ["tests/test_x.py::test_ok", "lib/test_y.py::test_y"]
    assert report.red == ["tests/test_x.py::test_bad"]


def test_the_worst_of_several_results_counts() -> None:
    told = [f'{{"test": "a.py::t", "result": "{word}"}}' for word in ("passed", "failed", "passed")]
    report = read_report({"pytest-1.jsonl": rows('{"runner": "pytest"}', *told, '{"ended": 1}')}, "")
    assert report.results == {"a.py::t": Result.FAILED}


def test_a_process_that_was_cut_short_makes_the_report_incomplete() -> None:
    assert read_report({"pytest-1.jsonl": PYTEST}, "").complete
    assert not read_report({"pytest-1.jsonl": PYTEST.removesuffix('{"ended": 1}')}, "").complete


@pytest.mark.parametrize(
    "output",
    [
        "== 3 passed in 0.02s ==\n1 failed, 2 passed in 0.10s\n",
        "3 passed in 0.02s\nRan 5 tests in 0.001s\n",
        "3 passed in 0.02s\nTests: 1 passed\nTest Suites: 1 passed, 1 total\n",
        "3 passed in 0.02s\ntest result: ok. 1 passed; 0 failed; 0 ignored;\n",
    ],
)
def test_an_invocation_that_shows_and_told_nothing_makes_the_report_incomplete(output: str) -> None:
    assert read_report({"pytest-1.jsonl": PYTEST}, "3 passed in 0.02s\n").complete
    assert not read_report({"pytest-1.jsonl": PYTEST}, output).complete


GO = rows(
    '{"Action":"start","Package":"example.org/x"}',
    '{"Action":"run","Package":"example.org/x","Test":"TestOk"}',
    '{"Action":"output","Package":"example.org/x","Test":"TestOk","Output":"=== RUN   TestOk\\n"}',
    '{"Action":"pass","Package":"example.org/x","Test":"TestOk","Elapsed":0}',
    '{"Action":"run","Package":"example.org/x","Test":"TestGone"}',
    '{"Action":"output","Package":"example.org/x","Output":"exit status 1\\n"}',
    '{"Action":"fail","Package":"example.org/x","Elapsed":0.01}',
)


def test_a_go_test_that_began_and_never_ended_is_an_error() -> None:
    report = read_report({"go-1": GO, "go-1.ended": "1"}, "")
    assert report.results == {"example.org/x::TestOk": Result.PASSED, "example.org/x::TestGone": Result.ERRORED}
    assert report.complete


def test_a_go_package_that_does_not_compile_is_an_error_without_names() -> None:
    told = rows(
        '{"ImportPath":"example.org/x [example.org/x.test]","Action":"build-output",'
        '"Output":"./a_test.go:6:33: undefined: Sub\\n"}',
        '{"ImportPath":"example.org/x [example.org/x.test]","Action":"build-fail"}',
        '{"Action":"start","Package":"example.org/x"}',
        '{"Action":"output","Package":"example.org/x","Output":"FAIL\\texample.org/x [build failed]\\n"}',
        '{"Action":"fail","Package":"example.org/x","Elapsed":0}',
    )
    report = read_report({"go-1": told, "go-1.ended": "1"}, "")
    assert [error.where for error in report.errors] == ["example.org/x"]
    assert "undefined: Sub" in report.errors[0].text


def test_events_of_go_are_readable_again() -> None:
    assert readable(f"make test\n{GO}\n") == "make test\n=== RUN   TestOk\nexit status 1\n"


JUNIT = """<?xml version="1.0"?>
<testsuite name="CalcTest" tests="3">
  <testcase classname="org.CalcTest" name="adds"/>
  <testcase classname="org.CalcTest" name="fails"><failure message="no">at X</failure></testcase>
  <testcase classname="org.CalcTest" name="later"><skipped/></testcase>
</testsuite>"""


def test_junit_xml_is_read() -> None:
    report = read_report({}, "", [JUNIT, "<broken"])
    assert report.results == {
        "org.CalcTest::adds": Result.PASSED,
        "org.CalcTest::fails": Result.FAILED,
        "org.CalcTest::later": Result.SKIPPED,
    }


def test_a_run_that_tells_no_names_has_no_complete_report() -> None:
    assert read_report({}, "all good\n") == TestReport()


NAMES = {
    "pytest": "tests/test_a.py::test_{}",
    "pytest-xdist": "tests/test_a.py::test_{}",
    "unittest": "tests/test_a.py::TestIt.test_{}",
    "tox": "tests/test_a.py::TestIt.test_{}",
    "django": "tests/test_a.py::TestIt.test_{}",
    "go": "example.org/x/a::Test{}",
    "cargo": "a:tests/a.rs::{}",
    "node--test": "test/a.test.js::{}",
    "jest": "test/a.test.js::{}",
    "vitest": "test/a.test.js::{}",
    "mocha": "test/a.test.js::{}",
    "maven": "ATest::{}",
    "gradle": "ATest::{}",
    "deno": "test/a_test.ts::{}",
    "rspec": "spec/a_spec.rb::Calc > {}",
    "phpunit": "ATest::test{}",
    "mix": "test/a_test.exs::ATest > test {}",
    "ctest": "ctest::{}",
}


def recorded(name: str) -> TestReport:
    """What a real runner printed and wrote (`python -m tests.live.record`)."""
    files = {path.name: path.read_text() for path in sorted((OUTPUTS / name).iterdir())}
    junit = [text for path, text in files.items() if path.startswith("TEST-")]
    apart = ("output.txt", *(path for path in files if path.startswith("TEST-")))
    return read_report({path: text for path, text in files.items() if path not in apart}, files["output.txt"], junit)


@pytest.mark.promise("evidence.by-name")
@pytest.mark.parametrize("runner", NAMES)
def test_every_runner_tells_by_name_what_passed_and_what_failed(runner: str) -> None:
    report = recorded(f"{runner}-failed")
    names = [NAMES[runner].format(word.title() if runner in ("go", "phpunit") else word) for word in ("before", "it")]
    assert report.results == dict(zip(names, (Result.PASSED, Result.FAILED), strict=True))
    assert report.complete


@pytest.mark.promise("evidence.no-test-no-green")
@pytest.mark.parametrize("runner", NAMES)
def test_what_is_skipped_did_not_pass(runner: str) -> None:
    report = recorded(f"{runner}-skipped")
    assert set(report.results.values()) == {Result.SKIPPED}
    assert colour_of("exited", 0, "", runner, report) is Colour.EMPTY


@pytest.mark.promise("evidence.no-test-no-green")
@pytest.mark.parametrize("runner", [name for name in NAMES if name not in ("ctest", "gradle")])
def test_a_forged_exit_code_is_not_green(runner: str) -> None:
    report = recorded(f"{runner}-forged")
    printed = (OUTPUTS / f"{runner}-forged" / "output.txt").read_text()
    assert colour_of("exited", 0, readable(printed), runner, report) in (Colour.RED, Colour.EMPTY)


def test_a_test_that_ends_the_process_of_gradle_is_not_among_those_that_ran() -> None:
    """The rest of its run is green: a new test that did not run is refuted, and so is one of the base."""
    assert recorded("gradle-forged").results == {"ATest::before": Result.PASSED}


@pytest.mark.promise("evidence.no-test-no-green")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("runner", WHOLE)
def test_what_is_said_of_a_recorded_run(runner: str, case: str) -> None:
    folder, report = OUTPUTS / f"{runner}-{case}", recorded(f"{runner}-{case}")
    code, printed = int((folder / "exit-code").read_text()), (folder / "output.txt").read_text()
    colour = colour_of("exited", code, printed, RUNNERS[runner].command, report)
    by_name = colour is not Colour.NO_RESULT and report.complete and report.results
    assert f"{colour.value}{' by name' if by_name else ''}" == {**SAYS, **RUNNERS[runner].says}[case]


def test_a_runner_that_began_and_told_nothing_is_known() -> None:
    report = read_report({"begun-mvn-1": ""}, "")
    assert (report.begun, report.complete) == (("mvn",), False)
    assert colour_of("exited", 0, "", "./check", report) is Colour.EMPTY
    assert not read_report({"begun-mvn-1": "", "pytest-1.jsonl": PYTEST}, "").complete


def test_a_cargo_binary_without_libtest_is_one_test() -> None:
    line = "     Running tests/own.rs (target/debug/deps/own-0123456789abcdef)\nfine\n"
    assert read_report({}, line).results == {"own:tests/own.rs::main": Result.PASSED}
    failed = f"{line}error: 1 target failed:\n    `--test own`\n"
    assert read_report({}, failed).results == {"own:tests/own.rs::main": Result.FAILED}


def test_a_flood_of_empty_lines_is_read_in_no_time() -> None:
    flood = "\n" * 50_000
    began = time.monotonic()
    assert read_report({}, flood) == TestReport()
    assert colour_of("exited", 0, flood) is Colour.GREEN
    assert time.monotonic() - began < 5
