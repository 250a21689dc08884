"""The grid of faults: a mission of two agents whose provider, model or CLI fails once the first has made a step.

Each cell is runs of Capsule on one mission. Where the mission recovers by itself, the first run has a budget of one
token: it ends there, however long it would have waited, and the second run goes on to the merge. Where it stops or
fails, the second run has that budget, and no agent starts; then the fault is over, and a third run goes on to the
merge. So every cell shows what happened, whether the cost of what failed was counted, whether the budget held, and that
nothing was lost.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from capsule.system.process import DID_NOT_EXIT
from tests.conftest import Repo
from tests.live.conftest import program
from tests.live.missions import SENT_BACK_ONCE, capsule_in, environment
from tests.live.model_server import (
    Bash,
    Cause,
    Conversation,
    Deny,
    Drop,
    Fail,
    FallSilent,
    Refuse,
    RunOutOfTokens,
    Say,
    Turn,
    Write,
    turns,
)
from tests.live.model_server.server import ModelServer
from tests.live.table import RETRY_AFTER, Cli, survivors

WORKFLOW = """\
description: Write, read, merge.
contract: signal
publish: merge
prompts:
  write: "# Write Phase\\n\\nDo what `worklog.md` asks for.\\n\\n{{SIGNAL_CONTRACT}}\\n"
  read: "# Read Phase\\n\\nRead what was written.\\n\\n{{SIGNAL_CONTRACT}}\\n"
phases:
  - {name: prep, role: action, do: prep}
  - {name: write, role: worker, prompt: write, checks: [changed]}
  - {name: read, role: review, prompt: read, rework: write, reads_only: true}
  - {name: commit, role: action, run: 'git add -A . && git commit -qm "$CAPSULE_COMMIT_MSG"', checks: [committed]}
  - {name: publish, role: action, do: publish}
  - {name: archive, role: action, do: archive, closing: true}
"""
NOTE = "note.txt"
_NOT_NOW = 3
_ADVICE = {"auth": re.compile(r"log in|login|auth"), "quota": re.compile("Add credit")}
"""How the advice that is printed tells why a run stops."""
_IN_FIVE_HOURS = re.compile(r"in (5 h|4 h 59 min)")
"""Some CLIs name the hour without its seconds."""
ONE_TOKEN = {"CAPSULE_BUDGET__MISSION__TOKENS": "1"}


_QUIET = "CAPSULE_EXECUTION__IDLE_TIMEOUT_MINUTES"
_LIMITED = "CAPSULE_EXECUTION__PHASE_TIMEOUT_MINUTES"
_ENDLESS = ("tool loop", "context too long")
_RETRIES_WITHOUT_END = ("429 with retry-after", "500", "529", "reset mid-stream", "limit for five hours")
PATIENCE: Mapping[str, Mapping[str, str]] = {
    "claude": {"silent stream": "0.1", "tool loop": "0.3"},
    "codex": {"silent stream": "0.1", "tool loop": "0.3"},
    "gemini": {"silent stream": "0.3", "tool loop": "0.5"},
    "opencode": {**dict.fromkeys((*_RETRIES_WITHOUT_END, "silent stream"), "0.75"), **dict.fromkeys(_ENDLESS, "1")},
}
"""Minutes of silence, or for what is endless of work, after which a CLI is ended that would not end by itself."""


@dataclass(frozen=True)
class Fault:
    turn: Turn
    recovers: bool = False
    """Whether Capsule gets over it by itself, once the outside world does."""
    hangs: bool = False
    """The CLI does not exit after its last word."""
    settings: Mapping[str, str] = field(default_factory=dict)


FAULTS: Mapping[str, Fault] = {
    "429 with retry-after": Fault(Fail(429, "slow down", retry_after=RETRY_AFTER), recovers=True),
    "500": Fault(Fail(500, "Internal server error"), recovers=True),
    "529": Fault(Fail(529, "Overloaded"), recovers=True),
    "reset mid-stream": Fault(Drop(), recovers=True),
    "401": Fault(Fail(401, "invalid x-api-key")),
    "quota": Fault(Deny(Cause.QUOTA)),
    "context too long": Fault(Deny(Cause.CONTEXT)),
    "refusal": Fault(Refuse()),
    "max tokens": Fault(RunOutOfTokens()),
    "empty": Fault(Say(""), recovers=True),
    "silent stream": Fault(FallSilent(), recovers=True),
    "tool loop": Fault(Bash("echo again >> again.txt")),
    "hang after the last word": Fault(Say(), recovers=True, hangs=True),
    "limit for five hours": Fault(Deny(Cause.LIMIT), settings={"CAPSULE_EXECUTION__MAX_WAIT_MINUTES": "0.2"}),
}


class Faulty:
    """A model that works for one step and then fails, as often as the first agent is started so many times."""

    def __init__(self, fault: Turn, times: int) -> None:
        self._fault, self._times, self.starts = fault, times, 0

    def recover(self) -> None:
        self._times = 0

    def __call__(self, conversation: Conversation) -> Turn:
        if "# Read Phase" in conversation.prompt:
            return Say()
        if "# Write Phase" not in conversation.prompt:  # a CLI that has shortened its conversation
            return self._fault
        self.starts += not conversation.results
        last = self._fault if self.starts <= self._times else Say()
        return turns(Write(NOTE, "made\n"), last)(conversation)


@dataclass(frozen=True)
class Ran:
    """One run of Capsule, and where the mission and its model were afterwards."""

    exit_code: int
    said: str
    starts: int
    asked: int
    billed: Sequence[int]
    mission: Mapping[str, Any]
    """`capsule show --json` of it."""
    kept: str
    """Where the first agent's work is."""

    def __str__(self) -> str:
        return f"exit {self.exit_code}, {self.starts} starts, {self.asked} requests\n{self.said}\n{self.mission}"


