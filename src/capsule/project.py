"""A repository with its settings, journal and tracker: every command starts here.

`show` and `status` are asked often, so they load nothing that they do not need: hence the imports inside the functions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.core.errors import CapsuleError, SettingsError, TrackerError, UsageError
from capsule.system.git import Git

if TYPE_CHECKING:
    from capsule.adapters import JournalReader, Tracker
    from capsule.core.redaction import Redactor
    from capsule.journals.logs import LogFolders
    from capsule.journals.sqlite import SqliteJournal
    from capsule.settings import Loaded, Settings
    from capsule.workspaces.mission_events import MissionEvents
    from capsule.workspaces.state_branch import StateBranch

GET_BD = "https://github.com/steveyegge/beads"
_FOLDERS = ("", "worktrees", "missions", "logs", "output", "results")
_STATE_FOLDERS = ("", "git", "git/refs", "git/info", "keepers", "leaving", "locks", "places", "salvaged", "watched")


class Project:
    """A repository with its settings: what every command starts from. Settings are read at the first use."""

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
        """Return the branch that was checked out at the first call; '' where HEAD is detached."""
        return self.git.checked_out()

    def file_of_its_branch(self, path: str) -> bytes | None:
        """Return a file as that branch has it, where the user has switched to another one since; else None."""
        if self.git.checked_out() == self.branch:
            return None
        return self.git.read_file(self.git.ref(f"refs/heads/{self.branch}"), path)

    @property
    def state_folder(self) -> Path:
        """Return the folder of our state: one per repository however it is entered, and kept by `git clean -fdx`."""
        return self.git.common_dir / "capsule"

    @property
    def registry(self) -> Path:
        """Return the folder that registers the processes which run commands here."""
        return self.state_folder / "keepers"

    @cached_property
    def state_branch(self) -> StateBranch | None:
        """Return the branch that keeps the state of a backlog apart from main; None where main has it."""
        chosen = self.settings
        beads = chosen.tracker.name == "auto" and (self.root / ".beads").is_dir()
        if chosen.merge.to != "request" or chosen.tracker.name not in ("auto", "backlog") or beads:
            return None
        from capsule.trackers import NEW_BACKLOG
        from capsule.workspaces.repository import main_branch
        from capsule.workspaces.state_branch import StateBranch

        def main() -> str:
            named = chosen.merge.branch
            return main_branch(self.git, chosen.project.main) if named == "auto" else named

        return StateBranch(self.git, chosen.merge.remote, chosen.merge.state_branch, main, empty=NEW_BACKLOG)

    @property
    def tracker_git(self) -> Git:
        """Return the repository as seen from the checkout that has the tracker's files."""
        return (self.state_branch and self.state_branch.checkout()) or self.git

    @cached_property
    def tracker(self) -> Tracker:
        """Open the tracker at the first call; `open_tracker` reads it anew."""
        return open_tracker(self)

    @cached_property
    def redactor(self) -> Redactor:
        return redactor_of(self.settings, self.env)

    def journal(self, *, read_only: bool = False) -> SqliteJournal:
        from capsule.journals.sqlite import SqliteJournal

        # The settings, with the secrets they name, are read only when there is something to write.
        redact = lambda event: self.redactor.event(event)  # noqa: E731, PLW0108
        if self.settings.engine != "local":
            from capsule.journals.mirror import MirroredJournal

            return MirroredJournal(self.state_folder, self.mission_events(), read_only=read_only, redact=redact)
        return SqliteJournal(self.state_folder, read_only=read_only, redact=redact)

    def mission_events(self) -> MissionEvents:
        """Open the events of missions that run on several machines."""
        from capsule.workspaces.mission_events import MissionEvents
        from capsule.workspaces.remote import Remote

        chosen = self.settings
        return MissionEvents(self.git, Remote(self.git, chosen.merge.remote), chosen.temporal.events)

    def journal_reader(self) -> JournalReader:
        """Open the journal to look at it; nothing is made where there is none."""
        return self.journal(read_only=True)

    def logs(self) -> LogFolders:
        from capsule.journals.logs import LogFolders

        return LogFolders(self.root, lambda data: self.redactor.data(data))  # noqa: PLW0108 (as in the journal)


def open_project(
    directory: str | None, flags: Mapping[str, object] | None = None, kind: type[Project] = Project
) -> Project:
    """Open the project around a directory, also from a subdirectory or from inside a mission's worktree."""
    place = Path(directory or ".").absolute()
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory.", "Name the project's own with --project-dir.")
    project = kind(Git.find(place), flags or {})
    _refuse_what_is_no_text(project.root, project.git.common_dir)
    _refuse_what_is_no_folder(project.root / ".capsule", _FOLDERS)
    _refuse_what_is_no_folder(project.state_folder, _STATE_FOLDERS)
    places = project.state_folder / "places"
    _refuse_what_is_no_folder(places, [child.name for child in places.iterdir()] if places.is_dir() else ())
    if (project.state_folder / "watched").is_dir():  # an agent may have planted something before a crash: look first
        from capsule.workspaces.tripwire import check_after_a_crash

        check_after_a_crash(project.git)
    return project


def _refuse_what_is_no_folder(home: Path, names: Iterable[str]) -> None:
    """Refuse links in the place of our folders: writes and removals would happen elsewhere."""
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
            raise CapsuleError(f"The path {shown} is not valid UTF-8, so it cannot be given to agents.", hint) from None


