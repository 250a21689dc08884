"""`capsule logs`: what was printed, wherever it lies by now, on terminals and in pipes."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from capsule.catalog import Catalog
from capsule.commands.live_view import Subject, _show
from capsule.commands.logs import CHUNK, Output, Printer, Shelf, last_lines, wording_of
from capsule.core.decide import Decision, Move
from capsule.core.event import Event, MissionStarted, Outcome, StepBegun, StepEnded
from capsule.core.item import Item
from capsule.core.signal import Signal, Verdict
from capsule.engine.brief import log_name
from capsule.journals.sqlite import SqliteJournal
from capsule.project import open_project
from capsule.tui import run_view
from capsule.tui.run_view import LiveView
from tests.costs import LONG
from tests.screens.golden import lines_of
from tests.screens.stage import until

from .conftest import ITEM, Project

AT = "2026-01-05T09:00:00Z"
MISSION = "demo-1"
COMMAND = [sys.executable, "-m", "capsule", "logs", MISSION]
MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


class Mission:
    """A journal and a folder of outputs, filled in the engine's stead."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = SqliteJournal(root / ".git" / "capsule")
        self.outputs = root / ".capsule/missions" / MISSION / "outputs"
        self.outputs.mkdir(parents=True)
        self._clock = 1_000_000_000
        with self.journal.claim(MISSION):
            workflow = Catalog().workflow("tdd")
            item = Item(id=MISSION, title="A task")
            self.note(MissionStarted(at=AT, mission=MISSION, item=item, workflow=workflow, base="a" * 40, into="main"))

    def note(self, event: Event) -> None:
        self.journal.note(MISSION, event)

    def begin(self, phase: str, run: int, text: bytes = b"", errors: bytes = b"") -> Path:
        self.note(StepBegun(at=AT, key=f"{phase}#{run}", phase=phase, run=run, attempt=run))
        self._clock += 1
        file = self.outputs / log_name(phase, AT, self._clock % 1000, pid=77)
        file.write_bytes(text)
        file.with_name(f"{file.name}.stderr").write_bytes(errors)
        os.utime(file, (self._clock, self._clock))
        return file

    def end(self, phase: str, run: int, file: Path, verdict: Verdict = Verdict.PASS) -> None:
        log = self.root / ".capsule/worktrees" / MISSION / ".capsule/output" / file.name
        outcome = Outcome(signal=Signal(verdict=Verdict.PASS), seconds=1.25, log=str(log))
        decision = Decision(move=Move.ADVANCE, verdict=verdict)
        key = f"{phase}#{run}"
        self.note(StepEnded(at=AT, key=key, phase=phase, run=run, outcome=outcome, decision=decision))

    def archive(self) -> None:
        target = self.root / ".capsule/logs" / MISSION / "phase-outputs"
        target.parent.mkdir(parents=True)
        self.outputs.rename(target)
        self.outputs.parent.rmdir()


@pytest.fixture
def mission(a_repo: Any) -> Iterator[Mission]:
    """Two phases have ended, a third is under way."""
    mission = Mission(a_repo.path)
    with mission.journal.claim(MISSION):
        tests = mission.begin("test-writer", 1, b"writing tests\n", b"a warning\n")
        mission.end("test-writer", 1, tests)
        review = mission.begin("test-review", 1, b"reading\nno newline at the end")
        mission.end("test-review", 1, review, Verdict.REFUTED)
        mission.begin("execute", 1, b"half way\n")
    yield mission
    mission.journal.close()


def logs(mission: Mission, *words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*COMMAND, *words], cwd=mission.root, capture_output=True, check=False, timeout=2 * LONG)


@contextmanager
def following(mission: Mission, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([*COMMAND, "-f", *words], cwd=mission.root, stdout=subprocess.PIPE) as process:
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[bytes], wanted: bytes, seconds: float = LONG) -> bytes:
    """What comes up to and including the wanted text; fails when it does not come in time."""
    assert process.stdout
    seen, deadline = b"", time.monotonic() + seconds
    while wanted not in seen and time.monotonic() < deadline:
        select.select([process.stdout], [], [], 0.1)
        seen += process.stdout.read() or b""
    assert wanted in seen
    return seen


