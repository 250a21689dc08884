"""Check what is installed, what is missing, and how to get it. Nothing is changed, unless you say --fix.

It checks this machine and the project around this directory: programs, settings, workflows and where their prompts come
from, the tracker, the test command, and unfinished missions.

  ok         found and usable
  optional   not found, and not needed
  warning    works, with something to know
  missing    needed; the line says how to get it
  wrong      found, but unusable; the line says what to fix

The test command is tried once on the last commit, in a folder of its own that is removed again, for a minute at most;
`--no-tests` leaves that out.

A finding that can be fixed says what would be done. `--fix` shows that, asks, and does it: lines in .gitignore,
settings, a backlog, skills. It installs nothing and removes nothing; for the rest it names the command.

  capsule doctor
  capsule doctor --fix              on a terminal; elsewhere also --yes
  capsule doctor --json | jq '.checks[] | select(.state == "missing")'

Outside of a project only the machine is checked. Exit code: 0 nothing needed is missing or wrong, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from capsule.adapters import Ran, Tracker
from capsule.app.items import refuse_files_as_folders
from capsule.app.planning import uncommitted_before
from capsule.app.running import home_for_notifications
from capsule.app.skills import skill_names
from capsule.catalog import Catalog
from capsule.commands.doctor_fixes import Fix, agreed, apply, of_agent, of_ignoring, of_skills, of_tracker
from capsule.commands.watching import MissionReader
from capsule.commands.worker import refuse_without_sdk
from capsule.core.decide import Move
from capsule.core.errors import CapsuleError, PrerequisiteMissing, UsageError
from capsule.core.event import Policy
from capsule.core.evidence import Colour
from capsule.core.item import Item
from capsule.core.notification import BELL, channels
from capsule.core.remote import SAYS, Kind, Trouble
from capsule.core.state import MissionState
from capsule.core.test_report import TestReport
from capsule.core.test_runs import colour_of, killed_by, last_line, missing_runner
from capsule.core.text import count
from capsule.core.workflow import EXAM, Workflow
from capsule.engine.brief import check_prompts
from capsule.engine.steps import check_names
from capsule.presets import presets
from capsule.project import GET_BD, Project, adapters, has_tracker, open_project, tracker_if_there
from capsule.reports.style import Style, clean, output_width
from capsule.reports.table import wrap
from capsule.rules import behind_tests, policy_at, words_at
from capsule.settings import PROJECT_YAML, Loaded, Settings, load_settings
from capsule.system import layers
from capsule.system.git import Git, NotARepository, check_version
from capsule.system.process import SupervisorClient
from capsule.system.sandbox import SANDBOX_EXEC, level
from capsule.wiring import SKILLS, agent_maker, open_forge, try_tests
from capsule.workspaces import repository
from capsule.workspaces.disk_space import disk_shortage
from capsule.workspaces.remote import Remote
from capsule.workspaces.state_branch import FOLDER

COLOURS = {"ok": "green", "optional": "dim", "warning": "yellow", "missing": "red", "wrong": "red"}
FAULTS = ("missing", "wrong")
OLDEST_BD = (0, 44)
"""The versions that the tracker requires."""
SLOW = 2.0
"""Answers of `bd` that take longer are reported as slow."""
PATIENCE = 10.0
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_MEND_NOTIFY = "Fix `notify` in the settings; docs/how-to/notifications.md has examples."
_WATCHED = "hooks and settings of the repository are checked after each phase"
_UNCONFINED = f"agents and tests run as you do; {_WATCHED}"


@dataclass(frozen=True)
class Checked:
    name: str
    state: str
    found: str
    hint: str = ""
    about: str = "machine"
    fix: Fix | None = None


@dataclass
class _Context:
    """The machine and the project that are checked; with default settings if they cannot be read."""

    directory: str | None
    try_tests: bool = True

    @cached_property
    def git(self) -> Git | None:
        try:
            return Git.find(Path(self.directory or ".").absolute())
        except NotARepository:
            if self.directory:
                raise
            return None
        except CapsuleError:  # git itself is missing or too old: the check of git says so
            return None

    @cached_property
    def settings(self) -> Loaded | CapsuleError:
        try:
            return load_settings(self.git.root if self.git else None, env=os.environ, flags={})
        except CapsuleError as fault:
            return fault

    @cached_property
    def loaded(self) -> Loaded:
        return Loaded(Settings(), {}) if isinstance(self.settings, CapsuleError) else self.settings

    @cached_property
    def project(self) -> Project:
        assert self.git
        project = Project(self.git, {})
        project.loaded = self.loaded
        return project

    @cached_property
    def head(self) -> str:
        return self.project.git.resolve("HEAD")

    @cached_property
    def words(self) -> Catalog:
        return words_at(self.project, self.head)


Check = Callable[[_Context], Iterable[Checked]]
"""A check: yields findings in full sentences. MACHINE and PROJECT, at the end, list all checks."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the findings as one JSON object")
    parser.add_argument("--no-tests", action="store_true", help="do not try the test command")
    parser.add_argument("--fix", action="store_true", help="do what can be fixed, after showing it")
    parser.add_argument("--yes", action="store_true", help="with --fix: do not ask")


