"""The table, read back from the docstring that people read, and the rules around it."""

from __future__ import annotations

import re

import msgspec
import pytest

from capsule.core import decide as module
from capsule.core.decide import EXHAUSTED, REACTIONS, Decision, Guardrails, Move, decide, vetoes
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.item import Assessment, Item
from capsule.core.signal import Signal, Verdict
from capsule.core.workflow import Phase, Role, Workflow

REFUTATION = Evidence("green", "all tests pass", "`make test` is red", EvidenceStatus.REFUTED, "1 failed")
FLOW = Workflow(
    name="flow",
    retries=2,
    phases=(
        Phase(name="write", role=Role.WORKER, prompt="w"),
        Phase(name="judge", role=Role.REVIEW, prompt="j", rework="write"),
        Phase(name="alone", role=Role.SOLO, prompt="a", may_close=True),
        Phase(name="act", role=Role.ACTION, do="x"),
        Phase(name="act-again", role=Role.ACTION, do="x", rework="write"),
    ),
)
OF_ROLE = {Role.WORKER: "write", Role.REVIEW: "judge", Role.SOLO: "alone", Role.ACTION: "act-again"}


def printed_table() -> dict[tuple[Role, str], str]:
    rows = [line.split() for line in (module.__doc__ or "").splitlines()]
    header = [*next(row for row in rows if row[:1] == ["role"])[3:-2], "retries gone"]
    table: dict[tuple[Role, str], str] = {}
    for row in rows:
        if row and row[0] in {role.value for role in Role} and len(row) == len(header) + 1:
            table |= {(Role(row[0]), column): cell for column, cell in zip(header, row[1:], strict=True)}
    return table


@pytest.mark.promise("decisions.one-table")
def test_the_table_in_the_docstring_is_the_table_in_the_code() -> None:
    printed = printed_table()
    assert len(printed) == len(Role) * 8
    for (role, column), cell in printed.items():
        move = EXHAUSTED[role] if column == "retries gone" else REACTIONS[role][Verdict(column)]
        assert move.value == cell.rstrip("*"), (role, column)


@pytest.mark.promise("decisions.one-table")
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("verdict", Verdict)
def test_every_cell_decides_as_written(role: Role, verdict: Verdict) -> None:
    refuted = verdict is Verdict.REFUTED
    signal = Signal(verdict=Verdict.PASS if refuted else verdict, feedback="f", summary="s")
    decision = decide(FLOW, OF_ROLE[role], signal, (REFUTATION,) if refuted else ())
    assert decision.move is REACTIONS[role][verdict]
    assert decision.verdict is verdict


def test_an_action_without_a_rework_parks_instead() -> None:
    decision = decide(FLOW, "act", Signal(verdict=Verdict.NEEDS_WORK, feedback="conflict in a.py"))
    assert (decision.move, decision.exit_code, decision.reason) == (Move.PARK, 1, "conflict in a.py")


@pytest.mark.promise("evidence.refuted")
def test_a_refuted_pass_goes_back_with_the_evidence() -> None:
    decision = decide(FLOW, "write", Signal(verdict=Verdict.PASS), (REFUTATION,))
    assert (decision.move, decision.back_to, decision.counter) == (Move.RETRY, "write", "judge")
    assert "`make test` is red" in decision.feedback
    assert "1 failed" in decision.feedback


def test_warn_records_a_refutation_and_goes_on() -> None:
    assert decide(FLOW, "write", Signal(verdict=Verdict.PASS), (REFUTATION,), strict=False).move is Move.ADVANCE


def test_needs_work_is_not_refuted_by_evidence() -> None:
    decision = decide(FLOW, "judge", Signal(verdict=Verdict.NEEDS_WORK, feedback="more"), (REFUTATION,))
    assert (decision.verdict, decision.feedback) == (Verdict.NEEDS_WORK, "more")


@pytest.mark.parametrize(
    ("name", "move", "code"),
    [("write", Move.ABORT, 1), ("judge", Move.ABORT, 1), ("alone", Move.PARK, 1), ("act-again", Move.PARK, 1)],
)
def test_retries_gone_ends_by_role_with_exit_1(name: str, move: Move, code: int) -> None:
    used = {FLOW.counter(name): 2}
    decision = decide(FLOW, name, Signal(verdict=Verdict.PASS), (REFUTATION,), used=used)
    assert (decision.move, decision.exit_code) == (move, code)
    assert decision.reason.startswith("retries exhausted (2 allowed)")


