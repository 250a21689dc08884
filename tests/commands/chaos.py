"""Twelve missions side by side, and whoever kills their processes: the queue, a runner, a supervisor, who merges.

A round is a project of its own. What its agents do is the same every time; a sleep of theirs leaves time for a kill.
Agents count themselves in a diary outside the project, where nothing is ever put back.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import IO

from capsule.core.budget import Spending
from capsule.core.event import MERGES, RUN, AgentEnded, ItemClosed, RunEnded, RunStarted, Spawned, StepBegun, StepEnded
from capsule.core.merge_queue import merge_stream
from capsule.core.state import replay
from capsule.journals.sqlite import SqliteJournal
from capsule.system.lock import holder
from tests.costs import LONG, eventually

from .conftest import Project, Script, Turn

MISSIONS, JOBS = 12, 6
CAP, PRICE, PER_RUN = 60, 100, 5500
"""Of one run: agents; and in tokens, what an agent uses that comes to its end, and what all of them may use."""
ROLES = ("queue", "runner", "supervisor", "merger")
PATIENCE = 1.0
"""Seconds for which somebody who is to be killed while it merges is waited for."""
MOST_STARTS = 60
"""A round that takes more runs than this goes nowhere."""


def counted(script: Script, pause: float) -> Script:
    """Let the agents note that they were started, take their time and say what they used."""
    noted = 'echo "$CAPSULE_ITEM/$CAPSULE_PHASE#$CAPSULE_RUN" >> "$CHAOS_DIARY"'
    return {
        phase: [_noting(turn, noted, pause) for turn in [*turns, *turns[-1:] * 9]]  # a recording has each run by number
        for phase, turns in script.items()
    }


def _noting(turn: Turn, noted: str, pause: float) -> Turn:
    return {**turn, "run": [noted, f"sleep {pause}", *turn.get("run", [])], "usage": {"tokens_in": PRICE}}


class Round:
    """One project with its missions, run until everything is done, while somebody kills."""

    def __init__(self, project: Project, items: list[str], chance: random.Random) -> None:
        self.project, self.items, self.chance = project, items, chance
        self.kills: Counter[str] = Counter()
        self._alone: set[str] = set()
        """Missions that were run by themselves: their agents are no run's."""
        self.said = project.path.parent / "said"
        self.diary = project.path.parent / "diary"
        self.diary.touch()
        self._mark = chance.randbytes(8).hex()
        project.always |= {
            "CHAOS_MARK": self._mark,
            "CHAOS_DIARY": str(self.diary),
            "CAPSULE_ENVIRONMENT__ALLOW": "[CHAOS_*]",
            "CAPSULE_EXECUTION__DEFAULT_PHASE_CAP": str(CAP),
            "CAPSULE_BUDGET__RUN__TOKENS": str(PER_RUN),
        }

    def run(self, kills: int) -> None:
        """Run until all is done; kill so many processes on the way, one at a time, where there is still one to kill."""
        halted = list[str]()
        for _ in range(MOST_STARTS):
            with self.said.open("ab") as said:
                queue = self._start(said, [word for item in halted for word in ("--target", item)])
                try:
                    while queue.poll() is None:
                        time.sleep(self.chance.uniform(0.05, 0.6))
                        if self.kills.total() < kills and queue.poll() is None:
                            self._kill_one(queue)
                finally:
                    queue.kill()
                    queue.wait()
            if queue.returncode >= 0 and not self.unfinished():
                return
            halted = self.halted() if queue.returncode >= 0 else []
            self._alone |= {*halted} if len(halted) == 1 else set()
        raise AssertionError(f"not done after {MOST_STARTS} runs: {self.unfinished()}\n{self.told()}")

    def _start(self, said: IO[bytes], named: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "capsule", "run", *named, "--jobs", str(JOBS), "--output", "plain"],
            cwd=self.project.path,
            env=self.project.environment(),
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )

    def _kill_one(self, queue: subprocess.Popen[bytes]) -> None:
        """Kill a process of a kind that is chosen first, so that those of which there are many do not get it all."""
        role = self.chance.choice(ROLES)
        if found := self._of(role, queue.pid):
            pid = self.chance.choice(found)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.kills[role] += 1
            if pid == queue.pid:
                queue.wait()

    def _of(self, role: str, queue: int) -> list[int]:
        if role == "queue":
            return [queue]
        if role == "merger":
            eventually(lambda: self._held_by(merge_stream("main")), PATIENCE)
            pid = self._held_by(merge_stream("main"))
            return [pid] if pid else []
        ours = self.processes()
        if role == "runner":
            return sorted(pid for pid, words in ours.items() if words.endswith(" _runner"))
        return sorted(pid for pid in supervisors() if parent(pid) in ours)

    def _held_by(self, stream: str) -> int | None:
        journal = SqliteJournal(self.project.path / ".git" / "capsule", read_only=True)
        try:
            return journal.holder(stream)
        finally:
            journal.close()

    def processes(self) -> dict[int, str]:
        """Everything that a command of this round has started, but supervisors, which are told nothing."""
        needle, found = f"CHAOS_MARK={self._mark}".encode(), dict[int, str]()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if needle in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
            except OSError:  # it ended while we looked, or is another user's
                continue
        return found

    def told(self) -> str:
        return self.said.read_text()[-6000:]

    # ---- what came of it

    def unfinished(self) -> list[str]:
        return [item for item in self.items if self._ends(item) != 1]

    def halted(self) -> list[str]:
        """Missions that go on once somebody says so: their agent died with its supervisor, and that was its end."""
        journal = SqliteJournal(self.project.path / ".git" / "capsule", read_only=True)
        states = {item: replay(event for _, event in journal.events(item)) for item in self.items}
        journal.close()
        return [item for item, state in states.items() if state.halt]

    def _ends(self, item: str) -> int:
        """How often its last step has ended."""
        ended = [event for event in self.project.events(item) if isinstance(event, StepEnded)]
        return sum(event.phase == "archive" for event in ended)

    def check(self) -> None:
        """Nothing lost, nothing twice, no limit exceeded, nothing left."""
        self._check_limits()
        self._check_counts()
        self._check_remains()

    def _check_limits(self) -> None:
        """Walk through the stream of each run: one that was killed is gone on with, and its counts with it."""
        for stream in self.runs():
            self._check_limits_of(stream)

    def _check_limits_of(self, stream: str) -> None:
        spawned = list[str]()
        cap = spent = 0
        for event in self.project.events(stream):
            if isinstance(event, RunStarted) and event.cap > event.spawns:  # else it is about to end
                # missions that survived their queue start agents while the next one counts; those count, too
                assert len(spawned) - JOBS <= event.spawns <= len(spawned), event
                cap = event.cap
            elif isinstance(event, Spawned):
                assert len(spawned) < cap and spent < PER_RUN, event
                spawned.append(f"{event.mission}/{event.key}")
            elif isinstance(event, AgentEnded):
                spent += Spending().plus(event.usage).tokens
            elif isinstance(event, RunEnded):
                assert event.spawns == len(spawned) <= cap <= CAP, event
                assert spent <= PER_RUN, event
                spawned, spent = [], 0
        # one of named missions stays open if it was killed and the queue finished them
        assert not spawned or stream.startswith(f"{RUN}run-"), f"the last run of {stream} has not ended"

    def runs(self) -> list[str]:
        journal = SqliteJournal(self.project.path / ".git" / "capsule", read_only=True)
        streams = [name for name in journal.streams() if name.startswith(RUN) and not name.startswith(MERGES)]
        journal.close()
        return streams

    def _check_counts(self) -> None:
        """Every agent that counted itself was journaled, with its mission and in its run; every end had an agent."""
        begun, ended = Counter[str](), Counter[str]()
        for item in self.items:
            for event in self.project.events(item):
                if isinstance(event, StepBegun) and event.spawns:
                    assert f"{item}/{event.key}" not in ended, f"{event.key} is done twice"
                    begun[f"{item}/{event.key}"] += 1
                elif isinstance(event, StepEnded) and event.outcome.agent:
                    ended[f"{item}/{event.key}"] += 1
        told = [event for stream in self.runs() for event in self.project.events(stream)]
        spawned = Counter(f"{event.mission}/{event.key}" for event in told if isinstance(event, Spawned))
        started = Counter(self.diary.read_text().split())
        assert spawned <= begun
        assert {key.partition("/")[0] for key in begun - spawned} <= self._alone, begun - spawned
        assert started <= begun, f"agents nobody counted: {started - begun}"
        assert (begun - started).total() <= self.kills.total(), f"journaled and never started: {begun - started}"
        assert set(ended.values()) == {1}

    def _check_remains(self) -> None:
        project, git = self.project, self.project.path / ".git"
        assert eventually(lambda: not self.processes(), LONG), self.processes()
        for lock in git.rglob("*.lock"):
            assert lock.parent.name == "locks" and holder(lock) is None, f"{lock} is held, or git's"
        assert len(project.git("worktree", "list").splitlines()) == 1
        assert not project.refs("refs/heads/capsule-*")
        for folder in (git / "worktrees", git / "capsule/private", git / "capsule/watched", git / "capsule/keepers"):
            assert not folder.exists() or not [*folder.iterdir()], [*folder.iterdir()]
        for folder in (project.path / ".capsule/worktrees", project.path / ".capsule/missions"):
            assert not folder.exists() or not [*folder.glob("[!.]*")], [*folder.iterdir()]
        gates = project.home / ".cache/capsule/gates"
        left = [path for path in gates.glob("*/*") if "caches" not in path.name]
        assert not left, left
        project.fsck()
        assert not project.dirt()

    def merged(self) -> list[str]:
        """Missions, one for each merge of theirs that main holds, also together with others."""
        told = "%(trailers:key=Capsule-Mission,valueonly,separator=)"
        return self.project.git("log", "--merges", f"--format={told}", "main").split()

    def closed(self) -> Counter[str]:
        return Counter({i: sum(isinstance(e, ItemClosed) for e in self.project.events(i)) for i in self.items})

    def check_green(self, test: str) -> None:
        """Run the test command on every commit that was ever main's tip."""
        tried = self.project.path.parent / "tried"
        self.project.git("worktree", "add", "-q", "--detach", str(tried), "main")
        for commit in self.project.git("rev-list", "--first-parent", "main").split():
            self.project.git("checkout", "-q", commit, cwd=tried)
            ran = subprocess.run(["sh", "-c", test], cwd=tried, check=False, capture_output=True)
            assert ran.returncode == 0, f"main was red at {commit}: {ran.stdout!r}"
        self.project.git("worktree", "remove", "--force", str(tried))


def parent(pid: int) -> int:
    try:
        found = re.search(r"PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) if found else 0


def supervisors() -> list[int]:
    found = list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"supervisor.main()" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found
