"""What the dashboard costs: a small version of `benchmarks/bench_screens.py` that any machine can keep."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from capsule.core.event import Event
from capsule.core.history import MOST_ATTEMPTS, Presence, read_mission
from capsule.journals.sqlite import SqliteJournal
from capsule.journals.watch import Watch
from capsule.tui.model import DashboardModel
from tests.commands.terminal import bare_screen
from tests.costs import in_some_round

from .missions import NOT_GREEN, SENT_BACK, at, begun, ended, started

NAMES = [f"many-{number:02}" for number in range(40)]


def again(run: int, when: float) -> list[Event]:
    return [ended("execute", when, NOT_GREEN, run=run, decision=SENT_BACK), begun("execute", when, run=run + 1)]


@pytest.mark.promise("screens.load")
def test_a_second_of_forty_missions_with_sixty_events_is_seen_and_drawn_in_a_quarter_of_it(tmp_path: Path) -> None:
    journal, model = SqliteJournal(tmp_path), DashboardModel()
    model.view = "missions"
    runs = dict.fromkeys(NAMES, 1)
    with ExitStack() as held:
        for name in NAMES:
            held.enter_context(journal.claim(name))
            journal.note(name, started(name, f"Task {name}"))
            journal.note(name, begun("execute", 1))
        journal._db().execute("PRAGMA synchronous = OFF")
        watch = Watch(SqliteJournal(tmp_path, read_only=True), lambda name: tmp_path / name)
        moment = iter(range(1, 1_000))

        def seen_and_drawn() -> float:
            began = time.process_time()
            model.take_board(watch.look(at(next(moment))))
            lines = model.lines(160)
            assert all(lines.draw(number, 160) for number in range(len(lines.keys)))
            return time.process_time() - began

        def a_second() -> bool:
            spent = 0.0
            for quarter in range(4):
                for name in NAMES[8 * quarter : 8 * quarter + 8]:
                    for event in again(runs[name], 2 + runs[name]):
                        journal.note(name, event)
                    runs[name] += 1
                spent += seen_and_drawn()
            return spent < 0.25 or spent < bare_screen()

        seen_and_drawn()
        assert in_some_round(a_second)
        assert len(model.board.missions) == 40


@pytest.mark.promise("screens.load")
def test_what_is_remembered_of_a_mission_does_not_grow_with_what_happened() -> None:
    history = read_mission([started(), begun("execute", 1)], MOST_ATTEMPTS)
    sizes = {}
    for run in range(1, 1_001):
        for event in again(run, 2):
            history = history.after(event)
        if run in (100, 1_000):
            sizes[run] = len(msgspec.json.encode(history.summary(Presence(4711), at(5))))
    assert sizes[1_000] < 1.05 * sizes[100]