@pytest.mark.promise("decisions.retries")
def test_n_retries_mean_n_more_tries_and_0_is_exactly_one_attempt() -> None:
    once = msgspec.structs.replace(FLOW, retries=0)
    signal = Signal(verdict=Verdict.NEEDS_WORK, feedback="f")
    assert decide(FLOW, "judge", signal, used={"judge": 1}).move is Move.REWORK
    assert decide(once, "judge", signal).move is Move.ABORT


def test_an_error_aborts_with_exit_2_and_its_reason() -> None:
    decision = decide(FLOW, "write", Signal(verdict=Verdict.ERROR, feedback="Agent exited with 9"))
    assert decision == Decision(Move.ABORT, Verdict.ERROR, "Agent exited with 9", "Agent exited with 9", exit_code=2)


def test_a_check_without_patience_parks_instead_of_trying_for_ever() -> None:
    green = Evidence("red", "tests fail", "green", EvidenceStatus.REFUTED, patience=1, instead="seems already done")
    first = decide(FLOW, "write", Signal(verdict=Verdict.PASS), (green,))
    second = decide(FLOW, "write", Signal(verdict=Verdict.PASS), (green,), refutations={"write/red": 1})
    assert (first.move, second.move, second.reason) == (Move.RETRY, Move.PARK, "seems already done")


def test_triage_can_close_an_item() -> None:
    duplicate = decide(FLOW, "alone", Signal(verdict=Verdict.PASS, duplicate_of="WRK-001"))
    done = Signal(verdict=Verdict.PASS, already_done=True, summary="in v2")
    trusted = decide(FLOW, "alone", done, trusts_done=True)
    assert (duplicate.move, duplicate.reason) == (Move.CLOSE, "duplicate of WRK-001")
    assert (trusted.move, trusted.reason) == (Move.CLOSE, "already done: in v2")


@pytest.mark.promise("backlog.already-done")
def test_that_an_item_is_done_already_is_for_a_person_to_confirm() -> None:
    asked = decide(FLOW, "alone", Signal(verdict=Verdict.PASS, already_done=True, summary="in v2"))
    assert (asked.move, asked.exit_code, asked.block_type) == (Move.PARK, 1, "clarification")
    assert asked.reason.endswith(": in v2") and "capsule complete" in asked.reason and "capsule unblock" in asked.reason


def test_a_sign_is_shown_and_costs_nothing() -> None:
    sign = Evidence("files-changed", "changed a", "a did not change", EvidenceStatus.REFUTED, harmless=True)
    assert decide(FLOW, "write", Signal(verdict=Verdict.PASS), (sign,)).move is Move.ADVANCE


@pytest.mark.promise("decisions.guardrails")
@pytest.mark.parametrize(("risk", "trips"), [("", False), ("low", False), ("medium", True), ("high", True)])
def test_guardrails_trip_above_the_maximum_only(risk: str, trips: bool) -> None:
    item = Item(id="a", title="t", assessment=Assessment(risk=risk))
    assert bool(vetoes(item, Signal(verdict=Verdict.PASS), Guardrails(max_risk="low"))) is trips


@pytest.mark.promise("004-pipeline.guardrails")
def test_a_new_assessment_is_held_against_the_guardrail_at_once() -> None:
    signal = Signal(verdict=Verdict.PASS, assessments={"size": "large"})
    found = vetoes(Item(id="a", title="t"), signal, Guardrails(max_size="medium"))
    assert found == ("size is large, above the guardrail medium",)


@pytest.mark.parametrize("verdict", Verdict)
def test_a_veto_only_turns_advance_or_repeat_into_park(verdict: Verdict) -> None:
    signal = Signal(verdict=Verdict.PASS if verdict is Verdict.REFUTED else verdict, feedback="f")
    evidence = (REFUTATION,) if verdict is Verdict.REFUTED else ()
    plain = decide(FLOW, "alone", signal, evidence)
    vetoed = decide(FLOW, "alone", signal, evidence, vetoed=("a human review is required",))
    if plain.move in (Move.ADVANCE, Move.REPEAT):
        assert (vetoed.move, vetoed.reason) == (Move.PARK, "a human review is required")
    else:
        assert vetoed == plain


def test_the_design_document_uses_the_same_words() -> None:
    assert set(re.findall(r"[a-z]+", " ".join(move.value for move in Move))) == {
        "advance", "repeat", "retry", "rework", "skip", "park", "abort", "close",
    }  # fmt: skip


def test_only_a_phase_that_may_close_closes_and_a_veto_comes_first() -> None:
    duplicate = Signal(verdict=Verdict.PASS, duplicate_of="WRK-001")
    assert decide(FLOW, "write", duplicate).move is Move.ADVANCE
    assert decide(FLOW, "alone", duplicate, vetoed=("a human review is required",)).move is Move.PARK
