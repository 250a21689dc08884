"""Missions as processes: a queue starts one runner for each mission. This module has both sides.

The queue writes a task to the runner's stdin and keeps that pipe open. A runner whose stdin ends has lost its queue. If
it ran alone it kills itself, and its supervisor then ends the agent; one of several goes on (`outlives_queue`, or its
run was allowed more since), and the next queue finds it by its lock. The runner tells on its stdout what happens, one
JSON object a line, and waits for a byte after each: so everything is shown in the order in which it happened, and
nothing twice. How it stands is in the journal, where it counts its agents too (`RunLease`). A queue that is suspended,
or cannot write to its terminal, shows later what it was told: one of several does not wait for that for long.

A runner has a session of its own: Ctrl-C reaches only the queue, which passes it on. The first asks, the second orders.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from capsule.adapters import JournalReader, Observer, Order, RunLease
from capsule.app.planning import RunRequest
from capsule.core import errors
from capsule.core.errors import CapsuleError, Interrupted, RunnerDied
from capsule.core.event import Event, Stopped
from capsule.core.run import open_run
from capsule.core.state import replay
from capsule.engine.dispatch import limited_by
from capsule.engine.run_mission import run_until_halt
from capsule.project import Project, open_project
from capsule.rules import words_at
from capsule.services import Services
from capsule.settings import Loaded
from capsule.system.process import end_leftovers
from capsule.system.stop import Stop, interrupt
from capsule.system.umask import of_the_user
from capsule.wiring import open_services, recorded, replayed

RUNNER = "_runner"
"""The command by which a queue starts a runner; people do not type it."""
PROGRAM: tuple[str, ...] = (sys.executable, "-P", "-m", "capsule")
_LOOK = 0.25
"""Seconds between checks of an adopted mission."""
_PATIENCE = 15.0
"""Seconds for a runner to end its agent when it is forced to stop."""
_UNHEARD = 5.0
"""Seconds after which one of several runners continues without its queue's confirmation."""


class _Task(msgspec.Struct, frozen=True):
    """The request, order and settings that a runner is started with. Settings and branch are as of the start of the
    queue."""

    root: str
    branch: str
    loaded: Loaded
    request: RunRequest
    order: Order
    lease: RunLease


class _Fault(msgspec.Struct, frozen=True):
    """An exception, on its way to the queue."""

    kinds: tuple[str, ...]
    """The names of its class and base classes."""
    fields: dict[str, Any]
    trace: str


