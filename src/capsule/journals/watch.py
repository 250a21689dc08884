"""Poll all missions for screens, reading only.

A mission's stream grows only under a claim, and every claim raises its epoch. So a stream that is not held, with the
same epoch as before, has nothing new, and is not read. Missions write to the streams of runs and merge queues without
holding them, so these are asked whenever the journal has changed. A poll costs what has happened since the last one,
however long the journal is.

The claim of a stream is checked before its events are read, so that its last events are read, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec.structs import replace

from capsule.adapters import JournalReader
from capsule.core.board import Board, gather_board
from capsule.core.budget import NO_BUDGET, Budget
from capsule.core.event import MERGES, is_mission
from capsule.core.history import (
    MOST_ATTEMPTS,
    NOBODY,
    MissionHistory,
    MissionSummary,
    Presence,
    RunSummary,
)
from capsule.core.merge_train import MergeSummary, MergeTrain
from capsule.system.files import open_regular
from capsule.system.supervisor import parent_of

MOST_DOINGS = 8
LONGEST = 500
_LONGEST_PIECE = 256 * 1024


class Watch:
    """`folder` is the folder of a mission's live file."""

    def __init__(
        self,
        journal: JournalReader,
        folder: Callable[[str], Path],
        budget: Budget = NO_BUDGET,
        tested: tuple[int, int] = (1, 1),
    ) -> None:
        """`tested` is how many merges may be tested together, and how many tests may run at the same time."""
        self._journal, self._folder, self._budget, self._tested = journal, folder, budget, tested
        self._version = -1
        self._epochs: dict[str, int] = {}
        self._seen: dict[str, int] = {}
        self._held: dict[str, int] = {}
        """The holder of each stream as of the last poll; 0 is unknown here."""
        self._started_by: dict[int, int] = {}
        """The parents of those processes."""
        self._read: dict[str, int] = {}
        self._histories: dict[str, MissionHistory | RunSummary] = {}
        self._tails: dict[str, LiveTail] = {}
        self._at_rest: dict[str, MissionSummary | RunSummary] = {}
        self._trains: dict[str, MergeTrain] = {}
        self._places: dict[str, str] = {}
        """Where missions stand in a merge queue, as of the last look; '' for one that has its turn."""

    def look(self, now: str) -> Board:
        version = self._journal.version()
        news = version != self._version
        if news:
            self._version, self._epochs = version, dict(self._journal.epochs())
        for stream, epoch in self._epochs.items():
            if stream.startswith(MERGES):
                if news:  # waiting missions write there without holding it
                    self._catch_up_train(stream)
            elif stream in self._held or self._seen.get(stream) != epoch or (news and not is_mission(stream)):
                self._catch_up(stream, epoch)
        merges = [self._merges(train) for train in self._trains.values()]
        self._places = {place.mission: place.words for each in merges for place in each.places}
        self._places |= {each.at_it: "" for each in merges if each.at_it}
        known = [name for name, history in self._histories.items() if history.began]
        summaries = [self._summary(name, now) for name in known]
        missions = [each for each in summaries if isinstance(each, MissionSummary)]
        return gather_board(missions, [each for each in summaries if isinstance(each, RunSummary)], now, merges)

    def _catch_up_train(self, stream: str) -> None:
        train = self._trains.get(stream, MergeTrain(stream=stream))
        for seq, event in self._journal.events(stream, self._read.get(stream, 0)):
            self._read[stream], train = seq, train.after(event)
        self._trains[stream] = train

    def _merges(self, train: MergeTrain) -> MergeSummary:
        pid = self._journal.holder(train.stream)
        at_it = next((name for name, held in self._held.items() if pid and held == pid and is_mission(name)), "")
        waits = train.places(
            lambda one: self._epochs.get(one.mission) == one.epoch and one.mission in self._held, at_it
        )
        line = [*filter(None, [at_it]), *(place.mission for place in waits)]
        return MergeSummary(train=train, at_it=at_it, places=waits, cars=train.cars(line, *self._tested))

    def _catch_up(self, stream: str, epoch: int) -> None:
        pid = self._journal.holder(stream)
        for seq, event in self._journal.events(stream, self._read.get(stream, 0)):
            self._read[stream] = seq
            new = MissionHistory(most=MOST_ATTEMPTS) if is_mission(stream) else RunSummary(stream=stream)
            self._histories[stream] = self._histories.get(stream, new).after(event)
        self._at_rest.pop(stream, None)
        self._seen[stream] = epoch
        if pid is None:
            self._held.pop(stream, None)
            self._tails.pop(stream, None)
        else:
            self._held[stream] = pid
            if pid not in self._started_by:
                self._started_by[pid] = parent_of(pid) if pid else 0

    def _summary(self, name: str, now: str) -> MissionSummary | RunSummary:
        """Summarize a mission; read one that is not running again only after an event."""
        history = self._histories[name]
        if name in self._held:
            pid = self._held[name]
            if isinstance(history, RunSummary):  # only missions have a folder
                return history.summary(Presence(pid, started_by=self._started_by[pid]), now)
            tail = self._tails.setdefault(name, LiveTail(self._folder(name) / "live.jsonl"))
            presence = tail.look(pid, self._started_by[pid])
            if self._places.get(name) is not None:
                presence = replace(presence, place=self._places[name])
            return history.summary(presence, now, self._budget)
        if name not in self._at_rest:
            self._at_rest[name] = history.summary(NOBODY, now, self._budget)
        return self._at_rest[name]


class _Row(msgspec.Struct):
    """A line of a live file; other lines are ignored."""

    at: Annotated[datetime, msgspec.Meta(tz=True)]
    activity: str = ""
    event: str = ""


_ROW = msgspec.json.Decoder(_Row)


class LiveTail:
    """The end of a live file, read on from the last poll."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._file = (0, 0)
        self._doing: tuple[str, ...] = ()
        self._at = ""

    def look(self, pid: int, started_by: int = 0) -> Presence:
        for line in self._new_lines():
            try:
                row = _ROW.decode(line)
            except (msgspec.MsgspecError, RecursionError):  # an agent may write there too
                continue
            if row.activity:
                self._doing, self._at = (*self._doing, row.activity[:LONGEST])[-MOST_DOINGS:], row.at.isoformat()
            elif row.event == "step_begun":
                self._doing, self._at = (), ""  # a phase that begins has done nothing yet
        return Presence(pid, self._doing, self._at, started_by)

    def _new_lines(self) -> list[bytes]:
        """Read whole lines only: the end of a long unread file, all of a new one."""
        try:
            fd = open_regular(self._path, os.O_RDONLY)
        except OSError:
            return []
        try:
            status = os.fstat(fd)
            file = (status.st_dev, status.st_ino)
            if file != self._file or status.st_size < self._offset:
                self._file, self._offset = file, 0
            self._offset = max(self._offset, status.st_size - _LONGEST_PIECE)
            piece = os.pread(fd, status.st_size - self._offset, self._offset)
        finally:
            os.close(fd)
        whole = piece[: piece.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()
