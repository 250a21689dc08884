"""Run a command to its end, with a time-out, and leave nothing running.

A `SupervisorClient` is the runner's handle on the supervisor process (see supervisor.py), started at the first command
and kept for the next ones. `run` sends one request and then waits in one `select` for the first of these: the
supervisor's answer, a requested stop, the time-out, or the next look at how far the output files have grown. Output
goes to files, by way of the supervisor, which takes out the secrets; it is never read here, so a command may write
gigabytes at no cost in memory.

A missing program, a time-out, even a supervisor that was killed by a process it supervised is an `Ended`, never an
exception. In that last case we sweep ourselves: all processes with our marker, and their descendants.

If a runner and its supervisor are both killed, no process knows what they had started. So each supervisor has a locked
file in a registry, named by its processes' marker: the kernel frees the lock, and the next run can tell the file from
that of a living runner, and look for the marker. A file gets its name only once it is locked, so a living one never
looks dead.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from capsule.system import supervisor
from capsule.system.files import sweep_temps, temp_path
from capsule.system.lock import NoLocks, try_lock
from capsule.system.stop import Stop
from capsule.system.umask import of_the_user

GRACE = 5.0
MARKER = "CAPSULE_KEEPER"
LOOK_INTERVAL = 0.25
# The silence after which it is checked whether it has printed its final answer.
SETTLED = 1.0
_LOOKS_TO_BE_SURE = 12
# A supervisor that is asked to stop answers within its grace and its kill limit, unless it is stopped itself or broken.
PATIENCE = supervisor.KILL_LIMIT + 5.0
# Imported rather than started as a script: a script is compiled each time, which is half of the supervisor's start-up.
_KEEP = "import sys; sys.path.append(sys.argv.pop(1)); from capsule.system import supervisor; supervisor.main()"
_PACKAGES = Path(supervisor.__file__).parents[2]

DID_NOT_EXIT = "it did not exit after its last word, and was ended"

Why = Literal["exited", "timeout", "idle", "stopped", "not-started"]


class Command(Struct, frozen=True):
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    stdout: Path
    stderr: Path
    stdin: Path | None = None
    timeout: float | None = None
    idle_timeout: float | None = None
    last_word: Callable[[], float | None] | None = None
    """Returns the seconds of silence that end it after its final answer; None before that."""


class Ended(Struct, frozen=True):
    """How a command ended; `leftovers` counts processes it left running, which we then ended.

    An `orphaned` one was ended because its supervisor had died.
    """

    exit_code: int | None
    signal: int | None
    why: Why
    seconds: float
    leftovers: int
    detail: str = ""
    orphaned: bool = False

    @property
    def ok(self) -> bool:
        return self.why == "exited" and self.exit_code == 0


class SupervisorClient:
    """Run commands one after the other, and guarantee that none outlives its turn, or this process.

    No file that a command prints to will hold any of the `secrets`. While it runs it is listed in the folder
    `registry`, so that `end_leftovers` can do its work should both be killed.
    """

    def __init__(
        self, *, grace: float = GRACE, subreaper: bool = True, secrets: Sequence[str] = (), registry: Path | None = None
    ) -> None:
        self._grace = grace
        self._registry = registry
        self._entry: tuple[Path, int] | None = None
        self._secrets = [secret for secret in secrets if secret and _sendable(secret)]
        self._options = () if subreaper else ("without-subreaper",)
        self._marker = os.urandom(8).hex()
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def run(self, command: Command, *, stop: Stop | None = None, on_output: Callable[[], None] | None = None) -> Ended:
        if fault := _fault(command):
            return Ended(None, None, "not-started", 0.0, 0, fault)
        try:
            return self._run_supervised(command, _Watch(command, stop, on_output))
        except BaseException:
            self.close()  # after any error here, the command must not outlive this call
            raise

    def close(self) -> None:
        """End the supervisor and everything below it; closing twice is closing once."""
        process, self._process, self._heard = self._process, None, b""
        if process is None:
            return
        assert process.stdin and process.stdout and process.stderr
        process.stdin.close()
        process.stdout.close()
        _resume(process)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            sweep(MARKER, self._marker)
        process.stderr.close()
        entry, self._entry = self._entry, None
        if entry:
            _unregister(*entry)

    def __enter__(self) -> SupervisorClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── the conversation ──

    def _run_supervised(self, command: Command, watch: _Watch) -> Ended:
        process = self._started()
        pid = 0
        try:
            _send(process, *_request(command, self._marker, self._secrets))
            while True:
                line = self._receive(process, watch)
                match line.split():
                    case ["started", number]:
                        pid = int(number)
                    case ["failed", number, stage]:
                        return watch.ended(why="not-started", detail=_refusal(command, int(number), stage))
                    case ["ended", code, leftovers, stopped, survivors, lost]:
                        return watch.answered(int(code), int(leftovers), stopped == "1", int(survivors), int(lost))
                    case _:
                        _resume(process)
                        if watch.asked:
                            process.kill()  # its time is up; the end of its pipe is noticed at the next read
                            watch.extend_limit(PATIENCE)
                        else:
                            watch.ask(self._grace + PATIENCE)
                            _send(process, "stop", str(self._grace))
        except (BrokenPipeError, EOFError):
            return self._supervisor_died(process, watch, pid)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process and self._process.poll() is not None:
            self.close()
        if self._process is None:
            argv = [sys.executable, "-I", "-S", "-c", _KEEP, str(_PACKAGES), MARKER, self._marker, *self._options]
            pipe = subprocess.PIPE
            env = {"PATH": os.environ.get("PATH", os.defpath)}  # an agent can read it, so nothing else is in it
            self._process = subprocess.Popen(
                argv,
                env=env,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                bufsize=0,
                cwd="/",
                start_new_session=True,
                umask=of_the_user(),
            )
            self._entry = _register(self._registry, self._marker) if self._registry else None
        return self._process

    def _receive(self, process: subprocess.Popen[bytes], watch: _Watch) -> str:
        """Return the next line, or "" when the watch must act first."""
        assert process.stdout is not None
        while b"\n" not in self._heard:
            ready = select.select([process.stdout.fileno(), *watch.fds()], [], [], watch.pause())[0]
            if process.stdout.fileno() in ready:
                heard = os.read(process.stdout.fileno(), 65536)
                if not heard:
                    raise EOFError
                self._heard += heard
            elif watch.look():
                return ""
        line, self._heard = self._heard.split(b"\n", 1)
        return line.decode()

    def _supervisor_died(self, process: subprocess.Popen[bytes], watch: _Watch, pid: int) -> Ended:
        """Kill the orphaned children of a supervisor that died."""
        code = process.wait()
        stderr = process.stderr.read() if process.stderr else b""
        swept = sweep(MARKER, self._marker, session=pid)
        self.close()
        last_words = stderr.decode(errors="replace").strip().rpartition("\n")[2]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        detail = f"the supervisor process died ({how}); {swept} processes it kept were ended"
        detail = f"{detail}: {last_words}" if last_words else detail
        return replace(watch.ended(detail=detail), signal=int(signal.SIGKILL), leftovers=swept, orphaned=True)


class _Watch:
    """Decide when to check a running command next, and whether to end it."""

    def __init__(self, command: Command, stop: Stop | None, on_output: Callable[[], None] | None) -> None:
        self._command, self._stop, self._on_output = command, stop, on_output
        self._quiet: float | None = None
        self._asked_at = -1
        self._began = self._grew = self._spoke = time.monotonic()
        self._sizes = (0, 0)
        self._limit: float | None = None
        self._why: Why = "exited"

    @property
    def asked(self) -> bool:
        return self._limit is not None

    def ask(self, patience: float) -> None:
        self._why = self._reason() or "stopped"
        self.extend_limit(patience)

    def extend_limit(self, seconds: float) -> None:
        self._limit = time.monotonic() + seconds

    def fds(self) -> list[int]:
        return [self._stop.fileno()] if self._stop and not self.asked else []

    def pause(self) -> float | None:
        """Return seconds until the next check; None if only an answer or a stop can change anything."""
        now = time.monotonic()
        due = []
        if self._limit is not None:
            due.append(self._limit - now)
        elif self._command.timeout is not None:
            due.append(self._began + self._command.timeout - now)
        if self._on_output:
            due.append(LOOK_INTERVAL)
        if self._command.last_word and not self.asked:
            due.append(LOOK_INTERVAL)
        if self._command.idle_timeout is not None:
            due.append(min(LOOK_INTERVAL, self._command.idle_timeout / 4))
        return max(0.0, min(due)) if due else None

    def look(self) -> bool:
        """Record growth; return True if the command must be ended, or has not ended in time."""
        self._notice_growth()
        if self._limit is not None:
            return time.monotonic() >= self._limit
        return self._reason() is not None

    def answered(self, code: int, leftovers: int, stopped: bool, survivors: int, lost: int) -> Ended:
        self._notice_growth()
        faults = [f"{survivors} of its processes could not be ended"] if survivors else []
        faults += [f"not all it printed could be kept: {os.strerror(lost)}"] if lost else []
        detail = "; ".join(faults)
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        if stopped and self._why == "exited":
            exit_code, number = 0, None
            detail = "; ".join((DID_NOT_EXIT, *faults))
        ended = self.ended(why=self._why if stopped else "exited", detail=detail)
        return replace(ended, exit_code=exit_code, signal=number, leftovers=leftovers)

    def ended(self, *, why: Why | None = None, detail: str = "") -> Ended:
        return Ended(None, None, why or self._why, time.monotonic() - self._began, 0, detail)

    def _reason(self) -> Why | None:
        now = time.monotonic()
        if self._stop and self._stop.requested:
            return "stopped"
        if self._command.timeout is not None and now - self._began >= self._command.timeout:
            return "timeout"
        if self._command.idle_timeout is not None and now - self._grew >= self._command.idle_timeout:
            return "idle"
        # Only stdout counts for its last word: what still prints to stderr may be what keeps it from exiting.
        silent = now - self._spoke
        if self._command.last_word is None or silent < SETTLED:
            return None
        if self._asked_at != self._sizes[0]:  # checked once in each silence
            self._asked_at, self._quiet = self._sizes[0], self._command.last_word()
        return "exited" if self._quiet is not None and silent >= self._quiet else None

    def _notice_growth(self) -> None:
        if not self._on_output and self._command.idle_timeout is None and self._command.last_word is None:
            return
        sizes = (_size(self._command.stdout), _size(self._command.stderr))
        if sizes != self._sizes:
            now = time.monotonic()
            self._spoke = now if sizes[0] != self._sizes[0] else self._spoke
            self._sizes, self._grew = sizes, now
            if self._on_output:
                self._on_output()


def sweep(marker_name: str, marker_value: str, *, session: int = 0) -> int:
    """Kill all processes whose environment holds the marker (or of that session) and their descendants; count them.

    Used only without a supervisor: a process that cleared its environment and left the session is missed. We and our
    ancestors are spared.
    """
    swept: set[int] = set()
    deadline = time.monotonic() + supervisor.KILL_LIMIT
    quiet = 0
    while quiet < _LOOKS_TO_BE_SURE and time.monotonic() < deadline:
        found = set()
        for pid in _marked(marker_name, marker_value, session):  # each as soon as it is seen
            supervisor.kill(pid, signal.SIGKILL)
            found.add(pid)
        swept |= found
        quiet = 0 if found else quiet + 1
        time.sleep(0.005)
    return len(swept)


def end_leftovers(registry: Path) -> int:
    """End what dead runners and supervisors left running; return the number of processes."""
    swept = 0
    if registry.is_dir():
        sweep_temps(registry)  # drafts of runners that were killed before theirs had a name
    for path in sorted(registry.glob("[!.]*")):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            if try_lock(fd, fcntl.LOCK_EX, path):
                swept += sweep(MARKER, path.name)
                _unregister(path, fd)
            else:
                os.close(fd)
    return swept


@contextlib.contextmanager
def without_leftovers(registry: Path) -> Iterator[None]:
    """End what the dead have left, before the block and after it: some may die within it, and nobody may follow."""
    end_leftovers(registry)
    try:
        yield
    finally:
        end_leftovers(registry)


def _marked(name: str, value: str, session: int) -> Iterator[int]:
    """Yield those of the first look with all below them; then, each as soon as it is seen, those that came since."""
    table = supervisor.process_table()
    spared, pid = {os.getpid()}, os.getpid()
    while pid in table and (pid := table[pid][0]) not in spared:
        spared.add(pid)
    roots = {pid for pid, row in table.items() if session and row[1] == session} | set(
        supervisor.pids_with_marker(name, value)
    )
    below = roots | supervisor.descendants(table, roots)
    yield from (pid for pid in below - spared if pid in table and not table[pid][2])
    yield from (pid for pid in supervisor.pids_with_marker(name, value) if pid not in spared)


def _request(command: Command, marker: str, secrets: Sequence[str]) -> list[str]:
    files = (command.stdin or Path(os.devnull), command.stdout, command.stderr)
    env = {**command.env, MARKER: marker}
    return [
        "run",
        str(command.cwd.absolute()),
        *(str(path.absolute()) for path in files),
        str(len(secrets)),
        *secrets,
        str(len(command.argv)),
        *command.argv,
        *(f"{name}={value}" for name, value in env.items()),
    ]


def _send(process: subprocess.Popen[bytes], *fields: str) -> None:
    assert process.stdin is not None
    body = b"\0".join(map(os.fsencode, fields))
    message = memoryview(b"%d\n%b" % (len(body), body))
    while message:
        message = message[os.write(process.stdin.fileno(), message) :]


def _resume(process: subprocess.Popen[bytes]) -> None:
    """Continue a supervisor that a child may have stopped (SIGSTOP cannot be ignored)."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)


