"""Two clones of one remote work side by side, while a person pushes: everything is merged once, and nothing is lost.

`make soak` has twenty missions in each clone, `make check` a few.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

from capsule.core.claim import Holder, as_message, new_claim
from capsule.core.event import HandedIn, StepBegun, Stopped, Waiting
from capsule.core.merge_queue import MergeQueue, merge_stream
from tests.costs import LONG, eventually

from ..conftest import Repo
from ..contracts import fake_gh
from ..contracts.fake_gh.hub import new_hub, opened
from ..git_server import GitServer, moves_of, run
from .conftest import PASS, TESTS, Project
from .test_campaign import FLOW, row
from .test_jobs import makes, waits

pytestmark = pytest.mark.slow

MAIN = "refs/heads/main"
COMMIT = 'git add -A . && git commit -q -m "$CAPSULE_COMMIT_MSG"'
MOST_ROUNDS = 6
"""How often the person at a clone merges what needs them: races that were lost three times in a row."""
EVERY = (1.0, 4.0)
"""Seconds between two pushes of a person."""


class Clone(Project):
    """One machine, with items to work on: of its own, or issues on GitHub that every clone sees."""

    def set_up(self, server: GitServer, names: list[str], hub: Path | None = None) -> None:
        self.names, self.hub = names, hub
        self.git("remote", "set-url", "origin", server.url())
        self.always |= {"CAPSULE_MERGE__TO": "remote", "CAPSULE_WORKFLOW__DEFAULT": "short"}
        self.always |= {"CAPSULE_EXECUTION__JOBS": "2"}
        if hub:
            folder = fake_gh.install(self.home.parent / "gh", hub)
            self.always |= {"PATH": os.pathsep.join([str(folder), os.environ["PATH"]])}
            self.always |= {"CAPSULE_TRACKER": "github", "CAPSULE_TRACKER__GITHUB__REPOSITORY": "tester/demo"}
        else:
            self.beads.write_text("".join(map(row, names)))
            self.always["CAPSULE_TRACKER"] = "beads-file"
        turns = {name: {"make": [{"run": [f"echo {name} > {name}", COMMIT], "signal": PASS}]} for name in names}
        self._script.write_text(json.dumps(turns))
        self.write("README.md", "an edit of the user's\n")
        self.write("notes", "a file of the user's\n")

    def work(self) -> list[str]:
        """Run every item, and merge what then waits for a person; return what is still open."""
        self.capsule("run")
        for _ in range(MOST_ROUNDS):
            for name in self.open():
                self.capsule("run", name)
        return self.open()

    def open(self) -> list[str]:
        if not self.hub:
            return [name for name in self.names if self.status_of(name) != "closed"]
        with opened(self.hub) as hub:
            return [f"GH-{issue['number']}" for issue in hub["issues"] if issue["state"] == "OPEN"]

    def agents(self, name: str) -> int:
        return sum(isinstance(event, StepBegun) and event.spawns for event in self.events(name))


@pytest.mark.promise("remote.side-by-side", "claims.queue")
@pytest.mark.parametrize("items", ["own", "shared"])
@pytest.mark.parametrize("each", [3, pytest.param(20, marks=pytest.mark.soak)])
def test_two_clones_and_a_person_merge_everything_once(
    a_project: Project, server: GitServer, tmp_path: Path, each: int, items: str
) -> None:
    """With items of their own, or both with all of them: then only their claims keep them apart."""
    shared = items == "shared"
    names = [[f"{clone}-{number}" for number in range(each)] for clone in ("left", "right")]
    if shared:
        a_project.beads.unlink()
        names = [[f"GH-{number}" for number in range(1, 2 * each + 1)]] * 2
    a_project.write(".capsule/workflows/short.yaml", FLOW)
    a_project.commit("what is to be done")
    first, every = a_project.head(), sorted({*names[0], *names[1]})
    bare, hub = server.host(a_project.path), tmp_path / "hub.json"
    rows = [{"number": n, "title": f"The {n}", "body": ".", "labels": ["capsule"]} for n in range(1, 2 * each + 1)]
    hub.write_text(json.dumps(new_hub(rows)))
    clones = [clone_of(bare, tmp_path / f"clone-{number}") for number in range(2)]
    for clone, own in zip(clones, names, strict=True):
        clone.set_up(server, own, hub if shared else None)
    with a_person_pushing(bare, tmp_path / "person") as theirs, ThreadPoolExecutor(2) as side_by_side:
        list(side_by_side.map(Clone.work, clones))
    assert [name for clone in clones for name in clone.open()] == []
    merges = run(
        "log", "--first-parent", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly)", "main", cwd=bare
    )
    assert sorted(merges.split()) == every
    assert_only_forward(bare, first, theirs)
    assert_each_is_green(bare, first, tmp_path / "tried")
    assert run("for-each-ref", "refs/capsule/claims", cwd=bare) == ""
    assert {name: sum(clone.agents(name) for clone in clones) for name in every} == dict.fromkeys(every, 1)
    assert all(any(clone.agents(name) for name in clone.names) for clone in clones)
    for clone in clones:
        assert clone.git("branch", "--show-current") == "main"
        assert (clone.path / "README.md").read_text() == "an edit of the user's\n"
        assert clone.dirt().splitlines() == ["M README.md", "?? notes"]
        run("merge-base", "--is-ancestor", clone.head(), MAIN, cwd=bare_with(bare, clone))


@pytest.mark.promise("remote.work", "remote.merged")
def test_a_batch_is_pushed_as_one_commit_and_the_work_of_each_before_it(
    a_project: Project, server: GitServer, tmp_path: Path
) -> None:
    names = [f"item-{number}" for number in range(4)]
    clone = prepared(a_project, server, tmp_path, names, **{"tests/test_slow.sh": "sleep 0.5\n"})
    clone.always |= {"CAPSULE_MERGE__BATCH": "4", "CAPSULE_EXECUTION__JOBS": "4"}
    answer = clone.capsule("run")
    assert answer.code == 0, answer
    bare = server.repository()
    merges = run("log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly)", "main", cwd=bare)
    assert sorted(merges.split()) == names
    works = run("for-each-ref", "--format=%(refname:lstrip=3)", "refs/capsule/missions", cwd=bare).split()
    assert works == names
    assert len(moves_of(bare, MAIN)) < len(names), "none was merged with another"
    assert clone.head("main") == run("rev-parse", MAIN, cwd=bare)


_HELD_UP = """
until_there() {{ i=0; until [ -e {folder}/$1 ]; do sleep 0.05; i=$((i+1)); [ $i -lt 600 ] || exit 1; done; }}
case $(ls item-* 2> /dev/null | wc -l) in
    0|1) exit 0;;
    2) until_there queued; exit 0;;
    *) touch {folder}/together; until_there taken;;
