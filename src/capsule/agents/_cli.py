"""Start, watch and end an agent CLI, and read its output from files.

stdout and stderr go straight to files: an agent may print a gigabyte without our noticing. Where the briefing names a
folder to keep outputs in, the files live there and are only linked into the agent's own directory, so that an agent
that deletes its worktree takes no evidence with it.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from capsule.agents._scratch import private_folder
from capsule.core.briefing import LONGEST_ARGUMENT, Briefing, Transcript
from capsule.core.errors import PrerequisiteMissing
from capsule.core.event import Usage
from capsule.core.failure import Failure, Kind
from capsule.core.json_scan import last_object, trailing_object
from capsule.core.signal import read_result, read_signal
from capsule.core.text import without_controls
from capsule.presets import Preset
from capsule.settings import AgentOptions, PhaseOptions
from capsule.system.environment import for_agents, withheld
from capsule.system.files import head_bytes, read_regular, tail_bytes, write_atomically
from capsule.system.folders import make_folders_inside
from capsule.system.process import DID_NOT_EXIT, Command, Ended, SupervisorClient
from capsule.system.sandbox import Sandbox, sandbox_error
from capsule.system.stop import Stop

READ_FROM_THE_END = 16 * 1024 * 1024
STDERR_KEPT = 8192
_ONE_LINE = 2048
_LONGEST_SIGNAL = 256 * 1024
_AT_ONCE = 10.0
_VERSION_SECONDS = 30.0
_NOT_FOUND = (126, 127)
"""Exit codes of a shell or of `env` that could not start a program."""
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


class Connection(Struct, frozen=True):
    """Everything that an agent needs: its settings, and the means to run a process."""

    name: str
    supervisor: SupervisorClient
    root: Path
    options: AgentOptions = AgentOptions()
    """Its settings, completed by its preset."""
    preset: Preset = Preset()
    chosen_model: str = ""
    """From the command line, before all settings."""
    allow: Sequence[str] = ()
    """Names of variables (or patterns) that the agent is given on top of what it needs."""
    base_env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    stop: Stop | None = None
    tell: Callable[[str, str], None] = lambda _mission, _text: None
    """Gets the agent's activity while its output grows."""
    redact: Callable[[str], str] = lambda text: text
    """Removes secrets from an agent's input."""
    sandbox: Sandbox | None = None
    """The sandbox it runs in, if there is one."""


class Invocation(Struct, frozen=True):
    """A command line, its stdin (empty by default) and the files that it reads outside of its place."""

    argv: tuple[str, ...]
    stdin: str = ""
    reads: tuple[str, ...] = ()


class Files(Struct, frozen=True):
    """Paths of a run's output; for a CLI that prints events, `printed` holds them and `log` only its final text."""

    log: Path
    printed: Path
    errors: Path

    @classmethod
    def of(cls, log: Path, printed: str = "") -> Files:
        return cls(log, log.with_name(log.name + printed), log.with_name(f"{log.name}.stderr"))


