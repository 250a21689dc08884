"""What is done from the dashboard: each asked for first, each the very command that is shown."""

from __future__ import annotations

import shlex
from collections.abc import Callable

import pytest

from capsule.actions import BY_KEY, VERBS, CommandResult, How, Target, available, target_of
from capsule.commands.arguments import parse
from capsule.core.item import Item
from capsule.tui.dialogs import Confirm
from capsule.tui.screens import MissionScreen

from .boards import Scene, blocked, busy, failing, finished, idle
from .missions import PID
from .stage import Play, play

pytestmark = pytest.mark.slow

ORDERS: list[tuple[Callable[[], Scene], str, str, str, list[str]]] = [
    (idle, "shop-2", "r", "", ["run", "shop-2"]),
    (idle, "shop-1", "r", "", ["run", "shop-1"]),
    (idle, "shop-1", "R", "", ["run"]),
    (idle, "shop-2", "c", "", ["complete", "shop-2"]),
    (idle, "shop-2", "C", "a b", ["close", "shop-2", "--reason", "a b"]),
    (failing, "shop-1.1.1", "x", "", ["abort", "shop-1.1.1"]),
    (failing, "shop-1.1.1", "u", "", ["unblock", "shop-1.1.1"]),
    (failing, "shop-1.1.1", "u", "-v [b]", ["unblock", "shop-1.1.1", "--notes=-v [b]"]),
    (blocked, "WRK-003", "u", "Ada", ["unblock", "WRK-003", "--notes", "Ada"]),
    (blocked, "WRK-004", "a", "", ["advance", "WRK-004"]),
    (blocked, "WRK-004", "a", "build", ["advance", "WRK-004", "--to", "build"]),
    (blocked, "WRK-002", "A", "ok", ["approve", "WRK-002", "--notes", "ok"]),
    (idle, "shop-2", "n", "Sort [it]", ["add", "Sort [it]"]),
    (idle, "shop-2", "n", "-v", ["add", "--", "-v"]),
    (idle, "shop-2", "i", "ideas.md", ["import", "ideas.md"]),
    (idle, "shop-2", "E", "!", ["edit", "shop-2", "--title", "Say thank you!"]),
    (idle, "shop-2", "E", "\t0\t\t\tui, big", ["edit", "shop-2", "--priority", "0", "--tag", "ui", "--tag", "big"]),
    (blocked, "WRK-004", "E", "\thigh", ["edit", "WRK-004", "--impact", "high"]),
    (idle, "shop-2", "d", "shop-1.1.1 shop-1", ["depend", "shop-2", "--on", "shop-1.1.1", "--on", "shop-1"]),
    (idle, "shop-1.1.2", "d", "\tshop-1.1.1", ["depend", "shop-1.1.2", "--off", "shop-1.1.1"]),
    (idle, "shop-2", "H", "legal looks", ["hold", "shop-2", "--reason", "legal looks"]),
    (failing, "shop-1.1.1", "o", "", ["reopen", "shop-1.1.1"]),
    (blocked, "WRK-004", "z", "", ["undo"]),
]
VERB_KEYS = {key for _, _, key, _, _ in ORDERS} | {"s", "Z"}
_TYPED = {" ": "space", "\t": "tab"}
YESSES = ("enter", "y")
NOES = (("escape",), ("n",), ("right", "enter"), ("l", "left", "h", "enter"))
"""The last two by way of the other button."""
ANSWER_LEAVES = ("escape", "enter", "q")


async def order(on: Play, item: str, key: str, answer: str, words: list[str]) -> None:
    await on.go_to(item)
    on.app.clear_notifications()
    await on.press(key)
    await on.until(on.asks)
    assert isinstance(on.app.screen, Confirm)
    await on.press(*(_TYPED.get(letter, letter) for letter in answer))
    await on.shows("$ capsule")
    assert on.app.screen.verb.words(on.app.screen.target, on.app.screen.answers) == words
    did = on.stage.began if BY_KEY[key].how is How.START else on.stage.did
    before = len(did)
    await on.press("enter")
    await on.until(lambda: len(did) > before)
    assert did[-1] == words
    await on.until(lambda: f"{shlex.join(['capsule', *words])} Done as asked." in on.toasts)
    await on.until(on.lists)


