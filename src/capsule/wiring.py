"""Settings → Services: the only place that chooses which adapter is which."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace

from capsule.adapters import Agent, Claims, JournalReader, Observer, Place, Ran, StateStore, Tracker
from capsule.agents import _recording
from capsule.agents._cli import Connection
from capsule.catalog import Catalog
from capsule.core.briefing import SandboxPaths
from capsule.core.budget import Budget
from capsule.core.documents import is_of_an_item, is_of_another_item, own_documents
from capsule.core.errors import CapsuleError, SettingsError
from capsule.core.event import Allowance
from capsule.core.evidence import Evidence
from capsule.core.history import NOBODY, read_mission
from capsule.core.redaction import Redactor
from capsule.core.report import Report
from capsule.forges.cli import CliForge
from capsule.presets import described, presets
from capsule.project import Project, adapters
from capsule.reports.live import FanOut, LiveFile
from capsule.reports.request import request_body
from capsule.services import Limits, Requests, Services
from capsule.settings import PROJECT_YAML, Settings, refuse_shared_places
from capsule.system.clock import SystemClock
from capsule.system.folders import own_cache
from capsule.system.process import SupervisorClient, without_leftovers
from capsule.system.runner_slots import SLOT, RunnerSlots
from capsule.system.sandbox import BUBBLEWRAP, SANDBOX_EXEC, Bubblewrap, Sandbox, homes, level
from capsule.system.sandbox_exec import SandboxExec
from capsule.system.stop import Stop
from capsule.trackers import NEW_BACKLOG
from capsule.workspaces.claims import Lasting, RemoteClaims
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.disk_space import disk_shortage
from capsule.workspaces.gate import Gate
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.provision import Provisions, RunSetup
from capsule.workspaces.remote import Remote
from capsule.workspaces.remote_state import RemoteStateStore, StateBranchStore, Upstream
from capsule.workspaces.remote_trunk import RemoteTrunk
from capsule.workspaces.repository import main_branch
from capsule.workspaces.request_branch import GitRequestBranch
from capsule.workspaces.shell import SupervisedShell
from capsule.workspaces.state_store import GitStateStore, open_state_store
from capsule.workspaces.stepwise_worktree import StepwiseWorktree
from capsule.workspaces.trees import is_artefact
from capsule.workspaces.trunk import GitTrunk


def new_backlog_file() -> bytes:
    """Return the BACKLOG.yaml of an empty project."""
    return NEW_BACKLOG


def begin_state_branch(project: Project) -> None:
    """Make sure that the state of a backlog has its branch, with what main has, or with an empty backlog."""
    from capsule.trackers.backlog import FILE, WORKLOG  # noqa: PLC0415 - start-up: only `init` asks

    if apart := project.state_branch:
        apart.require(Remote(project.git, project.settings.merge.remote), (FILE, WORKLOG))


def beads_are_shared(project: Project) -> bool:
    """Tell whether other clones see the beads as they are here."""
    from capsule.trackers._beads_server import shared_server  # noqa: PLC0415 - start-up: few projects ask

    return project.settings.tracker.shared or bool(shared_server(project.root, project.env))


SKILLS = ".claude/skills/changes"
_Files = Callable[[], Mapping[str, bytes]]


def uses_skills(project: Project) -> bool:
    """Tell whether agents are sent to the project's own skills."""
    there = (project.root / SKILLS).is_dir()
    if project.settings.skills == "always" and not there:
        hint = "Put the skills there, or set skills to auto: every phase has a prompt of its own."
        raise SettingsError(f"The settings say `skills: always`, and there is no {SKILLS}.", hint)
    settings = project.settings
    options, _ = described(settings, settings.agent)
    # An agent that is started without the project's own settings finds none, unless the project is trusted.
    found = there and (options.trust_project or not getattr(_connect(settings, settings.agent), "apart", False))
    if settings.skills == "always" and not found:
        hint = f"Trust the project (agents.{settings.agent}.trust_project: true), or set skills to auto."
        raise SettingsError(f"The settings say `skills: always`, and {settings.agent} is kept from finding them.", hint)
    return found and settings.skills != "never"


def _connect(settings: Settings, name: str) -> Callable[[Connection], Agent]:
    """Return what makes the agent: `connect` of the module of its `kind`, which by default is its own name."""
    available, (options, _) = adapters("agents"), described(settings, name)
    kind = options.kind or ("command" if options.command and name not in available else name)
    if kind not in available:
        raise SettingsError(
            f"There is no agent {name!r}.",
            f"There are: {', '.join(sorted({*available, *presets(), *settings.agents} - {'command'}))}. "
            f"Any other program is named by its path (--agent ./{name}), or described: "
            f"agents.{name}.command in {PROJECT_YAML}.",
        )
    connect: Callable[[Connection], Agent] = import_module(available[kind]).connect
    return connect


