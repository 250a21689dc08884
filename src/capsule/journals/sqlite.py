"""The journal on disk: one sqlite file per repository, in the git directory, so that `git clean` cannot take it.

WAL with synchronous=FULL: an event that `note` or `once` returned from is on disk. Whoever writes holds the claim of
its stream: a file lock (the kernel frees it on kill -9) plus an epoch, so that a writer who lost the claim while asleep
is refused by the database itself. Another event may go beside it to any stream, in the same transaction. Nothing but
sqlite3 ever opens the file.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from capsule.adapters import Beside, Journal
from capsule.core.errors import CapsuleError, LockHeld
from capsule.core.event import RUN, Event, Spawned, StepBegun, StepEnded, decode, encode, kind
from capsule.core.run import OpenRun, admitted, followed_run
from capsule.core.state import Step
from capsule.core.stream_cache import CachedState
from capsule.system.lock import FileLock, holder, is_locked, lock_file, suspended_holder
from capsule.system.suspended import how_to_continue

_BUSY_SECONDS = 60
"""How long a write waits for others, such as fifty missions that start at the same time."""
_LOOK_AGAIN = 0.01
_SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    stream TEXT NOT NULL, seq INTEGER NOT NULL, kind TEXT NOT NULL, key TEXT, data BLOB NOT NULL,
    PRIMARY KEY (stream, seq)) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS one_outcome_per_step ON events (stream, key) WHERE kind = 'step_ended';
CREATE TABLE IF NOT EXISTS claims (stream TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
"""
_NEWEST_SCHEMA = 1
_CLAIM = "INSERT INTO claims VALUES (?, 1) ON CONFLICT (stream) DO UPDATE SET epoch = epoch + 1"


