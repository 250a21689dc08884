"""Any CLI that the settings describe. No Python is needed to add an agent:

    agents:
      aider:
        kind: command
        command: [aider, --yes-always, --message-file, "{prompt_file}"]

`{prompt}`, `{prompt_file}` and `{model}` are replaced once, in whole arguments or inside them. A command that names
neither of the first two gets the prompt as its last argument (`prompt: argument`), on stdin (`stdin`), or in a file
whose path is the last argument (`file`).
"""

from __future__ import annotations

import re
from pathlib import Path

from capsule.agents._cli import CliAgent, Connection, Invocation
from capsule.core.briefing import LONGEST_ARGUMENT, Briefing
from capsule.core.errors import SettingsError
from capsule.system.files import write_atomically

_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|model)\}")


class Agent(CliAgent):
    def program(self) -> str:
        if not self.connection.command:
            raise SettingsError(
                f"The agent `{self.name}` has no command.",
                f'Say it in the settings: agents.{self.name}.command: [program, "{{prompt}}"].',
            )
        return self.connection.command[0]

    def invocation(self, briefing: Briefing) -> Invocation:
        self.program()
        argv, how = (*self.connection.command, *self.connection.args), self._how(briefing)
        if how == "stdin":
            return Invocation(self._filled(argv, briefing), briefing.prompt)
        if not any("{prompt}" in arg or "{prompt_file}" in arg for arg in argv):
            argv = (*argv, "{prompt_file}" if how == "file" else "{prompt}")
        return Invocation(self._filled(argv, briefing))

    def _how(self, briefing: Briefing) -> str:
        too_long = len(briefing.prompt.encode()) > LONGEST_ARGUMENT
        return "file" if too_long and self.connection.prompt == "argument" else self.connection.prompt

    def _filled(self, argv: tuple[str, ...], briefing: Briefing) -> tuple[str, ...]:
        values = {"prompt": briefing.prompt, "model": briefing.model or self.connection.model}
        if any("{prompt_file}" in arg for arg in argv):
            values["prompt_file"] = str(_prompt_file(briefing))
        return tuple(_PLACEHOLDER.sub(lambda found: values[found.group(1)], arg) for arg in argv)


def _prompt_file(briefing: Briefing) -> Path:
    folder = Path(briefing.keep) if briefing.keep else Path(briefing.log).parent
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{Path(briefing.log).name}.prompt"
    write_atomically(path, briefing.prompt)
    return path


def connect(connection: Connection) -> Agent:
    return Agent(connection)