WHOLE = (
    b"==> test-writer#1 PASS 1.2 s\nwriting tests\n\n"
    b"==> test-review#1 REFUTED 1.2 s\nreading\nno newline at the end\n"
    b"==> execute#1, no verdict yet\nhalf way\n"
)


@pytest.mark.promise("commands.logs")
def test_outputs_come_in_order_each_under_its_run_and_verdict(mission: Mission) -> None:
    done = logs(mission)
    assert (done.returncode, done.stdout, done.stderr) == (0, WHOLE, b"")


@pytest.mark.promise("commands.logs")
def test_an_archived_mission_reads_the_same(mission: Mission) -> None:
    mission.archive()
    assert logs(mission).stdout == WHOLE


def test_one_phase_alone(mission: Mission) -> None:
    assert logs(mission, "--phase", "test-writer").stdout == b"==> test-writer#1 PASS 1.2 s\nwriting tests\n"


def test_stderr_instead(mission: Mission) -> None:
    done = logs(mission, "--phase=test-writer", "--stderr")
    assert done.stdout == b"==> test-writer#1 PASS 1.2 s\na warning\n"


def test_a_phase_that_is_none_is_named_with_those_there_are(mission: Mission) -> None:
    done = logs(mission, "--phase", "exceute")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"no phase 'exceute'" in done.stderr
    assert b"execute-review" in done.stderr


def test_an_unknown_mission_is_exit_1(a_repo: Any) -> None:
    done = subprocess.run(COMMAND, cwd=a_repo.path, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"There is no mission demo-1." in done.stderr


def test_a_mission_that_printed_nothing_says_so_beside_stdout(mission: Mission) -> None:
    done = logs(mission, "--phase", "merge")
    assert (done.returncode, done.stdout) == (0, b"")
    assert b"has no output yet" in done.stderr


def test_a_run_that_was_interrupted_is_called_so(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        again = mission.begin("execute", 1, b"done\n")
        mission.end("execute", 1, again)
    assert logs(mission, "--phase=execute").stdout == (
        b"==> execute, interrupted\nhalf way\n\n==> execute#1 PASS 1.2 s\ndone\n"
    )


def test_links_and_pipes_that_an_agent_left_are_not_read(mission: Mission) -> None:
    (mission.root / "secret").write_text("secret\n")
    (mission.outputs / log_name("execute", AT, 7, pid=1)).symlink_to(mission.root / "secret")
    (mission.outputs / f"{log_name('execute', AT, 8, pid=1)}.events").symlink_to(mission.root / "secret")
    os.mkfifo(mission.outputs / log_name("execute", AT, 9, pid=1))
    assert logs(mission).stdout == WHOLE


NASTY = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\xff\x9b5n\r\n\tindented\n"


def test_a_pipe_gets_every_byte_as_it_was_written(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        mission.begin("merge", 1, NASTY)
    assert logs(mission, "--phase=merge").stdout.endswith(NASTY)


@pytest.mark.promise("commands.terminal")
def test_a_terminal_gets_nothing_that_could_steer_it(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        mission.begin("merge", 1, NASTY)
    shown = on_a_terminal(mission, "--phase=merge")
    assert shown == b"==> merge#1, no verdict yet\nred \xef\xbf\xbd\xef\xbf\xbd5n\n\tindented\n"


def on_a_terminal(mission: Mission, *words: str) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *words], cwd=mission.root, stdout=theirs) as process:
        os.close(theirs)
        seen = b""
        while chunk := _read_terminal(ours):
            seen += chunk
        os.close(ours)
        assert process.wait(LONG) == 0
    return seen.replace(b"\r\n", b"\n")


SAID = (
    b'{"type":"system","subtype":"init"}\n'
    b'{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{"command":"pytest -q"}}]}}\n'
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"All\\u001b[2J green"}]}}\n'
    b"no JSON at all\n"
)


