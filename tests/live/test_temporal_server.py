"""Temporal's real server: a workflow outlives a kill of it, and each of its steps is done once."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.live.temporal_server import NAMESPACE, TemporalServer, temporal_server

QUEUE = "tests"
STEPS = ("first", "second", "third")
done: Counter[str] = Counter()


@activity.defn
async def do(step: str) -> str:
    done[step] += 1
    return f"did {step}"


@workflow.defn(sandboxed=False)
class Errand:
    """Some steps, each after a word from outside."""

    def __init__(self) -> None:
        self._words = 0
        self._said: list[str] = []

    @workflow.run
    async def run(self, steps: list[str]) -> list[str]:
        for number, step in enumerate(steps):
            await workflow.wait_condition(partial(self._heard, number))
            self._said.append(await workflow.execute_activity(do, step, start_to_close_timeout=timedelta(seconds=60)))
        return self._said

    def _heard(self, number: int) -> bool:
        return self._words > number

    @workflow.signal
    def go_on(self) -> None:
        self._words += 1

    @workflow.query
    def said(self) -> list[str]:
        return self._said


@pytest.fixture
def server(tmp_path: Path, temporal_server_program: Path) -> Iterator[TemporalServer]:
    with temporal_server(temporal_server_program, tmp_path / "temporal", NAMESPACE) as started:
        yield started


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_workflow_outlives_its_server_and_does_each_step_once(server: TemporalServer, end: str) -> None:
    done.clear()
    said = asyncio.run(_an_errand_with_a_break(server, end))
    assert said == ["did first", "did second", "did third"]
    assert done == dict.fromkeys(STEPS, 1)


async def _an_errand_with_a_break(server: TemporalServer, end: str) -> list[str]:
    client = await Client.connect(server.address, namespace=NAMESPACE)
    runner = UnsandboxedWorkflowRunner()
    async with Worker(client, task_queue=QUEUE, workflows=[Errand], activities=[do], workflow_runner=runner):
        handle = await client.start_workflow(Errand.run, [*STEPS], id=str(uuid.uuid4()), task_queue=QUEUE)
        await handle.signal(Errand.go_on)
        while await handle.query(Errand.said) != ["did first"]:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(getattr(server, end))
        await asyncio.sleep(1)
        await asyncio.to_thread(server.start, NAMESPACE)
        for _ in STEPS[1:]:
            await handle.signal(Errand.go_on)
        return await handle.result()


def test_it_listens_on_its_own_address_only(server: TemporalServer) -> None:
    ours = {link for fd in Path(f"/proc/{server.pid}/fd").iterdir() if (link := _target(fd)).startswith("socket:")}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    listening = [row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in ours]
    assert len(listening) == 8 and all(address.startswith("0100007F:") for address in listening)
    wide = [row.split() for row in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    assert [row[1] for row in wide if row[3] == "0A" and f"socket:[{row[9]}]" in ours] == []


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def test_its_memory_is_told(server: TemporalServer) -> None:
    assert 20 * 2**20 < server.memory() < 2**30
