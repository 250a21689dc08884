"""How projects run their tests: what can be detected, which files are tests, and how a run is read.

All of it tables: an ecosystem is a row, and a project's own settings come before any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from capsule.core.evidence import Colour

Reader = Callable[[str], str]
"""The text of a file in the base, or '' where there is none."""


class Ecosystem(NamedTuple):
    name: str
    command: str
    globs: tuple[str, ...]
    present: Callable[[frozenset[str], Reader], bool]
    tests_in_sources: bool = False


_PYTHON_TESTS = (
    "test_*.py",
    "*_test.py",
    "tests/**",
    "test/**",
    "**/tests/**",
    "conftest.py",
    "pytest.ini",
    "tox.ini",
    "setup.cfg",
)


def _uses_pytest(files: frozenset[str], read: Reader) -> bool:
    configured = (
        "pytest.ini" in files or "[tool.pytest" in read("pyproject.toml") or "[tool:pytest]" in read("setup.cfg")
    )
    return configured or any(name == "conftest.py" or name.endswith("/conftest.py") for name in files)


def _has_python_tests(files: frozenset[str], _: Reader) -> bool:
    return any(_basename(name).startswith("test") and name.endswith(".py") for name in files)


def _npm_test(files: frozenset[str], read: Reader) -> bool:
    return "package.json" in files and bool(
        re.search(r'"test"\s*:\s*"(?!echo \\"Error: no test)', read("package.json"))
    )


def _make_test(files: frozenset[str], read: Reader) -> bool:
    return "Makefile" in files and bool(re.search(r"^test\s*:(?!=)", read("Makefile"), re.MULTILINE))


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
        _npm_test,
    ),
    Ecosystem("make", "make test", (*_PYTHON_TESTS, "*_test.*", "*.test.*", "*.spec.*", "spec/**"), _make_test),
    Ecosystem("unittest", "python3 -m unittest discover", _PYTHON_TESTS, _has_python_tests),
)
ANY_TESTS = tuple(dict.fromkeys(glob for row in ECOSYSTEMS for glob in row.globs))


def detect(files: Sequence[str], read: Reader) -> Ecosystem | None:
    """The first ecosystem that is at home in these files."""
    names = frozenset(files)
    return next((row for row in ECOSYSTEMS if row.present(names, read)), None)


def detected_command(row: Ecosystem, files: Sequence[str]) -> str:
    """unittest finds nothing in a folder that is no package unless it is started there."""
    loose = [folder for folder in ("tests", "test") if _holds_loose_tests(folder, frozenset(files))]
    return f"{row.command} -s {loose[0]}" if row.name == "unittest" and loose else row.command


def _holds_loose_tests(folder: str, files: frozenset[str]) -> bool:
    inside = any(name.startswith(f"{folder}/test") and name.endswith(".py") for name in files)
    return inside and f"{folder}/__init__.py" not in files


def globs_for(command: str, files: Sequence[str], read: Reader) -> tuple[tuple[str, ...], bool]:
    """Test globs for a command given in the settings, and whether tests live inside source files."""
    for row in ECOSYSTEMS:
        if row.name in command.split() or command.startswith(row.command.split()[0] + " test"):
            return row.globs, row.tests_in_sources
    found = detect(files, read)
    return (found.globs, found.tests_in_sources) if found else (ANY_TESTS, False)


def is_test(path: str, globs: Sequence[str]) -> bool:
    return any(matches(path, glob) for glob in globs)


def matches(path: str, glob: str) -> bool:
    """A glob without a slash is about the name; with one, about the whole path (`**/` also matches nothing)."""
    if "/" not in glob:
        return fnmatchcase(_basename(path), glob)
    if glob.startswith("**/") and fnmatchcase(path, glob[3:]):
        return True
    return fnmatchcase(path, glob)


_NOTHING_RAN = (
    re.compile(r"^Ran 0 tests in ", re.MULTILINE),
    re.compile(r"^NO TESTS RAN\b", re.MULTILINE),
    re.compile(r"no tests ran in ", re.MULTILINE),
    re.compile(r"^collected 0 items\s*$", re.MULTILINE),
)
_SOMETHING_RAN = (
    re.compile(r"^ok\s+\S+\s+[\d.(]", re.MULTILINE),
    re.compile(r"^running [1-9]\d* tests?", re.MULTILINE),
)
_ONLY_EMPTY = (
    re.compile(r"\[no test files\]"),
    re.compile(r"^running 0 tests", re.MULTILINE),
    re.compile(r"\[no tests to run\]"),
)


def colour_of(why: str, exit_code: int | None, tail: str) -> Colour:
    """How a run of the test command is read. Not run, skipped or timed out is never green; nothing ran is empty."""
    if why in ("timeout", "idle"):
        return Colour.TIMED_OUT
    if why != "exited" or exit_code is None or exit_code in (126, 127):
        return Colour.NOT_RUN
    if any(pattern.search(tail) for pattern in _NOTHING_RAN) and exit_code in (0, 5):
        return Colour.EMPTY
    if exit_code == 0:
        only_empty = any(p.search(tail) for p in _ONLY_EMPTY) and not any(p.search(tail) for p in _SOMETHING_RAN)
        return Colour.EMPTY if only_empty else Colour.GREEN
    return Colour.RED


def _basename(path: str) -> str:
    return path.rsplit("/", 1)[-1]
