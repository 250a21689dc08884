"""Whoever watches sees what is in the journal and in the live files, from another process, and changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from capsule.core.board import Board
from capsule.core.event import MissionStarted, RunStarted, StepBegun, Warned
from capsule.core.history import MOST_ATTEMPTS, Presence, read_mission
from capsule.core.item import Item
from capsule.core.workflow import Phase, Role, Workflow
from capsule.journals.sqlite import SqliteJournal
from capsule.journals.watch import MOST_DOINGS, LiveTail, Watch
from capsule.reports import live
from capsule.reports.live import LiveFile

AT, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
FLOW = Workflow(name="flow", phases=(Phase(name="code", role=Role.WORKER, prompt="c"),))
BEGUN = StepBegun(at=AT, key="code#1", phase="code", run=1, attempt=1, agent="claude")


def start(name: str) -> MissionStarted:
    return MissionStarted(at=AT, mission=name, item=Item(id=name, title=name), workflow=FLOW, base="b", into="main")


class Room:
    """A journal that somebody writes to, and somebody else who watches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = SqliteJournal(folder)
        self.reader = Counting(folder, read_only=True)
        self.watch = Watch(self.reader, self.papers)

    def papers(self, mission: str) -> Path:
        return self.folder / "missions" / mission

    def look(self) -> Board:
        return self.watch.look(NOW)

    def words(self) -> dict[str, str]:
        return {view.mission: view.status for view in self.look().missions}


class Counting(SqliteJournal):
    """Knows which streams were asked for."""

    asked: list[str]

    def events(self, stream: str, after: int = 0):  # type: ignore[no-untyped-def]
        self.asked = [*getattr(self, "asked", []), stream]
        return super().events(stream, after)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_there_is_nothing_to_see_where_nothing_ever_ran_and_nothing_is_made(room: Room, tmp_path: Path) -> None:
    assert room.look().missions == () and list(tmp_path.iterdir()) == []
    with room.writer.claim("m"):
        room.writer.note("m", start("m"))
    assert room.words() == {"m": "ready"}


def test_running_is_who_holds_the_lock_and_interrupted_is_who_let_go(room: Room) -> None:
    with room.writer.claim("m"):
        room.writer.note("m", start("m"))
        room.writer.note("m", BEGUN)
        seen = room.look().mission("m")
        assert seen and (seen.status, seen.pid, seen.phase_seconds) == ("running", os.getpid(), 60)
    assert room.words() == {"m": "stopped"}


def test_what_is_written_while_one_looks_is_seen_at_the_next_look(room: Room) -> None:
    with room.writer.claim("m"):
        room.writer.note("m", start("m"))
        assert room.words() == {"m": "running"}
        room.writer.note("m", Warned(at=AT, text="careful"))
        seen = room.look().mission("m")
        assert seen and seen.warnings == ("careful",)
        room.writer.note("m", BEGUN)
    assert room.words() == {"m": "stopped"}


@pytest.mark.promise("screens.watching")
def test_what_rests_is_not_asked_again_until_somebody_takes_it_up(room: Room) -> None:
    for name in ("a", "b"):
        with room.writer.claim(name):
            room.writer.note(name, start(name))
    room.look()
    room.reader.asked = []
    before = room.look()
    assert room.reader.asked == [] and before.mission("a") is room.look().mission("a")
    with room.writer.claim("b"):
        room.writer.note("b", Warned(at=AT, text="anew"))
    seen = room.look().mission("b")
    assert seen and seen.warnings == ("anew",) and set(room.reader.asked) == {"b"}


def test_runs_are_seen_beside_the_missions(room: Room) -> None:
    with room.writer.claim("_queue"):
        room.writer.note("_queue", RunStarted(at=AT, cap=5))
        assert [(run.name, run.running, run.cap) for run in room.look().runs] == [("queue", True, 5)]
    assert [run.running for run in room.look().runs] == [False]


