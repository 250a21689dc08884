"""The one line that sums up a mission: what was proven, and what was only said."""

from __future__ import annotations

from tests.told import Told

from capsule.core.decide import Move
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import read_mission
from capsule.core.proven import Review, line_of, proof_of
from capsule.core.signal import Verdict
from capsule.core.workflow import Phase, Role, Workflow

FLOW = Workflow(
    name="flow",
    phases=(
        Phase(name="tests", prompt="t", writes="tests", checks=("red",)),
        Phase(name="look", role=Role.REVIEW, prompt="l", rework="tests", checks=("red",)),
        Phase(name="code", prompt="c", checks=("green",)),
        Phase(name="judge", role=Role.REVIEW, prompt="r", rework="code", checks=("green", "canary", "demanded")),
        Phase(name="deliver", role=Role.ACTION, do="publish"),
    ),
)


def piece(check: str, proven: dict[str, str], **more: object) -> Evidence:
    return Evidence(check, "a claim", "what was seen", EvidenceStatus.CONFIRMED, proven=proven, **more)  # type: ignore[arg-type]


RED = piece("red", {"red": "red by name (3 new)"}, tests={"new": ("a", "b", "c")})
GREEN = piece("green", {"unharmed": "212 others unharmed", "green": "green by name"})
DEMANDED = piece("demanded", {"demanded": "demanded 7 of 8"}, survivors=("`>` → `>=` in src/x.py:14",))
CANARY = piece("canary", {"canary": "canary seen"})
UNCOVERED = Evidence(
    "demanded", "a claim", "seen", EvidenceStatus.REFUTED, mend="tests", not_covered=("`pay` in x.py", "`tip` in x.py")
)
LOOSE = Evidence("demanded", "a claim", "demanded 0 of 3", EvidenceStatus.REFUTED, mend="tests", survivors=("one",))


def line(told: Told) -> str:
    return proof_of(read_mission(told.events)).line


def up_to_code() -> Told:
    told = Told().start(workflow=FLOW).step("tests", evidence=(RED,)).step("look", evidence=(RED,))
    return told.step("code", evidence=(GREEN,))


def test_a_mission_is_summed_up_in_one_line_in_the_order_of_the_proof() -> None:
    told = up_to_code().step("judge", evidence=(GREEN, CANARY, DEMANDED), summary="fine").step("deliver", agent="")
    proof = proof_of(read_mission(told.events))
    assert proof.line == (
        "red by name (3 new) · green by name · 212 others unharmed · demanded 7 of 8 · canary seen · "
        "reviewed (its word)"
    )
    assert proof.tests == {"new": ("a", "b", "c")}
    assert proof.survivors == ("`>` → `>=` in src/x.py:14",)
    assert proof.reviews == (Review("look", "did as asked"), Review("judge", "fine"))


def test_what_was_not_tried_is_named() -> None:
    told = up_to_code().step("judge", evidence=(GREEN,))
    assert line(told).endswith("212 others unharmed · mutants not tried · no canary · reviewed (its word)")


def test_without_tests_that_run_nothing_is_proven() -> None:
    told = Told().start(workflow=FLOW)
    for phase in ("tests", "look", "code", "judge"):
        told.step(phase)
    assert line(told) == "red not seen · tests not run · mutants not tried · no canary · reviewed (its word)"


def test_nothing_is_said_before_anything_was_checked() -> None:
    assert line(Told().start(workflow=FLOW).begin("tests")) == ""


def test_a_refuted_claim_is_named_until_the_phase_has_passed() -> None:
    told = Told().start(workflow=FLOW).step("tests", evidence=(RED,)).step("look", evidence=(RED,))
    refuted = Evidence("green", "all tests pass", "t fails", EvidenceStatus.REFUTED)
    back = {"claimed": Verdict.PASS, "back_to": "code", "counter": "judge"}
    told.step("code", Verdict.REFUTED, Move.RETRY, evidence=(refuted,), **back)
    assert line(told) == "red by name (3 new) · green refuted · reviewed (its word)"
    assert line(told.step("code", evidence=(GREEN,))).startswith("red by name (3 new) · green by name · 212 others")


def test_of_phases_that_are_to_be_done_again_nothing_stands() -> None:
    told = up_to_code()
    back = {"claimed": Verdict.PASS, "back_to": "tests", "counter": "mend/demanded", "mend": "demanded"}
    told.step("judge", Verdict.REFUTED, Move.REWORK, evidence=(GREEN, CANARY, LOOSE), **back)
    assert line(told) == "demanded refuted"
    mended = piece("red", {"mended": "tests mended (1 of 1 mutants noticed)"})
    assert line(told.step("tests", evidence=(mended,))) == "red by name (3 new) · tests mended (1 of 1 mutants noticed)"


def test_functions_that_no_test_executes_are_counted_apart_from_survivors() -> None:
    back = {"claimed": Verdict.PASS, "back_to": "tests", "counter": "mend/demanded", "mend": "demanded"}
    told = up_to_code().step("judge", Verdict.REFUTED, Move.REWORK, evidence=(GREEN, UNCOVERED), **back)
    proof = proof_of(read_mission(told.events))
    assert proof.line == "demanded refuted · 2 functions not covered"
    assert (proof.not_covered, proof.survivors) == (("`pay` in x.py", "`tip` in x.py"), ())


def test_what_a_person_accepted_is_said() -> None:
    accepted = Evidence("demanded", "a claim", "seen; a person accepted it", EvidenceStatus.ACCEPTED)
    told = up_to_code().step("judge", evidence=(GREEN, CANARY, accepted))
    assert "demanded accepted by a person" in line(told)
    assert "mutants not tried" not in line(told)


def test_one_phase_tells_what_it_proved_itself() -> None:
    assert line_of((CANARY, GREEN, LOOSE)) == "green by name · 212 others unharmed · canary seen"
