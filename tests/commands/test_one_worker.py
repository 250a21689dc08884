"""One remote, several clones: each item is worked on by one of them at a time, and merged once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from capsule.core.event import Stopped, Warned
from capsule.trackers._beads_server import shared_server
from tests.costs import LONG

from ..contracts import fake_bd, fake_gh
from ..contracts.fake_gh.hub import new_hub, opened
from ..git_server import GitServer, run
from . import backlog_script
from .backlog_project import BacklogAtServer, BacklogProject
from .conftest import COMMIT, ITEM, Project, assert_clear, honest, nothing_changes, said
from .test_campaign import FLOW
from .test_jobs import makes
from .test_merge_to_remote import AtRemote

CLAIMS = "refs/capsule/claims/"
SHORT = 0.06
"""Minutes that a claim lasts where a test waits until it has run out."""


@pytest.fixture
def ada(a_project: Project, server: GitServer) -> AtRemote:
    return AtRemote(a_project, server)


@pytest.fixture
def bob(ada: AtRemote, tmp_path: Path) -> Project:
    return clone_of(ada, tmp_path, "bob")


@pytest.fixture
def a_hub(a_project: Project, tmp_path: Path) -> Project:
    """The project's items are five issues, which every clone sees; each needs one agent."""
    a_project.beads.unlink()
    a_project.beads.parent.rmdir()
    rows = [{"number": n, "title": f"Make GH-{n}", "body": ".", "labels": ["capsule"]} for n in range(1, 6)]
    (tmp_path / "hub.json").write_text(json.dumps(new_hub(rows)))
    folder = fake_gh.install(tmp_path / "gh", tmp_path / "hub.json")
    settings = "evidence: {test: sh tests/all.sh}\ntracker: {name: github, github: {repository: tester/demo}}\n"
    a_project.write(".capsule/config.yaml", settings)
    a_project.write(".capsule/workflows/short.yaml", FLOW)
    a_project.commit("issues are on GitHub")
    a_project.always |= {
        "PATH": os.pathsep.join([str(folder), os.environ["PATH"]]),
        "CAPSULE_WORKFLOW__DEFAULT": "short",
    }
    return a_project


def clone_of(there: AtRemote, tmp_path: Path, name: str) -> Project:
    folder = tmp_path / f"of-{name}"
    folder.mkdir()
    run("clone", "-q", there.server.url(), str(folder / "project"))
    clone = Project(folder / "project", folder)
    clone.git("config", "user.name", name)
    clone.git("config", "user.email", f"{name}@example.org")
    clone.always |= there.project.always
    return clone


def plays(project: Project, *first: str) -> None:
    """Each issue's agent makes a file of its name, after these commands."""
    names = [f"GH-{number}" for number in range(1, 6)]
    project._script.write_text(json.dumps({name: makes(name, *first) for name in names}))


def claims(there: AtRemote) -> list[str]:
    return run("for-each-ref", "--format=%(refname:lstrip=3)", CLAIMS, cwd=there.bare).split()


def eventually(met: Callable[[], object]) -> None:
    give_up = time.monotonic() + LONG
    while not met():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@contextmanager
def started(project: Project, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command under way, whose output is read at its end; killed with the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "capsule", *words],
        cwd=project.path,
        env=project.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def at_work(folder: Path, until: str = "") -> str:
    """A command of an agent: it says that it works, and waits until it may go on."""
    wait = f"until test -e {folder}/{until}; do sleep 0.05; done" if until else "true"
    return f"touch {folder}/working; {wait}"


# One clone at a time


@pytest.mark.promise("claims.one", "claims.words")
def test_what_another_clone_works_on_is_refused_before_anything_is_made(
    ada: AtRemote, bob: Project, tmp_path: Path
) -> None:
    ada.project.play(honest(merge=[said("PASS", run=[COMMIT, at_work(tmp_path, "go")])]))
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        refused = bob.run()
        assert_clear(refused, 3, f"{ITEM} is worked on by ", f"capsule run {ITEM} --take-over")
        assert "its claim lasts until " in refused.err
        assert not bob.events() and not bob.worktree.exists()
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=LONG)
        assert process.returncode == 0, out
    ada.assert_merged_once()
    assert claims(ada) == []


