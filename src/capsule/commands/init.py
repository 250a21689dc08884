"""Create a backlog in this git repository.

It makes BACKLOG.yaml, the folders _ideas, _worklog and changes, settings in .capsule/config.yaml, and lines in
.gitignore for what should not be committed. Existing files are left as they are, so it is safe to repeat. The new files
are committed, unless the tree has other uncommitted changes; those that are not committed are named. With `merge.to:
request` the backlog is made on the branch of its state, and its checkout is .capsule/backlog.

  capsule init
  capsule init --ask                  first ask three questions: which agent, which tests, which tracker
  capsule init --prefix APP           ids will be APP-001, APP-002, ...
  capsule init --prompts              also copy the prompts to .capsule/prompts/, for editing
  capsule init --skills               also write the skills that phases name, and forms of documents
  capsule init --tracker backlog      create a backlog although there is a .beads folder
  capsule init --tracker github       no backlog: the items are issues on GitHub

Exit code: 0 ready; 1 the project has another prefix; 2 usage, not in a git repository, or something is in the way.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

from capsule.app.items import why_not_committed
from capsule.app.skills import skill_file, skill_files
from capsule.catalog import Catalog
from capsule.commands.arguments import commit_option, say, tell, warn
from capsule.commands.init_questions import ask, with_settings
from capsule.commands.item_table import ADD
from capsule.core.errors import CapsuleError, Refused, UsageError
from capsule.core.text import count
from capsule.plain_files import parse_yaml, read_plain
from capsule.project import Project, open_project
from capsule.settings import PROJECT_TOML
from capsule.system.files import CannotWrite, write_atomically
from capsule.system.git import EXCLUDED
from capsule.wiring import SKILLS, begin_state_branch, new_backlog_file, uses_skills
from capsule.workspaces.checkouts import passes_link
from capsule.workspaces.repository import commit_command, dirty_paths, only_branch
from capsule.workspaces.state_branch import FOLDER
from capsule.workspaces.state_store import commit_files

BACKLOG = "BACKLOG.yaml"
CONFIG = ".capsule/config.yaml"
IGNORE = ".gitignore"
FOLDERS = ("_ideas", "_worklog", "changes", ".capsule")
PROMPTS = Path(__file__).parent.parent / "prompts"
SETTINGS_COMMIT = "Settings for Capsule"
"""The message of a commit that a person makes of these files."""
_LOCAL = (".env", ".env.*", "*.local", "*.local.*", "local.*", "local_settings.*", "secrets.*", "credentials.*")
"""Names of files that projects keep out of git because they differ from one machine to the next."""
_MOST_NAMED = 5
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9]{0,15}", re.ASCII)

SETTINGS = """\
# Settings of this project for Capsule. `capsule config` shows every effective setting and where it comes from.
project:
  prefix: {prefix}    # ids of new items begin with it
{main}{tracker}
# The agent that does the work. `capsule doctor` says which are installed.
# agent: claude

# Items above these levels need your approval.
# guardrails: {{max_size: medium, max_complexity: medium, max_risk: low}}

# How long an agent may take, and how often a phase is tried again.
# execution: {{phase_timeout_minutes: 30, max_retries: 2}}

# The test command. `auto` looks for one.
# evidence: {{test: auto}}
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--prefix", metavar="PREFIX", help="ids begin with it (default: WRK)")
    parser.add_argument("--ask", action="store_true", help="ask for agent, tests and tracker first; needs a terminal")
    parser.add_argument("--prompts", action="store_true", help="copy the built-in prompts out, for editing")
    parser.add_argument("--skills", action="store_true", help="write the skills that phases name, and the forms")
    parser.add_argument(
        "--tracker",
        choices=("auto", "backlog", "github"),
        default="auto",
        help="backlog: make one even if there is a .beads folder; github: issues",
    )
    commit_option(parser)


