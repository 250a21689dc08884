"""A mission is its journal, replayed: whatever happened, in whatever order, the list of what is left is right."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.core.decide import HALTS, Move, decide
from capsule.core.event import (
    Abandoned,
    Event,
    MissionStarted,
    MovedByHand,
    Observed,
    Outcome,
    Rebased,
    Reopened,
    Returned,
    StepBegun,
    StepEnded,
    decode,
    encode,
)
from capsule.core.evidence import Checkpoint, Colour, Evidence, EvidenceStatus, Observation
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.core.state import MissionState, agent_for, apply, baseline, children_of, next_step, replay
from capsule.core.workflow import Escalation, Phase, Role, Workflow

AT = "2026-01-01T00:00:00Z"
FLOW = Workflow(
    name="flow",
    retries=2,
    phases=(
        Phase(name="prep", role=Role.ACTION, do="prep"),
        Phase(name="tests", role=Role.WORKER, prompt="t", may_close=True),
        Phase(name="tests-review", role=Role.REVIEW, prompt="tr", rework="tests"),
        Phase(name="code", role=Role.WORKER, prompt="c", escalate=Escalation(after=2, agent="wiser")),
        Phase(name="code-review", role=Role.REVIEW, prompt="cr", rework="code"),
        Phase(name="sign", role=Role.REVIEW, prompt="s", rework="code"),
        Phase(name="archive", role=Role.ACTION, do="archive", closing=True),
    ),
)
REFUTATION = Evidence("green", "all tests pass", "red", EvidenceStatus.REFUTED)


def started() -> MissionState:
    event = MissionStarted(at=AT, mission="m", item=Item(id="m", title="t"), workflow=FLOW, base="b", into="main")
    return apply(MissionState(), event)


def checkpoint(name: str) -> Checkpoint:
    return Checkpoint(commit=name, head=f"head-{name}", tree=f"tree-{name}")


def step(state: MissionState, verdict: Verdict = Verdict.PASS, feedback: str = "", at: str = "") -> MissionState:
    """One step as the engine would do it, with the decision the table takes."""
    todo = next_step(state)
    assert todo is not None
    refuted = verdict is Verdict.REFUTED
    signal = Signal(verdict=Verdict.PASS if refuted else verdict, feedback=feedback, summary=f"{todo.key} done")
    evidence = (REFUTATION,) if refuted else ()
    decision = decide(state.workflow, todo.phase, signal, evidence, used=state.used, refutations=state.refutations)
    outcome = Outcome(signal=signal, evidence=evidence, checkpoint=checkpoint(at or todo.key))
    begun = StepBegun(at=AT, key=todo.key, phase=todo.phase, run=todo.run, attempt=state.attempt(todo.phase))
    ended = StepEnded(at=AT, key=todo.key, phase=todo.phase, run=todo.run, outcome=outcome, decision=decision)
    return apply(apply(state, begun), ended)


def passing(state: MissionState, *names: str) -> MissionState:
    for name in names:
        assert state.to_do[0] == name
        state = step(state)
    return state


def test_a_clean_mission_is_its_phases_in_order() -> None:
    state = passing(started(), *FLOW.names())
    assert state.finished
    assert next_step(state) is None


def test_rework_puts_the_worker_back_in_front_with_the_feedback() -> None:
    state = step(passing(started(), "prep", "tests"), Verdict.NEEDS_WORK, "test the empty case")
    assert state.to_do[:2] == ("tests", "tests-review")
    assert state.feedback == {"tests": "test the empty case"}
    assert state.attempt("tests") == 2


def test_sign_off_sends_back_the_whole_pair() -> None:
    state = step(passing(started(), "prep", "tests", "tests-review", "code", "code-review"), Verdict.NEEDS_WORK, "f")
    assert state.to_do == ("code", "code-review", "sign", "archive")


def test_keys_never_repeat_across_retry_rework_and_a_fresh_start() -> None:
    state = step(passing(started(), "prep", "tests"), Verdict.NEEDS_WORK, "f")
    again = next_step(state)
    assert again is not None
    assert again.key == "tests#2"
    fresh = apply(
        apply(state, Abandoned(at=AT, how="fresh")),
        MissionStarted(at=AT, mission="m", item=state.item, workflow=FLOW, base="b", into="main"),
    )
    first = next_step(fresh)
    assert first is not None
    assert first.key == "prep#2"


@pytest.mark.promise("decisions.refuted-pair")
def test_a_refuted_worker_counts_for_the_pair_it_is_in() -> None:
    state = passing(started(), "prep")
    state = step(state, Verdict.REFUTED)
    assert state.used == {"tests-review": 1}
    state = step(passing(state, "tests"), Verdict.NEEDS_WORK, "f")
    assert state.used == {"tests-review": 2}
    state = step(state, Verdict.REFUTED)
    assert state.halt is not None
    assert state.halt.exit_code == 1


def test_feedback_is_gone_once_the_phase_passes() -> None:
    state = passing(step(passing(started(), "prep", "tests"), Verdict.NEEDS_WORK, "f"), "tests")
    assert state.feedback == {}


@pytest.mark.promise("decisions.exhausted")
def test_exhausted_reviews_reopen_at_the_worker_with_the_last_feedback_and_fresh_retries() -> None:
    state = passing(started(), "prep")
    for round_ in ("one", "two", "three"):
        state = step(passing(state, "tests"), Verdict.NEEDS_WORK, round_)
    assert state.halt is not None
    assert next_step(state) is None
    state = apply(state, Reopened(at=AT))
    assert state.to_do[:2] == ("tests", "tests-review")
    assert state.feedback == {"tests": "three"}
    assert state.used["tests-review"] == 0


def test_more_retries_can_be_given_when_it_goes_on() -> None:
    state = step(passing(started(), "prep"), Verdict.ERROR, "x")
    assert apply(state, Reopened(at=AT, retries=7)).workflow.allowed_retries("tests-review") == 7
    assert apply(state, Reopened(at=AT)).workflow.retries == FLOW.retries


def test_an_error_reopens_at_the_same_worker() -> None:
    state = step(passing(started(), "prep"), Verdict.ERROR, "No signal JSON found in phase output")
    assert state.halt is not None
    assert state.halt.exit_code == 2
    assert apply(state, Reopened(at=AT)).to_do[0] == "tests"


def test_a_humans_repair_becomes_what_was_approved() -> None:
    state = step(passing(started(), "prep", "tests", "tests-review"), Verdict.ERROR, "x")
    approved = {"tests-review": checkpoint("approved-with-edits")}
    state = apply(state, Reopened(at=AT, checkpoint=checkpoint("by-hand"), approved=approved))
    assert state.checkpoint == checkpoint("by-hand")
    assert baseline(state, "code") == checkpoint("approved-with-edits")


def test_going_on_looks_again_at_what_was_red_and_keeps_what_was_green() -> None:
    red, green = (Observation(tree=c.value, command="c", colour=c) for c in (Colour.RED, Colour.GREEN))
    state = step(passing(started(), "prep"), Verdict.ERROR, "x")
    for key, seen in (("r", red), ("g", green)):
        state = apply(state, Observed(at=AT, key=key, observation=seen))
    assert set(apply(state, Reopened(at=AT)).observations) == {"g"}


def test_every_run_of_a_phase_is_another_attempt_reviews_too() -> None:
    state = step(passing(started(), "prep", "tests"), Verdict.NEEDS_WORK, "f")
    assert (state.attempt("tests"), state.attempt("tests-review"), state.attempt("code")) == (2, 2, 1)


def test_the_baseline_is_what_the_last_review_let_pass() -> None:
    state = passing(started(), "prep", "tests")
    assert baseline(state, "tests") is None
    state = step(state, at="approved")
    assert baseline(state, "code") == checkpoint("approved")
    state = step(step(state), Verdict.NEEDS_WORK, "f")
    assert baseline(state, "code") == checkpoint("approved")


def test_somebody_else_tries_after_enough_setbacks() -> None:
    state = passing(started(), "prep", "tests", "tests-review")
    phase = FLOW.phase("code")
    assert agent_for(state, phase) == ("", "")
    state = step(step(state, Verdict.REFUTED), Verdict.REFUTED)
    assert agent_for(state, phase) == ("wiser", "")


@pytest.mark.promise("durability.begun")
def test_begun_without_an_outcome_costs_nothing_and_runs_again() -> None:
    state = passing(started(), "prep")
    todo = next_step(state)
    assert todo is not None
    interrupted = apply(state, StepBegun(at=AT, key=todo.key, phase=todo.phase, run=todo.run, attempt=1))
    assert interrupted.begun is not None
    assert next_step(interrupted) == todo
    assert interrupted.used == {}


def test_close_leaves_only_what_closes() -> None:
    state = passing(started(), "prep")
    todo = next_step(state)
    assert todo is not None
    signal = Signal(verdict=Verdict.PASS, duplicate_of="n")
    ended = StepEnded(
        at=AT,
        key=todo.key,
        phase=todo.phase,
        run=1,
        outcome=Outcome(signal=signal),
        decision=decide(FLOW, "tests", signal),
    )
    state = apply(state, ended)
    assert (state.to_do, state.closed_as) == (("archive",), "duplicate of n")


def test_a_rebase_re_enters_where_it_says_and_tells_of_conflicts() -> None:
    state = passing(started(), "prep", "tests", "tests-review", "code", "code-review", "sign")
    approved = {"tests-review": checkpoint("rebased")}
    event = Rebased(
        at=AT, base="new", checkpoint=checkpoint("work"), approved=approved, re_enter="code", conflicts=("a.py",)
    )
    state = apply(state, event)
    assert (state.base, state.to_do[0]) == ("new", "code")
    assert "a.py" in state.feedback["code"]
    assert baseline(state, "code") == checkpoint("rebased")


def test_work_may_go_back_by_itself_afresh_once_a_person_had_it_rebuilt() -> None:
    rebased = Rebased(at=AT, base="new", checkpoint=checkpoint("work"), re_enter="code")
    state = passing(started(), "prep", "tests", "tests-review", "code", "code-review", "sign")
    for times in (1, 2):
        state = apply(apply(state, Returned(at=AT, why="red together")), rebased)
        assert state.returns == times
    assert apply(state, rebased).returns == 0
    assert apply(state, Reopened(at=AT)).returns == 2
    assert apply(state, msgspec.structs.replace(rebased, why="steps do not fit")).returns == 2


def test_a_human_can_move_a_mission_to_a_phase() -> None:
    state = step(passing(started(), "prep"), Verdict.ERROR, "x")
    moved = MovedByHand(at=AT, what="phase", expected="tests", found="archive", checkpoint=checkpoint("now"))
    state = apply(state, moved)
    assert (state.to_do, state.halt) == (("archive",), None)


def test_an_observation_is_remembered_by_its_key() -> None:
    seen = Observation(tree="t", command="c", colour=Colour.GREEN)
    assert apply(started(), Observed(at=AT, key="k", observation=seen)).observations == {"k": seen}


verdicts = st.lists(st.sampled_from([v for v in Verdict if v is not Verdict.SKIPPED]), max_size=40)


@given(verdicts)
def test_whatever_the_agents_say_the_mission_stays_sound(said: list[Verdict]) -> None:
    """The list of what is left is always a tail of the workflow, keys are unique, halts halt, and it must end."""
    state, keys = started(), set()
    for verdict in said:
        todo = next_step(state)
        if todo is None:
            if not state.halt:
                break
            state = apply(state, Reopened(at=AT))
            continue
        assert todo.key not in keys
        keys.add(todo.key)
        state = step(state, verdict, "f")
        names = FLOW.names()
        assert names[len(names) - len(state.to_do) :] == state.to_do
        assert all(count <= FLOW.retries for count in state.used.values())
        assert (state.halt is not None) == (next_step(state) is None and not state.finished)


@pytest.mark.promise("durability.replay")
@given(verdicts)
def test_replaying_what_was_written_gives_the_same_state(said: list[Verdict]) -> None:
    events: list[Event] = [
        MissionStarted(at=AT, mission="m", item=Item(id="m", title="t"), workflow=FLOW, base="b", into="main")
    ]
    state = replay(events)
    for verdict in said:
        todo = next_step(state)
        if todo is None:
            break
        signal = Signal(verdict=verdict, feedback="f", summary="s")
        decision = decide(FLOW, todo.phase, signal, used=state.used)
        outcome = Outcome(signal=signal, checkpoint=checkpoint(todo.key))
        events.append(
            StepEnded(at=AT, key=todo.key, phase=todo.phase, run=todo.run, outcome=outcome, decision=decision)
        )
        state = apply(state, events[-1])
    assert replay(decode(encode(event)) for event in events) == state


@pytest.mark.parametrize("move", [move for move in Move if move not in HALTS])
def test_only_halts_halt(move: Move) -> None:
    from capsule.core.decide import Decision

    state = passing(started(), "prep")
    decision = Decision(move=move, verdict=Verdict.PASS, back_to="tests", counter="tests-review")
    outcome = Outcome(signal=Signal(verdict=Verdict.PASS))
    ended = StepEnded(at=AT, key="tests#1", phase="tests", run=1, outcome=outcome, decision=decision)
    assert apply(state, ended).halt is None


def test_states_are_values() -> None:
    state = started()
    with pytest.raises(AttributeError):
        state.base = "other"  # type: ignore[misc]
    assert msgspec.structs.replace(state) == state


def test_the_children_of_a_mission_are_found_by_their_names() -> None:
    phases = (Phase(name="plan", prompt="p"), Phase(name="build", workflow="tdd"))
    known = {name: MissionState(mission=name) for name in ("one.build.1", "one.build.2", "one.plan.1", "one.build.4")}
    parent = MissionState(mission="one", workflow=Workflow(name="w", phases=phases))
    found = children_of(parent, lambda name: known.get(name, MissionState()))
    assert [child.mission for child in found] == ["one.build.1", "one.build.2"]


PARTS = Workflow(name="parts", retries=2, phases=(Phase(name="build", role=Role.SOLO, prompt="b"),))


@pytest.mark.promise("backlog.parts")
def test_a_part_after_one_that_succeeded_has_all_retries_and_no_old_feedback() -> None:
    event = MissionStarted(at=AT, mission="m", item=Item(id="m", title="t"), workflow=PARTS, base="b", into="main")
    state = apply(MissionState(), event)
    for verdict in (Verdict.FAILED, Verdict.REFUTED):
        state = step(state, verdict, "not yet")
    assert state.used == {"build": 2} and state.feedback and state.attempt("build") == 3
    state = step(state, Verdict.MORE)
    assert not state.feedback and not state.refutations and state.attempt("build") == 1
    for verdict in (Verdict.FAILED, Verdict.FAILED):
        state = step(state, verdict, "not yet")
        assert not state.halt, "the retries of the last part are not this one's"
    assert step(state, Verdict.FAILED, "never").halt
