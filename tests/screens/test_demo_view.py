"""The demo on a terminal: claim beside what was seen, lies held long enough to be read, a card at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from capsule.core.board import Board, in_order
from capsule.core.errors import CapsuleError
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.tui import demo_view, drawing
from capsule.tui.demo_view import Caught, DemoControls, DemoView, seen_lines

from .golden import lines_of
from .missions import at, merged, sent_back, shown
from .stage import SMALL, looks_as, until

NOW = 132
Act = Callable[[DemoView, Pilot[bool]], Awaitable[None]]
NEXT = "Look around:\n  cd demo\n  capsule show demo-1.1"


def board() -> Board:
    lied = [*sent_back(), *merged()[8:]]
    return Board(at=at(NOW), missions=in_order([shown(lied, NOW, pid=None)]))


def view(
    act: Act, *, size: tuple[int, int] = SMALL, fault: str = "", failed: Sequence[str] = (), more: str = ""
) -> DemoView:
    def play(announce: Callable[[str], None]) -> Sequence[str]:
        announce("Watch it lie.")
        if fault:
            raise CapsuleError(fault)
        return failed

    app = DemoView(DemoControls(play, board, NEXT + more))
    app.animation_level = "none"

    async def run() -> None:
        async with app.run_test(size=size) as pilot:
            await act(app, pilot)

    asyncio.run(run())
    return app


def screen(app: DemoView) -> str:
    return "\n".join(lines_of(app))


async def refuted(app: DemoView, pilot: Pilot[bool]) -> None:
    """Wait for the lie: a key could skip it between its drawing and our look."""
    await until(pilot, lambda: "REFUTED" in screen(app))


@pytest.mark.promise("screens.demo")
def test_a_lie_stands_beside_what_was_seen_long_enough_to_be_read_and_a_key_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(demo_view, "HOLD", 2.0)
    monkeypatch.setattr(demo_view, "GLANCE", 0.0)

    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "Watch it lie." in screen(app))
        await refuted(app, pilot)
        began = time.monotonic()
        text = screen(app)
        assert "Agent says" in text and "Capsule saw" in text
        assert "claims: all tests pass" in text and "✗ the tests are red: exit code 1" in text
        assert "✗ REFUTED: execute claimed PASS, and the evidence says no" in text
        await pilot.pause(1.0)
        assert "REFUTED" in screen(app) or time.monotonic() - began > 1.9
        await pilot.press("space")
        await until(pilot, lambda: "REFUTED" not in screen(app))

    view(act)


@pytest.mark.promise("screens.demo")
def test_it_ends_by_itself_with_a_card_that_says_what_to_look_at_next(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLD", "GLANCE"):
        monkeypatch.setattr(demo_view, name, 0.05)
    monkeypatch.setattr(demo_view, "CARD", 1.0)

    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: "✓ 1 merged · 1 lie caught" in screen(app))
        assert "capsule show demo-1.1" in screen(app) and "✗ the tests are red: exit code 1" in screen(app)
        await until(pilot, lambda: not app.is_running)

    app = view(act, failed=("run", "demo-1.1"))
    assert app.return_value is True and app.failed == ("run", "demo-1.1")


@pytest.mark.promise("screens.demo")
def test_on_a_small_screen_the_card_has_every_lie_and_every_command_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOLD", "GLANCE"):
        monkeypatch.setattr(demo_view, name, 0.0)
    caught = [
        Caught("demo-1.1.2", "sign-off", "the tests demand the change", "no test notices when it is broken"),
        Caught("demo-1.1.2", "execute", "all tests pass", "tests/test_phone.py::Test.test_rejects_more_digits fails"),
        Caught("demo-1.1.2", "execute", "the reviewed tests were not touched", "tests/test_phone.py (changed)"),
    ]
    command = "less .capsule/logs/demo-1.1.2/summary-of-the-mission.md"

    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        app._caught = caught
        await until(pilot, lambda: "lies caught" in screen(app))
        lines = screen(app).splitlines()
        assert all(any(lie.seen in line for line in lines) for lie in caught)
        assert any(command in line for line in lines)
        parts = ("lies caught", "Caught", "Next")
        place = [next(n for n, line in enumerate(lines) if words in line) for words in parts]
        assert place == sorted(place)
        assert "any key: close" in screen(app) and "stop the demo" not in screen(app)
        await pilot.press("space")
        await until(pilot, lambda: not app.is_running)

    view(act, more=f"\n  {command}")


@pytest.mark.promise("screens.demo")
def test_a_tick_never_stands_beside_two_lists_that_differ() -> None:
    piece = Evidence(check="changed", claimed="changed a.py, b.py", observed="a.py", standing=EvidenceStatus.CONFIRMED)
    attempt = next(each for each in shown(merged(), NOW).attempts if each.ended)
    assert attempt.ended
    ended = replace(attempt.ended, outcome=replace(attempt.ended.outcome, evidence=(piece,)))
    attempt = replace(attempt, ended=ended)
    assert [line.plain for line in seen_lines(attempt, 60)] == ["✓ files were changed: a.py"]


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_it_can_be_left_at_any_time(key: str) -> None:
    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running)

    assert view(act).return_value is False


def test_what_goes_wrong_is_handed_on() -> None:
    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        await until(pilot, lambda: not app.is_running)

    with pytest.raises(CapsuleError, match="no git"):
        view(act, fault="no git")


@pytest.mark.slow
@pytest.mark.parametrize("size", [SMALL, (120, 40)], ids=["80x24", "120x40"])
def test_pictures(size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_view, "HOLD", 600.0)
    monkeypatch.setattr(demo_view, "GLANCE", 0.0)
    monkeypatch.setattr(drawing, "elapsed", lambda _seconds: "1 s")

    async def act(app: DemoView, pilot: Pilot[bool]) -> None:
        await refuted(app, pilot)
        await looks_as(f"demo-{size[0]}x{size[1]}.svg", pilot)

    view(act, size=size)