def run(args: argparse.Namespace) -> int:
    project = open_project(args.project_dir)
    _check_prefix(project, args.prefix)
    for name in FOLDERS:
        place = project.root / name
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            raise CapsuleError(f"{name} is not a folder.", f"Move it away: `capsule init` needs a folder {name}/.")
    tracker, chosen = _chosen(project, args)
    wanted = _files(project, args, tracker)
    apart = BACKLOG in wanted and project.state_branch is not None
    if apart:
        del wanted[BACKLOG]
        tracker = "backlog"
    new = {path: content for path, content in wanted.items() if not os.path.lexists(project.root / path)}
    if IGNORE not in new and (project.root / IGNORE).read_bytes() != wanted[IGNORE]:
        new[IGNORE] = wanted[IGNORE]
    kept = _choose(project, wanted, new, chosen) if chosen else []
    obstacle = "--no-commit" if args.no_commit else _why_not_committed(project)
    if new and not obstacle:
        project.git.identity  # noqa: B018 - raises without an identity
    needed = FOLDERS if not apart and (BACKLOG in wanted or tracker == "auto") else FOLDERS[-1:]
    folders = [name for name in needed if not (project.root / name).is_dir()]
    begun = apart and _begin_apart(project)  # may fail: before anything else is written
    _make(project.root, folders)
    commit = _write(project, new, commit=not obstacle)
    for line in _results(wanted, new, needed, folders, tracker):
        say(line)
    for key in kept:
        say(f"kept   `{key}` as in {CONFIG}")
    if commit:
        say(f"committed as {commit[:12]}")
    elif new and not args.no_commit:
        tell(f"not committed: {obstacle}")
    if left := [path for path in dirty_paths(project.git) if path in wanted]:
        more = f" and {len(left) - _MOST_NAMED} more" if len(left) > _MOST_NAMED else ""
        say(f"uncommitted: {', '.join(left[:_MOST_NAMED])}{more}")
        say(f"  {commit_command(SETTINGS_COMMIT, sorted({_committable(path) for path in left}))}")
    if maybe := _maybe_wanted(project):
        say(f"note   git ignores {', '.join(maybe)}, and agents and tests work on what git holds;")
        say("       name what they need in .capsule/config.yaml, such as: workspace: {copy: [" + maybe[0] + "]}")
    warn(f"warning: {warning}" for warning in _complaints(open_project(args.project_dir)))
    if args.skills:
        _say_who_finds_skills(open_project(args.project_dir))
    say(f"next: {_next(project, ADD if BACKLOG in new or begun else 'capsule status', committed=bool(commit))}")
    return 0


def _next(project: Project, command: str, *, committed: bool) -> str:
    """Return the next command; first a push, if work is merged at a remote that does not have this commit."""
    merge = project.settings.merge
    if not (committed and merge.to == "remote" and project.branch):
        return command
    return f"git push {merge.remote} {project.branch}, then {command}"


def _begin_apart(project: Project) -> bool:
    """Make the backlog on the branch of its state, and say so; return whether it is new."""
    apart = project.state_branch
    assert apart
    new = apart.look() is None
    begin_state_branch(project)
    say(f"{'made' if new else 'exists':<6} {FOLDER}/{BACKLOG}")
    if new:
        say(f"committed to {apart.label}")
    return new


def _why_not_committed(project: Project) -> str:
    """Say what prevents a commit; other changes do: a hand-written .gitignore is not ours to commit."""
    own = (BACKLOG, CONFIG)
    dirty = len(dirty_paths(project.git, own))
    return why_not_committed(project.git, own) or (f"{count(dirty, 'other change')} in the tree" if dirty else "")


def _make(root: Path, folders: Sequence[str]) -> None:
    for name in folders:
        try:
            (root / name).mkdir(exist_ok=True)
        except OSError as fault:
            raise CannotWrite(root / name, fault) from None


