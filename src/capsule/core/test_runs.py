"""How a run of the test command is read, where its exit code and its words are all there is.

A run is green because it shows that tests ran, not only because it ended with 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from capsule.core.evidence import Colour

# Strings: most runs need few of them, and `re` remembers what it has compiled.
_COLOURING = r"\x1b\[[\d;]*m"
_NOTHING_RAN = (
    r"(?m)^Ran 0 tests in ",
    r"(?m)^NO TESTS RAN\b",
    r"(?m)no tests ran in ",
    r"(?m)^collected 0 items\s*$",
    r"(?m)^(?:=+ )?\d+ deselected(?:, \d+ warnings?)? in ",
)
_PYTEST_RAN = r"(?m)^[= ]*(?:\d+ [\w ]+, )*[1-9]\d* (?:passed|failed|xfailed|xpassed)\b"
_SOMETHING_RAN = (
    r"(?m)^ok\s+\S+\s+[\d.(]",
    r"(?m)^running [1-9]\d* tests?",
    r"(?m)^ *Tests:? .*\b[1-9]\d* (?:passed|failed)\b",
    r"(?m)^ +[1-9]\d* passing\b",
    _PYTEST_RAN,
)
_ONLY_EMPTY = (
    r"\[no test files\]",
    r"(?m)^running 0 tests",
    r"\[no tests to run\]",
    r"(?m)^(?:=+ )?\d+ skipped(?:, \d+ \w+)* in ",
    r"(?m)^ *Tests:? +(?:\d+ (?:skipped|todo)\b|0 total)",
    r"(?m)^ +0 passing\b",
)
_UNITTEST_RAN = r"\bRan (\d+) tests? in "
_UNITTEST_SKIPPED = r"(?m)^OK \(.*?\bskipped=(\d+)"
_PYTHON_RUNNER = r"-m\s*unittest\b|(?:^|[\s/;&|(\"'])(?:pytest|py\.test)(?=$|[\s;&|)\"'])"
_PYTHON_SHOWS_A_TEST = (
    # code under test can end the runner with 0 before it has run anything; these counts come after the tests
    r"\bRan [1-9]\d* tests? in ",
    _PYTEST_RAN,
    # `pytest -qq` leaves the counts out and shows only how far it is
    r"(?m)^[sxXFER]*[.xX][.sxXFER]* +\[ *\d+%\]",
)
_PYTHON_VERDICT = r"(?m)^(?:OK|FAILED)(?: \(.*\))?$|^(?:=+ )?\d+ (?:passed|failed|errors?|skipped)\b.* in [\d.]+s"


# Signals that come from outside: the kernel short of memory, a limit, an operator, a machine that shuts down. A program
# that ends itself with SIGABRT or SIGSEGV is another matter: that is how an assertion in C fails.
_FROM_OUTSIDE = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 15: "SIGTERM", 24: "SIGXCPU"}
_SHELLS_SAY = 128
_LAST_LINES = 20
# How runners tell of a child that was killed; their own exit code does not. The group is the signal, in their words.
_CHILD_KILLED = (
    r"^g?make(?:\[\d+\])?: \*\*\* \[.*\] (Hangup|Interrupt|Quit|Killed|Terminated|CPU time limit exceeded)",
    r"^npm (?:ERR!|error) signal (SIG[A-Z]+)$",
    r"^ *process didn't exit successfully: .* \(signal: \d+, (SIG[A-Z]+)\b",
    r"^signal: (hangup|interrupt|quit|killed|terminated|CPU time limit exceeded)$",
)
_SIGNALS_IN_WORDS = {
    **{"hangup": 1, "interrupt": 2, "quit": 3, "killed": 9, "terminated": 15, "cpu time limit exceeded": 24},
    **{name.lower(): number for number, name in _FROM_OUTSIDE.items()},
}


def killed_by(exit_code: int | None, tail: str) -> str:
    """Return the name of the signal from outside that ended a command, or what it had started; '' if none.

    A shell, and a sandbox, say 128 and the number. A runner whose exit code is the number of tests that failed says
    so in its last lines, too.
    """
    if not exit_code:
        return ""
    lines = re.sub(_COLOURING, "", tail).splitlines()[-_LAST_LINES:]
    name = _FROM_OUTSIDE.get(exit_code - _SHELLS_SAY, "")
    if name:
        return "" if any(re.search(rf"\b{exit_code} fail", line) for line in lines) else name
    found = (match[1] for line in lines for pattern in _CHILD_KILLED if (match := re.match(pattern, line)))
    return next((_FROM_OUTSIDE[number] for word in found if (number := _SIGNALS_IN_WORDS.get(word.lower(), 0))), "")


def colour_of(why: str, exit_code: int | None, tail: str, command: str = "") -> Colour:
    """Read a run of the test command; not run, skipped or timed out is never green, nothing ran is empty."""
    if why in ("timeout", "idle"):
        return Colour.TIMED_OUT
    if why != "exited" or exit_code is None or exit_code in (126, 127):
        return Colour.NOT_RUN
    if killed_by(exit_code, tail):
        return Colour.NO_RESULT
    text = re.sub(_COLOURING, "", tail)
    if exit_code in (0, 5) and _any(_NOTHING_RAN, text):
        return Colour.EMPTY
    python = bool(re.search(_PYTHON_RUNNER, command))
    # Code under test can turn the exit code into 0 by an exit hook; the runner's last verdict stands before that.
    verdicts = re.findall(_PYTHON_VERDICT, text) if python else []
    if exit_code != 0 or (verdicts and re.search(r"FAILED|\d (?:failed|errors?)\b", verdicts[-1])):
        return Colour.RED
    ran, skipped = (sum(map(int, re.findall(counts, text))) for counts in (_UNITTEST_RAN, _UNITTEST_SKIPPED))
    only_skipped = (_any(_ONLY_EMPTY, text) or 0 < ran <= skipped) and not _any(_SOMETHING_RAN, text)
    shows_no_test = python and not _any(_PYTHON_SHOWS_A_TEST, text)
    return Colour.EMPTY if shows_no_test or only_skipped else Colour.GREEN


def _any(patterns: Sequence[str], text: str) -> bool:
    return any(re.search(pattern, text) for pattern in patterns)
