"""Settings → World: the only place that chooses which door is which.

What a command does not need it does not load: `show` opens a project and its journal, and nothing of agents, worktrees
or processes comes along. Hence the imports inside the functions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, SettingsError, TrackerError, UsageError
from capsule.system.files import NotRegular, TooLarge, read_regular
from capsule.system.git import Git

if TYPE_CHECKING:
    from capsule.catalog import Catalog
    from capsule.core.decide import Guardrails
    from capsule.core.event import Policy
    from capsule.core.item import Item
    from capsule.core.workflow import Phase, Workflow
    from capsule.doors import Agent, Books, Observer, Tracker, Workspace, World
    from capsule.journals.papers import Papers
    from capsule.journals.sqlite import SqliteJournal
    from capsule.settings import Loaded, Settings
    from capsule.system.process import Keeper
    from capsule.system.stop import Stop
    from capsule.workspaces.shell import SupervisedShell

_LARGEST_FILE = 4 * 1024 * 1024


class SystemClock:
    def now(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())

    def seconds(self) -> float:
        return time.monotonic()


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

    @property
    def state_folder(self) -> Path:
        """Survives `git clean -fdx`; one per repository however it is entered."""
        return self.git.common_dir / "capsule"

    def journal(self, *, read_only: bool = False) -> SqliteJournal:
        from capsule.journals.sqlite import SqliteJournal

        return SqliteJournal(self.state_folder, read_only=read_only)

    def papers(self) -> Papers:
        from capsule.journals.papers import Papers

        return Papers(self.root)


def open_project(directory: str | None, flags: Mapping[str, object] | None = None) -> Project:
    """The project around a directory, also from a subdirectory or from inside a mission's worktree."""
    place = Path(directory or ".").absolute()
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory.", "Name the project's own with --project-dir.")
    project = Project(Git.find(place), flags or {})
    home = project.root / ".capsule"
    if home.exists() and not home.is_dir():
        raise CapsuleError(f"{home} is not a folder.", "Move it away: Capsule keeps its papers there.")
    for name in ("", "worktrees", "missions", "logs", "output", "results"):
        ours = project.root / ".capsule" / name
        if ours.is_symlink():  # what we write and remove there would be written and removed elsewhere
            raise CapsuleError(f"{ours} is a symbolic link.", "Put a folder of its own in its place, or remove it.")
    return project


def open_tracker(project: Project) -> Tracker:
    """As the settings say; `auto` looks for BACKLOG.yaml and for the JSONL of a `.beads` folder."""
    locks = project.state_folder / "locks"
    if tracker_name(project) == "backlog":
        from capsule.trackers import backlog

        return backlog.connect(project.root, locks / "backlog.lock", project.settings.project.prefix)
    from capsule.trackers import beads_file

    return beads_file.connect(project.root, locks / "tracker.lock")


def tracker_name(project: Project) -> str:
    """Which tracker this project has. Both at once is a question, not a guess."""
    chosen = project.settings.tracker
    if chosen != "auto":
        return _known_tracker(chosen)
    found = _trackers_there(project.root)
    if len(found) > 1:
        hint = f"Say which: `tracker: {found[0]}` or `tracker: {found[1]}` in .capsule/config.yaml."
        raise TrackerError("This project has both BACKLOG.yaml and a .beads folder.", hint)
    if not found:
        hint = "Make a backlog with `capsule init`, or put issues into .beads/issues.jsonl."
        raise TrackerError("This project has no tracker: neither BACKLOG.yaml nor .beads/*.jsonl is there.", hint)
    return found[0]


def _known_tracker(name: str) -> str:
    from capsule.catalog import doors

    known = [door for door in doors("trackers") if door != "memory"]
    if name in known:
        return name
    raise SettingsError(f"There is no tracker {name!r}.", f"There are: auto, {', '.join(known)}.")


def _trackers_there(root: Path) -> list[str]:
    from capsule.trackers import backlog

    return [name for name, there in (("backlog", backlog.find(root)), ("beads-file", _beads_in(root))) if there]


def _beads_in(root: Path) -> Path | None:
    if not (root / ".beads").exists():
        return None
    from capsule.trackers import beads_file

    return beads_file.find(root)


def open_books(project: Project, tracker: Tracker) -> Books | None:
    """The commits that hold the tracker's state, where it keeps that in the project."""
    from capsule.trackers.backlog import BacklogTracker
    from capsule.workspaces.books import GitBooks

    if not isinstance(tracker, BacklogTracker):
        return None
    return GitBooks(project.git, tracker.rewrite, tracker.understood, tracker.own_files(), SystemClock().now)


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


def words_at(project: Project, base: str) -> Catalog:
    """Prompts, templates and workflows as the base has them; what no commit knows yet is read from disk."""
    from capsule.catalog import Catalog

    return Catalog(base_reader(project, base), lambda: _words_of(project, base))


