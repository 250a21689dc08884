"""The three questions of `capsule init --ask`: agent, tests, tracker. The findings are the defaults."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from capsule.commands.arguments import plain, say
from capsule.core.errors import CapsuleError, UsageError
from capsule.core.text import did_you_mean
from capsule.presets import presets
from capsule.project import Project, adapters, on_github
from capsule.rules import policy_at
from capsule.settings import Settings
from capsule.system.process import SupervisorClient
from capsule.wiring import agent_maker

_MOST_TRIES = 5


class Answers(Struct, frozen=True):
    """A person's choices, as values of the settings."""

    agent: str
    test: str
    tracker: str

    @property
    def settings(self) -> dict[str, str]:
        """Return each key of the settings with its line; a JSON text is a YAML text."""
        return {
            "agent": f"agent: {json.dumps(self.agent)}",
            "evidence": f"evidence: {{test: {json.dumps(self.test, ensure_ascii=False)}}}",
            "tracker": f"tracker: {self.tracker}",
        }


def ask(project: Project) -> Answers:
    """Ask on a terminal; Enter accepts the default."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        hint = "Without one: `capsule init`, and set `agent` and `evidence.test` in .capsule/config.yaml."
        raise UsageError("--ask needs a terminal to ask on.", hint)
    say("Three questions; Enter takes what is in brackets, Ctrl-C leaves everything as it is.")
    return Answers(_agent(project), _test(project), _tracker(project))


def installed_agents(settings: Settings, root: Path) -> Iterator[tuple[str, bool]]:
    """Yield every agent that can be chosen, and whether it can run here."""
    make = agent_maker(settings, root, SupervisorClient(), None)
    for name in sorted({*adapters("agents"), *presets(), *settings.agents} - {"command", "scripted"}):
        try:
            make(name, "").check()
        except CapsuleError:
            yield name, False
        else:
            yield name, True


def _agent(project: Project) -> str:
    settings = project.settings
    known = dict(installed_agents(settings, project.root))
    there = [name for name, found in known.items() if found]
    default = settings.agent if settings.agent in there or not there else there[0]
    say(f"\n1. Which agent does the work? Installed here: {', '.join(there) or 'none of those that Capsule knows'}.")

    def checked(word: str) -> str:
        if word not in {*known, *settings.agents, "scripted"}:
            raise UsageError(
                f"There is no agent {word!a}.", did_you_mean(word, known, f"There are: {', '.join(known)}.")
            )
        return word

    chosen = _answer(default, checked)
    if not known.get(chosen, True):
        say(f"   {chosen} is not installed here yet: `capsule doctor` says how to get it.")
    return chosen


def _test(project: Project) -> str:
    head = project.git.resolve("HEAD")
    found = policy_at(project, head)[0].test if head else ""
    what = "found in the project" if found else "none was found; `auto` looks again before each mission"
    say(f"\n2. Which command runs the tests ({what})? With `none`, nothing is verified.")
    return _answer(found or "auto", str)


def _tracker(project: Project) -> str:
    beads, github = (project.root / ".beads").is_dir(), on_github(project)
    known = ["backlog", *["beads", "beads-file"] * beads, "github"]
    where = ["backlog: BACKLOG.yaml in this project", "github: issues, through gh"]
    say(f"\n3. Where do the items come from? {'; '.join([*where, *['beads: the .beads folder'] * beads])}.")
    if github:
        say("   A remote of this repository is on GitHub.")
    setting = project.settings.tracker.name

    def checked(word: str) -> str:
        if word not in known:
            raise UsageError(
                f"There is no tracker {word!a} here.", did_you_mean(word, known, f"There are: {', '.join(known)}.")
            )
        return word

    usual = "backlog" if (project.root / "BACKLOG.yaml").exists() or not beads else "beads"
    return _answer(setting if setting in known else usual, checked)


def _answer(default: str, checked: Callable[[str], str]) -> str:
    """Ask until the answer is valid."""
    for _ in range(_MOST_TRIES):
        try:
            said = input(f"   [{default}] ")
        except EOFError:
            break
        try:
            return checked(plain(said) or default)
        except UsageError as wrong:
            say(f"   {wrong.message} {wrong.hint}")
    raise UsageError("There was no answer; nothing was changed.", "Ask again: capsule init --ask")


def with_settings(text: str, wanted: dict[str, str], there: Sequence[str]) -> tuple[str, list[str]]:
    """Add the lines of keys that a settings file does not have; return it with the keys that it keeps."""
    lines = [line for key, line in wanted.items() if key not in there]
    gap = "" if not text or text.endswith("\n") else "\n"
    return f"{text}{gap}" + "".join(f"{line}\n" for line in lines), [key for key in wanted if key in there]
