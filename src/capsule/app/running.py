"""Run one item's mission, merge it, or prepare its worktree."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from capsule.adapters import Observer
from capsule.app.elsewhere import release_what_is_done
from capsule.app.endings import refuse_if_merged_unheard_of, take_away
from capsule.app.items import commit_tracker_files
from capsule.app.mission_processes import MissionProcesses, with_recording
from capsule.app.missions import mission_state
from capsule.app.planning import (
    MissionPlan,
    RunRequest,
    check_agents,
    check_repository,
    exclude_our_files,
    tip_at_remote,
)
from capsule.app.requests import follow, words_of
from capsule.catalog import Catalog
from capsule.core.campaign import is_container, to_do
from capsule.core.errors import CapsuleError, Refused
from capsule.core.event import Abandoned
from capsule.core.item import Status
from capsule.core.notification import BELL, channels
from capsule.core.state import MissionState
from capsule.core.workflow import Role, Workflow
from capsule.core.worklog import open_worklog, section_of, signed_off
from capsule.engine.job import LOST_WORKLOG, load_state, lost_worklog, note, place_of
from capsule.engine.run_mission import close_what_is_merged, move_to, run_until_halt
from capsule.project import Project
from capsule.reports.live import FanOut
from capsule.reports.notify import Notifier, Post
from capsule.rules import choose_workflow, words_at
from capsule.services import Services
from capsule.system.git_environment import absolute_entries
from capsule.system.process import end_leftovers
from capsule.system.sandbox import level
from capsule.system.stop import Stop
from capsule.wiring import open_services
from capsule.workspaces import repository

PLAIN, JSON, NONE = "plain", "json", "none"


class RunContext(Struct, frozen=True):
    """A requested run: its project, its options, its outputs."""

    project: Project
    request: RunRequest
    observer: Observer
    """It gets events; `tell` gets lines for people."""
    tell: Callable[[str], None]
    form: str = PLAIN
    """`json` leaves out hints that only people need, `none` leaves out progress too."""


def run_item(plan: MissionPlan, run: RunContext) -> MissionState:
    """Run a mission from its current state to its end or halt."""
    project, mission = plan.project, plan.order.mission
    if plan.done:
        end_leftovers(project.registry)  # a run killed right after its last step may have left processes, and logs
        project.logs().drop_working_folder(mission)
        release_what_is_done(project, mission)
        return plan.state
    with open_run(run, plan.words, plan.notes) as services:
        check_agents(plan, services)
        exclude_our_files(plan)
        for closed in close_what_is_merged(services):
            run.tell(f"note: {closed} was merged earlier; its item is closed now")
        if plan.merged_already:
            return load_state(services, mission)
        if plan.state.abandoned or (run.request.fresh and plan.began):
            if not plan.order.take_over:
                services.claims.refuse_if_held(mission)  # before anything is taken away
            refuse_if_merged_unheard_of(plan.state, services)
            with services.journal.claim(mission):
                salvage = take_away(services, mission, why="started over", branch=True)
                note(services, mission, Abandoned(at=services.clock.now(), how="started over", salvage=salvage))
            if salvage:
                run.tell(f"note: what was there is kept as {salvage}")
        elif plan.state.in_review and not run.request.rebase:
            state = _followed(services, mission, run)
            if state.in_review and not (plan.state.halt and state.halt):
                return state
            if not state.under_way:
                return state
        return run_until_halt(plan.order, services)


def _followed(services: Services, mission: str, run: RunContext) -> MissionState:
    """Ask what has become of the request, and say it."""
    found = follow(services, mission)
    for line in (f"note: {words_of(found)}", *found.warnings):
        run.tell(line)
    if found.fault:
        raise found.fault
    return found.state


@contextmanager
def open_run(run: RunContext, words: Catalog, notes: tuple[str, ...] = ()) -> Iterator[Services]:
    """Open the services of a run, with signals, notifications, and recording or replay if asked."""
    project, request = run.project, run.request
    _tell_notes(run, notes)
    with (
        Stop() as stop,
        _notified(project, run.observer) as observer,
        open_services(project, project.tracker, words, observer, stop, model=request.model) as opened,
    ):
        runners = MissionProcesses(project, request, observer, stop)
        services, told = with_recording(replace(opened, runners=runners), project, request)
        if told:
            run.tell(f"note: {told}")
        with _tracker_committed(run, request.into):
            yield services


@contextmanager
def _tracker_committed(run: RunContext, into: str) -> Iterator[None]:
    """Commit the tracker's own files at any end of the run; if that fails, report it and keep the run's own error."""
    project = run.project
    try:
        yield
    finally:
        try:
            if project.settings.tracker.commit and project.git.resolve("HEAD"):
                main = into or repository.main_branch(project.git, project.settings.project.main)
                commit_tracker_files(project, main)
        except CapsuleError as fault:
            run.tell(f"note: the tracker's files are not committed: {fault.message}")
        except OSError as fault:
            run.tell(f"note: the tracker's files are not committed: {fault.filename}: {fault.strerror}")


def _tell_notes(run: RunContext, notes: tuple[str, ...]) -> None:
    """Print the notes, and whether agents run unconfined, before the first one starts."""
    for text in notes:
        run.tell(f"note: {text}")
    wanted = run.project.settings.sandbox
    found = level(wanted, run.project.env) if run.form != JSON and wanted != "off" else None
    kept = "hooks and settings of the repository are checked after each phase"
    if found and not found.program:
        run.tell(f"note: not sandboxed: {found.why}; {kept}.")
    elif found and not found.proven:
        run.tell(f"note: sandboxed by {found.name}, untested on a Mac; {kept}.")


@contextmanager
def _notified(project: Project, observer: Observer) -> Iterator[Observer]:
    """Add the notifier that the settings ask for. At the end, give unsent notifications some seconds."""
    chosen = channels(project.settings.notify)
    if not chosen:
        yield observer
        return
    redactor, env = project.redactor, dict(project.env)
    if "PATH" in env:
        env["PATH"] = absolute_entries(env["PATH"])
    home = home_for_notifications(env.get("HOME", ""))
    post = Post(
        [one for one in chosen if one != BELL], env, home, secrets=redactor.spellings, registry=project.registry
    )
    name = redactor.text(project.root.name)
    with Notifier(name, post, partial(mission_state, project), bell=BELL in chosen) as notifier:
        yield FanOut(observer, notifier)


def home_for_notifications(home: str) -> Path:
    """Choose a directory away from the project: agents write there, and the command runs with the user's rights."""
    return Path(home) if Path(home).is_absolute() and Path(home).is_dir() else Path("/")


