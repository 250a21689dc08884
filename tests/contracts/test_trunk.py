"""What everyone may count on when main moves: it moves only as built, and nobody's checkout loses a byte."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from capsule.adapters import BranchStep, Candidate, Published, Trunk
from capsule.core.errors import CapsuleError, Overlap, Refused
from capsule.core.merge_queue import BATCH
from capsule.system import git_locks
from capsule.system.git import Git
from capsule.workspaces.checkouts import bring_along
from capsule.workspaces.trees import with_files
from capsule.workspaces.trunk import GitTrunk
from tests.costs import LONG

from ..conftest import Repo
from .test_workspaces import NAMES, a_git_that_dies, can_trace


class Merge:
    """Work on a branch, ready to be merged; main is checked out by its user."""

    def __init__(self, repo: Repo, git: Git) -> None:
        self.repo = repo
        self.base = repo.head()
        self.trunk = GitTrunk(git, "main")
        self.worktree = Repo(repo.path.parent / "elsewhere")
        repo.git("worktree", "add", "-q", "-b", "work", str(self.worktree.path))

    def work(self, **files: str) -> str:
        return self.worktree.commit("the work", **files)

    def propose(self) -> Candidate:
        return self.trunk.propose(self.worktree.head(), self.base, "Merge x-1: title")

    def publish(self) -> Published:
        return self.trunk.publish(self.propose())


@pytest.fixture
def merge(a_repo: Repo, git: Git) -> Merge:
    return Merge(a_repo, git)


@pytest.fixture
def busy_merge(merge: Merge) -> Merge:
    """Work that changes, adds, removes and retypes, in and out of folders."""
    there = merge.repo
    there.write("gone/deep/file", "old\n")
    there.write("link", "a file\n")
    there.write("was_file", "old\n")
    there.write("was_folder/inner", "old\n")
    there.write("tool.sh", "run\n")
    merge.base = there.commit("much")
    merge.worktree.git("reset", "-q", "--hard", "main")
    work = merge.worktree.path
    shutil.rmtree(work / "gone")
    (work / "link").unlink()
    (work / "link").symlink_to("README")
    (work / "was_file").unlink()
    (work / "was_file").mkdir()
    (work / "was_file/inner").write_text("new\n")
    shutil.rmtree(work / "was_folder")
    (work / "was_folder").write_text("new\n")
    (work / "tool.sh").chmod(0o755)
    for name in NAMES:
        (work / name).write_text("new\n")
    merge.work(README="new\n", **{"fresh/deep/file": "new\n"})
    return merge


def test_is_a_trunk(merge: Merge) -> None:
    adapter: Trunk = merge.trunk
    assert adapter.tip() == merge.base
    assert adapter.holds(merge.base)


def test_a_commit_that_was_thrown_away_is_not_held(merge: Merge) -> None:
    merge.work(README="new\n")
    lost = merge.propose().commit
    merge.repo.git("gc", "-q", "--prune=now")
    assert not merge.trunk.holds(lost)


def test_a_trunk_that_is_not_there_says_so(git: Git) -> None:
    with pytest.raises(Refused, match="The branch nowhere no longer exists"):
        GitTrunk(git, "nowhere").tip()


def test_only_commits_that_hold_the_base_are_steps_from_it(merge: Merge) -> None:
    """Somebody has merged main into a branch of their own, and that is main now."""
    merge.repo.git("switch", "-q", "-c", "theirs")
    merge.repo.commit("before", theirs="x")
    merge.base = merge.repo.git("commit-tree", "main^{tree}", "-p", "main", "-m", "base")
    merge.repo.git("merge", "-q", "--no-ff", "-m", "All of it", merge.base)
    merge.repo.git("branch", "-q", "-f", "main", "HEAD")
    tip = merge.trunk.tip()
    assert merge.trunk.steps(merge.base, tip) == [BranchStep(tip, f'{tip[:12]} "All of it"')]


def test_a_title_that_speaks_of_batches_makes_no_batch_of_the_work(merge: Merge) -> None:
    """The work is a merge by an agent, with a trailer that names another mission."""
    commit = partial(merge.repo.git, "commit-tree", "main^{tree}", "-p", "main", "-p")
    forged = commit(merge.work(new="x"), "-m", "Forged\n\nCapsule-Mission: other")
    tip = commit(forged, "-m", f"Merge x-1: Show {BATCH}as text\n\nCapsule-Mission: x-1")
    assert merge.trunk.steps(merge.base, tip) == [BranchStep(tip, "x-1")]


def test_a_trailer_that_holds_no_id_names_no_mission(merge: Merge) -> None:
    tip = merge.repo.git(
        "commit-tree",
        "main^{tree}",
        "-p",
        "main",
        "-p",
        merge.work(new="x"),
        "-m",
        "All\n\nCapsule-Mission: Delete it all",
    )
    assert merge.trunk.steps(merge.base, tip) == [BranchStep(tip, f'{tip[:12]} "All"')]


def test_batches_inside_of_batches_are_not_followed(merge: Merge) -> None:
    """A person moved main to the work of an agent who wrote trailers."""
    tip = merge.work(new="x")
    for _ in range(400):
        tip = merge.repo.git("commit-tree", "main^{tree}", "-p", "main", "-p", tip, "-m", f"All\n\n{BATCH}a, b")
    assert [step.name for step in merge.trunk.steps(merge.base, tip)] == [
        f'{merge.repo.git("rev-parse", f"{tip}^2")[:12]} "All"'
    ]


# Proposing


def test_the_same_input_gives_the_same_commit_and_touches_nothing(merge: Merge) -> None:
    tip = merge.work(**{"new.py": "new"})
    one = merge.propose()
    time.sleep(1.1)
    assert merge.propose() == one
    assert merge.repo.head() == merge.base
    assert merge.repo.status() == ""
    assert merge.repo.git("log", "-1", "--format=%P|%s|%an", one.commit) == f"{merge.base} {tip}|Merge x-1: title|Ada"
    assert merge.repo.git("rev-parse", f"{one.commit}^{{tree}}") == one.tree


def test_both_sides_work_is_in_the_result(merge: Merge) -> None:
    merge.work(**{"new.py": "new"})
    merge.repo.commit("meanwhile", other="x")
    merged = merge.propose()
    assert {"new.py", "other"} < set(merge.repo.git("ls-tree", "--name-only", merged.tree).split())


def test_conflicts_are_listed_and_not_published(a_repo_with_conflict: Repo) -> None:
    trunk = GitTrunk(Git.find(a_repo_with_conflict.path), "main")
    tip = a_repo_with_conflict.head()
    candidate = trunk.propose(a_repo_with_conflict.head("work"), a_repo_with_conflict.head("main~1"), "Merge")
    assert candidate.conflicts == ("README",)
    with pytest.raises(Refused, match="conflicts"):
        trunk.publish(candidate)
    assert trunk.tip() == tip


@pytest.mark.promise("merge.artefacts")
def test_artefacts_never_arrive_not_even_in_the_history(merge: Merge) -> None:
    merge.worktree.write("worklog.md", "log")
    merge.work(**{"new.py": "new", "BACKLOG.yaml": "items: [evil]\n"})
    merge.worktree.git("rm", "-q", "worklog.md")
    merge.worktree.git("commit", "-q", "-m", "hide it\n\nbut say why")
    candidate = merge.propose()
    assert candidate == merge.propose()
    history = merge.repo.git("log", "--format=", "--name-only", candidate.commit, f"^{merge.base}").split()
    assert history == ["new.py"]
    assert merge.repo.git("log", "-1", "--format=%B", f"{candidate.commit}^2") == "hide it\n\nbut say why"
    assert merge.repo.head(f"{candidate.commit}^2^") == merge.base


def test_artefacts_stay_as_main_has_them(merge: Merge) -> None:
    merge.repo.write(".beads/issues.jsonl", "{}\n")
    merge.repo.commit("tracker moved on")
    merge.worktree.write(".beads/issues.jsonl", "evil\n")
    merge.work(**{"new.py": "new"})
    candidate = merge.propose()
    assert candidate.conflicts == ()
    assert merge.repo.git("show", f"{candidate.tree}:.beads/issues.jsonl") == "{}"


def test_a_base_that_main_lacks_is_not_merged_along(merge: Merge) -> None:
    merge.base = merge.worktree.commit("a base of its own", mine="mine\n")
    merge.work(**{"new.py": "new"})
    with pytest.raises(Refused, match="main was rewritten"):
        merge.propose()


def test_a_merge_driver_of_the_agents_is_not_asked(merge: Merge) -> None:
    merge.repo.git("config", "merge.zz.driver", "true")
    merge.repo.write(".git/info/attributes", "* merge=zz\n")
    merge.work(README="from work\n", **{".gitattributes": "* merge=zz\n"})
    merge.repo.commit("meanwhile", README="from main\n")
    assert merge.propose().conflicts == ("README",)


def test_an_author_without_a_name_does_not_stop_the_merge(merge: Merge) -> None:
    merge.work(**{"new.py": "new", "worklog.md": "x"})
    raw = merge.repo.git("cat-file", "commit", "work").replace("author Ada ", "author ")
    tip = (
        subprocess.run(
            ["git", "hash-object", "-t", "commit", "-w", "--literally", "--stdin"],
            cwd=merge.repo.path,
            input=raw.encode() + b"\n",
            capture_output=True,
            check=True,
        )
        .stdout.decode()
        .strip()
    )
    assert merge.trunk.propose(tip, merge.base, "Merge").conflicts == ()


# Publishing


def test_main_moves_and_its_checkout_follows(busy_merge: Merge) -> None:
    candidate = busy_merge.propose()
    assert busy_merge.trunk.publish(candidate) == Published(moved=True)
    repo = busy_merge.repo
    assert repo.head() == candidate.commit
    assert repo.status() == ""
    assert repo.git("branch", "--show-current") == "main"
    assert (repo.path / "link").readlink() == Path("README")
    assert os.access(repo.path / "tool.sh", os.X_OK)
    assert not (repo.path / "gone").exists()
    assert not (repo.path / ".capsule").exists()
    repo.git("diff-files", "--quiet")
    repo.fsck()


def test_a_checkout_follows_whatever_is_expected_of_its_files(a_repo: Repo, git: Git) -> None:
    first = a_repo.commit("one", old="one\n", new="one\n", edited="one\n")
    second = a_repo.commit("two", old="two\n", new="two\n", edited="two\n")
    a_repo.git("checkout", "-q", first, "--", ".")
    a_repo.write("new", "two\n")
    a_repo.write("edited", "mine\n")
    assert bring_along(git, "main", first, second) == ["edited"]
    assert [(a_repo.path / name).read_text() for name in ("old", "new", "edited")] == ["two\n", "two\n", "mine\n"]
    assert a_repo.status() == "M edited"


def test_files_that_are_replaced_in_a_tree_keep_their_modes(a_repo: Repo, git: Git) -> None:
    a_repo.write("tool", "old\n").chmod(0o755)
    a_repo.commit("a tool")
    tree = with_files(git, a_repo.head(), {"tool": b"new\n", "README": b"new\n", "fresh/deep": b"new\n"})
    rows = [row.split() for row in a_repo.git("ls-tree", "-r", tree, "tool", "README", "fresh").splitlines()]
    assert {name: mode for mode, _, _, name in rows} == {"tool": "100755", "README": "100644", "fresh/deep": "100644"}
    assert {a_repo.git("show", f"{tree}:{name}") for name in ("tool", "README", "fresh/deep")} == {"new"}


@pytest.mark.promise("merge.compare-and-swap")
def test_main_moves_only_from_the_commit_it_was_built_on(merge: Merge) -> None:
    merge.work(**{"new.py": "new"})
    candidate = merge.propose()
    newer = merge.repo.commit("meanwhile", other="x")
    assert merge.trunk.publish(candidate) == Published(moved=False)
    assert merge.repo.head() == newer
    assert merge.repo.status() == ""


def test_a_main_that_the_agent_moved_is_noticed(merge: Merge) -> None:
    tip = merge.work(**{"new.py": "new"})
    candidate = merge.propose()
    merge.worktree.git("update-ref", "refs/heads/main", tip)
    assert merge.trunk.publish(candidate) == Published(moved=False)


@pytest.mark.promise("merge.compare-and-swap")
def test_somebody_quicker_wins_and_is_noticed(merge: Merge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Main moves after we looked, in the very moment of the swap."""
    merge.work(**{"new.py": "new"})
    candidate = merge.propose()
    quicker = merge.repo.git("commit-tree", "-m", "quicker", "-p", "main", "main^{tree}")
    real, tools = shutil.which("git"), tmp_path / "tools"
    tools.mkdir()
    swap = f"{real} update-ref refs/heads/main {quicker} {merge.base}"
    (tools / "git").write_text(f'#!/bin/sh\n[ "$1" != update-ref ] || {swap}\nexec {real} "$@"\n')
    (tools / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    git = Git.find(merge.repo.path)
    assert GitTrunk(git, "main").publish(candidate) == Published(moved=False)
    assert merge.repo.head("main") == quicker


def test_whoever_keeps_it_still_moves_it_and_others_wait(merge: Merge, git: Git) -> None:
    other, order = GitTrunk(git, "main"), list[str]()

    def move() -> None:
        with other.about_to_move():
            order.append("moved by another")

    waits = threading.Thread(target=move)
    with merge.trunk.kept_still():
        waits.start()
        with merge.trunk.about_to_move():
            time.sleep(0.2)
            order.append("moved by us")
    waits.join()
    with other.about_to_move(), merge.trunk.about_to_move():
        order.append("both are about to")
    assert order == ["moved by us", "moved by another", "both are about to"]


@pytest.mark.promise("merge.once")
def test_publishing_twice_is_publishing_once(merge: Merge) -> None:
    merge.work(**{"new.py": "new"})
    candidate = merge.propose()
    merge.trunk.publish(candidate)
    on_top = merge.repo.commit("on top", README="later\n")
    assert merge.trunk.publish(candidate) == Published(moved=True)
    assert merge.repo.head() == on_top
    assert merge.repo.status() == ""


def edited(repo: Repo) -> None:
    repo.write("README", "my edit\n")


def staged(repo: Repo) -> None:
    repo.write("README", "staged by me\n")
    repo.git("add", "README")


def staged_alone(repo: Repo) -> None:
    staged(repo)
    repo.write("README", "hello\n")


def deleted(repo: Repo) -> None:
    (repo.path / "README").unlink()


def made_executable(repo: Repo) -> None:
    (repo.path / "README").chmod(0o755)


def an_untracked_file(repo: Repo) -> None:
    repo.write("new/file", "mine, never added\n")


def a_file_for_a_folder(repo: Repo) -> None:
    repo.write("new", "mine\n")


def a_folder_for_a_file(repo: Repo) -> None:
    repo.write("fresh/mine", "mine\n")


def a_link_for_a_folder(repo: Repo) -> None:
    shutil.move(repo.path / "src", repo.path.parent / "theirs")
    (repo.path / "src").symlink_to(repo.path.parent / "theirs")


def a_link_for_a_new_folder(repo: Repo) -> None:
    (repo.path.parent / "theirs").mkdir()
    (repo.path / "new").symlink_to(repo.path.parent / "theirs")


@pytest.mark.sweep(cases=3)
@pytest.mark.promise("merge.user-edits")
@pytest.mark.parametrize(
    "edit,path",
    [
        (edited, "README"),
        (staged, "README"),
        (staged_alone, "README"),
        (deleted, "README"),
        (made_executable, "README"),
        (an_untracked_file, "new/file"),
        (a_file_for_a_folder, "new/file"),
        (a_folder_for_a_file, "fresh"),
        (a_link_for_a_folder, "src/app.py"),
        (a_link_for_a_new_folder, "new/file"),
    ],
)
def test_a_merge_that_touches_what_the_user_has_edited_does_not_move_main(
    merge: Merge, edit: Callable[[Repo], None], path: str
) -> None:
    merge.work(README="new\n", fresh="new\n", **{"src/app.py": "new\n", "new/file": "new\n"})
    edit(merge.repo)
    before = (merge.repo.status(), files_of(merge.repo.path), files_of(merge.repo.path.parent / "theirs"))
    with pytest.raises(Overlap) as found:
        merge.publish()
    assert found.value.paths == (path,)
    assert merge.trunk.tip() == merge.base
    after = (merge.repo.status(), files_of(merge.repo.path), files_of(merge.repo.path.parent / "theirs"))
    assert after == before


def files_of(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.mark.promise("merge.user-edits")
def test_edits_that_the_merge_does_not_touch_stay_as_they_are(merge: Merge) -> None:
    merge.work(**{"src/app.py": "new\n", "new/file": "new\n"})
    edited(merge.repo)
    merge.repo.write("staged", "mine\n")
    merge.repo.git("add", "staged")
    merge.repo.write("new/notes", "mine\n")
    assert merge.publish() == Published(moved=True)
    assert set(merge.repo.status().splitlines()) == {"M README", "A  staged", "?? new/notes"}
    assert (merge.repo.path / "README").read_text() == "my edit\n"


def test_a_merge_that_was_refused_goes_on_once_the_user_has_committed(merge: Merge) -> None:
    merge.work(README="new\n")
    candidate = merge.propose()
    merge.repo.write("other", "mine\n")
    edited(merge.repo)
    with pytest.raises(Overlap):
        merge.trunk.publish(candidate)
    merge.repo.git("checkout", "-q", "README")
    assert merge.trunk.publish(candidate) == Published(moved=True)
    assert merge.repo.status() == "?? other"


def test_what_the_user_edits_after_the_move_keeps_its_bytes(merge: Merge) -> None:
    """Killed before the checkout could follow, and gone on with after the user has been there."""
    merge.work(README="new\n", **{"src/app.py": "new\n", "fresh.txt": "new\n", "other.txt": "new\n"})
    repo, candidate = merge.repo, merge.propose()
    repo.git("update-ref", "refs/heads/main", candidate.commit)
    repo.write("README", "my edit\n")
    repo.write("src/app.py", "staged by me\n")
    repo.git("add", "src/app.py")
    repo.write("fresh.txt", "mine, never added\n")
    repo.write("notes.txt", "mine\n")
    published = merge.trunk.publish(candidate)
    assert published == Published(moved=True, left_alone=("README", "fresh.txt", "src/app.py"))
    assert (repo.path / "README").read_text() == "my edit\n"
    assert (repo.path / "fresh.txt").read_text() == "mine, never added\n"
    assert (repo.path / "other.txt").read_text() == "new\n"
    assert repo.git("show", ":src/app.py") == "staged by me"
    assert repo.git("show", ":README") == "new"
    assert set(repo.status().splitlines()) == {"M README", "M  src/app.py", " M fresh.txt", "?? notes.txt"}


def test_links_that_the_user_made_after_the_move_are_not_written_through(merge: Merge) -> None:
    merge.work(**{"src/app.py": "new\n", "src/more.py": "new\n"})
    candidate = merge.propose()
    merge.repo.git("update-ref", "refs/heads/main", candidate.commit)
    a_link_for_a_folder(merge.repo)
    assert merge.trunk.publish(candidate).left_alone == ("src/app.py", "src/more.py")
    assert files_of(merge.repo.path.parent / "theirs") == {"app.py": b"print('one')\n"}


def test_work_the_user_already_has_is_no_conflict(merge: Merge) -> None:
    merge.work(README="new\n", **{"new.py": "new\n"})
    merge.repo.write("README", "new\n")
    merge.repo.write("new.py", "new\n")
    assert merge.publish() == Published(moved=True)
    assert merge.repo.status() == ""


@pytest.mark.promise("merge.user-edits")
def test_a_user_on_another_branch_stays_there(merge: Merge) -> None:
    merge.repo.git("switch", "-q", "-c", "mine")
    merge.work(README="new\n")
    assert merge.publish() == Published(moved=True)
    assert merge.repo.git("branch", "--show-current") == "mine"
    assert merge.repo.status() == ""
    assert (merge.repo.path / "README").read_text() == "hello\n"


def test_a_linked_checkout_of_main_follows_too(merge: Merge, tmp_path: Path) -> None:
    merge.repo.git("switch", "-q", "-c", "mine")
    linked = Repo(tmp_path / "linked")
    merge.repo.git("worktree", "add", "-q", str(linked.path), "main")
    merge.work(README="new\n")
    merge.publish()
    assert linked.status() == ""
    assert (linked.path / "README").read_text() == "new\n"


def test_line_endings_are_the_users(a_repo: Repo) -> None:
    a_repo.git("config", "core.autocrlf", "true")
    merge = Merge(a_repo, Git.find(a_repo.path))
    merge.work(README="new\r\n")
    (a_repo.path / "README").write_bytes(b"hello\r\n")
    assert merge.publish() == Published(moved=True)
    assert (a_repo.path / "README").read_bytes() == b"new\r\n"


def test_a_sparse_checkout_stays_sparse(merge: Merge) -> None:
    merge.repo.git("sparse-checkout", "set", "--no-cone", "/*", "!/src/")
    assert not (merge.repo.path / "src").exists()
    merge.work(README="new\n", **{"src/app.py": "new\n"})
    assert merge.publish() == Published(moved=True)
    assert merge.repo.status() == ""
    assert not (merge.repo.path / "src").exists()


UNDER_WAY: dict[str, Callable[[Repo], object]] = {
    "Merge": lambda repo: repo.git("merge", "-q", "--no-ff", "--no-commit", "side"),
    "Cherry-pick": lambda repo: (repo.path / ".git/CHERRY_PICK_HEAD").write_text(repo.head("side") + "\n"),
    "Rebase": lambda repo: repo.git("-c", "sequence.editor=sed -i 1s/pick/edit/", "rebase", "-q", "-i", "HEAD~1"),
}


@pytest.mark.promise("004-commands.clean-tree")
@pytest.mark.parametrize("what", UNDER_WAY)
def test_main_does_not_move_under_something_half_done(merge: Merge, what: str) -> None:
    merge.repo.git("switch", "-q", "-c", "side")
    merge.repo.commit("side", side="x")
    merge.repo.git("switch", "-q", "main")
    merge.work(README="new\n")
    candidate = merge.propose()
    UNDER_WAY[what](merge.repo)
    with pytest.raises(Refused, match=rf"(?i){what} is under way") as refused:
        merge.trunk.publish(candidate)
    assert "--continue" in refused.value.hint and "--abort" not in refused.value.hint
    assert merge.trunk.tip() == merge.base


def test_a_kill_after_the_move_is_finished_by_publishing_again(busy_merge: Merge) -> None:
    candidate = busy_merge.propose()
    repo = busy_merge.repo
    repo.git("update-ref", "refs/heads/main", candidate.commit)
    (repo.path / "README").write_text("new\n")  # the files got so far, the index did not
    shutil.rmtree(repo.path / "gone")
    (repo.path / ".capsule/arriving").mkdir(parents=True)
    (repo.path / ".capsule/arriving/torn").write_text("ne")
    assert busy_merge.trunk.publish(candidate) == Published(moved=True)
    assert repo.status() == ""
    assert not (repo.path / ".capsule").exists()


@pytest.mark.slow
@pytest.mark.parametrize("moved", [True, False])
def test_locks_of_a_killed_update_are_cleared(merge: Merge, moved: bool) -> None:
    merge.work(README="new\n")
    candidate = merge.propose()
    for name in ("HEAD.lock", "index.lock", *(() if moved else ("refs/heads/main.lock",))):
        (merge.repo.path / ".git" / name).touch()
    if moved:
        (merge.repo.path / ".git/refs/heads/main").write_text(candidate.commit + "\n")
    assert merge.trunk.publish(candidate) == Published(moved=True)
    assert merge.repo.head() == candidate.commit
    assert merge.repo.status() == ""


@pytest.fixture
def locked_index(merge: Merge, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A git of the user's is at work in the checkout of main, and does not end."""
    monkeypatch.setattr(git_locks, "PATIENCE", 0.2)
    waiting = subprocess.Popen(["git", "cat-file", "--batch"], cwd=merge.repo.path, stdin=subprocess.PIPE)
    lock = merge.repo.path / ".git/index.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    yield lock
    waiting.communicate()


def test_main_does_not_move_under_an_index_that_somebody_is_using(merge: Merge, locked_index: Path) -> None:
    merge.work(README="new\n")
    with pytest.raises(Refused, match="using the index") as error:
        merge.publish()
    assert str(locked_index) in error.value.hint
    assert locked_index.exists()
    assert merge.repo.head() == merge.base
    locked_index.unlink()
    assert merge.publish() == Published(moved=True)


def test_a_user_who_lets_go_of_the_index_is_waited_for(merge: Merge, locked_index: Path) -> None:
    merge.work(README="new\n")
    git_locks.PATIENCE = LONG  # put back by the fixture
    letting_go = threading.Timer(0.3, locked_index.unlink)
    letting_go.start()
    assert merge.publish() == Published(moved=True)
    letting_go.join()
    assert merge.repo.status() == ""


def test_an_index_locked_after_the_move_is_left_alone_and_told_apart(merge: Merge, locked_index: Path) -> None:
    merge.work(README="new\n")
    candidate = merge.propose()
    (merge.repo.path / ".git/refs/heads/main").write_text(candidate.commit + "\n")
    published = merge.trunk.publish(candidate)
    assert published.left_alone == ("README (in the index only, which another git has locked)",)
    assert locked_index.exists()


@pytest.mark.slow
@pytest.mark.promise("durability.killed-git")
@pytest.mark.skipif(not can_trace(), reason="strace is not available here")
@pytest.mark.parametrize("nth", (1, 3, 5))
def test_a_git_killed_while_publishing_is_made_good(busy_merge: Merge, tmp_path: Path, nth: int) -> None:
    candidate = busy_merge.propose()
    a_git_that_dies(tmp_path / "tools", nth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}/tools:{os.environ['PATH']}")
        with contextlib.suppress(CapsuleError):  # by a trunk of its own: a Git looks for its program once
            GitTrunk(Git.find(busy_merge.repo.path), "main").publish(candidate)
    busy_merge.trunk.publish(candidate)
    assert busy_merge.repo.status() == ""
    assert busy_merge.repo.head() == candidate.commit
    busy_merge.repo.fsck()
