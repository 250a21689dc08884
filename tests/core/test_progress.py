"""How far a run of several missions at a time is, in one line."""

from __future__ import annotations

import msgspec
import pytest
from tests.told import FLOW, Told

from capsule.core.decide import Move
from capsule.core.event import Advanced, Allowance, Usage
from capsule.core.history import MissionSummary, Presence, RunSummary, read_mission
from capsule.core.progress import earlier_durations, progress_of
from capsule.core.signal import Verdict
from capsule.reports.words import progress_words, spent_of

NOW = "2026-01-05T09:10:00Z"
RUN = RunSummary(stream="_queue", pid=1, jobs=6, began="2026-01-05T09:00:00Z", as_of=NOW)
OTHER = msgspec.structs.replace(FLOW, name="other")


def done(name: str, seconds: float, **more: object) -> MissionSummary:
    return Told(name).start(**more).step("code", seconds=seconds).delivered().summary()


def at_work(name: str, *, pid: int | None = 1) -> MissionSummary:
    return read_mission(Told(name).start().begin().events).summary(Presence(pid), NOW)


def paid(name: str, usd: float) -> MissionSummary:
    told = Told(name).start().begin()
    return told.end("code", Verdict.BLOCKED, Move.PARK, usage=Usage(usd=usd), reason="which colour?").summary()


@pytest.mark.promise("jobs.header")
def test_a_queue_says_how_far_it_is_in_one_line() -> None:
    run = msgspec.structs.replace(
        RUN,
        budget=Allowance(usd=10),
        progress={"": Advanced(at=NOW, item="", title="", done=12, of=40)},
    )
    running = [at_work(f"r-{number}") for number in range(8)]
    asking = [paid("a-1", 4.0), paid("a-2", 0.1)]
    earlier = [done(f"d-{number}", 605.0) for number in range(3)]
    missions = [*running, *asking]
    told = progress_words(progress_of(run, missions, [*missions, *earlier], ["r-0", "r-1", "somebody-else"]))
    assert " · ".join(told) == (
        "12/40 · 6 running · 2 in the merge queue · $4.10 of $10 · 2 need you · about 35 min left"
    )


@pytest.mark.promise("jobs.header")
def test_what_is_left_is_foretold_from_missions_of_the_same_workflow_of_any_run() -> None:
    known = [done("d-1", 100), done("d-2", 900, workflow=OTHER), Told("f").start().step().failed().summary()]
    took = earlier_durations([at_work("r")], known)
    assert took == [known[0].busy_seconds]
    assert earlier_durations([], known) == earlier_durations([at_work("r")], known[1:]) == []


@pytest.mark.promise("jobs.header")
def test_nothing_is_foretold_where_nothing_is_known() -> None:
    missions = [at_work("r-1"), at_work("r-2"), done("d-1", 60)]
    assert progress_words(progress_of(RUN, missions, missions, [])) == ["1 done", "2 running", "cost unknown"]
    counted = msgspec.structs.replace(RUN, progress={"": Advanced(at=NOW, item="", title="", done=0, of=2)})
    told = progress_words(progress_of(counted, missions[:2], missions[:2], []))
    assert told == ["0/2", "2 running"]


@pytest.mark.parametrize(
    ("usages", "allowed", "words"),
    [
        ([Usage(usd=4.1)], Allowance(usd=10), "$4.10 of $10"),
        ([Usage(usd=4.1), None], Allowance(usd=2.5), "≥ $4.10 of $2.50"),
        ([Usage(usd=1, tokens_in=5)], Allowance(), "$1.00"),
        ([Usage(tokens_in=1500)], Allowance(), "1,500 tokens"),
        ([Usage(usd=1, tokens_in=5)], Allowance(tokens=5000), "$1.00, 5 of 5,000 tokens"),
        ([Usage(seconds=30)], Allowance(seconds=60), "30 s of 1 min 0 s"),
        ([None], Allowance(), "cost unknown"),
        ([None], Allowance(usd=10), "an unknown part of $10"),
    ],
)
def test_cost_in_short(usages: list[Usage | None], allowed: Allowance, words: str) -> None:
    told = Told().start()
    for usage in usages:
        told.step("code", usage=usage)
    assert spent_of(told.summary().spent, allowed) == words
