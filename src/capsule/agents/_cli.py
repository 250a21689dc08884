"""What every agent CLI has in common: it is started, watched, ended, and its output is read from files.

stdout and stderr go straight to files: an agent may print a gigabyte without our noticing. Where the briefing names a
folder to keep outputs in, the files live there and are only linked into the agent's own directory, so that an agent
that deletes its worktree takes no evidence with it.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from capsule.core.briefing import LONGEST_ARGUMENT, Briefing, Outage, Transcript
from capsule.core.errors import PrerequisiteMissing
from capsule.core.text import without_controls
from capsule.system.files import tail_bytes, write_atomically
from capsule.system.git_environment import for_others
from capsule.system.process import Command, Ended, Keeper
from capsule.system.stop import Stop

READ_FROM_THE_END = 16 * 1024 * 1024
STDERR_KEPT = 8192
_ONE_LINE = 2048


@dataclass(frozen=True)
class Connection:
    """What an agent is made from: its settings, and the means to run a process."""

    name: str
    keeper: Keeper
    root: Path
    model: str = ""
    args: Sequence[str] = ()
    command: Sequence[str] = ()
    prompt: str = "argument"
    env: Mapping[str, str] = field(default_factory=dict)
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stop: Stop | None = None
    tell: Callable[[str, str], None] = lambda _mission, _text: None
    """Told the last line of the agent's output while it grows."""


@dataclass(frozen=True)
class Invocation:
    """A command line, and what it reads on stdin (nothing, unless said)."""

    argv: tuple[str, ...]
    stdin: str = ""


class CliAgent(ABC):
    """Everything but the command line. Children say `invocation`, and `how_to_get_it` for whoever lacks the CLI."""

    how_to_get_it = "Install it, or name another agent with --agent."

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = connection.name

    @abstractmethod
    def invocation(self, briefing: Briefing) -> Invocation:
        """The command line for one run."""

    def check(self) -> None:
        program = self.program()
        if not shutil.which(program, path=self.connection.base_env.get("PATH")):
            raise PrerequisiteMissing(
                f"The agent `{self.name}` needs `{program}`, which is not installed.", self.how_to_get_it
            )

    def program(self) -> str:
        return self.name

    def describe(self, briefing: Briefing) -> Sequence[str]:
        return self.invocation(briefing).argv

    def run(self, briefing: Briefing) -> Transcript:
        briefing = replace(briefing, prompt=without_controls(briefing.prompt))  # tests may print a NUL; argv takes none
        log = _log_file(briefing)
        errors = log.with_name(f"{log.name}.stderr")
        invocation = self.invocation(briefing)
        command = Command(
            argv=invocation.argv,
            cwd=Path(briefing.cwd),
            env=self._environment(briefing),
            stdout=log,
            stderr=errors,
            stdin=_stdin_file(log, invocation),
            timeout=briefing.timeout or None,
            idle_timeout=briefing.idle_timeout or None,
        )
        ended = self.connection.keeper.run(
            command,
            stop=self.connection.stop,
            on_output=lambda: self.connection.tell(briefing.mission, _last_line(log)),
        )
        _show_in_worktree(briefing, (log, errors))
        return self._transcript(ended, log, errors)

    def _environment(self, briefing: Briefing) -> dict[str, str]:
        """Our own settings are none of the agent's business; of CAPSULE_ it knows what the briefing tells."""
        inherited = for_others(self.connection.base_env)
        theirs = {name: value for name, value in inherited.items() if not name.startswith("CAPSULE_")}
        return {**theirs, **self.connection.env, **briefing.env}

    def _transcript(self, ended: Ended, log: Path, errors: Path) -> Transcript:
        """An agent killed by a signal has an exit code as a shell would say it."""
        code = ended.exit_code if ended.signal is None else 128 + ended.signal
        return Transcript(
            why=ended.why,
            exit_code=code,
            seconds=ended.seconds,
            text=tail_bytes(log, READ_FROM_THE_END) if log.exists() else b"",
            stderr=tail_bytes(errors, STDERR_KEPT) if errors.exists() else b"",
            outage=self._could_not_start(ended) if ended.why == "not-started" else None,
            leftovers=ended.leftovers,
            detail=ended.detail,
        )

    def _could_not_start(self, ended: Ended) -> Outage:
        return Outage("missing", f"The agent `{self.name}` could not be started: {ended.detail}.", self.how_to_get_it)


def _last_line(log: Path) -> str:
    lines = tail_bytes(log, _ONE_LINE).decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def by_argument_or_stdin(prompt: str) -> tuple[str | None, str]:
    """The prompt as an argument, or on stdin where the kernel would refuse so long an argument."""
    return (prompt, "") if len(prompt.encode()) <= LONGEST_ARGUMENT else (None, prompt)


def _log_file(briefing: Briefing) -> Path:
    log = Path(briefing.log)
    folder = Path(briefing.keep) if briefing.keep else log.parent
    if not briefing.keep:
        _own_folders(Path(briefing.cwd), log.parent)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / log.name


def _stdin_file(log: Path, invocation: Invocation) -> Path | None:
    if not invocation.stdin:
        return None
    path = log.with_name(f"{log.name}.prompt")
    write_atomically(path, invocation.stdin)
    return path


def _show_in_worktree(briefing: Briefing, files: Sequence[Path]) -> None:
    """The outputs where readers of the output folder look for them. A worktree that is gone gets none."""
    target = Path(briefing.log).parent
    if not briefing.keep or not Path(briefing.cwd).is_dir():
        return
    try:
        _own_folders(Path(briefing.cwd), target)
        for file in files:
            os.link(file, target / file.name)
    except OSError:  # another file system, or an agent in the way: the kept copy is the one that counts
        return


def _own_folders(cwd: Path, folder: Path) -> None:
    """Make the folder inside the worktree; a link that an agent put in its place is removed, not followed."""
    place = cwd
    for part in folder.relative_to(cwd).parts:
        place = place / part
        if place.is_symlink():
            place.unlink()
        place.mkdir(exist_ok=True)
