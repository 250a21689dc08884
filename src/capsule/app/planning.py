"""Plan a mission: turn a request into an order, and refuse before anything is created."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from capsule.adapters import Order
from capsule.app.elsewhere import refuse_items_of_one_clone
from capsule.app.items import refuse_files_as_folders
from capsule.app.missions import mission_state
from capsule.catalog import Catalog
from capsule.core.errors import CapsuleError, Refused, RemoteFault, SettingsError, UsageError, lost_objects_of
from capsule.core.event import MissionStarted
from capsule.core.item import Item, Status
from capsule.core.remote import SAYS, Kind, Trouble
from capsule.core.state import MissionState, apply
from capsule.core.text import did_you_mean, nearest, sentence
from capsule.core.workflow import Workflow
from capsule.engine.brief import check_prompts
from capsule.engine.job import only_to_be_closed
from capsule.project import Project, left_apart
from capsule.rules import choose_workflow, policy_at, words_at
from capsule.services import Services
from capsule.system.git import check_version
from capsule.system.sandbox import level
from capsule.wiring import SKILLS, open_forge, upstream_of, uses_skills
from capsule.workspaces import repository
from capsule.workspaces.disk_space import disk_shortage
from capsule.workspaces.remote_state import Upstream


class RunRequest(Struct, frozen=True):
    """The options of `capsule run`, as plain values."""

    items: tuple[str, ...] = ()
    """Empty: the queue."""
    cap: int | None = None
    triage_first: bool = False
    on_failure: str = ""
    workflow: str = ""
    verify: str = ""
    model: str = ""
    max_retries: int | None = None
    base: str = ""
    into: str = ""
    fresh: bool = False
    rebase: bool = False
    allow_dirty: bool = False
    record: str = ""
    replay: str = ""
    take_over: bool = False


class MissionPlan(Struct, frozen=True):
    """A mission that can run: its order, and the findings of the planning."""

    project: Project
    words: Catalog
    state: MissionState
    order: Order
    notes: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        return self.state.finished and self.order.item.status is Status.DONE

    @property
    def began(self) -> bool:
        """Tell whether a mission, or a worktree by `prep`, exists to be started over."""
        return self.state.started or bool(_prepared_base(self.project, self.order.mission))

    @property
    def merged_already(self) -> bool:
        """Tell whether the mission is merged and only its item is still to be closed."""
        return only_to_be_closed(self.state) and self.order.item.status is Status.IN_PROGRESS


def plan_mission(
    project: Project, item_id: str, request: RunRequest, *, start: str = "", offline_ok: bool = False
) -> MissionPlan:
    """Plan a mission; refuse what is missing, with a hint, before anything is created.

    `start` is the ref that the mission starts from; default: what is checked out. If work is merged at a remote, it is
    the tip there, by default: `offline_ok` takes the last one that was fetched where there is no newer one.
    """
    tracker = project.tracker
    item = tracker.item(item_id)
    state = mission_state(project, item_id)
    closed = item.status is Status.DONE and not state.under_way and not state.finished
    if closed and item_id not in {each.id for each in tracker.everything()}:  # those still have to be archived
        there = tracker.traits.own_command("reopen", item_id, ".")
        raise Refused(f"{item_id} is closed already.", f"Reopen it in its tracker if there is more to do{there}")
    check_repository(project)
    if tracker.traits.authoritative and (left := left_apart(project)):
        hint = (
            "Copy BACKLOG.yaml and _worklog from there into the project and commit them, then: "
            "git worktree remove .capsule/backlog"
        )
        raise Refused(f"{sentence(left)} Both may hold {item_id}.", hint)
    refuse_files_as_folders(project, tracker.traits.folders)
    going_on = state.under_way and not request.fresh
    prepared = "" if state.started or request.fresh else _prepared_base(project, item_id)
    fetched, at_remote = _at_remote(project, state if going_on else None, item_id, request, offline_ok=offline_ok)
    chosen = prepared or (request.base and repository.base_of(project.git, request.base))
    base = state.base if going_on else chosen or fetched or repository.base_of(project.git, start or "HEAD")
    with lost_objects_of(item_id):
        words = words_at(project, base)
        policy, warnings = policy_at(project, base)
        if going_on and state.workflow.workspace == "worktree" and "merged" not in state.facts:
            repository.refuse_if_rewritten(
                project.git, item_id, base, state.into, rebase=request.rebase, fetched=fetched
            )
    workflow = state.workflow if going_on else choose_workflow(project, item, words, request.workflow)
    if item.phase:
        _check_phase(project, item, workflow, state, going_on=going_on)
    if going_on:
        into, notes = state.into, _fixed_at_the_start(request)
        if workflow.publishes_steps:
            _check_steps_go_on(project, item_id, into)
    elif workflow.publishes_steps:
        into, notes = _step_by_step(project, request), ()
        base = repository.base_of(project.git, f"refs/heads/{into}")
    else:
        held = bool(prepared or request.base or start or fetched)
        into, notes = _merged_at_the_end(project, base, request, held=held, fetched=fetched)
        notes += at_remote if base == fetched else ()
    order = Order(
        mission=item_id,
        item=item,
        workflow=workflow,
        base=base,
        into=into,
        policy=policy,
        lineage=tracker.lineage(item),
        retries=request.max_retries,
        rebase=request.rebase,
        take_over=request.take_over and item_id in request.items,
    )
    room = "" if going_on else disk_shortage(project.git, project.env)
    told = (*project.loaded.warnings, *_without_effect(project, words, workflow), *notes, *warnings)
    told += (room,) if room else ()
    return MissionPlan(project, words, state, order, told)


def _check_steps_go_on(project: Project, item_id: str, into: str) -> None:
    """Refuse to go on with steps that cannot be committed to their branch any more."""
    if project.state_branch:
        cause = f"{item_id} commits its steps to {into} itself, and `merge.to: request` came after it began."
        raise Refused(cause, "Finish it with `merge.to: remote` or `local` first.")
    if into != project.branch:
        on = f"{project.branch} is checked out" if project.branch else "HEAD is detached"
        raise Refused(f"{item_id} works for {into}, and {on}.", f"Switch to it: git switch {into}")


def _check_phase(project: Project, item: Item, workflow: Workflow, state: MissionState, *, going_on: bool) -> None:
    """Refuse a phase that the workflow lacks, as a typo must not start at the first one, or whose work is not here."""
    phase, earlier = item.phase.lower(), state.workflow
    if phase not in workflow.names():
        if phase in earlier.names():
            cause = f"{item.id}: {item.phase!a} is no phase of the workflow {workflow.name}, but of {earlier.name}."
            fresh = "" if earlier.publishes_steps else " --fresh"
            raise Refused(cause, f"Run it by that one: {command_to_run(project, item, earlier.name, fresh)}")
        hint = did_you_mean(item.phase, workflow.names(), f"There are: {', '.join(workflow.names())}.", quote="")
        raise CapsuleError(f"{item.id}: {item.phase!a} is no phase of the workflow {workflow.name}.", hint)
    if not going_on and phase != workflow.entry() and workflow.phase(phase).doer == "do":  # removed from main again
        hint = f"Start it over: {command_to_run(project, item, workflow.name, ' --fresh')}"
        raise Refused(f"{item.id} is at {item.phase}, and its work is not here.", hint)


def command_to_run(project: Project, item: Item, workflow: str, options: str = "") -> str:
    """Return the command that runs an item by this workflow, which is named unless it is chosen anyway."""
    usual = choose_workflow(project, item, words_at(project, project.git.resolve("HEAD"))).name
    return f"capsule run {item.id}{options}{f' --workflow {workflow}' if workflow not in ('', usual) else ''}"


def check_repository(project: Project) -> None:
    """Refuse an old git, a git without an identity, and a repository in the middle of an operation."""
    check_version()
    project.git.identity  # noqa: B018 - raises without an identity
    repository.refuse_if_under_way(project.git)


def _without_effect(project: Project, words: Catalog, workflow: Workflow) -> list[str]:
    """Name settings that have no effect on this workflow."""
    named = {name for agent in project.settings.agents.values() for name in agent.phases}
    strange = sorted(named - {*workflow.names()})
    known = {*workflow.names(), *(_every_phase(words) if strange else ())}
    notes = []
    for name in (name for name in strange if name not in known):
        near = nearest(name, known)
        notes.append(f"agents: there is no phase {name!r}.{f' Did you mean {near[0]}?' if near else ''}")
    if any(phase.skill for phase in workflow.phases) and project.settings.skills == "auto":
        idle = (project.root / SKILLS).is_dir() and not uses_skills(project)
        agent = project.settings.agent
        notes += [f"the skills in {SKILLS} are not used: agents.{agent}.trust_project lets {agent} find them."] * idle
    if project.settings.workspace.publish == "steps" and project.settings.merge.to == "request":
        notes.append("workspace.publish: steps has no effect with merge.to: request, which proposes work at the end.")
    if project.settings.confinement.test_network == "own" and not level(project.settings.sandbox, project.env).mounts:
        notes.append("confinement.test_network: own has no effect here: only bubblewrap gives tests a network.")
    return notes


def _every_phase(words: Catalog) -> Iterator[str]:
    for name in words.names("workflow"):
        with suppress(CapsuleError):  # one that cannot be read is reported elsewhere
            yield from words.workflow(name).names()


def _fixed_at_the_start(request: RunRequest) -> tuple[str, ...]:
    """Name the given options that are fixed by now."""
    given = ", ".join(f"--{name}" for name in ("base", "into", "workflow", "verify") if getattr(request, name))
    note = f"{given}: fixed when the mission started, and left as it was; --fresh starts over."
    return (note,) if given else ()


def _prepared_base(project: Project, item_id: str) -> str:
    """Return the base of a worktree that `prep` made; '' where there is none."""
    ref = f"refs/capsule/base/{item_id}"
    return project.git.refs(ref).get(ref, "")


def _into(project: Project, request: RunRequest) -> str:
    """Return the branch that new work is merged into."""
    into = request.into or repository.main_branch(project.git, project.settings.project.main)
    if request.into and not project.git.resolve(f"refs/heads/{into}"):
        raise CapsuleError(f"There is no branch {into}.", "List the branches there are: git branch")
    return into


def _at_remote(
    project: Project, going_on: MissionState | None, item_id: str, request: RunRequest, *, offline_ok: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the tip at the remote if work is merged there, and what to say about it; one known will do to go on."""
    if project.settings.merge.to == "local":
        return "", ()
    _refuse_what_stays_here(project)
    if project.tracker.traits.authoritative and not project.state_branch:  # the branch followed when the run began
        return "", ()
    into = going_on.into if going_on else _into(project, request)
    upstream = upstream_of(project, into)
    if going_on and not request.rebase:
        return upstream.remote.tip(upstream.branch) if upstream else "", ()
    return tip_at_remote(project, into, item_id, last=offline_ok)


