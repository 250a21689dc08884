"""The demo project, and the story its scripted agent tells on it.

The story is played here by a few lines of the test's own: they apply what a run writes and edits, and then the tests of
the project are run for real. So the script is known to be red, green or bent exactly where the demo says it is.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml12

import capsule

TEMPLATE = Path(capsule.__file__).parent / "templates" / "demo-capsule"
PROJECT_FILES = ("src", "tests", "CLAUDE.md", "README.md", ".gitignore")
"""What becomes the project; the fixtures, their check and the script stay behind."""

TEST_COMMAND = (sys.executable, "-B", "-m", "unittest", "discover", "-s", "tests", "-t", ".")
PHASES = ("test-writer", "test-review", "execute", "execute-review", "sign-off", "merge")
EMAIL, PHONE = "demo-1.1.1", "demo-1.1.2"

Run = Mapping[str, Any]
Script = dict[str, dict[str, list[Run]]]


class Outcome(NamedTuple):
    exit_code: int
    ran: int
    bad: int
    """Tests with a failure or an error, subtests counted once."""


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The demo project in a repository of its own, with one commit."""
    project = tmp_path / "demo"
    project.mkdir()
    for name in PROJECT_FILES:
        source = TEMPLATE / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, project / name)
    git(project, "init", "--quiet", "--initial-branch=main")
    git(project, "add", "--all")
    git(project, "commit", "--quiet", "--message=start")
    return project


@pytest.fixture(scope="module")
def script() -> Script:
    text = (TEMPLATE / "demo.script.yaml").read_text(encoding="utf-8")
    return cast("Script", yaml12.parse_yaml(text))


