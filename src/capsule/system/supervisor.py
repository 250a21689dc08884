"""The supervisor: a small process between a runner and everything that the runner starts.

Why it exists. A signal to a process group misses children that left the group, and nothing at all happens to them when
the runner is killed with -9. So the runner starts one supervisor, and the supervisor starts the commands, one at a
time:

    runner ──pipes──▶ supervisor ──posix_spawn──▶ command ──▶ whatever it forks

- On Linux the supervisor is a *subreaper*: an orphan below it becomes its child, however often it forked, whether it
  called setsid or cleared its environment. "No child left" then means "nobody left", which costs one system call to
  know.
- Elsewhere it asks `ps` for the tree, and for processes of the command's group or with our marker in their environment.
- When the command ends, what it left behind is ended too. When the runner asks, all are: SIGTERM, a grace, SIGKILL.
- When the runner dies, its pipe closes, and that is the order to kill everything at once.
- What the command prints goes through us to its files, because secrets must not touch the disk (see streams.py).

What can race. A process may fork between our look and our signal: the kill loop therefore looks again until nobody is
left. A stop may cross the command's own end: the answer says whether the command was still running when it arrived. A
daemon may hold the command's pipe when that has ended: the pipe is read empty at once and closed, and only then is the
daemon ended. What a command printed is what was printed while it ran; nobody adds other last words to it.

The conversation. A request is `<length>\\n` and so many bytes, fields separated by NUL (no argument, path or variable
can hold one, and unlike JSON it needs no module: importing json would double the start-up). An answer is one line:

    run, cwd, stdin, stdout, stderr, count, secrets…, count, argv…, NAME=value…
                      →  started PID   or   failed ERRNO STAGE
    stop, grace       →  ended CODE LEFTOVERS STOPPED SURVIVORS LOST (an errno, where output could not be written)

It runs without site-packages: the standard library's lightest modules, and two small ones of ours.
"""

# ruff: noqa: PTH110, PTH113, PTH118, PTH123, PTH208
# (pathlib alone would cost more than all the rest of the start-up)

from __future__ import annotations

import os
import select
import sys
import time

from capsule.system.streams import Stream, is_trickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Iterator
else:
    import _signal as signal  # without its enumerations, which would be half of the start-up

LEFTOVER_GRACE = 0.5
KILL_LIMIT = 5.0
PS_INTERVAL = 0.1
RUNS = 20
GATHER = 0.001

# pid → (parent, session, zombie); where there is no /proc, the process group replaces the session.
ProcessTable = dict[int, tuple[int, int, bool]]

_PR_SET_CHILD_SUBREAPER = 36
_RESTORED = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ),
    *(signal.SIGCHLD, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
)
_INPUT = os.O_RDONLY | os.O_NONBLOCK
# Never through a link planted where our log will be, never waiting for the reader of a FIFO, not even later.
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK


class _RunnerGone(Exception):
    """The runner closed its end of the pipe."""


class _NotStarted(Exception):
    """The command could not be started; args are the errno and the stage that failed."""


# ── who is there ──────────────────────────────────────────────────────────────────────────────────────────────────────


def has_proc() -> bool:
    return os.path.exists("/proc/self/stat")


def process_table() -> ProcessTable:
    if not has_proc():
        return _table_from_ps()
    table: ProcessTable = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            # The command's name is in brackets and may itself hold brackets and spaces.
            state, parent, _group, session = stat.rpartition(b")")[2].split(None, 4)[:4]
            table[int(name)] = (int(parent), int(session), state in b"ZX")
    return table


def parent_of(pid: int) -> int:
    """Return the parent's pid; 0 where the process has ended."""
    if has_proc():
        stat = _read(f"/proc/{pid}/stat")
        return int(stat.rpartition(b")")[2].split(None, 2)[1]) if stat else 0
    return process_table().get(pid, (0, 0, False))[0]


def _table_from_ps() -> ProcessTable:
    rows = (line.split() for line in _ps("-A", "-o", "pid=,ppid=,pgid=,stat="))
    return {int(pid): (int(parent), int(group), state.startswith(b"Z")) for pid, parent, group, state in rows}


def pids_with_marker(name: str, value: str) -> Iterator[int]:
    """Yield processes whose environment holds the marker, youngest first.

    One at a time, because one that forks for its life is gone by the time all others have been looked at.
    """
    marker = os.fsencode(f"{name}={value}")
    if has_proc():
        pids = sorted((int(pid) for pid in os.listdir("/proc") if pid.isdigit()), reverse=True)
        yield from (pid for pid in pids if marker in _read(f"/proc/{pid}/environ").split(b"\0"))
        return
    lines = [line.split() for line in _ps("-A", "-E", "-ww", "-o", "pid=,command=")]
    yield from (int(words[0]) for words in lines if marker in words[1:])