@pytest.mark.sweep
@pytest.mark.promise("screens.actions")
@pytest.mark.parametrize("scene", [idle, failing, blocked])
def test_every_verb_asks_shows_its_command_and_runs_it(scene: Callable[[], Scene]) -> None:
    async def act(on: Play) -> None:
        for where, item, key, answer, words in ORDERS:
            if where is scene:
                await order(on, item, key, answer, words)

    play(scene(), act)


def test_every_verb_is_in_the_table_of_orders() -> None:
    assert {verb.key for verb in VERBS} == VERB_KEYS


@pytest.mark.promise("screens.actions")
@pytest.mark.parametrize("words", [words for *_, words in ORDERS], ids=" ".join)
def test_every_command_line_is_one_that_capsule_understands(words: list[str]) -> None:
    args = parse(words[0], words[1:])
    if words[0] in ("add", "import"):
        assert words[-1] == (args.title if words[0] == "add" else args.file)
    else:
        assert args.item in (words[1:2], words[1] if len(words) > 1 else None)  # many verbs take several


def test_stopping_asks_whoever_holds_the_mission_or_the_run() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        for key, stream in (("shop-2", "shop-2"), ("run:_campaign-shop-1", "_campaign-shop-1")):
            await on.go_to(key)
            await on.press("s")
            await on.shows("kill -INT")
            await on.confirm("y")
            await on.until(lambda stream=stream: on.stage.stopped and on.stage.stopped[-1][0] == stream)  # type: ignore[misc]
        assert on.stage.stopped == [("shop-2", PID + 1), ("_campaign-shop-1", PID)]

    play(busy(), act)


def test_a_no_is_a_no() -> None:
    async def act(on: Play) -> None:
        for leave in NOES:
            await on.press("c")
            await on.until(on.asks)
            await on.press(*leave)
            await on.until(on.lists)
        await on.press("C")
        await on.confirm()
        await on.shows("required")
        assert on.asks()
        await on.press("escape")
        await on.until(on.lists)
        await on.press("c")
        await on.until(on.asks)
        await on.pilot.click("#no")
        await on.until(on.lists)
        assert not on.asked_to_do_anything

    play(idle(), act)


@pytest.mark.parametrize("view", ["2", "3"])
def test_no_letter_after_a_slash_is_taken_for_a_verb(view: str) -> None:
    async def act(on: Play) -> None:
        await on.press(view)
        on.burst("/retry R s")
        await on.until(lambda: on.app.model.words == "retry R s")
        assert not on.asked_to_do_anything
        on.burst("\r")
        await on.until(on.lists)
        await on.shows("filter: retry R s")

    play(failing(), act)


@pytest.mark.parametrize("above", ["enter", "question_mark"])
def test_a_slash_leads_back_to_the_lists_and_there_too_no_letter_is_a_verb(above: str) -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press(above)
        await on.until(lambda: len(on.app.screen_stack) == 2)
        on.burst("/retry")
        await on.until(lambda: len(on.app.screen_stack) == 1)
        on.burst("z")
        await on.until(lambda: "z" in on.app.model.words)
        assert len(on.app.screen_stack) == 1
        assert not on.asked_to_do_anything

    play(failing(), act)


@pytest.mark.sweep
@pytest.mark.parametrize("answer", YESSES)
@pytest.mark.parametrize("keys", ["ry", "r\r", "x\r"])
def test_what_is_typed_before_a_question_is_drawn_does_not_answer_it(keys: str, answer: str) -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        on.burst(keys)
        await on.until(lambda: on.asks() or on.asked_to_do_anything)
        assert not on.asked_to_do_anything
        await on.confirm(answer)
        await on.until(lambda: on.asked_to_do_anything)

    play(failing(), act)


def test_what_does_not_fit_is_said_and_nothing_asked() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-2")
        for key, why in (
            ("u", "shop-2 is running."),
            ("a", "Only backlog items can be advanced"),
            ("A", "is not waiting for a decision"),
            ("c", "is running, or not open"),
        ):
            await on.press(key)
            await on.until(lambda why=why: any(why in toast for toast in on.toasts))  # type: ignore[misc]
            assert on.lists()

    play(busy(), act)


