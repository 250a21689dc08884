"""Work that has nothing to make red: refactoring, documents, more tests, chores; and the first tests of a project."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from capsule.core.evidence import Evidence, EvidenceStatus

from .conftest import PASS, Scene

UNITTEST = {
    "test": "python3 -B -m unittest -q",
    "test_globs": ("test_*.py",),
    "debris": ("*.orig",),
    "mutants": 4,
}
CALC = "def add(a, b):\n    total = a\n    total = total + b\n    return total\n\n\ndef spare(n):\n    return n * 2\n"
TEST_ADD = """\
import unittest

import calc


class Add(unittest.TestCase):
    def test_adds(self):
        self.assertEqual(calc.add(2, 3), 5)

    def test_nothing(self):
        self.assertEqual(calc.add(0, 0), 0)
"""
OK = {"signal": PASS}


def writes(**files: str) -> dict[str, Any]:
    return {"write": {name.replace("__", "."): text for name, text in files.items()}, "signal": PASS}


@pytest.fixture
def a_tested_project(scene: Scene) -> Scene:
    place = scene.services.place("base", "")
    place._repository.commit_files("main", "Calc", calc__py=CALC, test_add__py=TEST_ADD)  # type: ignore[attr-defined]
    return scene


def played(scene: Scene, workflow: str, *turns: dict[str, Any], **changes: Any) -> list[str]:
    """Let an agent do its work, in several turns if it is sent back; return the moves of that phase."""
    scene.plays({"one": {workflow: list(turns), f"{workflow}-review": [OK]}})
    scene.run("one", workflow, **{**UNITTEST, **changes})
    return [move.partition(" ")[2] for move in scene.moves("one") if move.startswith(f"{workflow}#")]


def evidence(scene: Scene, check: str) -> Evidence:
    return next(e for event in scene.ended("one") for e in event.outcome.evidence if e.check == check)


def merged(scene: Scene, path: str) -> bytes | None:
    return scene.services.place("one", "").trees.read(scene.git("rev-parse", "main"), path)


# ---- refactor

SCRIPT = f"{sys.executable} -B -m pytest -q -p no:cacheprovider\n"
SHORT = CALC.replace("    total = a\n    total = total + b\n    return total\n", "    return a + b\n")


@pytest.mark.promise("workflows.kinds")
def test_a_refactoring_is_merged_when_green_before_and_after(a_tested_project: Scene) -> None:
    assert played(a_tested_project, "refactor", writes(calc__py=SHORT)) == ["advance"]
    assert merged(a_tested_project, "calc.py") == SHORT.encode()
    assert evidence(a_tested_project, "as-demanded").standing is EvidenceStatus.CONFIRMED


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "seen"),
    [
        (TEST_ADD, "2 tests of the base are as they were"),
        (TEST_ADD.partition("\n    def test_nothing")[0], "1 test of the base is as it was"),
    ],
)
def test_what_is_kept_is_counted(scene: Scene, tests: str, seen: str) -> None:
    place = scene.services.place("base", "")
    place._repository.commit_files("main", "Calc", calc__py=CALC, test_add__py=tests)  # type: ignore[attr-defined]
    assert played(scene, "refactor", writes(calc__py=SHORT)) == ["advance"]
    assert evidence(scene, "tests-kept").observed == seen


@pytest.mark.slow
@pytest.mark.promise("evidence.tests-kept")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("check__sh", "exit 0\n"),
        ("check__sh", "echo '2 passed in 0.01s'\n"),
        ("check__sh", f"{SCRIPT.strip()} test_no.py || true\n"),
        ("conftest__py", "collect_ignore = ['test_add.py']\n"),
    ],
)
def test_a_test_command_that_no_longer_runs_the_tests_of_the_base_is_refuted(
    a_tested_project: Scene, path: str, text: str
) -> None:
    place = a_tested_project.services.place("base", "")
    place._repository.commit_files("main", "Check", check__sh=SCRIPT)  # type: ignore[attr-defined]
    files = {path: text, "calc__py": SHORT}
    assert "advance" not in played(a_tested_project, "refactor", writes(**files), test="sh check.sh")
    piece = evidence(a_tested_project, "tests-kept")
    assert piece.standing is EvidenceStatus.REFUTED
    assert "test_adds is gone, and passes as it was" in piece.observed


@pytest.mark.sweep
@pytest.mark.promise("evidence.tests-kept")
@pytest.mark.parametrize(
    ("tests", "seen"),
    [
        (
            TEST_ADD.replace("assertEqual(calc.add(2, 3), 5)", "assertTrue(calc.add(2, 3))"),
            "Add.test_adds was rewritten",
        ),
        (
            TEST_ADD.replace("    def test_adds", "    @unittest.skip('x')\n    def test_adds"),
            "Add.test_adds is skipped",
        ),
        (TEST_ADD.partition("\n    def test_nothing")[0], "Add.test_nothing is gone"),
    ],
    ids=["rewritten", "skipped", "gone"],
)
def test_a_test_of_the_base_is_kept(a_tested_project: Scene, tests: str, seen: str) -> None:
    back = writes(calc__py=SHORT, test_add__py=TEST_ADD)
    bent = writes(calc__py=SHORT, test_add__py=tests)
    assert played(a_tested_project, "refactor", bent, back) == ["retry", "advance"]
    piece = evidence(a_tested_project, "tests-kept")
    assert piece.standing is EvidenceStatus.REFUTED and f"{seen}, and passes as it was" in piece.observed


@pytest.mark.slow
@pytest.mark.promise("evidence.tests-kept")
def test_a_test_whose_names_moved_may_change_and_is_named(a_tested_project: Scene) -> None:
    renamed = SHORT.replace("def add", "def plus")
    tests = TEST_ADD.replace("calc.add", "calc.plus")
    assert played(a_tested_project, "refactor", writes(calc__py=renamed, test_add__py=tests)) == ["advance"]
    assert "changed on purpose: test_add.py::Add.test_adds" in evidence(a_tested_project, "tests-kept").observed


@pytest.mark.slow
def test_a_test_may_move_to_another_file(a_tested_project: Scene) -> None:
    moved = {"write": {"calc.py": SHORT, "test_sums.py": TEST_ADD}, "remove": ["test_add.py"], "signal": PASS}
    assert played(a_tested_project, "refactor", moved) == ["advance"]


@pytest.mark.slow
@pytest.mark.promise("evidence.as-demanded")
def test_what_tests_noticed_before_they_notice_after_a_refactoring(a_tested_project: Scene) -> None:
    """The tests bend with the code: they are changed since names moved, and assert nothing any more."""
    vacuous = TEST_ADD.replace("self.assertEqual(calc.add(2, 3), 5)", "calc.plus(2, 3)")
    vacuous = vacuous.replace("self.assertEqual(calc.add(0, 0), 0)", "calc.plus(0, 0)")
    renamed = SHORT.replace("def add", "def plus")
    a_tested_project.plays(
        {"one": {"refactor": [writes(calc__py=renamed, test_add__py=vacuous)], "refactor-review": [OK]}}
    )
    state = a_tested_project.run("one", "refactor", **UNITTEST)
    assert not state.finished
    assert "no test notices any more when plus in calc.py" in evidence(a_tested_project, "as-demanded").observed


@pytest.mark.slow
def test_code_that_no_test_held_may_be_refactored_too(a_tested_project: Scene) -> None:
    assert played(a_tested_project, "refactor", writes(calc__py=CALC.replace("n * 2", "n + n"))) == ["advance"]
    assert evidence(a_tested_project, "as-demanded").standing is EvidenceStatus.CONFIRMED


@pytest.mark.slow
def test_a_refactoring_that_breaks_a_test_is_sent_back(a_tested_project: Scene) -> None:
    broken = SHORT.replace("a + b", "a - b")
    assert played(a_tested_project, "refactor", writes(calc__py=broken), writes(calc__py=SHORT)) == ["retry", "advance"]


# ---- documents


@pytest.mark.slow
@pytest.mark.promise("workflows.kinds")
def test_documents_and_docstrings_are_merged(a_tested_project: Scene) -> None:
    documented = CALC.replace("def add(a, b):\n", 'def add(a, b):\n    """Add two numbers."""\n')
    assert played(a_tested_project, "docs", writes(README__md="# calc\n", calc__py=documented)) == ["advance"]
    assert merged(a_tested_project, "README.md") == b"# calc\n"


@pytest.mark.sweep
@pytest.mark.promise("evidence.only-docs")
@pytest.mark.parametrize("path", ["calc.py", "setup.cfg", "requirements.txt", "test_more.py"])
def test_a_writer_of_documents_changes_nothing_that_runs(a_tested_project: Scene, path: str) -> None:
    strayed = {"write": {"README.md": "# calc\n", path: SHORT if path == "calc.py" else "x = 1\n"}, "signal": PASS}
    back = {"write": {"calc.py": CALC}, "remove": [] if path == "calc.py" else [path], "signal": PASS}
    assert played(a_tested_project, "docs", strayed, back) == ["retry", "advance"]
    assert evidence(a_tested_project, "only-docs").observed == f"also changed: {path}"


@pytest.mark.slow
def test_documents_of_a_project_without_tests_are_merged_unverified(scene: Scene) -> None:
    assert played(scene, "docs", writes(README__md="# calc\n"), test="python3 -B -m unittest -q") == ["advance"]
    assert evidence(scene, "unharmed").standing is EvidenceStatus.UNVERIFIED
    assert merged(scene, "README.md") == b"# calc\n"


# ---- more tests

MORE = "import unittest\n\nimport calc\n\n\nclass More(unittest.TestCase):\n    def test_spare(self):\n        {}\n"
HOLDS = MORE.format("self.assertEqual(calc.spare(3), 6)")


@pytest.mark.slow
@pytest.mark.promise("workflows.kinds")
def test_more_tests_are_merged_that_kill_a_mutant(a_tested_project: Scene) -> None:
    assert played(a_tested_project, "tests", writes(test_more__py=HOLDS)) == ["advance"]
    assert evidence(a_tested_project, "kills").observed == "1 of 1 kill a mutant"
    assert merged(a_tested_project, "test_more.py") == HOLDS.encode()


@pytest.mark.sweep
@pytest.mark.promise("evidence.kills")
@pytest.mark.parametrize("body", ["calc.spare(3)", "self.assertTrue(True)", "self.assertIsNotNone(calc.spare)"])
def test_a_new_test_that_notices_nothing_is_sent_back(a_tested_project: Scene, body: str) -> None:
    vacuous = writes(test_more__py=MORE.format(body))
    assert played(a_tested_project, "tests", vacuous, writes(test_more__py=HOLDS)) == ["retry", "advance"]
    piece = evidence(a_tested_project, "kills")
    assert piece.standing is EvidenceStatus.REFUTED
    assert piece.observed == "no mutant makes test_more.py::More.test_spare fail"


@pytest.mark.slow
def test_a_writer_of_tests_changes_no_code(a_tested_project: Scene) -> None:
    both = writes(test_more__py=HOLDS, calc__py=SHORT)
    assert played(a_tested_project, "tests", both, writes(calc__py=CALC)) == ["retry", "advance"]
    assert evidence(a_tested_project, "only-tests").observed == "also changed: calc.py"


# ---- chores


@pytest.mark.slow
@pytest.mark.promise("workflows.kinds")
def test_dead_code_goes_with_its_test(a_tested_project: Scene) -> None:
    repository = a_tested_project.services.place("base", "")._repository  # type: ignore[attr-defined]
    repository.commit_files("main", "More", test_more__py=HOLDS)
    dead = {"write": {"calc.py": CALC.partition("\n\ndef spare")[0]}, "remove": ["test_more.py"], "signal": PASS}
    assert played(a_tested_project, "chore", dead) == ["advance"]
    assert merged(a_tested_project, "test_more.py") is None
    assert "changed on purpose: test_more.py" in evidence(a_tested_project, "tests-kept").observed


@pytest.mark.slow
def test_a_chore_takes_no_test_out_that_passes(a_tested_project: Scene) -> None:
    less = {"write": {"setup.cfg": "[x]\n"}, "remove": ["test_add.py"], "signal": PASS}
    assert played(a_tested_project, "chore", less, writes(test_add__py=TEST_ADD)) == ["retry", "advance"]


# ---- the commit is Capsule's own


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("workflows.kinds")
def test_exactly_what_was_approved_is_committed_and_merged(scene: Scene) -> None:
    (scene.root / "calc.py").write_text(CALC)
    (scene.root / "test_add.py").write_text(TEST_ADD)
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "Calc")
    late = {"write": {"door.py": "x = 1\n"}, "run": ["git add -A && git commit -qm door"], "signal": PASS}
    scene.plays({"one": {"refactor": [writes(calc__py=SHORT)], "refactor-review": [late]}})
    state = scene.run("one", "refactor", **UNITTEST)
    assert state.finished, scene.moves("one")
    assert scene.git("ls-tree", "-r", "--name-only", "main").split() == ["README.md", "calc.py", "test_add.py"]
    assert scene.git("log", "-2", "--format=%s", "main").splitlines() == ["Merge one: Say hello", "one: Say hello"]
    assert scene.git("branch", "--list", "capsule-*") == ""


# ---- a base with tests that fail


@pytest.mark.slow
@pytest.mark.promise("workflows.kinds")
def test_what_is_known_to_fail_on_the_base_does_not_stop_a_merge(a_tested_project: Scene) -> None:
    repository = a_tested_project.services.place("base", "")._repository  # type: ignore[attr-defined]
    repository.commit_files("main", "A bug", test_bug__py=HOLDS.replace("6", "7"))
    assert played(a_tested_project, "refactor", writes(calc__py=SHORT), base="known") == ["advance"]
    assert merged(a_tested_project, "calc.py") == SHORT.encode()
    assert "known to fail on the base" in evidence(a_tested_project, "gate").observed


# ---- first tests


@pytest.mark.in_git
@pytest.mark.promise("evidence.only-docs")
@pytest.mark.parametrize("others", [(), (b"caf\\xe9.py",)], ids=["alone", "beside one that is written alike"])
def test_code_in_a_file_whose_name_is_no_text_is_no_document(scene: Scene, others: tuple[bytes, ...]) -> None:
    for name in (b"caf\xe9.py", *others):
        (scene.root / os.fsdecode(name)).write_text("x = 1\n")
    scene.git("add", "-A")
    scene.git("commit", "-q", "-m", "Odd names")
    edit = {"run": ["printf 'x = 2\\n' > \"$(printf 'caf\\351.py')\""], **writes(README__md="More.\n")}
    assert played(scene, "docs", edit)[0] == "retry"
    assert evidence(scene, "only-docs").observed == "also changed: caf\\xe9.py"


DETECT: dict[str, Any] = {"test": "", "test_globs": (), "detect": True, "debris": ()}
FIRST = TEST_ADD.partition("\n    def test_nothing")[0]
WRONG, RIGHT = "def add(a, b):\n    return a - b\n", "def add(a, b):\n    return a + b\n"
COMMIT = {"run": ['git add -A && git commit -q -m "$CAPSULE_COMMIT_MSG"'], "signal": PASS}


def first_tests(scene: Scene, *code: dict[str, Any], **changes: Any) -> Any:
    phases = {name: [OK] for name in ("test-review", "execute-review", "sign-off")}
    tests = [writes(test_calc__py=FIRST)]
    scene.plays({"one": {**phases, "test-writer": tests, "execute": list(code), "merge": [COMMIT]}})
    return scene.run("one", "tdd", **{**DETECT, **changes})


@pytest.mark.slow
@pytest.mark.promise("evidence.first-tests")
def test_first_tests_are_run_by_a_command_that_is_found_then(scene: Scene) -> None:
    state = first_tests(scene, writes(calc__py=WRONG), writes(calc__py=RIGHT))
    assert state.finished, scene.moves("one")
    assert [move for move in scene.moves("one") if move.startswith("execute#")] == [
        "execute#1 retry",
        "execute#2 advance",
    ]
    assert state.policy.test == "python3 -m unittest discover"
    assert scene.kinds("one").count("tests_found") == 1
    assert evidence(scene, "red").standing is EvidenceStatus.CONFIRMED
    assert evidence(scene, "gate").standing is EvidenceStatus.CONFIRMED


@pytest.mark.slow
@pytest.mark.promise("evidence.first-tests")
def test_red_first_tests_are_never_merged(scene: Scene) -> None:
    state = first_tests(scene, writes(calc__py=WRONG))
    assert not state.finished
    assert merged(scene, "calc.py") is None


@pytest.mark.slow
def test_a_project_that_wants_no_tests_stays_unverified(scene: Scene) -> None:
    assert first_tests(scene, writes(calc__py=WRONG), detect=False).finished
    assert evidence(scene, "green").standing is EvidenceStatus.UNVERIFIED


@pytest.mark.slow
@pytest.mark.promise("evidence.first-tests")
def test_a_document_is_no_first_test(scene: Scene) -> None:
    story = {"test-writer": [{"write": {"tests/README.md": "Tests will be here."}, "signal": PASS}]}
    scene.plays({"one": story})
    scene.run("one", "tdd", **DETECT)
    assert "advance" not in "".join(move for move in scene.moves("one") if move.startswith("test-writer"))
    assert evidence(scene, "red").observed == "no test was written: tests/README.md"


@pytest.mark.slow
@pytest.mark.promise("attacks.unfit")
def test_code_that_names_the_folder_it_was_written_in_is_refuted(a_tested_project: Scene) -> None:
    place = a_tested_project.services.place("one", "").path
    bent = writes(calc__py=f"{CALC}\n\nHERE = open('{place}/.cache/more').read()\n")
    assert "advance" not in played(a_tested_project, "refactor", bent)
    assert "names a folder of this machine" in evidence(a_tested_project, "fit-for-main").observed
