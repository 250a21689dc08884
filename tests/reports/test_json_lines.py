"""JSON lines and the live file: what machines read."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from capsule.core.event import Warned
from capsule.reports import live
from capsule.reports.json_lines import JsonReport
from capsule.reports.live import FanOut, LiveFile

AT = "2026-01-01T00:00:00Z"


def test_every_event_is_one_numbered_line() -> None:
    stream = io.BytesIO()
    report = JsonReport(stream)
    report.event("x-1", Warned(at=AT, text="one\nline ☃ \u2028"))
    report.event("x-2", Warned(at=AT, text="two"))
    report.activity("x-1", "typing")
    rows = [json.loads(line) for line in stream.getvalue().split(b"\n")[:-1]]
    assert rows == [
        {"v": 1, "mission": "x-1", "seq": 1, "event": "warned", "at": AT, "text": "one\nline ☃ \u2028"},
        {"v": 1, "mission": "x-2", "seq": 2, "event": "warned", "at": AT, "text": "two"},
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "x-1").mkdir()
    return tmp_path


def live_rows(folder: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in (folder / "x-1" / "live.jsonl").read_text().splitlines()]


def test_activity_and_events_are_appended_for_whoever_looks(folder: Path) -> None:
    file = LiveFile(lambda mission: folder / mission, lambda: AT)
    file.activity("x-1", "at work\x1b[2J")
    file.event("x-1", Warned(at=AT, text="odd"))
    assert live_rows(folder) == [{"at": AT, "activity": "at work"}, {"at": AT, "event": "warned", "key": ""}]


def test_a_mission_that_is_archived_gets_no_folder_back(tmp_path: Path) -> None:
    LiveFile(lambda mission: tmp_path / mission, lambda: AT).activity("x-1", "too late")
    assert not list(tmp_path.iterdir())


def test_the_live_file_does_not_grow_without_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LARGEST", 1000)
    file = LiveFile(lambda mission: folder / mission, lambda: AT)
    for _ in range(100):
        file.activity("x-1", "x" * 10_000)
    assert (folder / "x-1" / "live.jsonl").stat().st_size < 2000


def test_several_are_all_told() -> None:
    streams = [io.BytesIO(), io.BytesIO()]
    FanOut(*map(JsonReport, streams)).event("x-1", Warned(at=AT, text="odd"))
    assert streams[0].getvalue() == streams[1].getvalue() != b""
