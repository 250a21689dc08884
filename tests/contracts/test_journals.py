"""What every journal promises: what was recorded is not done again, what was only begun is, and only one writes.

To enrol one, add it to JOURNALS. What follows the shared suite is about the file on disk: other processes, kill -9,
and files that are broken, or from the future.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from capsule.adapters import Journal, JournalReader
from capsule.core.decide import Decision, Move
from capsule.core.errors import CapsuleError, LockHeld, Paused
from capsule.core.event import Event, Outcome, RunEnded, RunStarted, Spawned, StepBegun, StepEnded, Warned
from capsule.core.merge_queue import merge_stream
from capsule.core.redaction import Redactor
from capsule.core.signal import Signal, Verdict
from capsule.core.state import Step
from capsule.journals.logs import LogFolders
from capsule.journals.sqlite import SqliteJournal
from capsule.system import lock
from tests.memory_journal import MemoryJournal

AT = "2026-01-01T00:00:00Z"
STEP = Step("m", "code", 1)
BEGUN = StepBegun(at=AT, key="code#1", phase="code", run=1, attempt=1)


def ended(summary: str = "done", step: Step = STEP) -> StepEnded:
    signal = Signal(verdict=Verdict.PASS, summary=summary)
    decision = Decision(move=Move.ADVANCE, verdict=Verdict.PASS)
    outcome = Outcome(signal=signal)
    return StepEnded(at=AT, key=step.key, phase=step.phase, run=step.run, outcome=outcome, decision=decision)


def warned(text: str) -> Warned:
    return Warned(at=AT, text=text)


@contextmanager
def _sqlite(folder: Path) -> Iterator[SqliteJournal]:
    journal = SqliteJournal(folder)
    yield journal
    journal.close()


@contextmanager
def _memory(_: Path) -> Iterator[MemoryJournal]:
    yield MemoryJournal()


JOURNALS: dict[str, Callable[[Path], AbstractContextManager[Journal]]] = {"memory": _memory, "sqlite": _sqlite}


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with JOURNALS[request.param](tmp_path / "capsule") as opened:
        yield opened


def told(journal: Journal, stream: str = "m") -> list[Event]:
    return [event for _, event in journal.events(stream)]


# ── readers: another handle on the same journal, which writes nothing


@contextmanager
def _sqlite_read_elsewhere(folder: Path) -> Iterator[tuple[Journal, JournalReader]]:
    reader = SqliteJournal(folder, read_only=True)
    with _sqlite(folder) as journal:
        yield journal, reader
    reader.close()


@contextmanager
def _memory_read_by_its_writer(_: Path) -> Iterator[tuple[Journal, JournalReader]]:
    journal = MemoryJournal()
    yield journal, journal


Pair = tuple[Journal, JournalReader]
READERS: dict[str, Callable[[Path], AbstractContextManager[Pair]]] = {
    "memory": _memory_read_by_its_writer,
    "sqlite": _sqlite_read_elsewhere,
}


@pytest.fixture(params=READERS)
def written_and_read(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Pair]:
    with READERS[request.param](tmp_path / "capsule") as pair:
        yield pair


def test_a_reader_of_nothing_finds_nothing_and_makes_nothing(written_and_read: Pair, tmp_path: Path) -> None:
    _, reader = written_and_read
    assert (list(reader.streams()), list(reader.missions()), list(reader.events("m"))) == ([], [], [])
    assert (dict(reader.epochs()), reader.holder("m")) == ({}, None)
    reader.close()
    assert not list(tmp_path.iterdir())


def test_a_reader_sees_streams_and_what_came_after_a_number(written_and_read: Pair) -> None:
    journal, reader = written_and_read
    with journal.claim("m"), journal.claim("_run-1"):
        journal.note("m", warned("one"))
        journal.note("_run-1", warned("of the run"))
        assert list(reader.events("m")) == [(1, warned("one"))]
        journal.note("m", warned("two"))
    assert (list(reader.streams()), list(reader.missions())) == (["_run-1", "m"], ["m"])
    assert list(reader.events("m", after=1)) == [(2, warned("two"))]


def test_a_reader_knows_who_holds_a_stream_while_it_is_held(written_and_read: Pair) -> None:
    journal, reader = written_and_read
    with journal.claim("m"):
        assert (reader.holder("m"), reader.holder("another")) == (os.getpid(), None)
        assert (reader.is_held("m"), reader.is_held("another")) == (True, False)
    assert reader.holder("m") is None
    assert not reader.is_held("m")


def test_each_claim_raises_the_epoch_that_a_reader_sees(written_and_read: Pair) -> None:
    journal, reader = written_and_read
    for epoch in (1, 2):
        with journal.claim("m"):
            assert reader.epochs()["m"] == epoch


def test_the_version_is_another_one_once_something_was_written_and_stands_otherwise(written_and_read: Pair) -> None:
    journal, reader = written_and_read
    with journal.claim("m"):
        journal.note("m", warned("one"))
        before = reader.version()
        assert reader.version() == before
        journal.note("m", warned("two"))
        assert reader.version() != before


# ── steps


def test_a_step_is_performed_once_and_its_outcome_returned_ever_after(journal: Journal) -> None:
    with journal.claim("m"):
        assert journal.once(STEP, BEGUN, lambda: ended("first")) == ended("first")
        assert journal.once(STEP, BEGUN, _must_not_be_called) == ended("first")
        assert told(journal) == [BEGUN, ended("first")]


def _must_not_be_called() -> StepEnded:
    raise AssertionError("it was performed again")


def test_a_step_that_breaks_off_leaves_only_its_beginning_and_is_performed_again(journal: Journal) -> None:
    def breaks() -> StepEnded:
        raise RuntimeError("power cut")

    with journal.claim("m"):
        with pytest.raises(RuntimeError, match="power cut"):
            journal.once(STEP, BEGUN, breaks)
        assert told(journal) == [BEGUN]
        assert journal.once(STEP, BEGUN, ended) == ended()
        assert told(journal) == [BEGUN, BEGUN, ended()]


def test_the_beginning_is_written_before_the_step_is_performed(journal: Journal) -> None:
    seen: list[list[Event]] = []

    def looks() -> StepEnded:
        seen.append(told(journal))
        return ended()

    with journal.claim("m"):
        journal.once(STEP, BEGUN, looks)
    assert seen == [[BEGUN]]


def test_facts_noted_during_a_step_stand_before_its_outcome(journal: Journal) -> None:
    def notes() -> StepEnded:
        journal.note("m", warned("in between"))
        return ended()

    with journal.claim("m"):
        journal.once(STEP, BEGUN, notes)
    assert told(journal) == [BEGUN, warned("in between"), ended()]


def test_the_same_phase_run_again_is_another_step(journal: Journal) -> None:
    again = Step("m", "code", 2)
    with journal.claim("m"):
        journal.once(STEP, BEGUN, ended)
        assert journal.once(again, BEGUN, lambda: ended("again", again)) == ended("again", again)


def test_the_same_step_of_another_mission_is_another_step(journal: Journal) -> None:
    other = Step("n", "code", 1)
    with journal.claim("m"), journal.claim("n"):
        journal.once(STEP, BEGUN, ended)
        assert journal.once(other, BEGUN, lambda: ended("other")) == ended("other")


# ── streams


def test_events_are_numbered_from_one_and_read_from_anywhere(journal: Journal) -> None:
    texts = ["a", "", "ünï ☃ \x00 'quoted'", "x" * 60_000]
    with journal.claim("m"):
        for text in texts:
            journal.note("m", warned(text))
    assert journal.events("m") == [(number, warned(text)) for number, text in enumerate(texts, 1)]
    assert journal.events("m", after=3) == [(4, warned(texts[3]))]
    assert list(journal.events("m", after=4)) == []


def test_streams_are_apart(journal: Journal) -> None:
    with journal.claim("b"), journal.claim("a"):
        journal.note("b", warned("b"))
        journal.note("a", warned("a"))
    assert (told(journal, "a"), told(journal, "b")) == ([warned("a")], [warned("b")])
    assert list(journal.streams()) == ["a", "b"]


def test_asking_for_a_stream_that_is_not_there_makes_none(journal: Journal) -> None:
    assert list(journal.events("nobody")) == []
    assert list(journal.streams()) == []


def test_every_claim_has_a_higher_number(journal: Journal) -> None:
    epochs = []
    for _ in range(3):
        with journal.claim("m") as epoch:
            epochs.append(epoch)
    assert epochs == sorted(set(epochs))


def test_who_has_no_claim_cannot_write(journal: Journal) -> None:
    with pytest.raises(LockHeld):
        journal.note("m", warned("not mine"))
    with journal.claim("m"):
        journal.note("m", warned("mine"))
    with pytest.raises(LockHeld):
        journal.once(STEP, BEGUN, ended)
    assert told(journal) == [warned("mine")]


def test_what_is_claimed_cannot_be_claimed_again(journal: Journal) -> None:
    with journal.claim("m"):
        with pytest.raises(LockHeld) as refused, journal.claim("m"):
            pass
        assert refused.value.exit_code == 3
        assert refused.value.hint
        journal.note("m", warned("still mine"))
    with journal.claim("m"):
        journal.note("m", warned("free again"))


def _begins_beside(journal: Journal, run: int) -> None:
    step = Step("m", "code", run)
    begun = StepBegun(at=AT, key=step.key, phase="code", run=run, attempt=1)
    spawned = Spawned(at=AT, mission="m", key=step.key)
    journal.once(step, begun, lambda: ended(step=step), ("_run", spawned))


def test_an_agent_over_the_cap_of_its_run_is_refused_and_its_step_has_not_begun(journal: Journal) -> None:
    with journal.claim("m"), journal.claim("_run"):
        with pytest.raises(Paused):
            _begins_beside(journal, 1)
        journal.note("_run", RunStarted(at=AT, cap=1))
        _begins_beside(journal, 1)
        before = (told(journal), told(journal, "_run"))
        with pytest.raises(Paused):
            _begins_beside(journal, 2)
        assert (told(journal), told(journal, "_run")) == before


def test_a_run_that_is_gone_on_with_keeps_its_count_and_one_that_ended_begins_at_nothing(journal: Journal) -> None:
    with journal.claim("m"), journal.claim("_run"):
        journal.note("_run", RunStarted(at=AT, cap=2))
        _begins_beside(journal, 1)
        journal.note("_run", RunStarted(at=AT, cap=2, spawns=1))
        _begins_beside(journal, 2)
        with pytest.raises(Paused):
            _begins_beside(journal, 3)
        journal.note("_run", RunEnded(at=AT, why="cap"))
        journal.note("_run", RunStarted(at=AT, cap=1))
        _begins_beside(journal, 3)


@pytest.mark.promise("jobs.killed-queue")
def test_an_agent_that_is_started_while_the_next_queue_counts_takes_its_place_under_the_cap(journal: Journal) -> None:
    """Its runner survived the queue: it starts an agent between the count and the beginning that states it."""
    with journal.claim("m"), journal.claim("_run"):
        journal.note("_run", RunStarted(at=AT, cap=3))
        _begins_beside(journal, 1)
        counted = sum(isinstance(event, Spawned) for event in told(journal, "_run"))
        _begins_beside(journal, 2)
        journal.note("_run", RunStarted(at=AT, cap=3, spawns=counted))
        _begins_beside(journal, 3)
        with pytest.raises(Paused, match="3 of 3"):
            _begins_beside(journal, 4)


# ── the file: other processes

WRITER = """\
import sys
from pathlib import Path
from capsule.core.event import Warned
from capsule.journals.sqlite import SqliteJournal

