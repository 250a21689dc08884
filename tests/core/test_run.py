"""Whether a run may start another agent: its cap, its breaker, and its share of the budget."""

from __future__ import annotations

import pytest

from capsule.core.decide import Decision, Move
from capsule.core.errors import NotYet, Paused
from capsule.core.event import (
    AgentEnded,
    Allowance,
    Closing,
    Event,
    Outcome,
    RunEnded,
    RunStarted,
    Spawned,
    StepEnded,
    StopAsked,
    Usage,
)
from capsule.core.run import Tally, admitted, agent_ended, followed_run, open_run
from capsule.core.signal import Signal, Verdict

AT = "2026-01-05T09:00:00Z"
EXHAUSTED = Decision(Move.PARK, Verdict.FAILED, exhausted=True)
BESIDE_OTHERS = Decision(Move.PARK, Verdict.FAILED, exhausted=True, by_others=True)
BLOCKED = Decision(Move.PARK, Verdict.BLOCKED)
TRIPPED = Decision(Move.PARK, Verdict.PASS, vetoed=True)
PASSED = Decision(Move.ADVANCE, Verdict.PASS)
MORE = Decision(Move.REPEAT, Verdict.MORE)


def ended(decision: Decision, mission: str = "m", key: str = "code#1", usd: float | None = None) -> AgentEnded:
    outcome = Outcome(signal=Signal(verdict=decision.verdict), usage=Usage(usd=usd))
    step = StepEnded(at=AT, key=key, phase="code", run=1, outcome=outcome, decision=decision)
    return agent_ended(mission, step)


@pytest.mark.promise("004-pipeline.breaker", "004-follow-ups.breaker")
@pytest.mark.parametrize(
    ("story", "trips"),
    [
        ([EXHAUSTED], False),
        ([EXHAUSTED, EXHAUSTED], True),
        ([EXHAUSTED, PASSED, EXHAUSTED], False),
        ([EXHAUSTED, MORE, EXHAUSTED], False),
        ([EXHAUSTED, BLOCKED, EXHAUSTED], True),
        ([EXHAUSTED, TRIPPED, EXHAUSTED], True),
        ([BLOCKED, BLOCKED, TRIPPED, TRIPPED], False),
        ([BESIDE_OTHERS, BESIDE_OTHERS, EXHAUSTED], False),
        ([EXHAUSTED, BESIDE_OTHERS, EXHAUSTED], True),
        ([PASSED, EXHAUSTED, EXHAUSTED], True),
    ],
)
def test_the_breaker_counts_exhausted_items_in_a_row(story: list[Decision], trips: bool) -> None:
    tally = Tally()
    for decision in story:
        tally = tally.spawned().ended(ended(decision))
    assert tally.tripped is trips
    assert tally.spawns == len(story)


def spawned(mission: str, **fields: Allowance) -> Spawned:
    return Spawned(at=AT, mission=mission, key="code#1", **fields)


def a_run(*events: Event, cap: int = 9, jobs: int = 1, usd: float | None = None) -> list[Event]:
    return [RunStarted(at=AT, cap=cap, jobs=jobs, budget=Allowance(usd=usd)), *events]


def started(run: list[Event], *missions: str) -> dict[str, float | None]:
    """Start an agent for each mission, as the journal does; return the share of each."""
    shares = {}
    for mission in missions:
        start = admitted(spawned(mission), open_run(run))
        run.append(start)
        shares[mission] = start.may_use.usd
    return shares


def test_the_last_spawn_is_taken_once() -> None:
    run = a_run(cap=2, jobs=3)
    started(run, "a", "b")
    with pytest.raises(Paused, match="2 of 2"):
        admitted(spawned("c"), open_run(run))


def test_a_tripped_breaker_starts_nothing_while_others_are_at_work() -> None:
    run = a_run(jobs=3)
    started(run, "a", "b", "c")
    run += [ended(EXHAUSTED, "b"), ended(EXHAUSTED, "a")]
    with pytest.raises(Paused, match="in a row"):
        admitted(spawned("d"), open_run(run))


def test_the_breaker_reads_ends_in_the_order_of_the_stream() -> None:
    run = a_run(jobs=3)
    started(run, "a", "b", "c")
    run += [ended(EXHAUSTED, "c"), ended(PASSED, "a"), ended(EXHAUSTED, "b")]
    assert admitted(spawned("d"), open_run(run)).mission == "d"


def test_a_run_that_has_ended_starts_nothing() -> None:
    with pytest.raises(Paused):
        admitted(spawned("a"), open_run(a_run(RunEnded(at=AT, why="done"))))