@pytest.mark.promise("claims.one")
def test_of_two_clones_that_begin_an_item_at_the_same_moment_one_works_on_it(
    ada: AtRemote, bob: Project, tmp_path: Path
) -> None:
    for project in (ada.project, bob):
        project.play(honest(merge=[said("PASS", run=[COMMIT, at_work(tmp_path, "go")])]))
    with started(ada.project, "run", ITEM) as one, started(bob, "run", ITEM) as other:
        eventually(lambda: one.poll() is not None or other.poll() is not None)
        (tmp_path / "go").touch()
        codes = sorted(process.wait(LONG) for process in (one, other))
    assert codes == [0, 3]
    ada.assert_merged_once()


@pytest.mark.promise("claims.queue", "claims.one")
def test_two_queues_of_one_tracker_do_each_item_once(a_hub: Project, server: GitServer, tmp_path: Path) -> None:
    ada = AtRemote(a_hub, server)
    bob = clone_of(ada, tmp_path, "bob")
    for project in (a_hub, bob):
        plays(project, "sleep 0.2")
    with started(a_hub, "run", "--jobs", "2") as one, started(bob, "run", "--jobs", "2") as other:
        for process in (one, other):
            out, _ = process.communicate(timeout=2 * LONG)
            assert process.returncode == 0, out
    subjects = sorted(ada.log("--merges", "--format=%s"))
    assert subjects == [f"Merge GH-{number}: Make GH-{number}" for number in range(1, 6)]
    ada.assert_only_forward()
    assert claims(ada) == []
    worked = [event for project in (a_hub, bob) for n in range(1, 6) for event in project.events(f"GH-{n}")[:1]]
    assert len(worked) == 5  # no mission was begun in both


@pytest.mark.promise("claims.queue")
def test_a_queue_passes_over_what_another_clone_works_on_and_says_so(
    a_hub: Project, server: GitServer, tmp_path: Path
) -> None:
    ada = AtRemote(a_hub, server)
    bob = clone_of(ada, tmp_path, "bob")
    plays(a_hub, at_work(tmp_path, "go"))
    plays(bob)
    with started(a_hub, "run", "GH-1") as process:
        eventually((tmp_path / "working").exists)
        with opened(tmp_path / "hub.json") as hub:  # the tracker does not say that it is worked on
            hub["issues"][0]["labels"] = ["capsule"]
            hub["issues"][0]["assignees"] = []
        answer = bob.capsule("run")
        assert answer.code == 0, answer
        assert "GH-1" in answer.out and "is worked on by " in answer.out
        assert "note: GH-1 starts from" not in answer.err  # it was not even tried
        explained = bob.capsule("explain", "GH-1")
        assert "is worked on by " in explained.out and "capsule run GH-1 --take-over" in explained.out
        status = bob.capsule("status")
        assert "GH-1 is worked on by " in status.out
        (tmp_path / "go").touch()
        assert process.wait(LONG) == 0
    assert len(ada.log("--merges", "--format=%s")) == 5


@pytest.mark.promise("claims.one")
def test_an_item_that_was_closed_just_before_it_is_claimed_is_not_done_again(
    a_hub: Project, server: GitServer, tmp_path: Path
) -> None:
    """Another clone merges, closes and releases it between this one's look at the tracker and its claim."""
    ada = AtRemote(a_hub, server)
    plays(a_hub)
    hook = ada.bare / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\n{at_work(tmp_path, 'go')}\n")
    hook.chmod(0o755)
    with started(a_hub, "run", "GH-1") as process:
        eventually((tmp_path / "working").exists)
        with opened(tmp_path / "hub.json") as hub:
            hub["issues"][0]["state"] = "CLOSED"
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 1, out
    assert "GH-1 was closed meanwhile" in out
    assert not a_hub.events("GH-1") and claims(ada) == []


# Taking over