esac
"""
"""The tests of a merge wait: that of two until all are in the line, that of a batch until a claim is taken over."""


@pytest.mark.promise("claims.late", "claims.one")
def test_of_a_batch_only_the_mission_is_left_out_whose_claim_was_taken_over(
    a_project: Project, server: GitServer, tmp_path: Path
) -> None:
    names = [f"item-{number}" for number in range(4)]
    clone = prepared(a_project, server, tmp_path, names, **{"tests/test_slow.sh": _HELD_UP.format(folder=tmp_path)})
    clone.always |= {"CAPSULE_MERGE__BATCH": "4", "CAPSULE_EXECUTION__JOBS": "4"}
    lost: list[str] = []

    def taken_over() -> None:
        assert eventually(lambda: len(queue_of(clone).stacked) == len(names), LONG)
        (tmp_path / "queued").touch()
        assert eventually((tmp_path / "together").exists, LONG)
        lost.append([*queue_of(clone).waiting][1])  # the first one leads
        by_another(server, lost[0])
        (tmp_path / "taken").touch()

    with ThreadPoolExecutor(1) as aside:
        follows = aside.submit(taken_over)
        answer = clone.capsule("run")
        follows.result()
    assert answer.code == 0 and "3 merged" in answer.out, answer
    assert [name for name in names if any(isinstance(event, Stopped) for event in clone.events(name))] == lost
    assert "is worked on by another" in clone.capsule("run", lost[0]).err
    bare = server.repository()
    merges = run("log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly)", "main", cwd=bare)
    assert sorted(merges.split()) == sorted({*names} - {*lost})
    assert run("for-each-ref", "--format=%(refname:lstrip=3)", "refs/capsule/claims", cwd=bare).split() == lost
    assert [clone.agents(name) for name in names] == [1] * 4


def queue_of(clone: Clone) -> MergeQueue:
    queue = MergeQueue()
    for event in clone.events(merge_stream("main")):
        queue.apply(event)
    return queue


def by_another(server: GitServer, item: str) -> None:
    """Another clone takes the item over."""
    claim = new_claim(item, Holder("another", "another", "token"), "2026-11-19T12:00:00Z", "2199-01-01T00:00:00Z")
    bare = server.repository()
    tree = subprocess.run(["git", "mktree"], cwd=bare, input=b"", capture_output=True, check=True).stdout.decode()
    commit = run("commit-tree", tree.strip(), "-m", as_message(claim), cwd=bare)
    run("update-ref", f"refs/capsule/claims/{item}", commit, cwd=bare)


@pytest.mark.promise("remote.offline", "remote.line")
@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.soak)])
def test_a_server_that_is_gone_for_a_while_is_waited_for_outside_of_the_line(
    a_project: Project, server: GitServer, tmp_path: Path, seconds: int
) -> None:
    names = ["one", "two"]
    clone = prepared(a_project, server, tmp_path, names)
    clone.always |= {"CAPSULE_MERGE__BATCH": "2"}
    meet = f"touch {tmp_path}/$CAPSULE_ITEM; {waits(f'[ -e {tmp_path}/gone ]')}"
    clone.play_each({name: makes(name, meet) for name in names})

    def gone() -> None:
        assert eventually(lambda: all((tmp_path / name).exists() for name in names), LONG)
        server.close()
        (tmp_path / "gone").touch()
        time.sleep(seconds)
        server.start()

    with ThreadPoolExecutor(1) as aside:
        follows = aside.submit(gone)
        answer = clone.capsule("run")
        follows.result()
    assert answer.code == 0, answer
    merges = run(
        "log", "--merges", "--format=%(trailers:key=Capsule-Mission,valueonly)", "main", cwd=server.repository()
    )
    assert sorted(merges.split()) == names
    assert [clone.agents(name) for name in names] == [1, 1]
    assert all(any(isinstance(event, Waiting) for event in clone.events(name)) for name in names)
    handed_in = [event.mission for event in clone.events(merge_stream("main")) if isinstance(event, HandedIn)]
    assert all(handed_in.count(name) <= 2 for name in names), "it came to the line again while the server was gone"


@pytest.mark.promise("remote.offline")
def test_the_next_item_begins_on_the_last_fetched_tip_while_the_remote_is_down(
    a_project: Project, server: GitServer, tmp_path: Path
) -> None:
    clone = prepared(a_project, server, tmp_path, ["one", "two"])
    clone.always["CAPSULE_EXECUTION__JOBS"] = "1"
    hook = server.repository() / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\ngrep -q refs/heads/main && touch merged || true\n")
    hook.chmod(0o755)

    def down_for_a_moment() -> None:
        assert eventually((server.repository() / "merged").exists, LONG)
        server.down = True
        eventually(lambda: any(isinstance(event, Waiting) for event in clone.events("two")), LONG)
        server.down = False

    thread = threading.Thread(target=down_for_a_moment)
    thread.start()
    answer = clone.capsule("run")
    thread.join(LONG)
    assert answer.code == 0, answer
    assert "as it was fetched last (origin cannot be reached)" in answer.out + answer.err
    assert clone.open() == []


def test_a_run_of_several_items_begins_nothing_while_the_remote_is_down(
    a_project: Project, server: GitServer, tmp_path: Path
) -> None:
    clone = prepared(a_project, server, tmp_path, ["one", "two"])
    server.down = True
    answer = clone.capsule("run")
    assert answer.code == 3 and "origin/main cannot be reached" in answer.err, answer
    assert clone.events("one") == clone.events("two") == []


def prepared(project: Project, server: GitServer, folder: Path, names: list[str], **files: str) -> Clone:
    """A clone of a remote that has these items to do."""
    project.write(".capsule/workflows/short.yaml", FLOW)
    for name, text in files.items():
        project.write(name, text)
    project.commit("what is to be done")
    clone = clone_of(server.host(project.path), folder / "clone")
    clone.set_up(server, names)
    return clone


def clone_of(bare: Path, folder: Path) -> Clone:
    folder.mkdir()
    run("clone", "-q", str(bare), str(folder / "project"))
    clone = Clone(folder / "project", folder)
    clone.git("config", "user.name", "Ada")
    clone.git("config", "user.email", "ada@example.org")
    return clone


def bare_with(bare: Path, clone: Clone) -> Path:
    """The server, whose history has every commit that a clone's main may be at."""
    assert run("cat-file", "-t", clone.head(), cwd=bare) == "commit"
    return bare


