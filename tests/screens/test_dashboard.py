"""The dashboard by its keys: where they lead, what they show, and that nothing a stranger wrote steers it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace
from textual.binding import Binding
from textual.geometry import Offset

from capsule.core.errors import CapsuleError
from capsule.tui.dashboard import Dashboard
from capsule.tui.details import MissionScreen
from capsule.tui.dialogs import Answer, Confirm
from capsule.tui.help import MOVING, Reading
from capsule.tui.mission import MissionPane
from capsule.tui.rows import Page, Rows
from capsule.tui.verbs import VERBS

from .boards import (
    NASTY,
    SHOP,
    Scene,
    at_rest,
    at_work,
    blocked,
    board,
    busy,
    failing,
    finished,
    forty,
    idle,
    to_the_end,
    up_to,
)
from .missions import PID
from .stage import LARGE, SMALL, Play, Stage, play

EVERY_ITEM = [item.id for item in SHOP]
MOVES = {"j": 1, "down": 1, "G": 6, "end": 6, "pagedown": 6, "ctrl+f": 6}
"""From the first item."""
BACK = {"k": 5, "up": 5, "g": 0, "home": 0, "pageup": 0, "ctrl+b": 0}
"""From the last."""
MISSION_PAGES = {"1": "now", "2": "evidence", "3": "diff", "4": "worklog", "5": "logs", "6": "cost"}


def test_keys_move_along_the_list() -> None:
    async def act(on: Play) -> None:
        for start, moves in (("shop-1", MOVES), ("shop-2", BACK)):
            for key, place in moves.items():
                await on.go_to(start)
                await on.press(key)
                assert on.rows.key == EVERY_ITEM[place], key

    play(idle(), act)


def test_the_text_beside_the_list_follows_the_cursor() -> None:
    async def act(on: Play) -> None:
        await on.press("j", "j")
        await on.shows("half a cent is rounded up", "money", "r run")
        await on.press("j")
        await on.shows("waits for shop-1.1.1")

    play(idle(), act)


def test_what_holds_others_is_folded_and_a_leaf_leads_to_its_holder() -> None:
    async def act(on: Play) -> None:
        for fold, unfold in (("h", "l"), ("left", "right")):
            await on.go_to("shop-1.1")
            await on.press(fold)
            assert "shop-1.1.1" not in on.rows.keys
            await on.press(unfold)
            await on.press("j", fold)
            assert on.rows.key == "shop-1.1"
        await on.press("enter")
        assert "shop-1.1.1" not in on.rows.keys

    play(idle(), act)


def test_numbers_choose_the_view_and_each_keeps_its_cursor() -> None:
    async def act(on: Play) -> None:
        await on.press("j", "j", "2")
        assert on.rows.keys[:3] == ["run:_campaign-shop-1", "shop-1.1.1", "shop-2"]
        await on.press("3")
        assert on.rows.keys == ["shop-0"]
        await on.shows("3 missions:", "agents used at least")
        await on.press("1")
        assert on.rows.key == "shop-1.1.1"

    play(busy(), act)


def test_a_filter_is_typed_kept_by_enter_and_ended_by_escape() -> None:
    async def act(on: Play) -> None:
        await on.press("slash", *"ui")
        assert list(on.rows.keys) == ["shop-1", "shop-1.2", "shop-1.2.1"]
        await on.press("enter")
        await on.shows("filter: ui")
        assert on.app.focused is on.rows
        await on.press("slash", "backspace", "backspace", *"zebra")
        await on.shows("No item has these words.")
        await on.press("escape")
        assert list(on.rows.keys) == EVERY_ITEM

    play(idle(), act)


def test_a_filter_also_finds_missions() -> None:
    async def act(on: Play) -> None:
        await on.press("2", "slash", *"many-07")
        assert list(on.rows.keys) == ["many-07"]

    play(forty(), act)


def test_tab_goes_to_the_text_beside_the_list_and_back() -> None:
    async def act(on: Play) -> None:
        await on.press("tab")
        assert isinstance(on.app.focused, Page)
        await on.press("shift+tab")
        assert on.app.focused is on.rows

    play(idle(), act)


def test_help_names_every_key_that_does_something_and_is_left_again() -> None:
    async def act(on: Play) -> None:
        await on.press("f1")
        for words in (*(f"{verb.key} {verb.name}" for verb in VERBS), *(keys for keys, _ in MOVING)):
            assert words in on.text
        for key in ("escape", "left", "h", "question_mark"):
            await on.press(key)
            assert not isinstance(on.app.screen, Reading), key
            await on.press("question_mark")
            assert isinstance(on.app.screen, Reading), key

    play(idle(), act, LARGE)


def test_light_or_dark_and_what_an_item_without_a_mission_says() -> None:
    async def act(on: Play) -> None:
        await on.press("t")
        assert on.app.theme == "textual-light"
        await on.press("t")
        assert on.app.theme == "textual-dark"
        await on.press("G", "enter")
        await on.until(lambda: any("shop-2 has no mission yet" in toast for toast in on.toasts))

    play(idle(), act)


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_leaving_does_nothing_else(key: str) -> None:
    async def through() -> None:
        stage = Stage(busy())
        app = Dashboard(stage.hands())
        async with app.run_test(size=SMALL) as pilot:
            await pilot.press(key)
        assert app.return_code == 0
        assert not (stage.did or stage.began or stage.stopped)

    asyncio.run(through())


# ---- a mission


def test_enter_opens_a_mission_and_its_pages_are_chosen_by_number() -> None:
    async def act(on: Play) -> None:
        await on.press("2", "j", "enter")
        await on.shows("Round prices to the cent", "execute")
        said = {
            "evidence": "claimed  all tests pass",
            "diff": "+new",
            "worklog": "It began [b]well[/b].",
            "logs": "I am done.",
            "cost": "test-writer",
            "now": "runs pytest -q",
        }
        for key, page in MISSION_PAGES.items():
            await on.press(key)
            assert on.mission_screen.page == page
            await on.shows(said[page])
        assert set(on.stage.asked) == {"shop-1.1.1"}
        await on.press("escape")
        assert not isinstance(on.app.screen, MissionScreen)

    play(busy(), act)


def test_pages_of_a_mission_are_turned_and_scroll_and_e_unfolds_the_evidence() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter")
        for forwards, backwards in (("right", "left"), ("l", "h"), ("tab", "shift+tab")):
            await on.press(forwards)
            assert on.mission_screen.page == "evidence"
            await on.press(backwards, backwards)
            assert on.mission_screen.page == "cost"
            await on.press(forwards)
        await on.press("2")
        page = on.app.screen.query_one("#page", Page)
        await on.press("j", "j", "k")
        assert page.scroll_y == 1
        await on.press("G")
        assert page.scroll_y == page.max_scroll_y > 1
        await on.press("g")
        assert page.scroll_y == 0
        await on.press("1", "e")
        await on.until(lambda: on.app.screen.query_one(MissionPane).expanded)

    play(failing(), act)


def test_an_open_mission_is_drawn_anew_as_it_goes_on() -> None:
    async def act(on: Play) -> None:
        await on.press("2", "j", "enter")
        await on.shows("running")
        on.stage.board = board(at_rest("shop-1.1.1", "Round prices to the cent", to_the_end()))
        await on.shows("merged into main as feedc0ffee01")

    play(busy(), act)


def test_a_line_that_changes_is_drawn_anew() -> None:
    async def act(on: Play) -> None:
        await on.press("2")
        await on.shows("test-writer")
        further = at_work("shop-2", "Say thank you", up_to("sign-off"), pid=PID + 1)
        before = busy().board
        on.stage.board = replace(before, missions=(before.missions[0], further, before.missions[2]))
        await on.shows("sign-off")

    play(busy(), act)


def test_an_ended_run_is_told_on_a_page_of_its_own() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        await on.go_to("run:_queue")
        await on.press("enter")
        await on.shows("nothing is left to do", "failed  shop-2: no")

    play(finished(), act)


# ---- mouse and size


def test_a_click_chooses_and_a_second_one_opens() -> None:
    async def act(on: Play) -> None:
        await on.press("2")
        await on.pilot.click("#missions", offset=Offset(3, 2))
        await on.until(lambda: on.rows.key == "shop-2")
        await on.pilot.click("#missions", offset=Offset(3, 2))
        await on.until(lambda: isinstance(on.app.screen, MissionScreen))

    play(busy(), act)


def test_views_and_keys_can_be_clicked() -> None:
    async def act(on: Play) -> None:
        await on.pilot.click("#top", offset=Offset(13, 0))
        await on.until(lambda: on.app.desk.view == "missions")
        await on.pilot.click("#keys", offset=Offset(on.text.splitlines()[-1].index("? help"), 0))
        await on.until(lambda: isinstance(on.app.screen, Reading))

    play(busy(), act)


def test_any_size_is_drawn_and_a_wide_one_has_a_text_beside_every_list() -> None:
    async def act(on: Play) -> None:
        await on.press("2", "j")
        about = on.app.query_one("#about")
        assert not about.display
        for width, height in ((160, 50), (20, 6), (80, 24), (200, 60)):
            await on.pilot.resize_terminal(width, height)
            await on.until(lambda width=width: on.app.size.width == width)  # type: ignore[misc]
        await on.until(lambda: about.display)
        await on.shows("the tests are red: exit code 1")

    play(busy(), act)


# ---- strangers, and trouble


@pytest.mark.parametrize("scene", [idle, blocked, failing])
def test_nothing_a_stranger_wrote_steers_the_screen(scene: Callable[[], Scene]) -> None:
    async def act(on: Play) -> None:
        for view in ("1", "2", "3"):
            await on.press(view)
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", on.text)
        await on.press("1")
        assert "[red]by name" in on.text or scene is blocked

    assert "\x1b" in NASTY
    play(scene(), act, LARGE)


def test_a_tracker_that_cannot_be_read_is_told_in_its_place_and_missions_are_still_there() -> None:
    async def act(on: Play) -> None:
        on.stage.listing = CapsuleError("The backlog is [no] YAML.", "Mend line 3.")
        on.read_items_now()
        await on.shows("The backlog is [no] YAML.", "Mend line 3.")
        await on.press("2")
        await on.shows("shop-1.1.1")

    play(busy(), act)


def test_a_journal_that_cannot_be_read_is_told_and_read_again_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule.tui.beside._AFTER_TROUBLE", 0.05)

    async def act(on: Play) -> None:
        before, on.stage.board = on.stage.board, CapsuleError("The journal cannot be used.", "Check the disk.")
        await on.shows("The journal cannot be used.")
        on.stage.board = before
        await on.shows("2 running")

    play(busy(), act)


@pytest.mark.parametrize("where", ["board", "listing"])
def test_a_fault_of_ours_ends_the_screen_and_is_raised_for_whoever_opened_it(where: str) -> None:
    async def act(on: Play) -> None:
        setattr(on.stage, where, ZeroDivisionError("ours"))
        on.read_items_now()
        await on.until(lambda: not on.app.is_running)

    with pytest.raises(ZeroDivisionError, match="ours"):
        play(busy(), act)


def test_without_colours_everything_is_grey(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")

    async def act(on: Play) -> None:
        colours = set(re.findall(r"#[0-9a-f]{6}", on.app.export_screenshot().split("<rect", 3)[-1]))
        terminal = {colour for colour in colours if len({colour[1:3], colour[3:5], colour[5:7]}) > 1}
        assert terminal <= {"#ff5f57", "#febc2e", "#28c840", "#c5c8c6"}  # the window that is drawn around it

    play(busy(), act)


# ---- every key


def _keys(owner: type) -> Iterator[str]:
    for binding in owner.__dict__.get("BINDINGS", ()):
        assert isinstance(binding, Binding)
        yield from binding.key.split(",")


def test_every_key_there_is_is_pressed_by_some_test() -> None:
    pressed = {
        *MOVES,
        *BACK,
        *MISSION_PAGES,
        "enter",
        "escape",
        "tab",
        "shift+tab",
        "left",
        "right",
        "h",
        "l",
        "e",
        "t",
    }
    pressed |= {"1", "2", "3", "slash", "question_mark", "f1", "q", "ctrl+c", "ctrl+q", "y", "n"}
    pressed |= {verb.key for verb in VERBS}
    bound = {key for owner in (Dashboard, Rows, Page, MissionScreen, Confirm, Answer, Reading) for key in _keys(owner)}
    assert bound <= pressed
    assert len(bound) > 40
