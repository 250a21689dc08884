"""`capsule questions`: everything that needs a person, whole, with what it takes to answer."""

from __future__ import annotations

import json

import pytest

from .backlog_project import BacklogProject, blocked
from .backlog_script import honest, turn
from .conftest import ITEM, Project, assert_clear, nothing_changes

LONG = " ".join(f"word{number}" for number in range(1, 901))
ASKED = f"Which shop?\n\n- the old one\n- the new one, {LONG} That is all."
WIDE = {"COLUMNS": "72"}


@pytest.fixture
def a_question(a_backlog: BacklogProject) -> BacklogProject:
    """An agent asks in many words, before anything is built."""
    a_backlog.play(honest(prd=[turn("prd", "BLOCKED", context=ASKED), *honest()["prd"]]))
    a_backlog.add()
    assert a_backlog.run().code == 0
    return a_backlog


def test_nothing_needs_you(a_backlog: BacklogProject) -> None:
    with nothing_changes(a_backlog):
        assert a_backlog.say("questions") == (0, "Nothing needs you.\n", "")
        assert a_backlog.say("questions", "--json") == (0, "[]\n", "")


@pytest.mark.promise("inbox.whole")
def test_a_question_is_told_whole_with_what_answers_it(a_question: BacklogProject) -> None:
    with nothing_changes(a_question):
        answer = a_question.capsule("questions")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("Needs you (1)\n\n■ WRK-001: Find the answer\n  asks at prd, since ")
    assert f"\n    {ASKED.splitlines()[0]}\n\n    - the old one\n    - the new one, {LONG} That is all.\n" in answer.out
    assert "\n  done:     triage PASS, prd BLOCKED\n" in answer.out
    assert "\n  cost:     cost unknown, tokens unknown, " in answer.out
    assert '\n  answer:   capsule answer WRK-001 --notes "..."\n' in answer.out
    assert answer.out.endswith('            capsule answer WRK-001 --close "..."\n')


def test_the_command_that_is_named_shows_what_one_step_changed(a_backlog: BacklogProject) -> None:
    a_backlog.play({"triage": [turn("triage", "BLOCKED", context="which colour?")]})
    a_backlog.add()
    a_backlog.run()
    [shows] = [line.split(None, 1)[1] for line in a_backlog.say("questions").out.splitlines() if "  diff: " in line]
    assert "which colour?" in a_backlog.git(*shows.split()[1:])


@pytest.mark.promise("inbox.whole")
def test_on_a_terminal_every_word_is_there_and_no_line_is_too_long(a_question: BacklogProject) -> None:
    out = a_question.say("questions", env=WIDE).out
    assert max(map(len, out.splitlines())) <= 72
    assert all(f" word{number} " in f" {' '.join(out.split())} " for number in range(1, 901))


def test_programs_are_told_the_same(a_question: BacklogProject) -> None:
    (told,) = json.loads(a_question.say("questions", "--json").out)
    assert (told["id"], told["kind"], told["status"], told["asked"]) == ("WRK-001", "question", "needs_you", ASKED)
    assert told["answers"][0]["command"] == 'capsule answer WRK-001 --notes "..."'
    assert told["spending"]["usd"] is None and told["spending"]["runs"] == 2


def test_decisions_and_questions_come_oldest_first_and_can_be_named(a_backlog: BacklogProject) -> None:
    later = {"updated": "2026-02-12T09:30:00Z"}
    a_backlog.hold(blocked(**later), blocked("decision"), {"title": "Free"})
    answer = a_backlog.say("questions")
    assert answer.out.index("WRK-002") < answer.out.index("WRK-001")
    assert "  waits for your decision, since 11 Feb 2026, 09:30:00 UTC (" in answer.out
    assert (
        "            risk is high" not in answer.out and "\n    risk is high, above the guardrail low\n" in answer.out
    )
    one = a_backlog.say("questions", "WRK-001").out
    assert "WRK-002" not in one and one.startswith("Needs you (1)\n")
    assert_clear(
        a_backlog.say("questions", "WRK-003"), 1, "WRK-003 does not need you: it is new.", "`capsule questions`"
    )
    assert_clear(a_backlog.say("questions", "WRK-009"), 1, "WRK-009", "")


def test_a_failure_shows_the_evidence_and_where_the_changes_are(a_halted_mission: Project) -> None:
    out = a_halted_mission.say("questions", ITEM).out
    assert out.startswith("Needs you (1)\n\n✗ demo-1.1: Find the answer\n  failed at execute, since ")
    assert "\n    the disk is full\n" in out
    assert "\n  done:     test-writer PASS, test-review PASS, execute ERROR\n" in out
    assert "\n  diff:     git diff " in out
    assert f"\n  answer:   capsule answer {ITEM} --retry\n" in out
    shown = next(line for line in out.splitlines() if "diff:" in line).split("git ")[1]
    assert "test_answer.sh" in a_halted_mission.git(*shown.split())


def test_questions_can_be_read_from_inside_a_phase(a_backlog: BacklogProject) -> None:
    inside = {"CAPSULE_REPOSITORY": str(a_backlog.path / ".git")}
    assert a_backlog.say("questions", env=inside).code == 0
