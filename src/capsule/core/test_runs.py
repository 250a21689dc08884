"""How projects run their tests: what can be detected, which files are tests, and how a run is read.

All of it tables: an ecosystem is a row, and a project's own settings come before any of them.

Whoever may not bend a test may try to bend what judges it. So the runner's configuration, the scripts that the test
command names and modules that would stand in for the runner are test files too; and a run is green because it shows
that tests ran, not only because it ended with 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from capsule.core.evidence import Colour

Reader = Callable[[str], str]
"""The text of a file in the base, or '' where there is none."""


class Ecosystem(NamedTuple):
    name: str
    command: str
    globs: tuple[str, ...]
    present: Callable[[frozenset[str], Reader], bool]
    tests_in_sources: bool = False


# `python -m` looks in the current folder first: a module of the runner's name there is the runner.
_STANDING_IN_FOR_THE_RUNNER = (
    *("/unittest.py", "/unittest/**", "/pytest.py", "/pytest/**", "/_pytest/**"),
    *("/sitecustomize.py", "/sitecustomize/**", "/usercustomize.py", "/usercustomize/**"),
)
_PYTHON_TESTS = (
    *("test_*.py", "*_test.py", "tests/**", "test/**", "**/tests/**", "conftest.py"),
    *("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "setup.cfg", ".coveragerc"),
    *_STANDING_IN_FOR_THE_RUNNER,
)
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which make looks for them."""


def _uses_pytest(files: frozenset[str], read: Reader) -> bool:
    configured = (
        "pytest.ini" in files or "[tool.pytest" in read("pyproject.toml") or "[tool:pytest]" in read("setup.cfg")
    )
    return configured or any(name == "conftest.py" or name.endswith("/conftest.py") for name in files)


def _makefile(read: Reader) -> str:
    return next(filter(None, map(read, MAKEFILES)), "")


ECOSYSTEMS: tuple[Ecosystem, ...] = (
    Ecosystem("pytest", "python3 -m pytest -q", _PYTHON_TESTS, _uses_pytest),
    Ecosystem("go", "go test ./...", ("*_test.go", "testdata/**", "**/testdata/**"), lambda f, _: "go.mod" in f),
    Ecosystem(
        "cargo", "cargo test", ("tests/**", "**/tests/**"), lambda f, _: "Cargo.toml" in f, tests_in_sources=True
    ),
    Ecosystem(
        "npm",
        "npm test",
        (
            *("*.test.*", "*.spec.*", "__tests__/**", "**/__tests__/**", "test/**", "tests/**"),
            *("**/__snapshots__/**", "jest.config.*", "vitest.config.*", "*.mocharc.*"),
        ),
        lambda files, read: (
            "package.json" in files
            and bool(re.search(r'"test"\s*:\s*"(?!echo \\"Error: no test)', read("package.json")))
        ),
    ),
    Ecosystem(
        "make",
        "make test",
        (*_PYTHON_TESTS, "*_test.*", "*.test.*", "*.spec.*", "spec/**"),
        lambda _, read: bool(re.search(r"^test\s*:(?!=)", _makefile(read), re.MULTILINE)),
    ),
    Ecosystem(
        "unittest",
        "python3 -m unittest discover",
        _PYTHON_TESTS,
        lambda files, _: any(_basename(name).startswith("test") and name.endswith(".py") for name in files),
    ),
)
ANY_TESTS = tuple(dict.fromkeys(glob for row in ECOSYSTEMS for glob in row.globs))


def detect(files: Sequence[str], read: Reader) -> Ecosystem | None:
    """Return the first ecosystem that these files belong to."""
    names = frozenset(files)
    return next((row for row in ECOSYSTEMS if row.present(names, read)), None)


def detected_command(row: Ecosystem, files: Sequence[str]) -> str:
    """Return the test command; unittest must be started in a test folder that is no package."""
    for folder in ("tests", "test") if row.name == "unittest" else ():
        inside = any(name.startswith(f"{folder}/test") and name.endswith(".py") for name in files)
        if inside and f"{folder}/__init__.py" not in files:
            return f"{row.command} -s {folder}"
    return row.command


def globs_for(command: str, files: Sequence[str], read: Reader) -> tuple[tuple[str, ...], bool]:
    """Return test globs for a command given in the settings, and whether tests live inside source files."""
    for row in ECOSYSTEMS:
        if row.name in command.split() or command.startswith(row.command.split()[0] + " test"):
            return row.globs, row.tests_in_sources
    found = detect(files, read)
    return (found.globs, found.tests_in_sources) if found else (ANY_TESTS, False)


