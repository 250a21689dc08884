"""Which command tests a project, which files are tests, and what colour a run was."""

from __future__ import annotations

import pytest

from capsule.core.evidence import Colour
from capsule.core.test_runs import (
    ANY_TESTS,
    SHARED_CONFIGURATION,
    colour_of,
    detect,
    detected_command,
    globs_for,
    is_test,
    judges_of,
    killed_by,
    matches,
    runner_part,
)

PROJECTS: dict[str, tuple[dict[str, str], str]] = {
    "pytest by its file": ({"pytest.ini": "", "Makefile": "test:\n"}, "python3 -m pytest -q"),
    "pytest by its settings": ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "python3 -m pytest -q"),
    "pytest by a conftest": ({"tests/conftest.py": ""}, "python3 -m pytest -q"),
    "a package of unittests": ({"tests/__init__.py": "", "tests/test_a.py": ""}, "python3 -m unittest discover"),
    "loose unittests": ({"tests/test_a.py": ""}, "python3 -m unittest discover -s tests"),
    "go": ({"go.mod": "module x\n"}, "go test ./..."),
    "cargo": ({"Cargo.toml": ""}, "cargo test"),
    "npm": ({"package.json": '{"scripts": {"test": "jest"}}'}, "npm test"),
    "make": ({"Makefile": "build:\n\ntest: build\n\t./run\n"}, "make test"),
    "make by its other name": ({"GNUmakefile": "test:\n\t./run\n"}, "make test"),
}
NOTHING = {
    "no files": {},
    "npm's placeholder": {"package.json": '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'},
    "a makefile without tests": {"Makefile": "testing:\ntest := 1\n"},
    "python without tests": {"src/app.py": "", "latest.py": ""},
}


@pytest.mark.parametrize(("files", "command"), PROJECTS.values(), ids=PROJECTS.keys())
def test_a_projects_test_command_is_found(files: dict[str, str], command: str) -> None:
    found = detect(list(files), lambda path: files.get(path, ""))
    assert found is not None
    assert detected_command(found, list(files)) == command


@pytest.mark.parametrize("files", NOTHING.values(), ids=NOTHING.keys())
def test_where_there_is_none_none_is_made_up(files: dict[str, str]) -> None:
    assert detect(list(files), lambda path: files.get(path, "")) is None


TESTS = (
    "tests/test_a.py",
    "test_a.py",
    "a_test.py",
    "conftest.py",
    "src/conftest.py",
    "tests/data/x.json",
    "a/tests/b.py",
    "pytest.toml",
    "unittest.py",
    "unittest/__init__.py",
    "pytest.py",
    "_pytest/main.py",
    "sitecustomize.py",
    "usercustomize.py",
)
CODE = (
    "src/unittest.py",
    "unittest_helpers.py",
    "pyproject.toml",
    "package.json",
    "Makefile",
    "src/app.py",
    "contest.py",
    "README.md",
    "testing/app.py",
    "src/latest.py",
    "protests/x.py",
)


@pytest.mark.parametrize("path", TESTS)
def test_tests_fixtures_and_runner_settings_are_tests(path: str) -> None:
    assert is_test(path, ANY_TESTS)


@pytest.mark.parametrize("path", CODE)
def test_code_is_no_test(path: str) -> None:
    assert not is_test(path, ANY_TESTS)


def test_a_glob_without_a_slash_is_about_the_name() -> None:
    assert matches("deep/down/test_a.py", "test_*.py")
    assert matches("tests/a", "**/tests/**")
    assert matches("x/tests/a", "**/tests/**")
    assert not matches("x/tests/a", "tests/**")


def test_a_command_from_the_settings_brings_its_ecosystems_globs() -> None:
    def nothing(_: str) -> str:
        return ""

    assert "*_test.go" in globs_for("go test ./pkg/...", [], nothing)[0]
    assert globs_for("cargo test --all", [], nothing)[1] is True
    assert "conftest.py" in globs_for("uv run pytest -x", [], nothing)[0]
    assert globs_for("./check", [], nothing) == (ANY_TESTS, False)
    assert "*_test.go" in globs_for("./check", ["go.mod"], nothing)[0]


