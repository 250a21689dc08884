"""Lock files that nobody holds, and a repository that was moved between runs: no agent is accused, the work goes on."""

from __future__ import annotations

import os
import time
from signal import SIGKILL

import pytest

from ..commands.conftest import ITEM, Project, assert_clear, honest, said
from ..conftest import UNSANDBOXED
from .attacks import LOCKS, Attack
from .conftest import LEAVING, Evil, plain_git

_FOLDERS = ("", "git", "git/info", "locks", "places", f"places/{ITEM}", "watched", "leaving")
_INSTEAD = ("file", "pipe", "dangling link")
IN_THE_WAY = [
    pytest.param(name, instead, marks=() if (number + turn) % len(_INSTEAD) == 0 else pytest.mark.soak)
    for number, name in enumerate(_FOLDERS)
    for turn, instead in enumerate(_INSTEAD)
]
"""Each folder once in `make live`, with one thing after the other in its place; the others in `make soak`."""


@pytest.mark.promise("attacks.locks-and-moves")
@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_planted_lock_is_removed_and_told_and_the_mission_merges(
    a_project: Project, evil: Evil, lock: Attack
) -> None:
    (script,) = evil.scripts(a_project.path, [lock], LEAVING)
    a_project.play(honest(execute=[said("PASS", run=[script], write={"answer": "42\n"})]))
    answer = a_project.run(**UNSANDBOXED)
    assert answer.code == 0, answer
    assert not (a_project.path / ".git" / lock.name).exists()
    told = " ".join((answer.out + answer.err).split())
    assert f".git/{lock.name} was left behind by no running git, and removed" in told


def move(project: Project) -> None:
    project.path = project.path.rename(project.path.parent / "moved")


def assert_goes_on(project: Project, level: dict[str, str]) -> None:
    project.play(honest())
    answer = project.run(**level)
    assert answer.code == 0, answer
    assert "Quarantined" not in answer.out
    assert project.answer() == "42"
    assert len(plain_git("worktree", "list", cwd=project.path).splitlines()) == 1
    project.fsck()


@pytest.mark.promise("attacks.locks-and-moves")
def test_a_halted_mission_goes_on_in_a_repository_that_was_moved(a_project: Project, level: dict[str, str]) -> None:
    a_project.play(honest(execute=[said("ERROR", "the disk is full")]))
    assert a_project.run(**level).code == 2
    move(a_project)
    assert a_project.capsule("show", "demo-1.1").code == 0
    assert_goes_on(a_project, level)


@pytest.mark.promise("attacks.locks-and-moves")
def test_a_killed_mission_goes_on_in_a_repository_that_was_moved(a_project: Project, level: dict[str, str]) -> None:
    a_project.play(honest(execute=[said("PASS", run=["touch .capsule/done; sleep 60"])]))
    with a_project.running(**level) as process:
        deadline = time.monotonic() + 60
        while not (a_project.worktree / ".capsule/done").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(SIGKILL)
        process.wait(30)
    move(a_project)
    assert_goes_on(a_project, level)


@pytest.mark.parametrize(("name", "instead"), IN_THE_WAY)
def test_what_stands_in_the_place_of_a_folder_of_ours_is_named_and_without_it_the_mission_goes_on(
    a_project: Project, name: str, instead: str
) -> None:
    a_project.play(honest(execute=[said("FAIL"), said("ERROR")]))
    a_project.run()
    ours = a_project.path / ".git/capsule" / name
    kept = ours.with_name("kept-elsewhere")
    if ours.exists():
        ours.rename(kept)
    if instead == "file":
        ours.write_text("")
    elif instead == "pipe":
        os.mkfifo(ours)
    else:
        ours.symlink_to("/nowhere/at/all")
    a_project.play(honest())
    assert_clear(a_project.run(), 2, f"{ours} is ", "Put a folder" if instead == "dangling link" else "Move it away")
    ours.unlink()
    if kept.exists() and name == "":
        kept.rename(ours)
    assert a_project.run().code == 0
    assert a_project.answer() == "42"
