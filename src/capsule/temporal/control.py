"""Steer a run on Temporal from any clone: stop it or some of its missions, change how many run at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from capsule.core.errors import Refused
from capsule.project import Project
from capsule.temporal.client import connect, where_of
from capsule.temporal.messages import RunProgress, mission_id, run_id

Answer = TypeVar("Answer")


def stop_run(project: Project, items: Sequence[str]) -> tuple[str, ...]:
    """Stop these missions, or the whole run; return the missions that were asked to stop."""

    async def ask(client: Client, project_id: str) -> tuple[str, ...]:
        run = client.get_workflow_handle(run_id(project_id))
        asked = tuple(items)
        with suppress(RPCError):  # no run: a mission may be under way without one
            asked = asked or (await run.query("progress", result_type=RunProgress)).under_way
            await run.signal("stop", tuple(items))
        for item in asked:
            with suppress(RPCError):
                await client.get_workflow_handle(mission_id(project_id, item)).signal("stop")
        return asked

    return _asked(project, ask)


def set_jobs(project: Project, jobs: int) -> int:
    """Set how many missions of the run are under way at a time; return how many it were."""

    async def ask(client: Client, project_id: str) -> int:
        run = client.get_workflow_handle(run_id(project_id))
        before: RunProgress = await run.query("progress", result_type=RunProgress)
        await run.signal("jobs", jobs)
        return before.jobs

    return _asked(project, ask)


def _asked(project: Project, ask: Callable[[Client, str], Awaitable[Answer]]) -> Answer:
    async def connected() -> Answer:
        client = await connect(project.settings.temporal, project.env)
        try:
            return await ask(client, where_of(project).project)
        except RPCError as fault:
            if fault.status is RPCStatusCode.NOT_FOUND:
                raise Refused("No run is under way on Temporal.", "Start one: capsule run") from None
            raise

    return asyncio.run(connected())