def tip_at_remote(project: Project, into: str, what: str, *, last: bool = False) -> tuple[str, tuple[str, ...]]:
    """Fetch the tip of the branch at the remote, and note where it is; refuse if the remote does not say.

    With `last`, the tip that was fetched last will do.
    """
    _refuse_what_stays_here(project)
    upstream = upstream_of(project, into)
    if upstream is None:
        return "", ()
    if project.settings.merge.to == "request":
        open_forge(project).check()
    remote, branch = upstream
    found, known = remote.fetch(branch), remote.tip(branch)
    if isinstance(found, Trouble) and not (last and known):
        raise _not_begun(upstream, found, what)
    tip = known if isinstance(found, Trouble) else found
    stale = f" as it was fetched last ({remote.name} {SAYS[found.kind]})" if isinstance(found, Trouble) else ""
    git, ours = project.git, project.git.ref(f"refs/heads/{into}")
    differs = f"; your {into} is behind it" if git.is_ancestor(ours, tip) else f"; your {into} has commits it lacks"
    note = f"{what} starts from {upstream.label} at {tip[:12]}{stale}{differs if ours != tip else ''}."
    return tip, (note,)


def _not_begun(upstream: Upstream, trouble: Trouble, what: str) -> RemoteFault:
    hints = {
        Kind.OFFLINE: f"Run it again once it answers: git fetch {upstream.remote.name}",
        Kind.REFUSED: f"Try it by hand until it works: git fetch {upstream.remote.name}",
        Kind.ABSENT: "Name what there is in .capsule/config.yaml: `merge.remote` and `merge.branch` (git remote -v)",
    }
    fault = RemoteFault(upstream.label, trouble, hints.get(trouble.kind, "Run it again."))
    fault.message = f"{sentence(fault.message)} {what} was not begun."
    return fault


