"""People are warned before worktrees and gates fill the disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from capsule.system.git import Git
from capsule.workspaces.disk_space import disk_shortage
from capsule.workspaces.git_worktree import GitWorktree

from ..conftest import Repo

MB = 1 << 20


class Usage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def a_full_disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Every disk has as much left as this says: a small one of its own takes a mount, which tests cannot make."""
    left = {"free": 0}
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(1 << 40, 0, left["free"]))
    return left


@pytest.mark.promise("side-by-side.disk")
def test_what_is_left_is_compared_with_the_files_and_the_number_of_missions(
    a_repo: Repo, tmp_path: Path, a_full_disk: dict[str, int]
) -> None:
    (a_repo.path / "large").write_bytes(bytes(40 * MB))
    a_repo.commit("large")
    git, env = Git.find(a_repo.path), {"HOME": str(tmp_path)}
    a_full_disk["free"] = 479 * MB
    said = disk_shortage(git, env)
    assert said.startswith(
        f"479 MB are left on the disk of {a_repo.path}, and a mission of this project needs about 480"
    )
    a_full_disk["free"] = 500 * MB
    assert disk_shortage(git, env) == ""
    assert "500 MB are left" in disk_shortage(git, env, 2)
    assert "2 missions of this project need about 960 MB" in disk_shortage(git, env, 2)
    a_full_disk["free"] = 1 << 40
    assert disk_shortage(git, env, 50) == ""


@pytest.mark.promise("side-by-side.disk")
def test_a_mission_tells_once_that_the_disk_fills_up(a_repo: Repo) -> None:
    said = ["", "little is left", "little is left"]
    place = GitWorktree(Git.find(a_repo.path), "x-1", disk_shortage=lambda: said.pop(0))
    assert [*place.notices()] == []
    assert [*place.notices()] == ["little is left"]
    assert [*place.notices()] == []
