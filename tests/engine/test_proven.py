"""What the checks leave behind for the line that sums up a mission."""

from __future__ import annotations

import pytest

from capsule.core.history import read_mission
from capsule.core.proven import Proof, proof_of

from .conftest import Scene
from .test_mending import HELD, VACUOUS, run, story, writes


def proof(scene: Scene) -> Proof:
    return proof_of(read_mission(event for _, event in scene.journal.events("one")))


@pytest.mark.promise("evidence.proven")
def test_an_honest_mission_is_proven_by_name(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    run(scene)
    known = proof(scene)
    assert known.line.startswith("red by name (2 new) · green by name · 0 others unharmed · demanded ")
    assert known.line.endswith(" · canary seen · reviewed (its word)")
    names = ("test_pay.py::Share.test_halves", "test_pay.py::Share.test_there_is_one")
    assert known.tests == {"new": names}
    assert all(" in pay.py:" in line for line in known.survivors)


@pytest.mark.slow
def test_mended_tests_are_said_to_be_mended(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS), writes(test_pay__py=VACUOUS + HELD)]))
    run(scene)
    assert "red by name (1 new) · tests mended (" in proof(scene).line
    assert proof(scene).tests["mended"] == ("test_pay.py::Share.test_halves",)


@pytest.mark.slow
def test_without_mutants_that_is_said(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    run(scene, mutants=0)
    assert " · canary seen · mutants not tried" in proof(scene).line


def test_a_runner_without_names_proves_exit_codes_only(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(tests__sh="test -e pay.py\n")]))
    scene.run("one", "tdd", mutants=0)
    assert proof(scene).line.startswith("red (exit code only) · green (exit code only) · mutants not tried · no canary")