def _fault(command: Command) -> str:
    """Return what keeps any operating system from starting this command; "" if nothing does."""
    if not command.argv:
        return "the command is empty"
    texts = (*command.argv, *command.env, *command.env.values())
    if not all(map(_sendable, texts)):
        return f"{command.argv[0]!r}: an argument or a variable holds a NUL, or half a character"
    bad = [name for name in command.env if not name or "=" in name]
    return f"{bad[0]!r} cannot be the name of an environment variable" if bad else ""


def _sendable(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _refusal(command: Command, number: int, stage: str) -> str:
    program = command.argv[0]
    known = {
        ("program", errno.ENOENT): f"{program}: not found on PATH, or its interpreter is missing",
        ("program", errno.EACCES): f"{program}: not executable",
        ("program", errno.ENOEXEC): f"{program}: not a program (a script needs a first line like #!/bin/sh)",
        ("program", errno.E2BIG): f"{program}: its arguments and environment are longer than this system allows",
        ("cwd", errno.ENOENT): f"{command.cwd}: the working directory does not exist",
    }
    subject = program if stage == "program" else getattr(command, stage)
    return known.get((stage, number), f"{subject}: {os.strerror(number)}")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _unregister(path: Path, fd: int) -> None:
    """Remove the file: all processes with its marker have ended."""
    with contextlib.suppress(OSError):  # its folder may be gone; the lock is released in any case
        path.unlink(missing_ok=True)
    os.close(fd)


def _register(folder: Path, marker: str) -> tuple[Path, int]:
    """Make a file named after the marker, and keep it open and locked."""
    folder.mkdir(parents=True, exist_ok=True)
    draft = temp_path(folder)
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        try_lock(fd, fcntl.LOCK_EX, draft)  # no other process knows it yet
    except NoLocks:
        os.close(fd)
        draft.unlink()
        raise
    draft.rename(folder / marker)
    return folder / marker, fd