def test_a_person_is_told_in_words_what_events_say(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        log = mission.begin("merge", 1)
        log.rename(f"{log}.events")
        Path(f"{log}.events").write_bytes(SAID + b'{"type":"assis')
    shown = on_a_terminal(mission, "--phase=merge")
    assert shown == b"==> merge#1, no verdict yet\nBash: pytest -q\nAll green\nno JSON at all\n"
    assert logs(mission, "--phase=merge").stdout.endswith(SAID + b'{"type":"assis')


@pytest.mark.promise("screens.output-in-words")
@pytest.mark.parametrize("before", [b"", b'{"type":"system","filler":"' + b"x" * 20_000 + b'"}\n'])
def test_the_output_key_of_the_live_view_shows_words(mission: Mission, before: bytes) -> None:
    with mission.journal.claim(MISSION):
        log = mission.begin("merge", 1)
        log.rename(f"{log}.events")
        Path(f"{log}.events").write_bytes(before + SAID + b'{"type":"assis')
    project = open_project(str(mission.root))
    shelf = Shelf(project, mission.journal, MISSION)
    assert last_lines(shelf, partial(wording_of, project)) == ["Bash: pytest -q", "All green", "no JSON at all"]


class Pressed(LiveView):
    """The live view, in which a test presses `l` and waits for the last words of the agent."""

    seen: ClassVar[list[str]] = []

    def open(self) -> bool:
        async def press() -> list[str]:
            async with self.run_test(size=(100, 40)) as pilot:
                await until(pilot, lambda: "merge" in "\n".join(lines_of(self)))
                await pilot.press("l")
                await until(pilot, lambda: "no JSON at all" in "\n".join(lines_of(self)))
                return lines_of(self)

        self.seen.extend(asyncio.run(press()))
        return True


@pytest.mark.promise("screens.output-in-words")
def test_l_pressed_in_the_live_view_shows_words_and_no_json(mission: Mission, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_view, "LiveView", Pressed)
    with mission.journal.claim(MISSION):
        log = mission.begin("merge", 1)
        log.rename(f"{log}.events")
        Path(f"{log}.events").write_bytes(SAID)
        subject = Subject(os.getpid(), MISSION, (MISSION,))
        _show(open_project(str(mission.root)), subject, lambda: False, str, ours=True)
    shown = "\n".join(Pressed.seen)
    assert "Bash: pytest -q" in shown and "All green" in shown and '{"type"' not in shown


def test_an_event_is_told_once_and_when_it_is_whole(tmp_path: Path) -> None:
    stream, events = io.BytesIO(), tmp_path / "a.log.events"
    printer = Printer(stream, safely=True, wording=lambda _: lambda event: str(event["say"])[:5])
    for piece in (b'{"say":"on', b'e"}\n{"say":"two"}\n{"say":"', b"x" * 2 * CHUNK, b'"}\n{"say":"last"}\n'):
        with events.open("ab") as file:
            file.write(piece)
        printer.catch_up(Output(events, "a", "a#1"))
    assert stream.getvalue() == b"==> a#1\none\ntwo\nlast\n"


def _read_terminal(fd: int) -> bytes:
    try:
        return os.read(fd, 4096)
    except OSError:  # the other side has closed
        return b""


def test_following_a_mission_that_nobody_runs_ends_with_what_there_is(mission: Mission) -> None:
    assert logs(mission, "-f").stdout == WHOLE


@pytest.mark.promise("commands.logs")
def test_following_shows_what_comes_until_the_mission_stops(mission: Mission) -> None:
    with mission.journal.claim(MISSION), following(mission) as process:
        read_until(process, b"half way\n")
        log = next(mission.outputs.glob("execute-*.log"))
        with log.open("ab") as file:
            file.write(b"more\n")
        assert read_until(process, b"more\n") == b"more\n"
        mission.end("execute", 1, log)
        mission.begin("execute-review", 1, b"looks good\n")
        shown = read_until(process, b"looks good\n")
        assert shown == b"\n==> execute-review#1, no verdict yet\nlooks good\n"
        assert process.poll() is None


def test_following_goes_on_in_the_archive_and_ends_with_the_mission(mission: Mission) -> None:
    running = ExitStack()
    running.enter_context(mission.journal.claim(MISSION))
    with running, following(mission) as process:
        read_until(process, b"half way\n")
        log = next(mission.outputs.glob("execute-*.log"))
        log.write_bytes(b"half way\nlast words\n")
        mission.archive()
        running.close()
        assert read_until(process, b"last words\n") == b"last words\n"
        assert process.wait(LONG) == 0


EVENTS = b'{"type":"system"}\n{"type":"assistant"}\n'


def test_an_agent_that_prints_events_is_followed_by_them_to_its_end(mission: Mission) -> None:
    with mission.journal.claim(MISSION), following(mission, "--phase=merge") as process:
        log = mission.begin("merge", 1)
        log.unlink()
        events = log.with_name(f"{log.name}.events")
        events.write_bytes(EVENTS)
        assert read_until(process, EVENTS) == b"==> merge#1, no verdict yet\n" + EVENTS
        log.write_bytes(b"its last words, which are longer than the events that were seen of it\n")
        with events.open("ab") as file:
            file.write(b'{"type":"result"}\n')
        assert read_until(process, b"result") == b'{"type":"result"}\n'
    assert logs(mission, "--phase=merge").stdout.endswith(b"yet\n" + log.read_bytes())


def test_events_that_turn_out_to_be_the_log_are_not_told_twice(mission: Mission) -> None:
    with mission.journal.claim(MISSION), following(mission, "--phase=merge") as process:
        log = mission.begin("merge", 1)
        log.rename(f"{log}.events")
        Path(f"{log}.events").write_bytes(b"no JSON\n")
        read_until(process, b"no JSON\n")
        with Path(f"{log}.events").open("ab") as file:
            file.write(b"at all\n")
        Path(f"{log}.events").rename(log)
        assert read_until(process, b"at all\n") == b"at all\n"


@pytest.mark.slow
def test_an_agent_at_work_that_prints_events_is_seen(a_project: Project, tmp_path: Path) -> None:
    claude, go_on = tmp_path / "bin" / "claude", tmp_path / "go-on"
    claude.parent.mkdir()
    os.mkfifo(go_on)
    claude.write_text(f'#!/bin/sh\necho \'{{"type":"system"}}\'\nread line < {go_on}\n')
    claude.chmod(0o755)
    a_project.always = {"CAPSULE_AGENT": "claude", "PATH": f"{claude.parent}:{os.environ['PATH']}"}
    with a_project.running("--max-retries=0"):
        shown = _once_it_shows(a_project, "system")
    assert shown.endswith('#1, no verdict yet\n{"type":"system"}\n')


def _once_it_shows(project: Project, words: str) -> str:
    deadline = time.monotonic() + LONG
    while words not in (shown := project.say("logs", ITEM).out) and time.monotonic() < deadline:
        time.sleep(0.1)
    return shown


def test_ctrl_c_ends_the_following_quietly(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        process = subprocess.Popen(
            [*COMMAND, "-f"], cwd=mission.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, process_group=0
        )
        assert process.stdout
        while (line := process.stdout.readline()) != b"half way\n":
            assert line
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LONG)
    assert (process.returncode, out, errors) == (130, b"", b"")


def test_a_reader_that_leaves_is_no_fault(mission: Mission) -> None:
    with mission.journal.claim(MISSION):
        mission.begin("merge", 1, b"line\n" * 1_000_000)
    script = f"{' '.join(COMMAND)} | head -n 1"
    done = subprocess.run(["sh", "-c", script], cwd=mission.root, capture_output=True, check=False, timeout=2 * LONG)
    assert (done.stdout, done.stderr) == (b"==> test-writer#1 PASS 1.2 s\n", b"")


@pytest.mark.slow
def test_memory_does_not_grow_with_the_output(mission: Mission) -> None:
    peaks = []
    for megabytes in (1, 1024):
        log = next(mission.outputs.glob("execute-*.log"))
        os.truncate(log, megabytes * 1024 * 1024)
        measured = [sys.executable, "-c", MEASURED, *COMMAND]
        done = subprocess.run(measured, cwd=mission.root, capture_output=True, check=True, timeout=2 * LONG)
        code, peak = map(int, done.stdout.split())
        assert code == 0
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 8_000
