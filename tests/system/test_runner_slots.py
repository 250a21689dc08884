"""Runners on one machine have numbers, ports and turns that keep them out of each other's way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from capsule.system.runner_slots import PORT_BASE, PORTS_BELOW, PORTS_EACH, SLOT, RunnerSlots
from tests.costs import LONG

TAKE = """
import sys, time; from pathlib import Path; from capsule.system.runner_slots import RunnerSlots
print(RunnerSlots(Path(sys.argv[1])).slot, flush=True)
time.sleep(300)
"""
Take = Callable[[], "subprocess.Popen[str]"]


@pytest.fixture
def take(tmp_path: Path) -> Iterator[Take]:
    """Start a process that takes a slot, says it, and keeps it."""
    with ExitStack() as ended:

        def start() -> subprocess.Popen[str]:
            words = [sys.executable, "-c", TAKE, str(tmp_path)]
            process = ended.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
            ended.callback(process.kill)
            return process

        yield start


def said(process: subprocess.Popen[str]) -> int:
    assert process.stdout
    return int(process.stdout.readline())


@pytest.mark.promise("side-by-side.slots")
def test_no_two_living_runners_have_the_same_slot_and_a_killed_one_gives_it_back(tmp_path: Path, take: Take) -> None:
    several = [take() for _ in range(6)]
    numbers = [said(each) for each in several]
    assert sorted(numbers) == [0, 1, 2, 3, 4, 5]
    killed = several[numbers.index(2)]
    killed.kill()
    killed.wait()
    assert said(take()) == 2
    with closing(RunnerSlots(tmp_path)) as last:
        assert last.slot == 6


@pytest.mark.promise("side-by-side.slots")
def test_ports_of_two_slots_do_not_meet_nor_those_of_the_kernel(tmp_path: Path) -> None:
    with closing(RunnerSlots(tmp_path)) as one, closing(RunnerSlots(tmp_path)) as other:
        bases = [int(each.variables()[PORT_BASE]) for each in (one, other)]
        assert [each.variables()[SLOT] for each in (one, other)] == ["0", "1"]
    assert bases[1] - bases[0] == PORTS_EACH
    with ExitStack() as many:
        all_of_them = [many.enter_context(closing(RunnerSlots(tmp_path))).variables() for _ in range(130)]
    last = max(int(each[PORT_BASE]) for each in all_of_them if PORT_BASE in each)
    assert last + PORTS_EACH <= PORTS_BELOW
    assert [each[SLOT] for each in all_of_them] == [str(number) for number in range(130)]


def test_a_slot_is_taken_when_it_is_asked_for_and_given_back(tmp_path: Path) -> None:
    with closing(RunnerSlots(tmp_path)), closing(RunnerSlots(tmp_path)) as other:
        assert other.slot == 0
    with closing(RunnerSlots(tmp_path)) as again:
        assert again.slot == 0


@pytest.mark.promise("side-by-side.asked-alone")
def test_whoever_was_at_work_meanwhile_is_noticed(tmp_path: Path, take: Take) -> None:
    with closing(RunnerSlots(tmp_path)) as ours:
        with ours.turn(alone=False) as had_company:
            pass
        assert not had_company()
        with ours.turn(alone=False) as had_company:  # one that came and went
            with closing(RunnerSlots(tmp_path)) as short:
                assert short.slot
            assert had_company()
        before = take()
        assert said(before)
        with ours.turn(alone=False) as had_company:  # one that was there and went
            before.kill()
            before.wait()
            assert had_company()
        with ours.turn(alone=True) as had_company:
            assert said(take())
            assert not had_company()


@pytest.mark.promise("side-by-side.asked-alone")
def test_one_that_is_asked_alone_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    told: list[str] = []

    def stay(name: str, *, alone: bool) -> threading.Thread:
        def have_a_turn() -> None:
            with closing(RunnerSlots(tmp_path)) as one, one.turn(alone=alone):
                told.append(f"{name} begins")
                time.sleep(0.1)
                told.append(f"{name} ends")

        thread = threading.Thread(target=have_a_turn)
        thread.start()
        return thread

    with closing(RunnerSlots(tmp_path)) as first, first.turn(alone=False):
        threads = [stay("alone", alone=True)]
        deadline = time.monotonic() + LONG
        while len(list((tmp_path / "tests.line").iterdir())) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        threads.append(stay("late", alone=False))
        time.sleep(0.2)
        assert told == []
    for thread in threads:
        thread.join(LONG)
    assert told == ["alone begins", "alone ends", "late begins", "late ends"]
