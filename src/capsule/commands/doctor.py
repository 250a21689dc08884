"""`capsule doctor`: what is installed, what is missing, and how to get it. It looks, and mends nothing.

A check is a function that says what it found, in sentences that can be read aloud. The two tables at the end are the
whole examination: the machine, and the project around the current directory if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from capsule.commands.arguments import project_option
from capsule.core.errors import CapsuleError

if TYPE_CHECKING:
    from capsule.catalog import Catalog
    from capsule.core.state import MissionState
    from capsule.core.workflow import Workflow
    from capsule.reports.style import Style
    from capsule.settings import Loaded
    from capsule.system.git import Git
    from capsule.wiring import Project

DESCRIPTION = """\
Look at this machine and at the project around this directory, and say what Capsule finds: programs, settings,
workflows and where their prompts come from, the tracker, the test command, and what was left half done.

  ok         it is there and fit for use
  optional   it is not there, and that is fine
  warning    it works, and something is worth knowing
  missing    Capsule needs it; the line says how to get it
  wrong      it is there and cannot be used; the line says where to mend it

  capsule doctor
  capsule doctor --json | jq '.checks[] | select(.state == "missing")'

Outside of a project only the machine is looked at. Exit code: 0 nothing needed is missing or wrong, 1 otherwise.
"""

COLOURS = {"ok": "green", "optional": "dim", "warning": "yellow", "missing": "red", "wrong": "red"}
FAULTS = ("missing", "wrong")
OLDEST_PYTHON = (3, 11)


@dataclass(frozen=True)
class Finding:
    name: str
    state: str
    found: str
    hint: str = ""
    about: str = "machine"


@dataclass
class Patient:
    """What is examined. Settings that cannot be read are reported once; the rest is looked at with the defaults."""

    directory: str | None

    @cached_property
    def git(self) -> Git | None:
        from capsule.system.git import Git, NotARepository

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
        from capsule.settings import load_settings

        try:
            return load_settings(self.git.root if self.git else None, env=os.environ, flags={})
        except CapsuleError as fault:
            return fault

    @cached_property
    def loaded(self) -> Loaded:
        from capsule.settings import Loaded, Settings

        return Loaded(Settings(), {}) if isinstance(self.settings, CapsuleError) else self.settings

    @cached_property
    def project(self) -> Project:
        from capsule.wiring import Project

        assert self.git
        project = Project(self.git, {})
        project.loaded = self.loaded
        return project

    @cached_property
    def head(self) -> str:
        return self.project.git.resolve("HEAD")

    @cached_property
    def words(self) -> Catalog:
        from capsule.rules import words_at

        return words_at(self.project, self.head)

    @cached_property
    def missions(self) -> dict[str, tuple[MissionState, bool]]:
        """Each mission there is, and whether somebody is at it."""
        from capsule.core.errors import LockHeld
        from capsule.core.state import replay

        journal = self.project.journal(read_only=True)
        found = {}
        for stream in journal.missions():
            state = replay(event for _, event in journal.events(stream))
            try:
                running = journal.running(stream) is not None
            except LockHeld:
                running = True
            found[stream] = state, running
        journal.close()
        return found


Check = Callable[[Patient], Iterable[Finding]]


def arguments(parser: argparse.ArgumentParser) -> None:
    project_option(parser)
    parser.add_argument("--json", action="store_true", help="the findings as one JSON object")


def run(args: argparse.Namespace) -> int:
    findings = list(examine(Patient(args.project_dir)))
    healthy = not any(finding.state in FAULTS for finding in findings)
    if args.json:
        print(json.dumps({"ok": healthy, "checks": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print("\n".join(_lines(findings)))
    return 0 if healthy else 1


def examine(patient: Patient) -> Iterator[Finding]:
    for check in MACHINE:
        yield from _safely(check, patient, "machine")
    if patient.git is None:
        yield Finding(
            "project", "optional", "this directory is in no git repository, so only the machine was looked at"
        )
        return
    for check in PROJECT:
        yield from _safely(check, patient, "project")


def _safely(check: Check, patient: Patient, about: str) -> Iterator[Finding]:
    """A check that cannot be made is a finding, and the next one is made all the same."""
    try:
        for finding in check(patient):
            yield Finding(finding.name, finding.state, finding.found, finding.hint, about)
    except CapsuleError as fault:
        yield Finding(check.__name__.strip("_"), "wrong", fault.message, fault.hint, about)


def _lines(findings: list[Finding]) -> Iterator[str]:
    from capsule.reports.style import Style

    style, width = Style(sys.stdout), max(40, shutil.get_terminal_size((100, 24)).columns)
    longest = max(len(finding.name) for finding in findings)
    for about in dict.fromkeys(finding.about for finding in findings):
        yield style.paint("bold", f"{about}:")
        for finding in (finding for finding in findings if finding.about == about):
            yield from _row(finding, longest, style, width)
    faults = [finding.name for finding in findings if finding.state in FAULTS]
    yield f"Needs care: {', '.join(faults)}." if faults else "Nothing that is needed is missing."


def _row(finding: Finding, longest: int, style: Style, width: int) -> Iterator[str]:
    """Name, state and a sentence, which is wrapped and never cut; below it what to do."""
    from capsule.reports.style import clean

    name, indent = f"  {clean(finding.name):<{longest}}  ", " " * 8
    plain = f"{name}{finding.state:<8}  "
    first, *more = textwrap.wrap(
        clean(finding.found),
        width,
        initial_indent=plain,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
    yield name + style.paint(COLOURS[finding.state], f"{finding.state:<8}") + first[len(plain) - 2 :]
    yield from more
    yield from textwrap.wrap(
        f"→ {clean(finding.hint)}" if finding.hint else "",
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_on_hyphens=False,
        break_long_words=False,
    )


# ---- the machine


def _python(_: Patient) -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    state = "ok" if sys.version_info >= OLDEST_PYTHON else "wrong"
    yield Finding("python", state, f"{version} at {sys.executable}", "" if state == "ok" else "Capsule needs 3.11.")


def _git(_: Patient) -> Iterator[Finding]:
    from capsule.system.git import OLDEST

    wanted = ".".join(map(str, OLDEST))
    get_it = f"Install git {wanted} or newer: https://git-scm.com/downloads"
    said = _first_line("git", "version")
    found = re.search(r"(\d+)\.(\d+)", said)
    if not found:
        yield Finding("git", "missing", "git is not installed", get_it)
    elif (int(found[1]), int(found[2])) < OLDEST:
        yield Finding("git", "missing", f"{said} is too old", get_it)
    else:
        yield Finding("git", "ok", f"{said} at {shutil.which('git')}")


def _identity(patient: Patient) -> Iterator[Finding]:
    """In a project whoever commits there; elsewhere what git would take for a new one."""
    if patient.git:
        person = patient.git.identity
        yield Finding("identity", "ok", f"commits are by {person.name} <{person.email}>")
    elif name := _first_line("git", "config", "user.name"):
        yield Finding("identity", "ok", f"commits are by {name}")
    elif shutil.which("git"):
        hint = 'git config --global user.name "Your Name"; git config --global user.email you@example.org'
        yield Finding("identity", "warning", "git does not know who you are", hint)


def _agents(patient: Patient) -> Iterator[Finding]:
    """The one that does the work is needed; the others are there to be chosen."""
    from capsule.catalog import adapters

    settings = patient.loaded.settings
    others = sorted({*adapters("agents"), *settings.agents} - {"command", "scripted", settings.agent})
    for name in (settings.agent, *others):
        chosen = name == settings.agent
        try:
            found = _agent(patient, name)
        except CapsuleError as fault:
            state = "missing" if chosen else "optional"
            yield Finding(f"agent {name}", state, fault.message, fault.hint)
        else:
            yield Finding(f"agent {name}", "ok", f"{found}{', and does the work' if chosen else ''}")


def _agent(patient: Patient, name: str) -> str:
    from capsule.system.process import SupervisorClient
    from capsule.wiring import agent_maker

    root = patient.git.root if patient.git else Path.cwd()
    agent = agent_maker(patient.loaded.settings, root, SupervisorClient(), None)(name, "")
    agent.check()
    program = getattr(agent, "program", lambda: name)()
    return shutil.which(program) or "needs no program of its own"


def _doors(_: Patient) -> Iterator[Finding]:
    from capsule.catalog import adapters
    from capsule.presets import presets

    agents, trackers = (
        ", ".join(name for name in adapters(kind) if name != "memory") for kind in ("agents", "trackers")
    )
    yield Finding("doors", "ok", f"agents that can be chosen: {agents}; trackers: {trackers}")
    described = (f"{name} ({'tested' if preset.tested else 'untested'})" for name, preset in presets().items())
    yield Finding("presets", "ok", f"agents that need no adapter: {', '.join(described)}")


_TOOLS = {
    "bd": ("beads, for projects that keep their items in it", "https://github.com/steveyegge/beads"),
    "uv": ("installs Capsule and makes environments quickly", "https://docs.astral.sh/uv/"),
}


def _tools(_: Patient) -> Iterator[Finding]:
    from capsule.commands.doctor_tracker import bd_finding

    for name, (purpose, get_it) in _TOOLS.items():
        path = shutil.which(name)
        if path and name == "bd":
            yield bd_finding(path, get_it)
        elif path:
            yield Finding(name, "ok", path)
        else:
            yield Finding(name, "optional", f"not installed: {purpose}", f"To get it: {get_it}")


def _sandbox(patient: Patient) -> Iterator[Finding]:
    from capsule.commands.doctor_sandbox import sandbox_findings

    yield from sandbox_findings(patient.loaded.settings.sandbox)


def _notify(patient: Patient) -> Iterator[Finding]:
    from capsule.commands.doctor_notify import notify_findings

    yield from notify_findings(patient.loaded.settings.notify, patient.git.root if patient.git else None)


def _first_line(*argv: str) -> str:
    """What a program says of itself; '' where it cannot be asked."""
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=10, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


# ---- the project


def _repository(patient: Patient) -> Iterator[Finding]:
    from capsule.workspaces import repository

    yield Finding("repository", "ok", str(patient.project.root))
    if not patient.head:
        yield Finding("main", "missing", "the repository has no commit yet", "Make one: missions start from a commit.")
        return
    main = repository.main_branch(patient.project.git, patient.loaded.settings.project.main)
    yield Finding("main", "ok", f"work is merged into {main}")


def _settings(patient: Patient) -> Iterator[Finding]:
    if isinstance(patient.settings, CapsuleError):
        yield Finding("settings", "wrong", patient.settings.message, patient.settings.hint)
        return
    layers = sorted(set(patient.settings.layers.values()))
    said = f"{len(patient.settings.layers)} set by {' and '.join(layers)}" if layers else "all as by default"
    yield Finding("settings", "ok", f"{said}; `capsule config` lists them")
    for warning in patient.settings.warnings:
        yield Finding("settings", "warning", warning)


def _workflows(patient: Patient) -> Iterator[Finding]:
    for name in patient.words.names("workflow"):
        try:
            workflow = patient.words.workflow(name)
            _check_names(workflow)
        except CapsuleError as fault:
            yield Finding(f"workflow {name}", "wrong", fault.message, fault.hint)
        else:
            yield Finding(f"workflow {name}", "ok", _told(patient.words, workflow))


def _check_names(workflow: Workflow) -> None:
    from capsule.engine.steps import check_names

    check_names(workflow)


def _told(words: Catalog, workflow: Workflow) -> str:
    """Which file it is, and which of its prompts are the project's own."""
    where = words.where(workflow.name, "workflow")
    asked = [phase.prompt for phase in workflow.phases if phase.prompt and phase.prompt not in workflow.prompts]
    files = {prompt: words.where(prompt, "prompt", workflow.name) for prompt in asked}
    own = [f"{prompt} is {file}" for prompt, file in files.items() if not file.startswith("built-in ")]
    rest = "all its prompts are built-in" if not own else f"its own prompts: {', '.join(own)}"
    return f"{_count(len(workflow.phases), 'phase')}, from {where}; {rest}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _tracker(patient: Patient) -> Iterator[Finding]:
    from capsule.commands.doctor_tracker import tracker_findings

    yield from tracker_findings(patient.project)


