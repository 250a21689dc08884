"""A backlog whose main is on a server: each of its commits is pushed from exactly the tip that it was built on."""

from __future__ import annotations

import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capsule.core.event import Waiting
from capsule.system.lock import is_locked
from tests.costs import LONG, eventually

from ..conftest import Repo
from ..git_server import GitServer, moves_of, run
from .at_a_server import MAIN, in_a_bare_clone, in_a_linked_worktree
from .backlog_project import BacklogAtServer, BacklogProject
from .conftest import assert_clear, nothing_changes
from .test_merge_to_remote import _RACE as RACE

_KILLS = """#!/bin/sh
# The push has arrived; whoever pushed is killed before it hears of that.
[ ! -e ../killed ] || exit 0
touch ../killed
above=$PPID
while grep -qE '^(git|sh)' /proc/$above/comm; do above=$(cut -d' ' -f4 /proc/$above/stat); done
kill -9 $above
"""


@pytest.fixture
def there(a_backlog: BacklogProject, server: GitServer) -> BacklogAtServer:
    return BacklogAtServer(a_backlog, server)


@pytest.mark.promise("remote.backlog")
def test_two_clones_add_to_one_backlog(there: BacklogAtServer) -> None:
    clone = there.clone()
    assert there.project.add("One") == "WRK-001"
    assert clone.add("Two") == "WRK-002"
    assert there.project.add("Three") == "WRK-003"
    assert there.project.ids() == ["WRK-001", "WRK-002", "WRK-003"]
    assert there.project.head() == there.main()
    assert there.project.status() == clone.status() == ""
    there.assert_only_forward()


@pytest.mark.promise("remote.backlog")
def test_each_step_is_committed_at_the_remote_and_the_checkout_follows(there: BacklogAtServer) -> None:
    there.project.add()
    before = there.main()
    answer = there.project.run()
    assert answer.code == 0, answer
    steps = run("log", "--format=%s", f"{before}..main", cwd=there.bare).splitlines()
    assert len(steps) >= 5 and len(moves_of(there.bare, MAIN)) == len(steps) + 1
    assert there.project.head() == there.main()
    assert there.project.status() == ""
    assert (there.project.path / "answer").read_text() == "42\n"
    there.assert_only_forward()


@pytest.mark.promise("remote.backlog")
def test_work_that_is_merged_at_the_end_is_merged_at_the_remote(there: BacklogAtServer) -> None:
    there.project.always["CAPSULE_WORKSPACE__PUBLISH"] = "merge"
    there.project.add()
    answer = there.project.run()
    assert answer.code == 0, answer
    merged = run("log", "--first-parent", "--merges", "--format=%s", "main", cwd=there.bare).splitlines()
    assert merged == ["Merge WRK-001: Find the answer"]
    assert there.project.head() == there.main()
    assert there.project.ids() == [] and there.project.status() == ""
    there.assert_only_forward()


@pytest.mark.promise("remote.backlog")
def test_commits_of_others_between_the_steps_are_kept(there: BacklogAtServer) -> None:
    there.project.add()
    there.hook("pre-receive", RACE.format(count=there.bare / "races"))
    (there.bare / "races").write_text("3\n")
    answer = there.project.run()
    assert answer.code == 0, answer
    subjects = run("log", "--format=%s", "main", cwd=there.bare).splitlines()
    assert [subjects.count(f"by Bob {number}") for number in (1, 2, 3)] == [1, 1, 1]
    assert there.project.head() == there.main()
    there.assert_only_forward()


@pytest.mark.promise("remote.backlog")
def test_nothing_changes_while_the_remote_cannot_be_reached(there: BacklogAtServer) -> None:
    there.project.add()
    there.server.down = True
    with nothing_changes(there.project):
        assert_clear(there.project.say("add", "More"), 3, "origin/main cannot be reached", "git fetch origin")
        assert there.project.run().code == 3
    assert there.project.say("list").code == 0


