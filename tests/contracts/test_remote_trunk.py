"""What everyone may count on when main at a remote moves: only as built, only forward, and nobody loses a byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule.adapters import Candidate, Published, Trunk
from capsule.core.errors import RemoteFault
from capsule.core.remote import Kind
from capsule.system.git import Git
from capsule.workspaces.remote import Remote
from capsule.workspaces.remote_trunk import RemoteTrunk

from ..conftest import Repo
from ..git_server import moves_of, run

MAIN = "refs/heads/main"
WORKS = "refs/capsule/missions/"


class Merge:
    """Work on a branch, ready to be merged into main of a remote; main here is checked out by its user."""

    def __init__(self, repo: Repo, folder: Path) -> None:
        self.repo, self.base, self.bare = repo, repo.head(), folder / "server.git"
        run("clone", "-q", "--bare", str(repo.path), str(self.bare))
        run("config", "core.logAllRefUpdates", "always", cwd=self.bare)
        repo.git("remote", "add", "origin", str(self.bare))
        self.worktree = Repo(folder / "elsewhere")
        repo.git("worktree", "add", "-q", "-b", "work", str(self.worktree.path))
        self.trunk = self.anew()

    def anew(self) -> RemoteTrunk:
        """As another process has it."""
        git = Git.find(self.repo.path)
        return RemoteTrunk(git, "main", Remote(git), "main", WORKS)

    def main(self) -> str:
        return run("rev-parse", MAIN, cwd=self.bare)

    def by_a_person(self) -> str:
        tree = run("rev-parse", f"{MAIN}^{{tree}}", cwd=self.bare)
        commit = run("commit-tree", tree, "-p", MAIN, "-m", "theirs", cwd=self.bare)
        run("update-ref", MAIN, commit, cwd=self.bare)
        return commit

    def propose(self, **files: str) -> Candidate:
        self.worktree.commit("the work", **files)
        return self.trunk.propose(self.worktree.head(), self.base, "Merge x-1: title")


@pytest.fixture
def merge(a_repo: Repo, tmp_path: Path) -> Merge:
    return Merge(a_repo, tmp_path)


def test_it_is_a_trunk_and_is_where_it_was_fetched(merge: Merge) -> None:
    adapter: Trunk = merge.trunk
    assert (adapter.branch, adapter.at_remote, adapter.tip()) == ("origin/main", "origin", merge.base)
    theirs = merge.by_a_person()
    assert adapter.tip() == merge.base
    adapter.refresh()
    assert adapter.tip() == theirs and adapter.holds(theirs)


@pytest.mark.promise("remote.merged", "remote.follows")
def test_publishing_pushes_the_work_then_main_and_can_be_repeated(merge: Merge) -> None:
    candidate = merge.propose(new="x")
    for trunk in (merge.trunk, merge.anew(), merge.anew()):
        assert trunk.publish(candidate, {"x-1": candidate.commit}) == Published(moved=True)
    assert moves_of(merge.bare, MAIN) == [(merge.base, candidate.commit)]
    assert run("rev-parse", f"{WORKS}x-1", cwd=merge.bare) == merge.worktree.head()
    assert merge.repo.head("main") == candidate.commit and merge.repo.status() == ""
    assert (merge.repo.path / "new").read_text() == "x"


@pytest.mark.promise("remote.lease")
def test_what_was_built_on_an_older_tip_moves_nothing(merge: Merge) -> None:
    candidate = merge.propose(new="x")
    theirs = merge.by_a_person()
    assert merge.trunk.publish(candidate) == Published(moved=False)
    merge.trunk.refresh()
    assert merge.trunk.publish(candidate) == Published(moved=False)
    assert merge.main() == theirs and merge.repo.head("main") == merge.base


def test_work_that_is_built_again_takes_the_place_of_what_was_pushed_before(merge: Merge) -> None:
    first = merge.propose(new="x")
    merge.by_a_person()
    assert not merge.trunk.publish(first, {"x-1": first.commit}).moved
    merge.worktree.git("reset", "-q", "--hard", merge.base)
    merge.trunk.refresh()
    second = merge.propose(new="y")
    assert merge.trunk.publish(second, {"x-1": second.commit}).moved
    assert run("show", f"{WORKS}x-1:new", cwd=merge.bare) == "y"


@pytest.mark.promise("remote.work")
def test_what_somebody_else_has_put_in_the_place_of_the_work_is_not_overwritten(merge: Merge) -> None:
    candidate, theirs = merge.propose(new="x"), merge.by_a_person()
    run("update-ref", f"{WORKS}x-1", theirs, cwd=merge.bare)
    run("update-ref", MAIN, merge.base, cwd=merge.bare)
    with pytest.raises(RemoteFault, match="the work of another clone") as caught:
        merge.trunk.publish(candidate, {"x-1": candidate.commit})
    assert "Ask " in caught.value.hint and f"git fetch origin {WORKS}x-1" in caught.value.hint
    assert run("rev-parse", f"{WORKS}x-1", cwd=merge.bare) == theirs and merge.main() == merge.base


@pytest.mark.promise("remote.follows")
def test_checkouts_that_a_crash_left_behind_follow_the_next_time(merge: Merge) -> None:
    """The user's branch has moved, its files have not, and the note says from where."""
    candidate = merge.propose(new="x")
    assert merge.trunk.publish(candidate).moved
    merge.repo.git("rm", "-q", "--cached", "new")
    (merge.repo.path / "new").unlink()
    assert merge.repo.status() == "D  new"
    note = merge.repo.path / ".git/capsule/following.json"
    note.write_text(f'{{"branch": "main", "old": "{merge.base}"}}')
    assert merge.anew().publish(candidate).moved
    assert merge.repo.status() == "" and not note.exists()


def test_a_note_of_nonsense_is_thrown_away(merge: Merge) -> None:
    candidate = merge.propose(new="x")
    note = merge.repo.path / ".git/capsule/following.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text("{")
    assert merge.trunk.publish(candidate) == Published(moved=True)
    assert not note.exists()


def test_a_remote_that_is_gone_says_so_and_nothing_moves(merge: Merge) -> None:
    candidate = merge.propose(new="x")
    merge.bare.rename(merge.bare.with_name("away"))
    with pytest.raises(RemoteFault) as caught:
        merge.trunk.publish(candidate)
    assert caught.value.trouble.kind is Kind.ABSENT
    assert merge.repo.head("main") == merge.base
