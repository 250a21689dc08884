"""What every agent CLI has in common: it is started, watched, ended, and its output is read from files.

stdout and stderr go straight to files: an agent may print a gigabyte without our noticing. Where the briefing names a
folder to keep outputs in, the files live there and are only linked into the agent's own directory, so that an agent
that deletes its worktree takes no evidence with it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from capsule.agents._scratch import private_folder
from capsule.core.briefing import LONGEST_ARGUMENT, Briefing, SandboxPaths, Transcript
from capsule.core.errors import PrerequisiteMissing
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind
from capsule.core.json_scan import last_object, object_at_the_end
from capsule.core.signal import read_result, read_signal
from capsule.core.text import without_controls
from capsule.system.environment import for_agents
from capsule.system.files import head_bytes, read_regular, tail_bytes, write_atomically
from capsule.system.process import DID_NOT_EXIT, Command, Ended, Keeper
from capsule.system.sandbox import fault_of_its_own
from capsule.system.stop import Stop

READ_FROM_THE_END = 16 * 1024 * 1024
STDERR_KEPT = 8192
_ONE_LINE = 2048
_LONGEST_SIGNAL = 256 * 1024
UNKNOWN = Usage()
_ENDED_BY_US: Mapping[str, tuple[Kind, str, str]] = {
    "timeout": (
        Kind.TIMEOUT,
        "The agent `{name}` was not done after {seconds:.0f} s, and was ended.",
        "Give it more time with execution.phase_timeout_minutes, or a smaller task.",
    ),
    "idle": (
        Kind.SILENT,
        "The agent `{name}` printed nothing for too long, and was ended after {seconds:.0f} s.",
        "Give it more time with execution.idle_timeout_minutes.",
    ),
}


class Sandbox(Protocol):
    """Wraps a command line so that it can touch only what it may (system/sandbox.py)."""

    def around(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths,
        home: Sequence[str] = (),
        readable: Sequence[str] = (),
        copy_layers: bool = False,
    ) -> AbstractContextManager[tuple[str, ...]]: ...


@dataclass(frozen=True)
class PhaseOptions:
    """What the settings say about an agent in one phase."""

    model: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Connection:
    """What an agent is made from: its settings, and the means to run a process."""

    name: str
    keeper: Keeper
    root: Path
    model: str = ""
    chosen_model: str = ""
    """Named on the command line: that goes before all settings."""
    args: Sequence[str] = ()
    command: Sequence[str] = ()
    model_args: Sequence[str] = ()
    """Added to `command` where a model is chosen."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """Patterns that tell what went wrong from what `command` printed last, by kind of failure."""
    how_to_get_it: str = ""
    home: Sequence[str] = ()
    """Paths below the user's home that `command` must read and write."""
    home_read_only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Paths below the user's home that `command` reads, and of each folder the names that are for its own work."""
    prompt: str = "argument"
    env: Mapping[str, str] = field(default_factory=dict)
    phases: Mapping[str, PhaseOptions] = field(default_factory=dict)
    """What differs in single phases."""
    trust_project: bool = False
    """The repository's own agent settings, hooks and tool servers may take part."""
    allow: Sequence[str] = ()
    """Names of variables (or patterns) that the agent is given on top of what it needs."""
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stop: Stop | None = None
    tell: Callable[[str, str], None] = lambda _mission, _text: None
    """Told what the agent is about while its output grows."""
    redact: Callable[[str], str] = lambda text: text
    """Takes secrets out of what an agent is told."""
    sandbox: Sandbox | None = None
    """What keeps it in its place, where there is one."""


@dataclass(frozen=True)
class Invocation:
    """A command line, and what it reads on stdin (nothing, unless said) and from files that are not in its place."""

    argv: tuple[str, ...]
    stdin: str = ""
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """Where a run's words are kept. For a CLI that prints events, `printed` holds them and `log` only the last word."""

    log: Path
    printed: Path
    errors: Path

    @classmethod
    def of(cls, log: Path, printed: str = "") -> Files:
        return cls(log, log.with_name(log.name + printed), log.with_name(f"{log.name}.stderr"))