@pytest.mark.promise("remote.backlog")
def test_what_is_undone_is_pushed(there: BacklogAtServer) -> None:
    there.project.add("One")
    assert there.project.say("edit", "WRK-001", "--title", "Two").code == 0
    assert there.project.say("undo").code == 0
    assert there.project.item().title == "One"
    assert there.project.head() == there.main()
    there.assert_only_forward()


@pytest.mark.promise("remote.backlog")
def test_what_a_server_refuses_changes_nothing_and_is_quoted(there: BacklogAtServer) -> None:
    hook = there.server.refuse(MAIN, "main is protected: ask Ada")
    before = there.project.head()
    assert_clear(there.project.say("add", "More"), 1, "main is protected: ask Ada", "then run the same command again")
    assert there.project.head() == before and there.project.ids() == [] and there.project.status() == ""
    hook.unlink()
    assert there.project.add("More") == "WRK-001"


@pytest.mark.promise("remote.backlog")
def test_commits_of_the_users_own_are_theirs_to_push(there: BacklogAtServer) -> None:
    mine = there.project.commit("mine", mine="x")
    answer = there.project.say("add", "More")
    assert_clear(answer, 1, "it has commits that origin/main lacks (`git push origin main`)", "run it again")
    there.project.git("push", "-q", "origin", "main")
    assert there.project.add("More") == "WRK-001"
    assert there.project.head("HEAD~1") == mine


@pytest.mark.promise("remote.backlog")
def test_edits_of_the_backlog_that_would_undo_what_others_did_are_refused(there: BacklogAtServer) -> None:
    clone = there.clone()
    there.project.add("One")
    clone.say("list")
    clone.backlog.write_text(f"# mine\n{clone.backlog.read_text()}")
    there.project.add("Two")
    assert_clear(
        clone.say("add", "Three"), 1, "BACKLOG.yaml is edited here, and origin/main has changed it", "Save a copy"
    )
    assert clone.backlog.read_text().startswith("# mine\n")
    clone.git("checkout", "-q", "BACKLOG.yaml")
    assert clone.add("Three") == "WRK-003"


def test_edits_of_the_backlog_go_along_if_nobody_else_changed_it(there: BacklogAtServer) -> None:
    there.project.add("One")
    there.project.backlog.write_text(f"# mine\n{there.project.backlog.read_text()}")
    there.project.add("Two")
    assert run("show", "main:BACKLOG.yaml", cwd=there.bare).startswith("# mine\n")


@pytest.mark.promise("remote.once", "remote.backlog")
@pytest.mark.skipif(sys.platform != "linux", reason="the server finds out by /proc who pushed")
def test_killed_after_its_push_a_step_is_found_at_the_remote(there: BacklogAtServer) -> None:
    project = there.project
    project.git("remote", "set-url", "origin", there.bare.as_uri())
    project.backlog.write_text(f"# mine\n{project.backlog.read_text()}")
    there.hook("post-receive", _KILLS)
    before = project.head()
    assert project.capsule("add", "One").code == -signal.SIGKILL
    assert there.main() != before == project.head()
    assert project.add("Two") == "WRK-002"
    assert project.ids() == ["WRK-001", "WRK-002"]
    assert project.head() == there.main() and project.status() == ""
    assert project.backlog.read_text().startswith("# mine\n")


@pytest.mark.slow
@pytest.mark.promise("remote.backlog", "remote.offline")
def test_a_step_waits_for_a_remote_that_is_down_for_a_moment(there: BacklogAtServer) -> None:
    project = there.project
    project.add()
    project.play(
        {"triage": [{"run": [f"touch {there.bare}/ready; while [ ! -e {there.bare}/down ]; do sleep 0.05; done"]}]}
    )
    over = threading.Event()

    def watch() -> None:
        if eventually((there.bare / "ready").exists, LONG):
            there.server.down = True
            (there.bare / "down").touch()
        eventually(lambda: any(isinstance(event, Waiting) for event in project.events()) or over.is_set(), LONG)
        there.server.down = False

    thread = threading.Thread(target=watch)
    thread.start()
    answer = project.capsule("run", "WRK-001")
    over.set()
    thread.join(LONG)
    assert any(
        isinstance(event, Waiting) and event.remote in ("origin", "origin/main") for event in project.events()
    ), answer
    assert project.head() == there.main()