# ---- merge


def merge(plan: MissionPlan, run: RunContext) -> MissionState:
    """Merge a mission that is signed off, as its only stage."""
    project = plan.project
    _tell_notes(run, plan.notes)
    with (
        Stop() as stop,
        open_services(project, project.tracker, plan.words, run.observer, stop, model=run.request.model) as services,
        _tracker_committed(run, plan.order.into),
    ):
        if plan.state.in_review and not plan.state.halt:
            return _followed(services, plan.order.mission, run)
        _check_signed_off(plan, services)
        check_agents(plan, services)
        _restore_worklog(plan, services, run)
        if not _only_waits_to_be_published(plan, services):
            names = plan.order.workflow.names()
            move_to(plan.order, services, names[names.index(_last_review(plan.order.workflow)) + 1])
        return run_until_halt(plan.order, services)


def _restore_worklog(plan: MissionPlan, services: Services, run: RunContext) -> None:
    """Restore the worklog of a mission under way if it is missing, and say so."""
    if plan.state.under_way and (lost := lost_worklog(place_of(plan.state, services), plan.state.checkpoint)):
        place_of(plan.state, services).write_worklog(lost)
        run.tell(f"note: {LOST_WORKLOG}.")


def _only_waits_to_be_published(plan: MissionPlan, services: Services) -> bool:
    """Tell whether the merge agent is done and the place is unchanged since: then no agent is needed."""
    state, names = plan.state, plan.order.workflow.names()
    if not (state.under_way and state.halt and state.checkpoint):
        return False
    place = place_of(state, services)
    past = names.index(state.to_do[0]) > names.index(_last_review(plan.order.workflow)) + 1
    return past and place.head() == state.checkpoint.head and not place.touched_outside_commit()


