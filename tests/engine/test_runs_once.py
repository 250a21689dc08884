"""How often the tests run: never twice for the same files, and for mutants no longer than they may."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from capsule.core.event import Observed
from capsule.core.evidence import Colour

from .conftest import Scene
from .test_mending import CODE, GLOBS, HELD, OK, OLD_CODE, OLD_TESTS, VACUOUS, story, writes

FAILING = """
import unittest


class Known(unittest.TestCase):
    def test_one(self):
        self.assertEqual(1, 2)

    def test_two(self):
        raise KeyError("two")

    def test_three(self):
        import no_such_module
"""
FLAKY = """
import os
import unittest


class Weather(unittest.TestCase):
    def test_weather(self):
        with open(os.environ["WEATHER"], "a+") as times:
            times.write("x")
            times.seek(0)
            self.assertNotEqual(len(times.read()), {wrong})
"""
"""A test that fails one time only."""
RED_BASE = {"old__py": OLD_CODE, "test_old__py": OLD_TESTS, "test_known__py": FAILING}


class Counted:
    """A scene whose test command says of every run in which folder, and with which files, it was made."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self._runs = scene, folder / "runs"
        files, unittest = "cat *.py 2> /dev/null | cksum", f"{sys.executable} -m unittest -q"
        self.command = f"export WEATHER={folder}/weather; ({files}) >> {self._runs}; {unittest}"

    def has(self, **files: str) -> None:
        place = self.scene.services.place("base", "")
        place._repository.commit_files("main", "Before", **files)  # type: ignore[attr-defined]

    def run(self, **changes: Any) -> Any:
        return self.scene.run(
            "one", "tdd", test=self.command, test_globs=GLOBS, **{"mutants": 4, "base": "known", **changes}
        )

    @property
    def runs(self) -> list[str]:
        return self._runs.read_text().splitlines()

    @property
    def observed(self) -> list[Observed]:
        return [event for _, event in self.scene.journal.events("one") if isinstance(event, Observed)]


@pytest.fixture
def counted(scene: Scene, tmp_path: Path) -> Counted:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    return Counted(scene, tmp_path)


@pytest.mark.promise("evidence.runs-once")
def test_nothing_runs_twice_for_the_same_files(counted: Counted) -> None:
    counted.has(old__py=OLD_CODE, test_old__py=OLD_TESTS)
    assert counted.run().finished

    assert len(counted.runs) == len(set(counted.runs)) == len(counted.observed)


@pytest.mark.slow
@pytest.mark.promise("evidence.runs-once")
def test_a_project_without_a_test_is_asked_once(counted: Counted) -> None:
    assert counted.run().finished

    assert counted.runs.count(counted.runs[0]) == 1
    assert len(counted.runs) == len(set(counted.runs)) == len(counted.observed)


@pytest.mark.slow
@pytest.mark.promise("evidence.runs-once")
def test_a_red_base_is_asked_twice_and_no_more(counted: Counted) -> None:
    counted.has(**RED_BASE)
    assert counted.run().finished

    assert counted.runs.count(counted.runs[0]) == 2
    assert len(counted.runs) == len(set(counted.runs)) + 1 == len(counted.observed)


@pytest.mark.slow
@pytest.mark.promise("evidence.mutant-time")
def test_a_mutant_that_never_ends_is_ended_soon_and_counts_as_noticed(counted: Counted) -> None:
    endless = CODE + "\n\ndef count(n):\n    total = 0\n    while total < n:\n        total += 1\n    return total\n"
    held = HELD + "\n    def test_counts(self):\n        import pay\n        self.assertEqual(pay.count(3), 3)\n"
    counted.scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + held)], execute=[writes(pay__py=endless)]))
    assert counted.run(mutants=12).finished

    late = [event.observation for event in counted.observed if event.observation.colour is Colour.TIMED_OUT]
    assert late
    assert all(seen.edits and seen.seconds < 60 for seen in late)
    assert len(counted.runs) == len(counted.observed)


# ---- a base that is not perfect


@pytest.mark.slow
@pytest.mark.promise("evidence.known-failures")
@pytest.mark.parametrize("time", [3, 4], ids=["with the new tests", "with the code"])
def test_a_test_of_the_base_that_fails_once_is_flaky(counted: Counted, time: int) -> None:
    counted.has(**RED_BASE, test_sky__py=FLAKY.format(wrong=time))
    assert counted.run().finished

    seen = [e for event in counted.scene.ended("one") for e in event.outcome.evidence if e.check in ("red", "green")]
    assert any(e.tests.get("flaky") == ("test_sky.py::Weather.test_weather",) for e in seen)
    assert all("test_sky" not in name for e in seen for name in e.tests.get("new", ()))


@pytest.mark.slow
@pytest.mark.promise("evidence.known-failures")
def test_a_mission_gets_through_on_a_base_with_failing_and_flaky_tests(counted: Counted) -> None:
    counted.has(**RED_BASE, test_sky__py=FLAKY.format(wrong=1))
    assert counted.run().finished

    seen = next(e for e in counted.scene.ended("one")[0].outcome.evidence if e.check == "base-green")
    assert seen.tests["known to fail"] == tuple(f"test_known.py::Known.test_{n}" for n in ("one", "three", "two"))
    assert seen.tests["flaky"] == ("test_sky.py::Weather.test_weather",)
    assert "known to fail: test_known.py::Known.test_one, " in seen.observed


@pytest.mark.slow
@pytest.mark.promise("evidence.known-failures")
def test_a_new_failure_is_caught_beside_those_that_are_known(counted: Counted) -> None:
    counted.has(**RED_BASE, test_sky__py=FLAKY.format(wrong=1))
    breaks = {"write": {"pay.py": CODE, "old.py": "def greet():\n    return 'bye'\n"}, "signal": OK["signal"]}
    counted.scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)], execute=[breaks] * 4))
    state = counted.run()

    assert not state.finished
    seen = [e for event in counted.scene.ended("one") for e in event.outcome.evidence if e.check == "green"]
    assert "test_old.py::Greet.test_greets" in seen[-1].observed
    assert "Known" not in seen[-1].observed


@pytest.mark.promise("evidence.known-failures")
def test_a_base_on_which_nothing_passes_stops_before_the_first_spawn(counted: Counted) -> None:
    counted.has(test_known__py=FAILING)
    state = counted.run()

    assert not state.finished
    assert "spawned" not in counted.scene.kinds("one")
    assert [event.phase for event in counted.scene.ended("one")] == ["prep"]
    assert state.halt is not None
    assert state.halt.reason.startswith("base is red: no test passes; ")
    assert state.halt.reason.endswith("exit 1; once it is mended, `capsule run one --rebase` starts from there")