def _refuse_what_stays_here(project: Project) -> None:
    """Refuse settings that put commits only on the user's own branch, which could not follow the remote any more."""
    chosen = project.settings
    elsewhere = f"merge.to: {chosen.merge.to} merges elsewhere"
    if chosen.tracker.commit:
        cause = f"tracker.commit commits to your own branch, and {elsewhere}."
        raise SettingsError(cause, "Set tracker.commit to `false`, and commit the tracker's files yourself.")
    refuse_items_of_one_clone(project)


def _merged_at_the_end(
    project: Project, base: str, request: RunRequest, *, held: bool, fetched: str
) -> tuple[str, tuple[str, ...]]:
    """Return the branch that the work is merged into, and note uncommitted edits, which are not part of it."""
    into = _into(project, request)
    if fetched:
        repository.refuse_if_it_lacks(project.git, fetched, base, into)
    else:
        repository.refuse_if_ahead(project.git, base, into)
    dirty = repository.dirty_paths(project.git, project.tracker.own_files(), head="" if held else base)
    what = f"{len(dirty)} uncommitted change{'s are' if len(dirty) > 1 else ' is'} left alone in your checkout"
    note = f"{what}; the mission starts from {base[:12]}."
    return into, (note,) if dirty else ()


def _step_by_step(project: Project, request: RunRequest) -> str:
    """Return the branch that steps are committed to: the one that was checked out when the run began."""
    if request.base or request.into:
        hint = "Set workspace.publish to merge to have the work merged at the end."
        raise UsageError("--base and --into are for work that is merged; this one is published step by step.", hint)
    if not project.branch:
        hint = "Choose a branch: git switch NAME, or git switch -c NAME for a new one"
        raise CapsuleError("HEAD is detached, and steps are committed to a branch.", hint)
    return project.branch


