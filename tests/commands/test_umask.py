"""Files of ours are never writable by others, whatever the umask; agents and tests have the umask of their user."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .backlog_project import BacklogProject
from .conftest import COMMIT, ITEM, Project, honest, said


@contextmanager
def masked(umask: int) -> Iterator[None]:
    before = os.umask(umask)
    try:
        yield
    finally:
        os.umask(before)


def ours(project: Project) -> list[Path]:
    """Capsule's own folders with all that is in them, but for what lies in an agent's own place."""
    tops = (project.path / ".capsule", project.path / ".git" / "capsule")
    found = [path for top in tops for path in (top, *top.rglob("*")) if "worktrees" not in path.parts]
    return [
        path for path in found if not path.is_symlink() and path.name not in ("config.yaml", "prompts", "workflows")
    ]


def writable_by_others(paths: list[Path]) -> list[str]:
    return [str(path) for path in paths if path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)]


@pytest.fixture
def with_open_hands(a_project: Project) -> Iterator[Project]:
    """A project whose user gives everything to everybody."""
    for path in (a_project.path / ".capsule", *(a_project.path / ".capsule").rglob("*")):
        path.chmod(path.stat().st_mode & ~0o022)
    with masked(0):
        yield a_project


@pytest.mark.slow
@pytest.mark.promise("durability.umask")
def test_nothing_of_ours_is_writable_by_others_while_a_mission_runs_and_afterwards(with_open_hands: Project) -> None:
    project = with_open_hands
    assert project.capsule("step", ITEM).code == 0
    assert len(ours(project)) > 20
    assert writable_by_others(ours(project)) == []
    assert writable_by_others([project.worktree / "worklog.md"]) == []
    answer = project.run()
    assert answer.code == 0, answer
    assert writable_by_others(ours(project)) == []


@pytest.mark.slow
def test_nothing_of_ours_is_writable_by_others_in_a_backlog(a_backlog: BacklogProject) -> None:
    for path in (a_backlog.path / ".git" / "capsule", *(a_backlog.path / ".git" / "capsule").rglob("*")):
        path.chmod(path.stat().st_mode & ~0o022)
    with masked(0):
        a_backlog.add()
        assert a_backlog.capsule("run").code == 0
    logs = list((a_backlog.path / "_worklog").rglob("*"))
    assert logs
    assert writable_by_others([*ours(a_backlog), *logs]) == []


@pytest.mark.slow
@pytest.mark.promise("durability.umask")
def test_agents_and_tests_have_the_umask_of_their_user(with_open_hands: Project) -> None:
    project = with_open_hands
    test = "umask\ngrep -qx 42 answer\n"
    project.play(honest(test_writer=[said("PASS", run=["umask"], write={"tests/test_answer.sh": test})]))
    with masked(0o002):
        assert project.run().code == 0
    outputs = project.path / ".capsule" / "logs" / ITEM / "phase-outputs"
    printed = {file.name: file.read_text().split() for file in outputs.iterdir()}
    assert any("0002" in words for name, words in printed.items() if name.startswith("test-writer"))
    assert any("0002" in words for name, words in printed.items() if "gate" in name or "test" in name)
    assert not any("0022" in words for words in printed.values())


@pytest.mark.slow
def test_what_is_brought_into_the_checkout_has_the_modes_that_git_would_give_it(a_project: Project) -> None:
    merge = [said("PASS", run=["git add -A", COMMIT])]
    written = {"answer": "42\n", "new/folder/file": "new\n"}
    a_project.play(honest(execute=[said("PASS", write=written)], merge=merge))
    with masked(0o002):
        assert a_project.run().code == 0
    modes = {
        name: (a_project.path / name).stat().st_mode & 0o777 for name in ("answer", "new/folder", "new/folder/file")
    }
    assert modes == {"answer": 0o664, "new/folder": 0o775, "new/folder/file": 0o664}


@pytest.mark.slow
def test_a_stricter_umask_stays_as_strict(a_project: Project) -> None:
    with masked(0o077):
        assert a_project.run().code == 0
    logs = [path for path in (a_project.path / ".capsule" / "logs").rglob("*") if path.is_file()]
    assert logs
    assert [str(path) for path in logs if path.stat().st_mode & 0o077] == []
