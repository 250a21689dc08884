"""A night: forty ideas, agents that crash, lie, stall and forge, and sixty kills at random moments.

What the agents do is drawn from a seed, so that a night can be played again; when they are killed is not. However it
goes, every idea ends archived once, or needs a person and says why. No agent is started beyond the cap, on a budget
that is spent or after the breaker, and none of them ends a run early.
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

import pytest

from capsule.agents._player import RECORDING
from capsule.core.budget import Spending
from capsule.core.decide import Decision, Move
from capsule.core.event import RUN, RunEnded, RunStarted, Spawned, Spent, StepBegun, StepEnded

from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .conftest import Script, Turn

IDEAS, KILLS, CAP, BREAKER = 40, 60, 25, 2
PRICE, PER_RUN, PER_MISSION = 100, 2000, 1200
"""In tokens: what an agent that ends says it used, and what a run and a mission may use."""
DOOMED = range(11, 15), range(26, 30)
"""Neighbours whose first phase never succeeds."""
SEED = int(os.environ.get("CAPSULE_NIGHT", "1"))
QUEUE = f"{RUN}queue"
NOTHING_MORE = ("nothing is left to do", "nothing else can be worked on")
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
    if any(int(item.removeprefix("WRK-")) in neighbours for neighbours in DOOMED):
        plays["triage"] = [turn("triage", "FAILED", item=item, context="It is dark.")]
    return {
        phase: [{**each, "usage": {"tokens_in": PRICE}} for each in _repeated(turns)] for phase, turns in plays.items()
    }


def _repeated(turns: list[Turn]) -> list[Turn]:
    """A recording knows every run by its number."""
    return [*turns, *turns[-1:] * 9]


@pytest.mark.soak
@pytest.mark.promise("backlog.night", "agents.budget")
def test_after_a_night_every_idea_is_archived_once_or_needs_a_person(a_backlog: BacklogProject) -> None:
    chance, moments = random.Random(SEED), random.Random()
    a_backlog.settings(
        "execution: {phase_timeout_minutes: 0.15}\n"
        f"budget: {{run: {{tokens: {PER_RUN}}}, mission: {{tokens: {PER_MISSION}}}}}"
    )
    a_backlog.play({}, RECORDING)
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
        if run.returncode >= 0 and kills == KILLS and last_end(a_backlog).why in NOTHING_MORE:
            break
    log = "".join(path.read_text() for path in sorted((a_backlog.path / "_worklog").glob("*.md")))
    archived = Counter(re.findall(r"\| (WRK-\d+) \| \w+ \| (?:Completed|Closed)\n", log))
    left = a_backlog.ids()
    assert kills == KILLS and set(archived.values()) == {1}, archived
    assert sorted([*archived, *left]) == ideas
    assert not [item for item in left if not reason_of(a_backlog, item)], left
    assert "41" not in a_backlog.git("log", "--format=%s", "-S41", "--", "answer") and a_backlog.status() == ""
    ends = assert_limits_held(a_backlog)
    assert {"breaker", "The budget of the run is spent"} <= set(ends), ends
    a_backlog.git("fsck", "--strict", "--no-dangling")


def last_end(project: BacklogProject) -> RunEnded:
    return [event for event in project.events(QUEUE) if isinstance(event, RunEnded)][-1]


def reason_of(project: BacklogProject, item: str) -> str:
    """Why a person is needed: the item says so, or the last run does where the budget of its mission is spent."""
    blocked = project.item(item).blocked
    return blocked.reason if blocked else last_end(project).blocked.get(item, "")


def assert_limits_held(project: BacklogProject) -> Counter[str]:
    """Hold every run to its cap, its budgets and the breaker, agent by agent, and say how the runs ended.

    A run that was killed is continued by the next: what it started and spent still counts.
    """
    turns = {mission: iter(paid_turns(project, mission)) for mission in missions_of(project)}
    missions: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    spawns = cap = spent = in_a_row = 0
    for event in project.events(QUEUE):
        if isinstance(event, RunStarted):
            assert (event.spawns, event.cap) == (spawns, spawns + CAP)
            cap = event.cap
        elif isinstance(event, Spawned):
            assert spawns < cap and in_a_row < BREAKER
            assert spent < PER_RUN and missions[event.mission] < PER_MISSION
            tokens, decision = next(turns[event.mission])
            spawns, spent, missions[event.mission] = spawns + 1, spent + tokens, missions[event.mission] + tokens
            if decision and decision.exhausted:
                in_a_row += 1
            elif decision and decision.move in (Move.ADVANCE, Move.REPEAT, Move.CLOSE):
                in_a_row = 0
        elif isinstance(event, RunEnded):
            assert (event.spawns, event.spent["tokens"] or 0) == (spawns, spent)
            why = event.why.partition(":")[0]
            assert (why == "breaker") == (in_a_row == BREAKER), event.why
            assert why != "cap" or spawns == cap
            assert why != "The budget of the run is spent" or spent >= PER_RUN
            ends[why] += 1
            spawns = spent = in_a_row = 0
    assert not [mission for mission, rest in turns.items() if list(rest)]
    return ends


def missions_of(project: BacklogProject) -> set[str]:
    return {event.mission for event in project.events(QUEUE) if isinstance(event, Spawned)}


def paid_turns(project: BacklogProject, mission: str) -> list[tuple[int, Decision | None]]:
    """Of each agent in order: the tokens it used, as far as it said, and what was decided, unless it was killed."""
    turns: list[tuple[int, Decision | None]] = []
    for event in project.events(mission):
        if isinstance(event, StepBegun) and event.spawns:
            turns.append((0, None))
        elif isinstance(event, Spent):
            turns[-1] = turns[-1][0] + Spending().plus(event.usage).tokens, None
        elif isinstance(event, StepEnded) and event.outcome.agent:
            turns[-1] = turns[-1][0] + Spending().plus(event.outcome.usage).tokens, event.decision
    return turns