class CliAgent(ABC):
    """Everything but the command line. Children say `invocation`, and `how_to_get_it` for whoever lacks the CLI."""

    how_to_get_it = "Install it, or name another agent with --agent."
    binary = ""
    """What it is called on the search path, unless the settings give a command."""
    passes: tuple[str, ...] = ()
    """Names of variables (or patterns) of the user's environment that this CLI needs, its keys above all."""
    home: tuple[str, ...] = ()
    """Paths below the user's home that it must read and write even where a sandbox hides the rest."""
    home_read_only: Mapping[str, Sequence[str]] = {}
    """Paths below the user's home that it reads and may not change there: what its user's next session would obey.

    Of a folder it sees everything but the names beside it, which are for its own work. What it adds there is not kept:
    nothing can be mounted over a file that does not exist yet, and a next session would obey that one too.
    """
    apart = False
    """It is started without the project's own agent settings, skills included, unless the project is trusted."""
    prints = ""
    """What is added to the log's name for what it prints, where that is not the log itself."""
    quiet_after_signal = 45.0
    """Seconds of silence after which it is ended, where its words end with a signal: it may be working all the same."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = connection.name

    @abstractmethod
    def invocation(self, briefing: Briefing) -> Invocation:
        """The command line for one run."""

    def defaults(self) -> Mapping[str, str]:
        """Environment that this CLI should have, unless the user says otherwise."""
        return {}

    @contextmanager
    def furnished(self, scratch: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:  # noqa: ARG002
        """Whatever this run needs in its own folder, for as long as it lasts; yields the variables that say so."""
        yield {}

    def check(self) -> None:
        program = self.program()
        if not shutil.which(program, path=self.connection.base_env.get("PATH")):
            raise PrerequisiteMissing(
                f"The agent `{self.name}` needs `{program}`, which is not installed.", self.how_to_get_it
            )

    def program(self) -> str:
        return self.connection.command[0] if self.connection.command else self.binary

    def describe(self, briefing: Briefing) -> Sequence[str]:
        return self.invocation(briefing).argv

    def model(self, briefing: Briefing) -> str:
        return briefing.model or self.connection.chosen_model or self._phase(briefing).model or self.connection.model

    def args(self, briefing: Briefing) -> tuple[str, ...]:
        return (*self.connection.args, *self._phase(briefing).args)

    def run(self, briefing: Briefing) -> Transcript:
        prompt = without_controls(self.connection.redact(briefing.prompt))  # tests may print a NUL; argv takes none
        if self.connection.sandbox and briefing.sandbox_paths.at:
            prompt = prompt.replace(
                briefing.sandbox_paths.place, briefing.sandbox_paths.at
            )  # as it finds its place there
        briefing = replace(briefing, prompt=prompt)
        files = Files.of(_log_file(briefing), self.prints)
        temp = self.connection.base_env.get("TMPDIR", "")
        with private_folder(self.connection.root, briefing.mission, temp) as scratch:
            ended = self._supervised(briefing, files, scratch)
            transcript = self._kept_out(ended, files) or self.conclude(ended, files)
            if transcript.usage and transcript.usage.tokens_in is None and transcript.usage.tokens_out is None:
                used = self.recorded_usage(scratch)
                usage = replace(transcript.usage, tokens_in=used.tokens_in, tokens_out=used.tokens_out)
                transcript = replace(transcript, usage=usage)
        _show_in_worktree(briefing, (files.log, files.printed, files.errors))
        return transcript

    def _supervised(self, briefing: Briefing, files: Files, scratch: Path) -> Ended:
        invocation = self.invocation(briefing)
        env = self._environment(briefing) | {"TMPDIR": str(scratch)}
        with self.furnished(scratch, env) as more:
            env |= more
            with self._confined(invocation, env, briefing) as argv:
                command = Command(
                    argv=argv,
                    cwd=Path(briefing.cwd),
                    env=env,
                    stdout=files.printed,
                    stderr=files.errors,
                    stdin=_stdin_file(files.log, invocation),
                    timeout=briefing.timeout or None,
                    idle_timeout=briefing.idle_timeout or None,
                    last_word=partial(self.quiet_allowed, briefing, files),
                )
                tell = self.teller(briefing.mission, files)
                ended = self.connection.keeper.run(command, stop=self.connection.stop, on_output=tell)
        return _exited(ended) if ended.why == "idle" and self.has_answered(briefing, files) else ended

    def quiet_allowed(self, briefing: Briefing, files: Files) -> float | None:
        """Return the seconds it may be silent now, having said its last word; None while it has not."""
        return self.quiet_after_signal if _ends_with_a_signal(briefing, files.printed) else None

    def has_answered(self, briefing: Briefing, files: Files) -> bool:
        """Tell whether one that was silent until its idle time-out had given its answer, on stdout or by file."""
        return self.quiet_allowed(briefing, files) is not None or _left_a_result(briefing)

    def _confined(
        self, invocation: Invocation, env: Mapping[str, str], briefing: Briefing
    ) -> AbstractContextManager[tuple[str, ...]]:
        sandbox = self.connection.sandbox
        if sandbox is None:
            return nullcontext(invocation.argv)
        named = [word for word in (*self.connection.command, *self.args(briefing)) if Path(word).is_absolute()]
        readable = (*named, *invocation.reads, *self._read_only_at_home(env))
        return sandbox.around(
            invocation.argv,
            cwd=Path(briefing.cwd),
            env=env,
            sandbox_paths=briefing.sandbox_paths,
            home=self.home,
            readable=readable,
            copy_layers=True,
        )

    def _read_only_at_home(self, env: Mapping[str, str]) -> list[str]:
        """What lies in a folder, one by one: then the folder itself is the sandbox's own, and gone with it."""
        home = Path(env.get("HOME") or Path.home())
        kept = {str(home / name) for name in self.home}
        shown: list[str] = []
        for name, own in self.home_read_only.items():
            path = home / name
            inside = [child for child in path.iterdir() if child.name not in own] if path.is_dir() else [path]
            shown += [str(each) for each in inside if str(each) not in kept]
        return shown

    def _kept_out(self, ended: Ended, files: Files) -> Transcript | None:
        """The sandbox failed before the agent was there: that is the machine's fault, and nobody's answer."""
        fault = fault_of_its_own(head_bytes(files.errors, _ONE_LINE), exit_code(ended))
        if not self.connection.sandbox or not fault:
            return None
        failure = Failure(Kind.CONFIGURATION, f"The sandbox could not be made: {fault}.", "`capsule doctor` tries it.")
        return self.transcript(ended, files, b"", failure)

    def _environment(self, briefing: Briefing) -> dict[str, str]:
        """Our own settings are none of the agent's business; of CAPSULE_ it knows what the briefing tells."""
        inherited = for_agents(self.connection.base_env, (*self.passes, *self.connection.allow))
        return {
            **self.defaults(),
            **inherited,
            **self.connection.env,
            **self._phase(briefing).env,
            **briefing.env,
        }

    def _phase(self, briefing: Briefing) -> PhaseOptions:
        return self.connection.phases.get(briefing.phase, PhaseOptions())

    def teller(self, mission: str, files: Files) -> Callable[[], None]:
        """What is told while it runs: here the last line it printed."""
        return lambda: self.connection.tell(mission, _last_line(files.printed))

    def conclude(self, ended: Ended, files: Files) -> Transcript:
        """What has come of it: here just what was printed."""
        return self.transcript(ended, files, tail_of(files.log, READ_FROM_THE_END), self.how_it_was_ended(ended))

    def recorded_usage(self, scratch: Path) -> Usage:  # noqa: ARG002
        """Return the tokens by the CLI's own record in its folder, for one that was ended before it told."""
        return UNKNOWN

    def transcript(
        self, ended: Ended, files: Files, text: bytes, failure: Failure | None, usage: Usage = UNKNOWN
    ) -> Transcript:
        return Transcript(
            why=ended.why,
            exit_code=exit_code(ended),
            seconds=ended.seconds,
            text=text,
            stderr=tail_of(files.errors, STDERR_KEPT),
            failure=failure,
            usage=replace(usage, seconds=ended.seconds),
            leftovers=ended.leftovers,
            detail=ended.detail,
        )

    def how_it_was_ended(self, ended: Ended) -> Failure | None:
        """What we did to it, or could not do for it."""
        if ended.why == "not-started":
            reason = f"The agent `{self.name}` could not be started: {ended.detail}."
            return Failure(Kind.MISSING, reason, self.how_to_get_it)
        kind, reason, hint = _ENDED_BY_US.get(ended.why, (None, "", ""))
        reason = reason.format(name=self.name, seconds=ended.seconds)
        return Failure(kind, reason, hint) if kind else None