class CliAgent(ABC):
    """Run a CLI; subclasses give `invocation`, and `how_to_get_it` for users who lack the CLI."""

    how_to_get_it = "Install it, or name another agent with --agent."
    binary = ""
    """Its name on the search path, unless the settings give a command."""
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
    """Suffix of the file for its output, if that is not the log itself."""
    quiet_after_signal = 45.0
    """Seconds of silence after which it is ended, if its output ends with a signal: it may still be working."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.options = connection, connection.options
        self.name = connection.name

    @abstractmethod
    def invocation(self, briefing: Briefing) -> Invocation:
        """Return the command line for one run."""

    def defaults(self) -> Mapping[str, str]:
        """Return the environment that this CLI should have, unless the user says otherwise."""
        return {}

    @contextmanager
    def prepared_environment(self, scratch: Path, env: Mapping[str, str]) -> Iterator[Mapping[str, str]]:  # noqa: ARG002
        """Put what this run needs into its own temporary folder; yield the variables that name it."""
        yield {}

    def check(self) -> None:
        program, path = self.program(), self.connection.base_env.get("PATH", os.defpath)
        if shutil.which(program, path=path):
            return
        lame = next((file for folder in path.split(os.pathsep) if (file := Path(folder, program)).is_file()), None)
        if lame:
            fault, hint = "not executable", f"Run `chmod +x {lame}`."
        elif os.sep in program and Path(program).is_dir():
            fault, hint = "a folder", "Name the program in it."
        elif os.sep in program:
            fault, hint = "not there", "Check the path, or name another agent with --agent."
        else:
            fault, hint = "not installed", self.how_to_get_it
        raise PrerequisiteMissing(f"The agent `{self.name}` needs `{program}`, which is {fault}.", hint)

    def program(self) -> str:
        return self.options.command[0] if self.options.command else self.binary

    def describe(self, briefing: Briefing) -> Sequence[str]:
        return self.invocation(briefing).argv

    def model(self, briefing: Briefing) -> str:
        return briefing.model or self.connection.chosen_model or self._phase(briefing).model or self.options.model

    def _asked_for(self, briefing: Briefing, invocation: Invocation) -> str:
        """Return the model that the command line names; some CLIs do not tell which one they used."""
        model = self.model(briefing)
        named = (arg == model or arg.endswith(f"={model}") for arg in invocation.argv)
        return model if model and any(named) else ""

    def args(self, briefing: Briefing) -> tuple[str, ...]:
        return (*self.options.args, *self._phase(briefing).args)

    def run(self, briefing: Briefing) -> Transcript:
        prompt = without_controls(self.connection.redact(briefing.prompt))  # tests may print a NUL; argv takes none
        paths = briefing.sandbox_paths
        if self.connection.sandbox and paths.at:
            prompt = prompt.replace(paths.place, paths.at)  # as it finds its place there
        briefing = replace(briefing, prompt=prompt)
        log = Path(briefing.log)
        folder = Path(briefing.keep) if briefing.keep else log.parent
        if not briefing.keep:
            make_folders_inside(Path(briefing.cwd), log.parent)
        folder.mkdir(parents=True, exist_ok=True)
        files = Files.of(folder / log.name, self.prints)
        temp = self.connection.base_env.get("TMPDIR", "")
        with private_folder(self.connection.root, briefing.mission, temp) as scratch:
            invocation = self.invocation(briefing)
            ended = self._supervised(invocation, briefing, files, scratch)
            fault = sandbox_error(head_bytes(files.errors, _ONE_LINE), exit_code(ended))
            if self.connection.sandbox and fault:  # it failed before the agent started
                reason = f"The sandbox could not be made: {fault}."
                failure = Failure(Kind.CONFIGURATION, reason, "`capsule doctor` tries it.")
                transcript = self.transcript(ended, files, b"", failure)
            else:
                transcript = self.conclude(ended, files)
                transcript = replace(transcript, failure=self._broken_install(briefing, files, transcript, scratch))
            if transcript.usage and transcript.usage.tokens_in is None and transcript.usage.tokens_out is None:
                used = self.recorded_usage(scratch)
                usage = replace(transcript.usage, tokens_in=used.tokens_in, tokens_out=used.tokens_out)
                transcript = replace(transcript, usage=usage)
        if transcript.usage and not transcript.usage.model and (model := self._asked_for(briefing, invocation)):
            transcript = replace(transcript, usage=replace(transcript.usage, model=model))
        _show_in_worktree(briefing, (files.log, files.printed, files.errors))
        return transcript

    def _broken_install(
        self, briefing: Briefing, printed: Files, transcript: Transcript, scratch: Path
    ) -> Failure | None:
        """Return the failure of one that exited at once without an answer, and whose `--version` fails in the same way.

        One that printed a reason, and prints something else for its version, does start.
        """
        failure, program = transcript.failure, self.program()
        spoke = any(tail_of(file, _ONE_LINE).strip() for file in (printed.printed, printed.log))
        answered = spoke or (briefing.result_path and Path(briefing.result_path).exists())
        died = transcript.why == "exited" and transcript.exit_code and transcript.seconds < _AT_ONCE
        why = _last_line(transcript.stderr)
        silent = not why or transcript.exit_code in _NOT_FOUND  # then the output is a shell's
        if transcript.orphaned or not died or answered or not program or (failure and failure.kind is not Kind.CRASH):
            return failure
        files = Files.of(scratch / "version")
        asked = replace(briefing, timeout=_VERSION_SECONDS, idle_timeout=0.0)
        ended = self._supervised(Invocation((program, "--version")), asked, files, scratch)
        said = _last_line(tail_of(files.errors, _ONE_LINE))
        if ended.why == "stopped" or (ended.why == "exited" and exit_code(ended) == 0) or not (silent or said == why):
            return failure
        how = f"exits with {exit_code(ended)}" if ended.why == "exited" else f"ends with {ended.why}"
        reason = (
            f"The agent `{self.name}` does not run: it exited with {transcript.exit_code} without an answer, "
            f"and `{program} --version` {how}{f': {said}' if said else ''}."
        )
        return Failure(Kind.MISSING, reason, f"Run `{program} --version` until it works. {self.how_to_get_it}")

    @cached_property
    def _inherited(self) -> dict[str, str]:
        return for_agents(self.connection.base_env, (*self.passes, *self.connection.allow))

    def _supervised(self, invocation: Invocation, briefing: Briefing, files: Files, scratch: Path) -> Ended:
        # Of CAPSULE_ variables the agent gets only what the briefing sets.
        env = {
            **self.defaults(),
            **self._inherited,
            **self.options.env,
            **self._phase(briefing).env,
            **briefing.env,
            "TMPDIR": str(scratch),
        }
        stdin = None
        if invocation.stdin:
            stdin = files.log.with_name(f"{files.log.name}.prompt")
            write_atomically(stdin, invocation.stdin)
        with self.prepared_environment(scratch, env) as more:
            env |= more
            with self._confined(invocation, env, briefing) as argv:
                command = Command(
                    argv=argv,
                    cwd=Path(briefing.cwd),
                    env=env,
                    stdout=files.printed,
                    stderr=files.errors,
                    stdin=stdin,
                    timeout=briefing.timeout or None,
                    idle_timeout=briefing.idle_timeout or None,
                    last_word=partial(self.allowed_silence, briefing, files),
                )
                tell = self.progress_reporter(briefing.mission, files)
                ended = self.connection.supervisor.run(command, stop=self.connection.stop, on_output=tell)
        if ended.why == "idle" and self.has_answered(briefing, files):  # ended after its answer: as if it had exited
            detail = "; ".join(filter(None, (DID_NOT_EXIT, ended.detail)))
            return replace(ended, why="exited", exit_code=0, signal=None, detail=detail)
        return ended

    def allowed_silence(self, briefing: Briefing, files: Files) -> float | None:
        """Return the seconds it may be silent after its final answer; None before that."""
        return self.quiet_after_signal if _ends_with_a_signal(briefing, files.printed) else None

    def has_answered(self, briefing: Briefing, files: Files) -> bool:
        """Tell whether a silent one had given its answer before its idle time-out, on stdout or by file."""
        if self.allowed_silence(briefing, files) is not None:
            return True
        try:
            written = read_regular(Path(briefing.result_path), _LONGEST_SIGNAL) if briefing.result_path else b""
        except OSError:
            return False
        return not read_result(written, briefing.item, briefing.phase).synthetic

    def _confined(
        self, invocation: Invocation, env: Mapping[str, str], briefing: Briefing
    ) -> AbstractContextManager[tuple[str, ...]]:
        sandbox = self.connection.sandbox
        if sandbox is None:
            return nullcontext(invocation.argv)
        named = [word for word in (*self.options.command, *self.args(briefing)) if Path(word).is_absolute()]
        # Each entry of a folder is shown by itself, so that the folder is the sandbox's own and goes with it.
        home = Path(env.get("HOME") or Path.home())
        kept = {str(home / name) for name in self.home}
        shown: list[str] = []
        for name, own in self.home_read_only.items():
            path = home / name
            inside = [child for child in path.iterdir() if child.name not in own] if path.is_dir() else [path]
            shown += [str(each) for each in inside if str(each) not in kept]
        readable = (*named, *invocation.reads, *shown)
        return sandbox.around(
            invocation.argv,
            cwd=Path(briefing.cwd),
            env=env,
            sandbox_paths=briefing.sandbox_paths,
            home=self.home,
            readable=readable,
            copy_layers=True,
        )

    def _phase(self, briefing: Briefing) -> PhaseOptions:
        return self.options.phases.get(briefing.phase, PhaseOptions())

    def progress_reporter(self, mission: str, files: Files) -> Callable[[], None]:
        """Return a function that reports progress while it runs: here the last line it printed."""

        def tell() -> None:
            lines = tail_of(files.printed, _ONE_LINE).decode(errors="replace").split("\n")
            self.connection.tell(mission, next((line.strip() for line in reversed(lines) if line.strip()), ""))

        return tell

    def conclude(self, ended: Ended, files: Files) -> Transcript:
        """Return the transcript of a run that has ended: by default, its output."""
        return self.transcript(ended, files, tail_of(files.log, READ_FROM_THE_END), self.how_it_was_ended(ended))

    def recorded_usage(self, scratch: Path) -> Usage:  # noqa: ARG002
        """Return the tokens from the CLI's own files, for one that was ended before it reported them."""
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
            orphaned=ended.orphaned,
            withheld=self._withheld() if exit_code(ended) else (),
        )

    def _withheld(self) -> tuple[str, ...]:
        passes = (*self.passes, *self.connection.allow)
        return tuple(name for name in withheld(self.connection.base_env, passes) if name not in self.options.env)

    def how_it_was_ended(self, ended: Ended) -> Failure | None:
        """Return the failure if we ended the agent, or could not start it."""
        if ended.why == "not-started":
            reason = f"The agent `{self.name}` could not be started: {ended.detail}."
            return Failure(Kind.MISSING, reason, self.how_to_get_it)
        if ended.why not in _ENDED_BY_US:
            return None
        kind, reason, hint = _ENDED_BY_US[ended.why]
        return Failure(kind, reason.format(name=self.name, seconds=ended.seconds), hint)


