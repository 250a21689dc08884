"""The one reading of events: linear, bounded, and never more than was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from tests.costs import grows_linearly

from capsule.core.board import gather_board, in_order
from capsule.core.decide import Decision, Move, decide
from capsule.core.event import (
    Advanced,
    Event,
    JobsSet,
    MissionStarted,
    Observed,
    Outcome,
    Policy,
    Reopened,
    RunEnded,
    RunStarted,
    Spawned,
    StepBegun,
    StepEnded,
    Stopped,
    Usage,
    Waiting,
    Warned,
)
from capsule.core.evidence import Colour, Evidence, EvidenceStatus, Observation
from capsule.core.failure import Failure, Kind
from capsule.core.history import (
    MOST_ATTEMPTS,
    Mark,
    MissionHistory,
    MissionSummary,
    Presence,
    RunSummary,
    read_mission,
    read_run,
)
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.stamps import seconds_between
from capsule.core.state import next_step
from capsule.core.status import MissionStatus, count_statuses
from capsule.core.workflow import Phase, Role, Workflow

FLOW = Workflow(
    name="flow",
    retries=1,
    phases=(
        Phase(name="prep", role=Role.ACTION, do="prep", stage="begin"),
        Phase(name="code", role=Role.WORKER, prompt="c", stage="make"),
        Phase(name="check", role=Role.REVIEW, prompt="r", rework="code", stage="make"),
        Phase(name="merge", role=Role.ACTION, do="merge", stage="end"),
    ),
)
LIE = Evidence("green", "all tests pass", "2 failed", EvidenceStatus.REFUTED)
HERE = Presence(pid=42)
NOBODY = Presence()


def at(second: int) -> str:
    return f"2026-01-01T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


class Tape:
    """A mission as the engine would have it, a second for each event."""

    def __init__(self, mission: str = "m-1", item: str = "Do it") -> None:
        self.events: list[Event] = []
        self.history = MissionHistory(most=MOST_ATTEMPTS)
        self.note(
            MissionStarted, mission=mission, item=Item(id=mission, title=item), workflow=FLOW, base="b", into="main"
        )

    def note(self, kind: type, **fields: object) -> Tape:
        event = kind(at=at(len(self.events)), **fields)
        self.events.append(event)
        self.history = self.history.after(event)
        return self

    def begin(self) -> Tape:
        step = next_step(self.history.state)
        assert step
        agent = "claude" if self.history.state.workflow.phase(step.phase).prompt else ""
        attempt = self.history.state.attempt(step.phase)
        return self.note(
            StepBegun, key=step.key, phase=step.phase, run=step.run, attempt=attempt, agent=agent, spawns=bool(agent)
        )

    def end(self, verdict: Verdict = Verdict.PASS, evidence: tuple[Evidence, ...] = (), **signal: str) -> Tape:
        begun = self.history.state.begun
        assert begun
        said = Signal(verdict=verdict, **signal)  # type: ignore[arg-type]
        decision = decide(FLOW, begun.phase, said, evidence, used=self.history.state.used)
        usage = Usage(10, 5, 0.25, seconds=2.0) if begun.agent else None
        outcome = Outcome(signal=said, evidence=evidence, agent=begun.agent, seconds=2.0, usage=usage)
        return self.note(StepEnded, key=begun.key, phase=begun.phase, run=begun.run, outcome=outcome, decision=decision)

    def seen(self, presence: Presence = NOBODY, now: int | None = None) -> MissionSummary:
        return self.history.summary(presence, at(len(self.events) if now is None else now))


def marks(shown: MissionSummary) -> str:
    return "".join(line.mark.value for line in shown.lines)


def test_a_mission_just_started_has_everything_before_it() -> None:
    shown = Tape().seen()
    assert (shown.status, shown.stage, shown.stages, shown.phase, marks(shown)) == ("ready", 1, 3, "prep", "····")


def test_the_phase_under_way_is_marked_and_its_seconds_run() -> None:
    tape = Tape().begin().end().begin()
    shown = tape.seen(Presence(42, ("Edit app.py",), at(60)), now=100)
    assert (shown.status, shown.phase, shown.stage, shown.attempt, shown.agent) == ("running", "code", 2, 1, "claude")
    assert marks(shown) == "✓▶··" and shown.doing == ("Edit app.py",)
    assert (shown.busy_seconds, shown.phase_seconds, shown.quiet_for) == (99, 97, 40)
    assert shown.lines[1].seconds == 97 and shown.lines[1].attempt.number == 1


@pytest.mark.promise("screens.from-events")
def test_begun_with_nobody_at_it_is_interrupted_whatever_it_was_doing() -> None:
    tape = Tape().begin().end().begin().note(Stopped, cause="SIGTERM.", exit_code=130)
    shown = tape.seen(Presence(None, ("Edit app.py",), at(3)), now=1000)
    assert (shown.status, marks(shown), shown.doing) == ("stopped", "✓‖··", ())
    assert shown.sentence == "stopped at code (SIGTERM)"
    assert shown.busy_seconds == 3 and shown.phase_seconds is None  # time does not go on where nothing happens


@pytest.mark.promise("screens.from-events")
def test_a_claim_that_did_not_hold_is_shown_beside_what_was_seen_and_will_be_done_again() -> None:
    tape = Tape().begin().end().begin().end(evidence=(LIE,), summary="All done.")
    line = tape.seen(HERE).lines[1]
    assert (line.attempt.claimed, line.attempt.verdict, line.attempt.evidence) == ("PASS", "REFUTED", (LIE,))
    assert line.mark is Mark.AGAIN and "2 failed" in tape.seen().feedback["code"]
    again = tape.begin().seen(HERE).lines[1]
    assert again.mark is Mark.NOW and again.attempt.number == 2 and "2 failed" in again.told


def test_work_that_is_sent_back_is_marked_with_all_that_is_done_again() -> None:
    tape = Tape().begin().end().begin().end().begin().end(Verdict.NEEDS_WORK, feedback="No tests.")
    shown = tape.seen(HERE)
    assert marks(shown) == "✓↺↺·" and shown.feedback == {"code": "No tests."}


def test_where_a_human_decides_it_is_halted_with_the_reason() -> None:
    tape = Tape().begin().end().begin().end(Verdict.BLOCKED, summary="Which colour?", feedback="Which colour?")
    shown = tape.seen()
    assert (shown.status, marks(shown)) == ("needs_you", "✓■··")
    assert shown.sentence == "needs you at code: Which colour?"
    assert shown.next == 'capsule answer m-1 --notes "..."'
    assert tape.note(Reopened).seen(HERE).lines[1].mark is Mark.AGAIN


def test_what_is_over_is_at_its_last_stage_and_costs_what_it_cost() -> None:
    tape = Tape().begin().end().begin().end().begin().end().begin().end()
    shown = tape.seen(now=500)
    assert (shown.status, shown.stage, shown.phase, marks(shown)) == ("done", 3, "", "✓✓✓✓")
    assert (shown.spent.usd, shown.spent.priced, shown.busy_seconds) == (0.5, 2, 8)


def test_the_last_run_of_the_tests_and_the_wait_for_a_provider_are_shown_while_they_matter() -> None:
    seen = Observation("t" * 40, "make test", Colour.RED, 1)
    tape = Tape().begin().note(Observed, key="prep#1", observation=seen).end().begin()
    tape.note(Waiting, key="code#1", failure=Failure(kind=Kind.OVERLOAD, reason="too busy"), seconds=30)
    shown = tape.seen(HERE)
    assert shown.tests == seen and shown.waiting and shown.waiting.seconds == 30
    assert tape.seen().waiting is None
    assert tape.begin().seen(HERE).waiting is None


@pytest.mark.promise("screens.from-events")
def test_a_card_stays_small_however_long_a_mission_goes_on() -> None:
    tape = Tape()
    for number in range(3 * MOST_ATTEMPTS):
        decision = Decision(move=Move.RETRY, verdict=Verdict.REFUTED, back_to="prep", counter="prep")
        fields = {"key": f"prep#{number + 1}", "phase": "prep", "run": number + 1}
        tape.note(StepBegun, attempt=number + 1, **fields)
        tape.note(StepEnded, outcome=Outcome(signal=Signal(verdict=Verdict.PASS)), decision=decision, **fields)
        tape.note(Observed, key=f"o{number}", observation=Observation(f"{number:040}", "t", Colour.GREEN, 0))
        tape.note(Warned, text=f"warning {number}")
    shown = tape.seen()
    assert len(shown.attempts) == MOST_ATTEMPTS and shown.forgotten == 2 * MOST_ATTEMPTS
    assert shown.lines[0].attempt.number == 3 * MOST_ATTEMPTS and not tape.history.state.observations
    assert shown.warnings[-1] == "warning 179" and len(shown.warnings) == 5


def test_a_mission_started_over_forgets_the_attempts_of_the_one_before() -> None:
    tape = Tape().begin().end()
    tape.note(MissionStarted, mission="m-1", item=Item(id="m-1", title="Anew"), workflow=FLOW, base="c", into="main")
    shown = tape.seen()
    assert (shown.title, shown.attempts, marks(shown)) == ("Anew", (), "····")


def merge(tape: Tape, *evidence: Evidence) -> Tape:
    """Its last phase, as the engine ends it where main has moved."""
    fields = {"key": "merge#1", "phase": "merge", "run": 1}
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS), evidence=evidence, facts={"merged": "c0ffee"})
    decision = Decision(move=Move.ADVANCE, verdict=Verdict.PASS)
    return tape.note(StepBegun, attempt=1, **fields).note(StepEnded, outcome=outcome, decision=decision, **fields)


WARN = Policy(verify="warn", test="make test")


def start(tape: Tape, policy: Policy) -> Tape:
    return tape.note(
        MissionStarted,
        mission="m-1",
        item=Item(id="m-1", title="Do it"),
        workflow=FLOW,
        base="b",
        into="main",
        policy=policy,
    )


def test_what_was_merged_on_red_is_remembered_for_as_long_as_the_mission_is() -> None:
    tape = merge(start(Tape(), WARN), LIE)
    for number in range(MOST_ATTEMPTS + 1):
        tape.note(StepBegun, key=f"code#{number}", phase="code", run=number, attempt=1)
    assert all(attempt.phase != "merge" for attempt in tape.seen().attempts)
    assert tape.seen().unverified == "NOT GREEN: the gate was red on the merge result (verify: warn)"
    assert start(tape, WARN).seen().unverified == ""


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (WARN, ""),
        (Policy(verify="off", test="make test"), "UNVERIFIED: verify is off"),
        (Policy(), "UNVERIFIED: no test command is known"),
    ],
)
def test_a_mission_says_why_it_is_not_verified(policy: Policy, words: str) -> None:
    assert merge(start(Tape(), policy)).seen().unverified.partition(",")[0] == words


def test_every_status_has_a_sign_of_its_own_and_a_word() -> None:
    assert len({status.sign for status in MissionStatus}) == len(MissionStatus)
    assert MissionStatus.NEEDS_YOU.words == "needs you"
    counts = {MissionStatus.DONE: 1_000, MissionStatus.RUNNING: 2, MissionStatus.FAILED: 0}
    assert count_statuses(counts) == "2 running, 1,000 done"
    assert count_statuses({MissionStatus.NEEDS_YOU: 1}) == "1 needs you"
    assert count_statuses({MissionStatus.NEEDS_YOU: 2}) == "2 need you"


def halt(move: Move, verdict: Verdict, **decided: object) -> MissionSummary:
    """Its second phase halts the mission by this decision."""
    tape = Tape().begin().end().begin()
    outcome = Outcome(signal=Signal(verdict=verdict), agent="claude")
    decision = Decision(move=move, verdict=verdict, reason="because", **decided)  # type: ignore[arg-type]
    return tape.note(StepEnded, key="code#1", phase="code", run=1, outcome=outcome, decision=decision).seen()


@pytest.mark.parametrize(
    ("decided", "status"),
    [
        ((Move.PARK, Verdict.BLOCKED, {}), "needs_you"),
        ((Move.PARK, Verdict.PASS, {"vetoed": True}), "needs_you"),
        ((Move.PARK, Verdict.REFUTED, {}), "needs_you"),
        ((Move.PARK, Verdict.REFUTED, {"exhausted": True}), "failed"),
        ((Move.PARK, Verdict.NEEDS_WORK, {}), "failed"),
        ((Move.ABORT, Verdict.ERROR, {}), "failed"),
    ],
)
def test_a_halt_is_a_question_to_you_or_a_failure(decided: tuple[Move, Verdict, dict], status: str) -> None:  # type: ignore[type-arg]
    move, verdict, more = decided
    shown = halt(move, verdict, **more)
    assert shown.status == status
    assert shown.sentence == f"{shown.status.words} at code: because"


def test_where_capsule_itself_halted_the_command_it_names_is_the_next_one() -> None:
    reason = "conflict with main in a.py; `capsule run m-1 --rebase` rebuilds the work"
    tape = Tape().begin().end(Verdict.FAILED, summary=reason)
    assert tape.seen().next == "capsule run m-1 --rebase"
    tape = Tape().begin().end().begin().end(Verdict.BLOCKED, feedback="`capsule close m-1` would help me")
    assert tape.seen().next == 'capsule answer m-1 --notes "..."'


def test_released_is_ready_and_ended_between_two_phases_is_stopped() -> None:
    tape = Tape().begin().end().begin().end(Verdict.BLOCKED, feedback="?").note(Reopened)
    assert (tape.seen().status, tape.seen().sentence) == ("ready", "ready to continue at code")
    between = Tape().begin().end()
    assert (between.seen().status, between.seen().sentence) == ("stopped", "stopped before code")


def test_a_run_that_waits_for_a_limit_is_waiting_though_somebody_holds_it() -> None:
    tape = Tape().begin().end().begin()
    tape.note(Waiting, key="code#1", failure=Failure(kind=Kind.RATE_LIMIT, reason="too many requests"), seconds=30)
    assert (tape.seen(HERE).status, tape.seen(HERE).condition) == ("waiting", "running")


def test_a_step_begun_again_is_two_attempts_and_says_so() -> None:
    tape = Tape().begin().end().begin().begin().end()
    tries = [(each.key, each.how, each.repeated) for each in tape.seen().attempts]
    assert tries == [("prep#1", "ended", False), ("code#1", "interrupted", True), ("code#1", "ended", False)]


def test_reading_costs_what_is_new_however_much_there_was() -> None:
    def work(size: int) -> Callable[[], object]:
        tape = Tape()
        for number in range(size):
            fields = {"key": f"prep#{number + 1}", "phase": "prep", "run": number + 1}
            decision = Decision(move=Move.RETRY, verdict=Verdict.REFUTED, back_to="prep", counter="prep")
            tape.note(StepBegun, attempt=number + 1, **fields)
            tape.note(Observed, key=f"o{number}", observation=Observation(f"{number:040}", "t", Colour.GREEN, 0))
            tape.note(StepEnded, outcome=Outcome(signal=Signal(verdict=Verdict.PASS)), decision=decision, **fields)
        return lambda: read_mission(tape.events)

    assert grows_linearly(work, 500, 1500)


def test_folding_at_once_is_folding_one_by_one() -> None:
    tape = Tape().begin().end().begin().end(evidence=(LIE,)).begin()
    assert read_mission(tape.events, MOST_ATTEMPTS) == tape.history


@pytest.mark.parametrize(("earlier", "later", "seconds"), [(at(5), at(65), 60), (at(65), at(5), 0), ("", at(5), 0)])
def test_no_span_of_time_is_negative(earlier: str, later: str, seconds: float) -> None:
    assert seconds_between(earlier, later) == seconds


def test_what_runs_comes_first_then_what_waits_for_a_human_then_the_newest_of_what_is_over() -> None:
    over = Tape("over").begin().end().begin().end().begin().end().begin().end()
    older = Tape("older").begin().end().begin().end(Verdict.BLOCKED, feedback="?")
    newer = Tape("newer").begin().end().begin().end(Verdict.BLOCKED, feedback="?").note(Warned, text="still")
    first, second = Tape("first").begin(), Tape("second").note(Warned, text="x").begin()
    views = [tape.seen() for tape in (over, older, newer, Tape("fresh"))] + [t.seen(HERE) for t in (second, first)]
    assert [shown.mission for shown in in_order(views)] == ["first", "second", "newer", "older", "fresh", "over"]
    board = gather_board(views, (), at(0))
    assert len(board.running) == 2 and board.mission("over") == views[0]


def run_seen(events: Iterable[Event], pid: int | None = None, now: str = "") -> RunSummary:
    return read_run("_campaign-demo-1", events).summary(Presence(pid), now)


RUN: list[Event] = [
    RunStarted(at=at(0), cap=10),
    Advanced(at=at(1), item="demo-1", title="Epic", done=0, of=2),
    Spawned(at=at(2), mission="a", key="code#1"),
    Spawned(at=at(3), mission="b", key="code#1"),
    Spawned(at=at(4), mission="a", key="check#1"),
    Advanced(at=at(5), item="demo-1", title="Epic", done=1, of=2),
]


def test_a_run_tells_how_far_it_is_and_whom_it_started_agents_for() -> None:
    shown = run_seen(RUN, 42, at(9))
    assert (shown.name, shown.status, shown.seconds) == ("campaign demo-1", "running", 9)
    assert (shown.spawns, shown.missions, shown.progress["demo-1"].done) == (3, ("b", "a"), 1)
    assert run_seen(RUN).status == "stopped"
    ended = run_seen([*RUN, RunEnded(at=at(10), why="all done")], None, at(99))
    assert (ended.seconds, ended.status) == (10, "done")


@pytest.mark.promise("jobs.changed")
def test_a_run_knows_how_many_missions_it_is_allowed_by_now() -> None:
    assert run_seen([*RUN, JobsSet(at=at(6), jobs=3)]).jobs == 3


def test_a_run_begun_anew_counts_from_the_start_and_one_that_was_killed_goes_on() -> None:
    again = RunStarted(at=at(20), cap=10, spawns=3)
    assert (run_seen([*RUN, again]).spawns, run_seen([*RUN, again]).missions) == (3, ("b", "a"))
    anew = run_seen([*RUN, RunEnded(at=at(10), why="all done"), RunStarted(at=at(20), cap=10)])
    assert (anew.spawns, anew.missions, anew.progress, anew.ended, anew.began) == (0, (), {}, None, at(20))
