"""A mission is killed before and after everything it journals and does, and resumed: the end is always the same.

The points are those that an undisturbed run passes. Those of the journal are all tried, always: several of them on the
way of one mission, or, with CAPSULE_CRASH_ALL=1, each in a mission of its own. Of calls through adapters, one stands
for all that lie between the same two effects on the disk: there is nothing to tell them apart by. These, and the
effects themselves, are sampled, evenly and always the same, unless CAPSULE_CRASH_ALL=1 is set.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from .conftest import EVENTS, Undisturbed
from .ending import Ending, ending_after
from .points import ALL, between_effects, is_effect, is_event, sample
from .project import Project

GROUPS = 24
MISSIONS = 24 if ALL else 4
DOORS_TRIED = 2
EFFECTS_TRIED = 2
CHAINS = 1

MakeProject = Callable[[], Project]


def groups(tried: int) -> range:
    """No more groups than points: each one kills something."""
    return range(GROUPS if ALL else min(GROUPS, tried))


@pytest.mark.promise("durability.every-event")
def test_every_event_in_the_journal_has_a_point_before_and_after_it(undisturbed: Undisturbed) -> None:
    expected = [f"{side} {name}" for name in undisturbed.events for side in ("before", "after")]
    assert list(filter(is_event, undisturbed.points)) == expected
    assert len(set(undisturbed.points)) == len(undisturbed.points)
    assert {name.split()[0] for name in undisturbed.events} == set(EVENTS)


def test_the_mission_meets_every_kind_of_turn(undisturbed: Undisturbed) -> None:
    ended = undisturbed.ending.ended
    assert ended[:5] == ("prep#1", "test-writer#1", "test-review#1", "test-writer#2", "test-review#2")
    assert ended[5:8] == ("execute#1", "execute#2", "execute-review#1")
    assert "Verdict: REFUTED" in undisturbed.ending.worklog
    assert undisturbed.ending.commits[0].startswith("Merge mend-1.1: ")


@pytest.mark.promise("durability.every-event")
@pytest.mark.parametrize("group", range(MISSIONS))
def test_killed_around_an_event_it_ends_the_same(
    group: int, undisturbed: Undisturbed, a_project: MakeProject, mark: str
) -> None:
    points = list(filter(is_event, undisturbed.points))[group::MISSIONS]
    for killed_at in [[point] for point in points] if ALL else [points]:
        assert ended_after(a_project(), killed_at, undisturbed, mark) == undisturbed.ending, killed_at


@pytest.mark.promise("durability.every-call")
@pytest.mark.parametrize("group", groups(DOORS_TRIED))
def test_killed_around_a_call_through_a_door_it_ends_the_same(
    group: int, undisturbed: Undisturbed, a_project: MakeProject, mark: str
) -> None:
    for point in sample(between_effects(undisturbed.points), DOORS_TRIED)[group :: len(groups(DOORS_TRIED))]:
        assert ended_after(a_project(), [point], undisturbed, mark) == undisturbed.ending, point


@pytest.mark.promise("durability.every-call")
@pytest.mark.parametrize("group", groups(EFFECTS_TRIED))
def test_killed_before_or_during_an_effect_it_ends_the_same(
    group: int, undisturbed: Undisturbed, a_project: MakeProject, mark: str
) -> None:
    for point in sample(list(filter(is_effect, undisturbed.points)), EFFECTS_TRIED)[
        group :: len(groups(EFFECTS_TRIED))
    ]:
        ending = ended_after(a_project(), [point], undisturbed, mark, CRASH_EFFECTS="1")
        assert ending == undisturbed.ending, point


@pytest.mark.promise("durability.again-and-again")
@pytest.mark.parametrize("seed", range(CHAINS))
@pytest.mark.quick
def test_killed_again_and_again_it_ends_the_same(
    seed: int, undisturbed: Undisturbed, a_project: MakeProject, mark: str
) -> None:
    steps = [point for point in undisturbed.points if "#" in point]
    chosen = [steps[number] for number in sorted(random.Random(seed).sample(range(len(steps)), 4))]
    assert ended_after(a_project(), chosen, undisturbed, mark) == undisturbed.ending, chosen


def ended_after(project: Project, points: list[str], undisturbed: Undisturbed, mark: str, **told: str) -> Ending:
    ending = ending_after(project, points, undisturbed.ending.tree, mark, **told)
    project.remove()
    return ending