def _words_of(project: Project, base: str) -> set[str]:
    """Paths of the project that may hold words, in the base or on disk."""
    from capsule.catalog import listing

    held = project.git.list_tree(base, recursive=True) if base else []
    return {*listing(project.root), *(entry.path.decode(errors="replace") for entry in held)}


def base_reader(project: Project, base: str) -> Callable[[str], bytes | None]:
    """A file as the base has it, never as an agent's worktree has it; from disk only where the base has none."""

    tracked = {entry.path for entry in project.git.list_tree(base, recursive=True)} if base else set()

    def read(path: str) -> bytes | None:
        held = project.git.read_file(base, path) if path.encode() in tracked else None
        return held if held is not None else _from_disk(project.root / path)

    return read


def _from_disk(path: Path) -> bytes | None:
    try:
        return read_regular(path, _LARGEST_FILE)
    except (NotRegular, TooLarge) as fault:
        raise SettingsError(f"{path} cannot be read: {fault}", "Replace it by an ordinary file.") from None
    except OSError:
        return None


def settings_at(project: Project, base: str) -> tuple[Settings, tuple[str, ...]]:
    """The settings that evidence depends on, as the base has them, and what differs on disk."""
    from capsule.settings import PROJECT_YAML, load_settings

    read = base_reader(project, base)
    judging = load_settings(project.root, env=project.env, flags=project.flags, read_project=read).settings
    differs = (judging.evidence, judging.verify) != (project.settings.evidence, project.settings.verify)
    note = f"{PROJECT_YAML} on disk differs from the base in what is checked; the base's version is used. Commit it."
    return judging, (note,) if differs else ()


def policy_at(project: Project, base: str) -> tuple[Policy, tuple[str, ...]]:
    """How missions that start from this base are judged."""
    from capsule.core.event import Policy

    judging, warnings = settings_at(project, base)
    test, globs, in_sources = _tests(project, base, judging)
    policy = Policy(
        verify=judging.verify,
        test=test,
        test_globs=globs,
        tests_in_sources=in_sources,
        debris=judging.evidence.debris,
        test_timeout_minutes=judging.evidence.test_timeout_minutes,
        guardrails=guardrails_of(judging),
        hooks=judging.git.hooks,
    )
    return policy, warnings


def guardrails_of(settings: Settings) -> Guardrails:
    from capsule.core.decide import Guardrails

    limits = settings.guardrails
    return Guardrails(limits.max_size, limits.max_complexity, limits.max_risk)


SKILLS = ".claude/skills/changes"


def uses_skills(project: Project) -> bool:
    """Whether agents are sent to the project's own skills."""
    there = (project.root / SKILLS).is_dir()
    if project.settings.skills == "always" and not there:
        hint = "Put the skills there, or set skills to auto: every phase has a prompt of its own."
        raise SettingsError(f"The settings say `skills: always`, and there is no {SKILLS}.", hint)
    return there and project.settings.skills != "never"


def _tests(project: Project, base: str, judging: Settings) -> tuple[str, tuple[str, ...], bool]:
    """The test command, the globs of test files, and whether tests live inside source files."""
    from capsule.core.test_runs import detect, detected_command, globs_for, judges_of

    files = [entry.path.decode(errors="replace") for entry in project.git.list_tree(base, recursive=True)]

    def read(path: str) -> str:
        return (project.git.read_file(base, path) or b"").decode(errors="replace") if path in files else ""

    chosen = judging.evidence.test
    if chosen == "auto":
        found = detect(files, read)
        test, globs, in_sources = (
            (detected_command(found, files), found.globs, found.tests_in_sources) if found else ("", (), False)
        )
    else:
        test = "" if chosen == "none" else chosen
        globs, in_sources = globs_for(test, files, read)
    if judging.evidence.test_globs != "auto":
        return test, tuple(judging.evidence.test_globs), in_sources
    return test, (*globs, *judges_of(test, files, read)), in_sources


def choose_workflow(project: Project, item: Item, words: Catalog, name: str | None = None) -> Workflow:
    """By flag, by tag, by type, by default: beads walk through `tdd`, items of a backlog through `change`."""
    choice = project.settings.workflow
    by_tag = next((choice.by_tag[tag] for tag in item.tags if tag in choice.by_tag), "")
    usual = "change" if tracker_name(project) == "backlog" else "tdd"
    default = usual if choice.default == "auto" else choice.default
    return _as_set(project.settings, words.workflow(name or by_tag or choice.by_type.get(item.type, "") or default))


