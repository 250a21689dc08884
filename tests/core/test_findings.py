"""Findings keep their ids from round to round, and a review that goes round in circles is known by a table."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from capsule.core.decide import Decision, Move, decide
from capsule.core.event import MissionStarted, Outcome, Rebased, Reopened, StepEnded, decode, encode
from capsule.core.evidence import Checkpoint
from capsule.core.findings import (
    MOST_ASKED,
    Finding,
    FindingStatus,
    Ledger,
    ReviewRound,
    finding_line,
    meaning,
    next_number,
    points,
    review_round,
    settle_all,
    stuck,
    told_to_reviewer,
    with_answers,
)
from capsule.core.item import Item
from capsule.core.signal import Remark, RemarkStatus, Signal, Verdict, read_result, read_signal
from capsule.core.state import MissionState, apply, replay
from capsule.core.workflow import EXAM, Phase, Role, Workflow

AT = "2026-01-05T09:00:00Z"
FLOW = Workflow(
    name="flow",
    retries=9,
    phases=(
        Phase(name="code", prompt="c"),
        Phase(name="look", role=Role.REVIEW, prompt="l", rework="code"),
        Phase(name="exam", role=Role.REVIEW, prompt="e", rework="code", writes=EXAM),
        Phase(name="gate", role=Role.REVIEW, run="make lint", rework="code"),
        Phase(name="alone", role=Role.SOLO, prompt="a"),
    ),
)
CAP, NAMES, UNITS = "Put a cap of ten on the list.", "Say the unit in each name.", "Cover an empty list with a test."
OPEN, RESOLVED, WITHDRAWN = FindingStatus.OPEN, FindingStatus.RESOLVED, FindingStatus.WITHDRAWN


def back(feedback: str = "", **more: Any) -> Signal:
    """A review that sends the work back."""
    return Signal(verdict=Verdict.NEEDS_WORK, feedback=feedback, **more)


def remarks(*given: str | dict[str, str]) -> Signal:
    listed = (Remark(text=each) if isinstance(each, str) else msgspec.convert(each, Remark) for each in given)
    return back("See the findings.", findings=tuple(listed))


def rounds(*signals: Signal, worker: Signal | None = None) -> Ledger:
    """The findings after these reviews, the worker answering between them."""
    ledger: Ledger = ()
    for signal in signals:
        ledger = with_answers(ledger, worker) if worker else ledger
        ledger = review_round(ledger, signal, next_number([ledger])).ledger
    return ledger


def shown(ledger: Ledger) -> list[tuple[str, str, int]]:
    return [(finding.id, finding.status.value, finding.asked) for finding in ledger]


# ---- ids


@pytest.mark.promise("convergence.ids")
def test_new_findings_are_numbered_and_the_same_one_keeps_its_id() -> None:
    ledger = rounds(remarks(CAP, NAMES), remarks({"id": "R2", "status": "open", "text": "No, still not."}, UNITS))
    assert shown(ledger) == [("R1", "resolved", 1), ("R2", "open", 2), ("R3", "open", 1)]
    assert [finding.text for finding in ledger] == [CAP, NAMES, UNITS]


@pytest.mark.promise("convergence.ids")
@pytest.mark.parametrize(
    ("second", "same"),
    [
        (CAP, True),
        ("put a **cap** of `ten` on the list", True),
        ("You still need to put a cap of ten on the list!", True),
        ("- Put a cap of ten on the list (line 14)", True),
        ("Put a cap of eleven on the list.", False),
        ("Do not put a cap of ten on the list.", False),
        ("Put a cap of -ten on the list.", False),
        ("Put the list on a cap of ten.", False),
        ("The list has no cap.", False),
        ("", False),
    ],
)
def test_a_reviewer_that_ignores_ids_is_understood_only_in_the_same_words(second: str, same: bool) -> None:
    first = review_round((), remarks(CAP), 1).ledger
    again = review_round(first, remarks(second) if second else back("Other."), 2).ledger
    assert again[0].asked == (2 if same else 1)
    assert len(again) == (1 if same else 2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Test the lower bound of parse_range", "Test the upper bound of parse_range"),
        ("Use < where it says <=", "Use <= where it says <"),
        ("expected: 3", "expected: 4"),
        ("expected:3", "expected:4"),
        ("Return 1 for none", "Return -1 for none"),
        ("See pay.py", "See pay_test.py"),
    ],
)
def test_things_that_differ_in_one_word_are_two(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


def test_line_numbers_do_not_tell_findings_apart() -> None:
    assert meaning("src/pay.py:12: no unit") == meaning("src/pay.py:40:3 no unit") == meaning("src/pay.py no unit")
    assert meaning("no unit in lines 3-9") == meaning("no unit in line 12")


def test_the_same_words_about_another_file_are_another_finding() -> None:
    ledger = rounds(remarks({"text": NAMES, "file": "a.py"}), remarks({"text": NAMES, "file": "b.py"}))
    assert shown(ledger) == [("R1", "resolved", 1), ("R2", "open", 1)]


@pytest.mark.promise("convergence.honest")
def test_a_reviewer_that_numbers_its_findings_anew_in_each_round_asks_for_new_things() -> None:
    numbered = [remarks({"id": "R1", "text": text}) for text in (CAP, NAMES, UNITS)]
    assert shown(rounds(*numbered)) == [("R1", "resolved", 1), ("R2", "resolved", 1), ("R3", "open", 1)]


def test_an_id_beside_similar_words_is_the_finding() -> None:
    ledger = rounds(remarks(CAP), remarks({"id": "R1", "text": "The list still has no cap of ten on it"}))
    assert shown(ledger) == [("R1", "open", 2)]


def test_what_is_asked_for_twice_in_one_round_counts_once() -> None:
    assert shown(rounds(remarks(CAP), remarks(CAP, {"id": "R1", "status": "open"}))) == [("R1", "open", 2)]


def test_ids_that_nobody_gave_and_answers_without_one_are_nothing() -> None:
    ledger = rounds(remarks({"id": "R7", "status": "resolved"}, {"id": "R9", "status": "open"}, CAP))
    assert shown(ledger) == [("R1", "open", 1)]


# ---- text alone


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("One thing.", ["One thing."]),
        ("One.\n\nTwo,\nin two lines.", ["One.", "Two,\nin two lines."]),
        ("# Review\n\nOne.", ["One."]),
        ("Nearly:\n\n- one\n- two\n  and more\n\nThat is all.", ["one", "two\n  and more"]),
        ("1. one\n   - part of it\n2) two", ["one\n   - part of it", "two"]),
        ("- one\n\n- two", ["one", "two"]),
        ("Fails:\n```\n- no item\n\n- nor this\n```", ["Fails:\n```\n- no item\n\n- nor this\n```"]),
        ("- one\n```\n\n- code\n```\n- two", ["one\n```\n\n- code\n```", "two"]),
        ("-5 is wrong", ["-5 is wrong"]),
    ],
)
def test_feedback_is_taken_apart_into_items_or_paragraphs(text: str, found: list[str]) -> None:
    assert points(text) == found


def test_feedback_without_remarks_has_findings_too() -> None:
    assert shown(rounds(back(f"- {CAP}\n- {NAMES}"), back(CAP))) == [("R1", "open", 2), ("R2", "resolved", 1)]
    assert shown(rounds(Signal(verdict=Verdict.NEEDS_WORK, summary="no"))) == [("R1", "open", 1)]


# ---- the table

DONE = Signal(
    verdict=Verdict.PASS, findings=(Remark(id="R1", status=RemarkStatus.RESOLVED, text="Capped."),), summary="did it"
)
DECLINED = Signal(verdict=Verdict.PASS, findings=(Remark(id="R1", status=RemarkStatus.DECLINED, text="Not asked."),))
SILENT = Signal(verdict=Verdict.PASS, summary="did it")
WITHDRAWS = remarks({"id": "R1", "status": "withdrawn", "text": "No cap after all."}, NAMES)
CIRCLES = {
    "same remark": ([remarks(CAP)] * 3, SILENT, "R1 was asked for 3 times"),
    "same id": ([remarks(CAP)] + [remarks({"id": "R1", "status": "open", "text": t}) for t in "ab"], SILENT, "R1 was"),
    "beside others": ([remarks(CAP, NAMES), remarks(CAP), remarks(CAP, UNITS)], SILENT, "R1 was asked for 3 times"),
    "not in a row": ([remarks(CAP), remarks(NAMES), remarks(CAP), remarks(CAP)], SILENT, "R1 was asked for 3 times"),
    "same text": ([back(CAP)] * 3, SILENT, "R1 was asked for 3 times"),
    "same texts": ([back(f"{CAP}\n\n{NAMES}")] * 3, SILENT, "as often: R2"),
    "opposite": ([remarks(CAP), remarks({"text": "Take the cap out.", "reverses": "R1"})], SILENT, "R1 is taken back"),
    "withdrawn, done": ([remarks(CAP), WITHDRAWS], DONE, "R1 is taken back"),
    "withdrawn, resolved": (
        [remarks(CAP), remarks({"id": "R1", "status": "resolved"}, NAMES), WITHDRAWS],
        SILENT,
        "R1 is taken back",
    ),
}
HONEST = {
    "another thing each time": ([remarks(CAP), remarks(NAMES), remarks(UNITS)], SILENT),
    "twice": ([remarks(CAP), remarks(CAP)], SILENT),
    "text with a point that asks for nothing": ([back(f"{CAP}\n\n{each}") for each in (NAMES, UNITS, "Go.")], SILENT),
    "withdrawn, declined": ([remarks(CAP), WITHDRAWS], DECLINED),
    "withdrawn, no answer": ([remarks(CAP), WITHDRAWS], SILENT),
    "reverses nothing": ([remarks(CAP), remarks({"text": NAMES, "reverses": "R8"})], SILENT),
    "resolved at last": ([remarks(CAP, NAMES), remarks(CAP), remarks({"id": "R1", "status": "resolved"}, UNITS)], DONE),
}


def last(signals: list[Signal], worker: Signal) -> ReviewRound:
    ledger = with_answers(rounds(*signals[:-1], worker=worker), worker)
    return review_round(ledger, signals[-1], next_number([ledger]))


@pytest.mark.promise("convergence.third-time", "convergence.taken-back")
@pytest.mark.parametrize("name", CIRCLES)
def test_a_review_that_goes_round_in_circles_is_named(name: str) -> None:
    signals, worker, why = CIRCLES[name]
    for round_ in range(1, len(signals)):
        assert not stuck(last(signals[:round_], worker), "code"), round_
    assert why in stuck(last(signals, worker), "code")


@pytest.mark.promise("convergence.honest")
@pytest.mark.parametrize("name", HONEST)
def test_honest_work_is_not_stopped(name: str) -> None:
    signals, worker = HONEST[name]
    assert not stuck(last(signals, worker), "code")


def test_the_reason_has_the_words_of_both_agents() -> None:
    asked = stuck(last([remarks(CAP)] * 3, DECLINED), "code")
    assert asked == f"R1 was asked for 3 times: “{CAP}”; code answered “Not asked.”"
    taken = stuck(last([remarks(CAP), WITHDRAWS], DONE), "code")
    assert taken == f"R1 is taken back: it asked for “{CAP}”, now it says “No cap after all.”; code answered “Capped.”"


def test_the_reason_is_never_cut() -> None:
    asked, answered = (f"{word} {'and so on ' * 400}END" for word in ("Cap it.", "No."))
    says = Signal(verdict=Verdict.PASS, findings=(Remark(id="R1", status=RemarkStatus.DECLINED, text=answered),))
    why = stuck(last([remarks(asked)] * 3, says), "code")
    assert why == f"R1 was asked for 3 times: “{asked}”; code answered “{answered}”"


def test_agents_are_told_long_findings_in_short() -> None:
    ledger = with_answers(rounds(remarks("Cap it. " * 1000)), DECLINED)
    assert len(finding_line(ledger[0])) > 7000
    assert len(decide(FLOW, "look", remarks("Cap it. " * 1000)).feedback) < 1200
    assert len(told_to_reviewer(ledger, "code")) < 1200


def test_a_pass_settles_everything_and_stops_nothing() -> None:
    ledger = rounds(remarks(CAP, NAMES), remarks(CAP), worker=DONE)
    passed = Signal(verdict=Verdict.PASS, findings=(Remark(id="R1", status=RemarkStatus.WITHDRAWN),))
    assert [finding.status for finding in settle_all(ledger, passed)] == [WITHDRAWN, RESOLVED]
    made = decide(FLOW, "look", passed, findings={"look": with_answers(ledger, DONE)})
    assert made.move is Move.ADVANCE
    assert [finding.status for finding in made.findings] == [WITHDRAWN, RESOLVED]


# ---- what is decided


def third(phase: str, signal: Signal, flow: Workflow = FLOW, used: int = 2) -> Decision:
    ledger = rounds(signal, signal, worker=SILENT)
    return decide(flow, phase, signal, findings={phase: ledger}, used={phase: used})


@pytest.mark.promise("convergence.third-time")
def test_the_third_time_needs_a_person() -> None:
    made = third("look", remarks(CAP))
    assert (made.move, made.exit_code, made.block_type) == (Move.PARK, 1, "clarification")
    assert (made.exhausted, made.back_to, made.counter) == (False, "", "")
    assert made.reason.startswith("R1 was asked for 3 times")
    assert "See the findings." in made.feedback


@pytest.mark.promise("convergence.third-time")
@pytest.mark.parametrize(("phase", "verdict"), [("look", Verdict.NEEDS_WORK), ("alone", Verdict.FAILED)])
def test_the_third_time_needs_a_person_also_where_it_uses_up_the_retries(phase: str, verdict: Verdict) -> None:
    signal = msgspec.structs.replace(remarks(CAP), verdict=verdict)
    made = third(phase, signal, msgspec.structs.replace(FLOW, retries=2))
    assert (made.move, made.exhausted, made.exit_code, made.block_type) == (Move.PARK, False, 1, "clarification")
    assert made.reason.startswith("R1 was asked for 3 times")
    assert made.findings[0].asked == MOST_ASKED


@pytest.mark.promise("convergence.taken-back")
def test_what_is_taken_back_needs_a_person_also_where_it_uses_up_the_retries() -> None:
    ledger = with_answers(rounds(remarks(CAP)), DONE)
    flow = msgspec.structs.replace(FLOW, retries=1)
    made = decide(flow, "look", WITHDRAWS, findings={"look": ledger}, used={"look": 1})
    assert (made.move, made.exhausted, made.block_type) == (Move.PARK, False, "clarification")
    assert made.reason.startswith("R1 is taken back")


@pytest.mark.promise("convergence.honest")
def test_something_else_in_each_round_uses_up_the_retries_and_has_failed() -> None:
    ledger = rounds(remarks(CAP), remarks(NAMES))
    flow = msgspec.structs.replace(FLOW, retries=2)
    made = decide(flow, "look", remarks(UNITS), findings={"look": ledger}, used={"look": 2})
    assert (made.move, made.exhausted, made.block_type) == (Move.ABORT, True, "")
    assert made.reason.startswith("retries exhausted (2 allowed)")


@pytest.mark.parametrize("phase", ["gate", "exam"])
def test_a_command_and_an_examiner_have_no_findings(phase: str) -> None:
    made = third(phase, back("1 failed"))
    assert (made.move, made.findings) == (Move.REWORK, ())


def test_an_agent_alone_has_only_the_findings_that_it_lists() -> None:
    said = Signal(verdict=Verdict.FAILED, feedback=CAP)
    assert third("alone", said).move is Move.RETRY
    assert third("alone", msgspec.structs.replace(said, findings=(Remark(text=CAP),))).move is Move.PARK


def test_the_worker_is_told_the_ids_of_what_was_listed_and_plain_words_stay_as_they_are() -> None:
    listed = decide(FLOW, "look", remarks({"text": CAP, "file": "a.py"}))
    assert listed.feedback == f"See the findings.\n\n- R1 (open, asked 1 time) in a.py: {CAP}"
    assert decide(FLOW, "look", back(CAP)).feedback == CAP


def test_ids_are_unique_in_a_mission() -> None:
    other = {"alone": rounds(remarks(CAP, NAMES))}
    assert [finding.id for finding in decide(FLOW, "look", remarks(UNITS), findings=other).findings] == ["R3"]


# ---- from event to event


def ended(state: MissionState, phase: str, signal: Signal) -> StepEnded:
    made = decide(FLOW, phase, signal, used=state.used, findings=state.findings)
    run = state.runs.get(phase, 0) + 1
    outcome = Outcome(signal=signal)
    return StepEnded(at=AT, key=f"{phase}#{run}", phase=phase, run=run, outcome=outcome, decision=made)


def walked(*signals: Signal, worker: Signal = SILENT) -> MissionState:
    item = Item(id="m", title="t")
    state = apply(MissionState(), MissionStarted(at=AT, mission="m", item=item, workflow=FLOW, base="b", into="main"))
    for signal in signals:
        state = apply(state, ended(state, "code", worker))
        state = apply(state, ended(state, "look", signal))
    return state


def test_the_state_keeps_findings_and_answers() -> None:
    state = walked(remarks(CAP))
    state = apply(state, ended(state, "code", DONE))
    (finding,) = state.findings["look"]
    assert (finding.answer, finding.done) == ("Capped.", True)
    assert told_to_reviewer(state.findings["look"], "code").splitlines() == [
        f"- R1 (open, asked 1 time): {CAP}",
        "  code says: Capped.",
    ]


@pytest.mark.promise("convergence.afresh")
def test_a_person_starts_the_counts_afresh_and_the_review_hears_the_answer() -> None:
    state = walked(*[remarks(CAP)] * 3)
    assert state.halt
    state = apply(state, Reopened(at=AT, notes="Leave it."))
    (finding,) = state.findings["look"]
    assert (finding.id, finding.asked, finding.counted) == ("R1", 3, 0)
    assert state.to_do[:2] == ("code", "look")
    assert state.feedback["look"].endswith("Leave it.")
    assert CAP in state.feedback["code"] and state.feedback["code"].endswith("Leave it.")
    for _ in range(2):
        state = apply(state, ended(state, "code", SILENT))
        state = apply(state, ended(state, "look", remarks(CAP)))
        assert not state.halt
    state = apply(apply(state, ended(state, "code", SILENT)), ended(state, "look", remarks(CAP)))
    assert state.halt and state.halt.reason.startswith("R1 was asked for 3 times")


@pytest.mark.promise("convergence.afresh")
def test_what_was_done_before_a_person_answered_may_be_withdrawn() -> None:
    state = walked(remarks(CAP), remarks(NAMES, {"text": "No cap.", "reverses": "R1"}), worker=DONE)
    state = apply(state, Reopened(at=AT, notes="No cap."))
    state = apply(state, ended(state, "code", DONE))
    assert ended(state, "look", WITHDRAWS).decision.move is Move.REWORK


def test_a_new_base_starts_the_counts_afresh() -> None:
    rebased = Rebased(at=AT, base="c", checkpoint=Checkpoint(commit="c", tree="t", head="h"), re_enter="code")
    assert [finding.counted for finding in apply(walked(remarks(CAP)), rebased).findings["look"]] == [0]


@pytest.mark.promise("convergence.replay")
def test_a_journal_from_before_there_were_findings_is_replayed_and_goes_on() -> None:
    old = (
        '{"event":"step_ended","at":"2026-01-05T09:00:00Z","key":"look#%d","phase":"look","run":%d,"outcome":{"signal":'
        '{"verdict":"NEEDS_WORK","feedback":"Again.","extra":{"findings":["Again."]}}},"decision":{"move":"rework",'
        '"verdict":"NEEDS_WORK","feedback":"Again.","back_to":"code","counter":"look"}}'
    )
    start = MissionStarted(at=AT, mission="m", item=Item(id="m", title="t"), workflow=FLOW, base="b", into="main")
    code = ended(MissionState(workflow=FLOW), "code", SILENT)
    state = replay([start, code, decode(old % (1, 1)), code, decode(old % (2, 2)), code])
    assert (state.findings, state.used["look"]) == ({}, 2)
    assert ended(state, "look", back("Again.")).decision.move is Move.REWORK


def test_findings_survive_the_journal() -> None:
    event = ended(walked(remarks(CAP)), "look", remarks(CAP))
    assert decode(encode(event)) == event
    assert b"findings" not in encode(ended(walked(), "code", SILENT))


# ---- signals


def test_findings_are_read_leniently_from_signal_and_result() -> None:
    given = [
        *("One.", {"title": "Two.", "file": "a.py", "line": 3}, {"id": "r1", "status": "Still open", "text": "x"}),
        *({"id": "R2", "status": "fine?"}, {"severity": "low"}, 7, None, {"text": "Not so.", "reverses": "r1"}),
    ]
    expected = (
        Remark(text="One."),
        Remark(text="Two.", file="a.py"),
        Remark(id="R1", status=RemarkStatus.OPEN, text="x"),
        Remark(id="R2"),
        Remark(text="Not so.", reverses="R1"),
    )
    signal = {"status": "NEEDS_WORK", "feedback": "", "files_changed": [], "summary": "", "findings": given}
    assert read_signal(json.dumps(signal).encode()).findings == expected
    result = {"item_id": "x", "phase": "review", "result": "FAILED", "summary": "", "findings": given}
    assert read_result(json.dumps(result).encode(), "x", "review").findings == expected
    assert read_signal(json.dumps({**signal, "findings": {}}).encode()).findings == ()


def test_a_finding_in_one_line() -> None:
    finding = Finding(id="R4", text="a\nb", file="x.py", status=OPEN, asked=2)
    assert finding_line(finding) == "R4 (open, asked 2 times) in x.py: a b"
