"""What stands on the dashboard is how things are now, can be read to its last column, and costs what is new."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from textual.content import Content

from capsule.actions import BY_KEY, CommandResult, Details
from capsule.core.event import Allowance
from capsule.core.item import Item
from capsule.tui.dialogs import CommandOutput, answer_lines
from capsule.tui.model import DashboardModel
from capsule.tui.rows import Page
from capsule.tui.screens import PAGES, Reading, cost_page

from .boards import Scene, beads, busy, failing, finished, idle
from .missions import PID, at
from .stage import SMALL, Play, play

CAMPAIGN = "run:_campaign-shop-1"


def plain(lines: list[Content]) -> str:
    return "\n".join(line.plain for line in lines)


def test_an_open_run_is_told_as_it_goes_on_under_its_name_once() -> None:
    async def act(on: Play) -> None:
        await on.press("3")
        await on.go_to(CAMPAIGN)
        await on.press("enter")
        await on.until(lambda: isinstance(on.app.screen, Reading))
        await on.shows("running", "4 of 10")
        assert on.text.count("campaign shop-1") == 1
        run, ended = busy().board.runs[0], finished().board.runs[0].ended
        over = replace(run, pid=None, ended=ended)
        on.stage.board = replace(busy().board, runs=(over,))
        await on.shows("nothing is left to do", "failed  shop-2: no")

    play(busy(), act)


def test_a_page_that_scrolls_shows_the_last_column_of_every_line() -> None:
    async def act(on: Play) -> None:
        await on.press("question_mark")
        await on.until(lambda: isinstance(on.app.screen, Reading))
        page = on.app.screen.query_one(Page)
        await on.until(lambda: page.max_scroll_y > 1)
        assert page.room == SMALL[0] - 1
        await on.press("escape")
        await on.until(on.lists)
        long = " ".join(f"word{number}" for number in range(400))
        on.stage.listing = beads(Item(id="shop-1", title="Long", description=long))
        on.read_items_now()
        await on.shows("word0 word1")
        about = on.app.query_one("#about", Page)
        await on.until(lambda: about.max_scroll_y > 1)
        shown = " ".join(line[on.rows.size.width + 1 :].strip(" │▁▂▃▄▅▆▇█") for line in on.text.splitlines())
        first = shown[shown.index("word0") :].split()
        assert first[:30] == long.split()[:30]

    play(idle(), act)


def test_a_question_is_not_covered_by_what_was_said_before_and_says_itself_what_it_lacks() -> None:
    async def act(on: Play) -> None:
        await on.go_to("shop-2")
        await on.press("u", "u", "u")
        await on.until(lambda: any("does not need you" in toast for toast in on.toasts))
        assert all(note.timeout <= 3 for note in on.app._notifications)
        await on.press("C")
        await on.until(on.asks)
        assert not list(on.app._notifications)
        await on.press("enter")
        await on.shows("required")
        assert not list(on.app._notifications)
        assert on.asks()

    play(idle(), act)


def test_items_are_read_at_once_after_something_was_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_ITEMS_EVERY", "_AT_MOST_EVERY"):
        monkeypatch.setattr(f"capsule.tui.dashboard.{name}", 1e9)

    async def act(on: Play) -> None:
        await on.go_to("shop-2")
        on.stage.listing = beads(*(replace(item, title=f"New: {item.title}") for item in idle().listing.items))
        await on.press("c")
        await on.confirm()
        await on.shows("New: Say")

    play(idle(), act)


# ---- what an epic's campaign does


def model_of(scene: Scene) -> DashboardModel:
    model = DashboardModel()
    model.take_board(scene.board)
    model.listed(scene.listing)
    return model


def test_an_epic_whose_campaign_runs_is_running_and_can_be_stopped() -> None:
    model = model_of(busy())
    lines = model.lines(60)
    assert "▶ shop-1 " in lines.draw(0, 60).plain
    target = model.target("shop-1")
    assert (target.stream, target.pid) == ("_campaign-shop-1", PID)
    assert BY_KEY["r"].refusal(target) == "shop-1 is running."
    assert not BY_KEY["s"].refusal(target)


def test_an_epic_is_as_its_status_says_once_its_campaign_has_ended() -> None:
    model = model_of(busy())
    over = replace(busy().board, runs=tuple(replace(run, pid=None) for run in busy().board.runs))
    model.take_board(over)
    assert "○ shop-1 " in model.lines(60).draw(0, 60).plain
    assert not model.target("shop-1").running


# ---- what is long


def test_what_is_on_disk_is_laid_out_when_it_is_new_and_not_at_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Details | None] = []

    def page(_view: object, details: Details | None, _width: int) -> list[Content]:
        built.append(details)
        return [Content(details.worklog if details else "Reading ...")]

    monkeypatch.setitem(PAGES, "worklog", page)

    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter", "4")
        await on.shows("It began")
        before = len(built)
        view = failing().board.missions[0]
        for number in range(3):
            on.stage.board = replace(failing().board, missions=(replace(view, as_of=at(500.0 + number)),))
            await on.until(lambda number=number: on.app.model.board.missions[0].as_of == at(500.0 + number))  # type: ignore[misc]
        assert len(built) == before
        on.mission_screen.found(Details(worklog="It went on."))
        await on.shows("It went on.")

    play(failing(), act)


@pytest.mark.promise("screens.run-budget")
def test_costs_are_held_against_a_budget_only_where_there_is_one() -> None:
    view = failing().board.missions[0]
    assert "no budget set" in plain(cost_page(view, None, 80))
    assert "budget: $" not in plain(cost_page(view, None, 80))
    limited = replace(view, allowed=Allowance(usd=5.0))
    assert "of $5.00" in plain(cost_page(limited, None, 80))
    of_a_run = plain(cost_page(replace(view, allowed_in_run=Allowance(usd=9.0, seconds=60.0)), None, 80))
    assert "budget of a run, all its missions together: $9.00, 1 min" in of_a_run and "no budget set" not in of_a_run


@pytest.mark.promise("screens.run-budget")
def test_the_cost_tab_opens_by_its_number_and_names_the_budget_of_the_run() -> None:
    scene = failing()
    limited = replace(scene.board.missions[0], allowed=Allowance(usd=5.0), allowed_in_run=Allowance(usd=9.0))

    async def act(on: Play) -> None:
        await on.go_to("shop-1.1.1")
        await on.press("enter")
        await on.shows("6 cost")
        assert "budget" not in on.text
        await on.press("6")
        await on.shows("budget: ", "of $5.00", "budget of a run, all its missions together: $9.00")

    play(Scene(replace(scene.board, missions=(limited,)), scene.listing), act)


# ---- answers


def test_an_answer_keeps_its_columns_and_wraps_its_sentences() -> None:
    said = CommandResult(
        1, out="done     shop-1\nblocked  shop-22   why", err=f"capsule: {'it is so ' * 12}\n  Mend it."
    )
    lines = plain(answer_lines("capsule run", said, 60)).splitlines()
    assert lines[-2:] == ["done     shop-1", "blocked  shop-22   why"]
    assert "  Mend it." in lines
    assert " ".join(lines[:3]).count("it is so") == 12
    assert max(map(len, lines)) <= 60


def test_a_run_that_could_not_even_say_why_is_pointed_to_a_terminal() -> None:
    assert "capsule run shop-2 --no-tui" in plain(answer_lines("capsule run shop-2", CommandResult(1), 80))
    assert "--no-tui" not in plain(answer_lines("capsule complete shop-2", CommandResult(1), 80))


def test_a_key_that_was_typed_before_an_answer_was_drawn_does_not_leave_it() -> None:
    async def act(on: Play) -> None:
        on.app.push_screen(CommandOutput("capsule complete shop-2", CommandResult(1, err="capsule: no.")))
        on.burst("\rq")
        await on.until(on.answers)
        await on.shows("capsule: no.")
        await on.press("enter")
        await on.until(on.lists)

    play(idle(), act)
