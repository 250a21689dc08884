"""Each agent by its own deeds: claims, what became of them, and what a merged item cost."""

from __future__ import annotations

import msgspec
import pytest
from tests.told import HELD, PAID, Told, part_of, prepared

from capsule.core.by_agent import AgentRecord, by_agent
from capsule.core.report import nested

SMALL = msgspec.structs.replace(PAID, usd=0.05, model="small")


def rows(*told: Told) -> dict[tuple[str, str], AgentRecord]:
    return {(one.agent, one.model): one for one in by_agent(nested(each.summary() for each in told))}


def mixed() -> Told:
    """A small model lies and is relieved by a large one; another agent reviews."""
    told = prepared("a").refuted(usage=SMALL).step("code", evidence=(HELD,), usage=PAID)
    told.step("look", agent="codex", usage=SMALL)
    return told.step("deliver", agent="", facts={"merged": "c" * 40})


@pytest.mark.promise("screens.by-agent")
def test_agents_and_models_are_told_apart() -> None:
    found = rows(mixed())
    assert {*found} == {("claude", "small"), ("claude", "large"), ("codex", "small")}
    lied, mended = found["claude", "small"], found["claude", "large"]
    assert (lied.claims, lied.refuted, lied.phases, lied.first_pass) == (1, 1, 1, 0)
    assert (mended.claims, mended.refuted, mended.phases, mended.first_pass_rate) == (1, 0, 0, None)


@pytest.mark.promise("screens.by-agent")
def test_what_was_not_delivered_is_paid_for_by_what_was() -> None:
    lost = prepared("b").refuted(usage=PAID).failed()
    lost.events = lost.events[:-2]
    found = rows(mixed(), lost)["claude", "large"]
    assert (found.merged, found.usd_per_merged) == (1, 0.5)


def test_unknown_cost_is_never_zero_nor_shared_out() -> None:
    found = rows(prepared().delivered())["claude", ""]
    assert (found.merged, found.usd_per_merged, found.spending.priced) == (1, None, 0)


def test_a_phase_that_passed_at_once_and_was_sent_back_later_is_no_first_pass() -> None:
    straight, back = prepared("a").delivered(), prepared("b").step("code").sent_back().step("code")
    assert rows(straight)["claude", ""].first_pass_rate == 1.0
    assert rows(back)["claude", ""].first_pass == 0


def test_a_review_that_sends_work_back_has_done_its_work() -> None:
    found = rows(prepared().step("code", agent="claude").sent_back(agent="codex"))["codex", ""]
    assert (found.attempts, found.phases, found.refuted) == (1, 0, 0)


def test_attempts_of_parts_count_and_the_mission_counts_once() -> None:
    whole = prepared("a").begin(agent="")
    part = part_of(whole).delivered()
    whole.end(agent="").step("look").step("deliver", agent="", facts={"merged": "c" * 40})
    found = rows(whole, part)["claude", ""]
    assert (found.attempts, found.merged, found.phases) == (3, 1, 1)


def test_what_was_killed_is_an_attempt_of_unknown_cost() -> None:
    found = rows(prepared().begin().pass_time(40).stopped())["claude", ""]
    assert (found.attempts, found.claims, found.spending.runs, found.spending.priced) == (1, 0, 1, 0)
