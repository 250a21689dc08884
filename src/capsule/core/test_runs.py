"""Read a run of the test command by its exit code and what it printed.

A run is green if it shows that tests ran, not only by exit code 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from capsule.core.evidence import Colour
from capsule.core.test_report import TestReport

# Strings: most runs need few of them, and `re` remembers what it has compiled.
_COLOURING = r"\x1b\[[\d;]*m"
_NOTHING_RAN = (
    r"(?m)^Ran 0 tests in ",
    r"(?m)^NO TESTS RAN\b",
    r"(?m)no tests ran in ",
    r"(?m)^collected 0 items\s*$",
    r"(?m)^(?:=+ )?\d+ deselected(?:, \d+ warnings?)? in ",
)
_NONE_FOUND = (
    # Runners that fail where there is no test: nothing is broken by that.
    r"(?m)^No tests found, exiting with code 1$",  # jest
    r"(?m)^No test files found, exiting with code 1$",  # vitest
    r"(?m)^ *Error: No test files found",  # mocha
    r"(?m)^Could not find '[^']*'$",  # node
    r"(?m)^nox > Command .* failed with exit code 5\b",
    r"(?m)^error: no tests to run$",  # nextest
    r"(?m)^No tests were found!!!$",  # ctest
    r"(?m)^No tests executed!$",  # phpunit
    r"(?m)^error: No test modules found$",  # deno
    r"(?m)^There are no tests to run$",  # mix
)
_PYTEST_RAN = r"(?m)^[= ]*(?:\d+ [\w ]+, )*[1-9]\d* (?:passed|failed|xfailed|xpassed)\b"
_SHOWS_A_TEST = (
    # Of a runner that we know: what it prints when a test has run to its end. Code under test can end the runner with 0
    # before it has run anything; these counts come after the tests.
    _PYTEST_RAN,
    # `pytest -qq` leaves the counts out and shows only how far it is
    r"(?m)^[sxXFER]*[.xX][.sxXFER]* +\[ *\d+%\]",
    r"(?m)^ok\s+[^|\s]\S*\s+[\d.(](?!.*\[no tests to run\])",  # go
    r"(?m)^test result: ok\. [1-9]\d* passed",  # cargo
    r"(?m)^ +Summary \[.*\b[1-9]\d* passed",  # nextest
    r"(?m)^[ℹ#] pass [1-9]",  # node
    r"(?m)^ *Tests:? .*\b[1-9]\d* (?:passed|failed)\b",  # jest, vitest
    r"(?m)^ +[1-9]\d* passing\b",  # mocha
    r"(?m)^100% tests passed, 0 tests failed out of [1-9]",  # ctest
    r"(?m)^OK \([1-9]\d* tests?, \d+ assertions?\)",  # phpunit
    r"\bFailed: +0, Passed: +[1-9]|\bfailed: 0, succeeded: [1-9]",  # dotnet
    r"(?m)^ok \| [1-9]\d* passed",  # deno
    r"(?m)^ *[1-9]\d* pass$",  # bun
    r"(?m)^ *[1-9]\d* tests? passed$",  # ava
    r"(?m)^[ \t]*Executed [1-9]\d* tests?, with (?:\d+ tests? skipped and )?0 failures",  # swift
    r"\bTest run with [1-9]\d* tests?.* passed after ",
    r"(?m)^\d\d:\d\d \+[1-9]\d*(?: ~\d+)?: All tests passed!",  # dart, flutter
)
_COUNTS = (
    # How many ran, and how many of them were skipped.
    (r"\bRan (\d+) tests? in ", r"(?m)^OK \(.*?\bskipped=(\d+)"),  # unittest
    (
        r"(?m)^\S*[ \t]*Tests run: (\d+), Failures: 0, Errors: 0, Skipped: \d+[ \t]*$",
        r"Errors: 0, Skipped: (\d+)\s*$",
    ),  # Maven
    (r"(?m)^(\d+) examples?, 0 failures", r"(?m)^\d+ examples?, 0 failures, (\d+) pending"),  # rspec
    (r"(?m)^(?:\d+ \w+, )*?(\d+) tests?, 0 failures", r"(?m), 0 failures(?:, \d+ excluded)?, (\d+) skipped"),  # mix
    (
        r"(?m)^(\d+) (?:runs|tests), \d+ assertions, 0 failures, 0 errors",
        r", 0 errors, (\d+) (?:skips|pendings)",
    ),  # minitest
    (r"(?m)^Tests: (\d+), Assertions: \d+(?=.*\.$)", r"(?m)^Tests: \d+, Assertions: \d+.*\bSkipped: (\d+)"),  # phpunit
)
_ONLY_EMPTY = (
    r"\[no test files\]",
    r"(?m)^running 0 tests",
    r"\[no tests to run\]",
    r"(?m)^(?:=+ )?\d+ skipped(?:, \d+ \w+)* in ",
    r"(?m)^ *Tests:? +(?:\d+ (?:skipped|todo)\b|0 total)",
    r"(?m)^ +0 passing\b",
    r"(?m)^No tests were found!!!$",
    r"(?m)^[ℹ#] pass 0$",
    r"(?m)^test result: ok\. 0 passed",
    r"(?m)^0 (?:runs|tests), 0 assertions\b",
)
_PYTHON_RUNNER = r"-m\s*unittest\b|(?:^|[\s/;&|(\"'])(?:pytest|py\.test)(?=$|[\s;&|)\"'])"
_PYTHON_VERDICT = r"(?m)^(?:OK|FAILED)(?: \(.*\))?$|^(?:=+ )?\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.]+s"
_START, _END = r"(?:^|[\s/;&|(\"'@])", r"(?=$|[\s;&|)\"'])"
_KNOWN_RUNNERS = (
    _PYTHON_RUNNER,
    rf"{_START}(?:tox|nox|jest|vitest|mocha|ctest|rspec|phpunit|ava|pest){_END}",
    rf"{_START}manage\.py\s+test{_END}",
    rf"{_START}go\s+test{_END}",
    rf"{_START}cargo\s+(?:\+\S+\s+)?(?:test|t|nextest){_END}",
    rf"{_START}node\s[^;&|\n]*--test{_END}",
    rf"{_START}(?:mvn|mvnw|mvnd|gradle|gradlew)\s[^;&|\n]*\b(?:test|verify|check|build|package|install)\b",
    rf"{_START}(?:dotnet|mix|deno|bun|swift|flutter|dart)\s+test{_END}",
)
"""Commands that show a count if they ran a test. Without a count they ran none, with any exit code."""

# Signals that come from outside: the kernel short of memory, a limit, an operator, a machine that shuts down. A program
# that ends itself with SIGABRT or SIGSEGV is another matter: that is how an assertion in C fails.
_FROM_OUTSIDE = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 15: "SIGTERM", 24: "SIGXCPU"}
_SHELLS_SAY = 128
_SHELL_CANNOT = (126, 127)
_NO_RUNNER = re.compile(r"No module named '?(?:pytest|nox|tox|django)\b|(?:command )?not found$", re.MULTILINE)
_LAST_LINES = 20
# How runners tell of a child that was killed; their own exit code does not. The group is the signal, in their words.
_CHILD_KILLED = (
    # what a test printed may stand before it on its line
    r"^.*\bg?make(?:\[\d+\])?: \*\*\* \[.*\] (Hangup|Interrupt|Quit|Killed|Terminated|CPU time limit exceeded)",
    r"^.*\bg?make(?:\[\d+\])?: \*\*\* \[.*\] Error (1\d\d)$",
    r"^npm (?:ERR!|error) signal (SIG[A-Z]+)$",
    r"^ *process didn't exit successfully: .* \(signal: \d+, (SIG[A-Z]+)\b",
    r"^signal: (hangup|interrupt|quit|killed|terminated|CPU time limit exceeded)$",
    r"^.*: exit -(\d+) \([\d.]+ seconds\)",  # tox
    r"^.*\bnox > Command .* failed with exit code -(\d+)",
)
_SIGNALS_IN_WORDS = {
    **{"hangup": 1, "interrupt": 2, "quit": 3, "killed": 9, "terminated": 15, "cpu time limit exceeded": 24},
    **{name.lower(): number for number, name in _FROM_OUTSIDE.items()},
    **{str(number): number for number in _FROM_OUTSIDE},
    **{str(_SHELLS_SAY + number): number for number in _FROM_OUTSIDE},
}


def killed_by(exit_code: int | None, tail: str) -> str:
    """Return the name of the outside signal that ended a command or its child; '' if none.

    A shell, and a sandbox, say 128 and the number. A runner whose exit code is the number of tests that failed says so
    in its last lines, too.
    """
    if not exit_code:
        return ""
    lines = re.sub(_COLOURING, "", tail).splitlines()[-_LAST_LINES:]
    name = _FROM_OUTSIDE.get(exit_code - _SHELLS_SAY, "")
    if name:
        return "" if any(re.search(rf"\b{exit_code} fail", line) for line in lines) else name
    found = (match[1] for line in lines for pattern in _CHILD_KILLED if (match := re.match(pattern, line)))
    return next((_FROM_OUTSIDE[number] for word in found if (number := _SIGNALS_IN_WORDS.get(word.lower(), 0))), "")


def missing_runner(exit_code: int | None, tail: str) -> str:
    """Return the line that says why a test command, or the runner that it starts, cannot be run; '' if it ran."""
    if exit_code not in _SHELL_CANNOT and not _NO_RUNNER.search(tail):
        return ""
    return last_line(tail) or "it printed nothing"


def last_line(tail: str) -> str:
    return next((line.strip() for line in reversed(tail.splitlines()) if line.strip()), "")


def colour_of(
    why: str, exit_code: int | None, tail: str, command: str = "", report: TestReport | None = None
) -> Colour:
    """Read a run of the test command; not run, skipped or timed out is never green, nothing ran is empty.

    Results by name count more than the exit code. Without them a run of a runner that we know is green only if it shows
    a count. `command` is what ran, with all that it reaches (`frozen.commands_behind`).
    """
    if why in ("timeout", "idle"):
        return Colour.TIMED_OUT
    if why != "exited" or exit_code is None or exit_code in (126, 127):
        return Colour.NOT_RUN
    if killed_by(exit_code, tail):
        return Colour.NO_RESULT
    text, report = re.sub(_COLOURING, "", tail), report or TestReport()
    return _by_name(exit_code, text, report) or _by_output(exit_code, text, command, known=bool(report.begun))


def _by_name(exit_code: int, text: str, report: TestReport) -> Colour | None:
    """Read a run that reported its tests by name; None where only its exit code is known."""
    if report.red or report.errors or report.cut_short:
        return Colour.RED
    nothing = _any(_NONE_FOUND, text) or (_any(_NOTHING_RAN, text) and not re.search(r"(?m)^ERROR\b", text))
    if not report.results and nothing:
        return Colour.EMPTY
    if not report.complete:
        return None
    red = exit_code not in (0, _NO_TESTS)
    return Colour.RED if red else Colour.GREEN if report.passed else Colour.EMPTY


_NO_TESTS = 5
"""How pytest and unittest end without tests."""


def _by_output(exit_code: int, text: str, command: str, *, known: bool) -> Colour:
    if exit_code in (0, _NO_TESTS) and _any(_NOTHING_RAN, text):
        return Colour.EMPTY
    # Code under test can turn the exit code into 0 by an exit hook; the runner's last verdict stands before that.
    verdicts = re.findall(_PYTHON_VERDICT, text) if re.search(_PYTHON_RUNNER, command) else []
    if exit_code != 0 or (verdicts and re.search(r"FAILED|\d (?:failed|errors?)\b", verdicts[-1])):
        return Colour.RED
    counted = [[sum(map(int, re.findall(pattern, text))) for pattern in row] for row in _COUNTS if text]
    shown = _any(_SHOWS_A_TEST, text) or any(ran > skipped for ran, skipped in counted)
    if shown:
        return Colour.GREEN
    known = known or _any(_KNOWN_RUNNERS, command)
    return Colour.EMPTY if known or _any(_ONLY_EMPTY, text) or any(ran for ran, _ in counted) else Colour.GREEN


def _any(patterns: Sequence[str], text: str) -> bool:
    """Tell whether one of them matches; empty text matches none, so that none has to be compiled."""
    return bool(text) and any(re.search(pattern, text) for pattern in patterns)
