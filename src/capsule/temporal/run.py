"""A run as a workflow: it starts missions, and admits their agents under one cap, one budget and one breaker.

The rules are those of a run on one machine (`core/run.py`). Missions ask by a signal, and are answered by one; a wish
that is repeated gets the same answer, so that none is counted twice.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from msgspec.structs import replace
from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ChildWorkflowError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from capsule.core.errors import NotYet, Paused
    from capsule.core.event import Event, JobsSet, RunStarted, Spawned
    from capsule.core.run import OpenRun, admitted, after
    from capsule.temporal.messages import (
        MISSION,
        RUN,
        Ended,
        MissionEnd,
        MissionJob,
        Permit,
        RunCarried,
        RunItem,
        RunJob,
        RunProgress,
        Wish,
        mission_id,
    )

_KEPT, _CARRIED = 2000, 500
"""How many answers are remembered, for wishes that are repeated; and how many of them in a new history."""
_TRY_AGAIN = timedelta(seconds=30)


@workflow.defn(name=RUN)
class RunWorkflow:
    """One run of a project's items."""

    def __init__(self) -> None:
        self._run = OpenRun()
        self._items: dict[str, RunItem] = {}
        self._under_way: dict[str, str] = {}
        self._ended: dict[str, MissionEnd] = {}
        self._wishes: list[Wish] = []
        self._answers: dict[tuple[str, str], Permit] = {}
        self._stopped: set[str] = set()
        self._stopping = ""
        self._news = False

    @workflow.run
    async def run(self, job: RunJob) -> RunProgress:
        self._job = job
        if job.carried:
            self._carry_on(job.items, job.carried)
        else:
            self.add(job.items)
            self._note(RunStarted(at=_now(), cap=job.cap, jobs=job.jobs, budget=job.budget))
        watched: set[asyncio.Task[None]] = set()
        while True:
            for item in self._ready():
                self._under_way[item.asked.item] = ""
                watched.add(asyncio.create_task(self._mission(item)))
            await self._answer()
            if not self._under_way:
                return self.progress()
            if workflow.info().is_continue_as_new_suggested() and workflow.all_handlers_finished():
                workflow.continue_as_new(self._carried())
            await workflow.wait_condition(lambda: self._news)
            self._news = False
            watched = {task for task in watched if not task.done()}

    def _carried(self) -> RunJob:
        """Return what this run is continued with as new: missions go on, and tell the new one when they end."""
        run = self._run
        events: list[Event] = [RunStarted(at=_now(), cap=run.cap, jobs=run.jobs, budget=run.budget)]
        events += [
            Spawned(at=_now(), mission=mission, key=key, may_use=share) for (mission, key), share in run.at_work.items()
        ]
        carried = RunCarried(
            tuple(events),
            run.tally,
            run.spent,
            run.most,
            under_way=tuple(self._under_way),
            ended=tuple(self._ended.values()),
            wishes=tuple(self._wishes),
            answers=tuple((mission, permit) for (mission, _), permit in self._answers.items())[-_CARRIED:],
            stopped=tuple(sorted(self._stopped)),
            stopping=self._stopping,
        )
        return replace(self._job, items=tuple(self._items.values()), carried=carried)

    def _carry_on(self, items: tuple[RunItem, ...], carried: RunCarried) -> None:
        for event in carried.events:
            self._note(event)
        self._run = replace(self._run, tally=carried.tally, spent=carried.spent, most=carried.most)
        # What signals have brought before this began counts, too.
        self._items = {item.asked.item: item for item in items} | self._items
        self._under_way |= dict.fromkeys(carried.under_way, "")
        self._wishes = [*carried.wishes, *self._wishes]
        self._answers |= {(mission, permit.request): permit for mission, permit in carried.answers}
        self._stopped |= {*carried.stopped}
        self._stopping = self._stopping or carried.stopping
        ended, self._ended = self._ended, {end.item: end for end in carried.ended}
        for end in ended.values():
            self.mission_ended(end)

    def _ready(self) -> list[RunItem]:
        """Return the items to start now: as many as may run, each after those it depends on."""
        if self._over:
            return []
        done = {name for name, end in self._ended.items() if end.word == "done"}
        waiting = [
            item
            for name, item in self._items.items()
            if name not in self._under_way and name not in self._ended and {*item.after} <= done | self._unknown(item)
        ]
        return waiting[: max(0, self._run.jobs - len(self._under_way))]

    def _unknown(self, item: RunItem) -> set[str]:
        return {name for name in item.after if name not in self._items}

    @property
    def _over(self) -> str:
        """Say why nothing new is started; '' if there is no reason."""
        if self._stopping:
            return self._stopping
        if self._run.tally.tripped:
            return f"breaker: {self._run.tally.failures_in_a_row} items in a row used up their retries"
        if self._run.used_up:
            return f"cap: {self._run.tally.spawns} of {self._run.cap} phases used"
        return ""

    async def _mission(self, item: RunItem) -> None:
        """Start the workflow of a mission, and wait for its end."""
        name = item.asked.item
        while name in self._under_way:
            end = await self._one_mission(item)
            if end:
                self.mission_ended(end)
                return
            # One of a run before this one tells us when it ends; one that has just ended makes room.
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: name not in self._under_way, timeout=_TRY_AGAIN)

    async def _one_mission(self, item: RunItem) -> MissionEnd | None:
        """Start it, and wait for its end; None if a workflow of the mission is under way already."""
        name, where = item.asked.item, self._job.where
        try:
            handle = await workflow.start_child_workflow(
                MISSION,
                MissionJob(item.asked, where, workflow.info().workflow_id),
                id=mission_id(where.project, name),
                result_type=MissionEnd,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            )
            end: MissionEnd = await handle
        except WorkflowAlreadyStartedError:
            return None
        except ChildWorkflowError as fault:
            return MissionEnd(name, "stopped", why=str(fault.cause or fault), exit_code=2)
        return end

    async def _answer(self) -> None:
        """Answer the missions that want to start an agent, as far as they can be answered now."""
        waiting = []
        for wish in self._wishes:
            permit = self._admit(wish)
            if permit is None:
                waiting.append(wish)
                continue
            self._answers[wish.mission, wish.request] = permit
            handle = workflow.get_external_workflow_handle(mission_id(self._job.where.project, wish.mission))
            try:
                await handle.signal("permit", permit)
            except Exception as error:  # noqa: BLE001 - the SDK names no class for a workflow that is not there
                workflow.logger.info("%s is gone: %s", wish.mission, error)
        self._wishes = waiting
        for old in list(self._answers)[:-_KEPT]:
            del self._answers[old]

    def _admit(self, wish: Wish) -> Permit | None:
        """Decide about a wish, by the rules of any run; None if it has to wait until another agent has ended."""
        if known := self._answers.get((wish.mission, wish.request)):
            return known
        if self._stopping or wish.mission in self._stopped:
            return Permit(wish.request, refused=self._stopping or "stopped by you")
        try:
            spawned = admitted(Spawned(at=_now(), mission=wish.mission, key=wish.key), self._run)
        except Paused as refused:
            return Permit(wish.request, refused=refused.message)
        except NotYet:
            return None
        self._note(spawned)
        return Permit(wish.request, share=spawned.may_use, spent=self._run.spending)

    def _note(self, event: Event) -> None:
        self._run = after(self._run, event)
        self._news = True

    # Signals and questions

    @workflow.signal
    def wish(self, wish: Wish) -> None:
        if wish not in self._wishes:
            self._wishes.append(wish)
        self._news = True

    @workflow.signal
    def agent_ended(self, ended: Ended) -> None:
        self._note(ended.event)

    @workflow.signal
    def mission_ended(self, end: MissionEnd) -> None:
        self._under_way.pop(end.item, None)
        self._ended[end.item] = end
        self._news = True

    @workflow.signal
    def add(self, items: tuple[RunItem, ...]) -> None:
        """Take up more items; one that has ended is taken up again."""
        for item in items:
            self._items[item.asked.item] = item
            self._ended.pop(item.asked.item, None)
        self._news = True

    @workflow.signal
    def jobs(self, number: int) -> None:
        self._note(JobsSet(at=_now(), jobs=number))

    @workflow.signal
    async def stop(self, items: tuple[str, ...]) -> None:
        """Stop these missions, or all and the run."""
        if not items:
            self._stopping = "stopped by you"
        self._stopped |= {*items}
        self._news = True
        for name in items or tuple(self._under_way):
            handle = workflow.get_external_workflow_handle(mission_id(self._job.where.project, name))
            try:
                await handle.signal("stop")
            except Exception as error:  # noqa: BLE001 - the SDK names no class for a workflow that is not there
                workflow.logger.info("%s is gone: %s", name, error)

    @workflow.query
    def progress(self) -> RunProgress:
        left = [name for name in self._items if name not in self._under_way and name not in self._ended]
        return RunProgress(
            under_way=tuple(self._under_way),
            ended=tuple(self._ended.values()),
            left=tuple(left),
            spawns=self._run.tally.spawns,
            cap=self._run.cap,
            jobs=self._run.jobs,
            spent=self._run.spending,
            why=self._over,
        )


def _now() -> str:
    return workflow.now().strftime("%Y-%m-%dT%H:%M:%SZ")
