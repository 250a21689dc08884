"""`capsule run [ID]` as a process that kills itself at a named point: `python driver.py run ID`.

It is the real command with the real adapters. Each adapter is only watched, so a point is passed before and after every
journaled event and every call through an adapter, in the order in which the mission does them:

    before step_begun mend-1/execute#2              the journal is about to write it
    after step_begun mend-1/execute#2               it is written, and beside it what its run is told of it
    before mend-1/execute#2 place.restore 1         the first such call of this step
    before mend-1/execute#2 state_store.write 1     the same, of the tracker's commits: named by the step they are for
    before effect 41                                the runner is about to start a process that writes, or touch a file
    after effect 41                                 that process runs now, and may outlive us for a moment
    before effect 42                                the supervisor is about to be asked to run a command
    after effect 42                                 it has been asked
    during effect 42                                the command has run for a moment: what it sees is mounted
    before mend-1/publish#1 git.push 2              the second time that this step is about to push (an effect, too)

A journaled event is called the same in whichever process it is written, so a run can be killed at one after the other.
A queue starts its runners by this program too. Both count and name their points together, in the file CRASH_SHARED, and
whichever of them comes to the last point, both die; with CRASH_ALONE a runner dies alone, and its queue goes on.

CRASH_AT names the point to die at, by a signal nothing can catch. CRASH_RECORD names a file that is told of every point
passed. Effects are watched only where CRASH_EFFECTS is set.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from capsule import wiring
from capsule.adapters import ClaimedState
from capsule.app import mission_processes
from capsule.app.mission_processes import RUNNER
from capsule.cli import main
from capsule.core.event import Event, Observed, Recorded, Salvaged, Spawned, StepBegun, StepEnded, Taken, kind
from capsule.services import Services
from capsule.system import process

A_MOMENT = 0.1
"""Seconds in which a sandbox has mounted everything."""


class Passage:
    """Every point on the way is passed here; one of them may be the last."""

    def __init__(self, last: str, record: str) -> None:
        self._last = last
        self._record = os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if record else None
        shared = os.environ.get("CRASH_SHARED", "")
        self._shared = os.open(shared, os.O_RDWR | os.O_CREAT, 0o600) if shared else None
        self._seen: dict[str, Any] = {"step": "outside", "counts": {}}
        self._counting = threading.Lock()
        """Claims are renewed by a thread beside the work."""

    def point(self, name: str, about: str = "", *, after: float = 0) -> None:
        if self._record is not None:
            os.write(self._record, f"{name}\t{about}\n".encode())
        if name == self._last:
            time.sleep(after)
            if sys.argv[1:] == [RUNNER] and "CRASH_ALONE" not in os.environ:
                os.kill(os.getppid(), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    @contextmanager
    def around(self, name: str, about: str = "") -> Iterator[None]:
        self.point(f"before {name}", about)
        yield
        self.point(f"after {name}", about)

    @property
    def step(self) -> str:
        """The last step that began, in whichever process."""
        with self._counting:
            return str(self._read()["step"])

    def begins(self, step: str) -> None:
        with self._counting:
            self._write({**self._read(), "step": step})

    def numbered(self, name: str) -> str:
        with self._counting:
            seen = self._read()
            number = seen["counts"].get(name, 0) + 1
            self._write({**seen, "counts": {**seen["counts"], name: number}})
        return f"{name} {number}"

    def _read(self) -> dict[str, Any]:
        data = os.pread(self._shared, 1 << 24, 0) if self._shared is not None else b""
        return json.loads(data) if data else self._seen

    def _write(self, seen: dict[str, Any]) -> None:
        self._seen = seen
        if self._shared is not None:
            os.ftruncate(self._shared, 0)
            os.pwrite(self._shared, json.dumps(seen).encode(), 0)


class Watched:
    """An adapter; every call through it is a point before and a point after."""

    def __init__(self, name: str, adapter: object, passage: Passage) -> None:
        self._name, self._adapter, self._passage = name, adapter, passage

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._adapter, attribute)
        if attribute in ("trees", "guard"):
            return Watched(f"{self._name}.{attribute}", found, self._passage)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            passage = self._passage
            step = getattr(args[0], "key", "") if args else ""
            with passage.around(passage.numbered(f"{step or passage.step} {self._name}.{attribute}")):
                return found(*args, **options)

        return call


def watched(services: Services, passage: Passage) -> Services:
    def adapter(name: str, found: object) -> Any:
        return Watched(name, found, passage)

    def made(name: str, make: Callable[..., object]) -> Any:
        return lambda *args: adapter(name, make(*args))

    _watch_events(services.journal, passage)
    tracker = adapter("tracker", services.tracker)
    claims = isinstance(services.state_store, ClaimedState)
    return replace(
        services,
        tracker=tracker,
        shell=adapter("shell", services.shell),
        archive=adapter("archive", services.archive),
        state_store=ClaimedState(tracker) if claims else adapter("state_store", services.state_store),
        agent=made("agent", services.agent),
        place=made("place", services.place),
        trunk=made("trunk", services.trunk),
    )


def _watch_events(journal: Any, passage: Passage) -> None:
    """Steps and facts are written by the same method, so no event can go by unseen."""
    write = journal.note

    def note(stream: str, event: Event, beside: tuple[str, Event] | None = None) -> None:
        with passage.around(event_name(stream, event, [known for _, known in journal.events(stream)])):
            write(stream, event, beside)
        if isinstance(event, StepBegun):
            passage.begins(f"{stream}/{event.key}")

    journal.note = note


def event_name(stream: str, event: Event, earlier: Sequence[Event]) -> str:
    """What an event is called: by its step, its reason, the agents of its mission, or how many were seen before it."""
    if isinstance(event, StepBegun | StepEnded | Recorded):
        return f"{kind(event)} {stream}/{event.key}"
    about = ""
    if isinstance(event, Salvaged):
        about = event.why
    elif isinstance(event, Observed):
        about = str(sum(kind(known) == kind(event) for known in earlier) + 1)
    elif isinstance(event, Taken):  # one that was killed is taken again, and has no more agents for it
        agents = {known.key for known in earlier if isinstance(known, Spawned) and known.mission == event.mission}
        about = f"{event.mission} {len(agents)}"
    return f"{kind(event)} {stream} {about}".rstrip()


_EFFECTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink")
_READERS = {"cat-file", "check-ignore", "config", "diff-files", "diff-index", "diff-tree", "for-each-ref", "log"}
_READERS |= {"ls-files", "ls-tree", "merge-base", "rev-list", "rev-parse", "var", "version"}
_ACROSS = {"fetch", "ls-remote", "push"}
_OF_NO_CONSEQUENCE = ("null", "live.jsonl")


def watch_effects(passage: Passage) -> None:
    """What the runner's own thread does to the disk: files made, moved and removed, and processes that may do so."""
    runner = threading.get_ident()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        done = (event in _EFFECTS and not _fails(event, args)) or _opens_to_write(event, args)
        if event == "os.mkdir" and Path(os.fsdecode(args[0])).parent.name == "objects":
            return  # whether an object is the first of its folder depends on its id, which no two runs share
        if threading.get_ident() == runner and done:
            passage.point(f"before {passage.numbered('effect')}", f"{event} {Path(os.fsdecode(args[0])).name}")

    class Spawned(subprocess.Popen[Any]):
        def __init__(self, args: Any, *rest: Any, **options: Any) -> None:
            if args[1] in _READERS:
                super().__init__(args, *rest, **options)
                return
            effect = passage.numbered("effect")
            asks: AbstractContextManager[None] = nullcontext()
            if args[1] in _ACROSS:
                asks = passage.around(passage.numbered(f"{passage.step} git.{args[1]}"))
            with passage.around(effect, " ".join(args[:2])), asks:
                super().__init__(args, *rest, **options)

    sys.addaudithook(hook)
    subprocess.Popen = Spawned  # type: ignore[misc]
    _watch_keeper(passage, runner)


