"""The live view of a run: every key, every picture. Who runs it is played by plain functions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pytest
from msgspec.structs import replace
from textual.binding import Binding
from textual.pilot import Pilot

from capsule.core.board import Board, in_order
from capsule.core.errors import CapsuleError
from capsule.core.event import Advanced, Queued
from capsule.core.history import Diff, FileChange, MissionSummary, Presence, RunSummary, read_mission
from capsule.core.item import Item
from capsule.core.schedule import QueuePosition
from capsule.tui.app import PULSE
from capsule.tui.mission import TURNS
from capsule.tui.rows import Page
from capsule.tui.run_view import LiveView, RunControls, Scope, followed, list_lines, missions_of, run_of

from .golden import lines_of, picture
from .missions import BUDGET, DOING, PID, at, at_the_code, begun, halted, merged, sent_back, shown, turned_away
from .stage import LARGE, SMALL, looks_as, until

MIDDLE = (120, 40)
SIZES = (SMALL, MIDDLE, LARGE)
STOPS, LEAVES = ("q", "ctrl+c"), ("d", "ctrl+q")
SCROLLS = (
    *(("j", "k"), ("down", "up"), ("G", "g"), ("end", "home")),
    *(("pagedown", "pageup"), ("space", "pageup"), ("ctrl+f", "ctrl+b")),
)
CHOOSES = (("tab", "demo-1.0"), ("tab", "demo-1.1"), ("shift+tab", "demo-1.0"), ("f", "demo-1.1"))
"""Which mission is shown then, one after the other."""
HELPS = (("question_mark", "question_mark"), ("f1", "escape"))
PRESSED = {*STOPS, *LEAVES, *chain(*SCROLLS), *(key for key, _ in CHOOSES), *chain(*HELPS), "e", "l"}
"""What the tests here go through."""
NOW = 132
FRAME = {"ff5f57", "febc2e", "28c840", "c5c8c6"}
"""Colours of the window that is drawn around a picture."""


@pytest.fixture(autouse=True)
def _with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)


def board(*missions: MissionSummary, runs: tuple[RunSummary, ...] = ()) -> Board:
    return Board(at=at(NOW), missions=in_order(missions), runs=runs)


def busy() -> MissionSummary:
    return shown(sent_back(), NOW, *DOING, quiet=30, allowed=BUDGET)


def campaign() -> Board:
    progress = {
        "demo-1": Advanced(at=at(0), item="demo-1", title="Questions and answers", done=1, of=4),
        "demo-1.2": Advanced(at=at(0), item="demo-1.2", title="[b]Answers[/b]", done=0, of=2),
    }
    run = RunSummary(
        as_of=at(NOW),
        pid=PID,
        stream="_campaign-demo-1",
        cap=50,
        spawns=9,
        missions=("demo-1.0", "demo-1.1"),
        progress=progress,
        began=at(-200),
        last=at(0),
    )
    first = shown(merged(mission="demo-1.0", title="Ask the question"), NOW, pid=None)
    stranger = shown(at_the_code(mission="other-7"), NOW, pid=99)
    return board(first, busy(), stranger, runs=(run,))


@dataclass
class Played:
    """A run that does what it is told, and remembers it."""

    board: Board
    over: bool = False
    stops: int = 0
    cannot: str = ""
    fault: str = ""
    bug: Exception | None = None
    tails: list[str] = field(default_factory=list)
    places: Sequence[QueuePosition] = ()
    """What is to come."""
    counted: list[str] = field(default_factory=list)
    """Whose changed lines were counted."""

    def look(self) -> Board:
        if self.bug:
            raise self.bug
        if self.fault:
            raise CapsuleError(self.fault)
        return self.board

    def stop(self) -> str:
        self.stops += 1
        return self.cannot

    def tail(self, mission: str) -> Sequence[str]:
        self.tails.append(mission)
        return ["thinking \x1b[31mhard", "[b]done[/b]"]

    def diff(self, mission: MissionSummary) -> Diff:
        self.counted.append(mission.mission)
        return Diff(files=(FileChange("src/answer.py", 12, 3), FileChange("logo.png", None, None)), note="not merged")

    def reins(self) -> RunControls:
        return RunControls(self.look, lambda: self.over, self.stop, self.tail, lambda _run: self.places, self.diff)


Act = Callable[[LiveView, Pilot[bool]], Awaitable[None]]


def view(
    played: Played,
    act: Act,
    *,
    size: tuple[int, int] = SMALL,
    ours: bool = True,
    pulse: float = PULSE,
    moves: bool = False,
) -> LiveView:
    """What `act` sees and does there, once there is something to be seen."""
    scope = Scope(pid=PID, mission="demo-1.1", run="_campaign-demo-1", title="demo-1")
    app = LiveView(scope, played.reins(), ours=ours, pulse=pulse)
    app.animation_level = "full" if moves else "none"

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app._board.at) or bool(played.fault))
            await act(app, pilot)

    asyncio.run(run())
    return app


def screen(app: LiveView) -> str:
    return "\n".join(lines_of(app))


TO_COME = (
    QueuePosition(Item(id="demo-1.2", title="Ask another question"), actionable=True, why="ready"),
    QueuePosition(Item(id="demo-1.3", title="Answer [b]it[/b]"), actionable=False, why="waits for demo-1.2"),
)
PICTURES: dict[str, Callable[[], Board]] = {
    "busy": lambda: board(busy()),
    "campaign": campaign,
    "waiting": lambda: board(shown(turned_away(), 80, *DOING)),
    "halted": lambda: board(shown(halted(), NOW, pid=None)),
    "merged": lambda: board(shown(merged(), NOW, pid=None)),
}


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_pictures(size: tuple[int, int], local_time_is: Callable[[str], None]) -> None:
    local_time_is("UTC0")
    played = Played(board(), places=TO_COME)

    async def look(app: LiveView, pilot: Pilot[bool]) -> None:
        for name, seen in PICTURES.items():
            played.board = seen()
            await until(pilot, lambda: app._board is played.board)
            await looks_as(f"run-{name}-{size[0]}x{size[1]}.svg", pilot)

    view(played, look, size=size, pulse=0.05)


@pytest.mark.promise("screens.run-view")
@pytest.mark.parametrize("of", [busy, campaign], ids=["one", "campaign"])
def test_what_was_checked_is_above_the_fold_at_80x24(of: Callable[[], MissionSummary | Board]) -> None:
    made = of()

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "Checked  execute" in screen(app))
        assert "✗  REFUTED by 1 of 1 check" in screen(app)
        assert "✗ claimed  all tests pass" in screen(app)
        assert "the tests are red: exit code 1" in screen(app)

    view(Played(made if isinstance(made, Board) else board(made)), act)


@pytest.mark.promise("screens.run-view")
def test_from_120_columns_on_items_to_come_stand_on_the_left() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "To come (2)" in screen(app))
        assert "○ demo-1.2 Ask another" in screen(app)
        assert "◔ demo-1.3 Answer [b]it[/b]" in screen(app)
        assert re.search(r"Done \(1\) .*\n ✓ demo-1.0 Ask the question", screen(app))
        await pilot.resize_terminal(*SMALL)
        await until(pilot, lambda: "To come" not in screen(app))

    view(Played(campaign(), places=TO_COME), act, size=MIDDLE)


def test_an_item_that_failed_in_this_run_is_not_to_come() -> None:
    """Its tracker has it in progress still, but this run leaves it alone."""
    failed = shown(halted(mission="demo-1.2", title="Ask another"), NOW, pid=None)
    lines = [line.plain.rstrip() for line in list_lines([failed], TO_COME, 40)]
    assert lines[0] == "To come (1)" and "demo-1.3" in lines[1]
    assert [line for line in lines if "demo-1.2" in line] == lines[-1:]


@pytest.mark.promise("screens.run-view")
@pytest.mark.parametrize("moves", [True, False])
def test_something_moves_while_an_agent_works_unless_that_is_not_wanted(moves: bool) -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        seen = set[str]()

        def turned() -> bool:
            seen.update(re.findall(rf" ([{TURNS}]?) ?Now  execute", screen(app)))
            return len(seen - {""}) > 2

        if moves:
            await until(pilot, turned)
        else:
            await pilot.pause(1.0)
            assert not turned() and seen == {""}

    view(Played(board(busy())), act, moves=moves)


def test_changed_lines_are_counted_once_for_each_checkpoint() -> None:
    played = Played(board(busy()))

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "src/answer.py   +12 −3    ++++++++−−" in screen(app))
        assert "logo.png      binary" in screen(app)
        played.board = board(shown(sent_back(), NOW + 1, *DOING))
        await until(pilot, lambda: app._board is played.board)
        assert played.counted == ["demo-1.1"]

    view(played, act, size=LARGE, pulse=0.05)


@pytest.mark.parametrize("key", STOPS)
def test_once_asks_it_to_stop_and_twice_tells_it_to(key: str) -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: "Press again to kill." in screen(app))
        assert played.stops == 1
        await pilot.press(key)
        await until(pilot, lambda: "Killing the run." in screen(app))
        assert played.stops == 2
        assert app.is_running

    view(played, act)


def test_what_cannot_be_stopped_from_here_is_said() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await pilot.press("q")
        await until(pilot, lambda: "It cannot be reached." in screen(app))
        assert "stop pid 4711" in screen(app)

    view(Played(campaign(), cannot="It cannot be reached."), act, ours=False)


@pytest.mark.parametrize("key", LEAVES)
def test_leaving_asks_nothing_of_the_run(key: str) -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)

    app = view(played, act)
    assert app.return_value is False
    assert played.stops == 0


def test_it_closes_when_the_run_is_over_and_has_seen_its_end() -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        played.board, played.over = board(shown(merged(), NOW, pid=None)), True
        await until(pilot, lambda: not app.is_running)

    app = view(played, act)
    assert app.return_value is True
    assert app._board == played.board


def test_it_scrolls() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: app.pane.max_scroll_y > 0)
        for there, back in SCROLLS:
            await pilot.press(there)
            await until(pilot, lambda: app.pane.scroll_y > 0)
            await pilot.press(back)
            await until(pilot, lambda: app.pane.scroll_y == 0)

    view(Played(campaign()), act)


def test_tab_goes_from_mission_to_mission_and_f_follows_again() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: app.shown == "demo-1.1")
        for key, name in CHOOSES:
            await pilot.press(key)
            await until(pilot, lambda name=name: app.shown == name)  # type: ignore[misc]
            await until(pilot, lambda name=name: f"\n {name}  " in screen(app))  # type: ignore[misc]

    view(Played(campaign()), act)


def test_the_mouse_chooses_a_mission_and_a_key() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "demo-1.0" in screen(app))
        await pilot.click("#missions", offset=(3, 0))
        await until(pilot, lambda: app.shown == "demo-1.0")
        await pilot.click("#keys", offset=(lines_of(app)[-1].index("help"), 0))
        await until(pilot, lambda: app.query_one("#help").display)

    view(Played(campaign()), act)


def test_e_unfolds_the_evidence() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        assert "wrote a test" not in screen(app)
        await pilot.press("e")
        await until(pilot, lambda: "wrote a test" in screen(app))
        await pilot.press("e")
        await until(pilot, lambda: "wrote a test" not in screen(app))

    view(Played(campaign()), act, size=LARGE)


def test_l_shows_what_the_agent_printed_last() -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await pilot.press("l")
        await until(pilot, lambda: "[b]done[/b]" in screen(app))
        assert "thinking hard" in screen(app)
        await pilot.press("tab")
        await until(pilot, lambda: "demo-1.0" in played.tails)
        await pilot.press("l")
        await until(pilot, lambda: "[b]done[/b]" not in screen(app))

    view(played, act, size=LARGE)


def test_help_comes_and_goes() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        for comes, goes in HELPS:
            await pilot.press(comes)
            await until(pilot, lambda: "stop and keep progress; press twice to kill" in screen(app))
            await pilot.press(goes)
            await until(pilot, lambda: "keep progress" not in screen(app))

    view(Played(campaign()), act)


def test_it_follows_the_size_of_its_terminal() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        for size, wide in (((160, 50), True), ((80, 24), False), ((30, 8), False)):
            await pilot.resize_terminal(*size)
            await until(pilot, lambda size=size: app.size == size)  # type: ignore[misc]
            await until(pilot, lambda wide=wide: bool(re.search(r"phase .* Checked", screen(app))) is wide)  # type: ignore[misc]
            await until(pilot, lambda size=size: all(len(line) <= size[0] for line in lines_of(app)))  # type: ignore[misc]

    view(Played(campaign()), act)


def test_what_cannot_be_looked_at_is_said_and_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule.tui.app._AFTER_TROUBLE", 0.05)
    played = Played(campaign(), fault="The journal cannot be used.")

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "The journal cannot be used." in screen(app))
        played.fault = ""
        await until(pilot, lambda: "demo-1.1" in screen(app) and "The journal cannot be used." not in screen(app))

    view(played, act)


def test_it_closes_when_the_run_is_over_though_it_cannot_be_looked_at_any_more() -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        played.fault, played.over = "The journal cannot be used.", True
        await until(pilot, lambda: not app.is_running)

    assert view(played, act).return_value is True


def test_a_bug_of_ours_closes_the_screen_and_is_handed_on() -> None:
    played = Played(campaign())

    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        played.bug = ZeroDivisionError("one over none")
        await until(pilot, lambda: not app.is_running)

    with pytest.raises(ZeroDivisionError, match="one over none"):
        view(played, act)


def test_before_anything_is_known_it_is_being_started() -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "demo-1 is starting" in screen(app))

    view(Played(board()), act)


def test_without_colours_every_sign_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(app: LiveView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "▶ execute" in screen(app))
        colours = set(re.findall(r"#([0-9a-f]{6})\b", picture(app))) - FRAME
        assert {colour for colour in colours if not colour[:2] == colour[2:4] == colour[4:]} == set()

    monkeypatch.setenv("NO_COLOR", "1")
    view(Played(campaign()), act)


def test_a_run_shows_its_own_missions_with_their_children_and_nobody_elses() -> None:
    parent = shown(at_the_code(mission="demo-1.1"), NOW)
    first = shown(merged(mission="demo-1.1.build.1", parent="demo-1.1"), NOW, pid=None)
    second = shown(at_the_code(mission="demo-1.1.build.2", parent="demo-1.1"), NOW)
    other = shown(at_the_code(mission="demo-2"), NOW, pid=99)
    seen = missions_of(board(other, second, parent, first), Scope(pid=PID, mission="demo-1.1"))
    assert [view.mission for view in seen] == ["demo-1.1", "demo-1.1.build.1", "demo-1.1.build.2"]
    assert followed(seen) == "demo-1.1.build.2"
    assert followed(()) == ""


def test_a_queue_shows_the_missions_that_its_runners_hold_before_they_start_an_agent() -> None:
    ours = replace(shown(at_the_code(mission="demo-1.1"), NOW, pid=98), started_by=PID)
    other = replace(shown(at_the_code(mission="demo-2"), NOW, pid=99), started_by=97)
    seen = missions_of(board(ours, other), Scope(pid=PID, run="_queue"))
    assert [view.mission for view in seen] == ["demo-1.1"]
    run = RunSummary(stream="_queue", pid=PID)
    assert run_of(board(ours, other, runs=(run,)), Scope(pid=98, mission="demo-1.1")) == run
    assert run_of(board(ours, other, runs=(run,)), Scope(pid=99, mission="demo-2")) is None


def test_every_key_there_is_is_pressed_here() -> None:
    keys = (*LiveView.BINDINGS, *Page.BINDINGS)
    bound = [binding.key.split(",") for binding in keys if isinstance(binding, Binding)]
    assert len(bound) == len(keys)
    assert set(chain(*bound)) == PRESSED


@pytest.mark.promise("screens.notifications")
@pytest.mark.parametrize("rings", [True, False])
def test_the_bell_rings_once_when_a_mission_has_ended_and_only_where_it_was_asked_for(rings: bool) -> None:
    played, rung = Played(board(busy())), list[str]()

    class Ringing(LiveView):
        def bell(self) -> None:
            rung.append("bell")

    app = Ringing(Scope(pid=PID, mission="demo-1.1"), played.reins(), rings=rings, pulse=0.05)

    async def run() -> None:
        async with app.run_test() as pilot:
            await until(pilot, lambda: bool(app._board.running))
            assert not rung
            played.board = board(shown(halted(), NOW, pid=None))
            await until(pilot, lambda: not app._board.running)
            later = played.board = board(shown(merged(), NOW, pid=None))
            await until(pilot, lambda: app._board is later)

    asyncio.run(run())
    assert rung == ["bell"] * rings


def side_by_side(number: int = 50, item: str = "demo-1") -> Board:
    """So many missions at a time, and one that is done."""
    names = [f"task-{each:02}" for each in range(number)]
    progress = {item: Advanced(at=at(0), item=item, title="Questions" if item else "", done=12, of=90)}
    run = RunSummary(
        as_of=at(NOW),
        pid=PID,
        stream="_campaign-demo-1" if item else "_queue",
        jobs=50,
        missions=("done-1", *names),
        progress=progress,
        began=at(-200),
        last=at(0),
    )
    running = [shown(at_the_code(mission=name), NOW, "edits a file " * 20) for name in names]
    return board(shown(merged(mission="done-1"), NOW, pid=None), *running, runs=(run,))


@pytest.mark.promise("merge-queue.place")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_job_that_waits_to_be_merged_has_room_for_its_place(size: tuple[int, int]) -> None:
    """Also where the screen is narrow."""
    names = [f"task-{number}" for number in range(2, 5)]
    waits = [
        read_mission([*at_the_code(mission=name), begun("publish", 80), Queued(at=at(80), branch="main", ahead=ahead)])
        for ahead, name in enumerate(names, 1)
    ]
    places = [Presence(PID, place="3rd, about 4 min"), Presence(PID, place=""), Presence(PID)]
    views = [each.summary(presence, at(NOW)) for each, presence in zip(waits, places, strict=True)]
    run = RunSummary(as_of=at(NOW), pid=PID, stream="_queue", jobs=3, missions=tuple(names), began=at(0), last=at(0))

    async def look(app: LiveView, _pilot: Pilot[bool]) -> None:
        said = {line.split()[1]: line.strip() for line in lines_of(app) if " publish " in line}
        assert said["task-2"].startswith("◔") and said["task-2"].endswith("  to be merged: 3rd, about 4 min")
        assert said["task-3"].startswith("▶") and said["task-4"].endswith("  to be merged: behind 3")

    view(Played(board(*views, runs=(run,))), look, size=size)


@pytest.mark.promise("jobs.header")
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_line_of_a_job_says_which_attempt_it_is_and_what_it_has_cost(size: tuple[int, int]) -> None:
    jobs = [shown(at_the_code(mission="task-0"), NOW, *DOING), shown(sent_back(mission="task-1"), NOW, *DOING)]
    names = tuple(job.mission for job in jobs)
    run = RunSummary(as_of=at(NOW), pid=PID, stream="_queue", jobs=2, missions=names, began=at(0), last=at(0))

    async def look(app: LiveView, _pilot: Pilot[bool]) -> None:
        lines = "\n".join(lines_of(app))
        assert re.search(r"task-0 +execute +2 min 11 s +≥\$0\.08  ", lines), lines
        assert re.search(r"task-1 +execute #2 +2 min 11 s +≥\$0\.12  ", lines), lines

    view(Played(board(*jobs, runs=(run,))), look, size=size)


@pytest.mark.promise("jobs.header")
@pytest.mark.parametrize("item", ["demo-1", ""], ids=["campaign", "queue"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_all_jobs_have_a_line_and_the_header_says_how_far_they_are(size: tuple[int, int], item: str) -> None:
    async def look(app: LiveView, _pilot: Pilot[bool]) -> None:
        lines = lines_of(app)
        assert any("█░░░░░░░░░ 12/90 · 50 running · " in line for line in lines), lines
        assert any("12 of 90" in line for line in lines) == bool(item), lines
        assert "min left" in " ".join(lines)
        assert any(re.search(r"▶ task-00 \S+ .*\d+ s .*edits a file", line) for line in lines), lines
        listed = sum(line.strip().startswith("▶ task-") for line in lines)
        assert listed >= 3 and any(f"and {50 - listed} more running" in line for line in lines), lines
        assert max(map(len, lines)) <= size[0]

    view(Played(side_by_side(item=item)), look, size=size)
