"""Signals and results: what is accepted, what is refused and with which words, and what is written back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.costs import examples

from capsule.core.signal import (
    SYNTHETIC_SUMMARY,
    FollowUp,
    Signal,
    Verdict,
    error_signal,
    read_result,
    read_signal,
    signal_json,
    signal_object,
)

GOOD: dict[str, Any] = {"status": "PASS", "feedback": "fine", "files_changed": ["a.py"], "summary": "did it"}
RESULT: dict[str, Any] = {"item_id": "WRK-001", "phase": "prd", "result": "PHASE_COMPLETE", "summary": "PRD written"}


def output(**changes: object) -> bytes:
    return b"working...\n" + json.dumps(GOOD | changes).encode() + b"\n"


def without(*fields: str) -> bytes:
    return json.dumps({name: value for name, value in GOOD.items() if name not in fields}).encode()


def result(**changes: object) -> Signal:
    return read_result(json.dumps(RESULT | changes).encode(), "WRK-001", "prd")


# --- signals --------------------------------------------------------------------------------------------------------


@pytest.mark.promise("signals.quoted")
@pytest.mark.parametrize("before", [b"", b"The log says:\n", b"\n  "])
def test_a_signal_that_is_quoted_is_no_claim(before: bytes) -> None:
    quoted = before + b"> " + output().splitlines()[1] + b"\nI did not get to the review.\n"
    assert read_signal(quoted) == error_signal("No signal JSON found in phase output")
    assert read_signal(output(status="NEEDS_WORK") + quoted).verdict is Verdict.NEEDS_WORK


def test_what_stands_around_a_quotation_makes_no_signal() -> None:
    first, _, second = output().partition(b",")
    assert read_signal(first + b",\n> and then\n" + second).synthetic


def test_a_mark_of_quotation_within_a_signal_is_text() -> None:
    written = json.dumps(GOOD | {"feedback": "> quoted\n> twice"}, indent=1).encode()
    assert read_signal(b"> not this {}\n" + written).feedback == "> quoted\n> twice"


@pytest.mark.parametrize("status", ["PASS", "NEEDS_WORK", "ERROR"])
def test_each_status_of_the_contract_is_read(status: str) -> None:
    signal = read_signal(output(status=status))
    assert signal == Signal(
        verdict=Verdict(status), feedback="fine", files_changed=("a.py",), summary="did it", synthetic=False
    )


@pytest.mark.promise("signals.faulty")
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "No signal JSON found in phase output"),
        (b"no json here", "No signal JSON found in phase output"),
        (b"[1, 2, 3]", "No signal JSON found in phase output"),
        (b"{}", "Missing required field: status"),
        (without("summary", "files_changed", "feedback"), "Missing required field: feedback"),
        (without("summary", "files_changed"), "Missing required field: files_changed"),
        (without("summary"), "Missing required field: summary"),
        (without("status"), "Missing required field: status"),
        (output(status="DONE"), "Invalid status value: DONE (must be PASS, NEEDS_WORK, or ERROR)"),
        (output(status="pass"), "Invalid status value: pass (must be PASS, NEEDS_WORK, or ERROR)"),
        (output(status="MORE"), "Invalid status value: MORE (must be PASS, NEEDS_WORK, or ERROR)"),
        (output(status=None), "Invalid status value: null (must be PASS, NEEDS_WORK, or ERROR)"),
        (output(status=["PASS"]), 'Invalid status value: ["PASS"] (must be PASS, NEEDS_WORK, or ERROR)'),
        (output(status="DONE", files_changed="a"), "Invalid status value: DONE (must be PASS, NEEDS_WORK, or ERROR)"),
        (output(files_changed="a.py"), "files_changed must be an array"),
        (output(files_changed=None), "files_changed must be an array"),
        (output() + b"{}", "Missing required field: status"),
    ],
)
def test_a_faulty_signal_becomes_an_error_that_names_the_fault(data: bytes, reason: str) -> None:
    signal = read_signal(data)
    assert signal == error_signal(reason)
    assert (signal.verdict, signal.synthetic, signal.summary) == (Verdict.ERROR, True, SYNTHETIC_SUMMARY)


def test_a_synthetic_signal_is_written_as_the_contract_says() -> None:
    assert signal_json(error_signal("why")) == (
        '{"status":"ERROR","feedback":"why","files_changed":[],"summary":"Phase did not produce a signal"}'
    )


@pytest.mark.promise("signals.extra-fields")
def test_extra_fields_pass_through_after_the_four() -> None:
    extra = {"commit_hash": "abc123", "findings": [{"severity": "low", "n": 1.5}]}
    written = signal_json(read_signal(json.dumps(extra | GOOD).encode()))
    assert list(json.loads(written)) == ["status", "feedback", "files_changed", "summary", "commit_hash", "findings"]
    assert json.loads(written) == GOOD | extra


@pytest.mark.promise("signals.extra-fields")
def test_extra_fields_cannot_overrule_the_four() -> None:
    assert signal_object(Signal(verdict=Verdict.ERROR, extra={"status": "PASS"}))["status"] == "ERROR"


def test_texts_of_another_type_are_kept_as_json() -> None:
    signal = read_signal(output(feedback=["one", {"two": 2}], summary=None, files_changed=["a", 1, {"path": "b"}]))
    assert signal.feedback == '["one",{"two":2}]'
    assert signal.summary == ""
    assert signal.files_changed == ("a", "1", '{"path":"b"}')


def test_a_huge_bad_value_is_cut_in_the_reason() -> None:
    assert len(read_signal(output(status="x" * 100_000)).feedback) < 300


def test_control_characters_are_left_out_of_what_is_handed_on() -> None:
    nasty = "a\n\tb\x00\x1b\r\x7f\x9bc"
    signal = read_signal(output(feedback=nasty, summary=nasty, files_changed=[nasty]))
    assert (signal.feedback, signal.summary, signal.files_changed) == ("a\n\tbc", "a\n\tbc", ("a\n\tbc",))
    assert "\x00" not in read_signal(output(status=nasty)).feedback


def test_the_written_line_is_one_line_of_harmless_utf8() -> None:
    nasty = "a\nb\x00\x1b[31m\x7f\x9b\u2028\ud800ü😀"
    written = signal_json(Signal(verdict=Verdict.PASS, feedback=nasty, extra={nasty: [nasty]}))
    assert written.isprintable()
    assert len(written.splitlines()) == 1
    assert json.loads(written.encode())["feedback"] == nasty.replace("\ud800", "�")


@examples(200)
@given(
    st.dictionaries(st.text(max_size=5), st.text() | st.integers(-(2**63), 2**64 - 1) | st.lists(st.text())),
    st.text(st.characters(exclude_categories=("Cc", "Cs"), include_characters="\n\t")),
)
def test_what_the_agent_sent_comes_back_as_it_was(extra: dict[str, object], feedback: str) -> None:
    sent = extra | GOOD | {"feedback": feedback}
    assert json.loads(signal_json(read_signal(json.dumps(sent).encode()))) == sent


@pytest.mark.promise("signals.no-crash")
@examples(200)
@given(st.binary() | st.text().map(str.encode))
def test_no_output_whatsoever_raises(data: bytes) -> None:
    assert read_signal(data).synthetic
    assert read_result(data, "WRK-001", "prd").synthetic


def test_a_signal_survives_the_journal() -> None:
    hostile = (
        rb'{"status":"PASS","feedback":"\ud800","files_changed":[],"summary":"","n":' + b"9" * 5000 + b',"e":1e999}'
    )
    for signal in (read_signal(hostile), result(follow_ups=["later"], updated_assessments={"risk": "high"})):
        assert msgspec.json.decode(msgspec.json.encode(signal), type=Signal) == signal


# --- results --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "verdict"),
    [
        ("PHASE_COMPLETE", Verdict.PASS),
        ("phase_complete", Verdict.PASS),
        ("Subphase_Complete", Verdict.MORE),
        ("FAILED", Verdict.FAILED),
        ("blocked", Verdict.BLOCKED),
    ],
)
def test_each_result_is_read_in_any_letter_case(word: str, verdict: Verdict) -> None:
    signal = result(result=word, item_id="wrk-001", phase="PRD")
    assert (signal.verdict, signal.synthetic, signal.summary) == (verdict, False, "PRD written")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "No result JSON found"),
        (b"{}", "Missing required field: item_id"),
        (b'{"item_id":"WRK-001"}', "Missing required field: phase"),
        (b'{"item_id":"WRK-001","phase":"prd","summary":""}', "Missing required field: result"),
        (b'{"item_id":"WRK-001","phase":"prd","result":"FAILED"}', "Missing required field: summary"),
        (json.dumps(RESULT | {"item_id": "WRK-002"}).encode(), "Result is for item_id WRK-002, not WRK-001"),
        (json.dumps(RESULT | {"phase": "spec"}).encode(), "Result is for phase spec, not prd"),
        (
            json.dumps(RESULT | {"result": "PASS"}).encode(),
            "Invalid result value: PASS (must be one of PHASE_COMPLETE, SUBPHASE_COMPLETE, FAILED, BLOCKED)",
        ),
    ],
)
def test_a_faulty_result_becomes_a_failure_that_names_the_fault(data: bytes, reason: str) -> None:
    signal = read_result(data, "WRK-001", "prd")
    assert (signal.verdict, signal.synthetic, signal.feedback) == (Verdict.FAILED, True, reason)


def test_a_block_carries_its_reason_and_type() -> None:
    asked = result(result="BLOCKED", context="Which database?", block_type="Decision")
    assert (asked.feedback, asked.block_type) == ("Which database?", "decision")
    alias = result(result="BLOCKED", blocked_type="DECISION")
    assert (alias.feedback, alias.block_type) == ("PRD written", "decision")
    assert result(result="BLOCKED").block_type == "clarification"
    assert result(block_type="decision").block_type == ""


def test_context_is_the_feedback_of_every_other_result() -> None:
    assert result(result="FAILED", context="tried X").feedback == "tried X"
    assert result().feedback == ""


def test_follow_ups_may_be_objects_or_plain_strings() -> None:
    given_ups = [
        "Fix docs",
        {"title": "Add cache", "context": "slow", "suggested_size": "Small", "suggested_risk": "LOW"},
    ]
    signal = result(follow_ups=[*given_ups, "", {"context": "no title"}, None])
    assert signal.follow_ups == (FollowUp("Fix docs"), FollowUp("Add cache", "slow", "small", "low"))
    assert result(follow_ups="Fix docs").follow_ups == ()


def test_only_the_four_assessments_are_taken() -> None:
    new = {"size": "Small", "risk": " LOW ", "impact": None, "complexity": 3, "mood": "good"}
    assert result(updated_assessments=new).assessments == {"size": "small", "risk": "low"}
    assert result(updated_assessments=None).assessments == {}


@pytest.mark.parametrize(
    ("said", "meant"), [(True, True), ("true", True), ("Yes", True), (False, False), ("false", False)]
)
def test_flags_are_understood_as_meant(said: object, meant: bool) -> None:
    signal = result(requires_human_review=said, already_done=said)
    assert (signal.requires_human_review, signal.already_done) == (meant, meant)


def test_triage_may_name_a_duplicate() -> None:
    assert result(duplicate_of="WRK-007").duplicate_of == "WRK-007"
    assert result(duplicate_of=None).duplicate_of == ""


def test_unknown_result_fields_pass_through() -> None:
    assert result(artefact="x.md").extra == {"artefact": "x.md"}
