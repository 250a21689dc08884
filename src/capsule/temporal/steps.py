"""Do one step of a mission on this machine, in a process of its own, which a worker starts.

The mission's recorded events are fetched from the remote into a journal of this step alone. The engine works on that as
it does anywhere. What it adds goes back to the remote with its checkpoints, and to the workflow as the report, which is
the record: the next step begins from what the workflow knows.

Two things have to be recorded before a step may go on: that the mission has its turn to merge, and which commit is
about to become main. There the step ends early, and the workflow has it done again with that on record.
"""

from __future__ import annotations

import os
import platform
import signal
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from shutil import rmtree

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from capsule.adapters import Beside
from capsule.app.endings import take_away
from capsule.app.missions import mission_state
from capsule.app.planning import MissionPlan, RunRequest, check_agents, exclude_our_files, plan_mission
from capsule.core.budget import Spending
from capsule.core.claim import Holder
from capsule.core.errors import CapsuleError, Interrupted, LockHeld, Refused, RemoteFault
from capsule.core.event import MERGES, Abandoned, Allowance, Event, Proposed, Stopped
from capsule.core.history import NOBODY, read_mission
from capsule.core.item import check_id
from capsule.core.state import MissionState, Step, next_step, replay
from capsule.core.status import MissionStatus
from capsule.engine.job import load_state, note, place_of
from capsule.engine.run_mission import make_ready, run_one, starts_agent, stopped
from capsule.journals.sqlite import SqliteJournal
from capsule.project import Project, open_project, open_tracker
from capsule.reports.live import FanOut
from capsule.rules import words_at
from capsule.services import RunLimits, Services
from capsule.system.clock import SystemClock
from capsule.system.lock import held
from capsule.system.stop import Stop
from capsule.temporal.messages import Permit, StepReport, StepTask, Trouble, Upcoming
from capsule.wiring import follow_remote, open_services, state_store_for
from capsule.workspaces.claims import Lasting, RemoteClaims
from capsule.workspaces.mission_events import MissionEvents

_PATIENCE = 30.0
"""Seconds that a step waits for one of the same mission that is being ended on this machine."""
_RUNNING = MissionStatus.RUNNING.value
_LONGEST_PAUSE = 30.0
"""Seconds between two tries to reach a remote."""
STEP = "_step"
"""The command by which a worker starts a step; people do not type it."""


class TurnWanted(CapsuleError):
    """The mission has to wait for its turn to merge."""

    def __init__(self, branch: str) -> None:
        super().__init__(f"Its turn to merge into {branch} comes first.")
        self.branch = branch


class RecordFirst(CapsuleError):
    """An event has to be on record before the step may go on."""


class StepJournal(SqliteJournal):
    """The journal of one step: it ends the step where something has to be recorded first."""

    turn = False
    known: Collection[str] = ()
    """The commits that are on record as about to become main."""

    @contextmanager
    def claim(self, stream: str) -> Iterator[int]:
        if stream.startswith(MERGES) and not self.turn:
            raise TurnWanted(stream.removeprefix(MERGES))
        with super().claim(stream) as epoch:
            yield epoch

    def note(self, stream: str, event: Event, beside: Beside | None = None) -> None:
        super().note(stream, event, beside)
        if isinstance(event, Proposed) and event.commit not in self.known:
            raise RecordFirst(f"{event.commit} is on record first.")


class StepProject(Project):
    """The project as one step sees it: its journal has the events of one mission."""

    journal_folder: Path
    step: StepTask
    known: Collection[str] = ()

    def journal(self, *, read_only: bool = False) -> StepJournal:
        redact = lambda event: self.redactor.event(event)  # noqa: E731, PLW0108 - as in any project
        journal = StepJournal(self.journal_folder, read_only=read_only, redact=redact)
        journal.turn, journal.known = self.step.turn, self.known
        return journal


class Permitted(RunLimits, frozen=True):
    """The limits of a step that its run has admitted."""

    permit: Permit

    def spending(self) -> Spending:
        return self.permit.spent

    def may_use(self, step: Step) -> Allowance | None:  # noqa: ARG002
        return self.permit.share