def test_a_branch_that_the_remote_lacks_is_named(there: BacklogAtServer) -> None:
    there.project.git("switch", "-q", "-c", "side")
    assert_clear(there.project.say("add", "More"), 1, "origin/side was not found", "git push origin side")


def test_another_clones_work_is_seen_when_a_run_begins(there: BacklogAtServer) -> None:
    clone = there.clone()
    clone.add()
    tip = there.main()
    answer = there.project.run()
    assert answer.code == 0, answer
    assert f"note: starts from origin/main at {tip[:12]}." in answer.out + answer.err
    assert Repo(there.project.path).head() == there.main()
    assert (there.project.path / "answer").read_text() == "42\n"


@pytest.mark.promise("remote.once")
@pytest.mark.skipif(sys.platform != "linux", reason="the server finds out by /proc who pushed")
def test_killed_after_the_push_of_its_merge_an_item_is_not_started_over(there: BacklogAtServer) -> None:
    project = there.project
    project.git("remote", "set-url", "origin", there.bare.as_uri())
    project.always["CAPSULE_WORKSPACE__PUBLISH"] = "merge"
    project.add()
    there.hook("post-receive", _KILLS.replace("[ !", "git log -1 --format=%s main | grep -q ^Merge && [ !", 1))
    assert project.capsule("run", "WRK-001").code == 128 + signal.SIGKILL
    tip, before = there.main(), project.events("WRK-001")
    answer = project.capsule("run", "WRK-001", "--fresh")
    assert_clear(answer, 1, f"WRK-001 was merged as {run('rev-parse', 'main', cwd=there.bare)[:12]}", "capsule run")
    assert there.main() == tip and project.events("WRK-001") == before
    assert project.capsule("run", "WRK-001").code == 0
    assert there.main() == tip and project.ids() == [] and project.head() == tip


@pytest.mark.promise("remote.line")
def test_who_waits_for_the_remote_keeps_nobody_from_the_backlog(there: BacklogAtServer) -> None:
    """A remote that does not answer is found out before the lock is taken, which others need to read it, too."""
    there.server.slow = 8.0
    lock = there.project.path / ".git/capsule/locks/backlog.lock"
    with ThreadPoolExecutor(1) as aside:
        adds = aside.submit(there.project.capsule, "add", "One more")
        assert eventually(lambda: there.server.requests, LONG)
        time.sleep(1.0)
        held = is_locked(lock)
        there.server.slow = 0.0
        answer = adds.result()
    assert answer.code == 0, answer
    assert not held


@pytest.mark.promise("remote.clones", "remote.backlog")
def test_a_backlog_in_a_worktree_of_a_bare_repository_is_pushed(there: BacklogAtServer, tmp_path: Path) -> None:
    project = in_a_bare_clone(there, there.project, tmp_path / "of-bare")
    assert project.add() == "WRK-001"
    answer = project.run()
    assert answer.code == 0, answer
    assert there.show("main:answer") == "42"
    assert project.head() == there.main() and project.status() == "" and project.ids() == []
    there.assert_only_forward()


@pytest.mark.promise("remote.clones", "remote.backlog")
def test_from_a_linked_worktree_the_backlog_of_the_main_one_is_pushed(there: BacklogAtServer, tmp_path: Path) -> None:
    linked = in_a_linked_worktree(there, there.project, tmp_path / "linked")
    assert linked.add() == "WRK-001"
    assert there.project.ids() == ["WRK-001"]
    assert there.project.head() == there.main()
    answer = linked.run()
    assert answer.code == 0, answer
    assert there.show("main:answer") == "42" and there.project.head() == there.main()
    assert linked.status() == there.project.status() == ""
