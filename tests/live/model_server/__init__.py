"""A model that follows a script: what the real agent CLIs talk to in these tests, on 127.0.0.1.

A script answers a conversation with a turn: a tool call, a last word, or a misbehaviour. The turns are numbered by the
tool results that the conversation holds already, so a request that is repeated, or resumed, gets the same answer again.
Each dialect (anthropic.py, ...) says the same turns in one provider's protocol; server.py speaks HTTP.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from capsule.plain_files import parse_yaml

FIVE_HOURS = 5 * 60 * 60
LAST_WORD = json.dumps({"status": "PASS", "feedback": "", "files_changed": [], "summary": "done"})


@dataclass(frozen=True)
class Write:
    """The CLI's own tool for whole files, by a path relative to its working directory."""

    path: str
    text: str

    def as_shell(self) -> str:
        folder = shlex.quote(str(Path(self.path).parent))
        return f"mkdir -p {folder} && printf %s {shlex.quote(self.text)} > {shlex.quote(self.path)}"


@dataclass(frozen=True)
class Bash:
    command: str

    def as_shell(self) -> str:
        return self.command


@dataclass(frozen=True)
class Say:
    """The last word of an answer; an empty one is an empty answer."""

    text: str = LAST_WORD


SUMMARY = Say("A summary")
"""The answer to a CLI that shortens its conversation: asked for on the side, and paid for."""


@dataclass(frozen=True)
class Refuse:
    """It declines for reasons of safety."""


@dataclass(frozen=True)
class RunOutOfTokens:
    """The answer is cut at the length that one answer may have."""

    text: str = "I was about to"


@dataclass(frozen=True)
class Fail:
    """An HTTP error, with how long to wait where the provider says so."""

    status: int
    message: str = "the scripted model says no"
    retry_after: int | None = None
    code: str = ""
    """What the provider calls it, where the status does not tell."""
    headers: tuple[tuple[str, str], ...] = ()


class Cause(StrEnum):
    """Denials that each provider words in its own way."""

    QUOTA = "quota"
    CONTEXT = "context too long"
    LIMIT = "limit for five hours"


@dataclass(frozen=True)
class Deny:
    """An HTTP error in the provider's own words."""

    cause: Cause


@dataclass(frozen=True)
class Drop:
    """The stream begins, and the connection is torn down in the middle."""


@dataclass(frozen=True)
class FallSilent:
    """The stream begins, and nothing ever follows."""


Call = Write | Bash
Misbehaviour = Fail | Deny | Drop | FallSilent
Turn = Call | Say | Refuse | RunOutOfTokens | Misbehaviour


@dataclass(frozen=True)
class Conversation:
    """What a request tells us, in any dialect."""

    prompt: str
    """All that the user has said."""
    results: int
    """How many tool calls have been answered in it."""
    cwd: str = ""
    """Where the CLI works, for tools that want absolute paths."""
    tools: tuple[str, ...] = ()
    """What it offers; a request that offers none is a side call (a title, a summary)."""


Script = Callable[[Conversation], Turn]


def turns(*script: Turn) -> Script:
    """These turns, one for each tool result; the last one repeats."""
    return lambda conversation: script[min(conversation.results, len(script) - 1)]


class Outage:
    """The model says these things first, whatever it is asked; then all is well again."""

    def __init__(self, *first: Misbehaviour, then: Script) -> None:
        self._first, self._then = list(first), then

    def __call__(self, conversation: Conversation) -> Turn:
        return self._first.pop(0) if self._first else self._then(conversation)


class Mission:
    """A whole mission by the scripted agent's own script: item → phase → runs, told apart by their prompts."""

    def __init__(self, script: Path, item: str) -> None:
        phases: Any = parse_yaml(script.read_bytes(), script.name)
        self._phases: dict[str, list[dict[str, Any]]] = phases[item]
        self._runs: dict[str, int] = {}
        self._prompt = ""

    def __call__(self, conversation: Conversation) -> Turn:
        phase = phase_of(conversation.prompt)
        if conversation.prompt != self._prompt:  # the same prompt again is the same run, asked once more
            self._prompt = conversation.prompt
            self._runs[phase] = self._runs.get(phase, 0) + 1
        runs = self._phases[phase]
        return turns(*played(runs[min(self._runs[phase], len(runs)) - 1]))(conversation)


def phase_of(prompt: str) -> str:
    """A prompt begins with a heading such as `# Execute-Review Phase`, or shows the result that its phase writes."""
    headed, shown = r"^# ([A-Za-z-]+) Phase$", r'^  "phase": "(.+)",$'
    found = re.search(headed, prompt, re.MULTILINE) or re.search(shown, prompt, re.MULTILINE)
    assert found, f"no phase in: {prompt[:200]}"
    return found[1].lower()


_EDIT = "import pathlib, sys; p, a, b = sys.argv[1:]; f = pathlib.Path(p); t = f.read_text(); assert t.count(a) == 1; "
_EDIT += "f.write_text(t.replace(a, b))"


def played(run: dict[str, Any]) -> Sequence[Turn]:
    """One run of the scripted agent's vocabulary, as tool calls and a last word."""
    files = [Write(path, text) for path, text in run.get("write", {}).items()]
    edits = [
        Bash(shlex.join(["python3", "-c", _EDIT, edit["file"], edit["find"], edit["replace"]]))
        for edit in run.get("edit", ())
    ]
    removals = [Bash(shlex.join(["rm", "--", *run["remove"]]))] if "remove" in run else []
    commands = [Bash(command) for command in run.get("run", ())]
    if "result" in run:
        commands += [Bash(f'printf %s {shlex.quote(json.dumps(run["result"]))} > "$CAPSULE_RESULT"')]
    return [*files, *edits, *removals, *commands, Say(json.dumps(run["signal"]) if "signal" in run else "done")]
