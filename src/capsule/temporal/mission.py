"""A mission as a workflow: the loop of `engine/run_mission.py`, whose steps are activities.

An activity is tried once. If its worker is lost the workflow has the step done again, with a permit of its own, so that
every start of an agent is counted; the lost one counts as spent, by an unknown amount. What an activity reports is the
record, and the next step begins from it. Waiting costs no worker anything.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, TimeoutType, is_cancelled_exception
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from capsule.core.event import AgentEnded, StepBegun, StepEnded
    from capsule.core.run import agent_ended
    from capsule.core.state import MissionState, apply, next_step
    from capsule.temporal.messages import (
        HAND_IN,
        MISSION,
        STEP,
        Ended,
        MissionEnd,
        MissionJob,
        Permit,
        StepReport,
        StepTask,
        Trouble,
        TurnWish,
        Upcoming,
        Wish,
        host_queue,
        merges_id,
        mission_id,
        shared_queue,
    )

BUSY, DRAINED = "busy", "drained"
"""Errors of a worker that has not begun the step, or ends within it: another one does it."""
_MOST_LOST = 10
"""How often a worker may be lost in the same step before a person is asked."""
_PAUSE, _LONGEST_PAUSE = 2.0, 60.0
"""Seconds until what passes is tried again."""
_ASK_AGAIN = timedelta(minutes=1)
_BESIDE = timedelta(minutes=2)
"""Time limit of what is done beside the steps."""


@workflow.defn(name=MISSION)
class MissionWorkflow:
    """One mission, from its start or resumption to its end or halt."""

    def __init__(self) -> None:
        self._state = MissionState()
        self._at = ""
        self._host = ""
        """The worker that did the last step."""
        self._hosts: set[str] = set()
        self._number = 0
        self._permits: dict[str, Permit] = {}
        self._turns: set[str] = set()
        self._stopping = False
        self._step: workflow.ActivityHandle[StepReport] | None = None

    @workflow.run
    async def run(self, job: MissionJob) -> MissionEnd:
        self._job = job
        report = await self._work()
        end = self._end(report)
        if self._state.finished:
            await self._tidy()
        if job.run:
            await self._tell(job.run, "mission_ended", end)
        return end

    async def _work(self) -> StepReport:
        """Do step after step; return the last report."""
        report, turn = await self._do(Upcoming(""), turn=""), ""
        while report.upcoming and not report.trouble and not self._stopping:
            step = next_step(self._state)
            if step is None or step.key != report.upcoming.key:
                raise ApplicationError(f"{self._job.asked.item} is not at {report.upcoming.key}", non_retryable=True)
            if report.wants_turn and not turn:
                turn = await self._turn(report.wants_turn, step.key)
            report = await self._do(report.upcoming, turn=turn)
            if turn and not (report.upcoming and report.upcoming.key == step.key and not report.trouble):
                await self._give_back(turn)
                turn = ""
        if turn:
            await self._give_back(turn)
        return report

    # Steps

    async def _do(self, upcoming: Upcoming, *, turn: str) -> StepReport:
        """Do one step; have it done again by another worker if one is lost."""
        lost, waited, pause = list[str](), 0.0, _PAUSE
        permit: Permit | None = None
        while True:
            self._number += 1
            if upcoming.spawns and permit is None:
                permit = await self._permit(upcoming)
            if self._stopping or (permit and permit.refused):
                return await self._left(permit.refused if permit and permit.refused else "stopped by you")
            host, self._host = self._host, ""
            task = StepTask(
                asked=self._job.asked,
                fence=self._fence,
                owner=workflow.info().workflow_id,
                at=self._at,
                key=upcoming.key,
                permit=permit,
                turn=bool(turn),
                stays=bool(host),
                lost=tuple(lost),
            )
            began = _now()
            try:
                report = await self._on(host, task)
            except ActivityError as error:
                if is_cancelled_exception(error):
                    return await self._left("stopped by you")
                fault = error.cause if isinstance(error.cause, ApplicationError) else None
                if fault and fault.type not in (BUSY, DRAINED):
                    return await self._left(fault.message, Trouble(fault.type or "Bug", fault.message))
                if _has_begun(error):
                    lost.append(began)
                    await self._lose(permit, task)
                    permit = None
                    if len(lost) >= _MOST_LOST:
                        why = f"{len(lost)} workers in a row were lost in {upcoming.key or 'the first step'}."
                        return await self._left(why, Trouble("WorkersLost", why))
                elif not host:
                    await asyncio.sleep(_PAUSE)
                continue
            begun = await self._take_over(report, task)
            if not (report.trouble and report.trouble.passes) or waited >= self._job.where.wait_seconds:
                return report
            permit, lost = (None, []) if begun else (permit, lost)
            await asyncio.sleep(pause)
            waited, pause = waited + pause, min(2 * pause, _LONGEST_PAUSE)

    async def _lose(self, permit: Permit | None, task: StepTask) -> None:
        """Count a lost agent as spent."""
        if permit:
            await self._settle(AgentEnded(at=_now(), mission=task.asked.item, key=task.key))

    async def _left(self, why: str, trouble: Trouble | None = None) -> StepReport:
        """Put on record that the mission stops here, without a verdict."""
        cause = trouble or Trouble("Interrupted" if self._stopping else "Paused", why, exit_code=130)
        report = await self._beside(self._shared, leaves=cause)
        at = report.at if report else self._at
        return StepReport(self._host, at, word="stopped", why=why, trouble=trouble)

    async def _tidy(self) -> None:
        """Remove the places of the mission on machines that did not do the last step."""
        queues = [host_queue(self._job.where.project, host) for host in sorted(self._hosts - {self._host})]
        await asyncio.gather(*(self._beside(queue, tidies=True) for queue in queues))

    async def _beside(self, queue: str, *, leaves: Trouble | None = None, tidies: bool = False) -> StepReport | None:
        """Do something that is no step; None if no worker has done it in time."""
        self._number += 1
        task = StepTask(
            self._job.asked, self._fence, workflow.info().workflow_id, self._at, leaves=leaves, tidies=tidies
        )
        try:
            report: StepReport = await workflow.execute_activity(
                STEP,
                task,
                task_queue=queue,
                result_type=StepReport,
                schedule_to_close_timeout=_BESIDE,
                heartbeat_timeout=timedelta(seconds=self._job.where.heartbeat_seconds),
            )
        except ActivityError as error:
            workflow.logger.warning("not done: %s", error)
            return None
        return report

    @property
    def _fence(self) -> str:
        """Return the fence of the next activity: it grows, also from one workflow of a mission to the next."""
        return f"{workflow.info().start_time.timestamp():015.3f}-{self._number:05d}"

    @property
    def _shared(self) -> str:
        return shared_queue(self._job.where.project, self._job.where.label)

    async def _on(self, host: str, task: StepTask) -> StepReport:
        where = self._job.where
        if host:
            queue, wait = host_queue(where.project, host), timedelta(seconds=where.prefer_seconds)
        else:
            queue, wait = self._shared, None
        self._step = workflow.start_activity(
            STEP,
            task,
            task_queue=queue,
            result_type=StepReport,
            schedule_to_start_timeout=wait,
            start_to_close_timeout=timedelta(seconds=where.step_seconds),
            heartbeat_timeout=timedelta(seconds=where.heartbeat_seconds),
            retry_policy=RetryPolicy(maximum_attempts=1),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        try:
            return await self._step
        finally:
            self._step = None

    async def _take_over(self, report: StepReport, task: StepTask) -> bool:
        """Apply what a worker reports: this is the record. Return whether it has begun the step."""
        if report.state:
            self._state = report.state
        for event in report.events:
            self._state = apply(self._state, event)
        self._at, self._host = report.at, report.host
        self._hosts.add(report.host)
        of_step = [each for each in report.events if isinstance(each, StepBegun | StepEnded) and each.key == task.key]
        if task.permit and of_step:
            last = of_step[-1]
            lost = AgentEnded(at=_now(), mission=task.asked.item, key=task.key)
            await self._settle(agent_ended(task.asked.item, last) if isinstance(last, StepEnded) else lost)
        return bool(of_step)

    # The run

    async def _permit(self, upcoming: Upcoming) -> Permit | None:
        """Ask the run whether an agent may start; without a run, it may."""
        request = f"{upcoming.key}@{self._number}"
        if not self._job.run:
            return Permit(request)
        wish = Wish(self._job.asked.item, upcoming.key, request)
        while request not in self._permits and not self._stopping:
            if not await self._tell(self._job.run, "wish", wish):
                return Permit(request, refused="its run has ended")
            try:
                await workflow.wait_condition(lambda: request in self._permits or self._stopping, timeout=_ASK_AGAIN)
            except TimeoutError:
                continue
        return self._permits.pop(request, None)

    async def _settle(self, ended: AgentEnded) -> None:
        if self._job.run:
            await self._tell(self._job.run, "agent_ended", Ended(ended))

    async def _tell(self, whom: str, signal: str, what: object) -> bool:
        """Send a signal to another workflow; return whether it is there."""
        try:
            await workflow.get_external_workflow_handle(whom).signal(signal, what)
        except ApplicationError:
            return False
        except Exception as error:  # noqa: BLE001 - the SDK names no class for a workflow that is not there
            workflow.logger.info("%s is not there: %s", whom, error)
            return False
        return True

    # The merge queue

    async def _turn(self, branch: str, key: str) -> str:
        """Wait for the turn to merge into a branch; return the branch, '' if the mission is stopped meanwhile."""
        where, item = self._job.where, self._job.asked.item
        request = f"{key}@{self._number}"
        wish = TurnWish(mission_id(where.project, item), request, merges_id(where.project, branch))
        while request not in self._turns and not self._stopping:
            await workflow.execute_activity(
                HAND_IN,
                wish,
                task_queue=self._shared,
                start_to_close_timeout=timedelta(seconds=60),
            )
            try:
                await workflow.wait_condition(lambda: request in self._turns or self._stopping, timeout=_ASK_AGAIN)
            except TimeoutError:
                continue
        self._turns.discard(request)
        return f"{branch}\n{request}"

    async def _give_back(self, turn: str) -> None:
        where = self._job.where
        branch, _, request = turn.partition("\n")
        queue = merges_id(where.project, branch)
        wish = TurnWish(mission_id(where.project, self._job.asked.item), request, queue, over=True)
        await self._tell(queue, "wish", wish)

    # The end

    def _end(self, report: StepReport) -> MissionEnd:
        state, trouble = self._state, report.trouble
        return MissionEnd(
            item=self._job.asked.item,
            word=report.word or "stopped",
            why=f"{trouble.message} {trouble.hint}".strip() if trouble else report.why,
            exit_code=trouble.exit_code if trouble else state.halt.exit_code if state.halt else 0,
            merged=state.facts.get("merged", ""),
            spent=state.spending,
        )

    # Signals and questions

    @workflow.signal
    def permit(self, permit: Permit) -> None:
        self._permits[permit.request] = permit

    @workflow.signal
    def turn(self, request: str) -> None:
        self._turns.add(request)

    @workflow.signal
    def stop(self) -> None:
        """Stop: the agent at work is ended, what is recorded is kept."""
        self._stopping = True
        if self._step:
            self._step.cancel()

    @workflow.query
    def state(self) -> MissionState:
        return self._state


def _has_begun(error: ActivityError) -> bool:
    """Tell whether the step may have been begun by the worker that did not end it."""
    cause = error.cause
    if isinstance(cause, TimedOut):
        return cause.type is not TimeoutType.SCHEDULE_TO_START
    return not (isinstance(cause, ApplicationError) and cause.type == BUSY)


def _now() -> str:
    return workflow.now().strftime("%Y-%m-%dT%H:%M:%SZ")