journal = SqliteJournal(Path(sys.argv[1]))
with journal.claim("m"):
    for number in range(int(sys.argv[2])):
        journal.note("m", Warned(at="2026-01-01T00:00:00Z", text=str(number)))
        print(number, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "capsule"


@contextmanager
def writer(folder: Path, count: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the stream and writes so many facts."""
    argv = [sys.executable, "-c", WRITER, str(folder), str(count)]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"0\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_stream_held_by_another_process_is_refused_with_its_pid(folder: Path) -> None:
    with writer(folder, 1) as process, _sqlite(folder) as journal:
        assert journal.holder("m") == process.pid
        with pytest.raises(LockHeld, match=f"pid {process.pid}"), journal.claim("m"):
            pass
        with journal.claim("another"):
            journal.note("another", warned("side by side"))
        assert told(journal) == [warned("0")]


def test_kill_9_frees_the_stream_and_loses_nothing_that_was_said_to_be_written(folder: Path) -> None:
    with writer(folder, 10_000) as process:
        assert process.stdout
        for _ in range(50):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        said = 1 + 50 + len(process.stdout.read().split(b"\n")) - 1
    with _sqlite(folder) as journal:
        assert journal.holder("m") is None
        texts = [event.text for event in told(journal) if isinstance(event, Warned)]
        assert len(texts) - said in (0, 1), "what was printed was written before"
        assert texts == [str(number) for number in range(len(texts))]
        with journal.claim("m") as epoch:
            assert epoch == 2
            journal.note("m", warned("goes on"))
    with sqlite3.connect(folder / "journal.db") as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()


def test_the_merge_queue_of_a_branch_with_a_long_name_can_be_held(folder: Path) -> None:
    """Its name in the journal is three times as long as in git, and longer than that of a file may be."""
    one, two = (merge_stream(f"{'ветка' * 24}{number}") for number in "12")
    with _sqlite(folder) as journal, journal.claim(one):
        assert journal.holder(one) == os.getpid() and not journal.is_held(two)
        journal.note(one, warned("held"))
        with journal.claim(two):
            assert journal.is_held(two)
    with _sqlite(folder) as journal:
        assert told(journal, one) == [warned("held")]


def test_who_holds_a_mission_writes_beside_it_to_a_stream_that_another_holds(folder: Path) -> None:
    with _sqlite(folder) as queue, _sqlite(folder) as runner, queue.claim("_run"), runner.claim("m"):
        runner.note("m", warned("of the mission"), ("_run", warned("by its runner")))
        queue.note("_run", warned("by the queue"))
        with pytest.raises(LockHeld):
            runner.note("_run", warned("by nobody"))
        with _sqlite(folder) as stranger, pytest.raises(LockHeld):
            stranger.note("m", warned("not mine"), ("_run", warned("by nobody")))
        assert told(queue, "_run") == [warned("by its runner"), warned("by the queue")]


def test_a_writer_that_lost_its_claim_while_asleep_is_refused_by_the_database(folder: Path) -> None:
    """Locks are files, and somebody may delete one: then two hold it, and only the later one may write."""
    with _sqlite(folder) as sleeper, _sqlite(folder) as successor, sleeper.claim("m"):
        sleeper.note("m", warned("mine"))
        sleeper.lock_path("m").unlink()
        with successor.claim("m"):
            successor.note("m", warned("mine now"))
            with pytest.raises(LockHeld, match="taken over"):
                sleeper.note("m", warned("too late"))
        assert told(successor) == [warned("mine"), warned("mine now")]


def test_a_reader_sees_what_a_writer_adds(folder: Path) -> None:
    with _sqlite(folder) as writing, writing.claim("m"):
        writing.note("m", warned("one"))
        reading = SqliteJournal(folder, read_only=True)
        assert told(reading) == [warned("one")]
        writing.note("m", warned("two"))
        assert reading.events("m", after=1) == [(2, warned("two"))]
        reading.close()


# ── the file: whatever else it may be


def test_reading_creates_nothing(folder: Path) -> None:
    reading = SqliteJournal(folder, read_only=True)
    assert (list(reading.events("m")), list(reading.streams()), reading.holder("m")) == ([], [], None)
    reading.close()
    assert not folder.exists()


def _made_by_touch(file: Path) -> None:
    file.touch()


def _without_tables(file: Path) -> None:
    """As a writer leaves it that dies between the first page and the schema."""
    db = sqlite3.connect(file)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA user_version = 1")
    db.close()


@pytest.mark.parametrize("make", [_made_by_touch, _without_tables])
def test_a_file_without_tables_holds_nothing_until_a_writer_completes_it(
    folder: Path, make: Callable[[Path], None]
) -> None:
    folder.mkdir()
    make(folder / "journal.db")
    reading = SqliteJournal(folder, read_only=True)
    assert (list(reading.events("m")), list(reading.streams())) == ([], [])
    with _sqlite(folder) as journal, journal.claim("m"):
        journal.note("m", warned("one"))
    assert told(reading) == [warned("one")]
    reading.close()


def test_a_read_only_journal_cannot_be_written_to(folder: Path) -> None:
    with _sqlite(folder) as journal, journal.claim("m"):
        journal.note("m", warned("one"))
    reading = SqliteJournal(folder, read_only=True)
    with pytest.raises(CapsuleError), reading.claim("m"):
        pass
    reading.close()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_that_is_no_database_is_explained_and_left_as_it_is(folder: Path, read_only: bool) -> None:
    folder.mkdir()
    (folder / "journal.db").write_bytes(b"not a database " * 100)
    journal = SqliteJournal(folder, read_only=read_only)
    with pytest.raises(CapsuleError, match=r"journal\.db cannot be used") as refused:
        journal.events("m")
    assert refused.value.hint
    journal.close()
    assert (folder / "journal.db").read_bytes() == b"not a database " * 100


@pytest.mark.parametrize("read_only", [True, False])
def test_a_journal_of_a_newer_capsule_is_left_as_it_is(folder: Path, read_only: bool) -> None:
    with _sqlite(folder) as journal, journal.claim("m"):
        journal.note("m", warned("one"))
    with sqlite3.connect(folder / "journal.db") as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    newer = SqliteJournal(folder, read_only=read_only)
    with pytest.raises(CapsuleError, match="newer Capsule") as refused:
        newer.events("m")
    assert "Upgrade" in refused.value.hint
    newer.close()


def test_an_event_that_nobody_can_read_is_explained(folder: Path) -> None:
    with _sqlite(folder) as journal, journal.claim("m"):
        journal.note("m", warned("one"))
        with sqlite3.connect(folder / "journal.db") as db:
            db.execute("UPDATE events SET data = ?", (b'{"event": "from_the_future"}',))
        db.close()
        with pytest.raises(CapsuleError, match="cannot be used"):
            journal.events("m")


def test_a_folder_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "capsule").write_text("a file where the folder should be")
    with _sqlite(tmp_path / "capsule") as journal, pytest.raises(CapsuleError) as refused:
        journal.events("m")
    assert refused.value.hint


def test_no_secret_reaches_the_file_or_whoever_is_handed_the_outcome(tmp_path: Path) -> None:
    """What is in memory and what is replayed must not differ either."""
    secret = "hunter22-hunter22"
    journal = SqliteJournal(tmp_path, redact=Redactor([secret]).event)
    with journal.claim("m"), journal.claim("_run"):
        journal.note("m", warned(f"it is {secret}"), beside=("_run", warned(secret)))
        outcome = journal.once(STEP, BEGUN, lambda: ended(f"said {secret}"))
    assert outcome == ended("said [redacted]")
    assert [event for _, event in journal.events("m")][-1] == outcome
    journal.close()
    assert [file.name for file in tmp_path.rglob("*") if file.is_file() and secret.encode() in file.read_bytes()] == []


def test_papers_keep_no_secret_and_take_none_over(tmp_path: Path) -> None:
    secret = "hunter22-hunter22"
    papers = LogFolders(tmp_path, Redactor([secret]).data)
    kept = papers.put("m", "feedback.md", f"it is {secret}")
    papers.result_path("m", "build").write_text(f'{{"summary": "{secret}"}}')
    taken = papers.take_result("m", "build")
    place = papers.store("m", {"worklog.md": f"noted: {secret}\n"})
    assert kept.read_text() == "it is [redacted]"
    assert taken == b'{"summary": "[redacted]"}'
    assert (place / "worklog.md").read_text() == "noted: [redacted]\n"


@pytest.mark.parametrize("read_only", [True, False])
def test_a_pipe_in_its_place_keeps_nobody_waiting(tmp_path: Path, read_only: bool) -> None:
    os.mkfifo(tmp_path / "journal.db")
    with pytest.raises(CapsuleError, match=r"journal\.db cannot be used: it is a pipe"):
        SqliteJournal(tmp_path, read_only=read_only).streams()


def test_a_holder_that_cannot_be_named_is_zero_and_not_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a container, or by a file system, that hides who has a lock."""
    monkeypatch.setattr(lock, "_pid_from_kernel", lambda _status: None)
    monkeypatch.setattr(lock, "_PROBE_ALLOWANCE", 0.01)
    with _sqlite(folder) as journal, journal.claim("m"):
        os.truncate(journal.lock_path("m"), 0)
        assert (journal.holder("m"), journal.holder("another")) == (0, None)
        assert journal.is_held("m")
