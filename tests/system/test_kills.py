"""Killed at any moment, nobody is left: a sample here, a thousand with CAPSULE_CRASH_ALL=1.

Half of the times the runner is killed with -9, half of the times the supervisor is told to end the command. The
moment is anywhere between before the first process was started and long after the last one. Whoever survives is known
by a word in its command line, which no clearing of an environment takes away.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsule.system.process import Command, SupervisorClient, end_leftovers, without_leftovers
from tests.costs import LONG, eventually

from .conftest import output_of

RESTLESS = Path(__file__).parent / "restless_tree.py"
KILLS = 1000 if os.environ.get("CAPSULE_CRASH_ALL") else 16
SEED = int(os.environ.get("CAPSULE_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
GRACE = 0.2
QUIET = 0.5
RUNNER = """
import os, sys
from pathlib import Path
from capsule.system.process import Command, SupervisorClient
place, roll = Path(sys.argv[1]), Path(sys.argv[2])
command = Command(tuple(sys.argv[3:]), place, dict(os.environ), place / "out", place / "err")
SupervisorClient(grace=0.2, registry=roll).run(command)
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="no /proc here")


@dataclass(frozen=True)
class Kill:
    """One of many: when, and of whom."""

    number: int
    moment: float
    of_the_runner: bool

    @property
    def word(self) -> str:
        return f"0.0{os.getpid()}{self.number:05}"

    def survivors(self) -> list[int]:
        return bearing(self.word)


def bearing(word: str) -> list[int]:
    folders = [folder for folder in Path("/proc").iterdir() if folder.name.isdigit()]
    return [int(folder.name) for folder in folders if word.encode() in read(folder / "cmdline").split(b"\0")]


def marked(word: str) -> list[int]:
    return [pid for pid in bearing(word) if b"CAPSULE_KEEPER=" in read(Path(f"/proc/{pid}/environ"))]


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, 9)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def start_runner(place: Path, word: str) -> subprocess.Popen[bytes]:
    argv = [sys.executable, "-c", RUNNER, str(place), str(place / "roll")]
    tree = [sys.executable, "-I", "-S", str(RESTLESS), word]
    return subprocess.Popen([*argv, *tree], start_new_session=True)


def act(kill: Kill, folder: Path) -> list[int]:
    """Let them run, kill, and wait as long as we promise; returns who is still there then."""
    place = folder / str(kill.number)
    place.mkdir()
    if kill.of_the_runner:
        runner = start_runner(place, kill.word)
        time.sleep(kill.moment)
        runner.kill()
        runner.wait()
    else:
        argv = (sys.executable, "-I", "-S", str(RESTLESS), kill.word)
        env = {"PATH": os.environ["PATH"]}
        with SupervisorClient(grace=GRACE) as supervisor:
            supervisor.run(Command(argv, place, env, place / "out", place / "err", timeout=kill.moment))
    return left_at_last(kill)


def left_at_last(kill: Kill) -> list[int]:
    """Wait for a while: a supervisor may have been about to start the command when its runner was killed."""
    deadline, seen = time.monotonic() + LONG, time.monotonic()
    survivors = kill.survivors()
    while time.monotonic() < min(deadline, seen + QUIET):
        time.sleep(0.05)
        survivors = kill.survivors()
        seen = time.monotonic() if survivors else seen
    return survivors


@pytest.mark.slow
@pytest.mark.promise("agents.no-orphans")
def test_killed_at_any_moment_nobody_is_left(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    kills = [Kill(number, chance.uniform(0.001, 0.35), bool(number % 2)) for number in range(KILLS)]
    with ThreadPoolExecutor(8) as pool:
        left = list(pool.map(lambda kill: act(kill, tmp_path), kills))
    survivors = {kill: pids for kill, pids in zip(kills, left, strict=True) if pids}
    for pids in survivors.values():
        for pid in pids:
            end(pid)
    assert survivors == {}, f"CAPSULE_SEED={SEED}"


def test_what_outlives_both_runner_and_keeper_is_ended_at_the_next_start(tmp_path: Path) -> None:
    word = f"0.1{os.getpid()}"
    leave_a_tree_behind(tmp_path, word)
    assert marked(word) != [], "the tree was to outlive them"
    assert end_leftovers(tmp_path / "roll") >= 3
    assert marked(word) == []
    assert list((tmp_path / "roll").iterdir()) == []
    for pid in bearing(word):  # whoever cleared its environment is beyond finding once the supervisor is gone
        end(pid)


def leave_a_tree_behind(folder: Path, word: str) -> None:
    """Kill a runner and its supervisor while their command is at work."""
    runner = start_runner(folder, word)
    assert eventually(lambda: (folder / "out").exists() and "all there" in (folder / "out").read_text())
    (supervisor,) = map(int, output_of("pgrep", "-P", str(runner.pid)).split())
    runner.send_signal(signal.SIGSTOP)  # so that it cannot do anything about the death of its supervisor
    os.kill(supervisor, 9)
    runner.kill()
    runner.wait()


def test_what_outlives_both_while_a_run_goes_on_is_ended_with_that_run(tmp_path: Path) -> None:
    word = f"0.2{os.getpid()}"
    with without_leftovers(tmp_path / "roll"):
        leave_a_tree_behind(tmp_path, word)
        assert marked(word) != []
    assert marked(word) == []
    assert list((tmp_path / "roll").iterdir()) == []
    for pid in bearing(word):
        end(pid)


def test_a_living_runner_is_not_taken_for_a_dead_one(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"]}
    with SupervisorClient(registry=tmp_path / "roll") as supervisor:
        asked: list[int] = []
        command = Command(("sh", "-c", "echo x; sleep 0.6"), tmp_path, env, tmp_path / "out", tmp_path / "err")
        ended = supervisor.run(command, on_output=lambda: asked.append(end_leftovers(tmp_path / "roll")))
        assert ended.ok
        assert asked and set(asked) == {0}
    assert list((tmp_path / "roll").iterdir()) == []