def claims_for(project: Project, owner: str) -> RemoteClaims:
    """Open the claim of a mission: any of its workers holds it, and it keeps runs of single clones away.

    It lasts as long as that of a mission which waits, because nobody renews it between two steps.
    """
    chosen = project.settings.merge
    lasting = Lasting(chosen.claim_hours * 3600, chosen.claim_hours * 3600)
    holder = Holder(f"temporal/{owner}", platform.node(), owner)
    return RemoteClaims(project.git, chosen.remote, chosen.claims, lasting, holder=holder)


class _End(Struct, frozen=True):
    """How the work in a step ended."""

    upcoming: Upcoming | None = None
    wants_turn: str = ""
    trouble: Trouble | None = None


def do_step(root: str, task: StepTask) -> StepReport:
    """Do a step, or what comes before the first one, and report what has changed."""
    project = _opened(root, task)
    mission, store = check_id(task.asked.item), project.mission_events()
    with Stop() as stop:
        try:
            tip = store.fetch(mission)
            if not (task.stays or task.leaves or task.tidies):
                follow_remote(project, stop)  # its settings and its tracker are those of the remote
                project = _opened(root, task)
        except RemoteFault as fault:
            return StepReport(task.host, task.at, trouble=_trouble(fault))
        at = task.at or tip
        if task.tidies and tip != at:  # the mission goes on, perhaps here
            return StepReport(task.host, task.at)
        recorded = store.read(at)
        project.step, project.known = task, {event.commit for event in recorded if isinstance(event, Proposed)}
        with _journal(project, mission, recorded) as journal:
            end = _ended(project, task, stop)
            events = [event for _, event in journal.events(mission)]
        new, now = events[len(recorded) :], SystemClock().now()
        commit = _put(store, task, at, new, stop) if new else at
    return StepReport(
        host=task.host,
        at=commit,
        events=tuple(new),
        state=replay(recorded) if not task.key and recorded else None,
        upcoming=end.upcoming,
        word=_RUNNING if end.upcoming else read_mission(events).summary(NOBODY, now).status.value if events else "",
        why=halt.reason if (halt := replay(events).halt) else "",
        wants_turn=end.wants_turn,
        trouble=end.trouble,
    )


def _opened(root: str, task: StepTask) -> StepProject:
    flags = {"agent": task.asked.agent or None, "verify": task.asked.verify or None}
    project = open_project(root, flags, StepProject)
    assert isinstance(project, StepProject)
    return project


def _ended(project: StepProject, task: StepTask, stop: Stop) -> _End:
    """Work, and say what ended that."""
    try:
        return _End(_work(project, task, stop))
    except TurnWanted as wanted:
        return _End(Upcoming(task.key), wanted.branch)
    except RecordFirst:
        return _End(Upcoming(task.key))
    except Interrupted:
        raise
    except CapsuleError as fault:
        return _End(trouble=_trouble(fault))


def _trouble(fault: CapsuleError) -> Trouble:
    passes = type(fault) is LockHeld or (isinstance(fault, RemoteFault) and fault.trouble.passes)
    return Trouble(type(fault).__name__, fault.message, fault.hint, fault.exit_code, passes)


def _put(store: MissionEvents, task: StepTask, at: str, events: Sequence[Event], stop: Stop) -> str:
    """Put events at the remote; wait for it as long as the step may take: the work is done, and would be lost."""
    tries = 0
    while True:
        try:
            return store.add(task.asked.item, at, events, task.fence, SystemClock().now())
        except RemoteFault as fault:
            if not fault.trouble.passes:
                raise
            tries += 1
            if not stop.wait(min(_LONGEST_PAUSE, 2.0**tries)):
                raise Interrupted(f"Stopped while {task.asked.item} was waiting for {fault.remote}.") from None


@contextmanager
def _journal(project: StepProject, mission: str, recorded: Sequence[Event]) -> Iterator[StepJournal]:
    """Make the journal of this step, with the recorded events of its mission; remove it afterwards."""
    folder = project.journal_folder = project.state_folder / "temporal" / mission
    with held(project.state_folder / "locks" / f"step-{mission}.lock", _PATIENCE):
        rmtree(folder, ignore_errors=True)
        with closing(project.journal()) as journal:
            journal.fill(mission, recorded)
            yield journal
        rmtree(folder, ignore_errors=True)