def _tests(patient: Patient) -> Iterator[Finding]:
    from capsule.rules import policy_at

    if not patient.head:
        return
    policy, warnings = policy_at(patient.project, patient.head)
    if policy.verify == "off":
        yield Finding("tests", "warning", "verify is off: nothing that agents claim is checked", "Set verify: strict.")
    elif policy.test:
        yield Finding("tests", "ok", f"`{policy.test}`")
    else:
        hint = "Name one: evidence.test in .capsule/config.yaml."
        yield Finding("tests", "warning", "no test command was found, so missions run unverified", hint)
    for warning in warnings:
        yield Finding("tests", "warning", warning)


def _leftovers(patient: Patient) -> Iterator[Finding]:
    """What was begun and is not at its end, and places that belong to no mission."""
    under_way = {name for name, (state, _) in patient.missions.items() if state.under_way}
    for name in sorted(under_way):
        state, running = patient.missions[name]
        yield from _mission(name, state, running=running)
    for folder in sorted((patient.project.root / ".capsule" / "worktrees").glob("*")):
        if folder.is_dir() and folder.name not in under_way:
            hint = f"`capsule run {folder.name}` adopts it, `capsule clean {folder.name}` salvages and removes it."
            yield Finding("worktree", "warning", f"{folder.name} has a worktree and no mission", hint)


def _mission(name: str, state: MissionState, *, running: bool) -> Iterator[Finding]:
    if running:
        yield Finding("mission", "ok", f"{name} is running", f"Watch it: `capsule logs {name} -f`")
    elif state.halt:
        yield Finding("mission", "warning", f"{name} halted at {state.halt.phase}", f"See why: `capsule show {name}`")
    else:
        yield Finding("mission", "warning", f"{name} was interrupted", f"Go on with `capsule run {name}`")


MACHINE: tuple[Check, ...] = (_python, _git, _identity, _agents, _doors, _tools, _sandbox, _notify)
PROJECT: tuple[Check, ...] = (_repository, _settings, _workflows, _tracker, _tests, _leftovers)
