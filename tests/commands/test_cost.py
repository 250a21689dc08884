"""What agents cost, as people meet it: a claude that says what it took, in the queue, in `show`, against a budget."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from capsule.core.event import RunEnded, Spent, StepEnded
from tests.costs import LONG, eventually

from .backlog_project import BacklogProject

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[1] / "contracts" / "recorded" / "claude"
ASKS = {"result": "BLOCKED", "summary": "which colour?", "phase": "triage"}


def _put_in_claudes_place(project: BacklogProject, folder: Path, script: str) -> None:
    program = folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    path = f"{program.parent}:{project.environment()['PATH']}"
    project.always = {"CAPSULE_AGENT": "claude", "PATH": path, "CAPSULE_SANDBOX": "off"}


@pytest.fixture
def a_claude_that_asks(a_backlog: BacklogProject, tmp_path: Path) -> BacklogProject:
    """It takes its time and its dollars, and has a question about every item."""
    answer = json.dumps(ASKS)[:-1]
    script = f'printf \'{answer}, "item_id": "%s"}}\' "$CAPSULE_ITEM" > "$CAPSULE_RESULT"\n'
    _put_in_claudes_place(a_backlog, tmp_path, f"{script}cat {RECORDED / 'ok.jsonl'}")
    a_backlog.hold({}, {}, {})
    return a_backlog


@pytest.fixture
def a_claude_that_never_ends(a_backlog: BacklogProject, tmp_path: Path) -> BacklogProject:
    """It calls a tool, pays 130 tokens for that, and is not heard of again."""
    _put_in_claudes_place(a_backlog, tmp_path, f"head -n 3 {RECORDED / 'ok.jsonl'}; touch {tmp_path}/paid; sleep 300")
    a_backlog.hold({})
    return a_backlog


def cost_of_one_run() -> float:
    last = json.loads((RECORDED / "ok.jsonl").read_text().splitlines()[-1])
    return float(last["total_cost_usd"])


def test_every_way_to_look_at_it_knows_what_was_spent(a_claude_that_asks: BacklogProject) -> None:
    project = a_claude_that_asks
    answer = project.run()
    assert answer.code == 0, answer
    assert "agents:    used $" in answer.out
    ended = next(event for event in project.events() if isinstance(event, StepEnded))
    assert ended.outcome.usage is not None
    assert ended.outcome.usage.usd == pytest.approx(cost_of_one_run())
    spent = json.loads(project.say("show", "WRK-001", "--json").out)["spent"]
    assert (spent["runs"], spent["without_usd"]) == (1, 0)
    assert spent["usd"] == pytest.approx(cost_of_one_run(), abs=1e-6)
    assert "agents used $" in project.say("show", "WRK-001").out
    run = next(event for event in project.events("_queue") if isinstance(event, RunEnded))
    assert run.spent["usd"] == pytest.approx(3 * cost_of_one_run(), abs=1e-6)


def test_the_budget_of_a_run_stops_the_queue_and_the_next_run_has_its_own(a_claude_that_asks: BacklogProject) -> None:
    project = a_claude_that_asks
    limit = str(1.5 * cost_of_one_run())
    answer = project.run(CAPSULE_BUDGET__RUN__USD=limit)
    assert answer.code == 3, answer
    assert "The budget of the run is spent" in answer.err
    assert "Raise budget.run" in answer.err
    assert [project.spawns(f"WRK-00{n}") for n in (1, 2, 3)] == [1, 1, 0]
    project.run(CAPSULE_BUDGET__RUN__USD=limit)
    assert project.spawns("WRK-003") == 1


def test_an_item_whose_budget_is_spent_is_set_aside_and_the_others_go_on(a_claude_that_asks: BacklogProject) -> None:
    project = a_claude_that_asks
    project.run("WRK-001")
    project.say("unblock", "WRK-001", "--notes", "red")
    answer = project.run(CAPSULE_BUDGET__MISSION__USD=str(cost_of_one_run()))
    assert answer.code == 0, answer
    assert "WRK-001: The budget of the mission is spent" in answer.out
    assert "  next:      raise budget.mission, then: capsule run WRK-001\n" in answer.out
    assert "next:       raise budget.mission, then: capsule run WRK-001" in project.say("show", "WRK-001").out
    assert "  next: raise budget.mission, then: capsule run WRK-001\n" in project.say("explain", "WRK-001").out
    assert [project.spawns(f"WRK-00{n}") for n in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.promise("agents.usage-when-ended")
def test_agents_that_are_ended_again_and_again_meet_their_budget(a_claude_that_never_ends: BacklogProject) -> None:
    project = a_claude_that_never_ends
    limits = {"CAPSULE_EXECUTION__PHASE_TIMEOUT_MINUTES": "0.05", "CAPSULE_BUDGET__RUN__TOKENS": "200"}
    answer = project.run(**limits)
    assert answer.code == 3, answer
    assert "The budget of the run is spent: 260 of 200 tokens." in answer.err
    assert project.spawns() == 2


@pytest.mark.promise("agents.usage-when-ended")
def test_what_an_agent_used_before_somebody_said_stop_is_in_the_journal(
    a_claude_that_never_ends: BacklogProject, tmp_path: Path
) -> None:
    project = a_claude_that_never_ends
    command = [sys.executable, "-m", "capsule", "run"]
    nowhere = subprocess.DEVNULL
    process = subprocess.Popen(
        command, cwd=project.path, env=project.environment(), stdout=nowhere, stderr=nowhere, start_new_session=True
    )
    assert eventually((tmp_path / "paid").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130
    (spent,) = [event for event in project.events() if isinstance(event, Spent)]
    assert (spent.usage.tokens_in, spent.usage.tokens_out) == (123, 7)