def descendants(table: ProcessTable, roots: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, (parent, _, _) in table.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), ()) if pid not in found]
        found.update(new)
        waiting.extend(new)
    return found


def kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # gone already, or not ours to signal: then it counts as a survivor


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _ps(*options: str) -> list[bytes]:
    """Return the lines of one `ps`, without its own; no subprocess module, for the sake of the start-up."""
    reading, writing = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        pid = os.posix_spawnp("ps", ["ps", *options], os.environ, file_actions=actions)
    finally:
        os.close(writing)
    try:
        with open(reading, "rb") as file:
            lines = file.read().splitlines()
    finally:
        os.waitpid(pid, 0)
    return [line for line in lines if line.split(None, 1)[:1] not in ([], [b"%d" % pid])]


# ── starting one command ──────────────────────────────────────────────────────────────────────────────────────────────


def start(fields: list[bytes]) -> tuple[int, list[Stream]]:
    """Start what a `run` request describes, in a session of its own; return its pid and its streams."""
    cwd, stdin, stdout, stderr, *words = fields
    secrets, words = _counted(words)
    argv, pairs = _counted(words)
    env = dict(pair.split(b"=", 1) for pair in pairs)
    opened: list[int] = []
    stages = ["program", "stderr", "stdout", "stdin", "cwd"]
    streams: list[Stream] = []
    try:
        os.chdir(cwd)
        for path, flags in ((stdin, _INPUT), (stdout, _OUTPUT), (stderr, _OUTPUT)):
            stages.pop()
            opened.append(os.open(path, flags, 0o644))
        stages.pop()
        os.set_blocking(opened[0], True)
        program = find_program(argv[0], env.get(b"PATH", b""))
        # One stream for both outputs where both go to the same file, so that their order is kept.
        files = opened[1:2] if os.path.samestat(*map(os.fstat, opened[1:])) else opened[1:]
        streams = [Stream(os.dup(file), secrets) for file in files]
        return os.posix_spawn(
            program,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, fd, number)
                for number, fd in enumerate([opened[0], streams[0].entrance, streams[-1].entrance])
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_RESTORED,
        ), streams
    except OSError as error:
        for stream in streams:
            stream.finish()
        raise _NotStarted(error.errno, stages[-1]) from error
    finally:
        for fd in (*opened, *(stream.entrance for stream in streams)):
            os.close(fd)
        os.chdir("/")