@pytest.mark.promise("claims.late")
def test_a_holder_that_was_suspended_for_too_long_finds_its_claim_lost_and_pushes_nothing(
    ada: AtRemote, bob: Project, tmp_path: Path
) -> None:
    ada.project.play(honest(merge=[said("PASS", run=[COMMIT, at_work(tmp_path, "go")])]))
    ada.project.always["CAPSULE_MERGE__CLAIM_MINUTES"] = str(SHORT)
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        process.send_signal(signal.SIGSTOP)
        time.sleep(SHORT * 60 + 1.1)
        answer = bob.run()
        assert answer.code == 0, answer
        assert "ran out at" in answer.err and "this clone has taken it over" in answer.err
        (tmp_path / "go").touch()
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 3, out
    assert "This clone has lost its claim" in out and f"capsule clean {ITEM}" in out
    [stopped] = [event for event in ada.project.events() if isinstance(event, Stopped)]
    assert stopped.error == "HeldElsewhere"
    ada.assert_merged_once()
    assert run("log", "-1", "--format=%an", "main", cwd=ada.bare) == "bob"
    assert ada.project.capsule("clean", ITEM).code == 0
    assert claims(ada) == []


@pytest.mark.promise("claims.late")
def test_one_whose_claim_was_taken_over_finds_that_out_before_it_pushes(
    ada: AtRemote, bob: Project, tmp_path: Path
) -> None:
    """It has not renewed its claim since, and main is where it was."""
    ada.project.play(honest(merge=[said("PASS", run=[COMMIT, at_work(tmp_path, "go")])]))
    bob.play(honest(execute=[said("ERROR", "the disk is full"), *honest()["execute"]]))
    before = ada.main()
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        assert bob.run("--take-over").code == 2
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 3, out
    assert "lost its claim" in out and "needs you on " in out
    assert ada.main() == before
    assert run("for-each-ref", "refs/capsule/missions", cwd=ada.bare) == ""
    assert bob.run().code == 0
    ada.assert_merged_once()


@pytest.mark.promise("claims.taken-over")
def test_a_person_takes_an_item_over_and_its_holder_stops_at_once(ada: AtRemote, bob: Project, tmp_path: Path) -> None:
    ada.project.play(honest(execute=[said("PASS", run=[at_work(tmp_path, "never")])]))
    ada.project.always["CAPSULE_MERGE__CLAIM_MINUTES"] = str(SHORT)
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        answer = bob.run("--take-over")
        assert answer.code == 0, answer
        assert "this clone has taken it over" in answer.err
        out, _ = process.communicate(timeout=LONG)  # its agent would wait for ever
    assert process.returncode == 3, out
    assert "lost its claim" in out
    ada.assert_merged_once()


@pytest.mark.promise("claims.taken-over")
def test_a_queue_goes_on_with_what_a_killed_clone_left(a_hub: Project, server: GitServer, tmp_path: Path) -> None:
    ada = AtRemote(a_hub, server)
    bob = clone_of(ada, tmp_path, "bob")
    plays(a_hub, at_work(tmp_path, "never"))
    plays(bob)
    a_hub.always["CAPSULE_MERGE__CLAIM_MINUTES"] = str(SHORT)
    with started(a_hub, "run", "GH-1") as process:
        eventually((tmp_path / "working").exists)
        process.kill()
        process.wait()
    assert claims(ada) == ["GH-1"]
    assert "GH-1" in bob.capsule("run", "--cap", "1").out
    time.sleep(SHORT * 60 + 1.1)
    answer = bob.capsule("run")
    assert answer.code == 0, answer
    assert len(ada.log("--merges", "--format=%s")) == 5
    assert claims(ada) == []
    assert any(isinstance(event, Warned) and "taken it over" in event.text for event in bob.events("GH-1"))


@pytest.mark.promise("claims.back")
def test_killed_a_clone_takes_its_own_item_up_again_at_once(ada: AtRemote, bob: Project, tmp_path: Path) -> None:
    ada.project.play(honest(execute=[said("PASS", run=[at_work(tmp_path, "go")], write={"answer": "42\n"})] * 2))
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        process.kill()
        process.wait()
    (tmp_path / "go").touch()
    assert bob.run().code == 3
    answer = ada.project.run()
    assert answer.code == 0, answer
    ada.assert_merged_once()
    assert claims(ada) == []