@contextmanager
def a_person_pushing(bare: Path, folder: Path) -> Iterator[list[str]]:
    """Somebody pushes a commit every few seconds, as people do: they fetch first, and force nothing."""
    run("clone", "-q", str(bare), str(folder))
    person, pushed, over, chance = Repo(folder), list[str](), threading.Event(), random.Random(0)

    def push() -> None:
        for number in count():
            if over.wait(chance.uniform(*EVERY) if pushed else 0):
                return
            person.git("fetch", "-q", "origin")
            person.git("reset", "-q", "--hard", "origin/main")
            commit = person.commit(f"by a person {number}", **{f"person-{number}": "x\n"})
            try:
                person.git("push", "-q", "origin", "HEAD:main")
            except AssertionError:
                continue  # somebody was faster
            pushed.append(commit)

    thread = threading.Thread(target=push)
    thread.start()
    try:
        yield pushed
    finally:
        over.set()
        thread.join(LONG)


def assert_only_forward(bare: Path, first: str, theirs: list[str]) -> None:
    """No push was forced, and no commit of a person was lost."""
    moves = moves_of(bare, MAIN)
    assert [old for old, _ in moves] == [first, *(new for _, new in moves[:-1])]
    for old, new in moves:
        run("merge-base", "--is-ancestor", old, new, cwd=bare)
    assert {*theirs} <= {new for _, new in moves} and theirs


def assert_each_is_green(bare: Path, first: str, folder: Path) -> None:
    """Every commit that main was at passes the tests, tried by themselves."""
    for _, commit in [("", first), *moves_of(bare, MAIN)]:
        run("clone", "-q", "--no-checkout", str(bare), str(folder))
        run("checkout", "-q", commit, cwd=folder)
        Repo(folder).write("all.sh", TESTS)
        assert _exit_code(folder) == 0, commit
        shutil.rmtree(folder)


def _exit_code(folder: Path) -> int:
    return subprocess.run(["sh", "all.sh"], cwd=folder, check=False).returncode
