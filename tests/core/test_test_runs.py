"""What colour a run of the test command was, by its exit code and its words."""

from __future__ import annotations

import pytest

from capsule.core.evidence import Colour
from capsule.core.test_report import TestReport
from capsule.core.test_runs import colour_of, killed_by

RUNS: dict[str, tuple[str, int | None, str, Colour]] = {
    "all is well": ("exited", 0, "3 passed in 0.1s", Colour.GREEN),
    "something fails": ("exited", 1, "1 failed", Colour.RED),
    "it does not compile": ("exited", 2, "SyntaxError", Colour.RED),
    "unittest, nothing ran": ("exited", 0, "Ran 0 tests in 0.000s\n\nOK", Colour.EMPTY),
    "unittest 3.12, nothing ran": ("exited", 5, "Ran 0 tests in 0.000s\n\nNO TESTS RAN", Colour.EMPTY),
    "pytest, nothing ran": ("exited", 5, "no tests ran in 0.01s", Colour.EMPTY),
    "nothing ran, and it broke": ("exited", 2, "no tests ran in 0.01s\nERROR collecting", Colour.RED),
    "go, nothing to test": ("exited", 0, "?   \tx\t[no test files]", Colour.EMPTY),
    "go, some packages without": ("exited", 0, "?   \tx\t[no test files]\nok  \ty\t0.01s", Colour.GREEN),
    "cargo, nothing ran": ("exited", 0, "running 0 tests\n", Colour.EMPTY),
    "cargo, doc tests empty": (
        "exited",
        0,
        "test result: ok. 3 passed; 0 failed\n\ntest result: ok. 0 passed; 0 failed\n",
        Colour.GREEN,
    ),
    "the command is not there": ("exited", 127, "sh: pytest: not found", Colour.NOT_RUN),
    "not executable": ("exited", 126, "", Colour.NOT_RUN),
    "killed": ("exited", None, "3 passed in 0.1s", Colour.NOT_RUN),
    "not started": ("not-started", None, "", Colour.NOT_RUN),
    "timed out": ("timeout", None, "3 passed in 0.1s", Colour.TIMED_OUT),
    "fell silent": ("idle", 0, "3 passed in 0.1s", Colour.TIMED_OUT),
    "stopped": ("stopped", 0, "3 passed in 0.1s", Colour.NOT_RUN),
    "unittest, all skipped": ("exited", 0, "ss\n---\nRan 2 tests in 0.000s\n\nOK (skipped=2)\n", Colour.EMPTY),
    "unittest, some skipped": ("exited", 0, "s.\n---\nRan 2 tests in 0.000s\n\nOK (skipped=1)\n", Colour.GREEN),
    "pytest, all skipped": ("exited", 0, "ss  [100%]\n2 skipped in 0.01s\n", Colour.EMPTY),
    "pytest, all skipped, in full": ("exited", 0, "===== 2 skipped, 1 warning in 0.01s =====\n", Colour.EMPTY),
    "pytest, all skipped, in colour": (
        "exited",
        0,
        "\x1b[33m\x1b[1m2 skipped\x1b[0m\x1b[33m in 0.01s\x1b[0m",
        Colour.EMPTY,
    ),
    "pytest, some skipped": ("exited", 0, "1 passed, 1 skipped in 0.01s\n", Colour.GREEN),
    "pytest, one expected to fail": ("exited", 0, "1 skipped, 1 xfailed in 0.01s\n", Colour.GREEN),
    "pytest, none chosen": ("exited", 5, "3 deselected in 0.01s\n", Colour.EMPTY),
    "jest, all skipped": ("exited", 0, "Tests:       3 skipped, 3 total\n", Colour.EMPTY),
    "jest, some skipped": ("exited", 0, "Tests:       1 skipped, 2 passed, 3 total\n", Colour.GREEN),
    "vitest, all skipped": ("exited", 0, "      Tests  2 skipped (2)\n", Colour.EMPTY),
    "mocha, all pending": ("exited", 0, "  0 passing (1ms)\n  2 pending\n", Colour.EMPTY),
    "another tool counts": ("exited", 0, "12 modules in 0.5s\n", Colour.GREEN),
    "a script without words": ("exited", 0, "", Colour.GREEN),
}


@pytest.mark.parametrize(("why", "code", "tail", "colour"), RUNS.values(), ids=RUNS.keys())
def test_a_run_has_its_colour(why: str, code: int | None, tail: str, colour: Colour) -> None:
    assert colour_of(why, code, tail) is colour


