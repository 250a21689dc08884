"""`capsule run` on a terminal: somebody looks, and somebody else works."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capsule.app.runners import KEPT, Runner, silently, start_runner
from capsule.commands.live_view import Subject, how_it_ended, last_words, running_already
from capsule.core.errors import CapsuleError, Interrupted
from capsule.core.event import RunEnded, RunStarted, StepBegun, Stopped
from capsule.journals.sqlite import SqliteJournal
from capsule.project import open_project
from tests.costs import eventually, in_some_round

from ..conftest import Repo
from .conftest import ITEM, Project, assert_clear, honest, said
from .terminal import SCREEN_CLOSES, SCREEN_OPENS, Terminal, bare_screen, seconds_used


@pytest.fixture
def a_held_project(a_project: Project) -> Iterator[Project]:
    """Its execute agent works until somebody lets it go on."""
    wait = f"until test -e '{go(a_project)}'; do sleep 0.02; done"
    write = honest()["execute"][0]["write"]
    a_project.play(honest(execute=[said("PASS", say=["thinking hard"], run=[wait], write=write)] * 3))
    yield a_project
    go(a_project).touch()
    assert eventually(lambda: holder(a_project) is None)


def go(project: Project) -> Path:
    return project.path.parent / "go"


def holder(project: Project) -> int | None:
    return SqliteJournal(project.path / ".git" / "capsule", read_only=True).holder(ITEM)


def at_work(project: Project) -> bool:
    """Its execute agent has begun, and whoever runs it holds it."""
    begun = [event for event in project.events() if isinstance(event, StepBegun)]
    return bool(begun) and begun[-1].phase == "execute" and holder(project) is not None


def merged(project: Project) -> bool:
    return holder(project) is None and project.status_of() == "closed" and project.answer() == "42"


@contextmanager
def on_a_terminal(project: Project, *words: str, **env: str) -> Iterator[Terminal]:
    with Terminal(words or ("run", ITEM), project.path, project.environment(**env)) as terminal:
        yield terminal


@pytest.mark.promise("screens.live")
def test_a_mission_is_shown_while_it_runs_and_summed_up_when_it_has_ended(a_project: Project) -> None:
    with on_a_terminal(a_project) as terminal:
        assert terminal.ends() == 0
    assert SCREEN_OPENS in terminal.raw
    assert terminal.raw.rindex(SCREEN_CLOSES) > terminal.raw.rindex(SCREEN_OPENS)
    assert f"{ITEM} is merged into main" in terminal.afterwards
    assert "Traceback" not in terminal.text
    assert merged(a_project)
    assert a_project.dirt() == ""


@pytest.mark.slow
def test_what_cannot_be_run_is_said_and_no_screen_is_opened_for_it(a_project: Project) -> None:
    with on_a_terminal(a_project, "run", "demo-9") as terminal:
        code = terminal.ends()
    answer = a_project.capsule("run", "demo-9")
    assert code == answer.code
    assert terminal.afterwards == answer.err
    assert a_project.git("status", "--porcelain") == ""


@pytest.mark.slow
@pytest.mark.promise("screens.leaving")
def test_whoever_leaves_lets_it_go_on_and_can_look_again(a_held_project: Project) -> None:
    project = a_held_project
    with on_a_terminal(project) as terminal:
        assert eventually(lambda: at_work(project))
        assert terminal.shows("under way")
        terminal.type("d")
        assert terminal.ends() == 0
    pid = holder(project)
    assert f"{ITEM} keeps running (pid {pid})." in terminal.afterwards
    with on_a_terminal(project) as terminal:
        assert terminal.shows(f"stop pid {pid}")
        assert terminal.shows("under way")
        terminal.type("l")
        assert terminal.shows("thinking hard")
        go(project).touch()
        assert terminal.ends() == 0
    assert f"{ITEM} is merged into main" in terminal.afterwards
    assert merged(project)


@pytest.mark.slow
@pytest.mark.promise("screens.stop")
def test_asked_to_stop_it_stops_and_goes_on_when_it_is_run_again(a_held_project: Project) -> None:
    project = a_held_project
    with on_a_terminal(project) as terminal:
        assert eventually(lambda: at_work(project))
        assert terminal.shows("under way")
        terminal.type("q")
        assert terminal.ends() == 130
    assert "Go on with" in terminal.afterwards
    assert holder(project) is None
    go(project).touch()
    assert project.run().code == 0
    assert merged(project)


STARTING = """
import os, signal, sys, time
from pathlib import Path

def runner(lost=[]):
    def hear(*_):
        if lost:
            raise KeyboardInterrupt
        lost.append(1)
    signal.signal(signal.SIGINT, hear)
    Path(os.environ["READY"]).touch()
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.02)

