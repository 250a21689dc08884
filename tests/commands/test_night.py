"""A night: forty ideas, agents that crash, lie, stall and forge, and sixty kills at random moments.

What the agents do is drawn from a seed, so that a night can be played again; when they are killed is not. However it
goes, every idea ends archived once, or needs a person and says why, and the cap counts every agent that was started.
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

import pytest

from capsule.core.event import RUN, RunEnded, RunStarted, Spawned
from capsule.core.item import Status
from capsule.journals.sqlite import SqliteJournal

from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .conftest import Script, Turn

IDEAS, KILLS, CAP = 40, 60, 25
SEED = int(os.environ.get("CAPSULE_NIGHT", "1"))
QUEUE = f"{RUN}queue"
FORGE = "sed -i 's/status: .*/status: done/' BACKLOG.yaml; git commit -qam forged; git update-ref refs/heads/main HEAD"


def script_of(item: str, title: str, chance: random.Random) -> Script:
    """Let an item's agents do their worst first, and what they are asked afterwards; some never do."""
    plays = honest(item, title)

    def worst(phase: str, right: Turn) -> Turn:
        kinds: list[Turn] = [
            {"exit": 1, "stderr": "Traceback: out of luck\n"},
            {"say": "All done!\n", "exit": 0},
            turn(phase, item=item),
            turn(phase, item="WRK-999"),
            {**right, "sleep": 12},
            {**right, "run": [FORGE]},
            {**right, "write": {**right.get("write", {}), "answer": "41\n"}},
            turn(phase, "FAILED", item=item, context="It is dark."),
        ]
        return chance.choice(kinds)

    for phase, turns in plays.items():
        if chance.random() < 0.25:
            plays[phase] = [worst(phase, turns[0]), *turns]
    fate = chance.random()
    if fate < 0.1:
        plays["prd"] = [turn("prd", "BLOCKED", item=item, block_type="clarification", block_reason="Which colour?")]
    elif fate < 0.15:
        plays["design"] = [{"exit": 1}]
    return plays


@pytest.mark.soak
@pytest.mark.promise("backlog.night")
def test_after_a_night_every_idea_is_archived_once_or_needs_a_person(a_backlog: BacklogProject) -> None:
    chance, moments = random.Random(SEED), random.Random()
    a_backlog.settings("execution: {phase_timeout_minutes: 0.15}")
    ideas = [a_backlog.add(f"Idea {number}") for number in range(1, IDEAS + 1)]
    for number, item in enumerate(ideas, 1):
        a_backlog.play(script_of(item, f"idea-{number}", chance), item)
    kills = 0
    for _ in range(KILLS + 3 * IDEAS):
        run = subprocess.Popen(
            [sys.executable, "-m", "capsule", "run", "--cap", str(CAP), "--output", "none"],
            cwd=a_backlog.path, env=a_backlog.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if kills < KILLS:
            time.sleep(moments.uniform(0.2, 4))
            kills += run.poll() is None
            run.send_signal(signal.SIGKILL)
        run.wait()
        if kills == KILLS and all(a_backlog.item(item).status is Status.BLOCKED for item in a_backlog.ids()):
            break
    log = "".join(path.read_text() for path in sorted((a_backlog.path / "_worklog").glob("*.md")))
    archived = Counter(re.findall(r"\| (WRK-\d+) \| \w+ \| (?:Completed|Closed)\n", log))
    left = a_backlog.ids()
    assert kills == KILLS and set(archived.values()) == {1}, archived
    assert sorted([*archived, *left]) == ideas
    waiting = [a_backlog.item(item).blocked for item in left]
    assert all(blocked and blocked.reason for blocked in waiting), left
    assert "41" not in a_backlog.git("log", "--format=%s", "-S41", "--", "answer") and a_backlog.status() == ""
    assert_caps_held(a_backlog.path)
    a_backlog.git("fsck", "--strict", "--no-dangling")


def assert_caps_held(project: Path) -> None:
    """Hold every run to its cap: agents started since, and those of the killed run that it counts on from."""
    journal = SqliteJournal(project / ".git/capsule", read_only=True)
    started, cap = 0, 0
    for _, event in journal.events(QUEUE):
        if isinstance(event, RunStarted):
            assert event.spawns == started and event.cap == started + CAP
            cap = event.cap
        elif isinstance(event, Spawned):
            started += 1
            assert started <= cap
        elif isinstance(event, RunEnded):
            assert event.spawns == started
            started = 0
    journal.close()