def _as_set(settings: Settings, workflow: Workflow) -> Workflow:
    """The workflow with what the settings say about it: retries, where it works, who builds."""
    from msgspec.structs import replace

    retries, kind = settings.execution.max_retries, settings.workspace.kind
    if retries is not None:
        workflow = replace(workflow, retries=retries)
    if kind != "auto":
        workflow = replace(workflow, workspace=kind)
    if settings.build == "tdd":
        child = {"prompt": "", "skill": "", "checks": (), "workflow": "tdd"}
        phases = (replace(p, **child) if p.name == "build" and p.prompt else p for p in workflow.phases)
        workflow = replace(workflow, phases=tuple(phases))
    if workflow.workspace == "worktree" and not any(phase.do == "publish" for phase in workflow.phases):
        workflow = replace(workflow, phases=_merged_before_the_end(workflow.phases))
    return workflow


def _merged_before_the_end(phases: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """What is made in a worktree has to get out of it: a merge before the closing phases."""
    from capsule.core.workflow import Phase, Role

    last = max((n for n, phase in enumerate(phases) if not phase.closing), default=-1) + 1
    merge = Phase(name="merge", role=Role.ACTION, do="publish", stage="Merge")
    return (*phases[:last], merge, *phases[last:])


def agent_maker(
    settings: Settings,
    root: Path,
    keeper: Keeper,
    stop: Stop | None,
    *,
    model: str = "",
    tell: Callable[[str, str], None] = lambda _mission, _text: None,
) -> Callable[[str, str], Agent]:
    """Agents by name and model. Which file runs an agent is its `kind`, by default its own name."""
    from capsule.agents._cli import Connection
    from capsule.catalog import doors
    from capsule.settings import PROJECT_YAML, AgentOptions

    @cache
    def make(name: str, phase_model: str) -> Agent:
        chosen = name or settings.agent
        options = settings.agents.get(chosen, AgentOptions())
        available = doors("agents")
        kind = options.kind or ("command" if options.command and chosen not in available else chosen)
        if kind not in available:
            raise SettingsError(
                f"There is no agent {chosen!r}.",
                f"There are: {', '.join(sorted({*available, *settings.agents} - {'command'}))}. "
                f"Any other CLI can be described: agents.{chosen}.command in {PROJECT_YAML}.",
            )
        connection = Connection(
            name=chosen,
            keeper=keeper,
            root=root,
            model=phase_model or model or options.model,
            args=options.args,
            command=options.command,
            prompt=options.prompt,
            env=options.env,
            stop=stop,
            tell=tell,
        )
        agent: Agent = import_module(available[kind]).connect(connection)
        return agent

    return make


@contextmanager
def open_world(
    project: Project, tracker: Tracker, words: Catalog, observer: Observer, stop: Stop | None, *, model: str = ""
) -> Iterator[World]:
    """Every door, open; closed again at the end, with everything that runs behind them."""
    from capsule.doors import Limits, World
    from capsule.system.process import Keeper
    from capsule.workspaces.checkout import Checkout
    from capsule.workspaces.git_worktree import GitWorktree
    from capsule.workspaces.shell import SupervisedShell
    from capsule.workspaces.trunk import GitTrunk

    settings, execution = project.settings, project.settings.execution
    journal, papers = project.journal(), project.papers()
    with Keeper() as keeper:
        shell = SupervisedShell(keeper, stop)

        @cache
        def workspace(mission: str, kind: str) -> Workspace:
            make = Checkout if kind == "checkout" else GitWorktree
            return make(
                project.git,
                mission,
                artefacts=tracker.own_files(),
                setup="" if settings.workspace.setup == "none" else settings.workspace.setup,
                copy=settings.workspace.copy,
                run_setup=_setup_runner(shell, execution.phase_timeout_minutes * 60),
            )

        yield World(
            tracker=tracker,
            journal=journal,
            agent=agent_maker(settings, project.root, keeper, stop, model=model, tell=observer.activity),
            workspace=workspace,
            trunk=cache(lambda branch: GitTrunk(project.git, branch, artefacts=tracker.own_files())),
            shell=shell,
            words=words,
            archive=papers,
            clock=SystemClock(),
            observer=observer,
            books=open_books(project, tracker),
            skills=uses_skills(project),
            pid=os.getpid(),
            limits=Limits(execution.phase_timeout_minutes * 60, execution.idle_timeout_minutes * 60),
        )
    journal.close()


def _setup_runner(shell: SupervisedShell, timeout: float) -> Callable[[str, Path, Path], None]:
    def run(command: str, cwd: Path, log: Path) -> None:
        ran = shell.run(command, cwd, log, timeout=timeout, env={})
        if ran.why != "exited" or ran.exit_code != 0:
            how = f"exited with {ran.exit_code}" if ran.why == "exited" else ran.why
            last = ran.tail.strip().splitlines()[-1:] or ["it printed nothing"]
            raise CapsuleError(f"workspace.setup `{command}` {how}: {last[0]}", f"Its output is in {log}.")

    return run
