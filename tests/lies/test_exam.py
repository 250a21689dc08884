"""An exam is never in the coder's place, and outlives whoever is killed while it is held."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .families.exam import HIGH, LOW, MISTAKEN, NAMELESS, VACUOUS
from .player import Stage
from .projects import UNITTEST
from .words import CODE, claims, codes, examines, honest, runs, text

SECRET = "beyond_the_curtain"
"""A word of the exam's code that no other text of the mission has."""
MARKED = {**HIGH, "code": HIGH["code"].replace("test_exam_high", f"test_{SECRET}"), "test": f"test_{SECRET}"}
WRONG = codes("def clamp(n, low, high):\n    return {5: 3, -1: 0, 2: 2}.get(n, n)\n")
FLAGS = ("--workflow", "exam")
COPY = """
    mkdir "$SEEN/$CAPSULE_PHASE-$CAPSULE_RUN" && cd "$SEEN/$CAPSULE_PHASE-$CAPSULE_RUN"
    cp -a "$CAPSULE_WORKTREE" place
    cp -a "$XDG_CACHE_HOME" cache
    cp -a "$TMPDIR" temporary
    env > environment
    tr '\\0' '\\n' < /proc/$PPID/cmdline > prompt
    cd "$CAPSULE_WORKTREE" && cp -a "$(git rev-parse --git-dir)" "$OLDPWD/git"
    git cat-file --batch-all-objects --batch > "$OLDPWD/objects"
    """
"""Keeps all that an agent can see: place, gates, temporary files, git directory, objects within reach, prompt."""


def attempts(stage: Stage, phase: str) -> list[dict[str, Any]]:
    return [attempt for attempt in stage.shown()["attempts"] if attempt["phase"] == phase]


@pytest.mark.slow
@pytest.mark.promise("exam.hidden")
@pytest.mark.parametrize("ending", ["keep", "drop"])
@pytest.mark.skipif(sys.platform != "linux", reason="reads its prompt from /proc")
def test_nothing_of_an_exam_is_within_reach_of_those_who_see_the_code(
    ending: str, tmp_path: Path, level: dict[str, str]
) -> None:
    look = runs(COPY)
    seen, cache = tmp_path / "seen", tmp_path / "cache"
    for folder in (seen, cache):
        folder.mkdir()
    case = honest(
        "scanned",
        UNITTEST,
        flags=FLAGS,
        settings=f"evidence: {{exam: {ending}}}\n"
        f"environment: {{allow: [SEEN]}}\nconfinement: {{readable: [{cache}], writable: [{seen}]}}\n",
        env={"SEEN": str(seen), "XDG_CACHE_HOME": str(cache)},
        execute=[(WRONG, look), (CODE, look)],
        execute_review=[(), (look,)],
        sign_off=(look,),
        exam=(examines(MARKED, LOW), claims(summary=f"I ask {SECRET}", feedback=SECRET)),
    )
    stage = Stage(case, tmp_path, level["CAPSULE_SANDBOX"])
    said = stage.run()
    assert stage.outcome()[0] == "merged", said

    phases = ["execute-1", "execute-2", "execute-review-2", "sign-off-1"]
    assert sorted(each.name for each in seen.iterdir()) == phases
    files = [path for path in seen.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes() or "test_exam" in path.name]
    for phase in phases:
        kept = {path.name for path in (seen / phase).iterdir()}
        assert kept == {"place", "cache", "temporary", "environment", "prompt", "git", "objects"}
        assert list((seen / phase / "cache").rglob("calc.py")), "the gate is within reach here"
        assert b"def clamp" in (seen / phase / "objects").read_bytes() or phase == "execute-1"
    for told in ("execute-2", "execute-review-2"):
        prompt = (seen / told / "prompt").read_text()
        assert all(line in prompt for line in ("criterion: never more than high", "input: 71, 2, 40"))
        assert "expected: 40\n  seen: 71" in prompt
    joined = stage.git("ls-tree", "-r", "--name-only", "main")
    assert ("tests/test_exam_high.py" in joined) is (ending == "keep")


