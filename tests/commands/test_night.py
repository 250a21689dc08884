"""A night: forty ideas, agents that crash, lie, stall and forge, and sixty kills at random moments.

Killed is the queue's own process; its mission and the agent end with it (test_jobs.py and tests/crash kill those).
What the agents do is drawn from a seed, so that a night can be played again; when it is killed is not. However it goes,
every idea ends archived once, or needs a person and says why. Cap, budget of a run, budget of a mission and breaker are
each reached by some run; no agent is started beyond them, and none of them ends a run early.
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
from capsule.core.signal import Verdict

from .backlog_project import BacklogProject
from .backlog_script import honest, turn
from .conftest import Script, Turn

IDEAS, KILLS, BREAKER = 40, 60, 2
CAP, KEPT = 30, 8
"""Agents: the cap that some runs are given, which their budget comes before, and that of those that are given none."""
PRICE, PER_RUN, PER_MISSION = 100, 2000, 1200
"""In tokens: what an agent that ends says it used, and what a run and a mission may use."""
DEAR, DEARER = (5, 20, 35), 4
"""Ideas whose agents cost so many times the price: three of them spend what a mission may."""
ASKING = (3, 23)
DOOMED = range(11, 15), range(26, 30)
"""Neighbours whose first phase never succeeds."""
SEED = int(os.environ.get("CAPSULE_NIGHT", "1"))
QUEUE = f"{RUN}queue"
CONTINUED_TO_THE_CAP = "cap, kept and counted on after a kill"
NOTHING_MORE = ("nothing is left to do", "nothing else can be worked on")
QUESTION = "Which colour?"
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
    fate, number = chance.random(), number_of(item)
    if number in ASKING or (fate < 0.1 and number not in DEAR):
        plays["prd"] = [turn("prd", "BLOCKED", item=item, block_type="clarification", context=QUESTION)]
    elif fate < 0.15:
        plays["design"] = [{"exit": 1}]
    if any(number in neighbours for neighbours in DOOMED):
        plays["triage"] = [turn("triage", "FAILED", item=item, context="It is dark.")]
    usage = {"usage": {"tokens_in": price_of(item)}}
    return {phase: [{**each, **usage} for each in _repeated(turns)] for phase, turns in plays.items()}


def number_of(item: str) -> int:
    return int(item.removeprefix("WRK-"))


def price_of(item: str) -> int:
    return PRICE * DEARER if number_of(item) in DEAR else PRICE


def _repeated(turns: list[Turn]) -> list[Turn]:
    """A recording knows every run by its number."""
    return [*turns, *turns[-1:] * 9]


@pytest.mark.soak
@pytest.mark.promise("backlog.night", "agents.budget")
def test_after_a_night_every_idea_is_archived_once_or_needs_a_person(a_backlog: BacklogProject) -> None:
    chance, moments = random.Random(SEED), random.Random()
    a_backlog.settings(
        f"execution: {{phase_timeout_minutes: 0.15, default_phase_cap: {KEPT}}}\n"
        f"budget: {{run: {{tokens: {PER_RUN}}}, mission: {{tokens: {PER_MISSION}}}}}"
    )
    a_backlog.play({}, RECORDING)
    ideas = [a_backlog.add(f"Idea {number}") for number in range(1, IDEAS + 1)]
    for number, item in enumerate(ideas, 1):
        a_backlog.play(script_of(item, f"idea-{number}", chance), item)
    kills, capped = 0, list[bool]()
    for number in range(KILLS + 3 * IDEAS):
        typed = number % 2 == 0 if kills == KILLS else kills >= KILLS // 2
        run = subprocess.Popen(
            [sys.executable, "-m", "capsule", "run", *(["--cap", str(CAP)] if typed else []), "--output", "none"],
            cwd=a_backlog.path, env=a_backlog.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        if kills < KILLS:
            time.sleep(moments.uniform(0.2, 4))
            kills += run.poll() is None
            run.send_signal(signal.SIGKILL)
        run.wait()
        capped += [typed] * (starts_of(a_backlog) - len(capped))
        if run.returncode >= 0 and kills == KILLS and last_end(a_backlog).why in NOTHING_MORE:
            break
    log = "".join(path.read_text() for path in sorted((a_backlog.path / "_worklog").glob("*.md")))
    archived = Counter(re.findall(r"\| (WRK-\d+) \| \w+ \| (?:Completed|Closed)\n", log))
    left = a_backlog.ids()
    assert kills == KILLS and set(archived.values()) == {1}, archived
    assert sorted([*archived, *left]) == ideas
    reasons = {item: reason_of(a_backlog, item) for item in left}
    assert all(reasons.values()), reasons
    asked = {item for item in left if any(step.decision.verdict is Verdict.BLOCKED for step in steps(a_backlog, item))}
    assert len(asked) >= len(ASKING) and {reasons[item] for item in asked} == {QUESTION}, reasons
    assert (a_backlog.git("log", "--format=%s", "-S41", "--", "answer"), a_backlog.status()) == ("", "")
    ends, spent = assert_limits_held(a_backlog, capped)
    assert ends.keys() >= {"breaker", "cap", CONTINUED_TO_THE_CAP, "The budget of the run is spent"}, ends
    dear = [item for item in ideas if number_of(item) in DEAR]
    assert [reasons[item].partition(":")[0] for item in dear] == ["The budget of the mission is spent"] * len(dear)
    assert all(PER_MISSION <= spent[item] < PER_MISSION + price_of(item) for item in dear), spent
    a_backlog.git("fsck", "--strict", "--no-dangling")
    print(f"seed {SEED}: {kills} kills, {len(capped)} starts, {sum(capped)} with a cap; ended: {dict(ends)}")
    print(f"{len(archived)} archived, {len(left)} need a person: {dict(Counter(map(kind_of, reasons.values())))}")


def kind_of(reason: str) -> str:
    """How a reason begins, without its figures."""
    return " ".join(re.split(r"[:,]| \(", reason)[0].split()[:8])


def starts_of(project: BacklogProject) -> int:
    return sum(isinstance(event, RunStarted) for event in project.events(QUEUE))


def steps(project: BacklogProject, mission: str) -> list[StepEnded]:
    return [event for event in project.events(mission) if isinstance(event, StepEnded)]


def last_end(project: BacklogProject) -> RunEnded:
    return [event for event in project.events(QUEUE) if isinstance(event, RunEnded)][-1]


def reason_of(project: BacklogProject, item: str) -> str:
    """Why a person is needed: the item says so, or the last run does where the budget of its mission is spent."""
    blocked = project.item(item).blocked
    return blocked.reason if blocked else last_end(project).blocked.get(item, "")


def assert_limits_held(project: BacklogProject, capped: list[bool]) -> tuple[Counter[str], Counter[str]]:
    """Hold every run to its cap, its budgets and the breaker, agent by agent; say how runs ended, and what was spent.

    A run that was killed is continued by the next: what it started and spent still counts. One that is given a cap may
    start so many more; another keeps the cap and the count.
    """
    turns = {mission: iter(paid_turns(project, mission)) for mission in missions_of(project)}
    missions: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    typed = iter(capped)
    spawns = cap = spent = in_a_row = 0
    continued = False
    for event in project.events(QUEUE):
        if isinstance(event, RunStarted):
            given = next(typed)
            assert (event.spawns, event.cap) == (spawns, spawns + CAP if given else max(KEPT, cap))
            continued = not given and spawns > 0 and (continued or cap == KEPT)
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
            assert spawns == cap if why == "cap" else spawns <= cap
            assert (why == "The budget of the run is spent") <= (spent >= PER_RUN)
            ends[why] += 1
            ends[CONTINUED_TO_THE_CAP] += why == "cap" and continued
            spawns = cap = spent = in_a_row = 0
    assert not [mission for mission, rest in turns.items() if list(rest)]
    return +ends, missions


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
