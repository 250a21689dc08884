"""`capsule dashboard` in real projects: on a real terminal, as text, and what it is handed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from capsule.commands.screen_actions import actions_for, details_of, listing_of
from capsule.commands.watching import JournalWatcher, ask_to_stop
from capsule.core.errors import CapsuleError
from capsule.core.event import Stopped
from capsule.journals.sqlite import SqliteJournal
from capsule.project import open_project
from tests.costs import LONG, eventually, in_some_round

from ..conftest import Repo
from .backlog_project import BacklogProject
from .conftest import ITEM, Project, assert_clear, nothing_changes
from .terminal import SCREEN_CLOSES, Terminal, bare_screen, seconds_used
from .test_live_view import a_held_project, at_work, go, holder, merged  # noqa: F401 (a fixture)


def dashboard(project: Project, *words: str, **env: str) -> Terminal:
    return Terminal(("dashboard", *words), project.path, project.environment(**env), (80, 24))


# ---- on a terminal


@pytest.mark.slow
@pytest.mark.promise("screens.elsewhere")
def test_a_mission_that_runs_elsewhere_is_there_at_once_and_goes_on_when_the_dashboard_is_killed(
    a_held_project: Project,  # noqa: F811
) -> None:
    project = a_held_project

    def is_seen_at_once() -> bool:
        """Within a second of the first frame, or of what that took where everything takes longer."""
        began = time.monotonic()
        with dashboard(project) as terminal:
            assert terminal.shows("History")
            drawn = time.monotonic()
            assert terminal.shows("1 running")
            seen = time.monotonic()
            terminal.process.kill()
        return seen - drawn < 1 + (drawn - began)

    with project.running("--no-tui") as runner:
        assert eventually(lambda: at_work(project))
        assert in_some_round(is_seen_at_once)
        assert holder(project) == runner.pid
        go(project).touch()
        assert runner.wait(LONG) == 0
    assert merged(project)


def test_an_item_is_run_from_the_dashboard_and_seen_to_merge(a_project: Project) -> None:
    with dashboard(a_project) as terminal:
        assert terminal.shows(ITEM)
        terminal.type("r")
        assert terminal.shows(f"capsule run {ITEM}")
        assert terminal.shows("OK (Enter)")
        terminal.type("\r")
        assert terminal.shows("(pid ")
        assert terminal.shows("is merged into main")
        terminal.type("q")
        assert terminal.ends() == 0
    assert merged(a_project)
    assert SCREEN_CLOSES in terminal.raw
    assert "Traceback" not in terminal.text


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "then"), [("/retry", "filter: retry"), ("ry", "OK (Enter)"), ("r\r", "OK (Enter)")])
def test_keys_that_come_all_at_once_run_nothing(a_project: Project, keys: str, then: str) -> None:
    with dashboard(a_project) as terminal:
        assert terminal.shows(ITEM)
        terminal.type(keys)
        assert terminal.shows(then)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 0
    assert "(pid " not in terminal.text
    assert not (a_project.path / ".capsule" / "runners").exists()


@pytest.mark.slow
def test_told_to_end_it_leaves_the_terminal_as_it_was_and_says_what_goes_on(
    a_held_project: Project,  # noqa: F811
) -> None:
    with a_held_project.running("--no-tui"), dashboard(a_held_project) as terminal:
        assert eventually(lambda: at_work(a_held_project))
        assert terminal.shows("1 running")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 0
        assert f"Still running: {ITEM}." in terminal.afterwards
        assert stop(a_held_project) == "Stopping; progress is kept."
        assert eventually(lambda: holder(a_held_project) is None)
    assert isinstance(a_held_project.events()[-1], Stopped)
    assert stop(a_held_project) == "It is not running any more."


class Unseen:
    """A lock whose holder has no number here, as in a container of its own."""

    def holder(self, _stream: str) -> int | None:
        return 0


def test_nobody_is_stopped_who_is_not_the_one_that_was_shown(a_repo: Repo) -> None:
    journal = open_project(str(a_repo.path)).journal()
    assert ask_to_stop(journal, ITEM) == "It is not running any more."
    with journal.claim(ITEM):  # by us, who would notice
        assert ask_to_stop(journal, ITEM, 1) == f"Another process runs it now (pid {os.getpid()})."
    assert (
        ask_to_stop(cast("SqliteJournal", Unseen()), ITEM, 1)
        == "It runs in another container or on another machine: stop it there."
    )


def stop(project: Project) -> str:
    answer = actions_for(open_project(str(project.path))).stop(ITEM, holder(project) or 1)
    return answer.err or answer.out


@pytest.mark.slow
@pytest.mark.promise("screens.first-frame")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc what a process has used")
def test_the_first_frame_takes_little_work(a_project: Project) -> None:
    """What a machine can do beside that is its own affair: 0.6 s is what a person is promised on an idle one."""

    def drawn_in_time() -> bool:
        with dashboard(a_project) as terminal:
            assert terminal.shows("History")
            return seconds_used(terminal.process.pid) < max(0.6, 2 * bare_screen())

    assert in_some_round(drawn_in_time)


# ---- as text


def test_once_it_is_told_how_things_stand(a_merged_mission: Project) -> None:
    with nothing_changes(a_merged_mission):
        answer = a_merged_mission.say("dashboard", "--plain", "--once")
    assert (answer.code, answer.err) == (0, "")
    assert "Missions: 1 done." in answer.out
    assert answer.out.startswith("Nothing needs you.\n\nMissions: ")
    assert answer.out.index("Missions: ") < answer.out.index("Items: ")
    assert "merged into main as" in answer.out


@pytest.mark.promise("screens.inbox")
def test_as_text_too_what_needs_you_is_told_first(a_halted_mission: Project) -> None:
    out = a_halted_mission.say("dashboard", "--plain", "--once").out
    assert out.startswith(f"Needs you (1)\n\n✗ {ITEM}: ")
    assert f"  answer:   capsule answer {ITEM} --retry\n" in out.split("Missions: ")[0]


@pytest.mark.promise("screens.plain")
def test_every_change_is_a_line_until_ctrl_c(a_halted_mission: Project) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "capsule", "dashboard", "--plain"],
        cwd=a_halted_mission.path,
        env=a_halted_mission.environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as watching:
        watchdog = threading.Timer(LONG, watching.kill)
        watchdog.start()
        try:
            lines = iter(watching.stdout or ())
            assert any("next: " in line for line in lines)
            assert a_halted_mission.say("abort", ITEM).code == 0
            # while it is being ended, somebody is at it
            assert next(line for line in lines if "stopped" in line)[9:] == f"{ITEM}: stopped: aborted\n"
            watching.send_signal(signal.SIGINT)
            assert watching.wait(LONG) == 130
        finally:
            watchdog.cancel()
            watching.kill()


def test_a_tracker_that_cannot_be_read_takes_nothing_from_the_missions(a_merged_mission: Project) -> None:
    a_merged_mission.write("BACKLOG.yaml", "schema_version: 1\nitems: []\n")  # and beads, at once
    answer = a_merged_mission.say("dashboard", "--plain", "--once")
    assert_clear(answer, 0, "", "")
    assert "Items: cannot be read." in answer.out
    assert "Missions: 1 done." in answer.out


# ---- refused


@pytest.mark.parametrize(
    ("words", "cause", "what_next"),
    [
        ((), "needs a terminal", "--plain"),
        (("--once",), "--once requires --plain", "--plain --once"),
        (("--plain", "--web"), "exclude each other", "Drop one"),
        (("--port", "8000"), "require --web", "--web"),
    ],
)
def test_what_makes_no_sense_is_refused(a_project: Project, words: tuple[str, ...], cause: str, what_next: str) -> None:
    assert_clear(a_project.say("dashboard", *words), 2, cause, what_next)


@pytest.mark.slow
def test_a_dumb_terminal_and_a_broken_textual_are_told_of_the_text(a_project: Project, tmp_path: Path) -> None:
    (tmp_path / "broken" / "textual").mkdir(parents=True)
    (tmp_path / "broken" / "textual" / "__init__.py").write_text("raise ImportError('half of it is missing')\n")
    for env, cause in (({"TERM": "dumb"}, "TERM is dumb"), ({"PYTHONPATH": str(tmp_path / "broken")}, "half of it")):
        with dashboard(a_project, **env) as terminal:
            assert terminal.ends() == 2
        assert cause in terminal.afterwards
        assert "capsule dashboard --plain" in terminal.afterwards


# ---- what it is handed


def test_what_is_on_disk_of_a_mission_that_has_ended(a_merged_mission: Project) -> None:
    details = details_of(open_project(str(a_merged_mission.path)), ITEM)
    assert "answer" in details.changes
    assert "-41\n+42" in details.diff
    assert details.worklog.startswith("# Worklog")
    assert "==> execute#1 PASS" in details.logs


def test_what_is_on_disk_of_a_mission_that_has_halted(a_halted_mission: Project) -> None:
    details = details_of(open_project(str(a_halted_mission.path)), ITEM)
    assert "tests/test_answer.sh" in details.diff
    assert details.worklog
    assert "==> execute#1 ERROR" in details.logs


def test_the_steps_of_an_item_are_one_change_without_the_files_of_its_backlog(a_backlog: BacklogProject) -> None:
    item = a_backlog.add()
    a_backlog.say("step", item)
    a_backlog.say("step", item)
    (a_backlog.path / "elsewhere.txt").write_text("somebody else's\n")
    a_backlog.git("add", "elsewhere.txt")
    a_backlog.git("commit", "-q", "-m", "elsewhere")
    assert a_backlog.run().code == 0
    details = details_of(open_project(str(a_backlog.path)), item)
    changed = re.findall(r"(?m)^diff --git a/(\S+) ", details.diff)
    assert "<!--" not in details.worklog and details.worklog.startswith("### Phase")
    assert "Nothing was printed." in details.logs
    assert "answer" in changed and len(changed) == len({*changed})
    assert not {"BACKLOG.yaml", "elsewhere.txt"} & {*changed}
    assert not any(path.startswith("_worklog/") for path in changed)
    assert details.changes.splitlines()[0] == "commits on main" and details.changes.count("changed, ") == 1


def test_a_file_that_somebody_else_changed_between_two_steps_is_shown_for_each_step(a_backlog: BacklogProject) -> None:
    item = a_backlog.add()
    assert a_backlog.run("--cap", "5").code in (0, 3)
    document = next(path for path in a_backlog.path.glob("changes/*/*_SPEC.md"))
    document.write_text(f"{document.read_text()}\nA remark by somebody else.\n")
    a_backlog.git("commit", "-q", "-a", "-m", "elsewhere")
    assert a_backlog.run().code == 0
    diff = details_of(open_project(str(a_backlog.path)), item).diff
    assert "+A remark" not in diff and diff.count(f"diff --git a/{document.relative_to(a_backlog.path)} ") == 2


def test_a_command_is_the_command_itself_with_its_own_answer(a_halted_mission: Project) -> None:
    hands = actions_for(open_project(str(a_halted_mission.path)))
    refused = hands.do(["advance", ITEM], "")
    assert refused.code == 1
    assert refused.err.startswith("capsule: `capsule advance` is for the items of a backlog")
    done = hands.do(["unblock", ITEM, "--notes", "try again"], "")
    assert (done.code, done.err) == (0, "")
    assert "resumes at execute with your notes" in done.out


def test_what_is_started_from_a_tab_does_not_take_its_size_for_a_terminals(
    a_repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands = actions_for(open_project(str(a_repo.path)))
    for name in ("COLUMNS", "ROWS"):
        monkeypatch.setenv(name, "30")
    assert max(map(len, hands.do(["run", "--help"], "").out.splitlines()[-8:])) <= 45  # as anywhere else
    monkeypatch.setattr("capsule.commands.screen_actions.in_a_browser", lambda: True)
    assert max(map(len, hands.do(["run", "--help"], "").out.splitlines()[-8:])) > 45


def test_of_a_long_worklog_the_end_is_read(a_repo: Repo) -> None:
    project = open_project(str(a_repo.path))
    folder = a_repo.path / ".capsule" / "worktrees" / ITEM
    folder.mkdir(parents=True)
    (folder / "worklog.md").write_text("x" * 5_000_000 + "\nthe end")
    words = details_of(project, ITEM).worklog
    assert words.startswith("…x")
    assert words.endswith("\nthe end")
    assert len(words) < 100_000


def test_a_backlog_is_listed_with_its_phases(a_backlog: BacklogProject) -> None:
    a_backlog.hold({"title": "First"})
    listing = listing_of(open_project(str(a_backlog.path)))
    assert listing.by_status
    assert [item.title for item in listing.items] == ["First"]


def test_a_journal_that_was_broken_and_is_mended_is_looked_at_again(a_merged_mission: Project) -> None:
    file = a_merged_mission.path / ".git" / "capsule" / "journal.db"
    eyes, whole = JournalWatcher(open_project(str(a_merged_mission.path))), file.read_bytes()
    assert len(eyes.look().missions) == 1
    file.write_bytes(b"this is no database, and was never one, however long you look at it " * 20)
    with pytest.raises(CapsuleError, match="cannot be used"):
        eyes.look()
    (file.parent / "mended.db").write_bytes(whole)
    (file.parent / "mended.db").replace(file)
    assert [view.status for view in eyes.look().missions] == ["done"]