def _say_who_finds_skills(project: Project) -> None:
    if not uses_skills(project):
        agent = project.settings.agent
        say(f"note   {agent} is started without the project's own settings, and does not find these skills;")
        say(f"       agents.{agent}.trust_project: true in {CONFIG} lets it: only where you trust who commits here")


def _chosen(project: Project, args: argparse.Namespace) -> tuple[str, dict[str, str]]:
    """Return the tracker, and the settings that a person chose."""
    if not args.ask and args.tracker != "github":
        return args.tracker, {}
    if (project.root / PROJECT_TOML).exists() and not (project.root / CONFIG).exists():
        hint = f"Set agent, evidence.test and tracker there, then: capsule init --tracker {args.tracker}"
        raise Refused(f"The settings of this project are in {PROJECT_TOML}.", hint)
    if not args.ask:
        return args.tracker, {"tracker": f"tracker: {args.tracker}"}
    answers = ask(project)
    return answers.tracker, answers.settings


def _choose(project: Project, wanted: dict[str, bytes], new: dict[str, bytes], chosen: dict[str, str]) -> list[str]:
    """Add the choices to the new settings; return the keys that are already set."""
    before = new.get(CONFIG) or read_plain(project.root / CONFIG) or b""
    there = parse_yaml(before, CONFIG)
    known = [str(key) for key in there] if isinstance(there, dict) else []
    after, kept = with_settings(before.decode(errors="surrogateescape"), chosen, known)
    if len(kept) < len(chosen):
        wanted[CONFIG] = new[CONFIG] = after.encode(errors="surrogateescape")
    return kept


def _check_prefix(project: Project, prefix: str | None) -> None:
    """Refuse a prefix that is invalid, or differs from the project's."""
    if prefix is not None and not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"--prefix is {prefix!a}; it must be 1 to 16 letters and digits, a letter first.",
            "Such as: capsule init --prefix APP",
        )
    is_set = "project.prefix" in project.loaded.layers or (project.root / CONFIG).exists()
    now = project.settings.project.prefix
    if prefix and is_set and prefix != now:
        raise Refused(
            f"The prefix of this project is already {now}.",
            f"Change project.prefix in {CONFIG}; items keep the ids they have.",
        )


def _check_file(root: Path, name: str) -> None:
    place = root / name
    if place.is_file() and name not in (BACKLOG, IGNORE):
        return  # it is not going to be written, and people link their settings
    if place.is_symlink() or passes_link(root, place) or (place.exists() and not place.is_file()):
        raise CapsuleError(f"{name} is not a plain file.", "Move it away, or put a plain file in its place.")


def _files(project: Project, args: argparse.Namespace, tracker: str) -> dict[str, bytes]:
    """Return the content of every file of ours; refuse links in their place."""
    root, beads = project.root, (project.root / ".beads").is_dir()
    found: dict[str, bytes] = {}
    if tracker == "backlog" or (tracker == "auto" and not beads and not _items_are_elsewhere(project)):
        found[BACKLOG] = new_backlog_file()
    if not (root / PROJECT_TOML).exists():
        both = "\n# There is a .beads folder too.\ntracker: backlog\n" if beads and args.tracker == "backlog" else ""
        prefix = args.prefix or project.settings.project.prefix
        branch = only_branch(project.git)
        main = f"  main: {json.dumps(branch)}    # work is merged into it\n" if branch else ""
        found[CONFIG] = SETTINGS.format(prefix=prefix, main=main, tracker=both).encode()
    _check_file(root, IGNORE)
    found[IGNORE] = ignoring(root / IGNORE)
    if args.prompts:
        for file in sorted(PROMPTS.glob("*/*.md")):
            found[f".capsule/prompts/{file.relative_to(PROMPTS).as_posix()}"] = file.read_bytes()
    if args.skills:
        found |= {path: text.encode() for path, text in skill_files(project).items()}
    for name in found:
        _check_file(root, name)
    return found