def agent_maker(
    settings: Settings,
    root: Path,
    supervisor: SupervisorClient,
    stop: Stop | None,
    *,
    model: str = "",
    tell: Callable[[str, str], None] = lambda _mission, _text: None,
    sandbox: Sandbox | None = None,
    redact: Callable[[str], str] = str,
) -> Callable[[str, str], Agent]:
    """Agents by name and model."""

    @cache
    def make(name: str, phase_model: str) -> Agent:
        chosen = name or settings.agent
        options, preset = described(settings, chosen)
        # A path is relative to the project, as in the settings, not to a worktree.
        if options.command and "/" in options.command[0]:
            options = replace(options, command=(str(root / options.command[0]), *options.command[1:]))
        connection = Connection(
            name=chosen,
            supervisor=supervisor,
            root=root,
            options=replace(options, model=phase_model or options.model),
            preset=preset,
            chosen_model=model,
            allow=(*settings.environment.allow, *preset.passes),
            stop=stop,
            tell=tell,
            sandbox=sandbox,
            redact=redact,
        )
        agent: Agent = _connect(settings, chosen)(connection)
        return agent

    return make


_SANDBOXES: Mapping[str, type[Sandbox]] = {BUBBLEWRAP: Bubblewrap, SANDBOX_EXEC: SandboxExec}


def find_sandbox(settings: Settings, env: Mapping[str, str], shown: Sequence[Path]) -> Sandbox | None:
    """Make the sandbox for agents and commands, where there is one; they may read `shown` of the home."""
    found, open_for = level(settings.sandbox, env), settings.confinement
    if not found.program:
        return None
    return _SANDBOXES[found.name](
        found,
        shown=tuple(map(str, shown)),
        homes=homes(env),
        readable=open_for.readable,
        writable=open_for.writable,
        daemons=open_for.daemons,
        network=open_for.network,
    )


@contextmanager
def open_services(
    project: Project,
    tracker: Tracker,
    words: Catalog,
    observer: Observer,
    stop: Stop | None,
    *,
    model: str = "",
    dry: bool = False,
    held_claims: Claims | None = None,
) -> Iterator[Services]:
    """Open every adapter; close them at the end, with everything that runs behind them. A dry one only looks.

    `held_claims` takes the place of claims by this clone.
    """
    settings = project.settings
    journal, logs, redactor = project.journal(), project.logs(), project.redactor
    observer = FanOut(observer, LiveFile(logs.folder, SystemClock().now), redactor=redactor)
    exported = {"CAPSULE_REPOSITORY": str(project.git.common_dir)}
    with (
        nullcontext() if dry else without_leftovers(project.registry),
        closing(RunnerSlots(own_cache(project.env))) as slots,
        _redacted_errors(redactor),
        SupervisorClient(secrets=redactor.spellings, registry=project.registry) as supervisor,
        closing(held_claims or claims_of(project, stop, observer.activity)) as claims,
    ):
        sandbox = find_sandbox(settings, project.env, (project.root, project.git.common_dir))
        shell = _shell(project, supervisor, stop, sandbox, slots)
        agents = partial(agent_maker, settings, project.root, supervisor, stop, model=model, sandbox=sandbox)
        yield Services(
            tracker=tracker,
            journal=journal,
            agent=agents(tell=observer.activity, redact=redactor.text),
            place=_places(project, tracker, shell, sandbox),
            trunk=cache(partial(open_trunk, project, tracker, stop, claims=claims)),
            shell=shell,
            words=words,
            archive=logs,
            clock=SystemClock(stop),
            observer=observer,
            redact=redactor.text,
            state_store=state_store_for(project, tracker, stop),
            by_request=settings.merge.to == "request",
            requests=cache(partial(open_requests, project, journal, stop)),
            claims=claims,
            skills=uses_skills(project),
            token=lambda: f"R{os.urandom(6).hex()}",
            pid=os.getpid(),
            exported=lambda: exported if dry else {**exported, **slots.variables()},
            limits=Limits(
                settings.execution.phase_timeout_minutes * 60,
                settings.execution.idle_timeout_minutes * 60,
                settings.execution.max_wait_minutes * 60,
                budget_of(settings),
                settings.merge.batch,
                settings.execution.gates,
            ),
        )
    journal.close()


def open_trunk(
    project: Project, tracker: Tracker, stop: Stop | None, branch: str, *, claims: Claims | None = None
) -> GitTrunk:
    """Open the branch that work is merged into: one of this repository, or the one at the remote that goes with it."""
    git, own = project.git, tracker.own_files()
    upstream = upstream_of(project, branch, stop)
    if upstream is None:
        return GitTrunk(git, branch, artefacts=own)
    return RemoteTrunk(
        git,
        branch,
        upstream.remote,
        upstream.branch,
        project.settings.merge.refs,
        artefacts=own,
        left_out=is_of_an_item if project.state_branch and tracker.traits.documents else lambda _path: False,
        claims=claims,
    )