@pytest.mark.slow
@pytest.mark.promise("exam.counts")
def test_what_proves_nothing_is_dropped_and_named_and_a_mistake_is_struck_out_in_writing(tmp_path: Path) -> None:
    reason = "6 is more than high, so the answer is 5"
    case = honest(
        "settled",
        UNITTEST,
        flags=FLAGS,
        execute=(CODE, claims(struck={"test": "E1", "because": "I do not like it"})),
        execute_review=[(), (claims(struck={"test": "E2", "because": reason}),)],
        exam=(examines(HIGH, MISTAKEN, VACUOUS, NAMELESS),),
    )
    stage = Stage(case, tmp_path, "off")
    stage.run()
    assert stage.outcome()[0] == "merged"

    first, second = ({r["id"]: r for r in each["evidence"][-1]["exam"]} for each in attempts(stage, "exam"))
    assert [first[name]["mark"] for name in ("E1", "E2", "E3", "E4")] == ["passed", "failed", "dropped", "dropped"]
    assert first["E2"]["seen"] == "5"
    assert (first["E3"]["seen"], first["E4"]["seen"]) == (
        "it passes with the change taken out",
        "it cannot find its names",
    )
    assert (second["E2"]["mark"], second["E2"]["seen"]) == ("struck out", reason)
    assert [bool(each["agent"]) for each in attempts(stage, "exam")] == [True, False], "one examiner per mission"
    words = " ".join(stage.capsule("show", "calc-1").stdout.split())
    assert f"E2 struck out: never more than high; input: 6, 0, 5; expected: 6; because {reason}" in words
    assert reason in stage.capsule("report", "calc-1").stdout


@pytest.mark.slow
@pytest.mark.promise("exam.hidden")
def test_an_examiner_that_writes_no_exam_stops_the_mission_without_its_words(tmp_path: Path) -> None:
    case = honest("none", UNITTEST, flags=FLAGS, exam=(claims("NEEDS_WORK", feedback=SECRET, summary=SECRET),))
    stage = Stage(case, tmp_path, "off")
    stage.run()
    shown = stage.shown()
    assert shown["state"] == "failed"
    assert "the examiner's signal has no list `exam_tests`" in shown["standing"] + str(shown["feedback"])
    assert SECRET not in (stage.path / ".capsule" / "worktrees" / "calc-1" / "worklog.md").read_text()
    assert SECRET not in str(shown["feedback"])


@pytest.mark.slow
@pytest.mark.promise("exam.hidden")
def test_killed_while_the_exam_is_held_it_ends_the_same(tmp_path: Path) -> None:
    kills = f"""
        import os
        import signal
        import unittest

        import calc


        class Exam(unittest.TestCase):
            def test_exam_high(self):
                self.assertEqual(calc.clamp(71, 2, 40), 40)
                if not os.path.exists({str(tmp_path / "killed")!r}):
                    open({str(tmp_path / "killed")!r}, "w").close()
                    os.kill(int(open({str(tmp_path / "pid")!r}).read()), signal.SIGKILL)
        """
    case = honest("killed", UNITTEST, flags=FLAGS, exam=(examines({**HIGH, "code": text(kills)}, LOW),))
    stage = Stage(case, tmp_path, "off")
    words = [sys.executable, "-c", _WITH_PID, str(tmp_path / "pid"), "run", "calc-1", *FLAGS]
    done = subprocess.run(words, cwd=stage.path, env=stage.env | stage.settings, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    place = stage.path / ".capsule" / "worktrees" / "calc-1"
    assert not [path for path in place.rglob("*") if "test_exam" in path.name]

    stage.run()
    assert stage.outcome()[0] == "merged"
    ended = attempts(stage, "exam")[-1]
    assert [result["mark"] for result in ended["evidence"][-1]["exam"]] == ["passed", "passed"]


_WITH_PID = """
import os, sys
from capsule.cli import main
open(sys.argv[1], "w").write(str(os.getpid()))
sys.argv[1:] = sys.argv[2:]
sys.exit(main())
"""
