"""A mission with an exam is killed before and after everything it journals around it: the end is always the same.

The exam meets every kind of turn: of its tests one fails and passes when the code is mended, one is mistaken and struck
out, one proves nothing, and the rest join the suite. The examiner is started again only where its step has no end yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.lies.words import text
from tests.shared import found_once

from .conftest import Undisturbed
from .ending import check_no_strays, check_papers, ending_after, ending_of, events_of, names_of
from .points import ALL, between_effects, is_effect, is_event, sample
from .project import DIARY, ITEM, Project, first_commit, issue

MISSIONS = 4
BETWEEN_TRIED = 4
FIRST, LAST = f"after step_ended {ITEM}/execute-review#1", f"before step_begun {ITEM}/merge#1"
_NOTED = f'echo "$CAPSULE_PHASE" >> "${DIARY}"'
_CLAMP = "def clamp(n, low, high):\n    return {}\n"
_TESTS = """
    import unittest

    import calc


    class Clamp(unittest.TestCase):
        def test_{name}(self):
            {asks}
    """

MakeProject = Callable[[], Project]


def _test(name: str, asks: str) -> str:
    return text(_TESTS).format(name=name, asks=asks)


def _asks(name: str, given: str, expected: str, asks: str = "") -> dict[str, str]:
    code = _test(name, asks or f"self.assertEqual(calc.clamp({given}), {expected})")
    words = {"criterion": "it is clamped", "input": given, "expected": expected}
    return {**words, "file": f"tests/test_{name}.py", "test": f"test_{name}", "code": code}


EXAM = [
    _asks("hidden_high", "71, 2, 40", "40"),
    _asks("hidden_low", "-1, 0, 3", "0"),
    _asks("hidden_mistake", "6, 0, 5", "6"),
    _asks("hidden_nothing", "nothing", "a function", "self.assertTrue(callable(calc.clamp))"),
]


def _turn(write: dict[str, str] | None = None, *commands: str, **said: object) -> dict[str, object]:
    signal = {"status": "PASS", "feedback": "done", "summary": "done", "files_changed": [*(write or {})], **said}
    return {"run": [_NOTED, *commands], "write": write or {}, "signal": signal}


def make_exam_project(path: Path) -> None:
    hard_coded = _CLAMP.format("{(5, 0, 3): 3, (-1, 0, 3): 0, (6, 0, 5): 5}.get((n, low, high), n)")
    files = ("tests/test_clamp.py", "calc.py")
    script = {
        "test-writer": [_turn({files[0]: _test("too_high", "self.assertEqual(calc.clamp(5, 0, 3), 3)")})],
        "execute": [_turn({files[1]: hard_coded}), _turn({files[1]: _CLAMP.format("max(low, min(n, high))")})],
        "execute-review": [_turn(), _turn(struck={"test": "E3", "because": "6 is more than high"})],
        "exam": [_turn(exam_tests=EXAM)],
        "merge": [_turn(None, 'git add -A calc.py tests && git commit -q -m "$CAPSULE_COMMIT_MSG"')],
        "*": [_turn()],
    }
    first_commit(
        path,
        {
            "calc.py": "",
            "tests/__init__.py": "",
            "tests/test_first.py": _test("first", "self.assertTrue(calc)"),
            ".gitignore": "__pycache__/\nnode_modules/\n",
            ".capsule/config.yaml": "agent: scripted\nagents: {scripted: {args: [script.json]}}\n"
            "evidence: {test: python3 -m unittest}\nworkflow: {default: exam}\n",
            "script.json": json.dumps({ITEM: script}, indent=1),
            ".beads/issues.jsonl": json.dumps(issue(ITEM, "task", "Clamp")) + "\n",
        },
    )


@pytest.fixture(scope="session")
def exam_template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    @cache
    def make() -> Path:
        path = tmp_path_factory.mktemp("exam") / "template"
        make_exam_project(path)
        return path

    return make


@pytest.fixture
def an_exam(exam_template: Callable[[], Path], level: dict[str, str], tmp_path: Path, mark: str) -> MakeProject:
    """Fresh copies of the project, in each kind of protection."""
    numbers, sandboxed = count(), level["CAPSULE_SANDBOX"] == "required"
    return lambda: Project(exam_template(), tmp_path / f"project-{next(numbers)}", mark, sandboxed=sandboxed)


@pytest.fixture(scope="session")
def exams_held() -> dict[str, Undisturbed]:
    """What one test found out for those after it."""
    return {}


@pytest.fixture
def held(
    exams_held: dict[str, Undisturbed],
    an_exam: MakeProject,
    level: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
    tmp_path: Path,
    mark: str,
) -> Undisturbed:
    def find() -> Undisturbed:
        project, record = an_exam(), tmp_path / "points"
        ran = project.drive(CRASH_RECORD=str(record), CRASH_EFFECTS="1")
        assert ran.returncode == 0, ran.stderr
        check_no_strays(project, mark)
        check_papers(project)
        assert started(project) == 1
        points = [line.partition("\t")[0] for line in record.read_text().splitlines()]
        found = Undisturbed(ending_of(project), names_of(ITEM, events_of(project)), points)
        project.remove()
        return found

    sandbox = level["CAPSULE_SANDBOX"]
    if sandbox not in exams_held:
        exams_held[sandbox] = found_once(tmp_path_factory, f"exam-{sandbox}", find)
    return exams_held[sandbox]


def started(project: Project) -> int:
    """How often an examiner was started."""
    return project.diary.read_text().splitlines().count("exam")


def around(held: Undisturbed) -> list[str]:
    """The points from the review before the exam until its tests have joined the work."""
    return held.points[held.points.index(FIRST) : held.points.index(LAST) + 1]


def started_again(held: Undisturbed, killed_at: Sequence[str]) -> int:
    """How many of these points lie between the examiner's start and the end of its step."""
    since = held.points.index(f"before {ITEM}/exam#1 agent.run 1")
    until = held.points.index(f"after step_ended {ITEM}/exam#1")
    return len({*held.points[since:until]} & {*killed_at})