def follow_remote(project: Project, stop: Stop | None = None) -> None:
    """Bring the branch of a clone that nobody works in, and its checkout, to the tip at the remote."""
    trunk = open_trunk(project, project.tracker, stop, project.branch)
    if isinstance(trunk, RemoteTrunk):
        trunk.bring_along()


def claims_of(
    project: Project, stop: Stop | None = None, tell: Callable[[str, str], None] = lambda _item, _text: None
) -> Claims:
    """Open the claims on items, which are kept where work is merged."""
    chosen = project.settings.merge
    if chosen.to == "local":
        return Claims()
    lasting = Lasting(chosen.claim_minutes * 60, chosen.claim_hours * 3600)
    on_loss = stop.request if stop else (lambda: None)
    return RemoteClaims(project.git, chosen.remote, chosen.claims, lasting, on_loss=on_loss, tell=tell)


def state_store_for(project: Project, tracker: Tracker, stop: Stop | None = None) -> StateStore:
    """Open the tracker's state store: commits go to the user's branch, to the remote that it follows, or, where main
    takes requests only, to a branch of their own there."""
    kind: Callable[..., GitStateStore] = GitStateStore
    if project.state_branch:
        remote = Remote(project.git, project.settings.merge.remote, stop=stop)
        kind = partial(StateBranchStore, apart=project.state_branch, remote=remote)
    elif project.settings.merge.to == "remote":
        kind = partial(RemoteStateStore, upstream=lambda branch: upstream_of(project, branch, stop))
    return open_state_store(tracker, project.git, project.branch, kind)


def upstream_of(project: Project, branch: str, stop: Stop | None = None) -> Upstream | None:
    """Return where at a remote the work for a branch is merged; None if it is merged here.

    The branch of a mission takes the work of its parts, and is nobody else's.
    """
    chosen, git = project.settings.merge, project.git
    mission = branch.removeprefix("capsule-")
    if chosen.to == "local" or (mission != branch and git.ref(f"refs/capsule/base/{mission}")):
        return None
    is_main = chosen.branch != "auto" and branch == main_branch(git, project.settings.project.main)
    theirs = chosen.branch if is_main else branch
    refuse_shared_places(chosen, theirs)
    return Upstream(Remote(git, chosen.remote, stop=stop), theirs)


def open_requests(project: Project, journal: JournalReader, stop: Stop | None = None) -> Requests:
    """Open the way by which work is merged by a request."""
    chosen = project.settings.merge
    remote = Remote(project.git, chosen.remote, stop=stop)

    def base(into: str) -> str:
        upstream = upstream_of(project, into)
        return upstream.branch if upstream else into

    return Requests(
        open_forge(project), GitRequestBranch(project.git, remote, chosen.refs, base), partial(_body, project, journal)
    )


def open_forge(project: Project) -> CliForge:
    """Open the forge of the remote that work is merged to."""
    chosen = project.settings.merge
    asked = chosen.request
    return CliForge(
        project.root,
        Remote(project.git, chosen.remote).url,
        kind=asked.forge,
        opens=asked.open,
        looks=asked.look,
        env=project.env,
    )


def _body(project: Project, journal: JournalReader, mission: str, merge: Sequence[Evidence]) -> str:
    """Describe a mission for its request; `merge` is what was seen of the merge result."""
    now = SystemClock().now()
    summary = read_mission(event for _, event in journal.events(mission)).summary(NOBODY, now)
    return request_body(Report(project=project.root.name, title=mission, as_of=now, missions=(summary,)), merge)


def _provisions(project: Project, shell: SupervisedShell, seconds: float) -> Provisions:
    """Gather what places and gates are provided with; a set-up may take this long."""
    chosen = project.settings.workspace
    setup = "" if chosen.setup == "none" else chosen.setup
    dependencies = Dependencies(project.git, chosen.dependencies, detect=not setup, env=project.env)
    return Provisions(dependencies, setup, chosen.copy, _setup_runner(shell, seconds))


def _shell(
    project: Project,
    supervisor: SupervisorClient,
    stop: Stop | None,
    sandbox: Sandbox | None,
    slots: RunnerSlots | None = None,
) -> SupervisedShell:
    """Make the shell for the project's own commands."""
    settings, inside_a_mission = project.settings, SLOT in project.env
    return SupervisedShell(
        supervisor,
        stop,
        sandbox=sandbox,
        allow=settings.environment.allow,
        at_checkout_path=settings.confinement.at_checkout_path,
        own_network=settings.confinement.test_network == "own" and isinstance(sandbox, Bubblewrap),
        # The mission around it has its turn, which those behind it in the line wait for.
        slots=None if inside_a_mission else slots,
    )


