"""The merge queue of a branch as a workflow: one mission at a time has its turn, first come first served."""

from __future__ import annotations

from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from capsule.temporal.messages import IS_OPEN, MERGES, MergesJob, TurnWish

_LOOK = timedelta(seconds=30)
"""How often it looks whether the mission that has its turn is still there."""
_IDLE = timedelta(minutes=10)


@workflow.defn(name=MERGES)
class MergesWorkflow:
    """The missions that wait to be merged into one branch."""

    def __init__(self) -> None:
        self._line: list[TurnWish] = []
        self._over: set[tuple[str, str]] = set()

    @workflow.run
    async def run(self, job: MergesJob) -> None:
        self._line = [*job.line, *self._line]
        while not workflow.info().is_continue_as_new_suggested():
            try:
                await workflow.wait_condition(lambda: bool(self._line), timeout=_IDLE)
            except TimeoutError:
                return
            await self._serve(self._line[0], job)
            self._line.pop(0)
        workflow.continue_as_new(MergesJob(job.queue, tuple(self._line)))

    async def _serve(self, wish: TurnWish, job: MergesJob) -> None:
        """Give a mission its turn, and wait until it gives that back or is gone."""
        done = wish.mission, wish.request
        handle = workflow.get_external_workflow_handle(wish.mission)
        try:
            await handle.signal("turn", wish.request)
        except Exception as error:  # noqa: BLE001 - the SDK names no class for a workflow that is not there
            workflow.logger.info("%s is gone: %s", wish.mission, error)
            return
        while done not in self._over:
            try:
                await workflow.wait_condition(lambda: done in self._over, timeout=_LOOK)
            except TimeoutError:
                is_open = await workflow.execute_activity(
                    IS_OPEN,
                    wish.mission,
                    task_queue=job.queue,
                    result_type=bool,
                    start_to_close_timeout=timedelta(seconds=60),
                )
                if not is_open:
                    return
        self._over.discard(done)

    @workflow.signal
    def wish(self, wish: TurnWish) -> None:
        """Queue a mission up, once, or take its turn back."""
        if wish.over:
            self._over.add((wish.mission, wish.request))
            self._line[1:] = [each for each in self._line[1:] if each.mission != wish.mission]
        elif all((each.mission, each.request) != (wish.mission, wish.request) for each in self._line):
            self._line.append(wish)

    @workflow.query
    def line(self) -> list[str]:
        return [wish.mission for wish in self._line]