def _watch_keeper(passage: Passage, runner: int) -> None:
    """The supervisor starts every command, in its sandbox, as soon as it is asked to."""
    send, hear = process._send, process.SupervisorClient._receive
    asked = ""

    def watched_send(supervisor: subprocess.Popen[bytes], *fields: str) -> None:
        nonlocal asked
        if threading.get_ident() != runner or fields[0] != "run":
            send(supervisor, *fields)
            return
        asked = passage.numbered("effect")
        with passage.around(asked, f"supervisor {'bwrap' if 'bwrap' in ' '.join(fields) else 'run'}"):
            send(supervisor, *fields)

    def watched_hear(self: process.SupervisorClient, *args: Any) -> str:
        line = hear(self, *args)
        if threading.get_ident() == runner and line.startswith("started"):
            passage.point(f"during {asked}", "supervisor", after=A_MOMENT)
        return line

    vars(process)["_send"] = watched_send
    setattr(process.SupervisorClient, hear.__name__, watched_hear)


def _fails(event: str, args: tuple[Any, ...]) -> bool:
    """Nothing to remove, nothing to make: before and after it the disk is the same."""
    if event in ("os.remove", "os.rmdir"):
        return not _is_there(args[0], args[1])
    return event == "os.mkdir" and (_is_there(args[0], args[2]) or not _is_there(Path(args[0]).parent, args[2]))


def _is_there(path: Any, folder: int) -> bool:
    try:
        os.lstat(path, dir_fd=None if folder == -1 else folder)
    except OSError:
        return False
    return True


def _opens_to_write(event: str, args: tuple[Any, ...]) -> bool:
    if event != "open" or isinstance(args[0], int) or not isinstance(args[2], int):
        return False
    return bool(args[2] & (os.O_WRONLY | os.O_RDWR)) and Path(os.fsdecode(args[0])).name not in _OF_NO_CONSEQUENCE


def watch() -> None:
    passage = Passage(os.environ.get("CRASH_AT", ""), os.environ.get("CRASH_RECORD", ""))
    open_services = wiring.open_services

    @contextmanager
    def open_watched_services(*args: Any, **options: Any) -> Iterator[Services]:
        with open_services(*args, **options) as services:
            yield watched(services, passage)

    for module in list(sys.modules.values()):  # a warm process has imported everything that opens one
        if getattr(module, "open_services", None) is open_services:
            setattr(module, "open_services", open_watched_services)  # noqa: B010
    mission_processes.PROGRAM = (sys.executable, __file__)
    if "CRASH_EFFECTS" in os.environ:
        watch_effects(passage)


if __name__ == "__main__":
    watch()
    sys.exit(main(sys.argv[1:]))
