"""Follow a script: for demos, tests and bug reports, without a key or cost.

It is a process of its own (`_player.py`), started and supervised by the same code as any other agent. The script is the
first of its `args`; see `_player.py` for what a script may say.

A recording (`_recording.py`) is a script that also knows how the agent ended. A process cannot act that out (a lost
connection, half an hour of silence, a dollar spent), so it is said here, in place of what was seen of the player.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from capsule.agents._cli import CliAgent, Connection, Invocation, by_argument_or_stdin, not_started
from capsule.agents._player import RECORDING, load, turn_for
from capsule.core.briefing import Briefing, Transcript
from capsule.core.errors import PrerequisiteMissing, SettingsError
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind

T = TypeVar("T")
_PLAYER = Path(__file__).with_name("_player.py")
_SHIFTING = r"\d+(?:\.\d+)?(?= ?m?s\b| (?:second|minute)s?\b)|\b[0-9a-f]{7,64}\b|\d{4}-\d\d-\d\dT[\d:]+Z"
"""Matches what differs from one run to the next: durations, ids of commits, stamps."""


class ScriptedAgent(CliAgent):
    how_to_get_it = "Check the script that agents.scripted.args names."

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._tries: Counter[tuple[str, str, int]] = Counter()

    def check(self) -> None:
        self._loaded()

    def run(self, briefing: Briefing) -> Transcript:
        """Play the script; a script that cannot be read is a failure like a missing CLI."""
        try:
            turn = self._recorded(briefing)
            return self._recorded_refusal(briefing, turn) or _as_recorded(super().run(briefing), turn)
        except PrerequisiteMissing as missing:
            return not_started(Failure(Kind.MISSING, missing.message, missing.hint))
        except SettingsError as fault:
            return not_started(Failure(Kind.CONFIGURATION, fault.message, fault.hint))

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        script = str(self._script())
        flags = ("-I", "-S") if script.endswith(".json") else ("-I",)  # only YAML is read with an installed package
        argv = (sys.executable, *flags, str(_PLAYER), script, "-p", *((argument,) if argument is not None else ()))
        return Invocation(argv, stdin)

    def _script(self) -> Path:
        if not self.options.args:
            raise SettingsError(
                "The scripted agent has no script.", "Name one in the settings: agents.scripted.args: [script.yaml]."
            )
        return self.connection.root / self.options.args[0]

    def _loaded(self) -> dict[str, Any]:
        file = self._script()
        if not file.is_file():
            raise PrerequisiteMissing(f"The script {file} of the scripted agent is not there.", self.how_to_get_it)
        try:
            script = load(str(file))
        except (ValueError, OSError) as fault:
            raise SettingsError(f"The script {file} cannot be read: {fault}.", "Write it as YAML or JSON.") from None
        if not isinstance(script, dict):
            raise SettingsError(f"The script {file} is no script.", "It maps items to phases to what is done in each.")
        return script

    def _recorded(self, briefing: Briefing) -> dict[str, Any]:
        """Return a recording's other facts about this run; empty for a script written by hand."""
        script = self._loaded()
        if RECORDING not in script:
            return {}
        turn = turn_for(script, briefing.env)
        if not isinstance(turn, dict):
            raise SettingsError(
                f"The recording has no run {briefing.run} of {briefing.phase} for {briefing.item}.",
                "The mission went another way than when it was recorded, or the recording was cut short there.",
            )
        if (script[RECORDING] or {}).get("check_prompts") and "prompt" in turn:
            given = portable(self.connection.redact(briefing.prompt), briefing.cwd, str(self.connection.root))
            for number, (old, new) in enumerate(
                zip_longest(turn["prompt"].splitlines(), given.splitlines(), fillvalue=""), 1
            ):
                if re.sub(_SHIFTING, "#", old) != re.sub(_SHIFTING, "#", new):
                    raise SettingsError(
                        f"The prompt of {briefing.phase}, run {briefing.run}, is not the recorded one. "
                        f"Line {number} was {old!r} and is {new!r}.",
                        "Record it again if that is intended; `check_prompts: false` in the recording lets it pass.",
                    )
        return turn

    def _recorded_refusal(self, briefing: Briefing, turn: dict[str, Any]) -> Transcript | None:
        """Return the provider's recorded answer at this attempt, without waiting again."""
        turned_away, run = turn.get("turned_away", ()), (briefing.item, briefing.phase, briefing.run)
        self._tries[run] += 1
        if self._tries[run] <= len(turned_away):
            this_time = turned_away[self._tries[run] - 1]
            failure = replace(_read(this_time.get("failure"), Failure), resets_in=0.0)
            return replace(not_started(failure), usage=_usage(this_time))
        if set(turn) == {"turned_away"}:
            hint = "Nothing more was recorded: the mission was stopped while it waited."
            return not_started(Failure(Kind.CONFIGURATION, f"The recording ends at {briefing.phase}.", hint))
        return None


def portable(text: str, cwd: str, root: str) -> str:
    """Replace this machine's folders: the project lies elsewhere on another."""
    return text.replace(cwd, "{worktree}").replace(root, "{project}")


def _as_recorded(played: Transcript, turn: dict[str, Any]) -> Transcript:
    """Replace the player's ending by the recorded one, unless the player itself failed."""
    if played.why != "exited" or played.exit_code != turn.get("exit", 0):
        return played
    ended = turn.get("ended", "exited")
    return replace(
        played,
        why=ended,
        exit_code=played.exit_code if ended == "exited" else turn.get("exit"),
        seconds=turn.get("seconds", played.seconds),
        usage=replace(_usage(turn) or Usage(), seconds=turn.get("seconds", played.seconds)),
        failure=_read(turn["failure"], Failure) if "failure" in turn else played.failure,
    )


def _usage(turn: dict[str, Any]) -> Usage | None:
    return _read(turn["usage"], Usage) if "usage" in turn else None


def _read(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as fault:
        hint = "Fix that entry of the recording, or remove it."
        raise SettingsError(f"The recording has an invalid {kind.__name__.lower()}: {fault}.", hint) from None


connect = ScriptedAgent
