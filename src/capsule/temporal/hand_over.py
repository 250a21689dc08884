"""Hand a run over to Temporal, and watch it: leaving does not stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import closing

from msgspec.structs import replace
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError

from capsule.adapters import JournalReader, Observer
from capsule.app.missions import states_of
from capsule.app.ordering import queued
from capsule.app.planning import RunRequest
from capsule.app.queue_plan import cap_of, jobs_of, refuse_container
from capsule.core.event import RUN as RUN_STREAM
from capsule.core.event import RunStarted, Spawned, StepBegun
from capsule.core.schedule import within_reach
from capsule.engine.dispatch import RunReport
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.temporal.client import connect, where_of
from capsule.temporal.messages import RUN, Asked, RunItem, RunJob, RunProgress, run_id, shared_queue
from capsule.wiring import budget_of, state_store_for

_LOOK = 0.5
"""Seconds between looks at a run."""
_STREAM = f"{RUN_STREAM}queue"
_JOBS = 1000
"""As many missions at a time as workers have room for."""


def hand_over(project: Project, request: RunRequest, report: RunReport, observer: Observer) -> int:
    """Hand these items over, or the queue, and watch until all have ended; return the exit code."""
    return asyncio.run(_hand_over(project, request, report, observer))


async def _hand_over(project: Project, request: RunRequest, report: RunReport, observer: Observer) -> int:
    where, clock = where_of(project), SystemClock()
    began = clock.seconds()
    client = await connect(project.settings.temporal, project.env)
    state_store_for(project, project.tracker).refresh()
    items = _items(project, request)
    if not items:
        report.ended_because = "nothing is left to do"
        return 0
    budget = budget_of(project.settings).run
    jobs = _JOBS if project.settings.execution.jobs == 1 else jobs_of(project)
    job = RunJob(tuple(items), where, cap_of(project, request), jobs, budget)
    handle = await client.start_workflow(
        RUN,
        job,
        id=run_id(where.project),
        task_queue=shared_queue(where.project, where.label),
        result_type=RunProgress,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        start_signal="add",
        start_signal_args=[job.items],
    )
    observer.event(_STREAM, RunStarted(at=clock.now(), cap=job.cap, jobs=min(jobs, len(items)), budget=budget))
    with closing(project.journal(read_only=True)) as journal:
        shown = _Shown(journal, observer, [item.asked.item for item in items])
        progress = await _watch(handle, shown.show)
    _write_up(report, progress, project)
    if request.items:
        report.exit_code = max([report.exit_code, *(end.exit_code for end in progress.ended)])
    report.seconds = clock.seconds() - began
    return report.exit_code


class _Shown:
    """What has been shown of the missions of a run; a step that begins anew, because something was recorded first, is
    shown once."""

    def __init__(self, journal: JournalReader, observer: Observer, items: Sequence[str]) -> None:
        self._journal, self._observer = journal, observer
        self._seen = {item: len(journal.events(item)) for item in items}
        self._begun: dict[str, str] = {}

    def show(self, missions: Sequence[str]) -> None:
        """Show what has happened to these missions since the last look."""
        for mission in missions:
            for number, event in self._journal.events(mission, after=self._seen.get(mission, 0)):
                self._seen[mission] = number
                if isinstance(event, StepBegun):
                    if event.spawns:
                        self._observer.event(_STREAM, Spawned(at=event.at, mission=mission, key=event.key))
                    elif self._begun.get(mission) == event.key:
                        continue
                    self._begun[mission] = event.key
                self._observer.event(mission, event)


def _items(project: Project, request: RunRequest) -> list[RunItem]:
    """Return the items to do, each with those it has to wait for."""
    tracker, named = project.tracker, request.items
    for item in named:
        refuse_container(tracker.item(item))
    everything = tracker.everything()
    states = states_of(project, [item.id for item in everything])
    places = queued(project, states, everything, resumed=named)
    reach = within_reach(places, (), named or None)
    asked = Asked(
        "",
        workflow=request.workflow,
        model=request.model,
        verify=request.verify,
        max_retries=request.max_retries,
        fresh=request.fresh,
        rebase=request.rebase,
        take_over=request.take_over,
    )
    chosen = [place for place in places if place.item.id in reach or place.item.id in named]
    return [
        RunItem(replace(asked, item=place.item.id), tuple(name for name in place.waits_for if name in reach))
        for place in chosen
    ]


async def _watch(handle: WorkflowHandle[object, RunProgress], show: Callable[[Sequence[str]], None]) -> RunProgress:
    """Show what happens until the run has ended."""
    while True:
        try:
            described = await handle.describe()
            progress: RunProgress = await handle.query("progress", result_type=RunProgress)
        except RPCError:  # no worker, or no server, at the moment
            await asyncio.sleep(_LOOK)
            continue
        show([*progress.under_way, *(end.item for end in progress.ended)])
        if described.status is not WorkflowExecutionStatus.RUNNING:
            return progress
        await asyncio.sleep(_LOOK)


def _write_up(report: RunReport, progress: RunProgress, project: Project) -> None:
    """Write into the report how the missions have ended."""
    report.spawns, report.cap, report.spent = progress.spawns, progress.cap, progress.spent
    for end in progress.ended:
        if end.word == "done":
            report.done.append(end.item)
        elif end.word == "failed":
            report.failed[end.item] = end.why
        else:
            report.blocked[end.item] = end.why
    report.states = states_of(project, [end.item for end in progress.ended])
    report.left = progress.left
    report.ended_because = progress.why or (
        "nothing else can be worked on" if progress.left else "nothing is left to do"
    )
    report.exit_code = 3 if progress.why.startswith("breaker") else 1 if report.failed or report.blocked else 0
