"""The project's own commands (tests, gates, set-up), run through `sh -c` and supervised like an agent.

What they run is what an agent wrote, so they run in the same sandbox, on the paths that they are given. Without any,
the folder they run in is theirs, but for the repository and for what is Capsule's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from msgspec.structs import replace

from capsule.adapters import Ran
from capsule.core.briefing import SandboxPaths
from capsule.core.test_report import TestReport, read_report, readable
from capsule.system.environment import for_commands
from capsule.system.files import head_bytes, read_regular, tail_bytes
from capsule.system.process import Command, SupervisorClient
from capsule.system.runner_slots import RunnerSlots
from capsule.system.sandbox import Sandbox, at_its_own_path, sandbox_error
from capsule.system.stop import Stop

_INSTRUMENTS = Path(__file__).resolve().parents[1] / "instruments"
_ASK = 'if [ -r "$CAPSULE_ASK/ask.sh" ]; then . "$CAPSULE_ASK/ask.sh"; fi'
_TAIL = 64 * 1024
_MOST_OUTPUT = 32 * 1024 * 1024
_MOST_FILES = 2000
_JUNIT = tuple(
    f"**/{folder}.xml"
    for folder in ("target/surefire-reports/TEST-*", "target/failsafe-reports/TEST-*", "build/test-results/**/*")
)
"""The reports of Maven and Gradle."""
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
        own_network: bool = False,
        slots: RunnerSlots | None = None,
    ) -> None:
        """`allow` names variables that are passed on although they look like secrets.

        `at_checkout_path` is false where commands need a daemon outside, which knows a place by its own path only.
        `own_network`: each test run in the sandbox has a network of its own, with nothing but a loopback interface.
        """
        self._supervisor = supervisor
        self._stop = stop
        self._sandbox = sandbox
        self._sandbox_of_tests = replace(sandbox, network=False) if sandbox and own_network else sandbox
        self._at_checkout_path = at_checkout_path
        self._slots = slots
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
        reports: Path | None = None,
        junit: Sequence[str] = (),
        alone: bool | None = None,
    ) -> Ran:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.unlink(missing_ok=True)
        environment = {**self._env, **env}
        if reports:
            environment |= {"CAPSULE_REPORTS": str(reports), "CAPSULE_TREE": str(cwd), "CAPSULE_ASK": str(_INSTRUMENTS)}
            command = f"{_ASK}\n{command}"
        argv = ("sh", "-c", command)
        if sandbox_paths is None:
            sandbox_paths = SandboxPaths(writable=(str(cwd),), protected=(str(cwd / ".git"), str(cwd / ".capsule")))
        elif not self._at_checkout_path:
            sandbox_paths = at_its_own_path(sandbox_paths)
        turn: AbstractContextManager[Callable[[], bool]] = nullcontext(lambda: False)
        if self._slots and alone is not None:
            turn = self._slots.turn(alone=alone)
        confined: AbstractContextManager[tuple[str, ...]] = nullcontext(argv)
        if sandbox := self._sandbox_of_tests if reports else self._sandbox:
            confined = sandbox.around(argv, cwd=cwd, env=environment, sandbox_paths=sandbox_paths)
        with turn as had_company, confined as words:
            began = time.time()
            asked = Command(argv=words, cwd=cwd, env=environment, stdout=log, stderr=log, timeout=timeout)
            ended = self._supervisor.run(asked, stop=self._stop)
            beside = had_company()
        tail = tail_bytes(log, _TAIL).decode(errors="replace") if log.exists() else ""
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        fault = sandbox_error(head_bytes(log, _HEAD), code) if self._sandbox else ""
        why = "not-started" if fault else ended.why
        report = _reported_tests(reports, cwd, log, began, junit) if reports else TestReport()
        text = readable(fault or tail or ended.detail)
        return Ran(exit_code=code, why=why, seconds=ended.seconds, tail=text, log=log, report=report, beside=beside)


def _reported_tests(reports: Path, folder: Path, log: Path, began: float, globs: Sequence[str]) -> TestReport:
    """Read the reports of test runners behind a command; ignore what the code under test left in their place."""
    written = {path.name: _text(path) for path in sorted(reports.iterdir())[:_MOST_FILES]}
    if globs:
        written["begun-junit"] = ""
    left = [path for glob in (*_JUNIT, *globs) for path in sorted(folder.glob(glob))[:_MOST_FILES]]
    junit = [_text(path) for path in dict.fromkeys(left) if path.lstat().st_mtime >= began]
    output = tail_bytes(log, _MOST_OUTPUT).decode(errors="replace") if log.exists() else ""
    return read_report(written, output, junit)


def _text(path: Path) -> str:
    try:
        return read_regular(path, _MOST_OUTPUT).decode(errors="replace")
    except OSError:
        return ""
