"""What agents used up: sums that say what they do not know."""

from __future__ import annotations

import pytest

from capsule.core.budget import (
    Spending,
    as_facts,
    cost_so_far,
    duration,
    in_words,
    least,
    left,
    overdrawn,
    price,
    total,
)
from capsule.core.event import Allowance, Usage

CLAUDE = Usage(tokens_in=1000, tokens_out=200, usd=0.25, seconds=60.0)
CODEX = Usage(tokens_in=500, tokens_out=100, seconds=30.0)


def spent(*usages: Usage | None) -> Spending:
    found = Spending()
    for usage in usages:
        found = found.plus(usage)
    return found


def test_runs_add_up() -> None:
    assert spent(CLAUDE, CLAUDE) == Spending(2, 0.5, 2, 2400, 2, 120.0)
    assert total([spent(CLAUDE), spent(CODEX)]) == spent(CLAUDE, CODEX)


@pytest.mark.promise("agents.unknown-usage")
@pytest.mark.parametrize(
    ("usages", "words"),
    [
        ((), "nothing"),
        ((CLAUDE,), "$0.25, 1,200 tokens, 1 min 0 s"),
        ((CODEX,), "cost unknown, 600 tokens, 30 s"),
        ((CLAUDE, CODEX), "at least $0.25, 1,800 tokens, 1 min 30 s"),
        ((CLAUDE, None), "at least $0.25, at least 1,200 tokens, 1 min 0 s"),
        ((None,), "cost unknown, tokens unknown, 0 s"),
        ((Usage(usd=0.0, tokens_in=0, tokens_out=0),), "$0.00, 0 tokens, 0 s"),
        ((Usage(usd=0.0021, tokens_in=5),), "$0.0021, 5 tokens, 0 s"),
    ],
)
def test_what_nobody_reported_is_unknown_and_never_zero(usages: tuple[Usage | None, ...], words: str) -> None:
    assert in_words(spent(*usages)) == words


@pytest.mark.promise("agents.unknown-usage")
def test_programs_are_told_null_for_unknown() -> None:
    assert as_facts(spent(CODEX))["usd"] is None
    assert as_facts(spent(None))["tokens"] is None
    mixed = as_facts(spent(CLAUDE, CODEX, None))
    assert (mixed["usd"], mixed["without_usd"], mixed["tokens"], mixed["without_tokens"]) == (0.25, 2, 1800, 1)
    assert as_facts(Spending())["usd"] == 0


@pytest.mark.parametrize(
    ("allowed", "used"),
    [
        (Allowance(), ""),
        (Allowance(usd=0.26), ""),
        (Allowance(usd=0.25), "$0.25 of $0.25"),
        (Allowance(usd=1.0, tokens=1200), "1,200 of 1,200 tokens"),
        (Allowance(seconds=59), "1 min 0 s of 59 s"),
    ],
)
def test_a_budget_is_spent_when_it_is_reached(allowed: Allowance, used: str) -> None:
    assert overdrawn(spent(CLAUDE), allowed) == used


def test_what_is_left_is_never_less_than_nothing() -> None:
    assert left(spent(CLAUDE), Allowance(usd=1.0, tokens=1000)) == Allowance(usd=0.75, tokens=0)
    assert least(None, 3.0, 2.0, None) == 2.0
    assert least(None) is None


def test_the_price_of_one_run_names_only_what_is_known() -> None:
    assert price(CLAUDE) == "$0.25, 1,200 tokens"
    assert price(CODEX) == "600 tokens"
    assert price(None) == ""


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (1.25, "1.2 s"), (59.6, "60 s"), (61, "1 min 1 s"), (7260, "2 h 1 min")]
)
def test_durations_read_like_a_person_would_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.promise("agents.price")
@pytest.mark.parametrize(
    ("missions", "words"),
    [
        ([], "unknown (none is done yet)"),
        ([Spending(runs=5, seconds=60.0)], "1 mission done for cost unknown, tokens unknown, 1 min 0 s"),
        (
            [Spending(runs=2, usd=0.30, priced=2, seconds=30.0), Spending(runs=2, usd=0.10, priced=2, seconds=30.0)],
            "2 missions done for $0.40, tokens unknown, 1 min 0 s ($0.20 each on average)",
        ),
        (
            [Spending(runs=2, usd=0.30, priced=2, seconds=30.0), Spending(runs=2, usd=0.10, priced=1, seconds=30.0)],
            "2 missions done for at least $0.40, tokens unknown, 1 min 0 s",
        ),
    ],
)
def test_what_missions_have_cost_is_never_made_up(missions: list[Spending], words: str) -> None:
    assert cost_so_far(missions) == words
