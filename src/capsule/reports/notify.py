"""Notify a person when a mission waits, is done or has stopped: by the terminal's bell, or by a command of theirs.

Missions do not wait for that: a separate thread runs one command after the other, each with a time limit and under a
supervisor, so that no process is left. Only the end of a run waits for unsent notifications. An error of a command is
reported once, in one line, and does not affect the mission.
"""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TextIO

from capsule.core.errors import CapsuleError
from capsule.core.event import Event, RunEnded, RunStarted, Stopped, as_json_line, is_mission
from capsule.core.notification import TELLING, Notification, is_repeated_by_run, notification
from capsule.core.state import MissionState
from capsule.core.text import one_line
from capsule.system.files import tail_bytes
from capsule.system.process import Command, Ended, SupervisorClient

LIMIT = 10.0
"""The time limit of a command, and of the wait at the end of a run, in seconds."""
GRACE = 1.0
_TAIL = 2000
_LONGEST = 200


class Post:
    """Run commands in the background, in order, and keep their faults."""

    def __init__(
        self,
        commands: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        *,
        secrets: Sequence[str] = (),
        registry: Path | None = None,
        limit: float = LIMIT,
    ) -> None:
        """Take `secrets` out of the last words of a command that failed."""
        self._commands = commands
        self._env, self._cwd = env, cwd
        self._secrets, self._registry = secrets, registry
        self._limit = limit
        self._letters: queue.SimpleQueue[tuple[bytes, Mapping[str, str]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._deadline = float("inf")
        self._faults: queue.SimpleQueue[str] = queue.SimpleQueue()

    def send(self, letter: bytes, env: Mapping[str, str]) -> None:
        """Run each command with the message on its stdin, and these variables."""
        if not self._commands:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="notify", daemon=True)
            self._thread.start()
        self._letters.put((letter, env))

    def fault(self) -> str:
        """Return the error since the last call; '' if there was none."""
        return "" if self._faults.empty() else self._faults.get()

    def close(self, *, wait: bool = True) -> None:
        """Deliver what was sent, as far as the time limit allows. Safe to repeat.

        Without waiting the end of our process is the end of the supervisor, and of all that it keeps.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._deadline = time.monotonic() + (self._limit if wait else 0.0)
        self._letters.put(None)
        if wait:
            thread.join()

    def _work(self) -> None:
        while (letter := self._letters.get()) is not None:
            for command in self._commands:
                if fault := self._deliver(command, *letter):
                    self._faults.put(fault)

    def _deliver(self, command: str, letter: bytes, env: Mapping[str, str]) -> str:
        left = min(self._limit, self._deadline - time.monotonic())
        if left <= 0:
            return "was not run: earlier ones took too long"
        try:
            with tempfile.TemporaryDirectory(prefix="capsule-notify-") as folder:
                stdin, output = Path(folder) / "event.json", Path(folder) / "output"
                stdin.write_bytes(letter)
                with SupervisorClient(grace=GRACE, secrets=self._secrets, registry=self._registry) as supervisor:
                    ended = supervisor.run(
                        Command(
                            argv=("sh", "-c", command),
                            cwd=self._cwd,
                            env={**self._env, **env},
                            stdout=output,
                            stderr=output,
                            stdin=stdin,
                            timeout=left,
                        )
                    )
                return "" if ended.ok else _what_went_wrong(ended, output)
        except OSError as fault:
            return f"could not be run: {fault.strerror}"


def _what_went_wrong(ended: Ended, output: Path) -> str:
    if ended.why == "timeout":
        return f"took longer than {ended.seconds:.0f} s and was killed"
    if ended.why != "exited":
        return f"could not be run: {ended.detail}"
    how = f"exit code {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
    said = tail_bytes(output, _TAIL).decode(errors="replace").strip() if output.exists() else ""
    last = one_line(said.rpartition("\n")[2])[:_LONGEST]
    return f"failed ({how}){f': {last}' if last else ''}"


class Notifier:
    """An observer that notifies a person. Secrets are taken out before."""

    def __init__(
        self,
        project: str,
        post: Post,
        standing: Callable[[str], MissionState],
        *,
        bell: bool = False,
        terminal: TextIO | None = None,
    ) -> None:
        """`standing` returns the current state of a mission, its last event included."""
        self._project = project
        self._post = post
        self._standing = standing
        self._bell = bell
        self._terminal = terminal or sys.stderr
        self._count = 0
        self._in_a_run = False
        self._told: set[str] = set()
        self._held: tuple[Stopped, Notification, int] | None = None
        self._complained = False

    def event(self, mission: str, event: Event) -> None:
        self._count += 1
        self._complain_once()
        self._send_held(event)
        if isinstance(event, RunStarted):
            self._in_a_run = True
            self._told.clear()
        found = self._notification(mission, event)
        if found is None:
            return
        if isinstance(event, Stopped) and self._in_a_run:
            self._held = event, found, self._count
        else:
            self._tell(event, found, self._count)

    def activity(self, mission: str, text: str) -> None:
        """Ignore activity."""

    def __enter__(self) -> Notifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        at_once = kind is not None and issubclass(kind, KeyboardInterrupt)
        self._send_held(None)
        self._post.close(wait=not at_once)
        self._complain_once()

    def _notification(self, mission: str, event: Event) -> Notification | None:
        old_news = isinstance(event, RunEnded) and is_repeated_by_run(mission, event, self._told)
        if old_news or not isinstance(event, TELLING):
            return None
        try:
            state = self._standing(mission) if is_mission(mission) else MissionState()
        except CapsuleError:  # without it the message has fewer details
            state = MissionState()
        return notification(mission, event, state)

    def _send_held(self, event: Event | None) -> None:
        """Send a held notification, unless the event is the end of the run for the same cause."""
        held, self._held = self._held, None
        if held and not (isinstance(event, RunEnded) and event.why == held[0].cause.rstrip(".")):
            self._tell(*held)

    def _tell(self, event: Event, found: Notification, number: int) -> None:
        self._told.add(found.mission)
        if self._bell and self._terminal.isatty():
            self._terminal.write("\a")
            self._terminal.flush()
        public = json.loads(as_json_line(found.mission, number, event))
        about = {"notification": found.occasion, "title": found.title, "words": found.words, "project": self._project}
        letter = json.dumps({**public, **about}, ensure_ascii=False).encode()
        self._post.send(
            letter + b"\n", {"CAPSULE_NOTIFICATION": found.occasion, "CAPSULE_NOTIFICATION_WORDS": found.words}
        )

    def _complain_once(self) -> None:
        fault = self._post.fault()
        if fault and not self._complained:
            self._complained = True
            self._terminal.write(f"note: the notify command {fault}; missions are not affected.\n")
            self._terminal.flush()