def run(args: argparse.Namespace) -> int:
    if (args.yes and not args.fix) or (args.json and args.fix):
        raise UsageError("--yes goes with --fix, and --json without it.", "capsule doctor --fix --yes")
    findings = list(examine(_Context(args.project_dir, try_tests=not args.no_tests)))
    if args.json:
        print(json.dumps({"ok": _healthy(findings), "checks": [_plain(finding) for finding in findings]}, indent=2))
    else:
        print("\n".join(_lines(findings)))
    if args.fix:
        findings = _fixed(findings, args)
    return 0 if _healthy(findings) else 1


def _healthy(findings: Iterable[Checked]) -> bool:
    return not any(finding.state in FAULTS for finding in findings)


def _plain(finding: Checked) -> dict[str, str]:
    words = {name: getattr(finding, name) for name in ("name", "state", "found", "hint", "about")}
    return {**words, "fix": finding.fix.words if finding.fix else ""}


def _fixed(findings: list[Checked], args: argparse.Namespace) -> list[Checked]:
    """Apply the fixes, and name the rest for a person; return the findings after that."""
    # The project first: `init` commits what it makes where nothing else is changed.
    in_order = sorted(findings, key=lambda finding: finding.about != "project")
    fixes = {finding.fix.words: finding.fix for finding in in_order if finding.fix}
    if not fixes:
        print("There is nothing that --fix could do.")
    elif not agreed([*fixes.values()], yes=args.yes):
        print("Nothing was changed.")
        return findings
    else:
        apply([*fixes.values()], open_project(args.project_dir))
    after = list(examine(_Context(args.project_dir, try_tests=False))) if fixes else findings
    left = [finding for finding in after if finding.state in FAULTS]
    if left:
        print("Left for you:")
        style, width = Style(sys.stdout), max(40, output_width(sys.stdout))
        for finding in left:
            print("\n".join(_row(finding, max(len(each.name) for each in left), style, width)))
    elif fixes:
        print("Fixed." if _healthy(findings) else "Ready.")
    return after


def examine(context: _Context) -> Iterator[Checked]:
    for check in MACHINE:
        yield from _safely(check, context, "machine")
    if context.git is None:
        yield Checked("project", "optional", "not in a git repository, so only the machine was checked")
        return
    for check in PROJECT:
        yield from _safely(check, context, "project")


def _safely(check: Check, context: _Context, about: str) -> Iterator[Checked]:
    """Run a check; report an error as a finding, so that the next one still runs."""
    try:
        for finding in check(context):
            yield replace(finding, about=about)
    except CapsuleError as fault:
        state = "missing" if isinstance(fault, PrerequisiteMissing) else "wrong"
        yield Checked(check.__name__.strip("_"), state, fault.message, fault.hint, about)