STRUCK: dict[str, tuple[int, str, str]] = {
    "killed, as a shell says it": (137, "collected 3 items", "SIGKILL"),
    "terminated": (143, "", "SIGTERM"),
    "hung up": (129, "", "SIGHUP"),
    "interrupted": (130, "", "SIGINT"),
    "out of processor time": (152, "", "SIGXCPU"),
    "aborted, as by an assertion in C": (134, "Assertion `x == 42' failed.", ""),
    "a wild pointer": (139, "Segmentation fault", ""),
    "a broken pipe": (141, "", ""),
    "mocha, so many tests fail": (137, "  12 passing (1s)\n  137 failing\n", ""),
    "make, of what it started": (
        2,
        "make[1]: *** [Makefile:2: test] Killed\nmake: *** [Makefile:9: all] Error 2",
        "SIGKILL",
    ),
    "make, an assertion": (2, "make: *** [Makefile:2: test] Aborted (core dumped)", ""),
    "make, after a dot of a test": (2, ".make: *** [Makefile:3: test] Killed", "SIGKILL"),
    "make, of a shell": (2, "Killed\nmake: *** [Makefile:3: test] Error 137", "SIGKILL"),
    "tox": (1, ".a: exit -9 (0.62 seconds) /x> python -m unittest pid=1\n  a: FAIL code -9", "SIGKILL"),
    "nox": (1, "tests/test_a.py .nox > Command pytest tests failed with exit code -9", "SIGKILL"),
    "npm": (1, "npm error code ELIFECYCLE\nnpm error signal SIGTERM\nnpm error command sh -c mocha", "SIGTERM"),
    "cargo": (101, "  process didn't exit successfully: `target/x` (signal: 9, SIGKILL: kill)", "SIGKILL"),
    "cargo, a wild pointer": (101, "  process didn't exit successfully: `x` (signal: 11, SIGSEGV: invalid)", ""),
    "go": (1, "signal: killed\nFAIL\texample.com/x\t0.012s\nFAIL", "SIGKILL"),
    "a test that speaks of it": (1, "x_test.go:5: signal: killed\nFAIL", ""),
    "long before the end": (1, "signal: killed\n" + "a test fails\n" * 40, ""),
    "in spite of it all is well": (0, "make: *** [Makefile:2: test] Killed (ignored)", ""),
}


@pytest.mark.promise("evidence.killed-test")
@pytest.mark.parametrize(("code", "tail", "name"), STRUCK.values(), ids=STRUCK.keys())
def test_a_run_that_was_killed_from_outside_has_no_result(code: int, tail: str, name: str) -> None:
    assert killed_by(code, tail) == name
    assert (colour_of("exited", code, tail) is Colour.NO_RESULT) is bool(name)
    assert colour_of("timeout", code, tail) is Colour.TIMED_OUT


@pytest.mark.parametrize(
    "tail",
    [
        "No tests found, exiting with code 1\n",
        "No test files found, exiting with code 1\n",
        'Error: No test files found: "test"\n',
        "no tests ran in 0.01s\nmake: *** [Makefile:2: test] Error 5\n",
    ],
)
def test_a_runner_that_fails_for_want_of_tests_is_empty(tail: str) -> None:
    assert colour_of("exited", 1, tail) is Colour.EMPTY
    assert colour_of("exited", 1, "x", report=TestReport()) is Colour.RED


def test_only_an_exit_with_zero_can_be_green() -> None:
    greens = [(why, code) for why, code, tail, _ in RUNS.values() if colour_of(why, code, tail) is Colour.GREEN]
    assert set(greens) == {("exited", 0)}