@pytest.mark.promise("claims.kept", "claims.released")
def test_an_item_that_needs_you_stays_with_its_clone_until_you_give_it_up(ada: AtRemote, bob: Project) -> None:
    ada.project.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert ada.project.run().code == 2
    assert_clear(bob.run(), 3, "needs you on ", "--take-over")
    assert bob.run().code == 3
    assert ada.project.capsule("clean", ITEM).code == 0
    assert claims(ada) == []
    assert bob.run().code == 0
    ada.assert_merged_once()


@pytest.mark.promise("claims.kept")
def test_a_stopped_mission_keeps_its_claim_and_goes_on(ada: AtRemote, bob: Project, tmp_path: Path) -> None:
    ada.project.play(honest(execute=[said("PASS", run=[at_work(tmp_path, "go")], write={"answer": "42\n"})] * 2))
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(LONG) == 130
    assert_clear(bob.run(), 3, "it was stopped there", "--take-over")
    (tmp_path / "go").touch()
    assert ada.project.run().code == 0
    ada.assert_merged_once()


def test_what_was_taken_over_is_not_started_anew_over_its_work(ada: AtRemote, bob: Project) -> None:
    ada.project.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert ada.project.run().code == 2
    bob.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert bob.run("--take-over").code == 2
    with nothing_changes_but_what_was_seen(ada.project):
        assert_clear(ada.project.run("--fresh"), 3, "needs you on ", "--take-over")


@contextmanager
def nothing_changes_but_what_was_seen(project: Project) -> Iterator[None]:
    events, files = project.events(), sorted(project.worktree.rglob("*"))
    yield
    assert (project.events(), sorted(project.worktree.rglob("*"))) == (events, files)


# A backlog, which clones share by its branch


@pytest.mark.promise("claims.one", "claims.queue")
def test_two_clones_of_a_backlog_work_on_different_items(
    a_backlog: BacklogProject, server: GitServer, tmp_path: Path
) -> None:
    there = BacklogAtServer(a_backlog, server)
    bob = there.clone("bob")
    ada = there.project
    ada.add("Find the answer")
    ada.add("Find the question")
    waits = {"run": [at_work(tmp_path, "go")]}
    ada.play(backlog_script.honest() | {"prd": [turn | waits for turn in backlog_script.honest()["prd"]]})
    bob.play(backlog_script.honest("WRK-002", "find-the-question"), "WRK-002")
    with started(ada, "run", "WRK-001") as process:
        eventually((tmp_path / "working").exists)
        bob.git("pull", "-q")
        assert_clear(bob.say("run", "WRK-001"), 3, "WRK-001 is worked on by ", "capsule run WRK-001 --take-over")
        answer = bob.say("run")
        assert answer.code == 0, answer
        assert "WRK-001" in answer.out and "is worked on by " in answer.out
        assert not bob.events("WRK-001")
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=LONG)
        assert process.returncode == 0, out
    there.assert_only_forward()
    steps = run("log", "--format=%s", "main", cwd=there.bare).splitlines()
    assert len([step for step in steps if step.startswith("[WRK-001][PRD]")]) == 1, steps
    assert run("for-each-ref", CLAIMS, cwd=there.bare) == ""


@pytest.mark.promise("claims.late")
def test_a_step_of_a_holder_that_lost_its_claim_is_not_committed(
    a_backlog: BacklogProject, server: GitServer, tmp_path: Path
) -> None:
    there = BacklogAtServer(a_backlog, server)
    bob, ada = there.clone("bob"), there.project
    ada.add()
    ada.play(
        backlog_script.honest()
        | {"prd": [turn | {"run": [at_work(tmp_path, "go")]} for turn in backlog_script.honest()["prd"]]}
    )
    with started(ada, "run", "WRK-001") as process:
        eventually((tmp_path / "working").exists)
        bob.git("pull", "-q")
        answer = bob.say("run", "WRK-001", "--take-over")
        assert answer.code == 0, answer
        tip = there.main()
        (tmp_path / "go").touch()
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 3, out
    assert "lost its claim" in out
    assert there.main() == tip


# Without the remote, and in words


