"""Read the journal for screens and reports, and ask a runner to stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path

from capsule.core.board import Board
from capsule.core.errors import CapsuleError
from capsule.core.event import Event, is_run
from capsule.core.history import MissionHistory, MissionSummary, Presence, RunSummary, read_mission, read_run
from capsule.core.merge_queue import merge_stream
from capsule.core.merge_train import MergeTrain
from capsule.core.progress import RunProgress, progress_of
from capsule.core.state import children_of
from capsule.core.status import MissionStatus
from capsule.journals.sqlite import SqliteJournal
from capsule.journals.watch import Watch
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.files import tail_bytes
from capsule.system.stop import interrupt


class JournalWatcher:
    """Poll the project's missions. The thread that polls first owns the connection."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.journal: SqliteJournal | None = None
        self._watch: Watch | None = None

    def look(self) -> Board:
        try:
            if self._watch is None:
                from capsule.wiring import budget_of  # noqa: PLC0415 - start-up of `show`

                self.journal = self._project.journal(read_only=True)
                settings, folder = self._project.settings, self._project.logs().folder
                tested = settings.merge.batch, settings.execution.gates
                self._watch = Watch(self.journal, folder, budget_of(settings), tested)
            return self._watch.look(SystemClock().now())
        except CapsuleError:
            self._watch = None  # reopen it after a repair
            raise


class MissionReader:
    """Read each stream of the journal once, on first use."""

    def __init__(self, project: Project) -> None:
        self.journal = project.journal(read_only=True)
        self._events: dict[str, list[Event]] = {}
        self._histories: dict[str, MissionHistory] = {}
        self._trains: dict[str, MergeTrain] = {}
        self._epochs: Mapping[str, int] | None = None

    def __enter__(self) -> MissionReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.journal.close()

    def missions(self) -> Sequence[str]:
        return self.journal.missions()

    def events(self, stream: str) -> list[Event]:
        if stream not in self._events:
            self._events[stream] = [event for _, event in self.journal.events(stream)]
        return self._events[stream]

    def history(self, mission: str) -> MissionHistory:
        if mission not in self._histories:
            self._histories[mission] = read_mission(self.events(mission))
        return self._histories[mission]

    def run(self, stream: str, now: str) -> RunSummary:
        return read_run(stream, self.events(stream)).summary(Presence(self.journal.holder(stream)), now)

    def summary(self, mission: str, now: str) -> MissionSummary:
        history, pid = self.history(mission), self.journal.holder(mission)
        place = self._place(mission, history.queued.branch, pid) if pid is not None and history.queued else None
        return history.summary(Presence(pid, place=place), now)

    def whole(self, mission: str, now: str) -> MissionSummary:
        """Return a mission with its parts."""
        parts = children_of(self.history(mission).state, lambda name: self.history(name).state)
        return self.summary(mission, now).holding(tuple(self.whole(part.mission, now) for part in parts))

    def progress(self, now: str) -> Iterator[tuple[RunSummary, RunProgress]]:
        """Estimate the progress of each run with several missions, from its own missions alone."""
        for stream in filter(is_run, self.journal.streams()):
            if self.journal.is_held(stream) and (run := self.run(stream, now)).jobs > 1:
                missions = [self.summary(name, now) for name in run.missions]
                queued = [each.mission for each in missions if each.queued and each.status is MissionStatus.WAITING]
                yield run, progress_of(run, missions, missions, queued)

    def _place(self, mission: str, branch: str, pid: int) -> str | None:
        """Return its place in the merge queue of a branch; '' if it has the turn."""
        stream = merge_stream(branch)
        if pid and self.journal.holder(stream) == pid:
            return ""
        if self._epochs is None:
            self._epochs = self.journal.epochs()
        train, at = self.train(stream), self._epochs
        at_it = self.journal.holder(stream)
        first = next((name for name in train.waiting if at_it and self.journal.holder(name) == at_it), "")
        places = train.places(lambda one: at.get(one.mission) == one.epoch and self.journal.is_held(one.mission), first)
        return next((place.words for place in places if place.mission == mission), None)

    def train(self, stream: str) -> MergeTrain:
        if stream not in self._trains:
            self._trains[stream] = reduce(MergeTrain.after, self.events(stream), MergeTrain(stream=stream))
        return self._trains[stream]


def end_of(file: Path, limit: int) -> str:
    """Return the end of a file; '' if it was archived meanwhile."""
    try:
        return tail_bytes(file, limit).decode(errors="replace")
    except OSError:
        return ""


def ask_to_stop(journal: SqliteJournal, stream: str, shown: int | None = None) -> str:
    """Send SIGINT to the runner; return '' or why that was not possible.

    The runner is looked up again: the pid that was `shown` may belong to another process by now.
    """
    pid = journal.holder(stream)
    if pid is None:
        return "It is not running any more."
    if pid == 0:
        return "It runs in another container or on another machine: stop it there."
    if shown not in (None, pid):
        return f"Another process runs it now (pid {pid})."
    try:
        interrupt(pid)
    except OSError as fault:
        return f"It cannot be stopped from here: {fault.strerror}."
    return ""
