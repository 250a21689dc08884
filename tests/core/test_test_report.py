"""Every runner's tests by name, from real outputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule.core.test_report import Result, TestReport, read_report, readable

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
