"""Canaries in old test files: what new tests bring must not hollow them out."""

from __future__ import annotations

from typing import Any

import pytest

from capsule.core.event import Observed
from capsule.core.evidence import Evidence, EvidenceStatus, Observation

from .conftest import Scene
from .test_mending import GLOBS, HELD, OLD_CODE, OLD_TESTS, UNITTEST, VACUOUS, base_with, piece, story, writes

NEW_TESTS = VACUOUS + HELD
HOLLOWS = """

import test_greet  # noqa: E402

test_greet.Greet.test_greets = lambda self: None
"""
NEVER_AWAITED = OLD_TESTS.replace("    def test_greets", "    async def test_greets")


def judged(scene: Scene, old: str, new: str = NEW_TESTS, **changes: Any) -> Evidence:
    """What the canary shows of a mission in a project that has one old test file."""
    base_with(scene, old__py=OLD_CODE, test_greet__py=old)
    scene.plays(story(test_writer=[writes(test_pay__py=new)]))
    scene.run("one", "tdd", **{"test": UNITTEST, "test_globs": GLOBS, "mutants": 0, **changes})
    return piece(scene, "sign-off#1", "canary")


def runs_with_canaries(scene: Scene) -> list[Observation]:
    events = [event for _, event in scene.journal.events("one")]
    return [event.observation for event in events if isinstance(event, Observed) and event.observation.edits]


def test_new_tests_that_hollow_out_old_ones_are_found_out(scene: Scene) -> None:
    found = judged(scene, OLD_TESTS, NEW_TESTS + HOLLOWS)
    assert found.standing is EvidenceStatus.REFUTED
    assert found.observed == (
        "the test run cannot be trusted: test_greets in test_greet.py did not fail with another expected value "
        "(`'hello'` → `'hello~'`)"
    )


@pytest.mark.slow
def test_one_run_has_the_canaries_of_new_and_old_test_files(scene: Scene) -> None:
    found = judged(scene, OLD_TESTS)
    assert (found.standing, found.observed) == (EvidenceStatus.CONFIRMED, "canary seen in 2 test files")
    (seen,) = runs_with_canaries(scene)
    assert {line.partition("\t")[0] for line in seen.edits} == {"test_pay.py", "test_greet.py"}


@pytest.mark.slow
def test_an_old_test_that_held_nothing_on_the_base_is_not_held_against_the_work(scene: Scene) -> None:
    assert judged(scene, NEVER_AWAITED).standing is EvidenceStatus.CONFIRMED
    assert any(line.startswith("test_greet.py\t") for line in runs_with_canaries(scene)[0].edits)


@pytest.mark.slow
def test_a_command_that_stops_at_an_old_failure_still_shows_the_canaries_of_new_tests(scene: Scene) -> None:
    found = judged(scene, OLD_TESTS, test=f"{UNITTEST} test_greet && {UNITTEST}")
    assert (found.standing, found.observed) == (EvidenceStatus.CONFIRMED, "canary seen in 1 test file")