def test_looking_often_comes_to_what_the_journal_says_in_the_end(room: Room) -> None:
    with room.writer.claim("m"):
        for number in range(5):
            room.writer.note("m", start("m") if number == 0 else Warned(at=AT, text=str(number)))
            room.look()
    assert room.watch._histories["m"] == read_mission((event for _, event in room.writer.events("m")), MOST_ATTEMPTS)


# ---- live files


def live_file(room: Room, mission: str = "m") -> LiveFile:
    room.papers(mission).mkdir(parents=True)
    return LiveFile(room.papers, lambda: NOW)


def test_what_an_agent_is_doing_is_told_and_forgotten_when_the_next_phase_begins(room: Room) -> None:
    file = live_file(room)
    with room.writer.claim("m"):
        room.writer.note("m", start("m"))
        room.writer.note("m", BEGUN)
        for number in range(MOST_DOINGS + 2):
            file.activity("m", f"Edit {number}")
        seen = room.look().mission("m")
        assert seen and seen.doing[-1] == f"Edit {MOST_DOINGS + 1}" and len(seen.doing) == MOST_DOINGS
        assert seen.quiet_for == 0
        file.event("m", BEGUN)
        seen = room.look().mission("m")
        assert seen and seen.doing == () and seen.quiet_for == 60


def test_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    file, line = tmp_path / "live.jsonl", json.dumps({"at": AT, "activity": "Read"})
    tail = LiveTail(file)
    file.write_text(line[:10])
    assert tail.look(1).doing == ()
    with file.open("a") as more:
        more.write(line[10:] + "\n")
    assert tail.look(1).doing == ("Read",) and tail.look(1).doing == ("Read",)


STRANGE = (
    *("[]", "17", "{", "\udcff", "null", "[" * 200_000, '{"a": 1}', f'{{"activity": 5, "at": "{AT}"}}'),
    *(
        f'{{"at": {stamp}, "activity": "x"}}'
        for stamp in ('"soon"', "5", "null", '"2026-01-01T00:00:00+25:00"', '"2026-19-39T29:00:00Z"')
    ),
    *('{"at": "2026-01-01T00:00:00", "activity": "no zone"}', f'{{"at": "{AT}", "activity": "\\ud800"}}'),
)


@pytest.mark.promise("screens.watching")
@pytest.mark.parametrize("text", STRANGE, ids=range(len(STRANGE)))
def test_what_an_agent_wrote_there_does_no_harm(tmp_path: Path, text: str) -> None:
    file = tmp_path / "live.jsonl"
    ours = json.dumps({"at": AT, "activity": "Read"})
    file.write_bytes(text.encode(errors="surrogateescape") + f"\n{ours}\n".encode())
    assert LiveTail(file).look(1) == Presence(1, ("Read",), AT.replace("Z", "+00:00"))


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    file = tmp_path / "live.jsonl"
    file.write_text(json.dumps({"at": AT, "activity": "x" * 100_000}) + "\n")
    assert LiveTail(file).look(1).doing == ("x" * 500,)


@pytest.mark.promise("screens.watching")
def test_a_link_a_pipe_or_a_folder_in_its_place_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"at": AT, "activity": "password"}) + "\n")
    (tmp_path / "link").symlink_to(secret)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("link", "pipe", "folder", "nothing"):
        assert LiveTail(tmp_path / name).look(1).doing == ()


def test_a_file_that_grew_too_large_starts_afresh_and_is_read_on(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    file = live_file(room)
    tail = LiveTail(room.papers("m") / "live.jsonl")
    file.activity("m", "Before")
    assert tail.look(1).doing == ("Before",)
    monkeypatch.setattr(live, "LARGEST", 10)
    file.activity("m", "After")
    assert tail.look(1).doing == ("Before", "After")
    assert (room.papers("m") / "live.jsonl").read_text().count("\n") == 1
