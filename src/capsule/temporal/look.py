"""Look at a Temporal server: whether it answers, knows the namespace, and has workers of the project."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from capsule.core.errors import CapsuleError
from capsule.project import Project
from capsule.temporal.client import connect, where_of
from capsule.temporal.messages import shared_queue

_RECENTLY = 120.0
"""Seconds since a worker last asked for work."""


class Seen(NamedTuple):
    """What there is: the workers of the project, and by how many seconds the clock of this machine is off."""

    workers: tuple[str, ...]
    clock: float


def look(project: Project) -> Seen:
    """Look at the server that the settings name; refuse if it does not answer, or lacks the namespace."""
    return asyncio.run(_look(project))


async def _look(project: Project) -> Seen:
    where, chosen = where_of(project), project.settings.temporal
    client = await connect(chosen, project.env)
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=chosen.namespace))
    except RPCError as fault:
        if fault.status is not RPCStatusCode.NOT_FOUND:
            raise CapsuleError(f"The Temporal server at {chosen.address} refused: {fault.message}.") from None
        hint = f"Make it: temporal operator namespace create -n {chosen.namespace}; or set temporal.namespace"
        raise CapsuleError(f"The Temporal server has no namespace {chosen.namespace}.", hint) from None
    return await _workers(client, shared_queue(where.project, where.label), chosen.namespace)


async def _workers(client: Client, queue: str, namespace: str) -> Seen:
    request = DescribeTaskQueueRequest(
        namespace=namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
    )
    found = await client.workflow_service.describe_task_queue(request)
    now = time.time()
    asked = {each.identity: each.last_access_time.ToNanoseconds() / 1e9 for each in found.pollers}
    ahead = max((at - now for at in asked.values()), default=0.0)
    recent = tuple(sorted(name for name, at in asked.items() if now - at < _RECENTLY))
    return Seen(recent, max(0.0, ahead))