class _Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line from a runner to its queue."""

    stream: str = ""
    event: Event | None = None
    activity: str = ""
    listens: bool = False
    """Signals are handled from now on."""
    ended: bool = False
    fault: _Fault | None = None


class RunnerBug(Exception):
    """An unexpected exception of a runner; its traceback is a note."""


def with_recording(services: Services, project: Project, request: RunRequest) -> tuple[Services, str]:
    """Replay or record agents if the request says so; return notes about it, too."""
    told = ""
    if request.replay:
        services, told = replayed(services, project, Path(request.replay).absolute())
    if request.record:
        services = recorded(services, project, Path(request.record).absolute(), start_over=request.fresh)
    return services, told


# ---- the queue's side


class MissionProcesses:
    """Start runners, show their events, and pass signals on to them."""

    def __init__(self, project: Project, request: RunRequest, observer: Observer, stop: Stop) -> None:
        self._project, self._request, self._observer, self._stop = project, request, observer, stop
        self._runners: list[_Runner] = []
        self._adopted: list[_Adopted] = []
        self._started: set[str] = set()

    def start(self, order: Order, lease: RunLease) -> None:
        project, again = self._project, order.mission in self._started
        request = replace(self._request, fresh=self._request.fresh and not again)  # start a recording over only once
        self._started.add(order.mission)
        self._runners.append(_Runner(_Task(str(project.root), project.branch, project.loaded, request, order, lease)))

    def adopt(self, mission: str) -> None:
        self._adopted.append(_Adopted(mission, self._project.journal_reader()))

    def wait(self, seconds: float | None = None) -> tuple[str, CapsuleError | None] | None:
        deadline = time.monotonic() + (inf if seconds is None else seconds)
        try:
            while True:
                if self._stop.requested:
                    for running in self._runners:
                        running.ask_to_stop()
                if gone := next(filter(self._has_ended, self._adopted), None):
                    self._adopted.remove(gone)
                    return self._gone(gone)
                rest = max(0.0, deadline - time.monotonic())
                pause = min(rest, _LOOK if self._adopted else rest)
                watched = [*self._runners, *(() if self._stop.requested else (self._stop,))]
                ready = select.select(watched, [], [], None if pause == inf else pause)[0]
                if not ready and not rest:
                    return None
                for runner in [each for each in self._runners if each in ready]:
                    for told in runner.messages():
                        if told.event:
                            self._observer.event(told.stream, told.event)
                        elif told.activity:
                            self._observer.activity(told.stream, told.activity)
                        runner.acknowledge()
                    if runner.over:
                        self._runners.remove(runner)
                        return self._gone(runner)
        except BaseException:
            for runner in self._runners:
                runner.end()
            self._runners.clear()
            raise

    def _gone(self, process: _Runner | _Adopted) -> tuple[str, CapsuleError | None]:
        """Return how a process ended, after ending what it left: its mission may not be started again."""
        error = process.error()
        end_leftovers(self._project.registry)
        return process.mission, error

    def _has_ended(self, adopted: _Adopted) -> bool:
        """Show new events of an adopted mission, and pass a stop on to it; return whether it has ended."""
        if self._stop.requested:
            adopted.ask_to_stop()
        return adopted.has_ended(self._observer)


class _Runner:
    """One process, from its start to its end."""

    def __init__(self, task: _Task) -> None:
        self.mission = task.order.mission
        self.over = False
        self._listens = self._asked = False
        self._fault: _Fault | None = None
        self._heard = b""
        try:
            self._process = subprocess.Popen(
                [*PROGRAM, RUNNER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                umask=of_the_user(),
            )
        except OSError as error:
            hint = "Free some memory, or end some processes; then run again."
            raise CapsuleError(f"Cannot start a process for {self.mission}: {error.strerror}.", hint) from error
        self._write(msgspec.json.encode(task) + b"\n")

    def fileno(self) -> int:
        assert self._process.stdout
        return self._process.stdout.fileno()

    def messages(self) -> Iterator[_Message]:
        """Yield the messages since the last call; the last one holds the end."""
        data = os.read(self.fileno(), 1 << 16)
        self._heard += data
        self.over = not data
        while b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            told = msgspec.json.decode(line, type=_Message)
            self._listens, self._fault = self._listens or told.listens, told.fault
            self.over = told.ended
            yield told

    def acknowledge(self) -> None:
        if not self.over:
            self._write(b".")

    def ask_to_stop(self) -> None:
        """Ask once, and not before it handles signals: while Python starts, a signal would kill it."""
        if self._listens and not self._asked:
            self._asked = True
            interrupt(self._process.pid)

    def error(self) -> CapsuleError | None:
        """Wait for its end; return the error that stopped it; raise an unexpected one."""
        code = self._close()
        if self._fault:
            fault = _exception_of(self._fault)
            if not isinstance(fault, CapsuleError):
                raise fault
            return fault
        if code == 0:
            return None
        go_on = f"Go on with `capsule run {self.mission}`."
        if code == Interrupted.exit_code:
            return Interrupted(f"{self.mission} was stopped at once; recorded progress is kept.", go_on)
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        message = f"The process of {self.mission} {how}; recorded progress is kept."
        return RunnerDied(message, go_on, exit_code=128 - code if code < 0 else code)

    def end(self) -> None:
        """Force it to stop, drop its further messages, and wait for its end."""
        deadline = time.monotonic() + _PATIENCE
        try:
            if self._listens:
                self._process.send_signal(signal.SIGINT)
                while not self.over and select.select([self], [], [], max(0.0, deadline - time.monotonic()))[0]:
                    for _ in self.messages():
                        self.acknowledge()
        finally:
            if not self.over:
                self._process.kill()
            self._close()

    def _close(self) -> int:
        assert self._process.stdin
        assert self._process.stdout
        code = self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        return code

    def _write(self, data: bytes) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # it has ended, and its stdout says so
            _write_all(self._process.stdin.fileno(), data)


class _Adopted:
    """The process of a mission whose queue has ended: it can only be reached by journal, lock and signals."""

    def __init__(self, mission: str, journal: JournalReader) -> None:
        self.mission = mission
        self._asked = False
        self._journal = journal
        self._seen = len(journal.events(mission))
        self._last: Event | None = None

    def has_ended(self, observer: Observer) -> bool:
        """Pass new events of its mission to the observer; return whether it has ended."""
        held = self._journal.is_held(self.mission)  # checked first, so that its last events are passed on, too
        for number, event in self._journal.events(self.mission, after=self._seen):
            self._seen, self._last = number, event
            observer.event(self.mission, event)
        return not held

    def error(self) -> CapsuleError | None:
        """Return the error that stopped the ended process; one that ended in the middle of a step was killed."""
        state = replay(event for _, event in self._journal.events(self.mission))
        self._journal.close()
        if isinstance(self._last, Stopped):
            return _stop_error(self._last)
        if state.begun and not state.halt:
            message = f"The process of {self.mission} was killed; recorded progress is kept."
            return RunnerDied(message, f"Go on with `capsule run {self.mission}`.")
        return None

    def ask_to_stop(self) -> None:
        pid = self._journal.holder(self.mission)
        if pid and not self._asked:
            self._asked = True
            with suppress(ProcessLookupError):
                interrupt(pid)


def _stop_error(stopped: Stopped) -> CapsuleError:
    """Make the error that stopped a mission from its journal; earlier versions did not name its class."""
    name = stopped.error or (Interrupted.__name__ if stopped.exit_code == Interrupted.exit_code else "")
    fields = {"message": stopped.cause, "hint": stopped.hint, "exit_code": stopped.exit_code}
    return _error((name, CapsuleError.__name__), fields)


def _error(kinds: tuple[str, ...], fields: dict[str, Any]) -> CapsuleError:
    """Make an error of the first of these classes that this process knows."""
    kind = next(vars(errors)[name] for name in kinds if name in vars(errors))
    error: CapsuleError = kind.__new__(kind, fields["message"])
    vars(error).update(fields)
    return error


def _exception_of(fault: _Fault) -> Exception:
    """Make the exception that the runner raised, if this process knows its class."""
    if "CapsuleError" in fault.kinds:
        return _error(fault.kinds, fault.fields)
    bug: Exception = RunnerBug(f"{fault.kinds[0]}: {fault.fields['message']}")
    if "OSError" in fault.kinds:
        bug = OSError(fault.fields["errno"], fault.fields["strerror"], fault.fields["filename"])
    bug.add_note(fault.trace)
    return bug


# ---- the runner's side


def run_for_queue() -> int:
    """Run the mission of the task on stdin, and report to the queue on stdout; return the exit code."""
    queue = _Queue()
    task = queue.task()
    try:
        _run(task, queue)
    except Exception as fault:  # noqa: BLE001 - the queue raises it again
        queue.tell(_Message(ended=True, fault=_packed(fault)))
        return fault.exit_code if isinstance(fault, CapsuleError) else 2
    queue.tell(_Message(ended=True))
    return 0


def _run(task: _Task, queue: _Queue) -> None:
    project = open_project(task.root)
    project.loaded, project.branch = task.loaded, task.branch
    words = words_at(project, task.order.base)
    with (
        Stop() as stop,
        open_services(project, project.tracker, words, queue, stop, model=task.request.model) as opened,
    ):
        queue.tell(_Message(listens=True))
        services, _ = with_recording(opened, project, task.request)
        run_until_halt(task.order, limited_by(task.lease, services))


class _Queue:
    """The queue as seen by its runner: an observer that passes everything on to it."""

    def __init__(self) -> None:
        self._out = os.dup(1)
        os.dup2(2, 1)  # prints go to people
        self._heard = threading.Semaphore(0)
        self._one_at_a_time = threading.Lock()
        self._alone = self._unheard = False
        self._task: _Task | None = None

    def task(self) -> _Task:
        data = b""
        while not data.endswith(b"\n"):
            data += os.read(0, 1 << 16) or _killed()
        task = msgspec.json.decode(data, type=_Task)
        self._task = task
        threading.Thread(target=self._listen, daemon=True).start()
        return task

    def event(self, mission: str, event: Event) -> None:
        self.tell(_Message(stream=mission, event=event))

    def activity(self, mission: str, text: str) -> None:
        self.tell(_Message(stream=mission, activity=text))

    def tell(self, told: _Message) -> None:
        with self._one_at_a_time:
            if self._alone:
                return
            try:
                _write_all(self._out, msgspec.json.encode(told) + b"\n")
            except BrokenPipeError:
                self._lose_queue()
            if not (told.ended or self._alone):
                self._wait_to_be_heard()

    def _wait_to_be_heard(self) -> None:
        """Wait until the queue has shown the message; one of several holds locks that others need, so it waits less."""
        patience = None if not (self._task and self._task.lease.outlives_queue) else 0.0 if self._unheard else _UNHEARD
        self._unheard = not self._heard.acquire(timeout=patience)

    def _listen(self) -> None:
        while os.read(0, 1):
            self._heard.release()
        self._lose_queue()
        self._heard.release()  # the thread that waits for the confirmation

    def _lose_queue(self) -> None:
        """Continue without a queue if the mission is one of several; else kill this process."""
        if not (self._task and _is_one_of_several(self._task)):
            _killed()
        self._alone = True


def _is_one_of_several(task: _Task) -> bool:
    """Tell whether a mission was started as one of several, or its run may work on several now."""
    if task.lease.outlives_queue:
        return True
    with suppress(CapsuleError), closing(open_project(task.root).journal_reader()) as journal:
        return open_run(event for _, event in journal.events(task.lease.stream)).jobs > 1
    return False


def _killed() -> bytes:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def _packed(fault: Exception) -> _Fault:
    from traceback import format_exception  # noqa: PLC0415 - start-up

    kinds = tuple(kind.__name__ for kind in type(fault).__mro__)
    fields: dict[str, Any] = {"message": str(fault)}
    if isinstance(fault, CapsuleError):
        fields = {"exit_code": fault.exit_code, **vars(fault)}
    elif isinstance(fault, OSError):
        names = ("errno", "strerror", "filename")
        fields |= {name: str(fault.filename or "") if name == "filename" else getattr(fault, name) for name in names}
    return _Fault(kinds, msgspec.to_builtins(fields), "".join(format_exception(fault)))


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