def not_started(failure: Failure) -> Transcript:
    """Return the transcript of a run that did not begin."""
    return Transcript(why="not-started", exit_code=None, seconds=0.0, text=b"", failure=failure)


def exit_code(ended: Ended) -> int | None:
    """Return the exit code as a shell would: 128 plus the signal that killed it."""
    return ended.exit_code if ended.signal is None else 128 + ended.signal


def tail_of(path: Path, limit: int) -> bytes:
    """Return the end of a file, or nothing if the agent removed it."""
    try:
        return tail_bytes(path, limit)
    except OSError:
        return b""


def _last_line(words: bytes) -> str:
    return next(reversed(words.decode(errors="replace").strip().splitlines()), "")


def _ends_with_a_signal(briefing: Briefing, printed: Path) -> bool:
    """Tell whether the output ends with a complete answer, other than an echo of the prompt's example."""
    text = tail_of(printed, _LONGEST_SIGNAL)
    found = trailing_object(text)
    if found is None or found == last_object(briefing.prompt.encode(errors="replace")):
        return False
    answer = read_result(text, briefing.item, briefing.phase) if briefing.result_path else read_signal(text)
    return not answer.synthetic


def by_argument_or_stdin(prompt: str) -> tuple[str | None, str]:
    """Return the prompt as an argument, or as stdin if it is too long for an argument."""
    return (prompt, "") if len(prompt.encode()) <= LONGEST_ARGUMENT else (None, prompt)


def _show_in_worktree(briefing: Briefing, files: Sequence[Path]) -> None:
    """Link the outputs into the worktree's output folder; do nothing if the worktree is gone."""
    target = Path(briefing.log).parent
    if not briefing.keep or not Path(briefing.cwd).is_dir():
        return
    try:
        make_folders_inside(Path(briefing.cwd), target)
        for file in dict.fromkeys(file for file in files if file.exists()):
            os.link(file, target / file.name)
    except OSError:  # another file system, or an agent's obstacle: the kept copy counts
        return