def not_started(failure: Failure) -> Transcript:
    """The end of a run that did not even begin."""
    return Transcript(why="not-started", exit_code=None, seconds=0.0, text=b"", failure=failure)


def exit_code(ended: Ended) -> int | None:
    """An agent killed by a signal has an exit code as a shell would say it."""
    return ended.exit_code if ended.signal is None else 128 + ended.signal


def tail_of(path: Path, limit: int) -> bytes:
    """The end of what was printed, or nothing where the agent took the file away."""
    try:
        return tail_bytes(path, limit)
    except OSError:
        return b""


def _exited(ended: Ended) -> Ended:
    """One that was ended although it had answered, as if it had exited by itself."""
    detail = "; ".join(filter(None, (DID_NOT_EXIT, ended.detail)))
    return dataclasses.replace(ended, why="exited", exit_code=0, signal=None, detail=detail)


def _ends_with_a_signal(briefing: Briefing, printed: Path) -> bool:
    """Whether nothing stands behind a complete answer, and it is not the example in a prompt that it echoed."""
    text = tail_of(printed, _LONGEST_SIGNAL)
    found = object_at_the_end(text)
    if found is None or found == last_object(briefing.prompt.encode(errors="replace")):
        return False
    answer = read_result(text, briefing.item, briefing.phase) if briefing.result_path else read_signal(text)
    return not answer.synthetic


def _left_a_result(briefing: Briefing) -> bool:
    try:
        written = read_regular(Path(briefing.result_path), _LONGEST_SIGNAL) if briefing.result_path else b""
    except OSError:
        return False
    return not read_result(written, briefing.item, briefing.phase).synthetic


def _last_line(log: Path) -> str:
    lines = tail_of(log, _ONE_LINE).decode(errors="replace").split("\n")
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
        for file in dict.fromkeys(file for file in files if file.exists()):
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
