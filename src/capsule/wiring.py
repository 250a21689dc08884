"""Settings → Services: the only place that chooses which adapter is which.

What a command does not need it does not load: `show` opens a project and its journal, and nothing of agents, worktrees
or processes comes along. Hence the imports inside the functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, SettingsError, TrackerError, UsageError
from capsule.system.clock import SystemClock
from capsule.system.git import Git

if TYPE_CHECKING:
    from capsule.adapters import Agent, JournalReader, Observer, Place, StateStore, Tracker
    from capsule.catalog import Catalog
    from capsule.core.briefing import SandboxPaths
    from capsule.core.budget import Budget
    from capsule.core.redaction import Redactor
    from capsule.journals.papers import Papers
    from capsule.journals.sqlite import SqliteJournal
    from capsule.services import Limits, Services
    from capsule.settings import Loaded, Settings
    from capsule.system.process import SupervisorClient
    from capsule.system.sandbox import Sandbox
    from capsule.system.stop import Stop
    from capsule.workspaces.provision import RunSetup
    from capsule.workspaces.shell import SupervisedShell

_FOLDERS = ("", "worktrees", "missions", "logs", "output", "results")
_STATE_FOLDERS = ("", "git", "git/refs", "git/info", "keepers", "leaving", "locks", "places", "salvaged", "watched")


class Project:
    """A repository with its settings: what every command starts from. Settings are read when somebody asks for them."""

    def __init__(self, git: Git, flags: Mapping[str, object], env: Mapping[str, str] | None = None) -> None:
        self.git = git
        self.flags = flags
        self.env = os.environ if env is None else env

    @cached_property
    def loaded(self) -> Loaded:
        from capsule.settings import load_settings

        return load_settings(self.root, env=self.env, flags=self.flags)

    @property
    def root(self) -> Path:
        return self.git.root

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @cached_property
    def branch(self) -> str:
        """The branch that is checked out when somebody first asks; '' where HEAD is detached."""
        return self.git.checked_out()

    def file_of_its_branch(self, path: str) -> bytes | None:
        """A file as that branch has it, where the user has switched to another one since; None where not."""
        if self.git.checked_out() == self.branch:
            return None
        return self.git.read_file(self.git.ref(f"refs/heads/{self.branch}"), path)

    @property
    def state_folder(self) -> Path:
        """Survives `git clean -fdx`; one per repository however it is entered."""
        return self.git.common_dir / "capsule"

    @property
    def registry(self) -> Path:
        """Where it is written down who runs commands here."""
        return self.state_folder / "keepers"

    @cached_property
    def redactor(self) -> Redactor:
        return redactor_of(self.settings, self.env)

    def journal(self, *, read_only: bool = False) -> SqliteJournal:
        from capsule.journals.sqlite import SqliteJournal

        # The settings, with the secrets they name, are read only when there is something to write.
        redact = lambda event: self.redactor.event(event)  # noqa: E731, PLW0108
        return SqliteJournal(self.state_folder, read_only=read_only, redact=redact)

    def journal_reader(self) -> JournalReader:
        """Open the journal to look at it; nothing is made where there is none."""
        return self.journal(read_only=True)

    def papers(self) -> Papers:
        from capsule.journals.papers import Papers

        return Papers(self.root, lambda data: self.redactor.data(data))  # noqa: PLW0108 (as in the journal)


def open_project(directory: str | None, flags: Mapping[str, object] | None = None) -> Project:
    """The project around a directory, also from a subdirectory or from inside a mission's worktree."""
    place = Path(directory or ".").absolute()
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory.", "Name the project's own with --project-dir.")
    project = Project(Git.find(place), flags or {})
    _refuse_what_is_no_text(project.root, project.git.common_dir)
    _refuse_what_is_no_folder(project.root / ".capsule", _FOLDERS)
    _refuse_what_is_no_folder(project.state_folder, _STATE_FOLDERS)
    places = project.state_folder / "places"
    _refuse_what_is_no_folder(places, [child.name for child in places.iterdir()] if places.is_dir() else ())
    _check_after_a_crash(project)
    return project


def _refuse_what_is_no_folder(home: Path, names: Iterable[str]) -> None:
    """What we write and remove behind a link would be written and removed elsewhere."""
    for ours in (home / name for name in names):
        if ours.is_symlink():
            raise CapsuleError(f"{ours} is a symbolic link.", "Put a folder of its own in its place, or remove it.")
        if ours.exists() and not ours.is_dir() and ours.name != "missions":  # that one puts itself right when used
            raise CapsuleError(f"{ours} is not a folder.", "Move it away: Capsule has a folder of that name.")