def _lines(findings: list[Checked]) -> Iterator[str]:
    style, width = Style(sys.stdout), max(40, output_width(sys.stdout))
    longest = max(len(finding.name) for finding in findings)
    for about in dict.fromkeys(finding.about for finding in findings):
        yield style.paint("bold", f"{about}:")
        for finding in (finding for finding in findings if finding.about == about):
            yield from _row(finding, longest, style, width)
    faults = [finding.name for finding in findings if finding.state in FAULTS]
    yield f"Needs attention: {', '.join(faults)}." if faults else "Ready."


def _row(finding: Checked, longest: int, style: Style, width: int) -> Iterator[str]:
    """Lay out name, state and a sentence, which is wrapped and never cut, and below it the hint."""
    name, indent = f"  {clean(finding.name):<{longest}}  ", " " * 8
    plain = f"{name}{finding.state:<8}  "
    first, *more = wrap(clean(finding.found), width, plain, indent, whole=True) or [plain]
    yield name + style.paint(COLOURS[finding.state], f"{finding.state:<8}") + first[len(plain) - 2 :]
    yield from more
    fix = f"`capsule doctor --fix` would {finding.fix.words}." if finding.fix else ""
    for words in filter(None, (finding.hint, fix)):
        yield from wrap(f"→ {clean(words)}", width, indent, f"{indent}  ", whole=True)


# ---- the machine


