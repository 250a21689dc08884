"""A run on Temporal: its counts are exact, also where its history begins anew in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from capsule.core.event import StepBegun
from capsule.temporal.messages import run_id
from tests.commands.conftest import PASS, Project, Turn
from tests.commands.test_campaign import FLOW, row
from tests.git_server import GitServer, git_server, run
from tests.live.temporal_server import NAMESPACE, TemporalServer, temporal_server
from tests.live.test_both_engines import a_project, a_worker

ITEMS = [f"item-{number}" for number in range(6)]
PROJECT = "runs"
LONGEST = 40
COMMIT = 'git add -A . && git commit -q -m "$CAPSULE_COMMIT_MSG"'


@pytest.fixture
def engine(tmp_path: Path, temporal_server_program: Path) -> Iterator[TemporalServer]:
    """A server that asks for a new history very soon."""
    folder = tmp_path / "temporal"
    with temporal_server(temporal_server_program, folder, NAMESPACE, longest_history=LONGEST) as started:
        yield started


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GitServer]:
    with git_server(tmp_path / "server") as served:
        yield served


@pytest.fixture
def project(tmp_path: Path, server: GitServer, engine: TemporalServer) -> Project:
    """Six items, and agents that make a file each."""
    turn: Turn = {"run": ["echo done > $CAPSULE_ITEM", COMMIT], "signal": PASS}
    files = {".capsule/workflows/short.yaml": FLOW, ".beads/issues.jsonl": "".join(map(row, ITEMS))}
    project = a_project(tmp_path / "project", server, {"make": [turn]}, files)
    project.always |= {
        "CAPSULE_WORKFLOW__DEFAULT": "short",
        "CAPSULE_ENGINE": "temporal",
        "CAPSULE_PROJECT__ID": PROJECT,
        "CAPSULE_TEMPORAL__ADDRESS": engine.address,
        "CAPSULE_TEMPORAL__NAMESPACE": NAMESPACE,
    }
    return project


def histories(engine: TemporalServer) -> int:
    """How many histories the run has had, one after the other."""

    async def count() -> int:
        client = await Client.connect(engine.address, namespace=NAMESPACE)
        found = await client.count_workflows(f"WorkflowId = '{run_id(PROJECT)}'")
        return found.count

    return asyncio.run(count())


def agents(project: Project) -> int:
    return sum(isinstance(event, StepBegun) and event.spawns for name in ITEMS for event in project.events(name))


@pytest.mark.promise("machines.limits")
def test_a_run_whose_history_begins_anew_merges_each_mission_once(
    project: Project, server: GitServer, engine: TemporalServer
) -> None:
    with a_worker(project, slots=4):
        answer = project.capsule("run", "--jobs", "3")
        assert answer.code == 0, answer
        assert histories(engine) > 1
    told = "%(trailers:key=Capsule-Mission,valueonly)"
    merges = run("log", "--first-parent", "--merges", f"--format={told}", "main", cwd=server.repository("project"))
    assert sorted(merges.split()) == ITEMS
    assert "6 of 100" in answer.out


@pytest.mark.promise("machines.limits")
def test_the_cap_of_a_run_is_never_exceeded(project: Project, server: GitServer) -> None:
    with a_worker(project, slots=4):
        answer = project.capsule("run", "--jobs", "4", "--cap", "2")
        assert "cap: 2 of 2 phases used" in answer.out, answer
        assert agents(project) == 2
