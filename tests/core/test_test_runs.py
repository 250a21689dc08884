"""Which command tests a project, which files are tests, and what colour a run was."""

from __future__ import annotations

import pytest

from capsule.core.evidence import Colour
from capsule.core.test_runs import ANY_TESTS, colour_of, detect, detected_command, globs_for, is_test, matches

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
)
CODE = ("src/app.py", "contest.py", "README.md", "testing/app.py", "src/latest.py", "protests/x.py")


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
}


@pytest.mark.parametrize(("why", "code", "tail", "colour"), RUNS.values(), ids=RUNS.keys())
def test_a_run_has_its_colour(why: str, code: int | None, tail: str, colour: Colour) -> None:
    assert colour_of(why, code, tail) is colour


def test_only_an_exit_with_zero_can_be_green() -> None:
    greens = [(why, code) for why, code, tail, _ in RUNS.values() if colour_of(why, code, tail) is Colour.GREEN]
    assert set(greens) == {("exited", 0)}