def _counted(words: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Split off as many words as the first one says."""
    end = int(words[0]) + 1
    return words[1:end], words[end:]


def find_program(name: bytes, path: bytes) -> bytes:
    """Search PATH like execvp, but skip relative entries: the working directory may be an untrusted repository."""
    if b"/" in name:
        return name
    found = [os.path.join(entry, name) for entry in path.split(b":") if entry.startswith(b"/")]
    files = [program for program in found if name and os.path.isfile(program)]
    for program in files:
        if os.access(program, os.X_OK):
            return program
    raise (PermissionError(13, "not executable") if files else FileNotFoundError(2, "not on PATH"))


# ── the conversation and the loop ─────────────────────────────────────────────────────────────────────────────────────


class Supervisor:
    def __init__(self, marker: tuple[str, str], *, subreaper: bool, wake: int) -> None:
        self._marker = marker
        self._subreaper = subreaper
        self._wake = wake
        self._heard = b""
        self._main = 0
        self._code: int | None = None
        self._streams: list[Stream] = []

    def serve(self) -> None:
        """Take requests until the runner goes, then leave nothing running."""
        try:
            while True:
                self._listen(None)
                while request := self._take_request():
                    if request[0] == b"run":
                        self._run(request[1:])
        except _RunnerGone:
            return
        finally:
            self._kill_all()

    def _run(self, fields: list[bytes]) -> None:
        try:
            (self._main, self._streams), self._code = start(fields), None
        except _NotStarted as failure:
            return self._answer("failed", *failure.args)
        try:
            self._answer("started", self._main)
            stopped = False
            while self._code is None and not stopped:
                self._listen(None)
                self._reap()
                request = self._take_request()
                if request and self._code is None:  # else the command's own end came first
                    self._end_all(float(request[1]))
                    stopped = True
            lost = self._finish_streams()
            leftovers = 0 if stopped else self._count()
            if leftovers:
                self._end_all(LEFTOVER_GRACE)
        except _RunnerGone:
            self._kill_all()
            self._finish_streams()
            raise
        self._answer("ended", self._code, leftovers, int(stopped), self._count(), lost)
        self._main = 0  # its pid is free again, and may soon belong to another process
        return None

    def _finish_streams(self) -> int:
        streams, self._streams = self._streams, []
        for stream in streams:
            stream.finish()
        return max((stream.lost for stream in streams), default=0)

    # ── ending ──

    def _end_all(self, grace: float) -> None:
        for pid in self._alive_below():
            kill(pid, signal.SIGTERM)
            kill(pid, signal.SIGCONT)  # a stopped process would not get the first signal
        deadline = time.monotonic() + grace
        while self._any_process_left() and (left := deadline - time.monotonic()) > 0:
            self._listen(left if self._subreaper else min(left, PS_INTERVAL))
        self._kill_all()

    def _kill_all(self) -> None:
        """Kill until none is left, looking again after each round for forks; give up on what no signal can end."""
        deadline = time.monotonic() + KILL_LIMIT
        while self._any_process_left() and time.monotonic() < deadline:
            for pid in self._alive_below():
                kill(pid, signal.SIGKILL)
            for pid in self._fast_forkers():
                kill(pid, signal.SIGKILL)
            self._sleep([self._wake], 0.02)
        if self._code is None:
            self._code = -signal.SIGKILL  # sent, and pending if it is among the survivors

    def _fast_forkers(self) -> Iterator[int]:
        """Yield processes that fork and exit, gone before a look at all is over, but soon our children."""
        if not self._subreaper:
            yield from pids_with_marker(*self._marker)
        for _ in range(RUNS):
            yield from map(int, _read(f"/proc/self/task/{os.getpid()}/children").split())

    def _any_process_left(self) -> bool:
        children = self._reap()
        return children if self._subreaper else bool(self._alive_below())

    def _count(self) -> int:
        """Count those left: at least one if there is anyone, for some fork faster than we look."""
        return max(1, len(self._alive_below())) if self._any_process_left() else 0

    def _reap(self) -> bool:
        """Collect all children that have ended, adopted ones too; return False when there is no child at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._main:
                self._code = os.waitstatus_to_exitcode(status)

    def _alive_below(self) -> set[int]:
        table = process_table()
        roots = {os.getpid()}
        if not self._subreaper:
            roots |= {pid for pid, (_, session, _) in table.items() if self._main and session == self._main}
            roots |= set(pids_with_marker(*self._marker))
        found = (roots | descendants(table, roots)) - {os.getpid()}
        return {pid for pid in found if pid in table and not table[pid][2]}

    # ── the pipes ──

    def _listen(self, seconds: float | None) -> None:
        """Wait for a request, an ended child or the time-out, whichever comes first."""
        if 0 in self._sleep([0, self._wake], seconds):
            heard = os.read(0, 65536)
            if not heard:
                raise _RunnerGone
            self._heard += heard

    def _sleep(self, fds: list[int], seconds: float | None) -> list[int]:
        """Wait until one of these is ready, or until something was printed, and move that on."""
        printing = {stream.source: stream for stream in self._streams if stream.open}
        ready = select.select([*fds, *printing], [], [], seconds)[0]
        if self._wake in ready:
            os.read(self._wake, 4096)
        moved = [printing[fd].move() for fd in ready if fd in printing]
        if any(map(is_trickle, moved)):
            time.sleep(GATHER)  # a look at every single line would cost more than the line
        return ready

    def _take_request(self) -> list[bytes] | None:
        length, newline, rest = self._heard.partition(b"\n")
        if not newline or len(rest) < int(length):
            return None
        request, self._heard = rest[: int(length)], rest[int(length) :]
        return request.split(b"\0")

    def _answer(self, *words: object) -> None:
        try:
            os.write(1, " ".join(map(str, words)).encode() + b"\n")
        except BrokenPipeError as error:
            raise _RunnerGone from error


def become_subreaper() -> bool:
    if not sys.platform.startswith("linux") or not has_proc():
        return False
    import ctypes  # noqa: PLC0415 (three milliseconds that only Linux needs to pay)

    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def wake_on_ended_child() -> int:
    """Return a descriptor that becomes readable at SIGCHLD, so that one select waits for everything."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    name, value, *options = sys.argv[1:]
    subreaper = "without-subreaper" not in options and become_subreaper()
    Supervisor((name, value), subreaper=subreaper, wake=wake_on_ended_child()).serve()
