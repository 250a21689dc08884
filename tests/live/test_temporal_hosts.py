"""Missions on several hosts, while hosts, connections and servers fail: each is merged once, and nothing is done twice.

`make soak` has six missions, sixty and two hundred. Which faults come, and when, is drawn from the seed
`CAPSULE_CHAOS`, and tied to moments, which are not the same again.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from capsule.core.event import StepBegun, StepEnded
from tests.costs import LONG, eventually
from tests.git_server import moves_of, run
from tests.live.fleet import FAULTS, HEARTBEAT, Entry, Fleet, fleet
from tests.live.hosts import ENGINE, Host

SEED = int(os.environ.get("CAPSULE_CHAOS", "1"))
MAIN = "refs/heads/main"
HOSTS, SLOTS = 3, 8
EVERY = (1.0, 5.0)
"""Seconds between the end of a fault and the next one."""
MOST_RUNS = 12
"""How often a person runs what needs them: races that were lost, and a remote that was away for too long."""
AGENT = 15.0
"""Seconds that an agent works which is to be cut off."""
SOME = 6.0
"""Seconds for the processes of an agent to end, on a busy machine."""
MISSIONS = [pytest.param(number, marks=pytest.mark.soak) for number in (6, 60, 200)]


@pytest.mark.promise("machines.record")
@pytest.mark.parametrize("missions", MISSIONS)
def test_each_mission_is_merged_once_whatever_fails(
    temporal_server_program: Path, tmp_path: Path, missions: int
) -> None:
    with fleet(temporal_server_program, tmp_path, hosts=HOSTS, missions=missions, slots=SLOTS, seed=SEED) as ours:
        first = run("rev-parse", MAIN, cwd=ours.remote.repository())
        with ours.faults_at_random(FAULTS, EVERY):
            run_to_the_end(ours)
        print(told(ours))
        assert_merged_once(ours, first)
        assert_green(ours, tmp_path / "tried")
        assert_recorded_once(ours)


@pytest.mark.promise("machines.record")
def test_a_host_that_is_cut_off_ends_its_agent_and_another_one_goes_on(
    temporal_server_program: Path, tmp_path: Path
) -> None:
    with (
        fleet(temporal_server_program, tmp_path, hosts=2, missions=1, slots=1, agent_seconds=AGENT) as ours,
        ThreadPoolExecutor(1) as beside,
    ):
        running = beside.submit(ours.capsule, "run", "--on", "temporal", "--output", "plain")
        assert eventually(ours.diary, 3 * LONG), ours.told()
        began = ours.diary()[0]
        host = next(host for host in ours.network.hosts if host.name == began.host)
        assert agents_of(host)
        cut = time.monotonic()
        host.cut(ENGINE)
        assert eventually(lambda: not agents_of(host), AGENT)
        ended = time.monotonic() - cut
        assert eventually(lambda: any(entry.host != host.name for entry in ours.diary()), LONG), ours.told()
        taken_over = time.monotonic() - cut
        host.heal()
        ran = running.result()
        print(f"its agent ended after {ended:.1f} s, another one began after {taken_over:.1f} s")
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{ours.told()}"
        assert ours.merged() == Counter(ours.items)
        assert ended < HEARTBEAT + SOME
        assert_recorded_once(ours)


def agents_of(host: Host) -> list[int]:
    """Return the processes of agents that are at work on a host."""
    found = []
    for pid in host.pids():
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{AGENT}\0".encode():
                found.append(pid)
    return found


def test_a_worker_waits_for_a_server_that_is_down(temporal_server_program: Path, tmp_path: Path) -> None:
    with fleet(temporal_server_program, tmp_path, hosts=1, missions=1, slots=1) as ours:
        host = ours.network.hosts[0]
        host.kill()
        ours.server.kill()
        worker = ours.work(host)
        assert eventually(lambda: "tries again" in (host.home / "log").read_text(), LONG)
        assert worker.poll() is None
        ours.server.start()
        ran = ours.capsule("run", "--on", "temporal", "--output", "plain")
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}\n{ours.told()}"
        assert ours.merged() == Counter(ours.items)


def run_to_the_end(ours: Fleet) -> None:
    for _ in range(MOST_RUNS):
        ran = ours.capsule("run", "--on", "temporal", "--output", "plain", timeout=20 * LONG)
        if ours.merged().total() >= len(ours.items):
            return
    raise AssertionError(f"not done after {MOST_RUNS} runs: {left(ours)}\n{ran.stdout}\n{ran.stderr}\n{ours.told()}")


def left(ours: Fleet) -> list[str]:
    return sorted({*ours.items} - {*ours.merged()})


def assert_merged_once(ours: Fleet, first: str) -> None:
    bare = ours.remote.repository()
    assert ours.merged() == Counter(ours.items)
    moves = moves_of(bare, MAIN)
    assert [old for old, _ in moves] == [first, *(new for _, new in moves[:-1])]
    for old, new in moves:
        run("merge-base", "--is-ancestor", old, new, cwd=bare)


def assert_green(ours: Fleet, place: Path) -> None:
    """Each commit that main was at passes the tests, tried by themselves."""
    run("clone", "-q", str(ours.remote.repository()), str(place))
    for commit in run("rev-list", "--first-parent", "main", cwd=place).split():
        run("checkout", "-q", commit, cwd=place)
        ran = subprocess.run(["sh", "all.sh"], cwd=place, capture_output=True, check=False)
        assert ran.returncode == 0, f"main was red at {commit}: {ran.stdout!r}"


def assert_recorded_once(ours: Fleet) -> None:
    """Each step is recorded once, and every agent that ran was recorded before."""
    started = Counter((entry.item, entry.phase) for entry in ours.diary() if entry.what == "start")
    for item in ours.items:
        events = ours.events(item)
        ended = Counter(event.key for event in events if isinstance(event, StepEnded))
        assert {*ended.values()} == {1}, f"{item}: {ended}"
        begun = Counter(event.phase for event in events if isinstance(event, StepBegun) and event.spawns)
        for phase in ("make", "polish"):
            assert started[item, phase] <= begun[phase], f"{item}: agents of {phase} that nobody recorded"


# ---- what to tell of it


def told(ours: Fleet) -> str:
    rows = [f"{len(ours.items)} missions, {len(ours.faults)} faults: {dict(Counter(f.kind for f in ours.faults))}"]
    diary = ours.diary()
    for fault in ours.faults:
        waited = take_overs(diary, fault.host, fault.at) if fault.kind in ("host killed", "host suspended") else []
        late = [e for e in diary if e.what == "end" and e.host == fault.host and was_taken_over(diary, e)]
        rows += [
            f"  {fault.kind} {fault.host} for {fault.lasted:.1f} s: taken over after {waited}, ended late {len(late)}"
        ]
    return "\n".join(rows)


def take_overs(diary: Sequence[Entry], host: str, at: float) -> list[float]:
    """Return after how many seconds agents that were at work on a host then were started again."""
    under_way = [
        entry
        for entry in diary
        if entry.what == "start" and entry.host == host and entry.at < at and not _ended(diary, entry, before=at)
    ]
    again = [
        next(
            (e.at for e in diary if e.what == "start" and (e.item, e.phase) == (entry.item, entry.phase) and e.at > at),
            0,
        )
        for entry in under_way
    ]
    return [round(then - at, 1) for then in again if then]


def was_taken_over(diary: Sequence[Entry], end: Entry) -> bool:
    """Tell whether another host had begun the same before this agent ended."""
    begun = [e for e in diary if e.what == "start" and (e.item, e.phase) == (end.item, end.phase) and e.at < end.at]
    return bool(begun) and begun[-1].host != end.host


def _ended(diary: Sequence[Entry], start: Entry, *, before: float) -> bool:
    same = (start.item, start.phase, start.host)
    return any(e.what == "end" and (e.item, e.phase, e.host) == same and start.at < e.at < before for e in diary)