def _python(_: _Context) -> Iterator[Checked]:
    yield Checked("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _git(_: _Context) -> Iterator[Checked]:
    check_version()
    yield Checked("git", "ok", f"{_answer('git', 'version').stdout.strip()} at {shutil.which('git')}")


def _identity(context: _Context) -> Iterator[Checked]:
    """Report the committer of this project, or of a new one."""
    if context.git:
        person = context.git.identity
        yield Checked("identity", "ok", f"commits are by {person.name} <{person.email}>")
    elif name := _answer("git", "config", "user.name").stdout.strip():
        yield Checked("identity", "ok", f"commits are by {name}")
    elif shutil.which("git"):
        hint = 'git config --global user.name "Your Name"; git config --global user.email you@example.org'
        yield Checked("identity", "warning", "git has no user.name", hint)


def _agents(context: _Context) -> Iterator[Checked]:
    """Check every agent; only the selected one is needed."""
    settings = context.loaded.settings
    make = agent_maker(settings, context.git.root if context.git else Path.cwd(), SupervisorClient(), None)
    others = sorted({*adapters("agents"), *settings.agents} - {"command", "scripted", settings.agent})
    for name in (settings.agent, *others):
        chosen = name == settings.agent
        try:
            agent = make(name, "")
            agent.check()
        except CapsuleError as fault:
            state = "missing" if chosen else "optional"
            fix = of_agent(context.project) if chosen and context.git else None
            yield Checked(f"agent {name}", state, fault.message, fault.hint, fix=fix)
        else:
            program = agent.program() if hasattr(agent, "program") else name
            found = shutil.which(program) or "needs no program of its own"
            yield Checked(f"agent {name}", "ok", f"{found}{' (selected)' if chosen else ''}")


def _adapters(_: _Context) -> Iterator[Checked]:
    agents, trackers = (
        ", ".join(name for name in adapters(kind) if name != "memory") for kind in ("agents", "trackers")
    )
    yield Checked("adapters", "ok", f"agents that can be chosen: {agents}; trackers: {trackers}")
    described = (f"{name} ({'tested' if preset.tested else 'untested'})" for name, preset in presets().items())
    yield Checked("presets", "ok", f"agents that need no adapter: {', '.join(described)}")


def _bd(_: _Context) -> Iterator[Checked]:
    if path := shutil.which("bd"):
        version = bd_version()
        hint = f"Get 0.47.1, or 1.0.5 and newer: {GET_BD}"
        if complaint := too_old(version):
            yield Checked("bd", "warning", f"{complaint} It is {path}", hint)
        else:
            yield Checked("bd", "ok", f"{version or 'unknown version'} at {path}")
    else:
        about = "not installed: beads, for projects that keep their items in it"
        yield Checked("bd", "optional", about, f"To get it: {GET_BD}")


def bd_version() -> str:
    """Ask the bd on the PATH for its version; '' if it has none."""
    quiet = {**os.environ, "BEADS_NO_DAEMON": "1", "BD_NON_INTERACTIVE": "1"}
    found = _VERSION.search(_answer("bd", "version", cwd=tempfile.gettempdir(), env=quiet).stdout)
    return found.group() if found else ""


def too_old(version: str) -> str:
    """Return the complaint; '' if there is none, or the version is unknown."""
    found = _VERSION.match(version)
    if not found or (int(found[1]), int(found[2])) >= OLDEST_BD:
        return ""
    return f"bd {version} is too old: it lacks features that Capsule needs."


def _sandbox(context: _Context) -> Iterator[Checked]:
    """Report the sandbox in force, by the same probe as a run."""
    found = level(context.loaded.settings.sandbox, os.environ)
    about = "agents and tests change only their own place, and see nothing of your home but tools"
    if found.name == SANDBOX_EXEC:
        untested = f"{SANDBOX_EXEC} at {found.program}, untested on a Mac: {about}, if it holds; {_WATCHED}"
        yield Checked("sandbox", "warning", untested, "Report what fails; `sandbox: off` runs without it.")
    elif found.program:
        yield Checked("sandbox", "ok", f"bubblewrap at {found.program}: {about}")
        if why := layers.fault(found.program):
            missing = f"none ({why}): tests see installed dependencies read-only, agents get a copy of them"
            hint = "To get them: allow overlay mounts in user namespaces (Linux 5.11 and later)."
            yield Checked("layers", "optional", missing, hint)
        else:
            about = "what a run writes into installed dependencies is thrown away with it"
            yield Checked("layers", "ok", about)
    else:
        yield Checked("sandbox", "warning", f"none ({found.why}): {_UNCONFINED}", found.hint or "Set `sandbox: auto`.")


def _notify(context: _Context) -> Iterator[Checked]:
    yield from notify_findings(context.loaded.settings.notify, context.git.root if context.git else None)


def notify_findings(setting: str | Sequence[str], root: Path | None) -> Iterator[Checked]:
    """Check each way to send notifications."""
    for command in channels(setting):
        program = _program_of(command)
        if command == BELL:
            yield Checked("notify", "ok", "the terminal's bell")
        elif fault := _sh_complaint("-n", "-c", command):
            yield Checked("notify", "warning", f"`{command}` is not a valid shell command: {fault}", _MEND_NOTIFY)
        elif program and not _is_there(program):
            yield Checked(
                "notify", "warning", f"`{program}` is not installed, so no notification is sent", _MEND_NOTIFY
            )
        elif root and Path(program).is_absolute() and Path(program).is_relative_to(root):
            hint = "Keep it elsewhere: the command runs outside of every sandbox."
            yield Checked("notify", "warning", f"{program} is in the project, where agents can change it", hint)
        else:
            yield Checked("notify", "ok", f"`{command}`")


def _program_of(command: str) -> str:
    """Return the first word that is no assignment; '' if it is unknown."""
    try:
        words = shlex.split(command)
    except ValueError:
        return ""
    first = next((word for word in words if not _ASSIGNMENT.match(word)), "")
    return "" if "$" in first or "`" in first else os.path.expanduser(first)  # noqa: PTH111 (a word, maybe no path)


def _is_there(program: str) -> bool:
    """Tell whether a program, or a word of the shell such as `case`, can be run."""
    home = home_for_notifications(os.environ.get("HOME", ""))
    if "/" in program:
        return os.access(home / program, os.X_OK)
    return bool(shutil.which(program)) or not _sh_complaint("-c", 'command -v -- "$1"', "sh", program)


def _sh_complaint(*words: str) -> str:
    """Return the complaint of `sh` about these words; '' if there is none."""
    done = _answer("sh", *words, cwd="/")
    return (done.stderr.strip().partition("\n")[0] or f"exit code {done.returncode}") if done.returncode else ""


def _answer(*argv: str, cwd: str | None = None, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; return no output if it cannot run, or takes too long."""
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return subprocess.CompletedProcess(argv, 0, "", "")


# ---- the project


def _repository(context: _Context) -> Iterator[Checked]:
    yield Checked("repository", "ok", str(context.project.root))
    if not context.head:
        yield Checked(
            "main",
            "missing",
            "the repository has no commit yet",
            'Missions start from a commit. Make one: `git add -A && git commit -m "First commit"`',
        )
        return
    try:
        main = repository.main_branch(context.project.git, context.loaded.settings.project.main)
    except CapsuleError as fault:
        yield Checked("main", "wrong", fault.message, fault.hint)
    else:
        chosen = context.loaded.settings.merge
        follows = f"your branch {main} follows what is merged at {chosen.remote}"
        yield Checked("main", "ok", f"work is merged into {main}" if chosen.to == "local" else follows)


def _remote(context: _Context) -> Iterator[Checked]:
    """Look at the remote that work is merged to, or could be."""
    chosen = context.loaded.settings.merge
    remote = Remote(context.project.git, chosen.remote, transfer=PATIENCE, look=PATIENCE)
    if not context.head or (chosen.to == "local" and not remote.url):
        return
    main = repository.main_branch(context.project.git, context.loaded.settings.project.main)
    branch = main if chosen.branch == "auto" else chosen.branch
    label, elsewhere = f"{chosen.remote}/{branch}", chosen.to != "local"
    found = remote.fetch(branch)
    by_request = chosen.to == "request"
    trouble = found if isinstance(found, Trouble) else None if by_request else remote.may_push(branch)
    if trouble:
        state = ("warning" if trouble.passes else "wrong") if elsewhere else "optional"
        yield Checked("remote", state, f"{label} {SAYS[trouble.kind]}: {trouble.words}", _way_to(remote, trouble))
    elif by_request:
        yield _forge(context, label, branch)
    elif protected_at := _protected_at(context, branch):
        found, hint = (
            f"{label} is protected at {protected_at}: it takes requests only",
            f"To open one for each mission: `merge: {{to: request}}` in {PROJECT_YAML}",
        )
        yield Checked("remote", "warning" if elsewhere else "optional", found, hint)
    elif elsewhere:
        yield Checked("remote", "ok", f"work is merged into {label} at {remote.url}{_pushed_by(remote)}")
    else:
        found, hint = (
            f"{label} can be read and pushed to; work is merged into your own {main}, and nothing is pushed",
            f"To merge into {label}: `merge: {{to: remote}}` in {PROJECT_YAML}; by pull requests: `{{to: request}}`",
        )
        yield Checked("remote", "optional", found, hint)


def _forge(context: _Context, label: str, branch: str) -> Checked:
    """Look for the program that opens requests, and for its login."""
    forge = open_forge(context.project)
    try:
        forge.check()
        forge.protects(branch)
    except CapsuleError as fault:
        return Checked("remote", "wrong", fault.message, fault.hint)
    return Checked("remote", "ok", f"work is merged into {label} by requests that {forge.name} opens")


def _protected_at(context: _Context, branch: str) -> str:
    """Return the host whose forge says that a branch takes requests only; '' if it does not, or cannot be asked."""
    forge = open_forge(context.project)
    with suppress(CapsuleError):
        return forge.host if forge.protects(branch) else ""
    return ""


def _pushed_by(remote: Remote) -> str:
    apart = remote.pushed_elsewhere
    return f"; pushes go to {apart[0]}, and count only where they arrive there" if apart else ""


def _way_to(remote: Remote, trouble: Trouble) -> str:
    if trouble.way:
        return trouble.way
    if not remote.url:
        return "List what there is: git remote -v"
    looks = "List what is there: git ls-remote" if trouble.kind is Kind.ABSENT else "Try it by hand: git fetch"
    return f"{looks} {remote.name}"


def _temporal(context: _Context) -> Iterator[Checked]:
    """Look at the server that missions run on, if they do not run on this machine."""
    project = context.project
    if project.settings.engine != "temporal":
        return
    chosen = project.settings.temporal
    try:
        refuse_without_sdk()
        from capsule.temporal.look import look  # noqa: PLC0415 - an optional dependency

        seen = look(project)
    except CapsuleError as fault:
        state = "missing" if isinstance(fault, PrerequisiteMissing) else "wrong"
        yield Checked("temporal", state, fault.message, fault.hint)
        return
    place = f"{chosen.namespace} at {chosen.address}"
    if seen.clock > _CLOCK_SECONDS:
        yield Checked("temporal", "warning", f"this machine's clock is {seen.clock:.0f} s behind the server's", "")
    if seen.workers:
        yield Checked("temporal", "ok", f"{place}; workers: {', '.join(seen.workers)}")
    else:
        yield Checked("temporal", "warning", f"{place}; no worker has asked for work", "Start one: capsule worker")


_CLOCK_SECONDS = 30.0


def _settings(context: _Context) -> Iterator[Checked]:
    if isinstance(context.settings, CapsuleError):
        yield Checked("settings", "wrong", context.settings.message, context.settings.hint)
        return
    by = sorted(set(context.settings.layers.values()))
    said = f"{len(context.settings.layers)} set by {' and '.join(by)}" if by else "all at their defaults"
    yield Checked("settings", "ok", f"{said}; `capsule config` lists them")
    for warning in context.settings.warnings:
        yield Checked("settings", "warning", warning)


def _workflows(context: _Context) -> Iterator[Checked]:
    for name in context.words.names("workflow"):
        try:
            workflow = context.words.workflow(name)
            check_names(workflow)
            check_prompts(context.words, MissionState(workflow=workflow), skills=True)
        except CapsuleError as fault:
            yield Checked(f"workflow {name}", "wrong", fault.message, fault.hint)
        else:
            yield Checked(f"workflow {name}", "ok", _prompt_files(context.words, workflow))


def _prompt_files(words: Catalog, workflow: Workflow) -> str:
    """Name its file, and the prompts that the project has changed."""
    where = words.where(workflow.name, "workflow")
    asked = [phase.prompt for phase in workflow.phases if phase.prompt and phase.prompt not in workflow.prompts]
    files = {prompt: words.where(prompt, "prompt", workflow.name) for prompt in asked}
    own = [f"{prompt} is {file}" for prompt, file in files.items() if not file.startswith("built-in ")]
    rest = "all its prompts are built-in" if not own else f"its own prompts: {', '.join(own)}"
    held = any(phase.writes == EXAM for phase in workflow.phases)
    exam = "; its exam costs one more agent, and about four more runs of the tests" if held else ""
    return f"{count(len(workflow.phases), 'phase')}, from {where}; {rest}{exam}"


def _tracker(context: _Context) -> Iterator[Checked]:
    project = context.project
    tracker = None
    try:
        tracker = project.tracker
        items = tracker.items()
        refuse_files_as_folders(project, tracker.traits.folders)
    except CapsuleError as fault:
        fix = None if tracker or has_tracker(project) else of_tracker(project)
        missing = tracker is None or isinstance(fault, PrerequisiteMissing)
        yield Checked("tracker", "missing" if missing else "wrong", fault.message, fault.hint, fix=fix)
        return
    yield Checked("tracker", "ok", f"{tracker.name}, with {count(len(items), 'open item')}")
    for warning in tracker.warnings:
        yield Checked("tracker", "warning", warning)
    if items and (dirty := uncommitted_before(project, items[0])):
        found = f"{count(len(dirty), 'uncommitted change')}, such as {dirty[0]}: no run starts"
        yield Checked("checkout", "warning", found, "Commit first, or: `capsule run --allow-dirty`")
    if tracker.name == "beads":
        yield _beads(tracker, items)
    elif tracker.name == "beads-file" and project.settings.tracker.name == "auto":
        there = shutil.which("bd")
        why = "bd is installed, and has no database here:" if there else "bd is not installed, so"
        yield Checked("beads", "optional", f"{why} the JSONL file in .beads is what is read and written")


def _skills(context: _Context) -> Iterator[Checked]:
    """Look for the skills that phases name, if the project has any."""
    folder = context.project.root / SKILLS
    wanted = skill_names(context.project) if folder.is_dir() else ()
    if lacking := [name for name in wanted if not (folder / name).is_file()]:
        found = f"{SKILLS} lacks {', '.join(lacking)}; phases that call them fail"
        yield Checked(
            "skills", "warning", found, "`capsule init --skills` writes them.", fix=of_skills(context.project)
        )


def _ignored(context: _Context) -> Iterator[Checked]:
    """Check that Capsule's files cannot be committed by accident."""
    if has_tracker(context.project) and (fix := of_ignoring(context.project)):
        found = ".gitignore lacks Capsule's files, such as worktrees and logs"
        yield Checked("ignored", "optional", found, "A run keeps them out of commits in this clone only.", fix=fix)


def _state(context: _Context) -> Iterator[Checked]:
    """Say where the state of a backlog is, if main takes requests only."""
    apart = context.project.state_branch if context.head else None
    if apart is None or tracker_if_there(context.project).name != "backlog":
        return
    if apart.checkout() is None:
        yield Checked("state", "ok", f"the first change of the backlog begins {apart.label}, which will have its state")
        return
    yield Checked("state", "ok", f"the state of the backlog is on {apart.label}; its checkout is {FOLDER}")
    if left := apart.left_on_main():
        found = f"main still has {left}, which is not read any more"
        yield Checked("state", "warning", found, "Propose its removal by a request of your own.")


def _beads(tracker: Tracker, items: Sequence[Item]) -> Checked:
    """Ask bd once more, to measure the time of an answer."""
    version = getattr(tracker, "version", "")
    began = time.monotonic()
    for item in items[:1]:
        tracker.item(item.id)
    seconds = time.monotonic() - began
    found = f"bd {version} reaches its database{f', and answers in {seconds:.1f} s' if items else ''}"
    hint = "A mission asks it about ten times. `bd doctor` may know why it is slow." if seconds >= SLOW else ""
    return Checked("beads", "warning" if hint else "ok", found, hint)


def _tests(context: _Context) -> Iterator[Checked]:
    if not context.head:
        return
    policy, warnings = policy_at(context.project, context.head)
    if policy.verify == "off":
        yield Checked("tests", "warning", "verify is off: nothing that agents claim is checked", "Set verify: strict.")
    elif policy.test and context.try_tests:
        behind = behind_tests(context.project, context.head, policy.test)
        yield _tried(policy, behind, try_tests(context.project, policy.test, context.head, TRIAL))
    elif policy.test:
        yield Checked("tests", "ok", f"`{policy.test}` (not tried)")
    else:
        hint = "Name one: evidence.test in .capsule/config.yaml."
        yield Checked("tests", "warning", "no test command was found, so missions run unverified", hint)
    for warning in warnings:
        yield Checked("tests", "warning", warning)


def _tried(policy: Policy, behind: str, ran: Ran) -> Checked:  # noqa: PLR0911 - one for each way to end
    """Report one run of the test command; `behind` is all that it reaches."""
    said = f"`{policy.test}`"
    last = last_line(ran.tail) or "it printed nothing"
    if ran.why in ("timeout", "idle"):
        return Checked("tests", "ok", f"{said} did not finish in {TRIAL:.0f} s, so its result is unknown")
    if ran.why != "exited" or missing_runner(ran.exit_code, ran.tail):
        return Checked("tests", "missing", f"{said} cannot be run: {last}", _INSTALL_RUNNER)
    if signal := killed_by(ran.exit_code, ran.tail):
        found = f"{said} was killed by {signal}, so its result is unknown"
        return Checked("tests", "warning", found, "Memory may have run out. Try again: `capsule doctor`")
    if ran.report.errors or ran.report.results:
        return _by_name(policy, ran.report)
    colour = colour_of(ran.why, ran.exit_code, ran.tail, behind, ran.report)
    if colour is Colour.EMPTY or ran.report.complete:
        return Checked("tests", "warning", f"{said} found no tests", _FIRST_TESTS)
    if colour is Colour.GREEN:
        return Checked("tests", "ok", f"{said} passes, by its exit code only: it does not name its tests")
    return Checked("tests", "wrong", f"{said} is red (exit {ran.exit_code}): {last}", _MEND_FIRST)


def _by_name(policy: Policy, report: TestReport) -> Checked:
    """Report its tests by name, and whether a mission could start."""
    found = f"`{policy.test}`: {count(len(report.results), 'test')} by name"
    if report.errors:
        broken = ", ".join(error.where or "a file" for error in report.errors[:3])
        return Checked("tests", "wrong", f"{found}; {broken} cannot be loaded", _LOAD_FIRST)
    if report.red:
        found += f", {len(report.red)} of them red: {', '.join(report.red[:3])}"
        if policy.base == "strict" or not report.passed:
            return Checked("tests", "wrong", found, _STRICT if policy.base == "strict" else _MEND_FIRST)
        return Checked(
            "tests", "warning", found, "A mission may leave them as they are; what fails besides is refuted."
        )
    if not report.passed:
        return Checked("tests", "warning", f"{found}, none of them passed", _FIRST_TESTS)
    return Checked("tests", "ok", found)


TRIAL = 60.0
"""The time limit of the test command's trial, in seconds."""
_FIRST_TESTS = "That is fine for a new project: it will run the first tests that a mission writes."
_MEND_FIRST = "Fix it first: a mission does not start while no test passes."
_LOAD_FIRST = "Fix it first: a mission does not start while tests cannot be loaded."
_STRICT = "Fix it first: with `evidence.base: strict`, a mission does not start while a test fails."
_INSTALL_RUNNER = "Install the test runner, or name another command: evidence.test in .capsule/config.yaml."


def _leftovers(context: _Context) -> Iterator[Checked]:
    """List missions that are not finished, and worktrees that belong to no mission."""
    with MissionReader(context.project) as reader:
        states = {name: reader.history(name).state for name in sorted(reader.missions())}
        under_way = {name: state for name, state in states.items() if state.under_way}
        running = {name for name in under_way if reader.journal.is_held(name)}
    for name, state in under_way.items():
        if name in running:
            yield Checked("mission", "ok", f"{name} is running", f"Watch it: `capsule logs {name} -f`")
        elif state.halt:
            found = f"{name} {'needs you' if state.halt.move is Move.PARK else 'failed'} at {state.halt.phase}"
            yield Checked("mission", "warning", found, f"See why: `capsule show {name}`")
        else:
            yield Checked("mission", "warning", f"{name} was interrupted", f"Resume it: `capsule run {name}`")
    for folder in sorted((context.project.root / ".capsule" / "worktrees").glob("*")):
        if folder.is_dir() and folder.name not in under_way:
            hint = f"`capsule run {folder.name}` adopts it, `capsule clean {folder.name}` salvages and removes it."
            yield Checked("worktree", "warning", f"{folder.name} has a worktree and no mission", hint)


def _disk(context: _Context) -> Iterator[Checked]:
    room = disk_shortage(context.project.git, context.project.env) if context.head else ""
    if room:
        yield Checked("disk", "warning", room, "Make room, or set XDG_CACHE_HOME to a folder on another disk.")
    elif context.head:
        yield Checked("disk", "ok", "there is room for a mission")


MACHINE: tuple[Check, ...] = (_python, _git, _identity, _agents, _adapters, _bd, _sandbox, _notify)
PROJECT: tuple[Check, ...] = (
    _repository,
    _remote,
    _temporal,
    _settings,
    _workflows,
    _tracker,
    _state,
    _skills,
    _ignored,
    _tests,
    _leftovers,
    _disk,
)