def _check_signed_off(plan: MissionPlan, services: Services) -> None:
    """Refuse a mission without sign-off: by its journal, else by the last verdict in the worklog's own section."""
    mission, workflow = plan.order.mission, plan.order.workflow
    place = services.place(mission, plan.order.into if workflow.publishes_steps else "")
    if not place.path.is_dir():
        raise CapsuleError(f"{mission} has no worktree.", f"Make one with `capsule run {mission}`.")
    last = _last_review(workflow)
    if plan.state.runs and plan.state.under_way:
        passed = last in plan.state.approved
    elif not (worklog := place.worklog().strip()):
        message = f"{mission} is not signed off: its worktree has no worklog.md, or an empty one."
        raise Refused(message, f"Restore it with its sign-off, or go on with `capsule run {mission}`.")
    else:
        passed = signed_off(worklog, section_of(workflow, last))
    if not passed:
        raise Refused(f"{mission} is not signed off: {last} has not passed.", f"Go on with `capsule run {mission}`.")


def _last_review(workflow: Workflow) -> str:
    reviews = [phase.name for phase in workflow.phases[:-1] if phase.role is Role.REVIEW]
    if not reviews:
        raise Refused(
            f"The workflow {workflow.name!r} has no review that could sign off.", "Use `capsule run` instead."
        )
    return reviews[-1]


# ---- prepare


def _base_of_a_place(project: Project, item_id: str) -> tuple[str, tuple[str, ...]]:
    base = repository.base_of(project.git, "HEAD")
    main = repository.main_branch(project.git, project.settings.project.main)
    if project.settings.merge.to != "local":
        return tip_at_remote(project, main, item_id)
    ahead = repository.ahead_of(project.git, base, main)
    return base, (f"HEAD holds commits that {main} lacks; they would be merged too.",) if ahead else ()


def prepare(project: Project, item_id: str) -> tuple[Path, str, tuple[str, ...]]:
    """Make a worktree and a worklog for an item; return the worktree, its branch, and notes."""
    tracker = project.tracker
    item = tracker.item(item_id)
    if item.status is Status.DONE:
        raise Refused(f"{item_id} is closed already.", "Reopen it in its tracker if there is more to do.")
    if is_container(item):
        left = to_do(tracker.under(item.id))
        hint = f"Name one of them: capsule prep {left[0].id}" if left else "There is nothing to work on in it."
        raise Refused(f"{item.id} holds other items, so it has no worktree of its own.", hint)
    check_repository(project)
    base, told = _base_of_a_place(project, item_id)
    repository.exclude_artefacts(project.git, base)
    words = words_at(project, base)
    with open_services(project, tracker, words, FanOut(), None) as services, services.journal.claim(item_id):
        place = services.place(item_id, "")
        if place.path.exists():
            raise Refused(
                f"{item_id} has a worktree already: {place.path}.",
                f"Go on with `capsule run {item_id}`, or remove it with `capsule clean {item_id}`.",
            )
        notes = place.prepare(base)
        template = words.template("worklog.md.template")
        workflow = choose_workflow(project, item, words)
        state = MissionState(item=item, workflow=workflow, lineage=tracker.lineage(item))
        worklog = open_worklog(template, state, services.clock.now())
        place.write_worklog(services.redact(worklog))
        (project.root / ".capsule" / "logs").mkdir(parents=True, exist_ok=True)
        return place.path, place.branch, (*told, *notes)