def redactor_of(settings: Settings, env: Mapping[str, str]) -> Redactor:
    """Make a redactor of the secrets in our environment and of those that the settings give to agents."""
    from capsule.core.redaction import Redactor
    from capsule.system.secrets import spelled, values_of

    agents = settings.agents.values()
    given = [env, *(agent.env for agent in agents), *(own.env for agent in agents for own in agent.phases.values())]
    named = settings.environment.secret
    return Redactor(spelled(value for each in given for value in values_of(each, named)))


def open_tracker(project: Project) -> Tracker:
    """Open the tracker that the settings name; `auto` looks for BACKLOG.yaml and for `.beads`."""
    name = tracker_name(project)
    of_its_own: dict[str, object] = {}
    if name == "backlog":
        of_its_own = {"prefix": project.settings.project.prefix, **_files_of_backlog(project)}
    if name == "github":
        of_its_own = {"options": project.settings.tracker.github}
    lock = project.state_folder / "locks" / ("backlog.lock" if name == "backlog" else "tracker.lock")
    module = import_module(f"capsule.trackers.{name.replace('-', '_')}")
    tracker: Tracker = module.connect(project.root, lock, **of_its_own)
    return tracker


def _files_of_backlog(project: Project) -> dict[str, object]:
    """Say where a backlog has its files: on the user's branch, or on one of their own once that exists."""
    apart = project.state_branch
    if apart is None:
        return {"elsewhere": project.file_of_its_branch, "stray": partial(left_apart, project)}
    apart.look()

    def folder() -> Path | None:
        return apart.folder if apart.checkout() else None

    return {"apart": folder, "stray": apart.stray}


def tracker_name(project: Project) -> str:
    """Name the tracker of this project. Two at once is a question, not a guess."""
    if project.settings.tracker.name != "auto":
        known = [name for name in adapters("trackers") if name != "memory"]
        if project.settings.tracker.name not in known:
            raise SettingsError(
                f"There is no tracker {project.settings.tracker.name!r}.", f"There are: auto, {', '.join(known)}."
            )
        return project.settings.tracker.name
    # The tracker of a backlog is not loaded to find out that there is none.
    backlog = ["backlog"] if os.path.lexists(project.root / "BACKLOG.yaml") or _is_apart(project) else []
    found = [*backlog, *_beads_in(project)]
    if len(found) > 1:
        hint = f"Say which: `tracker: {found[0]}` or `tracker: {found[1]}` in .capsule/config.yaml."
        raise TrackerError("This project has both BACKLOG.yaml and a .beads folder.", hint)
    if found:
        return found[0]
    if (project.root / ".beads").is_dir():
        hint = f"Get it: {GET_BD}. Or write the items down where it is: `bd export -o .beads/issues.jsonl`."
        raise TrackerError("The items are in .beads, which only `bd` can read, and bd is not on the PATH.", hint)
    hint = "Make a backlog with `capsule init`, or beads with `bd init`."
    if on_github(project):
        hint += " Or set `tracker: github` in .capsule/config.yaml: issues with the label `capsule`."
    raise TrackerError("This project has no tracker: neither BACKLOG.yaml nor a .beads folder is there.", hint)


def left_apart(project: Project) -> str:
    """Warn of a backlog that was kept apart, where the settings do not say so any more; '' if there is none."""
    if project.state_branch or not os.path.lexists(project.root / ".capsule/backlog/.git"):
        return ""
    return (
        "the state of the backlog is in .capsule/backlog, since merge.to was `request`; "
        f"with `{project.settings.merge.to}` BACKLOG.yaml of your own branch is read"
    )


def _is_apart(project: Project) -> bool:
    """Tell whether a backlog is on a branch of its own."""
    return project.state_branch is not None and project.state_branch.look() is not None


def adapters(kind: str) -> dict[str, str]:
    """Return the modules of `agents` or `trackers`, by the name the settings use: the file's own."""
    stems = sorted(file.stem for file in (Path(__file__).parent / kind).glob("[a-z]*.py"))
    return {stem.replace("_", "-"): f"capsule.{kind}.{stem}" for stem in stems}


def has_tracker(project: Project) -> bool:
    """Tell whether the project has any, also one that cannot be read."""
    there = any(os.path.lexists(project.root / name) for name in ("BACKLOG.yaml", ".beads"))
    return there or project.settings.tracker.name != "auto" or _is_apart(project)


def on_github(project: Project) -> bool:
    """Tell whether a remote of this repository is on GitHub, and gh is there to ask for its issues."""
    from shutil import which

    urls = project.git.repository("config", "--get-regexp", r"^remote\..*\.url$", ok=(0, 1)).out
    there = any(mark in urls for mark in (b"://github.com/", b"@github.com:", b"@github.com/"))
    return there and which("gh", path=project.env.get("PATH")) is not None


def _beads_in(project: Project) -> list[str]:
    """Open beads through `bd` where `bd` made the folder and is installed, else through the file that it wrote."""
    folder = project.root / ".beads"
    if not folder.is_dir():
        return []
    from shutil import which

    from capsule.trackers._beads import file_in

    file = file_in(project.root)
    made_by_bd = any(path.suffix != ".jsonl" for path in folder.iterdir())  # it keeps settings beside its tables
    if (made_by_bd or not file) and which("bd", path=project.env.get("PATH")):
        return ["beads"]
    return ["beads-file"] if file else []


def tracker_if_there(project: Project) -> Tracker:
    """Return the project's tracker, or an empty one where it cannot be opened."""
    from capsule.trackers.memory import MemoryTracker

    try:
        return open_tracker(project)
    except CapsuleError:
        return MemoryTracker(())
