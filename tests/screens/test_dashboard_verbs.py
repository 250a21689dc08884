"""What is done from the dashboard: each asked for first, each the very command that is shown."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest

from capsule.cli import VERBS as COMMANDS
from capsule.commands.arguments import parse
from capsule.core.item import Item
from capsule.tui.dialogs import Answer, Confirm
from capsule.tui.hands import Said
from capsule.tui.verbs import BY_KEY, VERBS, How, Target, fitting

from .boards import Scene, blocked, busy, failing, idle
from .missions import PID
from .stage import Play, play

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
]


async def order(on: Play, item: str, key: str, answer: str, words: list[str]) -> None:
    await on.go_to(item)
    await on.press(key)
    assert isinstance(on.app.screen, Confirm)
    await on.press(*("space" if letter == " " else letter for letter in answer))
    await on.shows("$ capsule")
    assert on.app.screen.verb.words(on.app.screen.target, answer) == words
    did = on.stage.began if BY_KEY[key].how is How.START else on.stage.did
    before = len(did)
    await on.press("enter")
    await on.until(lambda: len(did) > before)
    assert did[-1] == words
    await on.until(lambda: any("Done as asked." in toast for toast in on.toasts))


@pytest.mark.parametrize("scene", [idle, failing, blocked])
def test_every_verb_asks_shows_its_command_and_runs_it(scene: Callable[[], Scene]) -> None:
    async def act(on: Play) -> None:
        for where, item, key, answer, words in ORDERS:
            if where is scene:
                await order(on, item, key, answer, words)

    play(scene(), act)


def test_every_verb_is_in_the_table_of_orders() -> None:
    assert {verb.key for verb in VERBS} == {key for _, _, key, _, _ in ORDERS} | {"s"}


@pytest.mark.parametrize("words", [words for *_, words in ORDERS], ids=" ".join)
def test_every_command_line_is_one_that_capsule_understands(words: list[str]) -> None:
    command = COMMANDS[words[0]]
    module = import_module(f"capsule.commands.{command.module}")
    args = parse(words[0], module, words[1:])
    assert args.item == (words[1] if len(words) > 1 else None)


def test_stopping_asks_whoever_holds_the_mission_or_the_run() -> None:
    async def act(on: Play) -> None:
        await on.press("2")
        for key, stream in (("shop-2", "shop-2"), ("run:_campaign-shop-1", "_campaign-shop-1")):
            await on.go_to(key)
            await on.press("s")
            await on.shows("kill -INT")
            await on.press("y")
            await on.until(lambda stream=stream: on.stage.stopped and on.stage.stopped[-1][0] == stream)  # type: ignore[misc]
        assert on.stage.stopped == [("shop-2", PID + 1), ("_campaign-shop-1", PID)]

    play(busy(), act)


def test_a_no_is_a_no() -> None:
    async def act(on: Play) -> None:
        for leave in (("escape",), ("n",), ("right", "enter"), ("l", "left", "h", "enter")):
            await on.press("c", *leave)
            assert not isinstance(on.app.screen, Confirm), leave
        await on.press("C", "enter")
        assert isinstance(on.app.screen, Confirm)  # a reason is wanted
        await on.press("escape", "c")
        await on.pilot.click("#no")
        await on.until(lambda: not isinstance(on.app.screen, Confirm))
        assert not on.stage.did

    play(idle(), act)


def test_what_does_not_fit_is_said_and_nothing_asked() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-2")
        for key, why in (
            ("u", "shop-2 is running."),
            ("a", "Only items of a backlog have phases"),
            ("A", "does not wait for a decision"),
            ("c", "is running, or not open"),
        ):
            await on.press(key)
            await on.until(lambda why=why: any(why in toast for toast in on.toasts))  # type: ignore[misc]
            assert not isinstance(on.app.screen, Confirm)

    play(busy(), act)


def test_a_refusal_is_shown_in_its_own_words_until_it_is_left() -> None:
    async def act(on: Play) -> None:
        on.stage.answer = Said(1, err="capsule: shop-2 is not [open].\x1b[2J\n  Reopen it.\n")
        for leave in ("escape", "enter", "q"):
            await on.press("c", "enter")
            await on.until(lambda: isinstance(on.app.screen, Answer))
            await on.shows("capsule: shop-2 is not [open].", "Reopen it.")
            await on.press(leave)
            assert not isinstance(on.app.screen, Answer)

    play(idle(), act)


def test_a_run_that_cannot_begin_says_why_and_one_that_ends_later_takes_no_screen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def act(on: Play) -> None:
        on.stage.answer = Said(2, err="capsule: the tree is dirty.\n  Commit first.")
        await on.press("r", "enter")
        await on.until(lambda: isinstance(on.app.screen, Answer))
        await on.shows("the tree is dirty.")
        await on.press("escape")
        monkeypatch.setattr("capsule.tui.dashboard._AT_ONCE", -1.0)
        await on.press("r", "enter")
        await on.until(lambda: any("the tree is dirty." in toast for toast in on.toasts))
        assert not isinstance(on.app.screen, Answer)

    play(idle(), act)


def test_verbs_work_on_an_open_mission_too() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter", "x")
        await on.shows("capsule abort shop-1.1.1")
        await on.press("enter")
        await on.until(lambda: on.stage.did == [["abort", "shop-1.1.1"]])

    play(failing(), act)


def test_an_id_that_is_no_id_can_be_told_to_no_command() -> None:
    hostile = Target(id="--project-dir=/elsewhere", item=Item(id="--project-dir=/elsewhere", title="x"))
    assert [verb.key for verb in fitting(hostile)] == ["R"]


def test_one_who_runs_somewhere_else_cannot_be_stopped_from_here() -> None:
    assert "cannot be reached" in BY_KEY["s"].unfit(Target(stream="shop-2", pid=0))