@dataclass(frozen=True)
class Cell:
    free: Ran
    """The run that nothing limits, in which the fault is met."""
    limited: Ran
    """The run with a budget that one answer exceeds."""
    last: Ran
    """The run that goes on when the fault is over."""


def play(cli: Cli, name: str, folder: Path) -> Cell:
    home, project, fault = folder / "home", folder / "project", FAULTS[name]
    home.mkdir()
    script = Faulty(fault.turn, 2 if fault.recovers else 1_000)
    given = {"SANDBOX": "off", "WORKFLOW__DEFAULT": "short"}
    with ModelServer(script) as model:
        healthy = environment(cli, model, home, "", given)
        free = healthy | _settings(cli, name, folder)
        limited = free | ONE_TOKEN
        capsule_in(folder, healthy, "setup-template", "--tracker=file", str(project))
        _add_workflow(Repo(project))

        def run(env: Mapping[str, str]) -> Ran:
            done = capsule_in(project, env, "run", SENT_BACK_ONCE, "--no-tui")
            shown = json.loads(capsule_in(project, env, "show", SENT_BACK_ONCE, "--json").stdout)
            said, kept = done.stdout + done.stderr, _kept(Repo(project))
            return Ran(done.returncode, said, script.starts, len(model.asked), tuple(model.billed), shown, kept)

        if fault.recovers:
            refused, met = run(limited), run(free)
            cell = Cell(met, refused, met)
        else:
            met, refused = run(free), run(limited)
            script.recover()
            cell = Cell(met, refused, run(healthy))
    assert model.faults == []
    assert survivors(folder) == []
    return cell


def _settings(cli: Cli, name: str, folder: Path) -> dict[str, str]:
    settings, fault = {}, FAULTS[name]
    if name in PATIENCE[cli.name]:
        settings[_LIMITED if name in _ENDLESS else _QUIET] = PATIENCE[cli.name][name]
    if fault.hangs:
        settings[f"CAPSULE_AGENTS__{cli.name.upper()}__COMMAND"] = json.dumps([str(_hanging(cli, folder))])
    return {**settings, **fault.settings}