def _refuse_what_is_no_text(*paths: Path) -> None:
    """Agents, the journal and reports name the project by its path, in UTF-8."""
    for path in paths:
        name = os.fsencode(path)
        try:
            name.decode()
        except UnicodeDecodeError:
            shown = name.decode(errors="backslashreplace")
            hint = "Rename the folder whose name it is, and go on there."
            raise CapsuleError(f"The path {shown} is not valid UTF-8, and agents cannot be told it.", hint) from None


def _check_after_a_crash(project: Project) -> None:
    """Before anything is read there: look for what an agent planted in a phase that nobody saw the end of."""
    if (project.state_folder / "watched").is_dir():
        from capsule.workspaces.tripwire import check_after_a_crash

        check_after_a_crash(project.git)


def redactor_of(settings: Settings, env: Mapping[str, str]) -> Redactor:
    """Knows the secrets of our own environment and of those that the settings give to agents."""
    from capsule.core.redaction import Redactor
    from capsule.system.secrets import spelled, values_of

    agents = settings.agents.values()
    given = [env, *(agent.env for agent in agents), *(own.env for agent in agents for own in agent.phases.values())]
    named = settings.environment.secret
    return Redactor(spelled(value for each in given for value in values_of(each, named)))


def open_tracker(project: Project) -> Tracker:
    """The file of that name in trackers/, as the settings say; `auto` looks for BACKLOG.yaml and for `.beads`."""
    name = tracker_name(project)
    of_its_own: dict[str, object] = {}
    if name == "backlog":
        of_its_own = {"prefix": project.settings.project.prefix, "elsewhere": project.file_of_its_branch}
    lock = project.state_folder / "locks" / ("backlog.lock" if name == "backlog" else "tracker.lock")
    module = import_module(f"capsule.trackers.{name.replace('-', '_')}")
    tracker: Tracker = module.connect(project.root, lock, **of_its_own)
    return tracker


def tracker_name(project: Project) -> str:
    """Which tracker this project has. Both at once is a question, not a guess."""
    if project.settings.tracker != "auto":
        return _known_tracker(project.settings.tracker)
    found = [*(["backlog"] if os.path.lexists(project.root / "BACKLOG.yaml") else []), *_beads_in(project)]
    if len(found) > 1:
        hint = f"Say which: `tracker: {found[0]}` or `tracker: {found[1]}` in .capsule/config.yaml."
        raise TrackerError("This project has both BACKLOG.yaml and a .beads folder.", hint)
    if found:
        return found[0]
    if (project.root / ".beads").is_dir():
        hint = f"Get it: {GET_BD}. Or write the items down where it is: `bd export -o .beads/issues.jsonl`."
        raise TrackerError("The items are in .beads, which only `bd` can read, and bd is not on the PATH.", hint)
    hint = "Make a backlog with `capsule init`, or beads with `bd init`."
    raise TrackerError("This project has no tracker: neither BACKLOG.yaml nor a .beads folder is there.", hint)


GET_BD = "https://github.com/steveyegge/beads"


def _known_tracker(name: str) -> str:
    from capsule.catalog import adapters

    known = [adapter for adapter in adapters("trackers") if adapter != "memory"]
    if name in known:
        return name
    raise SettingsError(f"There is no tracker {name!r}.", f"There are: auto, {', '.join(known)}.")


def _beads_in(project: Project) -> list[str]:
    """By `bd` where it made the folder and is there to be asked, else by the file that it wrote."""
    folder = project.root / ".beads"
    if not folder.is_dir():
        return []
    from shutil import which

    from capsule.trackers import beads_file

    file = beads_file.find(project.root)
    made_by_bd = any(path.suffix != ".jsonl" for path in folder.iterdir())  # it keeps settings beside its tables
    if (made_by_bd or not file) and which("bd", path=project.env.get("PATH")):
        return ["beads"]
    return ["beads-file"] if file else []


def open_state_store(project: Project, tracker: Tracker) -> StateStore:
    """Open what tells the tracker how missions go: by commits, where it keeps its state in the project."""
    from capsule.adapters import ClaimedState

    if tracker.name != "backlog":
        return ClaimedState(tracker)
    from capsule.trackers.backlog import BacklogTracker
    from capsule.workspaces.state_store import GitStateStore

    assert isinstance(tracker, BacklogTracker)
    return GitStateStore(
        project.git,
        tracker.rewrite,
        tracker.understood,
        tracker.own_files(),
        SystemClock().now,
        home=project.branch,
        item=tracker.item,
    )


