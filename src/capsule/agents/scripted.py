"""An agent that follows a script instead of thinking: for demos, tests and bug reports, without a key or a cent.

It is a process of its own (`_player.py`), started and supervised by the same code as any other agent.
The script is the first of its `args`; see `_player.py` for what a script may say.
"""

from __future__ import annotations

import sys
from pathlib import Path

from capsule.agents._cli import CliAgent, Connection, Invocation, by_argument_or_stdin
from capsule.core.briefing import Briefing, Outage, Transcript
from capsule.core.errors import PrerequisiteMissing, SettingsError

_PLAYER = Path(__file__).with_name("_player.py")


class Agent(CliAgent):
    how_to_get_it = "Check the script that agents.scripted.args names."

    def check(self) -> None:
        script = self._script()
        if not script.is_file():
            raise PrerequisiteMissing(f"The script {script} of the scripted agent is not there.", self.how_to_get_it)

    def run(self, briefing: Briefing) -> Transcript:
        """The interpreter is always there; a script that has gone is this agent's absence."""
        try:
            self.check()
        except PrerequisiteMissing as missing:
            outage = Outage("missing", missing.message, missing.hint)
            return Transcript(why="not-started", exit_code=None, seconds=0.0, text=b"", outage=outage)
        return super().run(briefing)

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        argv = (sys.executable, str(_PLAYER), str(self._script()), "-p", *((argument,) if argument is not None else ()))
        return Invocation(argv, stdin)

    def _script(self) -> Path:
        if not self.connection.args:
            raise SettingsError(
                "The scripted agent has no script.", "Name one in the settings: agents.scripted.args: [script.yaml]."
            )
        return self.connection.root / self.connection.args[0]


def connect(connection: Connection) -> Agent:
    return Agent(connection)
