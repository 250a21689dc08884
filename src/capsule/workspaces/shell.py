"""The project's own commands (tests, gates, set-up), run through `sh -c` and supervised like an agent."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from capsule.doors import Ran
from capsule.system.files import tail_bytes
from capsule.system.git_environment import for_others
from capsule.system.process import Command, Keeper
from capsule.system.stop import Stop

_TAIL = 64 * 1024


class SupervisedShell:
    def __init__(self, keeper: Keeper, stop: Stop | None = None, base_env: Mapping[str, str] | None = None) -> None:
        self._keeper = keeper
        self._stop = stop
        inherited = for_others(os.environ if base_env is None else base_env)
        self._env = {name: value for name, value in inherited.items() if not name.startswith("CAPSULE_")}

    def run(self, command: str, cwd: Path, log: Path, *, timeout: float | None, env: Mapping[str, str]) -> Ran:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        ended = self._keeper.run(
            Command(
                argv=("sh", "-c", command),
                cwd=cwd,
                env={**self._env, **env},
                stdout=log,
                stderr=log,
                timeout=timeout,
            ),
            stop=self._stop,
        )
        tail = tail_bytes(log, _TAIL).decode(errors="replace") if log.exists() else ended.detail
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        return Ran(exit_code=code, why=ended.why, seconds=ended.seconds, tail=tail, log=log)