def new_backlog_file() -> bytes:
    """What `init` puts into an empty project."""
    from capsule.trackers._backlog_text import new_backlog

    return new_backlog()


def tracker_if_there(project: Project) -> Tracker:
    """The project's tracker, or an empty one where it cannot be opened."""
    from capsule.trackers.memory import MemoryTracker

    try:
        return open_tracker(project)
    except CapsuleError:
        return MemoryTracker(())


SKILLS = ".claude/skills/changes"


def uses_skills(project: Project) -> bool:
    """Whether agents are sent to the project's own skills."""
    there = (project.root / SKILLS).is_dir()
    if project.settings.skills == "always" and not there:
        hint = "Put the skills there, or set skills to auto: every phase has a prompt of its own."
        raise SettingsError(f"The settings say `skills: always`, and there is no {SKILLS}.", hint)
    settings = project.settings
    found = there and _finds_skills(settings)
    if settings.skills == "always" and not found:
        hint = f"Trust the project (agents.{settings.agent}.trust_project: true), or set skills to auto."
        raise SettingsError(f"The settings say `skills: always`, and {settings.agent} is kept from finding them.", hint)
    return found and settings.skills != "never"


def _finds_skills(settings: Settings) -> bool:
    """Not an agent that is started without the project's own settings, unless the project is trusted."""
    from capsule.presets import described

    options, _ = described(settings, settings.agent)
    return options.trust_project or not getattr(
        import_module(_adapter(settings, settings.agent)).connect, "apart", False
    )


def _adapter(settings: Settings, name: str) -> str:
    """The module that runs an agent, by its `kind`, which by default is its own name."""
    from capsule.catalog import adapters
    from capsule.presets import described, presets
    from capsule.settings import PROJECT_YAML

    available, (options, _) = adapters("agents"), described(settings, name)
    kind = options.kind or ("command" if options.command and name not in available else name)
    if kind not in available:
        raise SettingsError(
            f"There is no agent {name!r}.",
            f"There are: {', '.join(sorted({*available, *presets(), *settings.agents} - {'command'}))}. "
            f"Any other CLI can be described: agents.{name}.command in {PROJECT_YAML}.",
        )
    return available[kind]


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
    from capsule.agents._cli import AgentPhaseOptions, Connection
    from capsule.presets import described

    @cache
    def make(name: str, phase_model: str) -> Agent:
        chosen = name or settings.agent
        options, preset = described(settings, chosen)
        connection = Connection(
            name=chosen,
            supervisor=supervisor,
            root=root,
            model=phase_model or options.model,
            chosen_model=model,
            args=options.args,
            command=options.command,
            model_args=options.model_args,
            failures=options.failures,
            how_to_get_it=preset.get,
            home=preset.home,
            home_read_only=preset.home_read_only,
            prompt=options.prompt,
            env=options.env,
            phases={name: AgentPhaseOptions(own.model, own.args, own.env) for name, own in options.phases.items()},
            trust_project=options.trust_project,
            allow=(*settings.environment.allow, *preset.passes),
            stop=stop,
            tell=tell,
            sandbox=sandbox,
            redact=redact,
        )
        agent: Agent = import_module(_adapter(settings, chosen)).connect(connection)
        return agent

    return make


def find_sandbox(settings: Settings, env: Mapping[str, str], shown: Sequence[Path]) -> Sandbox | None:
    """What agents and the project's commands run in, where there is one. `shown` is what they may read of the home."""
    from capsule.system.sandbox import Sandbox, homes, level

    found, open_for = level(settings.sandbox, env), settings.confinement
    if not found.program:
        return None
    return Sandbox(
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
) -> Iterator[Services]:
    """Every adapter, open; closed again at the end, with everything that runs behind them. A dry one only looks."""
    from capsule.reports.live import RedactingObserver
    from capsule.services import Services
    from capsule.system.process import SupervisorClient, end_leftovers
    from capsule.workspaces.shell import SupervisedShell
    from capsule.workspaces.trunk import GitTrunk

    settings = project.settings
    journal, papers, redactor = project.journal(), project.papers(), project.redactor
    observer = RedactingObserver(observer, redactor)
    if not dry:
        end_leftovers(project.registry)
    with (
        _no_secrets_told(redactor),
        SupervisorClient(secrets=redactor.spellings, registry=project.registry) as supervisor,
    ):
        sandbox = find_sandbox(settings, project.env, (project.root, project.git.common_dir))
        at_checkout_path = settings.confinement.at_checkout_path
        allow = settings.environment.allow
        shell = SupervisedShell(supervisor, stop, sandbox=sandbox, allow=allow, at_checkout_path=at_checkout_path)

        agents = partial(agent_maker, settings, project.root, supervisor, stop, model=model, sandbox=sandbox)
        yield Services(
            tracker=tracker,
            journal=journal,
            agent=agents(tell=observer.activity, redact=redactor.text),
            place=_places(project, tracker, shell, confined=sandbox is not None),
            trunk=cache(lambda branch: GitTrunk(project.git, branch, artefacts=tracker.own_files())),
            shell=shell,
            words=words,
            archive=papers,
            clock=SystemClock(stop),
            observer=observer,
            redact=redactor.text,
            state_store=open_state_store(project, tracker),
            skills=uses_skills(project),
            pid=os.getpid(),
            exported={"CAPSULE_REPOSITORY": str(project.git.common_dir)},
            limits=_limits(settings),
        )
    journal.close()


