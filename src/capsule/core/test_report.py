"""Read the result of each test by name from a run of the test command.

Runners are asked for it through their environment (`instruments/`) and write one file per process; those that cannot be
asked are read from what they print. `read_report` puts all of it together. A report is **complete** if every invocation
in the output has reported its tests and ended by itself: a test that is not in a complete report did not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec


class Result(StrEnum):
    """How one test ended."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    """It failed, as its author said it would."""
    XPASSED = "xpassed"
    """It passed, although its author said it would fail."""


RED = (Result.FAILED, Result.ERRORED)
_WORST = (Result.PASSED, Result.XPASSED, Result.SKIPPED, Result.XFAILED, Result.ERRORED, Result.FAILED)
"""A test may be reported more than once (subtests, teardown): the result that is last here counts."""


def worst(results: Iterable[Result]) -> Result:
    return max(results, key=_WORST.index)


class LoadError(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file or package whose tests could not be loaded or compiled: none of them has a name."""

    where: str
    text: str = ""


class TestReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of each test of one run."""

    __test__ = False  # pytest takes a class with this name for tests

    results: dict[str, Result] = {}
    errors: tuple[LoadError, ...] = ()
    invocations: int = 0
    complete: bool = False
    """Every invocation in the output has reported its tests, and none was cut short."""
    cut_short: bool = False
    """An invocation began and did not end by itself."""
    begun: tuple[str, ...] = ()
    """Runners that were seen to start: one that shows no test has run none."""
    rewritten: tuple[str, ...] = ()
    """Tests that were not loaded as their files have them."""

    def names(self, *results: Result) -> list[str]:
        return [name for name, result in self.results.items() if result in results]

    @property
    def passed(self) -> list[str]:
        return self.names(Result.PASSED)

    @property
    def red(self) -> list[str]:
        return self.names(*RED)


class _Part(NamedTuple):
    """What one invocation of a test runner reported."""

    runner: str
    results: list[tuple[str, Result]]
    errors: list[LoadError]
    ended: bool
    rewritten: tuple[str, ...] = ()


def read_report(files: Mapping[str, str], output: str, junit: Iterable[str] = ()) -> TestReport:
    """Combine what the runners behind one command reported.

    `files` holds what each process wrote, by the name of its file; `output` is what the command printed; `junit` holds
    the XML that it left.
    """
    parts = [*_parts_of(files), *_cargo(output), *_nextest(output), *_ctest(output), *_deno(output)]
    parts += [part for text in junit if (part := _junit(text))]
    results: dict[str, Result] = {}
    for part in parts:
        for name, result in part.results:
            results[name] = worst((results.get(name, result), result))
    plain = _plain(output)
    shown = {name: len(re.findall(pattern, plain)) for name, pattern in _SHOWN.items()}
    told = {name: sum(part.runner == name for part in parts) for name in shown}
    begun = tuple(sorted({name.split("-")[1] for name in files if name.startswith("begun-")}))
    runners = {part.runner for part in parts}
    silent = (
        any(shown[name] > told[name] for name in shown) or not {_TELLS.get(each, each) for each in begun} <= runners
    )
    cut_short = not all(part.ended for part in parts)
    complete = bool(parts) and not silent and not cut_short
    errors = tuple(error for part in parts for error in part.errors)
    rewritten = tuple(dict.fromkeys(name for part in parts for name in part.rewritten))
    return TestReport(results, errors, len(parts), complete, cut_short, begun, rewritten)


def readable(output: str) -> str:
    """Return what a command printed, with the events of `go test -json` as the text they stand for."""
    if '"Action":' not in output:
        return output
    lines = []
    for line in output.splitlines(keepends=True):
        event = _json(line) if line.startswith("{") else None
        if event is not None and "Action" in event:
            lines.append(str(event.get("Output", "")))
        else:
            lines.append(line)
    return "".join(lines)


_TELLS = {"mvn": "junit", "gradle": "junit"}
"""Runners that were seen to start, and the format of their reports."""
_SHOWN = {
    # Closing lines that only a run prints. One that shows here and told nothing makes a report incomplete.
    "pytest": r"(?m)^(?:=+ )?(?:\d+ \w+, )*\d+ (?:passed|failed|errors?|skipped)\b[^\n]* in [\d.]+s",
    "unittest": r"(?m)^Ran \d+ tests? in [\d.]+s$",
    "jest": r"(?m)^Test Suites: .*\d+ total$",
    "vitest": r"(?m)^ *Test Files  .*\(\d+\)$",
    "mocha": r"(?m)^  \d+ passing \(",
    "cargo": r"(?m)^test result: ",
    "go": r"(?m)^(?:ok|FAIL)\s+\S+\s+[\d.]+s",
    "node": r"(?m)^[ℹ#] tests \d+$",
    "junit": r"(?m)^\S*[ \t]*Tests run: \d+, Failures: \d+, Errors: \d+, Skipped: \d+[ \t]*$",
    "ctest": r"(?m)^\d+% tests passed, \d+ tests failed out of \d+$",
    "rspec": r"(?m)^\d+ examples?, \d+ failures?\b",
    "phpunit": r"(?m)^(?:OK \(\d+ tests?, \d+ assertions?\)|Tests: \d+, Assertions: \d+)",
    "mix": r"(?m)^(?:\d+ \w+, )*\d+ tests?, \d+ failures?\b",
    "deno": r"(?m)^(?:ok|FAILED) \| \d+ passed\b",
}
_COLOURS = r"\x1b\[[\d;]*m"


def _plain(output: str) -> str:
    return re.sub(_COLOURS, "", output)


def _json(line: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _rows(text: str) -> Iterator[dict[str, Any]]:
    return (row for line in text.splitlines() if (row := _json(line)) is not None)


def _parts_of(files: Mapping[str, str]) -> Iterator[_Part]:
    """Read what our own recorders wrote, and the events of `go test`."""
    for name, text in sorted(files.items()):
        if name.endswith(".jsonl"):
            rows = list(_rows(text))
            runner = next((str(row["runner"]) for row in rows if "runner" in row), "")
            told = [row for row in rows if "test" in row and row.get("result") in Result.__members__.values()]
            results = [(str(row["test"]), Result(row["result"])) for row in told]
            errors = [LoadError(str(row["error"]), str(row.get("text", ""))) for row in rows if "error" in row]
            rewritten = tuple(str(row["rewritten"]) for row in rows if "rewritten" in row)
            yield _Part(runner, results, errors, any("ended" in row for row in rows), rewritten)
        elif name.startswith("go-") and not name.endswith(".ended"):
            yield _go(text, ended=f"{name}.ended" in files)
        elif name.endswith(".xml"):  # made empty when its runner began, and filled when that came to its end
            runner = name.partition("-")[0]
            yield _junit(text, runner) or _Part(runner, [], [], ended=False)


_GO = {"pass": Result.PASSED, "fail": Result.FAILED, "skip": Result.SKIPPED}


def _go(text: str, *, ended: bool) -> _Part:
    results, errors, output = [], [], dict[str, str]()
    open_tests: dict[str, None] = {}
    for row in _rows(text):
        package = str(row.get("Package") or row.get("ImportPath") or "").partition(" ")[0]
        action, test = row.get("Action"), row.get("Test")
        if action in ("output", "build-output"):
            output[package] = (output.get(package, "") + str(row.get("Output", "")))[-4000:]
        if test:
            name = f"{package}::{test}"
            if action == "run":
                open_tests[name] = None
            elif action in _GO:
                open_tests.pop(name, None)
                results.append((name, _GO[action]))
        elif action == "build-fail" or (action == "fail" and "[build failed]" in output.get(package, "")):
            errors.append(LoadError(package.removesuffix(".test"), output.get(package, "")))
    results += [(name, Result.ERRORED) for name in open_tests]
    unique = {error.where.removesuffix("_test"): error for error in reversed(errors)}
    return _Part("go", results, list(unique.values()), ended)


_CARGO_TARGET = r"^ +(?:Running (?:unittests )?(\S+) \(\S*?([^/\\\s]+?)-[0-9a-f]{16}(?:\.exe)?\)|Doc-tests (\S+))$"
_NO_TARGET = "     Running the-end (end-0000000000000000)"
_CARGO_BEGIN = r"^running \d+ tests?$"
_CARGO_TEST = r"^test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)(?:,.*)?$"
_DOCTEST_LINE = r" \(line \d+\)$"
_CARGO_END = r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored"
_SAID = {"ok": Result.PASSED, "FAILED": Result.FAILED, "ignored": Result.SKIPPED}
"""How libtest and deno say it."""
_RUSTC_ERROR = r"(?m)^error(?:\[E\d+\])?: .*\n(?:.*\n)*? *--> ([^\s:]+):\d+"


def _cargo(output: str) -> Iterator[_Part]:
    """Read the lines of libtest: one part for each test binary."""
    text = _plain(output)
    if "Nextest run" in text:
        return
    failed = {*re.findall(r"^ +`(?:-p \S+ )?--(?:test|bin) (\S+)`$", text, re.MULTILINE)}
    target, results, running = "", list[tuple[str, Result]](), False
    for line in (*text.splitlines(), _NO_TARGET):
        if found := re.match(_CARGO_TARGET, line):
            if running:  # it began to run tests and reported no result: it crashed
                yield _Part("cargo", results, [], ended=False)
            elif target:  # a binary without libtest: one test, as cargo sees it
                word = Result.FAILED if target.partition(":")[0] in failed else Result.PASSED
                yield _Part("cargo", [(f"{target}::main", word)], [], ended=True)
            target, results, running = f"{found[2]}:{found[1]}" if found[1] else f"{found[3]}:doc", [], False
        elif re.match(_CARGO_BEGIN, line):
            results, running = [], True
        elif found := re.match(_CARGO_TEST, line):
            results.append((f"{target}::{re.sub(_DOCTEST_LINE, '', found[1])}", _SAID[found[2]]))
        elif found := re.match(_CARGO_END, line):  # `-q` prints dots instead of names
            yield _Part("cargo", results, [], ended=len(results) == sum(map(int, found.groups())))
            target, results, running = "", [], False
    if "error: could not compile" in text:
        errors = [LoadError(found[1], found[0]) for found in re.finditer(_RUSTC_ERROR, text)]
        yield _Part("rustc", [], errors or [LoadError("", "error: could not compile")], ended=True)


_NEXTEST = r"^ +(PASS|FAIL|SKIP|SIGABRT|SIGSEGV|TIMEOUT|LEAK) +\[[^\]]*\] +(?:\(\d+/\d+\) +)?(\S+) (\S+)$"


def _nextest(output: str) -> Iterator[_Part]:
    if "Nextest run ID" not in output:
        return
    rows = [found for line in _plain(output).splitlines() if (found := re.match(_NEXTEST, line))]
    words = {"PASS": Result.PASSED, "LEAK": Result.PASSED, "SKIP": Result.SKIPPED}
    results = [(f"{found[2]}::{found[3]}", words.get(found[1], Result.FAILED)) for found in rows]
    yield _Part("nextest", results, [], ended=re.search(r"^ +Summary \[", _plain(output), re.MULTILINE) is not None)


_CTEST = (
    r"^ *\d+/\d+ Test +#\d+: (.+?) \.*(?: +|\*\*\*)"
    r"(Passed|Failed|Skipped|Not Run(?: \(Disabled\))?|Timeout|(?:Exception|SEGFAULT|Subprocess|Child).*?) +[\d.]+ sec"
)
_CTEST_WORDS = {"Passed": Result.PASSED, "Skipped": Result.SKIPPED, "Not Run (Disabled)": Result.SKIPPED}


def _ctest(output: str) -> Iterator[_Part]:
    if "Test project " not in output:
        return
    text = _plain(output)
    for piece in re.split(r"^Test project [^\n]*\n", text, flags=re.MULTILINE)[1:]:
        rows = [found for line in piece.splitlines() if (found := re.match(_CTEST, line))]
        results = [(f"ctest::{found[1]}", _CTEST_WORDS.get(found[2], Result.FAILED)) for found in rows]
        ended = re.search(_SHOWN["ctest"], piece) is not None or "No tests were found" in piece
        yield _Part("ctest", results, [], ended)


_DENO_BEGIN = r"^running \d+ tests? from (\S+)$"
_DENO_TEST = r"^( *)(.+?) \.\.\.(?: (ok|FAILED|ignored)\b.*)?$"
_DENO_END = r"^(?:ok|FAILED) \| (\d+) passed(?: \([^)]*\))? \| (\d+) failed(?: \([^)]*\))?(?: \| (\d+) ignored)?"


def _deno(output: str) -> Iterator[_Part]:
    """Read the lines of `deno test`, each file below its name; steps stand indented below their test."""
    if "running " not in output or " ... " not in output:
        return
    place, results, errors, printing = "", list[tuple[str, Result]](), list[LoadError](), False
    for line in _plain(output).splitlines():
        if line in ("------- output -------", "----- output end -----"):
            printing = line.endswith("output -------") and "end" not in line
        elif found := re.match(_DENO_BEGIN, line):
            place, printing = found[1].removeprefix("./"), False
        elif place and (found := re.match(r"^Uncaught error from (\S+) FAILED$", line)):
            errors.append(LoadError(found[1].removeprefix("./")))
        elif place and (found := re.match(_DENO_END, line)):
            told = sum(int(count or 0) for count in found.groups()) - len(errors)
            yield _Part("deno", results, errors, ended=len(results) == told)
            place, results, errors = "", [], []
        elif place and not printing and (found := re.match(_DENO_TEST, line)) and found[3] and not found[1]:
            results.append((f"{place}::{found[2]}", _SAID[found[3]]))
    if place:
        yield _Part("deno", results, errors, ended=False)


_DATA_SET = r" with data set (.*)$"
_RISKY = r"PHPUnit\\\w+\\RiskyTest\w*"


def _junit(text: str, runner: str = "junit") -> _Part | None:
    """Read JUnit XML, as Maven, Gradle, PHPUnit and many others write it."""
    from junitparser import Error, Failure, JUnitXml, Skipped  # noqa: PLC0415 - few projects write it

    try:
        suites = JUnitXml.fromstring(text.encode())
    except Exception:  # noqa: BLE001 - any fault of a file that an agent's code wrote
        return None
    marks = {Error: Result.ERRORED, Failure: Result.FAILED, Skipped: Result.SKIPPED}
    results = []
    for suite in suites if isinstance(suites, JUnitXml) else [suites]:
        for case in suite:
            kinds = {type(each) for each in case.result if not re.fullmatch(_RISKY, each.type or "")}
            result = next((result for kind, result in marks.items() if kind in kinds), Result.PASSED)
            name = re.sub(_DATA_SET, r"[\1]", case.name or "")
            results.append((f"{case.classname or suite.name or ''}::{name}", result))
    return _Part(runner, results, [], ended=True)