def test_a_run_that_is_closing_starts_nothing_and_remembers_what_was_stopped() -> None:
    run = a_run(jobs=2)
    started(run, "a")
    run += [StopAsked(at=AT, mission="b"), Closing(at=AT, why="the agent cannot run")]
    with pytest.raises(Paused, match="1 of 1"):
        admitted(spawned("c"), open_run(run))
    assert open_run(run).stopped == {"b"}


def test_a_run_that_is_followed_reads_each_event_once() -> None:
    stream = [*enumerate(a_run(spawned("a"), ended(PASSED, "a"), spawned("b")), 1)]
    read: list[int] = []

    def events(_: str, after: int) -> list[tuple[int, Event]]:
        new = [each for each in stream if each[0] > after]
        read.extend(number for number, _ in new)
        return new

    run = followed_run(events, "_queue")
    assert run.now() == run.now() == open_run(event for _, event in stream)
    stream += [(5, ended(PASSED, "b")), (6, RunEnded(at=AT, why="done")), (7, RunStarted(at=AT, cap=3))]
    assert run.now() == open_run(event for _, event in stream)
    assert read == [*range(1, 8)]


def test_one_job_has_all_that_is_left_of_the_budget() -> None:
    run = a_run(usd=10.0)
    assert started(run, "a") == {"a": 10.0}
    run.append(ended(PASSED, "a", usd=4.0))
    assert started(run, "b") == {"b": 6.0}


def test_jobs_share_the_budget_and_never_hold_more_than_there_is() -> None:
    run = a_run(jobs=4, usd=10.0)
    assert started(run, "a", "b", "c", "d") == dict.fromkeys("abcd", 2.5)
    run.append(ended(PASSED, "a", usd=1.0))
    assert started(run, "e") == {"e": 1.5}
    assert sum(share.usd or 0 for share in open_run(run).at_work.values()) + 1.0 == 10.0


def test_with_too_little_for_another_it_waits_until_one_has_ended() -> None:
    run = a_run(jobs=2, usd=4.0)
    started(run, "a")
    run.append(ended(PASSED, "a", usd=3.0))
    assert started(run, "b") == {"b": 1.0}
    with pytest.raises(NotYet):
        admitted(spawned("c"), open_run(run))
    run.append(ended(PASSED, "b", usd=0.5))
    assert started(run, "c") == {"c": 0.5}  # less than one has needed, but nobody else is at work


def test_an_agent_that_starts_again_has_what_is_left_of_its_share() -> None:
    run = a_run(jobs=2, usd=4.0)
    started(run, "a")
    run.append(AgentEnded(at=AT, mission="a", key="code#1", usage=Usage(usd=0.5), final=False))
    assert open_run(run).at_work == {("a", "code#1"): Allowance(usd=1.5)}
    assert open_run(run).spending.usd == 0.5
    assert open_run(run).spending.runs != open_run(run).spending.priced  # what it uses now is unknown yet


def test_an_agent_that_is_said_to_have_ended_twice_counts_once() -> None:
    run = a_run(jobs=2)
    started(run, "a", "b")
    run += [ended(EXHAUSTED, "a", usd=1.0)] * 2
    assert not open_run(run).tally.tripped
    run += [ended(PASSED, "b", usd=0.5), ended(PASSED, "b", usd=0.5)]
    assert open_run(run).spent.usd == 1.5


def test_a_step_that_was_interrupted_and_is_begun_again_has_an_end_of_its_own() -> None:
    run = a_run()
    started(run, "a")
    run.append(AgentEnded(at=AT, mission="a", key="code#1"))
    started(run, "a")
    run.append(ended(PASSED, "a", usd=0.5))
    assert (open_run(run).spent.usd, open_run(run).spent.runs) == (0.5, 2)


def test_tokens_and_time_are_shared_too() -> None:
    run: list[Event] = [RunStarted(at=AT, cap=9, jobs=2, budget=Allowance(tokens=1001, seconds=60.0))]
    assert admitted(spawned("a"), open_run(run)).may_use == Allowance(tokens=501, seconds=30.0)


def test_a_breaker_that_has_tripped_stays_so_whoever_succeeds_then() -> None:
    """The others finish their phases, and their success is no reason to start anything new."""
    failed = AgentEnded(at="", mission="a", key="x#1", exhausted=True)
    tally = Tally().ended(failed).ended(failed)
    assert tally.ended(AgentEnded(at="", mission="b", key="x#1", progress=True)).tripped
