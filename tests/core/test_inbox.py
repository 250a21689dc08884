"""What waits for a person, and how it is answered."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.told import HELD as CONFIRMED
from tests.told import PAID, RED, Told, part_of, prepared

from capsule.core.answers import QuestionKind
from capsule.core.board import Board, gather_board
from capsule.core.decide import Move
from capsule.core.event import Accepted, MovedByHand, Recorded
from capsule.core.findings import Finding
from capsule.core.inbox import Question, inbox, needs_you
from capsule.core.item import HELD, Blocked, Item, Status
from capsule.core.ledger import DECISION
from capsule.core.signal import Verdict
from capsule.core.status import MissionStatus

ITEM = Item(id="x-1", title="The task")


def asked_of(*missions: Told, items: list[Item] | None = None, running: bool = False) -> tuple[Question, ...]:
    at = "2026-01-06T09:00:00Z"
    board = gather_board([told.summary(running=running, as_of=at) for told in missions], (), at)
    return inbox(board, [ITEM] if items is None else items)


def only(*missions: Told, items: list[Item] | None = None) -> Question:
    (question,) = asked_of(*missions, items=items)
    return question


def blocked(kind: str, **more: object) -> Item:
    halt = Blocked(Status.READY, "which colour, and why?", kind)
    return msgspec.structs.replace(ITEM, status=Status.BLOCKED, blocked=halt, updated="2026-01-05T08:00:00Z", **more)


def test_a_question_of_an_agent_is_whole_and_takes_an_answer() -> None:
    whole = "Which colour?\n\n- blue, as the logo\n- or green " + "and so on " * 200
    told = prepared().refuted(usage=PAID)
    reason = " ".join(whole.split())
    question = only(told.step(verdict=Verdict.BLOCKED, move=Move.PARK, summary=whole, reason=reason, exit_code=1))
    assert question.kind is QuestionKind.QUESTION and question.status is MissionStatus.NEEDS_YOU
    assert question.asked == whole.strip()
    assert (question.heading, question.phase) == ("x-1: The task", "code")
    assert question.done == ("code BLOCKED (2 attempts)",)
    assert question.spent.usd == 0.25 and question.spent.runs == 2 and question.spent.priced == 1
    assert question.seconds == 62.0 and question.since == told.at
    assert [each.verb for each in question.answers] == ["answer", "close"]
    assert question.answers[0].command == 'capsule answer x-1 --notes "..."'
    assert question.answers[0].with_text("Blue.") == ["answer", "x-1", "--notes", "Blue."]
    assert question.answers[0].with_text("-1") == ["answer", "x-1", "--notes=-1"]


def test_a_veto_asks_for_a_decision() -> None:
    vetoed: dict[str, Any] = {
        "reason": "risk is high, above the guardrail medium",
        "vetoed": True,
        "block_type": DECISION,
    }
    question = only(prepared().step(move=Move.PARK, **vetoed))
    assert question.kind is QuestionKind.DECISION and question.asked == vetoed["reason"]
    assert [each.command for each in question.answers] == [
        "capsule answer x-1 --approve",
        'capsule answer x-1 --close "..."',
    ]
    assert question.answers[0].text == "optional"


def test_an_agent_that_asks_for_a_decision_can_be_told_it_in_words() -> None:
    made: dict[str, Any] = {"reason": "blue or red?", "block_type": DECISION, "summary": "blue or red?"}
    question = only(prepared().step(verdict=Verdict.BLOCKED, move=Move.PARK, **made))
    assert question.kind is QuestionKind.DECISION
    assert [each.verb for each in question.answers] == ["answer", "approve", "close"]


def test_a_review_in_circles_asks_with_both_sides() -> None:
    made: dict[str, Any] = {
        "reason": "R1 was asked for 3 times: “name it”",
        "block_type": "clarification",
        "exit_code": 1,
    }
    told = (
        prepared()
        .step("code")
        .step("look", Verdict.NEEDS_WORK, Move.PARK, findings=(Finding(id="R1", text="name it"),), **made)
    )
    question = only(told)
    assert question.kind is QuestionKind.REVIEW and question.asked == made["reason"]
    assert question.answers[0].verb == "answer"
    assert question.done == ("code PASS", "look NEEDS_WORK")


def test_a_refuted_claim_shows_what_is_refuted_first_and_may_be_accepted() -> None:
    seen = msgspec.structs.replace(RED, tree="t1")
    why = "it claimed that all tests pass, and `make test` is red, exit 1"
    told = prepared().step(
        verdict=Verdict.REFUTED, move=Move.PARK, claimed=Verdict.PASS, evidence=(CONFIRMED, seen), reason=why,
        accept="green", exit_code=1,
    )  # fmt: skip
    question = only(told)
    assert question.kind is QuestionKind.CLAIM and question.status is MissionStatus.NEEDS_YOU
    assert question.evidence == (seen, CONFIRMED)
    assert [each.command for each in question.answers] == [
        "capsule answer x-1 --retry",
        'capsule answer x-1 --accept green --because "..."',
        'capsule answer x-1 --close "..."',
    ]
    accepted = Accepted(at=told.at, phase="code", check="green", tree="t1", claimed="c", observed="o", because="known")
    told.events.append(accepted)
    assert asked_of(told) == ()


def test_retries_that_are_gone_show_as_failed() -> None:
    gone: dict[str, Any] = {"reason": "retries exhausted (2 allowed): Name it.", "exhausted": True, "exit_code": 1}
    question = only(prepared().step("look", Verdict.NEEDS_WORK, Move.ABORT, summary="Name it.\nAnd test it.", **gone))
    assert (question.kind, question.status) == (QuestionKind.FAILED, MissionStatus.FAILED)
    assert question.asked == "retries exhausted (2 allowed): Name it.\nAnd test it."
    assert question.answers[0].command == "capsule answer x-1 --retry"


def test_a_conflict_offers_to_rebuild_the_work() -> None:
    why = "conflict with main in a.py; `capsule run x-1 --rebase` rebuilds the work on main and goes on from there"
    told = prepared().step("code").step("look")
    question = only(told.step("deliver", Verdict.FAILED, Move.PARK, summary=why, reason=why, agent="", exit_code=1))
    assert question.kind is QuestionKind.CONFLICT
    first = question.answers[0]
    assert (first.verb, first.command) == ("run", "capsule run x-1 --rebase")
    assert question.answers[1].verb == "try-again"


def test_what_an_agent_found_done_already_can_be_completed() -> None:
    made: dict[str, Any] = {"reason": "already done, says its agent", "block_type": "clarification", "exit_code": 1}
    question = only(prepared().step(move=Move.PARK, **made))
    assert [each.verb for each in question.answers] == ["answer", "complete", "close"]


def test_a_part_asks_under_the_name_of_its_whole() -> None:
    whole = prepared()
    part = part_of(whole).step(
        verdict=Verdict.BLOCKED, move=Move.PARK, summary="Which\ncolour?", reason="Which colour?"
    )
    whole.step(verdict=Verdict.BLOCKED, move=Move.PARK, reason="x-1.code.1: Which colour?", agent="")
    question = only(whole, part)
    assert (question.id, question.asked) == ("x-1", "Which\ncolour?")
    assert question.done == ("code BLOCKED", "x-1.code.1: code BLOCKED")


@pytest.mark.parametrize(
    ("kind", "asks", "first"),
    [
        (DECISION, QuestionKind.DECISION, "capsule answer x-1 --approve"),
        ("clarification", QuestionKind.QUESTION, 'capsule answer x-1 --notes "..."'),
        ("", QuestionKind.QUESTION, 'capsule answer x-1 --notes "..."'),
    ],
)
def test_an_item_that_is_blocked_without_a_mission_asks_too(kind: str, asks: QuestionKind, first: str) -> None:
    question = only(items=[blocked(kind)])
    assert (question.kind, question.asked, question.done) == (asks, "which colour, and why?", ())
    assert question.answers[0].command == first and question.spent.runs == 0


def test_what_only_its_tracker_can_lift_is_no_question() -> None:
    assert asked_of(items=[blocked(HELD)]) == ()


def test_a_halted_mission_and_its_blocked_item_ask_once() -> None:
    assert len(asked_of(prepared().blocked(), items=[blocked("clarification")])) == 1


def test_what_runs_is_over_or_was_answered_asks_nothing() -> None:
    assert asked_of(prepared().blocked(), running=True) == ()
    assert asked_of(prepared().blocked().reopened("Blue.")) == ()
    assert asked_of(prepared().delivered()) == ()
    assert asked_of(prepared().step().stopped()) == ()
    assert asked_of(prepared().blocked(), items=[msgspec.structs.replace(ITEM, status=Status.DONE)]) == ()


def test_an_item_that_was_unblocked_in_its_backlog_asks_nothing() -> None:
    """The mission hears of it with its next step, and the tracker is believed before that."""
    told = prepared().step().stopped()
    halt = MovedByHand(at=told.at, what="item", expected="ready", found="blocked", item=blocked("clarification"))
    told.events += [Recorded(at=told.at, key="code#1", commit="c" * 40), halt]
    assert len(asked_of(told, items=[blocked("clarification")])) == 1
    assert asked_of(told, items=[ITEM]) == ()


def test_a_mission_whose_item_is_gone_can_be_ended() -> None:
    assert [each.command for each in only(prepared().blocked(), items=[Item(id="x-2", title="")]).answers] == [
        "capsule abort x-1"
    ]
    board = gather_board([prepared().blocked().summary()], (), "")
    assert inbox(board, None)[0].answers[0].verb == "answer", "a tracker that cannot be read says nothing"


def test_the_oldest_question_comes_first() -> None:
    later = Told("x-2", at="2026-01-05T10:00:00Z").start().step("prepare", agent="").blocked()
    items = [ITEM, Item(id="x-2", title="")]
    questions = asked_of(later, prepared().blocked(), items=[*items, msgspec.structs.replace(blocked(""), id="x-0")])
    assert [each.id for each in questions] == ["x-0", "x-1", "x-2"]
    assert needs_you(questions) == "Needs you (3)" and needs_you(inbox(Board(), [])) == "Needs you (0)"
