"""Claude Code, headless: `claude -p PROMPT --dangerously-skip-permissions`."""

from __future__ import annotations

from capsule.agents._cli import CliAgent, Connection, Invocation, by_argument_or_stdin
from capsule.core.briefing import Briefing

_SKIP = "--dangerously-skip-permissions"


class Agent(CliAgent):
    how_to_get_it = (
        "Get it with `npm install -g @anthropic-ai/claude-code`, name another agent with --agent, "
        "or see the pipeline without one: `capsule demo`."
    )

    def program(self) -> str:
        return self.connection.command[0] if self.connection.command else "claude"

    def invocation(self, briefing: Briefing) -> Invocation:
        argument, stdin = by_argument_or_stdin(briefing.prompt)
        model = briefing.model or self.connection.model
        argv = (
            self.program(),
            *(("-p", argument) if argument is not None else ("-p",)),
            _SKIP,
            *(("--model", model) if model else ()),
            *self.connection.args,
        )
        return Invocation(argv, stdin)


def connect(connection: Connection) -> Agent:
    return Agent(connection)
