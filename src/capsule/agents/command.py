"""Run any CLI that the settings describe. No Python is needed to add an agent:

    agents:
      tiny:
        command: [tiny-agent, --yes, --message-file, "{prompt_file}"]
        model_args: [--model, "{model}"]
        failures: {rate limit: "429 Too Many Requests"}

`{prompt}`, `{prompt_file}` and `{model}` are replaced once, in whole arguments or inside them. A command that names
neither of the first two gets the prompt as its last argument (`prompt: argument`), on stdin (`stdin`), or in a file
whose path is the last argument (`file`). Well-known CLIs are described in presets.yaml.

Such a CLI reports nothing in a form we know. Where it ended without an answer, the patterns of `failures` tell from the
end of its output whether its provider is to blame; an answer is never overruled by them, an agent may talk about 429.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from capsule.agents._cli import CliAgent, Connection, Invocation
from capsule.core.briefing import LONGEST_ARGUMENT, Briefing, Transcript
from capsule.core.errors import SettingsError
from capsule.core.failure import Failure, Kind
from capsule.core.signal import read_signal
from capsule.system.files import write_atomically

_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|model)\}")
_LOOKED_AT = 4096
_HINTS = {Kind.AUTH: "Log in with it by hand once, or set its key; environment.allow passes a variable on."}
_ANY_HINT = "agents.{name}.failures says what its output is matched against."
_POINTER = "Your task is in the file {path}. Read all of it, then do what it says."


class CommandAgent(CliAgent):
    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.home, self.home_read_only = connection.preset.home, connection.preset.home_read_only
        self.how_to_get_it = connection.preset.get or self.how_to_get_it
        self._failures: dict[Kind, re.Pattern[str]] = {}
        for kind, pattern in self.options.failures.items():
            try:
                self._failures[Kind(kind)] = re.compile(pattern)
            except re.error as fault:
                hint = "A regular expression is wanted."
                raise SettingsError(f"agents.{self.name}.failures: {pattern!r}: {fault}.", hint) from None
            except ValueError:
                hint = f"There are: {', '.join(known.value for known in Kind)}."
                raise SettingsError(f"agents.{self.name}.failures: there is no kind {kind!r}.", hint) from None

    def program(self) -> str:
        if not self.options.command:
            raise SettingsError(
                f"The agent `{self.name}` has no command.",
                f'Set it: agents.{self.name}.command: [program, "{{prompt}}"].',
            )
        return self.options.command[0]

    def describe(self, briefing: Briefing) -> Sequence[str]:
        """Return the command line without writing a prompt file."""
        return self._invocation(briefing, _prompt_path(briefing)).argv

    def invocation(self, briefing: Briefing) -> Invocation:
        path = _prompt_path(briefing)
        invocation = self._invocation(briefing, path)
        if any(str(path) in arg for arg in invocation.argv):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, briefing.prompt)
            return Invocation(invocation.argv, invocation.stdin, reads=(str(path),))
        return invocation

    def _invocation(self, briefing: Briefing, path: Path) -> Invocation:
        self.program()
        model = self.options.model_args if self.model(briefing) else ()
        too_long = len(briefing.prompt.encode()) > LONGEST_ARGUMENT
        how = "file" if too_long and self.options.prompt == "argument" else self.options.prompt
        argv = (*self.options.command, *model, *self.args(briefing))
        if how != "stdin" and not any("{prompt}" in arg or "{prompt_file}" in arg for arg in argv):
            argv = (*argv, "{prompt_file}" if how == "file" else "{prompt}")
        words = briefing.prompt if how == self.options.prompt else _POINTER.format(path=path)
        values = {"prompt": words, "prompt_file": str(path), "model": self.model(briefing)}
        filled = tuple(_PLACEHOLDER.sub(lambda found: values[found.group(1)], arg) for arg in argv)
        return Invocation(filled, briefing.prompt if how == "stdin" else "")

    def run(self, briefing: Briefing) -> Transcript:
        transcript = super().run(briefing)
        answered = bool(briefing.result_path) and Path(briefing.result_path).exists()
        if transcript.failure or transcript.why != "exited" or answered or not read_signal(transcript.text).synthetic:
            return transcript
        ends = (data[-_LOOKED_AT:].decode(errors="replace") for data in (transcript.stderr, transcript.text))
        words = "\n".join(ends)
        for kind, pattern in self._failures.items():
            if found := pattern.search(words):
                line = words[words.rfind("\n", 0, found.start()) + 1 :].partition("\n")[0].strip()[:200]
                reason = f"The agent `{self.name}` ended with {kind.value}: {line}"
                hint = _HINTS.get(kind, _ANY_HINT).format(name=self.name)
                return replace(transcript, failure=Failure(kind, reason, hint))
        return transcript


def _prompt_path(briefing: Briefing) -> Path:
    folder = Path(briefing.keep) if briefing.keep else Path(briefing.log).parent
    return folder / f"{Path(briefing.log).name}.prompt"


connect = CommandAgent