def _items_are_elsewhere(project: Project) -> bool:
    """Tell whether the settings name another tracker than a backlog."""
    return project.settings.tracker.name not in ("auto", "backlog")


def ignoring(file: Path) -> bytes:
    """Return .gitignore with the missing lines, in the order that git needs."""
    text = file.read_bytes() if file.exists() else b""
    there = {line.strip() for line in text.splitlines()}
    missing = [line.encode() for line in EXCLUDED if ".capsule" in line and line.encode() not in there]
    end = b"\r\n" if b"\r\n" in text else b"\n"
    gap = b"" if not text or text.endswith(b"\n") else end
    return text + gap + b"".join(line + end for line in missing) if missing else text


def _write(project: Project, files: Mapping[str, bytes], *, commit: bool) -> str:
    """Write these files; return the commit that holds exactly them, without ignored skills; '' without one."""
    skills = [path.encode() for path in files if _committable(path) == SKILLS]
    ignored = {path.decode() for path in project.git.ignored(skills)} if commit else {*files}
    for path in files.keys() & ignored:
        (project.root / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(project.root / path, files[path])
    if rest := {path: content for path, content in files.items() if path not in ignored}:
        return commit_files(project.git, (BACKLOG,), rest, "[INIT] A backlog for Capsule")
    return ""


_MANY = {".capsule/prompts": "prompts copied", SKILLS: "skills and forms written"}
"""Folders of many files, and the words for them."""


def _results(
    wanted: Mapping[str, bytes], new: Mapping[str, bytes], needed: Sequence[str], folders: list[str], tracker: str
) -> Iterator[str]:
    for name in needed:
        yield f"{'made' if name in folders else 'exists':<6} {name}/"
    for path in (path for path in wanted if _committable(path) == path):
        yield f"{'made' if path in new else 'exists':<6} {path}"
    for folder, done in _MANY.items():
        if files := [path for path in wanted if _committable(path) == folder]:
            fresh = sum(path in new for path in files)
            yield f"{'made' if fresh else 'exists':<6} {folder}/ ({fresh} {done}, {len(files) - fresh} kept)"
    if BACKLOG not in wanted and tracker == "auto":
        yield f"exists .beads/, which has the items; a {BACKLOG} is made only with --tracker backlog"


def _committable(path: str) -> str:
    """Return the path to pass to git for one of our files: the folder if it holds many."""
    return next((folder for folder in _MANY if path.startswith(f"{folder}/")), path)


def _maybe_wanted(project: Project) -> list[str]:
    """List ignored files that look like local settings, and are not copied into a worktree yet."""
    listed = project.git.repository("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    files = [path.decode(errors="replace") for path in listed.out.split(b"\0") if path and not path.endswith(b"/")]
    copied = project.settings.workspace.copy
    names = {path: path.rpartition("/")[2] for path in files if not any(fnmatch(path, glob) for glob in copied)}
    return sorted(path for path, name in names.items() if any(fnmatch(name, glob) for glob in _LOCAL))[:_MOST_NAMED]


def _complaints(project: Project) -> Iterator[str]:
    """List the problems that are left after the set-up."""
    yield from project.loaded.warnings
    words = Catalog.on_disk(project.root)
    skills: set[str] = set()
    for name in words.names("workflow"):
        try:
            skills |= {skill_file(phase) for phase in words.workflow(name).phases if phase.skill}
        except CapsuleError as fault:
            yield f"{fault.message} {fault.hint}"
    folder, how = project.root / SKILLS, project.settings.skills
    files = sorted(skills)
    missing = [file for file in files if not (folder / file).is_file()]
    if missing and (folder.is_dir() if how == "auto" else how != "never"):
        yield f"{SKILLS} lacks {', '.join(missing)}; phases that call them will fail."
    if (project.root / BACKLOG).exists():
        try:
            project.tracker.items()
            yield from project.tracker.warnings
        except CapsuleError as fault:
            yield f"{fault.message} {fault.hint}"