class SqliteJournal(Journal):
    """`folder` is `<git common dir>/capsule`. Opened read-only, it creates nothing.

    `redact` takes secrets out of an event before it is written, and before it is passed on.
    """

    def __init__(
        self, folder: Path, *, read_only: bool = False, redact: Callable[[Event], Event] = lambda event: event
    ) -> None:
        self._folder = folder
        self._redact = redact
        self._read_only = read_only
        self._connection: sqlite3.Connection | None = None
        self._epochs: dict[str, int] = {}
        self._runs: dict[str, CachedState[OpenRun]] = {}
        """Runs that agents were started for."""

    @contextmanager
    def claim(self, stream: str) -> Iterator[int]:
        lock = FileLock(self.lock_path(stream))
        try:
            lock.acquire()
        except LockHeld:
            pid = holder(self.lock_path(stream))
            watch = "Wait for it" if stream.startswith(RUN) else f"Watch it with `capsule logs {stream} -f`"
            name = f"The run {stream.removeprefix(RUN)}" if stream.startswith(RUN) else stream
            raise LockHeld(
                f"{name} is running{f' (pid {pid})' if pid else ''}.", f"{watch}, or stop it first."
            ) from None
        try:
            with self._transaction() as db:
                db.execute(_CLAIM, (stream,))
                epoch = int(db.execute("SELECT epoch FROM claims WHERE stream = ?", (stream,)).fetchone()[0])
            self._epochs[stream] = epoch
            yield epoch
        finally:
            self._epochs.pop(stream, None)
            lock.release()

    def lock_path(self, stream: str) -> Path:
        return lock_file(self._folder / "locks", f"mission-{stream}")

    def is_held(self, stream: str) -> bool:
        return is_locked(self.lock_path(stream))

    def holder(self, stream: str) -> int | None:
        try:
            return holder(self.lock_path(stream))  # the lock decides, never the file's text
        except LockHeld:
            return 0

    def suspended(self, stream: str) -> tuple[int, str] | None:
        pid = suspended_holder(self.lock_path(stream))
        return (pid, how_to_continue(pid)) if pid else None

    def once(
        self,
        step: Step,
        begun: StepBegun,
        perform: Callable[[], StepEnded],
        beside: Beside | None = None,
        ends_beside: Callable[[StepEnded], Beside | None] = lambda _: None,
    ) -> StepEnded:
        recorded = self._rows(
            "SELECT data FROM events WHERE stream = ? AND key = ? AND kind = 'step_ended'", step.mission, step.key
        )
        if recorded:
            ended = _decoded(self._file, recorded[0][0])
            assert isinstance(ended, StepEnded)
            return ended
        self.note(step.mission, begun, beside)
        ended = self._redact(perform())
        assert isinstance(ended, StepEnded)
        self.note(step.mission, ended, ends_beside(ended))
        return ended

    def note(self, stream: str, event: Event, beside: Beside | None = None) -> None:
        with self._transaction() as db:
            row = db.execute("SELECT epoch FROM claims WHERE stream = ?", (stream,)).fetchone()
            if row is None or row[0] != self._epochs.get(stream):
                raise LockHeld(f"{stream} was taken over by another run.", f"See who runs it: `capsule show {stream}`.")
            self._write(db, stream, event)
            if beside:
                self._write(db, *beside)

    def _write(self, db: sqlite3.Connection, stream: str, event: Event) -> None:
        """Write one event; a `Spawned` is admitted here, with the database locked, so that two do not take the last."""
        event = self._redact(event)
        if isinstance(event, Spawned):
            run = self._runs.setdefault(stream, followed_run(self.events, stream))
            event = admitted(event, run.now())
        db.execute(
            "INSERT INTO events SELECT ?, COALESCE(MAX(seq), 0) + 1, ?, ?, ? FROM events WHERE stream = ?",
            (stream, kind(event), getattr(event, "key", None), encode(event), stream),
        )

    def events(self, stream: str, after: int = 0) -> Sequence[tuple[int, Event]]:
        rows = self._rows("SELECT seq, data FROM events WHERE stream = ? AND seq > ? ORDER BY seq", stream, after)
        return [(seq, _decoded(self._file, data)) for seq, data in rows]

    def epochs(self) -> Mapping[str, int]:
        return dict(self._rows("SELECT stream, epoch FROM claims"))

    def counts(self) -> Mapping[str, int]:
        """Return how many events each stream has."""
        return dict(self._rows("SELECT stream, COUNT(*) FROM events GROUP BY stream"))

    def version(self) -> int:
        rows = self._rows("PRAGMA data_version")
        return int(rows[0][0]) if rows else 0

    def streams(self) -> Sequence[str]:
        return [row[0] for row in self._rows("SELECT DISTINCT stream FROM events ORDER BY stream")]

    def fill(self, stream: str, events: Sequence[Event]) -> None:
        """Put recorded events into an empty stream."""
        self._append(stream, 0, events)

    def _append(self, stream: str, last: int, events: Sequence[Event]) -> None:
        with self._transaction() as db:
            rows = [
                (stream, number, kind(event), getattr(event, "key", None), encode(event))
                for number, event in enumerate(events, last + 1)
            ]
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)

    def become(self, stream: str, events: Sequence[Event]) -> None:
        """Make a stream equal to these events: add what is new, or write all of it anew where it differs."""
        known = [event for _, event in SqliteJournal.events(self, stream)]
        if known == list(events[: len(known)]):
            self._append(stream, len(known), events[len(known) :])
            return
        with self._transaction() as db:
            db.execute("DELETE FROM events WHERE stream = ?", (stream,))
        self._append(stream, 0, events)

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None

    @property
    def _file(self) -> Path:
        return self._folder / "journal.db"

    def _rows(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        if self._read_only and not self._file.exists():
            return []
        try:
            if self._read_only and not _has_tables(self._db()):
                return []
            return self._db().execute(question, values).fetchall()
        except sqlite3.DatabaseError as fault:
            raise _unreadable(self._file, fault) from None

    def _db(self) -> sqlite3.Connection:
        give_up = time.monotonic() + _BUSY_SECONDS
        while self._connection is None:
            try:
                self._connection = self._connect()
                self._make_ready(self._connection)
            except (sqlite3.DatabaseError, OSError) as fault:
                self.close()
                # sqlite itself does not wait for a process that turns WAL on at the same moment
                busy = getattr(fault, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > give_up:
                    raise _unreadable(self._file, fault) from None
                time.sleep(_LOOK_AGAIN)
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if self._file.is_fifo():  # sqlite would wait for a writer
            raise OSError("it is a pipe")
        if self._read_only:
            return sqlite3.connect(
                f"{self._file.as_uri()}?mode=ro", uri=True, timeout=_BUSY_SECONDS, isolation_level=None
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        return sqlite3.connect(self._file, timeout=_BUSY_SECONDS, isolation_level=None)

    def _make_ready(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _NEWEST_SCHEMA:
            self.close()
            raise CapsuleError(
                "The journal was written by a newer Capsule.", "Upgrade Capsule; nothing has been changed."
            )
        if self._read_only:
            return
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        if version < _NEWEST_SCHEMA or not _has_tables(db):
            db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = {_NEWEST_SCHEMA}; COMMIT;")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._db()
        try:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")
        except sqlite3.DatabaseError as fault:
            raise _unreadable(self._file, fault) from None
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _has_tables(db: sqlite3.Connection) -> bool:
    """Tell whether it is a journal: a writer that died early, or a `touch`, leaves a database with nothing in it."""
    found = db.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('events', 'claims')").fetchone()
    return bool(found[0] == 2)


def _decoded(file: Path, data: bytes) -> Event:
    try:
        return decode(data)
    except msgspec.MsgspecError as fault:
        raise _unreadable(file, fault) from None


def _unreadable(file: Path, fault: Exception) -> CapsuleError:
    return CapsuleError(
        f"The journal {file.name} cannot be used: {fault}.",
        f"Check the disk and the permissions of {file.parent}; move the file aside only if it is beyond repair.",
    )
