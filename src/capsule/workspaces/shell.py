"""The project's own commands (tests, gates, set-up), run through `sh -c` and supervised like an agent.

What they run is what an agent wrote, so they run in the same sandbox, on the paths that they are given. Without any,
the folder they run in is theirs, but for the repository and for what is Capsule's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from capsule.adapters import Ran
from capsule.core.briefing import SandboxPaths
from capsule.system.environment import for_commands
from capsule.system.files import head_bytes, tail_bytes
from capsule.system.process import Command, SupervisorClient
from capsule.system.sandbox import Sandbox, at_its_own_path, fault_of_its_own
from capsule.system.stop import Stop

_TAIL = 64 * 1024
_HEAD = 1024


class SupervisedShell:
    def __init__(
        self,
        supervisor: SupervisorClient,
        stop: Stop | None = None,
        base_env: Mapping[str, str] | None = None,
        *,
        sandbox: Sandbox | None = None,
        allow: Sequence[str] = (),
        at_checkout_path: bool = True,
    ) -> None:
        """`allow` names variables that are passed on although they look like secrets.

        `at_checkout_path` is false where commands need a daemon outside, which knows a place by its own path only.
        """
        self._supervisor = supervisor
        self._stop = stop
        self._sandbox = sandbox
        self._at_checkout_path = at_checkout_path
        self._env = for_commands(os.environ if base_env is None else base_env, allow)

    def run(
        self,
        command: str,
        cwd: Path,
        log: Path,
        *,
        timeout: float | None,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths | None = None,
    ) -> Ran:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        environment, argv = {**self._env, **env}, ("sh", "-c", command)
        if sandbox_paths is None:
            sandbox_paths = SandboxPaths(writable=(str(cwd),), protected=(str(cwd / ".git"), str(cwd / ".capsule")))
        elif not self._at_checkout_path:
            sandbox_paths = at_its_own_path(sandbox_paths)
        confined: AbstractContextManager[tuple[str, ...]] = nullcontext(argv)
        if self._sandbox:
            confined = self._sandbox.around(argv, cwd=cwd, env=environment, sandbox_paths=sandbox_paths)
        with confined as words:
            asked = Command(argv=words, cwd=cwd, env=environment, stdout=log, stderr=log, timeout=timeout)
            ended = self._supervisor.run(asked, stop=self._stop)
        tail = tail_bytes(log, _TAIL).decode(errors="replace") if log.exists() else ""
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        fault = fault_of_its_own(head_bytes(log, _HEAD), code) if self._sandbox else ""
        why = "not-started" if fault else ended.why
        return Ran(exit_code=code, why=why, seconds=ended.seconds, tail=fault or tail or ended.detail, log=log)
