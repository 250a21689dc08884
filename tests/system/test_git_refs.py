"""Refs and worktrees read from their files read as git reads them; where something is odd about them, git is asked."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from capsule.system.git import Git
from capsule.system.git_directory import read_head, read_ref

from ..conftest import Repo

WORK, MAIN = "refs/heads/work", "refs/heads/main"
ZEROS = "0" * 40


def _loose(repo: Repo, content: str, more: str = "") -> None:
    (repo.path / ".git" / f"{WORK}{more}").write_text(content)


def _being_written(repo: Repo) -> None:
    repo.git("branch", "work")
    _loose(repo, "", ".lock")


def _a_folder_of_others(repo: Repo) -> None:
    """Some packed, some not, and a neighbour whose name only begins like theirs."""
    for name in ("work/one", "work/two/three", "workshop"):
        repo.git("branch", name)
    repo.git("pack-refs", "--all")
    repo.git("branch", "work/four", "HEAD~1")
    repo.git("branch", "-f", "work/one", "HEAD~1")


def _linked(repo: Repo) -> None:
    target = repo.path / ".git" / "elsewhere"
    target.write_text(f"{repo.head()}\n")
    (repo.path / ".git" / WORK).symlink_to(target)


def _packed(repo: Repo) -> None:
    repo.git("branch", "work")
    repo.git("pack-refs", "--all")


def _packed_and_moved(repo: Repo) -> None:
    _packed(repo)
    repo.git("branch", "-f", "work", "HEAD~1")


Situation = Callable[[Repo], object]

PLAIN: dict[str, Situation] = {
    "a branch": lambda repo: repo.git("branch", "work", "HEAD~1"),
    "one that was packed and has moved since": _packed_and_moved,
    "none": lambda _: None,
    "one whose commit is gone": lambda repo: _loose(repo, f"{'12' * 20}\n"),
    "packed": _packed,
    "taken away": lambda repo: (repo.git("branch", "work"), repo.git("branch", "-D", "work")),
    "others are packed": lambda repo: repo.git("pack-refs", "--all"),
    "means another one": lambda repo: repo.git("symbolic-ref", WORK, "refs/heads/main"),
    "means a packed one": lambda repo: (repo.git("pack-refs", "--all"), repo.git("symbolic-ref", WORK, MAIN)),
    "a folder of others": _a_folder_of_others,
    "being written": _being_written,
}
ODD: dict[str, Situation] = {
    "a link": _linked,
    "means one that is not there": lambda repo: repo.git("symbolic-ref", WORK, "refs/heads/nowhere"),
    "means itself": lambda repo: _loose(repo, f"ref: {WORK}\n"),
    "zeros": lambda repo: _loose(repo, f"{ZEROS}\n"),
    "no end of line": lambda repo: _loose(repo, repo.head()),
    "more than an id": lambda repo: _loose(repo, f"{repo.head()} and more\n"),
    "capitals": lambda repo: _loose(repo, f"{repo.head().upper()}\n"),
    "empty": lambda repo: _loose(repo, ""),
}


def _as_git_says(repo: Repo, *patterns: str) -> dict[str, str]:
    rows = repo.git("for-each-ref", "--format=%(refname) %(objectname)", *(patterns or (WORK,))).splitlines()
    return dict(row.split(" ") for row in rows)


@pytest.mark.parametrize("situation", PLAIN)
def test_a_plain_ref_is_read_without_a_git(a_repo: Repo, git: Git, situation: str) -> None:
    PLAIN[situation](a_repo)
    told, calls = _as_git_says(a_repo), git.calls
    assert git.refs(WORK) == told
    assert git.ref(WORK) == told.get(WORK, "")
    assert git.calls == calls


def test_all_refs_of_a_clone_are_read_without_a_git(a_repo: Repo) -> None:
    a_repo.git("tag", "-a", "-m", "told", "v1")
    a_repo.git("clone", "-q", ".", "../clone")
    clone = Repo(a_repo.path.parent / "clone")
    clone.git("branch", "more")
    git = Git.find(clone.path)
    seen = ("refs/heads", "refs/tags", "refs/remotes")
    calls = git.calls
    assert git.refs(*seen) == _as_git_says(clone, *seen)
    assert "refs/remotes/origin/HEAD" in git.refs(*seen)
    assert git.calls == calls


@pytest.mark.parametrize("situation", ODD)
def test_what_is_odd_about_a_ref_is_for_git_to_say(a_repo: Repo, git: Git, situation: str) -> None:
    ODD[situation](a_repo)
    assert read_ref(git.common_dir, WORK) is None
    assert git.refs(WORK) == _as_git_says(a_repo)


@pytest.mark.parametrize("name", ("refs/heads/../../HEAD", "refs/heads//main", "refs/heads/main.lock", "HEAD", "main"))
def test_what_is_no_whole_name_is_not_read(a_repo: Repo, git: Git, name: str) -> None:
    (a_repo.path / ".git/refs/heads/main.lock").write_text(f"{a_repo.head()}\n")
    assert read_ref(git.common_dir, name) is None


def test_a_ref_is_read_anew_each_time(a_repo: Repo, git: Git) -> None:
    assert git.ref("refs/heads/main") == a_repo.head()
    first = a_repo.head("HEAD~1")
    a_repo.git("update-ref", "refs/heads/main", first)
    assert git.ref("refs/heads/main") == first


def test_refs_that_are_stored_in_another_way_are_not_taken_for_gone(a_repo: Repo, git: Git) -> None:
    shutil.rmtree(a_repo.path / ".git/refs/heads")
    (a_repo.path / ".git/refs/heads").write_text("this repository keeps its refs elsewhere\n")
    assert read_ref(git.common_dir, WORK) is None
    assert read_ref(git.common_dir, "refs/capsule/base/x-1") is None


def test_what_a_worktree_is_on(a_repo: Repo, git: Git) -> None:
    assert read_head(git.common_dir) == "refs/heads/main"
    a_repo.git("checkout", "-q", "--detach")
    assert read_head(git.common_dir) == a_repo.head()
    (a_repo.path / ".git/HEAD").write_text("ref: refs/elsewhere\n")
    assert read_head(git.common_dir) is None


def test_the_head_of_a_repository_with_reftables_is_for_git_to_say(a_repo: Repo, git: Git) -> None:
    """Its HEAD is no file that says anything: git writes the name of no branch into it."""
    (a_repo.path / ".git/HEAD").write_text("ref: refs/heads/.invalid\n")
    assert read_head(git.common_dir) is None


def _beside(repo: Repo, *words: str) -> str:
    return repo.git("worktree", "add", "-q", *words)


def _gone(repo: Repo) -> None:
    _beside(repo, "-b", "work", "../beside")
    shutil.rmtree(repo.path.parent / "beside")


def _by_a_relative_path(repo: Repo) -> None:
    _beside(repo, "-b", "work", "../beside")
    (repo.path / ".git/worktrees/beside/gitdir").write_text("../../../../beside/.git\n")


LISTED: dict[str, Situation] = {
    "the main one alone": lambda _: None,
    "on a branch": lambda repo: _beside(repo, "-b", "work", "../beside"),
    "detached": lambda repo: _beside(repo, "--detach", "../beside"),
    "both, and the main one detached": lambda repo: (
        _beside(repo, "--detach", "../z"),
        _beside(repo, "-b", "work", "../a"),
        repo.git("checkout", "-q", "--detach"),
    ),
    "gone": _gone,
    "on a packed branch": lambda repo: repo.git("pack-refs", "--all"),
}
ASKED: dict[str, Situation] = {
    "no commit yet": lambda repo: repo.git("symbolic-ref", "HEAD", "refs/heads/new"),
    "by a relative path": _by_a_relative_path,
    "in the middle of being made": lambda repo: (repo.path / ".git/worktrees/half").mkdir(parents=True),
}


@pytest.mark.parametrize("situation", LISTED)
def test_worktrees_are_listed_without_a_git(a_repo: Repo, git: Git, situation: str) -> None:
    LISTED[situation](a_repo)
    calls = git.calls
    found = git.checkouts()
    assert git.calls == calls
    assert found[0].path == git.root
    assert found == git._list_worktrees()


@pytest.mark.parametrize("situation", ASKED)
def test_worktrees_that_are_odd_are_for_git_to_list(a_repo: Repo, git: Git, situation: str) -> None:
    ASKED[situation](a_repo)
    calls = git.calls
    assert git.checkouts() == git._list_worktrees()
    assert git.calls == calls + 2
