"""Projects in odd places: a path that is no text, a path of two lines, a file system without locks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .backlog_project import BacklogProject
from .conftest import ITEM, Project, Said, assert_clear, nothing_changes

pytestmark = pytest.mark.slow

ODD = {"two lines": b"two\nlines", "quotes": b'it\'s "so" \\ $HOME', "an end": b"ends\n"}


def moved(project: Project, name: bytes) -> None:
    target = project.path.with_name(os.fsdecode(name))
    try:
        project.path.rename(target)
    except OSError as error:
        pytest.skip(f"this file system does not take the name: {error.strerror}")
    project.path = target


@pytest.mark.sweep
@pytest.mark.promise("errors.odd-paths")
@pytest.mark.parametrize("sandbox", ["off", "auto"])
@pytest.mark.parametrize("odd", ODD)
def test_a_mission_is_merged_wherever_the_project_lies(a_project: Project, odd: str, sandbox: str) -> None:
    moved(a_project, ODD[odd])
    answer = a_project.run(CAPSULE_SANDBOX=sandbox)
    assert answer.code == 0, answer
    assert a_project.answer() == "42"
    assert (a_project.path / "answer").read_text() == "42\n"
    assert a_project.dirt() == ""
    for words in (("show", ITEM), ("show", ITEM, "--json"), ("status",), ("logs", ITEM), ("report", ITEM), ("doctor",)):
        said = a_project.capsule(*words)
        assert "bug" not in said.err, said
        assert said.code == 0, said


@pytest.mark.parametrize("odd", ODD)
def test_a_backlog_is_worked_on_wherever_the_project_lies(a_backlog: BacklogProject, odd: str) -> None:
    moved(a_backlog, ODD[odd])
    a_backlog.capsule("add", "Find the answer")
    answer = a_backlog.capsule("run")
    assert answer.code == 0, answer
    assert (a_backlog.path / "answer").read_text() == "42\n"
    assert a_backlog.git("status", "--porcelain") == ""


@pytest.mark.parametrize("odd", ODD)
def test_a_mission_that_halted_is_told_about_wherever_the_project_lies(a_project: Project, odd: str) -> None:
    moved(a_project, ODD[odd])
    a_project.play({})
    for words in (("run", ITEM), ("run", ITEM, "--output=json"), ("abort", ITEM), ("clean", ITEM)):
        answer = a_project.capsule(*words)
        assert "bug" not in answer.err, answer


@pytest.mark.promise("errors.odd-paths")
@pytest.mark.parametrize("command", ["run", "prep", "status", "add", "init", "abort", "clean", "show", "doctor"])
def test_a_path_that_is_no_text_is_refused_before_anything_is_made(a_project: Project, command: str) -> None:
    moved(a_project, b"br\xe9ak")
    words = {"status": (), "init": (), "doctor": (), "add": ("Another",)}.get(command, (ITEM,))
    with nothing_changes(a_project):
        answer = a_project.capsule(command, *words)
    assert "bug" not in answer.err, answer
    if command != "doctor":
        assert_clear(answer, answer.code, "br\\xe9ak is not valid UTF-8", "Rename the folder")
        assert answer.code


def test_a_git_directory_whose_path_is_no_text_is_refused_too(a_project: Project, tmp_path: Path) -> None:
    store = tmp_path / os.fsdecode(b"br\xe9ak")
    try:
        (a_project.path / ".git").rename(store)
    except OSError as error:
        pytest.skip(f"this file system does not take the name: {error.strerror}")
    (a_project.path / ".git").symlink_to(store)
    assert_clear(a_project.run(), 2, "br\\xe9ak is not valid UTF-8", "Rename the folder")


def _without_locks(project: Project, fault: str, *words: str) -> Said:
    """The real program, on a kernel that answers as a file system without locks does."""
    strace = shutil.which("strace")
    if not strace:
        pytest.skip("strace is not installed")
    traced = [strace, "-f", "-qq", "-o", os.devnull, "-e", "trace=flock", "-e", f"inject=flock:error={fault}"]
    program = [sys.executable, "-m", "capsule", *words]
    try:
        done = subprocess.run(
            [*traced, *program], cwd=project.path, env=project.environment(), capture_output=True, check=False
        )
    except OSError as error:
        pytest.skip(f"strace does not work here: {error}")
    if b"ptrace" in done.stderr:
        pytest.skip("strace may not trace here")
    return Said(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))


@pytest.mark.sweep
@pytest.mark.promise("errors.odd-paths")
@pytest.mark.parametrize("fault", ["ENOLCK", "EOPNOTSUPP", "ENOSYS"])
@pytest.mark.parametrize("command", ["run", "prep"])
def test_a_file_system_without_locks_is_named_before_anything_is_made(
    a_project: Project, fault: str, command: str
) -> None:
    refs = a_project.git("for-each-ref")
    answer = _without_locks(a_project, fault, command, ITEM)
    assert_clear(answer, {"run": 2, "prep": 1}[command], "does not support file locks", "Move the repository")
    assert str(a_project.path) in answer.err
    assert a_project.git("for-each-ref") == refs
    assert not a_project.worktree.exists()
    assert a_project.status_of() == "open"


@pytest.mark.parametrize("command", ["status", "show"])
def test_reading_needs_no_locks(a_merged_mission: Project, command: str) -> None:
    answer = _without_locks(a_merged_mission, "ENOLCK", command, *([ITEM] if command == "show" else []))
    assert answer.code == 0, answer