def _work(project: StepProject, task: StepTask, stop: Stop) -> Upcoming | None:
    """Do it; return the next step, None if there is none."""
    mission = task.asked.item
    if task.leaves or task.tidies:
        _leave(project, task, stop)
        return None
    claims = claims_for(project, task.owner)
    state_store_for(project, project.tracker).refresh()
    project.tracker = open_tracker(project)
    plan = None if task.key else _planned(project, task)
    words = plan.words if plan else words_at(project, mission_state(project, mission).base)
    with (
        open_services(
            project, project.tracker, words, FanOut(), stop, model=task.asked.model, held_claims=claims
        ) as opened,
        opened.journal.claim(mission),
    ):
        services = replace(opened, run_limits=Permitted(task.permit) if task.permit else RunLimits())
        if not task.asked.fresh or task.key:  # before it is started: what lies here is old, and no edit of a person's
            _bring_here(load_state(services, mission), task, services)
        if plan:
            _start(plan, task, services)
        try:
            state = run_one(mission, task.key, services, lost=task.lost)
        except (TurnWanted, RecordFirst, Interrupted):
            raise
        except CapsuleError as fault:
            note(services, mission, stopped(fault, services))
            raise
        if state.started and not (state.under_way or state.in_review):
            claims.release(mission)
        step = next_step(state)
        return Upcoming(step.key, starts_agent(state, services)) if step else None


def _leave(project: StepProject, task: StepTask, stop: Stop) -> None:
    """Put on record why a mission stops, or remove its place here after it has ended elsewhere."""
    mission, state = task.asked.item, mission_state(project, task.asked.item)
    if not state.started:
        return
    words = words_at(project, state.base)
    with (
        open_services(project, project.tracker, words, FanOut(), stop) as services,
        services.journal.claim(mission),
    ):
        if task.leaves:
            why = task.leaves
            now = services.clock.now()
            event = Stopped(at=now, cause=why.message, exit_code=why.exit_code, error=why.kind, hint=why.hint)
            note(services, mission, event)
        if task.tidies:
            place = place_of(state, services)
            place.salvage("left on this machine")
            place.remove(branch=True)


def _planned(project: StepProject, task: StepTask) -> MissionPlan:
    asked = task.asked
    request = RunRequest(
        items=(asked.item,),
        workflow=asked.workflow,
        model=asked.model,
        max_retries=asked.max_retries,
        fresh=asked.fresh,
        rebase=asked.rebase,
        take_over=asked.take_over,
    )
    plan = plan_mission(project, asked.item, request)
    if any(phase.workflow for phase in plan.order.workflow.phases):
        name = plan.order.workflow.name
        hint = f"Run it on one machine: capsule run {asked.item} --on local"
        raise Refused(f"A phase of the workflow {name} runs missions of its own, which workers cannot do.", hint)
    return replace(plan, order=replace(plan.order, notes=asked.notes))


def _start(plan: MissionPlan, task: StepTask, services: Services) -> None:
    """Claim the item, and start the mission or continue it."""
    order, state = plan.order, plan.state
    services.claims.take(order.mission, services.trunk(order.into).holds, take_over=order.take_over)
    check_agents(plan, services)
    exclude_our_files(plan)
    if state.started and task.asked.fresh and not state.abandoned:
        salvage = take_away(services, order.mission, why="started over", branch=True)
        note(services, order.mission, Abandoned(at=services.clock.now(), how="started over", salvage=salvage))
    make_ready(order, services)


def _bring_here(state: MissionState, task: StepTask, services: Services) -> None:
    """Make the place of a mission whose last step was done on another machine; salvage what lies there."""
    if state.checkpoint is None or state.abandoned:
        return
    place = place_of(state, services)
    if not (task.stays and place.path.exists()):
        place.prepare(state.base)
        place.restore(state.checkpoint)


# ---- the process


def run_step() -> int:
    """Do the step whose task is on stdin, and report on stdout; return the exit code.

    Where stdin ends the worker is gone: then this process kills itself, and its supervisor ends the agent.
    """
    out = os.dup(1)
    os.dup2(2, 1)  # prints go to people
    with os.fdopen(os.dup(0), "rb") as stdin:
        root, task = msgspec.json.decode(stdin.readline(), type=tuple[str, StepTask])
        threading.Thread(target=_end_with, args=[stdin.fileno()], daemon=True).start()
        report = do_step(root, task)
        with os.fdopen(out, "wb") as told:
            told.write(msgspec.json.encode(report))
    return 0


def _end_with(worker: int) -> None:
    """Wait until the worker is gone, and kill this process."""
    while os.read(worker, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