def test_a_refusal_is_shown_in_its_own_words_until_it_is_left() -> None:
    async def act(on: Play) -> None:
        on.stage.answer = CommandResult(1, err="capsule: shop-2 is not [open].\x1b[2J\n  Reopen it.\n")
        for leave in ANSWER_LEAVES:
            await on.press("c")
            await on.confirm()
            await on.until(on.answers)
            await on.shows("capsule: shop-2 is not [open].", "Reopen it.")
            await on.press(leave)
            await on.until(on.lists)

    play(idle(), act)


def test_a_run_that_cannot_begin_says_why_and_one_that_ends_later_takes_no_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(on: Play) -> None:
        on.stage.answer = CommandResult(2, err="capsule: the tree is dirty.\n  Commit first.")
        await on.press("r")
        await on.confirm()
        await on.until(on.answers)
        await on.shows("the tree is dirty.")
        await on.press("escape")
        await on.until(on.lists)
        monkeypatch.setattr("capsule.tui.dashboard._AT_ONCE", -1.0)
        await on.press("r")
        await on.confirm()
        await on.until(lambda: any("the tree is dirty." in toast for toast in on.toasts))
        assert on.lists()

    play(idle(), act)


def test_verbs_work_on_an_open_mission_too() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter")
        await on.until(lambda: isinstance(on.app.screen, MissionScreen))
        await on.press("x")
        await on.shows("Abort mission shop-1.1.1", "capsule abort shop-1.1.1")
        await on.confirm()
        await on.until(lambda: on.stage.did == [["abort", "shop-1.1.1"]])

    play(failing(), act)


def test_an_id_that_is_no_id_can_be_told_to_no_command() -> None:
    hostile = Target(id="--project-dir=/elsewhere", item=Item(id="--project-dir=/elsewhere", title="x"))
    assert [verb.key for verb in available(hostile)] == ["n", "R", "i"]


@pytest.mark.promise("screens.actions")
def test_a_form_without_a_change_is_not_sent_and_says_so() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-2")
        for key, leave in (("E", "escape"), ("d", "escape")):
            await on.press(key)
            await on.confirm()
            await on.shows("change something first")
            assert on.asks()
            await on.press(leave)
            await on.until(on.lists)
        assert not on.asked_to_do_anything

    play(idle(), act)


@pytest.mark.promise("screens.actions")
def test_a_merge_is_undone_after_a_yes_and_what_came_of_it_is_shown_until_it_is_left() -> None:
    async def act(on: Play) -> None:
        on.stage.answer = CommandResult(0, "Undone: Merge shop-2: Pay\n  reverted by feedc0ffee01 on main\n")
        await on.press("4")
        await on.go_to("shop-2")
        await on.press("Z")
        await on.shows("Undo the merge of shop-2", "$ capsule undo shop-2")
        assert not on.stage.did
        await on.confirm()
        await on.until(on.answers)
        await on.shows("$ capsule undo shop-2", "reverted by feedc0ffee01")
        await on.press("escape")
        await on.until(on.lists)
        assert on.stage.did == [["undo", "shop-2"]]

    play(finished(), act)


def test_only_what_works_is_offered() -> None:
    def keys(scene: Scene, item: str) -> str:
        return "".join(verb.key for verb in available(target_of(*scene, item)))

    assert keys(blocked(), "WRK-002") == "uAnRxEdcCiz", "a decision: to run or to hold it is refused"
    assert keys(blocked(), "WRK-004") == "rnREdHacCiz"
    assert keys(failing(), "shop-1.1.1") == "runRxoEdHcCi"
    assert keys(idle(), "shop-1.1.2") == "nREdHcCi", "it waits for another item"
    assert keys(finished(), "shop-2") == "nRZi", "beads reopens what is done"
    gone = blocked()._replace(board=finished().board)
    assert keys(gone, "shop-2") == "nRoZiz", "it left the backlog"
    assert keys(busy(), "shop-2") == "snRxi"


def test_one_who_runs_somewhere_else_cannot_be_stopped_from_here() -> None:
    assert "stop it there" in BY_KEY["s"].refusal(Target(stream="shop-2", pid=0))
