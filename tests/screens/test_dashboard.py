"""The dashboard by its keys: where they lead, what they show, and that nothing a stranger wrote steers it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from itertools import chain

import pytest
from msgspec.structs import replace
from textual.binding import Binding
from textual.geometry import Offset

from capsule.actions import VERBS
from capsule.core.errors import CapsuleError
from capsule.tui.answering import AnswerForm
from capsule.tui.dashboard import Dashboard
from capsule.tui.dialogs import CommandOutput, Confirm
from capsule.tui.merges import mission_of
from capsule.tui.rows import Page, Rows
from capsule.tui.screens import MOVING, Help, MissionScreen, Reading
from capsule.tui.themes import DARK, LIGHT

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
    merging,
    to_the_end,
    up_to,
)
from .missions import PID
from .stage import LARGE, SMALL, Play, Stage, play, until
from .test_dashboard_verbs import ANSWER_LEAVES, NOES, VERB_KEYS, YESSES
from .test_inbox import ANSWER_KEYS

EVERY_ITEM = [item.id for item in SHOP]
MOVES = {"j": 1, "down": 1, "G": 6, "end": 6, "pagedown": 6, "ctrl+f": 6, "space": 6}
"""From the first item."""
BACK = {"k": 5, "up": 5, "g": 0, "home": 0, "pageup": 0, "ctrl+b": 0}
"""From the last."""
READ_ON = ("j", "down", "pagedown", "ctrl+f", "space", "G", "end")
READ_BACK = ("k", "up", "pageup", "ctrl+b", "pageup", "g", "home")
FOLDS = (("h", "l"), ("left", "right"))
VIEW_KEYS = {"1": "inbox", "2": "items", "3": "missions", "4": "history", "5": "merges"}
HELP_KEYS = ("question_mark", "f1")
READING_LEAVES = ("escape", "left", "h")
QUITS = ("q", "ctrl+c", "ctrl+q")
MISSION_SCROLLS = (("j", 1), ("j", 2), ("k", 1), ("G", None), ("g", 0))
"""Where each leads to, one after the other; None is the end."""
TURNS = (("right", "left"), ("l", "h"), ("tab", "shift+tab"))
MISSION_PAGES = {"1": "now", "2": "evidence", "3": "diff", "4": "worklog", "5": "logs", "6": "cost"}


def test_keys_move_along_the_list() -> None:
    async def act(on: Play) -> None:
        for start, moves in (("shop-1", MOVES), ("shop-2", BACK)):
            for key, place in moves.items():
                await on.go_to(start)
                await on.press(key)
                await on.until(lambda place=place: on.rows.key == EVERY_ITEM[place])  # type: ignore[misc]

    play(idle(), act)


@pytest.mark.promise("screens.waiting")
def test_the_text_beside_the_list_follows_the_cursor() -> None:
    async def act(on: Play) -> None:
        await on.press("j", "j")
        await on.shows("half a cent is rounded up", "money", "r run")
        await on.press("j")
        await on.shows("waiting for shop-1.1.1", "task, waiting, P")

    play(idle(), act)


def test_where_there_is_little_room_beside_the_list_the_verdict_is_there_and_the_time_is_not() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.shows("PASS, 2 checks hold")
        assert "30 s" not in on.text
        await on.pilot.resize_terminal(*LARGE)
        await on.shows("PASS, 2 checks hold", "30 s")

    play(failing(), act)


def test_what_holds_others_is_folded_and_a_leaf_leads_to_its_holder() -> None:
    async def act(on: Play) -> None:
        for fold, unfold in FOLDS:
            await on.go_to("shop-1.1")
            await on.press(fold)
            await on.until(lambda: "shop-1.1.1" not in on.rows.keys)
            await on.press(unfold)
            await on.until(lambda: "shop-1.1.1" in on.rows.keys)
            await on.go_to("shop-1.1.1")
            await on.press(fold)
            await on.until(lambda: on.rows.key == "shop-1.1")
        await on.press("enter")
        await on.until(lambda: "shop-1.1.1" not in on.rows.keys)

    play(idle(), act)


def test_a_backlog_opens_on_its_first_item_and_not_on_a_heading() -> None:
    async def act(on: Play) -> None:
        await on.until(lambda: on.rows.key == "WRK-001")

    play(blocked(), act)


def test_beside_the_views_stands_what_fits_and_nothing_cut() -> None:
    async def act(on: Play) -> None:
        await on.shows("5 Merges")
        assert "…" not in on.text.splitlines()[0]

    play(blocked(), act)


def test_numbers_choose_the_view_and_each_keeps_its_cursor() -> None:
    async def act(on: Play) -> None:
        first = {
            "inbox": [],
            "items": EVERY_ITEM[:3],
            "missions": ["run:_campaign-shop-1", "shop-1.1.1", "shop-2"],
            "history": ["shop-0"],
            "merges": ["merge:main:", "merge:main:2026-03-01T10:01:11Z:shop-0"],
        }
        await on.press("j", "j")
        for key, view in VIEW_KEYS.items():
            await on.press(key)
            await on.until(lambda view=view: on.app.model.view == view and list(on.rows.keys[:3]) == first[view])  # type: ignore[misc]
        await on.shows("✓ shop-0", "merged")
        await on.press("4")
        await on.shows("3 missions:", "agents used at least")
        await on.press("2")
        await on.until(lambda: on.rows.key == "shop-1.1.1")

    play(busy(), act)


@pytest.mark.promise("merge-queue.seen")
def test_the_merge_queue_is_a_list_whose_missions_can_be_opened_and_found() -> None:
    async def act(on: Play) -> None:
        await on.press("5")
        await on.shows("main  1 being merged, 2 waiting", "▶ shop-7 being merged", "◔ shop-8 2nd, about 7 s")
        await on.shows("▶ tested together: shop-7, shop-8", "↺ shop-6 went back", "with shop-5, waited 1 s, took 8 s")
        await on.press("j", "j", "enter")
        await on.until(lambda: isinstance(on.app.screen, MissionScreen) and on.app.screen.mission == "shop-8")
        await on.press("escape")
        await on.until(on.lists)
        assert on.app.target().id == "shop-8"
        await on.press("slash", *"back", "enter")
        await on.until(lambda: [mission_of(key) for key in on.rows.keys] == ["", "shop-6"])

    play(merging(), act)


def test_a_filter_is_typed_kept_by_enter_and_ended_by_escape() -> None:
    async def act(on: Play) -> None:
        await on.press("slash", *"ui")
        await on.until(lambda: list(on.rows.keys) == ["shop-1", "shop-1.2", "shop-1.2.1"])
        await on.press("enter")
        await on.shows("filter: ui")
        await on.until(on.lists)
        await on.press("slash", "backspace", "backspace", *"zebra")
        await on.shows("No matches for")
        await on.press("escape")
        await on.until(lambda: list(on.rows.keys) == EVERY_ITEM)

    play(idle(), act)


def test_a_filter_also_finds_missions() -> None:
    async def act(on: Play) -> None:
        await on.press("3", "slash", *"many-07")
        await on.until(lambda: list(on.rows.keys) == ["many-07"])

    play(forty(), act)


def test_tab_goes_to_the_text_beside_the_list_and_back() -> None:
    async def act(on: Play) -> None:
        await on.press("tab")
        await on.until(lambda: isinstance(on.app.focused, Page))
        await on.press("shift+tab")
        await on.until(on.lists)

    play(idle(), act)


def test_help_names_every_key_that_does_something_and_is_left_again() -> None:
    async def act(on: Play) -> None:
        for number, leave in enumerate((*READING_LEAVES, *HELP_KEYS)):
            await on.press(HELP_KEYS[number % len(HELP_KEYS)])
            await on.shows(*(f"{verb.key} {verb.name}" for verb in VERBS), *(keys for keys, _ in MOVING))
            await on.press(leave)
            await on.until(on.lists)

    play(idle(), act, LARGE)


def test_no_line_of_the_help_is_cut_on_a_small_screen() -> None:
    async def act(on: Play) -> None:
        await on.press("question_mark")
        await on.shows("what needs you, items, missions, history, merges; in a", "keeps it, Esc clears it")

    play(idle(), act)


@pytest.mark.slow
def test_a_page_that_is_longer_than_the_screen_scrolls_by_every_key_that_moves() -> None:
    async def act(on: Play) -> None:
        await on.press("f1")
        await on.shows("Moving")
        page = on.app.screen.query_one(Page)
        await on.until(lambda: page.max_scroll_y > 1)
        for key in READ_ON:
            page.scroll_home(animate=False)
            await on.until(lambda: page.scroll_y == 0)
            await on.press(key)
            await on.until(lambda: page.scroll_y > 0)
        for key in READ_BACK:
            page.scroll_end(animate=False)
            await on.until(lambda: page.scroll_y == page.max_scroll_y)
            await on.press(key)
            await on.until(lambda: page.scroll_y < page.max_scroll_y)

    play(idle(), act, (80, 12))


def test_light_or_dark_and_what_an_item_without_a_mission_says() -> None:
    async def act(on: Play) -> None:
        for theme in (LIGHT.name, DARK.name):
            await on.press("t")
            await on.until(lambda theme=theme: on.app.theme == theme)  # type: ignore[misc]
        await on.press("G", "enter")
        await on.until(lambda: any("shop-2 has no mission yet" in toast for toast in on.toasts))

    play(idle(), act)


@pytest.mark.parametrize("key", QUITS)
def test_leaving_does_nothing_else(key: str) -> None:
    async def through() -> None:
        stage = Stage(busy())
        app = Dashboard(stage.actions())
        async with app.run_test(size=SMALL) as pilot:
            await pilot.press(key)
            await until(pilot, lambda: not app.is_running)
        assert app.return_code == 0
        assert not (stage.did or stage.began or stage.stopped)

    asyncio.run(through())


# ---- a mission


def test_enter_opens_a_mission_and_its_pages_are_chosen_by_number() -> None:
    async def act(on: Play) -> None:
        await on.press("3", "j", "enter")
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
            await on.until(lambda page=page: on.mission_screen.page == page)  # type: ignore[misc]
            await on.shows(said[page])
        assert set(on.stage.asked) == {"shop-1.1.1"}
        await on.press("escape")
        await on.until(on.lists)

    play(busy(), act)


@pytest.mark.slow
def test_pages_of_a_mission_are_turned_and_scroll_and_e_unfolds_the_evidence() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter")
        await on.until(lambda: isinstance(on.app.screen, MissionScreen))
        for forwards, backwards in TURNS:
            await on.press(forwards)
            await on.until(lambda: on.mission_screen.page == "evidence")
            await on.press(backwards, backwards)
            await on.until(lambda: on.mission_screen.page == "cost")
            await on.press(forwards)
            await on.until(lambda: on.mission_screen.page == "now")
        await on.press("2")
        page = on.app.screen.query_one(Page)
        await on.until(lambda: page.max_scroll_y > 2)
        for key, wanted in MISSION_SCROLLS:
            await on.press(key)
            await on.until(lambda wanted=wanted: page.scroll_y == (page.max_scroll_y if wanted is None else wanted))  # type: ignore[misc]
        await on.press("1", "e")
        await on.until(lambda: on.mission_screen.whole)

    play(failing(), act)


def test_an_open_mission_is_drawn_anew_as_it_goes_on() -> None:
    async def act(on: Play) -> None:
        await on.press("3", "j", "enter")
        await on.shows("running")
        on.stage.board = board(at_rest("shop-1.1.1", "Round prices to the cent", to_the_end()))
        await on.shows("merged into main as feedc0ffee01")

    play(busy(), act)


def test_a_line_that_changes_is_drawn_anew() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        await on.shows("test-writer")
        further = at_work("shop-2", "Say thank you", up_to("sign-off"), pid=PID + 1)
        before = busy().board
        on.stage.board = replace(before, missions=(before.missions[0], further, before.missions[2]))
        await on.shows("sign-off")

    play(busy(), act)


def test_an_ended_run_is_told_on_a_page_of_its_own() -> None:
    async def act(on: Play) -> None:
        await on.press("4")
        await on.go_to("run:_queue")
        await on.press("enter")
        await on.shows("nothing is left to do", "failed  shop-2: no")
        await on.press("question_mark")
        await on.shows("Moving")
        await on.press("question_mark")
        await on.shows("nothing is left to do", "failed  shop-2: no")

    play(finished(), act)


# ---- mouse and size


def test_a_click_chooses_and_a_second_one_opens() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        await on.pilot.click("#missions", offset=Offset(3, 2))
        await on.until(lambda: on.rows.key == "shop-2")
        await on.pilot.click("#missions", offset=Offset(3, 2))
        await on.until(lambda: isinstance(on.app.screen, MissionScreen))

    play(busy(), act)


def test_views_and_keys_can_be_clicked() -> None:
    async def act(on: Play) -> None:
        await on.pilot.click("#top", offset=Offset(on.text.splitlines()[0].index("Missions"), 0))
        await on.until(lambda: on.app.model.view == "missions")
        await on.pilot.click("#keys", offset=Offset(on.text.splitlines()[-1].index("? help"), 0))
        await on.until(lambda: isinstance(on.app.screen, Reading))

    play(busy(), act)


@pytest.mark.slow
def test_any_size_is_drawn_and_a_wide_one_has_a_text_beside_every_list() -> None:
    async def act(on: Play) -> None:
        await on.press("3", "j")
        about = on.app.query_one("#about")
        assert not about.display
        for width, height in ((160, 50), (20, 6), (80, 24), (200, 60)):
            await on.pilot.resize_terminal(width, height)
            await on.until(lambda width=width: on.app.size.width == width)  # type: ignore[misc]
        await on.until(lambda: about.display)
        await on.shows("the tests are red: exit code 1")

    play(busy(), act)


# ---- strangers, and trouble


@pytest.mark.slow
@pytest.mark.promise("screens.foreign-text")
@pytest.mark.parametrize("scene", [idle, blocked, failing])
def test_nothing_a_stranger_wrote_steers_the_screen(scene: Callable[[], Scene]) -> None:
    async def act(on: Play) -> None:
        for view in ("2", "3", "4"):
            await on.press(view)
            await on.until(lambda view=view: on.app.model.view == VIEW_KEYS[view])  # type: ignore[misc]
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", on.text)
        await on.press("2")
        await on.until(lambda: "[red]by name" in on.text or scene is blocked)

    assert "\x1b" in NASTY
    play(scene(), act, LARGE)


def test_a_tracker_that_cannot_be_read_is_told_in_its_place_and_missions_are_still_there() -> None:
    async def act(on: Play) -> None:
        on.stage.listing = CapsuleError("The backlog is [no] YAML.", "Mend line 3.")
        on.read_items_now()
        await on.shows("The backlog is [no] YAML.", "Mend line 3.")
        await on.press("3")
        await on.shows("shop-1.1.1")

    play(busy(), act)


def test_a_journal_that_cannot_be_read_is_told_and_read_again_once_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule.tui.app._AFTER_TROUBLE", 0.05)

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


PRESSED: dict[type, set[str]] = {
    Rows: {*MOVES, *BACK, "enter"},
    Page: {*READ_ON, *READ_BACK},
    Dashboard: {*VIEW_KEYS, *VERB_KEYS, *ANSWER_KEYS, *chain(*FOLDS), *HELP_KEYS, *QUITS, "slash", "escape", "t"},
    MissionScreen: {*MISSION_PAGES, *chain(*TURNS), "e"},
    Confirm: {*YESSES, *chain(*NOES)},
    AnswerForm: {"ctrl+s", "enter", "escape"},
    CommandOutput: {*ANSWER_LEAVES},
    Reading: {*READING_LEAVES},
    Help: {*HELP_KEYS},
}
"""By whoever binds them: the tables that the tests go through."""


@pytest.mark.promise("screens.keys")
@pytest.mark.parametrize("owner", PRESSED)
def test_every_key_there_is_is_pressed_by_some_test(owner: type) -> None:
    assert set(_keys(owner)) == PRESSED[owner]
