"""Work for the missions of a project on Temporal: poll for steps, and do each in a process of its own.

A step's process is asked to stop when the step is cancelled, which the SDK also does by itself when the server has not
been heard of for the time of a heartbeat. It ends its agent, and is killed if that takes too long. Where this process
is killed, the pipe to a step's process closes, which then kills itself.
"""

from __future__ import annotations

import asyncio
import platform
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import msgspec
from msgspec.structs import replace
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from capsule.core.errors import CapsuleError, Interrupted
from capsule.project import Project
from capsule.temporal.client import connect, where_of
from capsule.temporal.merges import MergesWorkflow
from capsule.temporal.messages import (
    HAND_IN,
    IS_OPEN,
    MERGES,
    STEP,
    MergesJob,
    StepReport,
    StepTask,
    TurnWish,
    host_queue,
    shared_queue,
)
from capsule.temporal.mission import BUSY, DRAINED, MissionWorkflow
from capsule.temporal.run import RunWorkflow

PROGRAM: tuple[str, ...] = (sys.executable, "-P", "-m", "capsule", "_step")
_BEAT = 1.0
_BUSY_SECONDS = 5.0
"""How long a step waits for a free slot, before another machine may do it."""
_GRACE = 10.0
"""Seconds for a step's process to end its agent."""
_UNREACHABLE = 3
_CONNECT_AGAIN = 5.0
_STICKY = timedelta(seconds=3)
"""How long a workflow waits for the worker that remembers it: a lost one delays all that it remembers by that."""
_LARGEST = 64 * 1024 * 1024
_PASSED = ("msgspec", "capsule.core", "capsule.temporal.messages")
"""Modules that workflows share with this process: loading them anew would take 50 times as long."""


class Steps:
    """The activities of one worker."""

    def __init__(self, client: Client, project: Project, slots: int, tell: Callable[[str], None]) -> None:
        self._client, self._root, self._tell = client, str(project.root), tell
        self.host = project.settings.temporal.host or platform.node()
        self._slots = asyncio.Semaphore(slots)
        self.draining = False

    @activity.defn(name=STEP)
    async def step(self, task: StepTask) -> StepReport:
        """Do a step."""
        async with self._slot():
            name = f"{task.asked.item} {task.key or 'begins'}"
            self._tell(name)
            process = await asyncio.create_subprocess_exec(
                *PROGRAM, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=_LARGEST
            )
            try:
                report = await self._reported(process, task)
            except asyncio.CancelledError:
                await _end(process)
                self._tell(f"{name}: stopped")
                if self.draining:
                    raise _passed_on("This worker ends.", DRAINED) from None
                raise
            self._tell(f"{name}: {report.word or 'begun'}")
            return report

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        try:
            await asyncio.wait_for(self._slots.acquire(), _BUSY_SECONDS)
        except TimeoutError:
            raise _passed_on("All slots of this worker are taken.", BUSY) from None
        try:
            yield
        finally:
            self._slots.release()

    async def _reported(self, process: Process, task: StepTask) -> StepReport:
        """Wait for the report, with a heartbeat beside the work."""
        assert process.stdin
        assert process.stdout
        process.stdin.write(msgspec.json.encode((self._root, replace(task, host=self.host))) + b"\n")
        await process.stdin.drain()
        reading = asyncio.create_task(process.stdout.read())
        try:
            while not reading.done():
                activity.heartbeat()
                await asyncio.wait({reading}, timeout=_BEAT)
        finally:
            reading.cancel()
        code, told = await process.wait(), reading.result()
        process.stdin.close()
        if not told:
            if code == Interrupted.exit_code:
                raise asyncio.CancelledError
            if code < 0:  # killed, as a machine without memory does: another worker may have more
                raise _passed_on(f"The process of the step was killed by {signal.Signals(-code).name}.", DRAINED)
            raise ApplicationError(f"The process of the step ended with exit code {code}.", type="StepDied")
        return msgspec.json.decode(told, type=StepReport)

    @activity.defn(name=HAND_IN)
    async def hand_in(self, wish: TurnWish) -> None:
        """Queue a mission up to be merged; start the queue if it is not under way."""
        queue = activity.info().task_queue
        await self._client.start_workflow(
            MERGES,
            MergesJob(queue),
            id=wish.queue,
            task_queue=queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="wish",
            start_signal_args=[wish],
        )

    @activity.defn(name=IS_OPEN)
    async def is_open(self, workflow: str) -> bool:
        """Tell whether a workflow is under way."""
        try:
            found = await self._client.get_workflow_handle(workflow).describe()
        except RPCError as fault:
            if fault.status is RPCStatusCode.NOT_FOUND:
                return False
            raise
        return found.status is WorkflowExecutionStatus.RUNNING


def _passed_on(why: str, kind: str) -> ApplicationError:
    """Make the error that has another worker do the step; it is no fault, so the log has no traceback of it."""
    return ApplicationError(why, type=kind, category=ApplicationErrorCategory.BENIGN)


async def _end(process: Process) -> None:
    """Ask the process of a step to end its agent, and itself; kill it if it does not."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), _GRACE)
        except TimeoutError:
            process.kill()
            await process.wait()


def sandbox() -> SandboxedWorkflowRunner:
    """Return what keeps workflows from anything but deciding."""
    return SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_modules(*_PASSED))


async def _connected(project: Project, tell: Callable[[str], None]) -> Client:
    """Connect to the server, and wait for one that is down: nobody may be there to start this worker again."""
    waits = False
    while True:
        try:
            return await connect(project.settings.temporal, project.env)
        except CapsuleError as fault:
            if fault.exit_code != _UNREACHABLE:
                raise
            if not waits:
                tell(f"{fault.message} {fault.hint} This worker tries again until it answers.")
            waits = True
        await asyncio.sleep(_CONNECT_AGAIN)


async def work(project: Project, slots: int, labels: Sequence[str], tell: Callable[[str], None]) -> None:
    """Work until a signal: the first drains, the second leaves at once."""
    where = where_of(project)
    client = await _connected(project, tell)
    steps = Steps(client, project, slots, tell)
    shared = [shared_queue(where.project, label) for label in ("", *labels)]
    workers = [
        Worker(
            client,
            task_queue=queue,
            activities=[steps.step, steps.hand_in, steps.is_open],
            workflows=[MissionWorkflow, RunWorkflow, MergesWorkflow] if queue in shared else [],
            workflow_runner=sandbox(),
            identity=steps.host,
            max_concurrent_activities=slots + 4,
            sticky_queue_schedule_to_start_timeout=_STICKY,
            graceful_shutdown_timeout=timedelta(seconds=where.step_seconds),
        )
        for queue in (*shared, host_queue(where.project, steps.host))
    ]
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def on_signal() -> None:
        if over.is_set():
            steps.draining = True
            running.cancel()
        over.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    tell(f"{steps.host} works for {where.project}: {slots} slots, {project.settings.temporal.address}")
    running = asyncio.ensure_future(asyncio.gather(*(worker.run() for worker in workers)))
    running.add_done_callback(lambda _: over.set())
    await over.wait()
    if not running.done():
        tell("draining: steps under way are finished, no new one is begun; once more ends them")
        await asyncio.gather(*(worker.shutdown() for worker in workers), return_exceptions=True)
    with suppress(asyncio.CancelledError):
        await running
