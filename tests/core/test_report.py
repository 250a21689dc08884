"""What missions came to: said and checked kept apart, nothing made up, nothing counted twice."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from msgspec.structs import replace
from tests.told import FLOW, HELD, PAID, RED, Told, a_long_story, part_of, prepared

from capsule.core.decide import Move
from capsule.core.event import Abandoned, Event, Recorded, RunEnded, RunStarted, Spawned
from capsule.core.evidence import Checkpoint
from capsule.core.history import NOBODY, MissionSummary, RunSummary, read_run
from capsule.core.report import Report, nested
from capsule.core.signal import Verdict
from capsule.core.state import MissionState
from capsule.core.status import Condition

AT = "2026-01-05T09:00:00Z"


def together(*missions: MissionSummary) -> Report:
    return Report(project="p", title="t", as_of=AT, missions=nested(missions))


# ---- one mission


def test_an_attempt_tells_who_ran_when_for_how_long_and_what_was_said_beside_what_was_seen() -> None:
    lie = prepared().refuted(usage=PAID).summary().attempts[1]
    assert (lie.phase, lie.number, lie.agent, lie.model) == ("code", 1, "claude", "large")
    assert (lie.began, lie.until, lie.seconds) == ("2026-01-05T09:00:02Z", "2026-01-05T09:00:32Z", 30.0)
    assert lie.decision and (lie.claimed, lie.verdict) == ("PASS", "REFUTED")
    assert (lie.decision.move, lie.decision.back_to) == ("retry", "code")
    assert lie.evidence == (HELD, RED)


def test_what_was_killed_is_an_attempt_of_its_own_and_no_time_is_made_up_for_it() -> None:
    killed, again = prepared().begin().pass_time(50).begin().end().summary().attempts[1:]
    assert (killed.how, killed.until, killed.seconds, killed.verdict) == ("interrupted", "", None, "")
    assert (again.how, again.seconds) == ("ended", 30.0)


def test_what_was_stopped_took_as_long_as_until_then() -> None:
    stopped = prepared().begin().pass_time(50).stopped().summary().attempts[-1]
    assert (stopped.how, stopped.seconds) == ("interrupted", 50.0)


def test_what_runs_is_told_as_of_now() -> None:
    told = prepared().begin().pass_time(7)
    report = told.summary(running=True)
    assert (report.attempts[-1].how, report.attempts[-1].seconds) == ("under way", 7.0)
    assert (report.ended, report.wall_seconds) == ("", 9.0)


def test_waiting_belongs_to_the_attempt_that_waited() -> None:
    told = prepared().begin().pass_time(10).wait(60).end(seconds=80).step("look")
    waits = [attempt.waited for attempt in told.summary().attempts]
    assert waits == [0, 60, 0]
    assert told.summary().waited_seconds == 60


def test_no_mission_was_active_for_longer_than_it_took() -> None:
    """Its stamps are of whole seconds, its attempts are measured."""
    told = prepared().step(seconds=0.4)
    quick = replace(told.summary(), began=AT, ended=AT, worked=0.4)
    assert (quick.wall_seconds, quick.busy_seconds) == (0.4, 0.4)


def test_every_round_of_feedback_says_whose_word_it_is() -> None:
    told = prepared().refuted().step().sent_back("Name it better.").blocked().reopened("Blue.").delivered()
    rounds = [(each.by, each.to, each.seen, each.text) for each in told.summary().rounds]
    assert rounds == [
        ("code", "code", True, "You reported PASS, but one test is red."),
        ("look", "code", False, "Name it better."),
        ("", "", False, "Blue."),
    ]


def test_only_the_last_start_is_told_and_what_was_paid_stays_paid() -> None:
    told = prepared().refuted(usage=PAID)
    told.events.append(Abandoned(at=told.at, how="started over"))
    report = told.start().step("prepare", agent="").delivered().summary()
    assert [attempt.phase for attempt in report.attempts] == ["prepare", "code", "look", "deliver"]
    assert (report.starts, report.spent.usd) == (2, 0.25)


# ---- what it changed


def test_a_merge_is_what_it_brought_to_the_branch() -> None:
    told = prepared().delivered("m" * 40, onto="o" * 40)
    assert told.summary().to_compare()[0] == (("o" * 40, "m" * 40),)


def test_steps_that_are_commits_are_each_set_beside_the_one_before() -> None:
    """Others may lie between them."""
    told = prepared(workflow=replace(FLOW, workspace="checkout"))
    told.events += [Recorded(at=AT, key="code#1", commit=commit) for commit in ("one", "two")]
    assert told.summary().to_compare()[0] == (("one^", "one"), ("two^", "two"))


def test_what_is_not_merged_is_what_lies_in_the_last_checkpoint() -> None:
    state = MissionState(mission="x", base="base", checkpoint=Checkpoint("commit", "head", "tree"))
    at_work = prepared().summary(state=state)
    assert at_work.to_compare() == ((("base", "tree"),), "in its last checkpoint, not merged")
    assert prepared().summary(state=MissionState()).to_compare()[0] == ()


def test_where_work_is_merged_at_the_end_commits_of_the_tracker_are_not_its_changes() -> None:
    told = prepared()
    told.events.append(Recorded(at=AT, key="code#1", commit="one"))
    work = replace(told.summary().state, checkpoint=Checkpoint("commit", "head", "tree"))
    assert told.summary(state=work).to_compare()[0] == ((work.base, "tree"),)


# ---- first pass

FIRST_PASS: dict[str, tuple[Callable[[], Told], bool]] = {
    "straight to main": (lambda: prepared().delivered(), True),
    "refuted once": (lambda: prepared().refuted().delivered(), False),
    "sent back by a review": (lambda: prepared().step().sent_back().delivered(), False),
    "stopped by an error, and run again": (lambda: prepared().failed().reopened().delivered(), False),
    "it asked a question first": (lambda: prepared().blocked().reopened("red").delivered(), True),
    "killed on the way, and resumed": (lambda: prepared().begin().delivered(), True),
    "started over": (lambda: prepared().start().delivered(), False),
    "a human had to look": (
        lambda: prepared().step("code", Verdict.PASS, Move.PARK, vetoed=True).reopened().delivered(),
        True,
    ),
}


@pytest.mark.promise("screens.money")
@pytest.mark.parametrize("name", FIRST_PASS)
def test_first_pass_is_delivered_with_nothing_sent_back(name: str) -> None:
    make, straight = FIRST_PASS[name]
    assert make().summary().first_pass is straight


def test_a_part_that_was_sent_back_is_held_against_the_whole() -> None:
    parent = prepared()
    part = part_of(parent).refuted().delivered()
    [whole] = together(parent.delivered().summary(), part.summary()).missions
    assert not whole.first_pass
    assert whole.sent_back == 1


def test_the_rate_is_of_those_at_an_end_that_were_needed() -> None:
    good, bad = prepared("a").delivered(), prepared("b").refuted().delivered()
    halted = prepared("c").blocked(), prepared("d").failed()
    unfinished = prepared("e").summary(running=True), prepared("f").begin().summary(), prepared("g").summary()
    closed = prepared("h").summary(condition=Condition.CLOSED)
    report = together(*(told.summary() for told in (good, bad, *halted)), *unfinished, closed)
    totals = report.totals
    assert (totals.first_pass, totals.judged, totals.first_pass_rate) == (1, 4, 0.25)
    assert (totals.delivered, totals.parked, totals.stopped, totals.closed, totals.under_way) == (2, 1, 1, 1, 3)
    assert {status.value: number for status, number in report.statuses.items()} == {
        "done": 2,
        "needs_you": 1,
        "failed": 1,
        "running": 1,
        "stopped": 3,
    }


def test_where_nothing_is_at_an_end_there_is_no_rate_and_not_one_of_zero() -> None:
    assert together(prepared().summary(running=True)).totals.first_pass_rate is None
    assert together().totals.first_pass_rate is None


# ---- several


def test_what_nobody_reported_is_unknown_and_a_sum_with_it_a_lower_bound() -> None:
    paid, silent = prepared("a").step(usage=PAID), prepared("b").step()
    spent = together(paid.summary(), silent.summary()).totals.spending
    assert (spent.runs, spent.priced, spent.usd) == (2, 1, 0.25)


def test_parts_are_told_with_their_mission_and_counted_once() -> None:
    parent = prepared("a")
    part = part_of(parent).refuted(usage=PAID).delivered()
    report = together(part.summary(), parent.step(agent="").summary())
    assert [each.mission for each in report.missions] == ["a"]
    assert [each.mission for each in report.missions[0].parts] == ["a.code.1"]
    totals = report.totals
    assert (totals.missions, totals.sent_back, totals.refuted, totals.spending.usd) == (1, 1, 1, 0.25)


def test_a_part_stands_by_itself_where_its_mission_is_not_told() -> None:
    report = together(part_of(prepared("a")).summary())
    assert [each.mission for each in report.missions] == ["a.code.1"]


def test_the_newest_mission_is_told_last() -> None:
    names = ["b", "c", "a"]
    told = [prepared(name, at=f"2026-01-0{day}T09:00:00Z").summary() for day, name in enumerate(names, 1)]
    assert [each.mission for each in together(*reversed(told)).missions] == names


def test_totals_count_attempts_claims_and_time() -> None:
    totals = together(a_long_story().summary()).totals
    assert (totals.attempts, totals.sent_back, totals.refuted) == (8, 2, 1)
    assert (totals.claims, totals.claims_confirmed, totals.claims_refuted) == (4, 3, 1)
    assert totals.wall_seconds > 14 * 3600 > totals.busy_seconds
    assert totals.waited_seconds == 120


# ---- runs


def spawned(*missions: str) -> list[Event]:
    return [Spawned(at=AT, mission=name, key="k") for name in missions]


def ran(*events: Event) -> RunSummary:
    return read_run("_queue", events).summary(NOBODY, AT)


def test_a_run_that_was_killed_and_gone_on_with_is_one_run() -> None:
    start, end = RunStarted(at=AT, cap=9), RunEnded(at=AT, why="done", done=("b",), blocked={"c": "why"})
    before = [start, *spawned("a"), msgspec.structs.replace(end, done=("a",), blocked={})]
    run = ran(*before, start, *spawned("b"), start, *spawned("b"), end)
    assert run.ended
    assert (run.all_missions, run.spawns, run.ended.why, run.ended.exit_code) == (("b", "c"), 2, "done", 0)


def test_a_run_under_way_has_no_end() -> None:
    run = ran(RunStarted(at=AT, cap=9), *spawned("a"))
    assert (run.ended, run.all_missions) == (None, ("a",))
    assert not ran().began