@pytest.mark.promise("durability.every-event")
def test_every_event_around_an_exam_has_a_point_before_and_after_it(held: Undisturbed) -> None:
    expected = [f"{side} {name}" for name in held.events for side in ("before", "after")]
    assert list(filter(is_event, held.points)) == expected
    assert len(set(held.points)) == len(held.points)
    steps = [point.split("/")[1] for point in around(held) if point.startswith("after step_ended")]
    assert steps == ["execute-review#1", "exam#1", "execute#2", "execute-review#2", "exam#2", "sign-off#1", "join#1"]
    observed = [point for point in around(held) if point.startswith("after observed")]
    assert len(observed) >= 8, "its tests together, one by one, and with the change taken out"
    assert "1 of 2 exam tests pass" not in held.ending.worklog
    assert all(words in held.ending.worklog for words in ("2 of 2 exam tests pass", "E3 struck out", "E4 dropped"))


@pytest.mark.promise("durability.every-event")
@pytest.mark.parametrize("group", range(MISSIONS))
def test_killed_around_an_event_of_an_exam_it_ends_the_same(
    group: int, held: Undisturbed, an_exam: MakeProject, mark: str
) -> None:
    points = list(filter(is_event, around(held)))[group::MISSIONS]
    for killed_at in [[point] for point in points] if ALL else [points]:
        project = an_exam()
        assert ending_after(project, killed_at, held.ending.tree, mark) == held.ending, killed_at
        assert started(project) == 1 + started_again(held, killed_at), killed_at
        project.remove()


@pytest.mark.promise("durability.every-call")
@pytest.mark.parametrize("group", range(MISSIONS))
def test_killed_between_events_of_an_exam_it_ends_the_same(
    group: int, held: Undisturbed, an_exam: MakeProject, mark: str
) -> None:
    points = around(held)
    between = sample(between_effects(points), BETWEEN_TRIED) + sample(list(filter(is_effect, points)), BETWEEN_TRIED)
    for point in between[group::MISSIONS]:
        project = an_exam()
        assert ending_after(project, [point], held.ending.tree, mark, CRASH_EFFECTS="1") == held.ending, point
        assert started(project) <= 1 + started_again(held, [point]), point
        project.remove()