UNITTEST, PYTEST = "python3 -m unittest discover -s tests", ".venv/bin/pytest -q"
SHOWN: dict[str, tuple[str, str, Colour]] = {
    "unittest, ended by the code": (UNITTEST, "", Colour.EMPTY),
    "unittest, ended on the way": (UNITTEST, "..", Colour.EMPTY),
    "unittest, counted": (UNITTEST, ".\n---\nRan 1 test in 0.000s\n\nOK\n", Colour.GREEN),
    "unittest, failed and turned to 0": (UNITTEST, "F\nRan 1 test in 0.000s\n\nFAILED (failures=1)\n", Colour.RED),
    "unittest, a run within": (UNITTEST, "FAILED (errors=1)\nRan 1 test in 0.000s\n\nOK\n", Colour.GREEN),
    "pytest, ended by the code": (PYTEST, "", Colour.EMPTY),
    "pytest, ended on the way": ("python3 -m pytest", "collected 2 items\n\ntests/test_a.py .", Colour.EMPTY),
    "pytest, counted": (PYTEST, "..   [100%]\n2 passed in 0.01s\n", Colour.GREEN),
    "pytest, counted in full": (PYTEST, "=== 1 skipped, 2 xfailed, 1 warning in 61.20s (0:01:01) ===", Colour.GREEN),
    "pytest, without counts": ("uv run pytest -qq", "s..    [100%]\n", Colour.GREEN),
    "pytest, all skipped without counts": ("uv run pytest -qq", "ss    [100%]\n", Colour.EMPTY),
    "pytest, failed and turned to 0": (PYTEST, "1 failed, 2 passed in 0.01s\n", Colour.RED),
    "a target of that name": ("make unittest", "", Colour.GREEN),
    "a script of that name": ("sh tests/pytest.sh", "", Colour.GREEN),
    "go, nothing shown": ("go test ./...", "", Colour.EMPTY),
    "Maven, quiet": ("make test\nmvn -q test", "", Colour.EMPTY),
    "Maven, all skipped": ("mvn test", "[WARNING] Tests run: 2, Failures: 0, Errors: 0, Skipped: 2\n", Colour.EMPTY),
    "Maven, counted": ("mvn test", "[INFO] Tests run: 2, Failures: 0, Errors: 0, Skipped: 1\n", Colour.GREEN),
    "Gradle without sources": ("./gradlew test", "> Task :test NO-SOURCE\nBUILD SUCCESSFUL\n", Colour.EMPTY),
    "rspec, all pending": ("bundle exec rspec", "2 examples, 0 failures, 2 pending\n", Colour.EMPTY),
    "rspec, counted": ("bundle exec rspec", "2 examples, 0 failures\n", Colour.GREEN),
    "phpunit, none": ("vendor/bin/phpunit", "No tests executed!\n", Colour.EMPTY),
    "phpunit, counted": ("vendor/bin/phpunit", "OK (2 tests, 3 assertions)\n", Colour.GREEN),
    "dotnet, counted": ("dotnet test", "Passed!  - Failed:     0, Passed:     2, Skipped:     0\n", Colour.GREEN),
    "dotnet, nothing shown": ("dotnet test", "No test is available in x.dll\n", Colour.EMPTY),
    "mix, all skipped": ("mix test", "2 tests, 0 failures, 2 skipped\n", Colour.EMPTY),
    "mix, counted": ("mix test", "1 doctest, 2 tests, 0 failures\n", Colour.GREEN),
    "minitest, none": ("rake test", "0 runs, 0 assertions, 0 failures, 0 errors, 0 skips\n", Colour.EMPTY),
    "minitest, all skipped": ("rake test", "2 runs, 0 assertions, 0 failures, 0 errors, 2 skips\n", Colour.EMPTY),
    "minitest, counted": ("rake test", "2 runs, 3 assertions, 0 failures, 0 errors, 0 skips\n", Colour.GREEN),
    "dotnet, in its new words": (
        "dotnet test",
        "Test summary: total: 3, failed: 0, succeeded: 3, skipped: 0, duration: 1.2s\n",
        Colour.GREEN,
    ),
    "dotnet, all skipped": (
        "dotnet test",
        "Test summary: total: 2, failed: 0, succeeded: 0, skipped: 2, duration: 1.2s\n",
        Colour.EMPTY,
    ),
    "swift, counted": ("swift test", "\t Executed 3 tests, with 0 failures (0 unexpected) in 0.002 s\n", Colour.GREEN),
    "swift, none": ("swift test", "\t Executed 0 tests, with 0 failures (0 unexpected) in 0.000 s\n", Colour.EMPTY),
    "dart, counted": ("dart test", "00:01 +3: All tests passed!\n", Colour.GREEN),
    "flutter, ended by the code": ("flutter test", "00:01 +0: loading\n", Colour.EMPTY),
    "ava, counted": ("npx ava", "  2 tests passed\n", Colour.GREEN),
    "deno, counted": ("deno test", "ok | 2 passed | 0 failed (5ms)\n", Colour.GREEN),
    "deno, none": ("deno test", "ok | 0 passed | 0 failed (5ms)\n", Colour.EMPTY),
}


@pytest.mark.parametrize(("command", "tail", "colour"), SHOWN.values(), ids=SHOWN.keys())
def test_a_known_runner_is_green_only_if_it_shows_tests(command: str, tail: str, colour: Colour) -> None:
    assert colour_of("exited", 0, tail, command) is colour