JUDGES: dict[str, tuple[str, dict[str, str], set[str]]] = {
    "a script": ("sh check.sh", {"check.sh": ""}, {"check.sh"}),
    "a script that is started": ("set -e; ./ci/check --fast", {"ci/check": ""}, {"ci/check"}),
    "an option's file": ("run --rc=ci.rc 'other.rc'", {"ci.rc": "", "other.rc": ""}, {"ci.rc", "other.rc"}),
    "a script in a folder": (
        "cd web && sh check.sh",
        {"web/check.sh": "", "check.sh": ""},
        {"web/check.sh", "check.sh"},
    ),
    "what make runs": (
        "make test",
        {"Makefile": "test: a.c\n\t@./ci.sh\n", "ci.sh": "", "a.c": ""},
        {"Makefile", "ci.sh"},
    ),
    "one of two targets": ("make check", {"Makefile": "all check:\n\t-sh ci.sh", "ci.sh": ""}, {"Makefile", "ci.sh"}),
    "not what make does else": (
        "make test",
        {"Makefile": "test:\n\ttrue\nrun:\n\tsh run.sh\n", "run.sh": ""},
        {"Makefile"},
    ),
    "what npm runs": ("npm test", {"package.json": '{"scripts": {"test": "node ci.js"}}', "ci.js": ""}, {"ci.js"}),
    "npm's broken file": ("npm test", {"package.json": "{"}, set()),
    "no shared file": ("pytest -c pyproject.toml", {"pyproject.toml": ""}, set()),
    "no folder": ("python3 -m unittest discover -s tests", {"tests/test_a.py": "", "Makefile": ""}, set()),
    "a name with a star": ("sh [a]*.sh", {"[a]*.sh": "", "ab.sh": ""}, {"[a]*.sh"}),
    "no command": ("", {"Makefile": "", "a": ""}, set()),
}


@pytest.mark.parametrize(("command", "files", "judges"), JUDGES.values(), ids=JUDGES.keys())
def test_what_the_test_command_runs_is_a_test(command: str, files: dict[str, str], judges: set[str]) -> None:
    globs = judges_of(command, list(files), lambda path: files.get(path, ""))
    assert {path for path in files if is_test(path, globs)} == judges


def test_a_script_of_the_command_is_that_one_file() -> None:
    assert not is_test("src/check.sh", judges_of("sh check.sh", ["check.sh", "src/check.sh"], lambda _: ""))


def test_a_makefile_that_make_would_prefer_is_a_test_before_it_exists() -> None:
    assert is_test("GNUmakefile", judges_of("make test", ["Makefile"], lambda _: ""))


PYPROJECT = '[project]\ndependencies = ["a"]\n[tool.pytest.ini_options]\naddopts = "-q"\n[tool.ruff]\nline-length = 9\n'
PACKAGE = '{"dependencies": {"a": "1"}, "scripts": {"test": "jest", "build": "tsc"}, "jest": {"bail": 1}}'
BENDING = {
    "pytest's options": ("pyproject.toml", PYPROJECT, PYPROJECT.replace("-q", "--ignore=tests")),
    "pytest 9's table": ("pyproject.toml", PYPROJECT, PYPROJECT + "[tool.pytest]\naddopts = ['-x']\n"),
    "coverage": ("pyproject.toml", PYPROJECT, PYPROJECT + "[tool.coverage.run]\nplugins = ['x']\n"),
    "a first table": ("pyproject.toml", "", PYPROJECT),
    "a broken file": ("pyproject.toml", PYPROJECT, "["),
    "the script": ("web/package.json", PACKAGE, PACKAGE.replace('"test": "jest"', '"test": "true"')),
    "a script before": ("package.json", PACKAGE, PACKAGE.replace('"build"', '"pretest"')),
    "jest": ("package.json", PACKAGE, PACKAGE.replace('"bail": 1', '"testMatch": []')),
    "no object": ("package.json", PACKAGE, "[]"),
}
HARMLESS = {
    "a dependency": ("pyproject.toml", PYPROJECT, PYPROJECT.replace('["a"]', '["a", "b"]')),
    "another tool": ("pyproject.toml", PYPROJECT, PYPROJECT.replace("9", "99")),
    "its form": ("pyproject.toml", PYPROJECT, "# hello\n" + PYPROJECT.replace('"-q"', "'-q'")),
    "npm's dependency": ("package.json", PACKAGE, PACKAGE.replace('"a": "1"', '"a": "2"')),
    "npm's other script": ("package.json", PACKAGE, PACKAGE.replace("tsc", "swc")),
    "npm's form": ("package.json", PACKAGE, PACKAGE.replace(", ", ",\n  ")),
    "nothing for the runner": ("package.json", "", '{"scripts": [], "name": "x"}'),
    "any other file": ("src/a.json", PACKAGE, "{}"),
}


@pytest.mark.parametrize(("path", "before", "after"), BENDING.values(), ids=BENDING.keys())
def test_a_change_for_the_runner_shows_in_its_part(path: str, before: str, after: str) -> None:
    assert runner_part(path, before) != runner_part(path, after)


@pytest.mark.parametrize(("path", "before", "after"), HARMLESS.values(), ids=HARMLESS.keys())
def test_a_change_for_others_does_not(path: str, before: str, after: str) -> None:
    assert runner_part(path, before) == runner_part(path, after)


def test_a_file_without_words_for_the_runner_has_no_part() -> None:
    assert [runner_part(path, "") for path in SHARED_CONFIGURATION] == ["", ""]


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
    "cargo, doc tests empty": ("exited", 0, "running 3 tests\n\nrunning 0 tests\n", Colour.GREEN),
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
}


@pytest.mark.parametrize(("command", "tail", "colour"), SHOWN.values(), ids=SHOWN.keys())
def test_a_python_runner_is_green_only_if_it_shows_tests(command: str, tail: str, colour: Colour) -> None:
    assert colour_of("exited", 0, tail, command) is colour
