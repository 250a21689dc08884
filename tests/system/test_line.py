"""Processes that wait for a lock get it in turn, and nobody's death holds the others up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from capsule.core.errors import Interrupted, LockHeld
from capsule.system.lock import FileLock, WaitingLine, held, holder
from capsule.system.stop import Stop
from tests.costs import LONG

TAKE = """
import sys, time; from pathlib import Path; from capsule.system.lock import held
with held(Path(sys.argv[1]), 300):
    with open(sys.argv[2], "a") as told:
        told.write(sys.argv[3] + "\\n")
    time.sleep(float(sys.argv[4]))
"""

Start = Callable[[str, float], "subprocess.Popen[bytes]"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks" / "main.lock"


@pytest.fixture
def order(tmp_path: Path) -> Path:
    return tmp_path / "order"


@pytest.fixture
def start(path: Path, order: Path) -> Iterator[Start]:
    """Start a process that asks for the lock, writes down its name when it has it, and keeps it for a while."""
    with ExitStack() as ended:

        def ask(name: str, seconds: float) -> subprocess.Popen[bytes]:
            there = len(tickets(path))
            process = subprocess.Popen([sys.executable, "-c", TAKE, str(path), str(order), name, str(seconds)])
            ended.callback(process.wait)
            ended.callback(process.kill)
            until(lambda: len(tickets(path)) > there)
            return process

        yield ask


def tickets(path: Path) -> list[str]:
    folder = path.with_suffix(".line")
    return sorted(each.name for each in folder.iterdir() if each.name != "door") if folder.is_dir() else []


def until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.promise("durability.line")
def test_twenty_processes_get_it_in_the_order_in_which_they_asked(path: Path, order: Path, start: Start) -> None:
    names = [f"{number:02}" for number in range(20)]
    with held(path, LONG):
        waiting = [start(name, 0.01) for name in names]
    assert [process.wait(LONG) for process in waiting] == [0] * 20
    assert order.read_text().split() == names
    assert tickets(path) == []


@pytest.mark.promise("durability.line")
def test_one_that_comes_while_others_wait_does_not_get_in_before_them(path: Path, order: Path, start: Start) -> None:
    with held(path, LONG):
        first = start("first", 0.2)
    for _ in range(50):  # whoever has just had it asks again at once
        with held(path, LONG), order.open("a") as told:
            told.write("again\n")
    first.wait(LONG)
    assert order.read_text().split()[0] == "first"


@pytest.mark.promise("durability.line")
def test_killed_waiters_and_holders_leave_nothing_behind(path: Path, order: Path, start: Start) -> None:
    with held(path, LONG):
        doomed = start("doomed waiter", 0)
        holding = start("doomed holder", 300)
        last = start("last", 0)
        doomed.kill()
        doomed.wait()
    until(order.exists)
    assert last.poll() is None
    holding.kill()
    assert last.wait(LONG) == 0
    assert order.read_text().splitlines() == ["doomed holder", "last"]
    with held(path, LONG):
        assert len(tickets(path)) == 1
    assert tickets(path) == []


@pytest.mark.slow
def test_a_waiter_uses_no_processor(path: Path, start: Start) -> None:
    with held(path, LONG):
        waiting = start("waits", 0)
        time.sleep(0.3)  # it may be busy getting there
        before = _processor_ticks(waiting.pid)
        time.sleep(1)
        assert _processor_ticks(waiting.pid) - before <= 1


def _processor_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def test_one_who_keeps_it_too_long_is_named(path: Path, start: Start) -> None:
    keeper = start("keeps", 300)
    until(lambda: holder(path) == keeper.pid)
    with pytest.raises(LockHeld, match=rf"main is locked by pid {keeper.pid}"), held(path, 0.3):
        pass
    assert len(tickets(path)) == 1


@pytest.mark.slow
def test_a_long_line_that_moves_is_waited_for(path: Path, start: Start) -> None:
    with held(path, LONG):
        for number in range(6):
            start(str(number), 0.3)
    began = time.monotonic()
    with held(path, 1):
        assert time.monotonic() - began > 1


def test_one_without_a_ticket_is_waited_for_as_well(path: Path) -> None:
    with FileLock(path), pytest.raises(LockHeld, match=f"main is locked by pid {os.getpid()}"), held(path, 0.2):
        pass


@pytest.mark.promise("durability.line")
def test_a_request_to_stop_ends_the_wait(path: Path, start: Start) -> None:
    start("keeps", 300)
    began = time.monotonic()
    with Stop():
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        timer.start()
        with pytest.raises(Interrupted, match="waiting for main"), held(path, 5 * LONG):
            pass
        timer.join()
    assert time.monotonic() - began < LONG
    assert len(tickets(path)) == 1


def test_what_is_written_down_after_a_stop_is_waited_for(path: Path, start: Start) -> None:
    start("keeps", 0.3)
    with Stop() as stop:
        stop.request()
        with held(path, LONG):
            assert stop.requested


def test_many_share_a_turn_and_one_who_wants_to_be_alone_is_not_passed_by(path: Path) -> None:
    line, told = WaitingLine(path), list[str]()

    def come(name: str, *, shared: bool) -> threading.Thread:
        def stay() -> None:
            with line.turn(shared=shared):
                told.append(name)

        there = len(tickets(path))
        thread = threading.Thread(target=stay)
        thread.start()
        until(lambda: len(tickets(path)) > there or not thread.is_alive())
        return thread

    with line.turn(shared=True):
        come("shared", shared=True).join()
        threads = [come("alone", shared=False), come("late", shared=True)]
        time.sleep(0.1)
        assert told == ["shared"]
    for thread in threads:
        thread.join()
    assert told == ["shared", "alone", "late"]