SHARED_CONFIGURATION = ("pyproject.toml", "package.json")
"""Files in which the runner's configuration stands beside what code may change: only `runner_part` is a test."""
_RUNNER_TABLES = ("pytest", "tox", "coverage")
_RUNNER_KEYS = ("jest", "mocha", "vitest")
_RUNNER_SCRIPTS = ("pretest", "test", "posttest")


def judges_of(command: str, files: Sequence[str], read: Reader) -> tuple[str, ...]:
    """Return globs of what a test command runs: files it names, directly or one step on, and the makefiles of make."""
    parts, commanded = [command], set(_words(command))
    if "make" in commanded:
        rules = re.findall(r"^([^\s:#=][^\n:#=]*):(?!=)[^\n]*\n((?:\t[^\n]*(?:\n|\Z))+)", _makefile(read), re.MULTILINE)
        recipes = [recipe for targets, recipe in rules if commanded & set(targets.split())]
        parts += [re.sub(r"^\t[-@+]+", "", recipe, flags=re.MULTILINE) for recipe in recipes]
    if re.search(r"\b(?:npm|yarn|pnpm)\b", command):
        scripts = _table(_parsed(json.loads, read("package.json")), "scripts")
        parts += [str(scripts[name]) for name in _RUNNER_SCRIPTS if name in scripts]
    text = "\n".join(parts)
    words = _words(text)
    folders = ("", *(f"{folder.strip('/')}/" for folder in re.findall(r"(?:\bcd|\s-C|--prefix)[\s=]+([\w./-]+)", text)))
    named = {folder + word for folder in folders for word in words} & set(files)
    files_named = [path for path in sorted(named) if _basename(path) not in SHARED_CONFIGURATION]
    exact = tuple("/" + re.sub(r"([*?[])", r"[\1]", path) for path in files_named)
    return exact + (MAKEFILES if "make" in words else ())


def _words(text: str) -> list[str]:
    """Split a command into words that may be paths."""
    return [word.removeprefix("./") for word in re.split(r"[\s;&|()<>{}`\"'=]+", text) if word]


def runner_part(path: str, text: str) -> str:
    """Return what a shared configuration file says to the test runner, normalized; '' if nothing.

    Of a file that cannot be read all is returned, so that a change in it is seen.
    """
    name = _basename(path)
    if name not in SHARED_CONFIGURATION:
        return ""
    import tomllib  # noqa: PLC0415 - few missions change such a file

    parsed = _parsed(tomllib.loads if name == "pyproject.toml" else json.loads, text)
    if parsed is None:
        return text
    if name == "pyproject.toml":
        part = {key: table for key, table in _table(parsed, "tool").items() if key.startswith(_RUNNER_TABLES)}
    else:
        scripts = _table(parsed, "scripts")
        part = {f"scripts.{key}": scripts[key] for key in _RUNNER_SCRIPTS if key in scripts}
        part |= {key: parsed[key] for key in _RUNNER_KEYS if key in parsed}
    return json.dumps(part, sort_keys=True, indent=1, default=str) if part else ""


def _parsed(loads: Callable[[str], Any], text: str) -> dict[str, Any] | None:
    try:
        parsed = loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _table(parsed: Mapping[str, Any] | None, name: str) -> dict[str, Any]:
    table = (parsed or {}).get(name)
    return table if isinstance(table, dict) else {}


def is_test(path: str, globs: Sequence[str]) -> bool:
    return any(matches(path, glob) for glob in globs)


def matches(path: str, glob: str) -> bool:
    """Match a glob: without a slash the name, with one the whole path (`**/` also matches nothing).

    A slash in front anchors it at the top: `/check.sh` is that one file.
    """
    if "/" not in glob:
        return fnmatchcase(_basename(path), glob)
    if glob.startswith("/"):
        return fnmatchcase(path, glob[1:])
    if glob.startswith("**/") and fnmatchcase(path, glob[3:]):
        return True
    return fnmatchcase(path, glob)


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


def _basename(path: str) -> str:
    return path.rsplit("/", 1)[-1]


_RUNNERS = r"(?:^|[;&|]\s*)((?:uv|poetry|pdm|pipenv|hatch|rye)\s+run)\s"
_PYTHON = r"(?:^|[\s;&|])((?:[\w./~-]+/)?(?:python|pypy)[\d.]*)(?=\s|$)"
_BESIDE = r"(?:^|[\s;&|])([\w./~-]+/)(?:pytest|py\.test|tox|nox)(?=\s|$)"


def interpreter_of(command: str) -> str:
    """Return the words that start it: as the command names it, beside its test runner, or the one on the PATH."""
    if runner := re.search(_RUNNERS, command):
        return f"{runner[1]} python"
    if named := re.search(_PYTHON, command):
        return named[1]
    if beside := re.search(_BESIDE, command):
        return f"{beside[1]}python"
    return "$(command -v python3 || command -v python)"