def environment(**extra: str) -> dict[str, str]:
    who = {f"GIT_{role}_{key}": "demo@example.com" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return {"PATH": os.environ["PATH"], "HOME": os.devnull, **who, **quiet, **extra}


def git(project: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=project, env=environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def run_tests(project: Path) -> Outcome:
    done = subprocess.run(TEST_COMMAND, cwd=project, env=environment(), capture_output=True, text=True, check=False)
    headers = [line for line in done.stderr.splitlines() if line.startswith(("FAIL: ", "ERROR: "))]
    ran = next(int(line.split()[1]) for line in done.stderr.splitlines() if line.startswith("Ran "))
    return Outcome(done.returncode, ran, len({line.split()[1] for line in headers}))


def play(project: Path, run: Run) -> None:
    """Do to the files what this run of the scripted agent does."""
    for name, text in run.get("write", {}).items():
        (project / name).write_text(text, encoding="utf-8")
    for edit in run.get("edit", []):
        target = project / edit["file"]
        before = target.read_text(encoding="utf-8")
        assert before.count(edit["find"]) == 1, f"{edit['find']!r} must occur once in {edit['file']}"
        target.write_text(before.replace(edit["find"], edit["replace"]), encoding="utf-8")


def commit(project: Path, run: Run, message: str) -> None:
    for command in run["run"]:
        env = environment(CAPSULE_COMMIT_MSG=message)
        subprocess.run(command, shell=True, cwd=project, env=env, capture_output=True, check=True)


def changed(project: Path) -> list[str]:
    lines = git(project, "status", "--porcelain", "--untracked-files=all").splitlines()
    return sorted(line.split()[-1] for line in lines)


def finish_email(project: Path, phases: Mapping[str, Sequence[Run]]) -> None:
    for phase in ("test-writer", "execute"):
        for run in phases[phase]:
            play(project, run)
    commit(project, phases["merge"][0], f"{EMAIL}: Validate email format")


def check_fixtures(template: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-B", "test_fixtures.py"]
    return subprocess.run(command, cwd=template, env=environment(), capture_output=True, text=True, check=False)


def test_the_fixture_check_passes_on_the_template_as_shipped() -> None:
    done = check_fixtures(TEMPLATE)
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("file", "find", "replace", "complaint"),
    [
        ("issues.jsonl", '"epic"', '"task"', "types and titles"),
        ("issues.jsonl", '"depends_on_id": "demo-1"', '"depends_on_id": "demo-2"', "task under feature"),
        ("issues.jsonl", "## Acceptance Criteria", "## Wishes", "acceptance criteria"),
        ("src/contact.py", "def main()", "def validate_email()", "gaps are open"),
        ("src/contact.py", "no `validate_phone`", "a `validate_phone`", "gaps are documented"),
        ("src/contact.py", "<{self.email}>", "{self.email}", "project is green"),
    ],
)
def test_the_fixture_check_notices_a_broken_fixture(
    tmp_path: Path, file: str, find: str, replace: str, complaint: str
) -> None:
    broken = shutil.copytree(TEMPLATE, tmp_path / "broken")
    text = (broken / file).read_text(encoding="utf-8")
    assert find in text
    (broken / file).write_text(text.replace(find, replace), encoding="utf-8")
    done = check_fixtures(broken)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("FAIL") and complaint in line]


def test_one_task_keeps_its_criteria_in_the_field_and_one_in_the_description() -> None:
    beads = {
        bead["id"]: bead
        for bead in map(json.loads, (TEMPLATE / "issues.jsonl").read_text(encoding="utf-8").splitlines())
    }
    assert "## Acceptance Criteria" not in beads[EMAIL]["description"]
    assert "## Acceptance Criteria" in beads[PHONE]["description"]
    assert ("acceptance_criteria" in beads[EMAIL], "acceptance_criteria" in beads[PHONE]) == (True, False)


@pytest.mark.parametrize(
    "arguments", [["discover"], ["discover", "-s", "tests"], ["discover", "-s", "tests", "-t", "."]]
)
def test_the_base_is_green_however_unittest_is_called(demo: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-B", "-m", "unittest", *arguments]
    done = subprocess.run(command, cwd=demo, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, "Ran 3 tests" in done.stderr) == (0, True), done.stderr


def test_running_the_tests_leaves_a_clean_tree(demo: Path) -> None:
    command = [sys.executable, "-m", "unittest", "discover"]
    subprocess.run(command, cwd=demo, env=environment(), capture_output=True, check=True)
    assert list(demo.rglob("*.pyc"))
    assert changed(demo) == []


def test_every_phase_of_both_tasks_is_scripted_with_a_whole_signal(script: Script) -> None:
    assert {item: tuple(phases) for item, phases in script.items()} == {EMAIL: PHASES, PHONE: PHASES}
    for run in (run for phases in script.values() for runs in phases.values() for run in runs):
        assert list(run["signal"]) == ["status", "feedback", "files_changed", "summary"]
        assert set(run) <= {"say", "write", "edit", "remove", "run", "sleep", "signal", "exit"}
        assert run["sleep"] <= 0.3


def test_email_is_sent_back_once_and_then_goes_through(script: Script) -> None:
    verdicts = {phase: [run["signal"]["status"] for run in runs] for phase, runs in script[EMAIL].items()}
    assert verdicts.pop("test-writer") == ["PASS", "PASS"]
    assert verdicts.pop("test-review") == ["NEEDS_WORK", "PASS"]
    assert set(map(tuple, verdicts.values())) == {("PASS",)}


def test_email_is_red_twice_and_then_green_with_untouched_tests(demo: Path, script: Script) -> None:
    first, second = script[EMAIL]["test-writer"]
    play(demo, first)
    assert run_tests(demo) == Outcome(1, ran=8, bad=5)
    play(demo, second)
    assert run_tests(demo) == Outcome(1, ran=9, bad=6)
    assert changed(demo) == ["tests/test_email.py"]
    play(demo, script[EMAIL]["execute"][0])
    assert run_tests(demo) == Outcome(0, ran=9, bad=0)
    assert changed(demo) == ["src/contact.py", "tests/test_email.py"]


def test_the_test_that_review_asked_for_catches_what_the_first_ones_missed(demo: Path, script: Script) -> None:
    first, second = script[EMAIL]["test-writer"]
    for run in (first, script[EMAIL]["execute"][0]):
        play(demo, run)
    source = demo / "src" / "contact.py"
    careless = source.read_text(encoding="utf-8").replace(
        " and not any(character.isspace() for character in email)", ""
    )
    source.write_text(careless, encoding="utf-8")
    assert run_tests(demo) == Outcome(0, ran=8, bad=0)
    play(demo, second)
    assert run_tests(demo) == Outcome(1, ran=9, bad=1)


def test_the_first_phone_test_holds_nothing_and_the_second_ones_find_a_fault(demo: Path, script: Script) -> None:
    finish_email(demo, script[EMAIL])
    vacuous, true = script[PHONE]["test-writer"]
    play(demo, vacuous)
    assert run_tests(demo) == Outcome(1, ran=10, bad=1)
    play(demo, script[PHONE]["execute"][0])
    source = demo / "src" / "contact.py"
    written = source.read_text(encoding="utf-8")
    source.write_text(written.replace("return digits.isascii()", "return None and digits.isascii()"), encoding="utf-8")
    assert run_tests(demo) == Outcome(0, ran=10, bad=0)
    play(demo, true)
    assert run_tests(demo) == Outcome(1, ran=16, bad=6)
    source.write_text(written, encoding="utf-8")
    assert run_tests(demo) == Outcome(1, ran=16, bad=1)


def test_phone_lies_then_bends_a_test_and_then_does_the_work(demo: Path, script: Script) -> None:
    finish_email(demo, script[EMAIL])
    phone = script[PHONE]
    half, lie, bend, work = phone["execute"]
    tests = demo / "tests" / "test_phone.py"

    for run in (phone["test-writer"][0], half, phone["test-writer"][1]):
        play(demo, run)
    reviewed = tests.read_bytes()

    play(demo, lie)
    assert (lie["signal"]["status"], tests.read_bytes()) == ("PASS", reviewed)
    assert run_tests(demo) == Outcome(1, ran=16, bad=1)

    play(demo, bend)
    assert (bend["signal"]["status"], tests.read_bytes() == reviewed) == ("PASS", False)
    assert "tests/test_phone.py" not in bend["signal"]["files_changed"]
    assert run_tests(demo) == Outcome(0, ran=16, bad=0)

    play(demo, work)
    assert (work["signal"]["status"], tests.read_bytes()) == ("PASS", reviewed)
    assert run_tests(demo) == Outcome(0, ran=16, bad=0)


@pytest.mark.parametrize("item", [EMAIL, PHONE])
def test_each_commit_holds_the_task_and_leaves_the_worklog_out(demo: Path, script: Script, item: str) -> None:
    (demo / "worklog.md").write_text("# Worklog\n", encoding="utf-8")
    for phase in ("test-writer", "execute"):
        for run in script[item][phase]:
            play(demo, run)
    merge = script[item]["merge"][0]
    commit(demo, merge, f'{item}: "quoted" $HOME title')
    assert changed(demo) == ["worklog.md"]
    assert git(demo, "show", "--format=%s", "--name-only").splitlines() == [
        f'{item}: "quoted" $HOME title',
        "",
        *merge["signal"]["files_changed"],
    ]


def test_both_tasks_can_be_built_side_by_side(demo: Path, script: Script) -> None:
    for item in (EMAIL, PHONE):
        git(demo, "switch", "--quiet", "--create", item, "main")
        for phase in ("test-writer", "execute"):
            for run in script[item][phase]:
                play(demo, run)
        commit(demo, script[item]["merge"][0], item)
    git(demo, "merge", "--quiet", "--no-edit", EMAIL)
    assert run_tests(demo) == Outcome(0, ran=16, bad=0)
