"""What the end of a phase tells the tracker."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from capsule.catalog import Catalog
from capsule.core.assignment import Absent, Assign, Exists, LogEntry
from capsule.core.decide import Decision, Move
from capsule.core.item import MOVES, Assessment, Blocked, Item, Status, with_values
from capsule.core.ledger import Ending, after, assignments_of, guarded, subject
from capsule.core.project_log import archived_titles, same_title
from capsule.core.signal import FollowUp, Signal, Verdict

CHANGE = Catalog().workflow("change")
AT = "2026-11-16T03:04:05Z"
PASSED = Decision(Move.ADVANCE, Verdict.PASS)
MORE = Decision(Move.REPEAT, Verdict.MORE)
VETOED = Decision(Move.PARK, Verdict.PASS, "risk is high, above the guardrail low", vetoed=True, block_type="decision")
BLOCKED = Decision(Move.PARK, Verdict.BLOCKED, "Which colour?", block_type="clarification")
EXHAUSTED = Decision(Move.PARK, Verdict.FAILED, "retries exhausted (2 allowed): no", exhausted=True)


def item(status: Status = Status.IN_PROGRESS, phase: str = "", **fields: Any) -> Item:
    return Item(id="WRK-001", title="Say: hello", status=status, phase=phase, **fields)


def ending(phase: str, given: Item, decision: Decision = PASSED, closed_as: str = "", **claims: Any) -> Ending:
    signal = Signal(verdict=decision.verdict, summary=claims.pop("summary", "it was done"), **claims)
    return Ending(CHANGE, CHANGE.phase(phase), f"{phase}#1", given, signal, decision, closed_as)


def left(phase: str, given: Item, decision: Decision = PASSED, **claims: Any) -> Item:
    return after(given, assignments_of(ending(phase, given, decision, **claims), AT))


SMALL = {"size": "small", "risk": "low"}
LARGE = {"size": "large", "risk": "low"}


@pytest.mark.promise("004-types.phases")
@pytest.mark.parametrize(
    ("phase", "given", "claims", "status", "next_phase"),
    [
        ("triage", item(Status.NEW), {"assessments": SMALL}, Status.READY, "prd"),
        ("triage", item(Status.NEW), {"assessments": LARGE}, Status.RESEARCHING, ""),
        ("triage", item(Status.NEW), {}, Status.RESEARCHING, ""),
        ("idea-research", item(Status.RESEARCHING), {}, Status.READY, "prd"),
        ("prd", item(Status.READY, "prd"), {}, Status.IN_PROGRESS, "research"),
        ("research", item(phase="research"), {}, Status.IN_PROGRESS, "design"),
        ("design", item(phase="design"), {}, Status.IN_PROGRESS, "spec"),
        ("spec", item(phase="spec"), {}, Status.IN_PROGRESS, "build"),
        ("build", item(phase="build"), {}, Status.IN_PROGRESS, "review"),
        ("review", item(phase="review"), {}, Status.IN_PROGRESS, "review"),
    ],
)
def test_a_phase_that_passes_moves_the_item_on(
    phase: str, given: Item, claims: dict[str, Any], status: Status, next_phase: str
) -> None:
    found = left(phase, given, **claims)
    assert (found.status, found.phase) == (status, next_phase)


@pytest.mark.promise("004-pipeline.all-phases")
def test_a_part_that_is_done_leaves_the_item_in_its_phase() -> None:
    found = left("build", item(Status.READY, "build"), MORE)
    assert (found.status, found.phase) == (Status.IN_PROGRESS, "build")


@pytest.mark.promise("004-follow-ups.block")
@pytest.mark.parametrize(("decision", "kind"), [(BLOCKED, "clarification"), (EXHAUSTED, "")])
def test_a_block_remembers_where_the_item_was_and_only_a_question_has_a_type(decision: Decision, kind: str) -> None:
    found = left("design", item(Status.READY, "design"), decision)
    assert found.status is Status.BLOCKED and found.phase == "design"
    assert found.blocked == Blocked(Status.IN_PROGRESS, decision.reason, kind)
    early = left("triage", item(Status.NEW), decision)
    assert early.blocked == Blocked(Status.NEW, decision.reason, kind)


def test_a_veto_keeps_what_the_phase_achieved_and_asks_a_human() -> None:
    found = left("prd", item(Status.READY, "prd"), VETOED, assessments={"risk": "high"})
    assert found.status is Status.BLOCKED and found.phase == "research"
    assert found.blocked == Blocked(Status.IN_PROGRESS, VETOED.reason, "decision")
    assert found.requires_human_review and found.assessment.risk == "high"


def test_a_veto_at_triage_blocks_from_scoped_so_that_unblocking_promotes() -> None:
    found = left("triage", item(Status.NEW), VETOED, assessments=SMALL)
    assert found.blocked is not None and found.blocked.from_status is Status.SCOPED


def test_a_veto_after_the_last_phase_leaves_only_the_archive() -> None:
    found = left("review", item(phase="review"), VETOED)
    assert found.blocked is not None and found.blocked.from_status is Status.IN_PROGRESS
    assert CHANGE.remaining(found) == ("archive",)


@pytest.mark.parametrize("move", [Move.RETRY, Move.REWORK, Move.ABORT, Move.SKIP])
def test_a_retry_tells_the_tracker_nothing(move: Move) -> None:
    assert assignments_of(ending("prd", item(phase="prd"), Decision(move, Verdict.FAILED)), AT) == ()


@pytest.mark.promise("004-file.assessments")
def test_partial_assessments_are_merged_and_full_ones_replace() -> None:
    known = item(phase="prd", assessment=Assessment("small", "low", "low", "high"))
    assert left("prd", known, assessments={"size": "medium"}).assessment == Assessment("medium", "low", "low", "high")
    every = {"size": "large", "complexity": "high", "risk": "high", "impact": "low"}
    assert left("prd", known, assessments=every).assessment == Assessment("large", "high", "high", "low")


def test_unblock_notes_stay_until_a_phase_succeeds_with_them() -> None:
    given = item(phase="prd", unblock_context="Blue.")
    assert left("prd", given).unblock_context == ""
    assert left("prd", given, EXHAUSTED).unblock_context == "Blue."


@pytest.mark.promise("004-file.follow-ups", "004-pipeline.follow-ups")
def test_follow_ups_are_items_to_be_with_origin_and_a_key_of_their_own() -> None:
    found = FollowUp("Mend\nthe rest", "Seen in a.py", "small", "low")
    told = assignments_of(ending("build", item(phase="build"), MORE, follow_ups=(found, FollowUp("B"))), AT)
    one, two = [each for each in told if isinstance(each, Exists)]
    assert one.key == "WRK-001/build#1/0" and two.key == "WRK-001/build#1/1"
    assert one.unless_known
    assert one.values == {
        "title": "Mend the rest", "status": "new", "size": "small", "risk": "low", "origin": "WRK-001/build",
        "description": "Seen in a.py", "created": AT, "updated": AT,
    }  # fmt: skip


@pytest.mark.promise("004-types.phases", "004-file.archive")
def test_the_last_phase_takes_the_item_out_and_writes_it_down() -> None:
    told = assignments_of(ending("archive", item(Status.DONE)), AT)
    assert [type(each) for each in told] == [Absent, LogEntry]
    assert isinstance(told[1], LogEntry) and told[1].month == "2026-11"
    assert [title for _, title in archived_titles(told[1].text)] == ["Say: hello"]


@pytest.mark.promise("004-commands.worklog")
def test_a_worklog_entry_says_when_what_which_phase_and_how_it_ended() -> None:
    entry = assignments_of(ending("prd", item(phase="prd"), summary="Wrote\nit | all"), AT)[-1]
    assert isinstance(entry, LogEntry)
    assert entry.text == ("## 2026-11-16 03:04:05 UTC | WRK-001 | prd | PASS\n\n**Say: hello**\n\nWrote it | all\n")
    assert list(archived_titles(entry.text)) == []


@pytest.mark.parametrize(
    ("phase", "decision", "closed_as", "line"),
    [
        ("prd", PASSED, "", "[WRK-001][PRD] it was done"),
        ("build", MORE, "", "[WRK-001][BUILD] it was done"),
        ("design", BLOCKED, "", "[WRK-001][BLOCKED] Which colour?"),
        (
            "triage",
            Decision(Move.CLOSE, Verdict.PASS, "duplicate of WRK-9"),
            "",
            "[WRK-001][TRIAGE] duplicate of WRK-9",
        ),
        ("archive", PASSED, "", "[WRK-001][ARCHIVE] Completed: Say: hello"),
        ("archive", PASSED, "duplicate of WRK-9", "[WRK-001][ARCHIVE] Closed: Say: hello (duplicate of WRK-9)"),
    ],
)
def test_each_commit_says_item_phase_and_what_was_done(
    phase: str, decision: Decision, closed_as: str, line: str
) -> None:
    assert subject(ending(phase, item(phase=phase), decision, closed_as)) == line


def test_a_subject_is_one_line_of_sane_length() -> None:
    long = subject(ending("prd", item(phase="prd"), summary="x\ny\x1b[31m" + "z" * 900))
    assert len(long) <= 200 and "\n" not in long and "\x1b" not in long


@pytest.mark.promise("004-types.round-trip")
def test_everything_guarded_survives_being_written_and_read() -> None:
    given = item(
        phase="design", assessment=Assessment("small", "low", "low", "high"), requires_human_review=True,
        blocked=Blocked(Status.READY, "why", "decision"), unblock_context="notes",
        guardrail_override=Assessment(size="large"),
    )  # fmt: skip
    assert with_values(Item(id="WRK-001", title="Say: hello"), guarded(given)) == given
    bare = Item(id="WRK-001", title="Say: hello")
    assert with_values(given, guarded(bare)) == bare


@pytest.mark.promise("004-pipeline.before")
def test_every_move_a_phase_makes_is_in_the_table() -> None:
    """A promotion takes two moves at once, by way of scoped, and a first phase enters by way of in_progress."""

    def reachable(old: Status, new: Status) -> bool:
        return new is old or new in MOVES[old] or any(new in MOVES[step] for step in MOVES[old])

    for phase in CHANGE.phases[:-1]:
        for status in (Status.NEW, Status.RESEARCHING, Status.READY, Status.IN_PROGRESS):
            if phase.when and status.value not in phase.when.status:
                continue
            for decision in (PASSED, MORE, BLOCKED, EXHAUSTED):
                found = left(phase.name, item(status, phase.name), decision)
                if not phase.when and status in (Status.NEW, Status.RESEARCHING):
                    continue
                assert reachable(status, found.status), (phase.name, status, decision)


@pytest.mark.parametrize(("one", "other"), [("Mend  it!", "mend it"), ("ÜBER-x", "über x"), ("漢字", "漢字")])
def test_titles_that_mean_the_same_are_the_same(one: str, other: str) -> None:
    assert same_title(one) == same_title(other)
    assert same_title(one) != same_title(f"{other} 2")


@pytest.mark.promise("004-types.round-trip")
def test_assignments_can_be_journaled() -> None:
    told = assignments_of(ending("build", item(phase="build"), follow_ups=(FollowUp("B"),)), AT)
    kind = tuple[Assign | Exists | Absent | LogEntry, ...]
    assert msgspec.json.decode(msgspec.json.encode(told), type=kind) == told