def refuse_dirty(project: Project, request: RunRequest) -> None:
    """Refuse to begin with uncommitted changes, unless the user allowed it."""
    repository.refuse_if_gone(project.git)
    recording = os.path.relpath(request.record, project.root) if request.record else ""
    ours = (*project.tracker.own_files(), recording)
    dirty = [] if request.allow_dirty else repository.settled_dirty_paths(project.git, ours)
    if dirty:
        more = f" and {len(dirty) - 5} more" if len(dirty) > 5 else ""
        hint = "Commit them, or use --allow-dirty: it leaves your edits alone, and asks where work would change them."
        raise CapsuleError(f"The checkout has uncommitted changes: {', '.join(dirty[:5])}{more}.", hint)


def uncommitted_before(project: Project, item: Item) -> list[str]:
    """List the uncommitted changes that keep a run from starting with this item."""
    base = project.git.resolve("HEAD")
    if not base or not choose_workflow(project, item, words_at(project, base)).publishes_steps:
        return []
    return repository.dirty_paths(project.git, project.tracker.own_files())


def check_agents(plan: MissionPlan, services: Services) -> None:
    """Check every agent and every prompt of the workflow before the first one is paid."""
    check_prompts(services.words, expected_state(plan), skills=services.skills)
    for phase in plan.order.workflow.phases:
        if phase.prompt:
            services.agent(phase.agent, phase.model).check()
        if phase.escalate and phase.escalate.agent:
            services.agent(phase.escalate.agent, phase.escalate.model).check()


def exclude_our_files(plan: MissionPlan) -> None:
    """Add our files to git's ignore list: the last thing before a mission starts."""
    steps = plan.order.workflow.publishes_steps
    repository.exclude_artefacts(plan.project.git, plan.order.base, worklog=not steps)


def expected_state(plan: MissionPlan) -> MissionState:
    """Return the mission's state, or its state right after a start."""
    order = plan.order
    event = MissionStarted(
        at="", mission=order.mission, item=order.item, workflow=order.workflow, base=order.base, into=order.into,
        policy=order.policy, lineage=order.lineage,
    )  # fmt: skip
    return plan.state if plan.state.under_way else apply(MissionState(), event)
