"""What goes wrong with agents: every kind has its reaction, and pauses grow within bounds."""

from __future__ import annotations

import pytest

from capsule.core.failure import FIRST_PAUSE, LONGEST_PAUSE, REACTIONS, Failure, Kind, Reaction, pause

PASSES_BY_ITSELF = {Kind.RATE_LIMIT, Kind.OVERLOAD, Kind.CONNECTION}
NEEDS_A_PERSON = {Kind.AUTH, Kind.QUOTA, Kind.CONFIGURATION, Kind.MISSING}


@pytest.mark.promise("agents.failure-kinds")
def test_every_kind_has_its_reaction() -> None:
    assert set(REACTIONS) == set(Kind)
    assert {kind for kind in Kind if Failure(kind, "").reaction is Reaction.WAIT} == PASSES_BY_ITSELF
    assert {kind for kind in Kind if Failure(kind, "").reaction is Reaction.STOP} == NEEDS_A_PERSON


def test_pauses_double_up_to_a_cap() -> None:
    pauses = [pause(tries, None, 0.5) for tries in range(12)]
    assert pauses[0] == FIRST_PAUSE
    assert pauses[1] == 2 * pauses[0]
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE
    assert pause(10_000, None, 0.5) == LONGEST_PAUSE


def test_chance_keeps_many_from_coming_back_together() -> None:
    assert pause(3, None, 0.0) < pause(3, None, 0.5) < pause(3, None, 1.0)
    assert pause(3, None, 1.0) < 2 * pause(3, None, 0.0)


@pytest.mark.parametrize("said", [0.0, 2.0, 30.0, 20_000.0])
def test_what_the_provider_says_counts_and_is_never_undercut(said: float) -> None:
    for chance in (0.0, 1.0):
        assert max(1.0, said) <= pause(0, said, chance) <= max(1.0, said) * 1.06
        assert pause(7, said, chance) >= said


def test_a_provider_that_promises_too_much_is_not_asked_every_second() -> None:
    assert sum(pause(tries, 0.0, 0.0) for tries in range(12)) > 3000
