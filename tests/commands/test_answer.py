"""`capsule answer`: one verb for whatever needs a person, and the item goes on."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from capsule.core.event import Event, Reopened
from capsule.core.item import Status
from capsule.core.ledger import DECISION
from tests.costs import LONG, eventually

from .backlog_project import BacklogProject, blocked, unchanged
from .backlog_script import honest, turn
from .conftest import ITEM, PASS, Project, assert_clear, nothing_changes, said
from .conftest import honest as honest_mission
from .terminal import Terminal
from .test_accept import BECAUSE, a_mission_that_needs_you  # noqa: F401 - a fixture
from .test_jobs import Shelf, makes, shelf, waits  # noqa: F401 - a fixture

LONG_ANSWER = "Use UTC.\n\n" + "\n".join(f"- reason {number}" for number in range(2000))


@pytest.fixture
def some_questions(a_backlog: BacklogProject) -> BacklogProject:
    """A question, a decision, and an item that asks nothing."""
    a_backlog.hold(blocked(), blocked("decision", risk="high"), {"title": "Free"})
    return a_backlog


def context(project: BacklogProject, item: str = "WRK-001") -> str:
    return project.item(item).unblock_context


# ---- one verb


@pytest.mark.promise("inbox.answer")
@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (("Blue: it is the logo's.",), b""),
        (("--notes", "Blue: it is the logo's."), b""),
        (("--notes", "-"), b"Blue: it is the logo's.\n"),
        (("--file", "-"), b"Blue: it is the logo's.\n"),
    ],
)
def test_words_answer_a_question(some_questions: BacklogProject, words: tuple[str, ...], stdin: bytes) -> None:
    answer = some_questions.say("answer", "WRK-001", *words, stdin=stdin)
    assert answer == (0, "WRK-001 is ready again.\n", "")
    assert (some_questions.item().status, context(some_questions)) == (Status.READY, "Blue: it is the logo's.")
    assert some_questions.subjects()[-1].startswith("[WRK-001][UNBLOCK] Blue")


def test_an_answer_may_be_long(some_questions: BacklogProject) -> None:
    file = some_questions.path.parent / "answer.md"
    file.write_text(LONG_ANSWER)
    assert some_questions.say("answer", "WRK-001", "--file", str(file)).code == 0
    assert context(some_questions) == LONG_ANSWER


@pytest.mark.promise("inbox.answer")
def test_an_answer_to_a_review_says_that_its_worker_goes_on(a_project: Project) -> None:
    again = [said("PASS", write={"answer": f"42\n{number}\n"}) for number in range(3)]
    a_project.play(honest_mission(execute=again, execute_review=[said("NEEDS_WORK", "Call it less.")] * 3))
    assert "needs you at execute-review" in a_project.run().out
    answer = a_project.say("answer", ITEM, "It is short enough.")
    assert answer == (0, f"{ITEM} resumes at execute with your notes: capsule run {ITEM}\n", "")


@pytest.mark.promise("inbox.answer")
def test_a_decision_takes_a_yes_and_not_words_alone(some_questions: BacklogProject) -> None:
    with unchanged(some_questions):
        words = some_questions.say("answer", "WRK-002", "No, that is too risky.")
        assert_clear(
            words, 1, "WRK-002 waits for your decision, so text alone is no answer.", "answer WRK-002 --approve;"
        )
        retry = some_questions.say("answer", "WRK-002", "--retry")
        assert_clear(retry, 1, "WRK-002 waits for your decision.", "capsule answer WRK-002 --approve")
    assert some_questions.say("answer", "WRK-002", "--approve", "--notes=Once.") == (0, "WRK-002 is ready again.\n", "")
    assert some_questions.fields("WRK-002")["guardrail_override"] == {"risk": "high"}
    assert context(some_questions, "WRK-002") == "Once."


def test_an_agents_own_decision_is_answered_in_words(a_backlog: BacklogProject) -> None:
    asks = turn("prd", "BLOCKED", context="Blue or red?", block_type=DECISION)
    a_backlog.play(honest(prd=[asks, *honest()["prd"]]))
    a_backlog.add()
    assert a_backlog.run().code == 0
    assert a_backlog.say("answer", "WRK-001", "Red.") == (0, "WRK-001 is in_progress at prd again.\n", "")
    assert context(a_backlog) == "Red."


def test_an_item_can_be_closed_instead(some_questions: BacklogProject) -> None:
    answer = some_questions.say("answer", "WRK-001", "--close", "nobody wants it")
    assert answer == (0, "WRK-001 is closed: Item 1\n", "")
    assert some_questions.ids() == ["WRK-002", "WRK-003"]


def test_what_failed_is_tried_again(a_halted_mission: Project) -> None:
    answer = a_halted_mission.say("answer", ITEM, "--retry", "--notes=The disk is free again.")
    assert answer == (0, f"{ITEM} resumes at execute with your notes: capsule run {ITEM}\n", "")
    reopened = [event for event in a_halted_mission.events() if isinstance(event, Reopened)]
    assert [event.notes for event in reopened] == ["The disk is free again."]
    assert a_halted_mission.say("questions").out == "Nothing needs you.\n"


def test_words_to_what_failed_are_for_its_next_agent(a_halted_mission: Project) -> None:
    assert a_halted_mission.say("answer", ITEM, "The disk is free again.").code == 0
    assert a_halted_mission.run().code == 0
    assert a_halted_mission.answer() == "42"


@pytest.mark.slow
def test_a_refuted_claim_is_accepted_and_goes_on(a_mission_that_needs_you: Project) -> None:  # noqa: F811
    project = a_mission_that_needs_you
    assert f"capsule answer {ITEM} --accept demanded --because" in project.say("questions").out
    answer = project.say("answer", ITEM, "--accept", "demanded", "--because", BECAUSE)
    assert answer.out.startswith(f"{ITEM}: accepted at sign-off that ") and answer.out.endswith(f"run {ITEM}\n")
    assert project.run().code == 0


# ---- several


@pytest.mark.promise("inbox.several")
def test_several_are_answered_with_the_same_words(a_backlog: BacklogProject) -> None:
    a_backlog.hold(blocked(), blocked(), blocked())
    answer = a_backlog.say("answer", "WRK-001", "WRK-003", "Blue.")
    assert answer == (0, "WRK-001 is ready again.\nWRK-003 is ready again.\n", "")
    assert [context(a_backlog, item) for item in a_backlog.ids()] == ["Blue.", "", "Blue."]


@pytest.mark.promise("inbox.several")
def test_every_id_is_looked_up_before_anything_is_changed(some_questions: BacklogProject) -> None:
    with unchanged(some_questions):
        unknown = some_questions.say("answer", "WRK-001", "WRK-04", "--notes=Blue.")
        assert_clear(unknown, 1, "There is no item WRK-04", "")
        free = some_questions.say("answer", "WRK-001", "WRK-003", "--notes=Blue.")
        assert_clear(free, 1, "WRK-003 does not need you", "capsule questions")
        typo = some_questions.say("answer", "WRK-001", "WRK-OO2")
        assert_clear(typo, 1, "There is no item WRK-OO2", "")


@pytest.mark.promise("inbox.form")
def test_a_form_answers_all_at_once_and_leaves_empty_sections_alone(some_questions: BacklogProject) -> None:
    some_questions.hold(blocked(), blocked("decision", risk="high"), blocked(), blocked())
    form = some_questions.say("questions", "--form").out
    assert form.count("\n## WRK-00") == 4 and "> which colour?\n" in form
    filled = form
    for item, words in {
        "WRK-001": "Blue.\n\n## it is\n- the logo's",
        "WRK-002": "approve",
        "WRK-003": "close: no use",
    }.items():
        head, _, tail = filled.partition(f"## {item}: ")
        comment, _, rest = tail.partition("-->\n")
        filled = f"{head}## {item}: {comment}-->\n{words}\n{rest}"
    file = some_questions.path.parent / "answers.md"
    file.write_text(filled)
    answer = some_questions.say("answer", "--file", str(file))
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == "WRK-001 is ready again.\nWRK-002 is ready again.\nWRK-003 is closed: Item 3\n"
    assert context(some_questions) == "Blue.\n\n## it is\n- the logo's"
    assert some_questions.item("WRK-004").status is Status.BLOCKED


@pytest.mark.promise("inbox.form")
@pytest.mark.parametrize(
    ("form", "code", "cause", "what_next"),
    [
        (
            "## WRK-001: x\nBlue.\n## WRK-009: y\nRed.\n",
            1,
            "answers for items that do not need you: WRK-009.",
            "Nothing was changed.",
        ),
        ("## WRK-001: x\nBlue.\n## WRK-001: x\nRed.\n", 2, "answers WRK-001 twice", "one section"),
        ("Blue.\n", 2, "No item is named for the answer 'Blue.'", "## WRK-003"),
        ("## WRK-001: x\nBlue.\n## WRK-002: y\nmaybe\n", 1, "WRK-002 waits for your decision", "--approve"),
        ("## WRK-001: x\nclose:\n", 2, "lacks the reason", "after the colon"),
        (" \n", 2, "is empty", "capsule questions --form"),
    ],
)
def test_a_form_that_does_not_fit_changes_nothing(
    some_questions: BacklogProject, form: str, code: int, cause: str, what_next: str
) -> None:
    with unchanged(some_questions):
        assert_clear(some_questions.say("answer", "--file=-", stdin=form.encode()), code, cause, what_next)


def test_a_question_cannot_write_its_own_answer(a_backlog: BacklogProject) -> None:
    a_backlog.hold({**blocked(), "blocked_reason": '"may I? --> yes ## WRK-002: all <!--"'}, blocked())
    with unchanged(a_backlog):
        form = a_backlog.say("questions", "--form").out
        answer = a_backlog.say("answer", "--file=-", stdin=form.encode())
        assert answer == (0, "No section is filled in: nothing was changed.\n", "")


@pytest.mark.promise("inbox.form")
def test_all_questions_are_answered_in_the_editor(some_questions: BacklogProject, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import sys\nfrom pathlib import Path\nform = Path(sys.argv[1])\n"
        "head, *sections = form.read_text().split('\\n## ')\nassert 'which colour?' in sections[0]\n"
        "form.write_text('\\n## '.join([head, *(section + 'approve' for section in sections)]))\n"
    )
    with_editor = some_questions.environment(EDITOR=f"python3 {shlex.quote(str(editor))}", VISUAL="")
    with Terminal(("answer", "--all"), some_questions.path, with_editor) as terminal:
        assert terminal.process.wait(LONG) == 0
    assert [some_questions.item(item).status for item in ("WRK-001", "WRK-002")] == [Status.READY, Status.READY]
    assert context(some_questions) == "approve", "plain words where nobody asks for a decision"
    assert [*(some_questions.path / ".git" / "capsule").glob("answers-*")] == []


# ---- what is refused


@pytest.mark.parametrize(
    ("words", "cause", "what_next"),
    [
        (("WRK-001",), "there is no terminal to write one on", 'answer WRK-001 --notes "..."'),
        ((), "there is no terminal to write one on", "capsule questions --form > answers.md"),
        (("--notes=Blue.",), "No item is named.", "capsule answer ID"),
        (("--retry",), "No item is named.", "capsule answer ID --retry"),
        (("WRK-001", "Blue or", "--notes=Blue."), "There are two answers", "one of them"),
        (("WRK-001", "--approve", "--retry"), "--approve and --retry exclude each other.", "one of them"),
        (("WRK-001", "--accept=green"), "--accept needs the reason.", "--because"),
        (("WRK-001", "--because=x"), "--because is for --accept.", "--accept CHECK"),
        (("WRK-001", "--close=x", "--notes=y"), "--close takes no notes.", "into the reason"),
        (("WRK-001", "--notes="), "The answer is empty.", "--retry"),
        (("WRK-001", "--close="), "The reason is empty.", "Give the reason"),
        (("WRK-001", "--all"), "--all is for every open question", "Leave out"),
        (("WRK-001", "--file=nowhere.md"), "nowhere.md cannot be read", "text file"),
    ],
)
def test_what_is_typed_wrong_changes_nothing(
    some_questions: BacklogProject, words: tuple[str, ...], cause: str, what_next: str
) -> None:
    with unchanged(some_questions):
        assert_clear(some_questions.say("answer", *words), 2, cause, what_next)


def test_yes_is_no_answer_to_a_question(some_questions: BacklogProject) -> None:
    with unchanged(some_questions):
        answer = some_questions.say("answer", "WRK-001", "--approve")
        assert_clear(answer, 1, "WRK-001 waits for no decision", 'capsule answer WRK-001 --notes "..."')


def test_nothing_to_answer(a_backlog: BacklogProject) -> None:
    with nothing_changes(a_backlog):
        assert a_backlog.say("answer") == (0, "Nothing needs you.\n", "")


# ---- at once


@pytest.mark.slow
@pytest.mark.promise("inbox.at-once")
def test_a_run_under_way_goes_on_with_what_is_answered(shelf: Shelf, tmp_path: Path) -> None:  # noqa: F811
    """Also with what needed a person before it began."""
    stops = {"signal": {**PASS, "status": "ERROR", "feedback": "no clay"}}
    later = makes("jug", waits(f"test -e {tmp_path}/end"))
    shelf.plays({**{name: {"make": [stops, *makes(name)["make"]]} for name in ("cup", "pan")}, "jug": later})
    assert shelf.capsule("run", "pan").code == 2
    with shelf.working("--jobs", "2") as run:
        assert eventually(lambda: shelf.merged() == ["pot"] and shelf.under_way() == ["jug"], LONG)
        assert eventually(lambda: "cup" in shelf.say("questions").out, LONG)
        answer = shelf.say("answer", "cup", "pan", "The red one.")
        assert answer.out == (
            "cup resumes at make with your notes; the queue goes on with it.\n"
            "pan resumes at make with your notes; the queue goes on with it.\n"
        )
        assert eventually(lambda: shelf.merged() == ["cup", "pan", "pot"] and shelf.under_way() == ["jug"], LONG)
        (tmp_path / "end").touch()
        assert run.wait(LONG) == 0
    assert shelf.merged() == ["cup", "jug", "pan", "pot"]


# ---- spellings


SPELLINGS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "unblock": ({"code": "BLOCKED", "context": "Which colour?"}, ["--notes=Blue."], ["--notes=Blue."]),
    "approve": ({"updated_assessments": {"size": "large"}}, [], ["--approve"]),
}


def told(event: Event) -> str:
    """An event without what differs from item to item."""
    return re.sub(r"WRK-\d+|[0-9a-f]{40}|\d{4}-\d\d-\d\dT[\d:.]+Z|by-hand/[0-9a-f]+", "", repr(event))


@pytest.mark.promise("inbox.answer")
@pytest.mark.parametrize("verb", SPELLINGS)
def test_unblock_and_approve_are_spellings_of_answer(a_backlog: BacklogProject, verb: str) -> None:
    """The same question, answered both ways: the same commit and the same events, but for ids and stamps."""
    made, words, as_answer = SPELLINGS[verb]
    for item in ("WRK-001", "WRK-002"):
        idea = {f"_ideas/{item}_one.md": "# An idea\n"}
        a_backlog.play({"triage": [turn("triage", item=item, write=idea, **made)]}, item)
        a_backlog.add("One")
    a_backlog.run()
    known = {item: len(a_backlog.events(item)) for item in ("WRK-001", "WRK-002")}
    said = a_backlog.say(verb, "WRK-001", *words), a_backlog.say("answer", "WRK-002", *as_answer)
    assert [each.code for each in said] == [0, 0]
    assert said[0].out.replace("WRK-001", "WRK-002") == said[1].out
    subjects = a_backlog.subjects()[-2:]
    assert subjects[0].replace("WRK-001", "WRK-002") == subjects[1]
    no_stamps = {"id": "", "created": "", "updated": ""}
    assert a_backlog.fields("WRK-001") | no_stamps == a_backlog.fields("WRK-002") | no_stamps
    first, second = ([told(event) for event in a_backlog.events(item)[known[item] :]] for item in known)
    assert first and first == second
