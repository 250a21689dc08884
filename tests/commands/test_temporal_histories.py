"""Missions that are under way survive a change of Capsule: recorded histories are replayed by today's workflows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from capsule.temporal.converter import data_converter
from capsule.temporal.merges import MergesWorkflow
from capsule.temporal.mission import MissionWorkflow
from capsule.temporal.run import RunWorkflow
from capsule.temporal.worker import sandbox

HISTORIES = sorted((Path(__file__).parent.parent / "fixtures" / "histories").glob("*.json"))


@workflow.defn(name="mission", sandboxed=False)
class Otherwise:
    """A mission of a later version, which begins with something else."""

    @workflow.run
    async def run(self) -> None:
        await workflow.sleep(1)


def replayed(path: Path, *workflows: type) -> None:
    history = WorkflowHistory.from_json(path.stem, json.loads(path.read_text()))
    replayer = Replayer(workflows=workflows, data_converter=data_converter(), workflow_runner=sandbox())
    asyncio.run(replayer.replay_workflow(history))


@pytest.mark.promise("machines.upgrade")
@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
def test_a_recorded_history_is_replayed(path: Path) -> None:
    replayed(path, MissionWorkflow, RunWorkflow, MergesWorkflow)


def test_a_change_that_would_break_missions_under_way_is_red() -> None:
    [path] = [path for path in HISTORIES if path.stem.endswith("mission")][:1]
    with pytest.raises(workflow.NondeterminismError):
        replayed(path, Otherwise)
