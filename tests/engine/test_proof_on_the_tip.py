"""A merge that differs from what was signed off is asked for its canaries again, and for mutants of what it changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from capsule.core.event import Event, Observed, StepEnded
from capsule.core.evidence import Evidence, EvidenceStatus

from .conftest import Scene
from .test_mending import GLOBS, HELD, OLD_CODE, OLD_TESTS, UNITTEST, VACUOUS, base_with, run, story, writes

OTHER_TESTS = OLD_TESTS
DEAF_TESTS = "import unittest\n\nunittest.TestCase.assertEqual = lambda *args: None\n"
"""What is merged meanwhile makes every comparison true, in the same process."""
LONG_CODE = """
def share(total, heads):
    whole = total
    # The rest of this function is far enough away
    # for two people to change both ends of it
    # without a conflict.
    rest = 0
    if heads > 1:
        rest = heads
    return whole + rest
"""
MINE, THEIRS = (
    LONG_CODE.replace("rest = heads", "rest = heads * 2"),
    LONG_CODE.replace("whole = total", "whole = +total"),
)
LONG_TESTS = """
import unittest

from pay import share


class Share(unittest.TestCase):
    def test_shares(self):
        self.assertEqual(share(1, 3), 7)
"""


def when_signed_off(scene: Scene, does: Callable[[], object]) -> None:
    """Let somebody do this while the mission is about to be merged."""
    hear = scene.watcher.event

    def event(mission: str, event: Event) -> None:
        hear(mission, event)
        if isinstance(event, StepEnded) and event.key == "sign-off#1":
            does()

    scene.watcher.event = event  # type: ignore[method-assign]


def on_the_tip(scene: Scene) -> dict[str, Evidence]:
    """What was seen of the merge, by check."""
    ended = next(event for event in scene.ended("one") if event.phase == "publish")
    return {piece.check: piece for piece in ended.outcome.evidence}


@pytest.mark.promise("evidence.tip")
def test_canaries_are_seen_on_the_tip_that_is_published(scene: Scene) -> None:
    when_signed_off(scene, lambda: base_with(scene, old__py=OLD_CODE, test_old__py=OTHER_TESTS))
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    assert run(scene).finished
    tip = on_the_tip(scene)
    assert (tip["canary"].standing, "demanded" in tip) == (EvidenceStatus.CONFIRMED, False)
    assert tip["canary"].observed.startswith("canary seen in ")


@pytest.mark.slow
@pytest.mark.promise("evidence.tip")
def test_a_merge_whose_tests_cannot_be_trusted_is_not_published(scene: Scene) -> None:
    before = scene.services.trunk("main").tip()
    when_signed_off(scene, lambda: base_with(scene, test_deaf__py=DEAF_TESTS))
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    state = run(scene)
    trunk = scene.services.trunk("main")
    assert not state.finished and "one" not in [step.name for step in trunk.steps(before, trunk.tip())]
    assert "did not fail with another expected value" in next(
        event.why for _, event in scene.journal.events("one") if hasattr(event, "why")
    )


@pytest.mark.slow
@pytest.mark.promise("evidence.tip")
def test_a_merge_that_is_what_was_signed_off_costs_no_run(scene: Scene) -> None:
    scene.plays(story(test_writer=[writes(test_pay__py=VACUOUS + HELD)]))
    assert run(scene).finished
    assert set(on_the_tip(scene)) == {"gate"}


@pytest.mark.slow
@pytest.mark.in_git
@pytest.mark.promise("evidence.tip")
def test_a_function_that_the_merge_changed_is_broken_once_more(scene: Scene) -> None:
    def commit(**files: str) -> None:
        for name, text in files.items():
            (scene.root / f"{name}.py").write_text(text)
        scene.git("add", "-A")
        scene.git("commit", "-q", "-m", "More")

    commit(pay=LONG_CODE)
    when_signed_off(scene, lambda: commit(pay=THEIRS))
    scene.plays(story(test_writer=[writes(test_pay__py=LONG_TESTS)], execute=[writes(pay__py=MINE)]))
    assert scene.run("one", "tdd", test=UNITTEST, test_globs=GLOBS, mutants=4).finished
    tip = on_the_tip(scene)
    assert tip["demanded"].standing is EvidenceStatus.CONFIRMED
    tree = scene.git("rev-parse", "main^{tree}")
    edits = [
        event.observation.edits
        for _, event in scene.journal.events("one")
        if isinstance(event, Observed) and event.observation.tree == tree
    ]
    assert sum(" in pay.py:" in " ".join(lines) for lines in edits) >= 2