@pytest.mark.promise("claims.offline")
def test_a_mission_goes_on_while_the_remote_cannot_be_reached_and_says_so(ada: AtRemote, tmp_path: Path) -> None:
    down, up = tmp_path / "down", tmp_path / "up"
    wait = f"touch {tmp_path}/working; until test -e {up}; do sleep 0.05; done"
    ada.project.play(honest(execute=[said("PASS", run=[wait], write={"answer": "42\n"})]))
    ada.project.always["CAPSULE_MERGE__CLAIM_MINUTES"] = "0.2"
    with started(ada.project, "run", ITEM) as process:
        eventually((tmp_path / "working").exists)
        ada.server.down = True
        down.touch()
        time.sleep(6)
        up.touch()
        time.sleep(1)
        ada.server.down = False
        out, _ = process.communicate(timeout=LONG)
    assert process.returncode == 0, out
    assert f"Offline: the claim on {ITEM} at origin cannot be renewed (" in out and "; it expires at " in out
    ada.assert_merged_once()


@pytest.mark.promise("claims.namespace")
def test_a_server_that_takes_branches_only_names_both_settings(ada: AtRemote) -> None:
    ada.server.refuse("refs/capsule/*", "only branches here")
    refused = ada.project.run()
    assert not ada.project.events() and not ada.project.worktree.exists()
    assert_clear(refused, 1, "only branches here", "`merge.claims`")
    ada.project.always |= {
        "CAPSULE_MERGE__CLAIMS": "refs/heads/capsule-claims/",
        "CAPSULE_MERGE__REFS": "refs/heads/capsule/",
    }
    assert ada.project.run().code == 0
    ada.assert_merged_once()


def test_a_whole_queue_is_not_taken_over(ada: AtRemote) -> None:
    with nothing_changes(ada.project):
        assert_clear(
            ada.project.say("run", "--take-over"), 2, "--take-over is for an item", "capsule run ID --take-over"
        )


@pytest.mark.promise("claims.beads")
def test_beads_that_only_this_clone_sees_are_refused(a_project: Project, server: GitServer, tmp_path: Path) -> None:
    rows = a_project.beads.read_text()
    (tmp_path / "given.jsonl").write_text(rows)
    a_project.beads.unlink()
    program = fake_bd.install(tmp_path / "bd") / "bd"
    for words in (["init", "--prefix=demo"], ["import", "-i", str(tmp_path / "given.jsonl")]):
        subprocess.run([program, *words], cwd=a_project.path, check=True, capture_output=True)
    ada = AtRemote(a_project, server)
    a_project.always["PATH"] = os.pathsep.join([str(program.parent), os.environ["PATH"]])
    refused = a_project.run()
    assert_clear(refused, 2, "The beads are in a database of this clone", "`tracker: {name: beads, shared: true}`")
    assert not a_project.events()
    a_project.always["CAPSULE_TRACKER__SHARED"] = "true"
    answer = a_project.run()
    assert answer.code == 0, answer
    ada.assert_merged_once()


@pytest.mark.promise("claims.beads")
@pytest.mark.parametrize(
    ("metadata", "env", "host"),
    [
        ("", {}, ""),
        ("no json", {}, ""),
        ("[]", {}, ""),
        ('{"backend":"dolt"}', {}, ""),
        ('{"dolt_mode":"embedded","dolt_server_host":"db.example.org"}', {}, ""),
        ('{"dolt_mode":"server"}', {}, ""),
        ('{"dolt_mode":"server","dolt_server_host":"127.0.0.1"}', {}, ""),
        ('{"dolt_mode":"server","dolt_server_host":"localhost"}', {}, ""),
        ('{"dolt_mode":"server","dolt_server_host":"db.example.org"}', {}, "db.example.org"),
        ('{"dolt_mode":"server"}', {"BEADS_DOLT_SERVER_HOST": "db.example.org"}, "db.example.org"),
        ('{"dolt_mode":"embedded"}', {"BEADS_DOLT_SERVER_HOST": "db.example.org"}, ""),
    ],
)
def test_which_beads_other_clones_see(tmp_path: Path, metadata: str, env: dict[str, str], host: str) -> None:
    (tmp_path / ".beads").mkdir()
    (tmp_path / ".beads/metadata.json").write_text(metadata)
    assert shared_server(tmp_path, env) == host
