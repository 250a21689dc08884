"""What everyone may count on when main at a remote moves: only as built, only forward, and nobody loses a byte."""

from __future__ import annotations

import subprocess
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


# What becomes of the user's branch and checkouts

FOLLOWS = {
    "clean": "",
    "edited elsewhere": "echo mine > mine; echo edited >> README",
    "staged elsewhere": "echo mine > mine; git add mine",
    "deleted elsewhere": "rm README",
    "detached": "git switch -q --detach",
    "another branch, edited": "git switch -q -c feature; echo mine > new; echo edited >> README",
    "in another worktree": "git switch -q -c feature; git worktree add -q ../theirs main",
    "in another worktree, edited elsewhere": "git switch -q -c feature; git worktree add -q ../theirs main; "
    "echo edited >> ../theirs/README",
    "removed": "git switch -q -c feature; git branch -q -D main",
}
"""Situations of the user's in which their branch follows, or there is none."""
STAYS = {
    "ahead": ("git commit -q --allow-empty -m mine", "it has commits that origin/main lacks"),
    "diverged": ("git reset -q --hard HEAD~1; git commit -q --allow-empty -m mine", "it has commits that origin/main"),
    "edited": ("echo mine >> README", "uncommitted edit of README"),
    "staged": ("echo mine > new; git add new", "uncommitted edit of new"),
    "not tracked": ("echo mine > new", "uncommitted edit of new"),
    "in another worktree, edited": (
        "git switch -q -c feature; git worktree add -q ../theirs main; echo mine > ../theirs/new",
        "uncommitted edit of new",
    ),
    "in the middle of a merge": (
        "git switch -q -c side HEAD~1; echo a > both; git add both; git commit -qm a; git switch -q main; "
        "git merge -q --no-commit --no-ff side",
        "",
    ),
}
"""Situations in which it stays where it is, and what is said."""


def theirs(repo: Repo) -> dict[str, object]:
    """What a user has in their checkouts that is in no commit, and where they are."""
    found: dict[str, object] = {}
    for place in (repo.path, repo.path.parent / "theirs"):
        if place.exists():
            at = Repo(place)
            rows = [line for line in at.status().splitlines() if line]
            files = {row: (place / row[3:]).read_bytes() if (place / row[3:]).is_file() else b"" for row in rows}
            found |= {f"{place.name}/{row}": content for row, content in files.items()}
            found[f"{place.name} is on"] = at.git("branch", "--show-current")
    return found


@pytest.mark.promise("remote.follows")
@pytest.mark.parametrize("situation", FOLLOWS)
def test_the_users_branch_follows_where_that_loses_nothing(merge: Merge, situation: str) -> None:
    candidate = merge.propose(new="x")
    shell(FOLLOWS[situation], merge.repo.path)
    before, head = theirs(merge.repo), merge.repo.head()
    assert merge.trunk.publish(candidate) == Published(moved=True)
    assert theirs(merge.repo) == before
    assert merge.main() == candidate.commit
    assert merge.repo.refs("refs/heads/main") if situation != "removed" else not merge.repo.refs("refs/heads/main")
    assert situation == "removed" or merge.repo.head("main") == candidate.commit
    on_main = [place for place in (merge.repo.path, merge.repo.path.parent / "theirs") if _is_on_main(place)]
    assert all((place / "new").read_text() == "x" for place in on_main)
    assert merge.repo.path in on_main or merge.repo.head() == head


@pytest.mark.promise("remote.follows")
@pytest.mark.parametrize("situation", STAYS)
def test_the_users_branch_stays_where_following_would_lose_something(merge: Merge, situation: str) -> None:
    command, words = STAYS[situation]
    candidate = merge.propose(new="x", README="changed\n")
    shell(command, merge.repo.path)
    before, main = theirs(merge.repo), merge.repo.head("main")
    published = merge.trunk.publish(candidate)
    assert published.moved and merge.main() == candidate.commit
    (remark,) = published.remarks
    assert remark.startswith("your branch main stays where it is: ") and words in remark
    assert theirs(merge.repo) == before and merge.repo.head("main") == main


def _is_on_main(place: Path) -> bool:
    return place.exists() and Repo(place).git("branch", "--show-current") == "main"


def shell(command: str, cwd: Path) -> None:
    subprocess.run(["sh", "-ec", command], cwd=cwd, check=True, capture_output=True)
