"""What screens show is computed from events: bounded, and never more than was seen."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from capsule.core.board import MARKS, Mark, MissionView, Presence, gathered, in_order, view, view_run
from capsule.core.cards import MOST_ATTEMPTS, MOST_MISSIONS, Card, RunCard, fold, see, see_run
from capsule.core.decide import Decision, Move, decide
from capsule.core.event import (
    Advanced,
    Event,
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
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.stamps import seconds_between
from capsule.core.standpoint import ENDED, FOR_A_HUMAN, NOT_AT_AN_END, Word
from capsule.core.state import next_step
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
        self.card = Card()
        self.note(
            MissionStarted, mission=mission, item=Item(id=mission, title=item), workflow=FLOW, base="b", into="main"
        )

    def note(self, kind: type, **fields: object) -> Tape:
        event = kind(at=at(len(self.events)), **fields)
        self.events.append(event)
        self.card = see(self.card, event)
        return self

    def begin(self) -> Tape:
        step = next_step(self.card.state)
        assert step
        agent = "claude" if self.card.state.workflow.phase(step.phase).prompt else ""
        attempt = self.card.state.attempt(step.phase)
        return self.note(
            StepBegun, key=step.key, phase=step.phase, run=step.run, attempt=attempt, agent=agent, spawns=bool(agent)
        )

    def end(self, verdict: Verdict = Verdict.PASS, evidence: tuple[Evidence, ...] = (), **signal: str) -> Tape:
        begun = self.card.state.begun
        assert begun
        said = Signal(verdict=verdict, **signal)  # type: ignore[arg-type]
        decision = decide(FLOW, begun.phase, said, evidence, used=self.card.state.used)
        usage = Usage(10, 5, 0.25, seconds=2.0) if begun.agent else None
        outcome = Outcome(signal=said, evidence=evidence, agent=begun.agent, seconds=2.0, usage=usage)
        return self.note(StepEnded, key=begun.key, phase=begun.phase, run=begun.run, outcome=outcome, decision=decision)

    def seen(self, presence: Presence = NOBODY, now: int | None = None) -> MissionView:
        return view(self.card, presence, at(len(self.events) if now is None else now))


def marks(shown: MissionView) -> str:
    return "".join(line.mark.value for line in shown.lines)


def test_a_mission_just_started_has_everything_before_it() -> None:
    shown = Tape().seen()
    assert (shown.word, shown.stage, shown.stages, shown.phase, marks(shown)) == ("waiting", 1, 3, "prep", "····")


def test_the_phase_under_way_is_marked_and_its_seconds_run() -> None:
    tape = Tape().begin().end().begin()
    shown = tape.seen(Presence(42, ("Edit app.py",), at(60)), now=100)
    assert (shown.word, shown.phase, shown.stage, shown.attempt, shown.agent) == ("running", "code", 2, 1, "claude")
    assert marks(shown) == "✓▶··" and shown.doing == ("Edit app.py",)
    assert (shown.seconds, shown.phase_seconds, shown.quiet_for) == (100, 97, 40)
    assert shown.lines[1].seconds == 97 and shown.lines[1].tries == 1


@pytest.mark.promise("screens.from-events")
def test_begun_with_nobody_at_it_is_interrupted_whatever_it_was_doing() -> None:
    tape = Tape().begin().end().begin().note(Stopped, cause="SIGTERM.", exit_code=130)
    shown = tape.seen(Presence(None, ("Edit app.py",), at(3)), now=1000)
    assert (shown.word, marks(shown), shown.doing) == ("interrupted", "✓‖··", ())
    assert shown.sentence == "interrupted at code (SIGTERM)"
    assert shown.seconds == 4 and shown.phase_seconds is None  # time does not go on where nothing happens


@pytest.mark.promise("screens.from-events")
def test_a_claim_that_did_not_hold_is_shown_beside_what_was_seen_and_will_be_done_again() -> None:
    tape = Tape().begin().end().begin().end(evidence=(LIE,), summary="All done.")
    code = tape.seen(HERE).lines[1]
    assert (code.claimed, code.verdict, code.evidence) == ("PASS", "REFUTED", (LIE,))
    assert code.mark is Mark.AGAIN and "2 failed" in tape.seen().feedback["code"]
    again = tape.begin().seen(HERE).lines[1]
    assert again.mark is Mark.NOW and again.tries == 2 and "2 failed" in again.note


def test_work_that_is_sent_back_is_marked_with_all_that_is_done_again() -> None:
    tape = Tape().begin().end().begin().end().begin().end(Verdict.NEEDS_WORK, feedback="No tests.")
    shown = tape.seen(HERE)
    assert marks(shown) == "✓↺↺·" and shown.feedback == {"code": "No tests."}


def test_where_a_human_decides_it_is_halted_with_the_reason() -> None:
    tape = Tape().begin().end().begin().end(Verdict.BLOCKED, summary="Which colour?", feedback="Which colour?")
    shown = tape.seen()
    assert (shown.word, marks(shown)) == ("parked", "✓■··") and "Which colour?" in shown.sentence
    assert shown.next == "capsule run m-1"
    assert tape.note(Reopened).seen(HERE).lines[1].mark is Mark.AGAIN


def test_what_is_over_is_at_its_last_stage_and_costs_what_it_cost() -> None:
    tape = Tape().begin().end().begin().end().begin().end().begin().end()
    shown = tape.seen(now=500)
    assert (shown.word, shown.stage, shown.phase, marks(shown)) == ("closed", 3, "", "✓✓✓✓")
    assert (shown.spent.usd, shown.spent.priced, shown.seconds) == (0.5, 2, 8)


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
    assert shown.lines[0].tries == 3 * MOST_ATTEMPTS and not tape.card.state.observations
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


def test_every_word_has_its_sign_and_its_place() -> None:
    assert set(MARKS) == set(Word)
    assert sorted([*FOR_A_HUMAN, *ENDED, Word.RUNNING, Word.WAITING]) == sorted(Word)
    assert not set(NOT_AT_AN_END) & set(ENDED)


def test_folding_at_once_is_folding_one_by_one() -> None:
    tape = Tape().begin().end().begin().end(evidence=(LIE,)).begin()
    assert fold(tape.events) == tape.card


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
    board = gathered({shown.mission: shown for shown in views}, (), at(0))
    assert len(board.running) == 2 and board.mission("over") == views[0]


def run_card(events: Iterable[Event]) -> RunCard:
    card = RunCard(stream="_campaign-demo-1")
    for event in events:
        card = see_run(card, event)
    return card


def test_a_run_tells_how_far_it_is_and_whom_it_started_agents_for() -> None:
    card = run_card(
        [
            RunStarted(at=at(0), cap=10),
            Advanced(at=at(1), item="demo-1", title="Epic", done=0, of=2),
            Spawned(at=at(2), mission="a", key="code#1"),
            Spawned(at=at(3), mission="b", key="code#1"),
            Spawned(at=at(4), mission="a", key="check#1"),
            Advanced(at=at(5), item="demo-1", title="Epic", done=1, of=2),
        ]
    )
    shown = view_run(card, 42, at(9))
    assert (shown.name, shown.running, shown.seconds) == ("campaign demo-1", True, 9)
    assert (card.spawns, card.missions, card.progress["demo-1"].done) == (3, ("b", "a"), 1)
    ended = see_run(card, RunEnded(at=at(10), why="all done"))
    assert view_run(ended, None, at(99)).seconds == 10 and not view_run(ended, None, at(99)).running


def test_a_run_begun_anew_counts_from_the_start_and_names_no_more_than_a_screen_needs() -> None:
    many = [Spawned(at=at(1), mission=f"m{number}", key="x") for number in range(MOST_MISSIONS + 5)]
    card = run_card([RunStarted(at=at(0), cap=10), *many])
    assert len(card.missions) == MOST_MISSIONS and card.missions[-1] == f"m{MOST_MISSIONS + 4}"
    assert see_run(card, RunStarted(at=at(9), cap=10, spawns=3)).missions == ()