def viewer(frame, event, _):
    if event == "return" and frame.f_code.co_name == "start_runner":
        sys.setprofile(None)
        while not Path(os.environ["READY"]).exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

runner() if "none" in sys.orig_argv else sys.setprofile(viewer) if "capsule" in sys.orig_argv else None
"""
"""Ctrl-C comes when the runner has just been started; it loses the first, and the second meets Python half awake."""


@pytest.mark.promise("screens.ctrl-c")
def test_ctrl_c_while_it_is_being_started_leaves_nothing_running(a_project: Project, tmp_path: Path) -> None:
    (tmp_path / "starting").mkdir()
    (tmp_path / "starting" / "sitecustomize.py").write_text(STARTING)
    ready, path = tmp_path / "ready", str(tmp_path / "starting")
    with on_a_terminal(a_project, PYTHONPATH=path, READY=str(ready), GO=str(go(a_project))) as terminal:
        code = terminal.ends()
    left = [file for file in (a_project.path / ".capsule" / "runners").glob("*.out") if is_open_somewhere(file)]
    go(a_project).touch()
    assert code == 130
    assert left == []
    assert terminal.afterwards.splitlines() == [
        f"capsule: {ITEM} was killed; recorded progress is kept.",
        f"  Resume with `capsule run {ITEM}`.",
    ]


def is_open_somewhere(file: Path) -> bool:
    """A runner and whoever started it share a lock on what it prints."""
    with file.open() as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


NOTE = "import sys; print('note: by the way', file=sys.stderr, flush=True); "


@pytest.mark.parametrize(
    ("ending", "code", "cause", "hint"),
    [
        (NOTE + "sys.exit(130)", 130, "demo-1 was killed", "Resume with `capsule run demo-1`"),
        (NOTE + "import os; os.kill(os.getpid(), 2)", 130, "demo-1 was killed", "Resume with"),
        (NOTE + "import os; os.kill(os.getpid(), 9)", 137, "killed by SIGKILL", "Resume with"),
        ("raise SystemExit(120)", 120, "no output: the disk may be full", "capsule run demo-1 --no-tui"),
    ],
)
def test_an_end_without_a_cause_is_given_one(tmp_path: Path, ending: str, code: int, cause: str, hint: str) -> None:
    runner = a_runner(tmp_path, ending)
    with pytest.raises(CapsuleError, match=cause) as told:
        last_words(runner, runner.wait(), Subject(runner.pid, "demo-1", ("demo-1",)), tmp_path)
    assert told.value.exit_code == code
    assert hint in told.value.hint


def test_a_cause_that_is_given_is_told_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runner = a_runner(tmp_path, "import sys; print('capsule: it rains\\n  Wait.', file=sys.stderr); sys.exit(130)")
    assert last_words(runner, runner.wait(), Subject(runner.pid, "demo-1", ("demo-1",)), tmp_path) == 130
    assert capsys.readouterr() == ("", "capsule: it rains\n  Wait.\n")


def a_runner(folder: Path, script: str) -> Runner:
    files = [os.open(folder / kind, os.O_RDWR | os.O_CREAT) for kind in ("out", "err")]
    return Runner(subprocess.Popen([sys.executable, "-S", "-c", script], stdout=files[0], stderr=files[1]), *files)


@pytest.mark.slow
def test_a_viewer_that_fails_says_that_the_run_goes_on(a_held_project: Project, tmp_path: Path) -> None:
    (tmp_path / "broken" / "textual").mkdir(parents=True)
    (tmp_path / "broken" / "textual" / "__init__.py").write_text("raise RuntimeError('no more ink')\n")
    broken = {"PYTHONPATH": str(tmp_path / "broken"), "TMPDIR": str(tmp_path)}
    with on_a_terminal(a_held_project, **broken) as terminal:
        assert terminal.ends() == 2
    assert eventually(lambda: at_work(a_held_project))
    assert terminal.text.startswith(f"{ITEM} keeps running (pid {holder(a_held_project)}).")
    assert "RuntimeError: no more ink" in terminal.text


@pytest.mark.slow
@pytest.mark.promise("screens.leaving")
def test_a_viewer_that_is_killed_and_a_terminal_that_goes_leave_the_mission_alone(a_held_project: Project) -> None:
    project = a_held_project
    with on_a_terminal(project) as terminal:
        assert eventually(lambda: at_work(project))
        terminal.process.kill()
        terminal.ends()
    pid = holder(project)
    assert pid is not None
    with on_a_terminal(project) as terminal:
        assert terminal.shows("under way")
        terminal.hang_up()
        assert terminal.ends() == 0
    assert holder(project) == pid
    go(project).touch()
    assert eventually(lambda: merged(project))


@pytest.mark.slow
def test_where_the_screen_cannot_be_loaded_the_run_does_without(a_merged_mission: Project, tmp_path: Path) -> None:
    (tmp_path / "broken" / "textual").mkdir(parents=True)
    (tmp_path / "broken" / "textual" / "__init__.py").write_text("raise ImportError('half of it is missing')\n")
    with on_a_terminal(a_merged_mission, PYTHONPATH=str(tmp_path / "broken")) as terminal:
        assert terminal.ends() == 0
    assert "note: no live view (half of it is missing)" in terminal.text
    assert f"{ITEM} is done: merged as" in terminal.afterwards
    assert SCREEN_OPENS not in terminal.raw


def test_a_screen_is_refused_where_there_is_no_terminal(a_project: Project) -> None:
    answer = a_project.say("run", ITEM, "--output", "tui")
    assert_clear(answer, 2, "stdin is not a terminal", "Leave out --output tui")


@pytest.mark.sweep
@pytest.mark.parametrize("env", [{"CI": "true"}, {"TERM": "dumb"}])
def test_a_terminal_that_nobody_looks_at_has_plain_lines(a_merged_mission: Project, env: dict[str, str]) -> None:
    with on_a_terminal(a_merged_mission, **env) as terminal:
        assert terminal.ends() == 0
    assert "is done: merged as" in terminal.text
    assert not (a_merged_mission.path / ".capsule" / "runners").exists()


def test_without_a_screen_nothing_but_the_end_is_said(a_project: Project) -> None:
    answer = a_project.run("--output", "none")
    assert answer.code == 0
    assert f"{ITEM} is merged into main" in answer.out
    assert [line for line in answer.err.splitlines() if not line.startswith("note: ")] == []


def test_options_end_where_somebody_says_so() -> None:
    assert silently(["run", "x", "--output", "tui"]) == ["run", "x", "--output", "tui", "--output", "none"]
    assert silently(["run", "--", "x"]) == ["run", "--output", "none", "--", "x"]


@pytest.mark.slow
def test_the_last_words_of_runners_are_kept_but_not_for_ever(a_merged_mission: Project) -> None:
    folder = a_merged_mission.path / ".capsule" / "runners"
    folder.mkdir(parents=True)
    for number in range(KEPT + 3):
        (folder / f"20250101-0000{number:02}-aa.out").touch()
    runner = start_runner(a_merged_mission.path, ["run", ITEM])
    runner.wait()
    assert runner.out() == max(folder.glob("*.out")).read_text()
    assert len(list(folder.glob("*.out"))) == KEPT


def test_nothing_is_written_through_a_link(a_project: Project, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (a_project.path / ".capsule" / "runners").symlink_to(tmp_path / "elsewhere")
    with on_a_terminal(a_project) as terminal:
        assert terminal.ends() == 2
    assert "is not a plain folder" in terminal.text
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize(
    ("items", "held"),
    [((), "_queue"), ((ITEM,), ITEM), ((ITEM,), f"_campaign-{ITEM}"), ((ITEM,), f"_run-{ITEM}"), ((ITEM, "x"), None)],
)
def test_whoever_runs_it_already_is_found(a_repo: Repo, items: tuple[str, ...], held: str | None) -> None:
    project = open_project(str(a_repo.path))
    assert running_already(project, items) is None
    with project.journal().claim(held or ITEM):
        assert running_already(project, items) == (Subject(os.getpid(), held, items) if held else None)


def test_how_a_run_ended_is_in_the_journal(a_repo: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    project, queue = open_project(str(a_repo.path)), Subject(1, "_queue", ())
    journal = project.journal()
    with journal.claim("_queue"):
        journal.note("_queue", RunStarted(at="2026-03-01T10:00:00Z", cap=3))
        with pytest.raises(Interrupted, match="The queue was stopped"):
            how_it_ended(project, queue)
        journal.note("_queue", RunEnded(at="2026-03-01T10:00:00Z", why="the cap is reached", exit_code=3))
    assert how_it_ended(project, queue) == 3
    assert "The queue ended: the cap is reached." in capsys.readouterr().out
    with journal.claim(ITEM):
        journal.note(ITEM, Stopped(at="2026-03-01T10:00:00Z", cause="SIGTERM", exit_code=130))
    with pytest.raises(CapsuleError, match="was stopped: SIGTERM") as stopped:
        how_it_ended(project, Subject(1, ITEM, (ITEM,)))
    assert stopped.value.exit_code == 130


def first_frame(project: Project) -> float:
    """Processor seconds that the viewer takes until it has drawn something."""
    with on_a_terminal(project) as terminal:
        assert terminal.shows("close")
        spent = seconds_used(terminal.process.pid)
        terminal.type("d")
        terminal.ends()
    return spent


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_first_frame_is_there_in_an_instant(a_held_project: Project) -> None:
    assert in_some_round(lambda: first_frame(a_held_project) < max(0.6, 2 * bare_screen()))