def _kept(repo: Repo) -> str:
    """Name the first place that holds what the first agent made."""
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/heads/main", "refs/capsule").splitlines()
    holding = [ref for ref in refs if repo.git("ls-tree", "--name-only", ref, NOTE)]
    if "refs/heads/main" in holding:
        return "main"
    worktree = repo.path / ".capsule" / "worktrees" / SENT_BACK_ONCE
    return "worktree" if (worktree / NOTE).exists() else next(iter(holding), "")


def told(name: str, ran: Ran) -> str:
    """What happened in the run without a budget, and what of its cost was counted: the words of a cell."""
    return f"{_outcome(ran)}; {cost_of(name, ran)}"


def _outcome(ran: Ran) -> str:
    mission = ran.mission
    waited = {pause["kind"] for pause in mission["waited"]}
    kinds = ", ".join(sorted(waited))
    if ran.exit_code == 0:
        assert mission["status"] == "merged", ran
        ended = any(DID_NOT_EXIT in warning for attempt in mission["attempts"] for warning in attempt["warnings"])
        how = f"{kinds}: tried once more" if waited == {"silent"} else f"{kinds}: waits"
        return f"{'ended by Capsule' if ended else how}, merged"
    attempt = mission["attempts"][-1]
    if ran.exit_code == _NOT_NOW:
        soon = (
            "stops at once and names the hour"
            if _IN_FIVE_HOURS.search(ran.said) and not waited
            else "waits, then stops"
        )
        return f"rate limit: {soon}, exit {ran.exit_code}"
    if attempt.get("verdict") is None:
        kind = next((kind for kind, words in _ADVICE.items() if words.search(ran.said)), "?")
        return f"{kind}: stops, exit {ran.exit_code}"
    kind = attempt["failure"]["kind"] if attempt["failure"] else "no signal"
    again = "tried once more, then " if "silent" in waited else ""
    return f"{kind}: {again}fails, exit {ran.exit_code}"


def cost_of(name: str, ran: Ran) -> str:
    """Compare the journal's tokens with those of all answers that the model has given whole."""
    tokens, answer = ran.mission["spent"]["tokens"], ran.billed[0]
    missing = (sum(ran.billed) - (tokens or 0)) / answer
    if name in _ENDLESS and "timed out" in ran.said and missing in (0, 1):  # the last one may be on its way by then
        return "counted to the last answer but one"
    if missing < 0:
        return "counted, torn answers too"
    return f"{missing:g} answers not counted" if missing else "counted"


def assert_the_budget_held(name: str, cell: Cell) -> None:
    """A budget that one answer exceeds lets no further agent start, whatever the fault."""
    limited = cell.limited
    assert limited.exit_code == _NOT_NOW, limited
    assert "The budget of the mission is spent" in limited.said
    if FAULTS[name].recovers:
        assert limited.starts == 1
    else:
        assert (limited.starts, limited.asked) == (cell.free.starts, cell.free.asked)


def assert_nothing_was_lost(cell: Cell) -> None:
    """The work of a try that came to nothing is kept, and when the fault is over the mission is merged."""
    assert cell.limited.kept, cell.limited
    assert cell.free.kept, cell.free
    assert (cell.last.exit_code, cell.last.mission["status"], cell.last.kept) == (0, "merged", "main"), cell.last


def _add_workflow(repo: Repo) -> None:
    file = repo.path / ".capsule" / "workflows" / "short.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(WORKFLOW)
    repo.git("add", "--force", str(file))
    repo.git("commit", "--quiet", "--message", "A short workflow")


def _hanging(cli: Cli, folder: Path) -> Path:
    """A program that runs the CLI and then never exits."""
    wrapper = folder / "hanging"
    wrapper.write_text(f'#!/bin/sh\n{program(cli.name)} "$@"\nexec tail -f /dev/null\n')
    wrapper.chmod(0o755)
    return wrapper