def _places(
    project: Project, tracker: Tracker, shell: SupervisedShell, *, confined: bool
) -> Callable[[str, str], Place]:
    from capsule.core.documents import is_of_another_item
    from capsule.workspaces.dependencies import Dependencies
    from capsule.workspaces.git_worktree import GitWorktree

    chosen = project.settings.workspace
    setup = "" if chosen.setup == "none" else chosen.setup
    dependencies = Dependencies(project.git, chosen.dependencies, detect=not setup, env=project.env)

    @cache
    def place(mission: str, into: str) -> Place:
        if into:
            from capsule.workspaces.stepwise_worktree import StepwiseWorktree
        make = partial(StepwiseWorktree, into=into) if into else GitWorktree
        return make(
            project.git,
            mission,
            artefacts=tracker.own_files(),
            setup=setup,
            copy=chosen.copy,
            run_setup=_setup_runner(shell, project.settings.execution.phase_timeout_minutes * 60),
            dependencies=dependencies,
            confined=confined,
            not_ours=partial(is_of_another_item, mission) if tracker.keeps_phases else lambda _path: False,
        )

    return place


def _limits(settings: Settings) -> Limits:
    from capsule.services import Limits

    minutes = settings.execution
    return Limits(
        minutes.phase_timeout_minutes * 60,
        minutes.idle_timeout_minutes * 60,
        minutes.max_wait_minutes * 60,
        budget_of(settings),
    )


def recorded(services: Services, project: Project, file: Path, *, start_over: bool = False) -> Services:
    """The same services, with somebody who writes down into a file what its agents are told and do."""
    from dataclasses import replace

    from capsule.agents._recording import Recorder

    scribe = Recorder(file, project.git, services.redact, base=project.git.resolve("HEAD"), start_over=start_over)
    return replace(services, scribe=scribe)


def replayed(services: Services, project: Project, file: Path) -> tuple[Services, str]:
    """The same services, with a recording in every agent's place; and what there is to say about that."""
    from dataclasses import replace

    from capsule.agents._recording import about

    base, head = str(about(file).get("base") or ""), project.git.resolve("HEAD")
    note = f"recorded from {base[:12]}, and HEAD is {head[:12]}: it may go another way."
    note = note if base not in ("", head) else ""
    return replace(services, agent=lambda _name, _model: services.agent("scripted", "")), note


def budget_of(settings: Settings) -> Budget:
    from capsule.core.budget import Allowance, Budget

    asked = settings.budget
    parts = ((each.usd, each.tokens, each.minutes) for each in (asked.phase, asked.mission, asked.run))
    return Budget(*(Allowance(usd, tokens, minutes and minutes * 60) for usd, tokens, minutes in parts))


@contextmanager
def _no_secrets_told(redactor: Redactor) -> Iterator[None]:
    """What goes wrong is told in the words of tools and agents, which may hold anything."""
    try:
        yield
    except CapsuleError as fault:
        fault.message, fault.hint = redactor.text(fault.message), redactor.text(fault.hint)
        raise


def _setup_runner(shell: SupervisedShell, timeout: float) -> RunSetup:
    def run(command: str, cwd: Path, log: Path, sandbox_paths: SandboxPaths | None = None) -> None:
        ran = shell.run(command, cwd, log, timeout=timeout, env={}, sandbox_paths=sandbox_paths)
        if ran.why != "exited" or ran.exit_code != 0:
            how = f"exited with {ran.exit_code}" if ran.why == "exited" else ran.why
            last = ran.tail.strip().splitlines()[-1:] or ["it printed nothing"]
            raise CapsuleError(f"workspace.setup `{command}` {how}: {last[0]}", f"Its output is in {log}.")

    return run
