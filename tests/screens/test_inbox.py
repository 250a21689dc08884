"""What needs you on the dashboard: seen first, told whole, and answered where it is told."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace
from textual.widgets import TextArea

from capsule.actions import CommandResult
from capsule.core.decide import Decision, Move
from capsule.core.evidence import Checkpoint
from capsule.core.inbox import Question
from capsule.core.item import Blocked, Item, Status
from capsule.core.signal import Verdict
from capsule.tui.answering import LONGEST, AnswerForm
from capsule.tui.inbox import KEYS
from capsule.tui.screens import ANSWERS, MissionScreen

from .boards import Scene, at_rest, beads, blocked, board, failing, idle, up_to
from .missions import NOT_GREEN, RED, ended
from .stage import LARGE, SMALL, Play, looks_as, play

MIDDLE = (120, 40)
ANSWER_KEYS = {*KEYS.values()}
QUESTION = (
    "Should half a cent be rounded up, or to even?\n\n"
    "- up: as the shop [b]printed[/b] it so far\n- to even: what the tax office asks for\x1b[2J\n\n"
    f"{'And so on. ' * 60}"
)


def asking() -> Scene:
    """An agent asks at length, a claim does not hold, and an item waits for a decision."""
    asks = Decision(Move.PARK, Verdict.BLOCKED, reason=" ".join(QUESTION.split()))
    said = ended("execute", 60, RED, claimed=Verdict.BLOCKED, decision=asks, summary=QUESTION)
    said = replace(said, outcome=replace(said.outcome, checkpoint=Checkpoint("c0ffee" * 6, "c0ffee" * 6, "7ree" * 10)))
    why = "it claimed that all tests pass, and the tests are red: exit code 1"
    caught = Decision(Move.PARK, Verdict.REFUTED, reason=why, accept="green")
    lied = ended("execute", 70, RED, replace(NOT_GREEN, tree="t1"), decision=caught, summary="all tests pass")
    waits = Item(
        id="shop-3",
        title="Delete old orders",
        status=Status.BLOCKED,
        blocked=Blocked(Status.READY, "it deletes data: is that meant?", "decision"),
        updated="2026-03-01T10:01:50Z",
    )
    tasks = (
        Item(id="shop-1", title="Round prices to the cent", status=Status.IN_PROGRESS),
        Item(id="shop-2", title="Show prices with tax", status=Status.IN_PROGRESS),
    )
    views = (
        at_rest("shop-1", "Round prices to the cent", [*up_to("execute"), said]),
        at_rest("shop-2", "Show prices with tax", [*up_to("execute"), lied]),
    )
    return Scene(board(*views), beads(*tasks, waits))


def form(on: Play) -> AnswerForm:
    assert isinstance(on.app.screen, AnswerForm)
    return on.app.screen


async def opens(on: Play, key: str) -> None:
    await on.press(key)
    await on.until(lambda: isinstance(on.app.screen, AnswerForm) and on.app.screen.is_drawn)


@pytest.mark.promise("screens.inbox")
def test_it_opens_on_what_needs_you_and_on_the_items_where_nothing_does() -> None:
    async def asked(on: Play) -> None:
        await on.shows("1 Needs you (3)", "■ shop-1 asks", "■ shop-2 its claim does not hold")
        assert on.app.model.view == "inbox" and list(on.rows.keys) == ["shop-1", "shop-2", "shop-3"]

    async def nothing(on: Play) -> None:
        await on.shows("1 Needs you (0)", "shop-1.1.1")
        assert on.app.model.view == "items"
        await on.press("1")
        await on.shows("Nothing needs you.")

    play(asking(), asked, at="inbox")
    play(idle(), nothing, at="inbox")


@pytest.mark.promise("screens.inbox")
def test_a_question_that_comes_later_leaves_everybody_where_they_are() -> None:
    async def act(on: Play) -> None:
        on.stage.board = asking().board
        await on.shows("1 Needs you (")
        await on.until(lambda: len(on.app.model.questions) > 1)
        assert on.app.model.view == "items"

    play(idle(), act)


@pytest.mark.promise("screens.inbox")
@pytest.mark.parametrize("size", [SMALL, MIDDLE], ids=["80x24", "120x40"])
def test_a_question_is_told_whole_with_what_was_done_its_cost_and_the_changes(size: tuple[int, int]) -> None:
    async def act(on: Play) -> None:
        await on.shows("Should half a cent be rounded up, or to even?")
        await on.until(lambda: changes(on) == "src/prices.py | 2 +-")
        page = "\n".join(line.plain for line in on.app.model.about("shop-1", 60))
        assert " ".join(page.split()).count("And so on.") == 60 and "[b]printed[/b]" in page and "\x1b" not in page
        assert re.search(r"u Answer +capsule answer shop-1 --notes \"\.\.\.\"", page)
        assert re.search(r"done +test-writer PASS, test-review PASS,\s+execute BLOCKED", page)
        assert "$0.12" in page and "checked  1 claim confirmed" in page
        assert "+new" in page
        await on.press("j")
        await on.shows("✗ claimed  all tests pass", "the tests are red: exit code 1", "capsule answer shop-2 --accept")

    play(asking(), act, size, at="inbox")


def changes(on: Play) -> str:
    known = {question: details.changes for (question, _), details in on.app.model.details.items()}
    return known.get("shop-1", "").strip()


@pytest.mark.promise("screens.inbox")
def test_every_answer_is_the_command_that_is_shown_with_a_text_of_any_length() -> None:
    written = "Up.\n\n- as ever [b]\n" + "and so on " * 500

    async def act(on: Play) -> None:
        questions: tuple[Question, ...] = on.app.model.questions
        for question in questions:
            for answer in question.answers:
                await on.go_to(question.id)
                await opens(on, KEYS[answer.verb])
                text = written.strip() if answer.required else ""
                if text:
                    await on.press("ctrl+s")
                    await on.shows("Say something first")
                    form(on).query_one(TextArea).text = written
                    await on.until(lambda: "Up." in on.text.split("$ capsule")[-1])
                await on.shows(f"$ capsule answer {question.id}")
                await on.press("ctrl+s")
                words = answer.with_text(text)
                await on.until(lambda words=words: on.stage.did[-1:] == [words])  # type: ignore[misc]
                await on.until(on.lists)
        assert {each.verb for question in questions for each in question.answers} >= {"answer", "approve", "accept"}

    play(asking(), act, LARGE, at="inbox")


def test_enter_takes_the_answer_that_helps_most_and_escape_keeps_what_was_written() -> None:
    async def act(on: Play) -> None:
        await opens(on, "enter")
        assert form(on).answer.verb == "answer"
        await on.press("U", "p", "enter", "x")
        await on.shows("Up", "$ capsule answer shop-1 --notes 'Up")
        await on.press("escape")
        await on.until(on.lists)
        assert not on.asked_to_do_anything
        on.stage.answer = CommandResult(1, err="capsule: shop-1 is running.")
        await opens(on, "u")
        assert form(on).written == "Up\nx"
        await on.press("ctrl+s")
        await on.until(on.answers)
        await on.press("escape")
        await on.until(on.lists)
        on.stage.answer = CommandResult(0, "Done as asked.")
        await opens(on, "u")
        assert form(on).written == "Up\nx"
        await on.press("ctrl+s")
        await on.until(lambda: len(on.stage.did) == 2 and on.lists())
        await on.until(lambda: any("Done as asked." in toast for toast in on.toasts))
        await opens(on, "u")
        assert form(on).written == ""

    play(asking(), act, at="inbox")


def test_keys_that_came_all_at_once_send_nothing() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-3")
        for key in ("A", "ctrl+s", "ctrl+s"):
            on.burst([key])
        await on.until(lambda: isinstance(on.app.screen, AnswerForm) and on.app.screen.is_drawn)
        await on.pilot.pause(0.2)
        assert isinstance(on.app.screen, AnswerForm) and not on.asked_to_do_anything

    play(asking(), act, at="inbox")


def test_a_text_that_no_command_takes_is_refused_before_it_is_lost() -> None:
    async def act(on: Play) -> None:
        await opens(on, "u")
        form(on).query_one(TextArea).text = "x" * (LONGEST + 1)
        await on.press("ctrl+s")
        await on.shows("Too long: 100,001 of at most 100,000 characters.")
        assert not on.asked_to_do_anything

    play(asking(), act, at="inbox")


def test_the_buttons_do_what_the_keys_do() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-3")
        await opens(on, "A")
        await on.press("tab", "tab", "enter")
        await on.until(on.lists)
        assert not on.asked_to_do_anything
        await opens(on, "A")
        await on.pilot.click("#yes")
        await on.until(lambda: on.stage.did == [["answer", "shop-3", "--approve"]])

    play(asking(), act, at="inbox")


def test_a_key_that_answers_nothing_here_does_what_it_does_elsewhere_or_nothing() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1")
        await on.press("y", "T")
        await on.press("x")
        await on.confirm()
        await on.until(lambda: on.stage.did == [["abort", "shop-1"]])
        await on.press("2", "y")
        assert not isinstance(on.app.screen, (AnswerForm, MissionScreen))

    play(asking(), act, at="inbox")


def test_a_filter_finds_questions() -> None:
    async def act(on: Play) -> None:
        await on.press("slash", *"orders", "enter")
        await on.until(lambda: list(on.rows.keys) == ["shop-3"])

    play(asking(), act, at="inbox")


@pytest.mark.parametrize("scene", [asking, blocked, failing], ids=lambda scene: scene.__name__)
def test_every_answer_has_a_key(scene: type) -> None:
    async def act(on: Play) -> None:
        for question in on.app.model.questions:
            keys = [KEYS[answer.verb] for answer in question.answers]
            assert keys and len({*keys}) == len(keys)

    play(scene(), act, at="inbox")


def test_the_help_names_the_keys_that_answer() -> None:
    assert {key for key, _ in ANSWERS} - {"Ctrl+S"} <= ANSWER_KEYS


@pytest.mark.slow
def test_pictures() -> None:
    async def act(on: Play) -> None:
        for width, height in (SMALL, MIDDLE, LARGE):
            await on.pilot.resize_terminal(width, height)
            await on.until(lambda width=width: on.app.screen.size.width == width)  # type: ignore[misc]
            await on.until(lambda: changes(on))
            await looks_as(f"inbox-{width}x{height}.svg", on.pilot)
        await on.pilot.resize_terminal(*SMALL)
        await opens(on, "u")
        await on.press(*"Up.")
        form(on).query_one(TextArea).cursor_blink = False
        await looks_as("inbox-answer-80x24.svg", on.pilot)

    play(asking(), act, at="inbox")