def _places(
    project: Project, tracker: Tracker, shell: SupervisedShell, sandbox: Sandbox | None
) -> Callable[[str, str], Place]:
    provisions = _provisions(project, shell, project.settings.execution.phase_timeout_minutes * 60)

    @cache
    def place(mission: str, into: str) -> Place:
        make = partial(StepwiseWorktree, into=into) if into else GitWorktree
        lent, documents = _kept_apart(project, tracker, mission)
        return make(
            project.git,
            mission,
            artefacts=tracker.own_files(),
            **provisions._asdict(),
            mounted=sandbox is not None and sandbox.level.mounts,
            confined=sandbox is not None and sandbox.level.proven,
            not_ours=partial(is_of_another_item, mission) if tracker.traits.documents else lambda _path: False,
            lent=lent,
            documents=documents,
            disk_shortage=partial(disk_shortage, project.git, project.env),
        )

    return place


def _kept_apart(project: Project, tracker: Tracker, mission: str) -> tuple[_Files, _Files]:
    """Return what a place gets of a backlog whose state has a branch of its own: its files, its item's documents."""
    apart, own = project.state_branch, tracker.own_files()
    if apart is None or not tracker.traits.documents:
        return dict, dict
    return (
        lambda: apart.files(lambda path: is_artefact(os.fsencode(path), own)),
        lambda: apart.files(lambda path: bool(own_documents(mission, [path]))),
    )


def try_tests(project: Project, command: str, base: str, seconds: float) -> Ran:
    """Run a test command on a commit, in a gate that is removed afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        SupervisorClient(secrets=project.redactor.spellings) as supervisor,
        closing(RunnerSlots(own_cache(project.env))) as slots,
    ):
        sandbox = find_sandbox(project.settings, project.env, (project.root, project.git.common_dir))
        shell = _shell(project, supervisor, None, sandbox)
        provisions = _provisions(project, shell, seconds)
        name = f"trial-{os.getpid()}"
        mounted = sandbox is not None and sandbox.level.mounts
        gate = Gate(project.git, name, Path(folder), provisions, mounted=mounted)
        try:
            place, paths, reports = gate.site(base, base, {})
            at = project.root if mounted else place
            env = {**provisions.dependencies.variables(base, at, place, judged=True), **gate.caches.variables()}
            env |= slots.variables()
            log, junit = Path(folder, "tests.log"), project.settings.evidence.report
            ran = shell.run(
                command, place, log, timeout=seconds, env=env, sandbox_paths=paths, reports=reports, junit=junit
            )
            gate.caches.keep()
            return ran
        finally:
            gate.remove()
            shutil.rmtree(project.root / ".capsule" / "missions" / name, ignore_errors=True)  # the log of a set-up


def recorded(services: Services, project: Project, file: Path, *, start_over: bool = False) -> Services:
    """Return the services, with a recorder of what agents are given and do."""
    recorder = _recording.Recorder(
        file, project.git, services.redact, base=project.git.resolve("HEAD"), start_over=start_over
    )
    return replace(services, recorder=recorder)


def replayed(services: Services, project: Project, file: Path) -> tuple[Services, str]:
    """Return the services, with a recording in place of every agent, and notes about it."""
    base, head = str(_recording.about(file).get("base") or ""), project.git.resolve("HEAD")
    note = f"recorded from {base[:12]}, but HEAD is {head[:12]}: it may not fit."
    note = note if base not in ("", head) else ""
    return replace(services, agent=lambda _name, _model: services.agent("scripted", "")), note


def budget_of(settings: Settings) -> Budget:
    asked = settings.budget
    parts = ((each.usd, each.tokens, each.minutes) for each in (asked.phase, asked.mission, asked.run))
    return Budget(*(Allowance(usd, tokens, minutes and minutes * 60) for usd, tokens, minutes in parts))


@contextmanager
def _redacted_errors(redactor: Redactor) -> Iterator[None]:
    """Take secrets out of errors: they quote tools and agents, which may print anything."""
    try:
        yield
    except CapsuleError as fault:
        fault.message, fault.hint = redactor.text(fault.message), redactor.text(fault.hint)
        raise


def _setup_runner(shell: SupervisedShell, timeout: float) -> RunSetup:
    def run(
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        ran = shell.run(command, cwd, log, timeout=timeout, env=env or {}, sandbox_paths=sandbox_paths)
        if ran.why != "exited" or ran.exit_code != 0:
            how = f"exited with {ran.exit_code}" if ran.why == "exited" else ran.why
            last = ran.tail.strip().splitlines()[-1:] or ["it printed nothing"]
            raise CapsuleError(f"workspace.setup `{command}` {how}: {last[0]}", f"See its output: {log}")

    return run
