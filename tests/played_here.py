"""The scripted agent without a process for each phase: its player runs in this one, in the agent's folder.

For tests of what the engine decides. A turn that starts programs, sleeps or has no place in the script is played by a
process all the same, and so is everything that is not the player.
"""

from __future__ import annotations

import io
import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from msgspec.structs import replace

from capsule.adapters import Agent
from capsule.agents import _player
from capsule.agents.scripted import ScriptedAgent
from capsule.system.process import Command, Ended, SupervisorClient
from capsule.system.stop import Stop

_NEEDS_A_PROCESS = frozenset({"run", "sleep", "commit", "uncommit", "left_out"})


def played_here(make: Callable[[str, str], Agent]) -> Callable[[str, str], Agent]:
    """The same agents, with a supervisor that plays scripts itself."""

    def agent(name: str, model: str) -> Agent:
        made = make(name, model)
        if isinstance(made, ScriptedAgent):
            made.connection = replace(made.connection, supervisor=_Supervisor(made.connection.supervisor))
        return made

    return agent


class _Supervisor(SupervisorClient):
    def __init__(self, real: SupervisorClient) -> None:
        super().__init__()
        self._real = real

    def run(self, command: Command, *, stop: Stop | None = None, on_output: Callable[[], None] | None = None) -> Ended:
        turn = _turn(command)
        if turn is None or any(turn.get(name) for name in _NEEDS_A_PROCESS):
            return self._real.run(command, stop=stop, on_output=on_output)
        began = time.monotonic()
        code = _play(turn, command)
        if on_output:
            on_output()
        return Ended(code, None, "exited", time.monotonic() - began, 0)


def _turn(command: Command) -> dict[str, Any] | None:
    player = command.argv.index(str(Path(_player.__file__)))
    turn: dict[str, Any] | None = _player.turn_for(_player.load(command.argv[player + 1]), command.env)
    return turn


def _play(turn: dict[str, Any], command: Command) -> int:
    """As `python _player.py` ends: 1 after an error, with the error on stderr."""
    with (
        _text(command.stdout) as out,
        _text(command.stderr) as errors,
        chdir(command.cwd),
        mock.patch.dict(os.environ, command.env, clear=True),
        redirect_stdout(out),
        redirect_stderr(errors),
    ):
        try:
            _player.play(turn)
        except SystemExit as end:
            errors.write(f"{end.code}\n")
            return 1
        except Exception:  # noqa: BLE001 as Python does
            traceback.print_exc()
            return 1
        return int(turn.get("exit", 0))


@contextmanager
def _text(file: Path) -> Iterator[io.TextIOWrapper]:
    with file.open("wb") as written, io.TextIOWrapper(written, encoding="utf-8") as text:
        yield text
