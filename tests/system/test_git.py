"""Git, and the facts of a repository, from wherever one starts and whatever is in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from capsule.core.errors import CapsuleError, PrerequisiteMissing, Refused
from capsule.system import git_locks
from capsule.system.git import Git, GitFailed, NotARepository
from capsule.system.git_objects import Identity, RefMove
from capsule.workspaces.checkouts import under_way
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import (
    ahead_of,
    base_of,
    dirty_paths,
    exclude_artefacts,
    main_branch,
    refuse_if_ahead,
    refuse_if_under_way,
)
from tests.costs import LONG, eventually

from ..conftest import Repo

# Finding it


def test_the_root_is_found_from_anywhere_in_it(a_repo: Repo, git: Git) -> None:
    place = GitWorktree(git, "x-1")
    place.prepare(a_repo.head())
    for start in (a_repo.path, a_repo.path / "src", place.path, place.path / "src"):
        found = Git.find(start)
        assert (found.root, found.common_dir) == (a_repo.path, a_repo.path / ".git")


def test_the_root_is_found_where_the_git_directory_is_elsewhere(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "project")
    repo.path.mkdir()
    repo.git("init", "-q", "-b", "main", f"--separate-git-dir={tmp_path}/store")
    repo.commit(README="x")
    assert Git.find(repo.path).root == repo.path
    GitWorktree(Git.find(repo.path), "x-1").prepare(repo.head())


def test_inherited_git_variables_do_not_matter(a_repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    monkeypatch.setenv("GIT_CONFIG_COUNT", "7")
    found = Git.find(a_repo.path)
    assert found.resolve("HEAD")


def test_no_repository_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotARepository, match="not in a git repository") as error:
        Git.find(tmp_path)
    assert error.value.hint == "git init"


def test_a_bare_repository_is_refused(a_repo: Repo, tmp_path: Path) -> None:
    a_repo.git("clone", "-q", "--bare", ".", str(tmp_path / "bare.git"))
    with pytest.raises(NotARepository, match="bare"):
        Git.find(tmp_path / "bare.git")


def test_a_missing_git_says_how_to_get_it(a_repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(PrerequisiteMissing, match="not installed") as error:
        Git.find(a_repo.path)
    assert "2.38" in error.value.hint


def test_an_old_git_is_refused(a_repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "tools/git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho git version 2.37.9\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(PrerequisiteMissing, match=r"2\.37\.9 is too old"):
        Git.find(a_repo.path)


def test_a_git_in_the_folder_we_stand_in_is_not_run(a_repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    head = a_repo.head()
    planted = a_repo.write("git", f"#!/bin/sh\ntouch {a_repo.path}/ran\n")
    planted.chmod(0o755)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    monkeypatch.chdir(a_repo.path)
    found = Git.find(a_repo.path)
    found.content("-c", "alias.look=!git version", "look")
    assert found.resolve("HEAD") == head
    assert not (a_repo.path / "ran").exists()


def test_a_missing_object_is_never_fetched(a_repo: Repo, git: Git, tmp_path: Path) -> None:
    evil = tmp_path / "evil.sh"
    evil.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    evil.chmod(0o755)
    for key, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "evil"),
        ("remote.evil.promisor", "true"),
        ("remote.evil.url", f"ext::{evil}"),
        ("protocol.ext.allow", "always"),
    ):
        a_repo.git("config", key, value)
    assert git.resolve("1234567890" * 4) == ""
    assert not (tmp_path / "ran").exists()


def test_sha256_repositories_work(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    repo.git("init", "-q", "-b", "main", "--object-format=sha256")
    repo.commit(README="x")
    place = GitWorktree(Git.find(repo.path), "x-1")
    place.prepare(repo.head())
    (place.path / "new").write_text("x")
    assert len(place.checkpoint("a").commit) == 64


# Running it


def test_an_error_is_one_line_in_gits_words(git: Git) -> None:
    with pytest.raises(GitFailed, match="git cat-file failed: Not a valid object name nowhere") as error:
        git.content("cat-file", "blob", "nowhere")
    assert "\n" not in error.value.message


def test_refs_move_together_or_not_at_all(a_repo: Repo, git: Git) -> None:
    head = a_repo.head()
    with pytest.raises(GitFailed):
        git.move_refs(RefMove("refs/heads/a", head, ""), RefMove("refs/heads/main", head, ""))
    assert git.refs("refs/heads") == {"refs/heads/main": head}
    with pytest.raises(GitFailed):
        git.move_refs(RefMove("refs/heads/main", a_repo.head("HEAD~1"), a_repo.head("HEAD~1")))


def test_a_replaced_object_does_not_show(a_repo: Repo, git: Git) -> None:
    benign = a_repo.git("hash-object", "-w", ".gitignore")
    a_repo.git("replace", a_repo.git("rev-parse", "HEAD:README"), benign)
    assert git.read_file(a_repo.head(), "README") == b"hello\n"


def test_filters_that_were_there_first_are_used_and_later_ones_are_not(a_repo: Repo) -> None:
    a_repo.git("config", "filter.up.clean", "tr a-z A-Z")
    a_repo.commit("attributes", **{".gitattributes": "*.up filter=up\n*.later filter=later\n"})
    place = GitWorktree(Git.find(a_repo.path), "x-1")
    place.prepare(a_repo.head())
    a_repo.git("config", "filter.later.clean", "echo evil")
    (place.path / "a.up").write_text("abc")
    (place.path / "a.later").write_text("abc")
    place = GitWorktree(Git.find(a_repo.path), "x-1")
    assert place.trees.read(place.tree(), "a.up") == b"ABC"
    assert place.trees.read(place.tree(), "a.later") == b"abc"


@pytest.mark.parametrize("command", ["python3 -m stripped", "sh tools/strip.sh", "sh ./tools/strip.sh %f"])
def test_a_filter_runs_in_the_checkout_and_nothing_that_an_agent_put_in_its_place(
    a_repo: Repo, tmp_path: Path, command: str
) -> None:
    """`python -m nbstripout` looks for modules in the folder it is started in."""
    ran = tmp_path / "ran"
    a_repo.git("config", "filter.strip.clean", command)
    a_repo.commit(
        "a filter",
        **{
            ".gitattributes": "*.nb filter=strip\n",
            "stripped.py": "import sys; sys.stdin.read(); print('clean')\n",
            "tools/strip.sh": "cat > /dev/null; echo clean\n",
        },
    )
    place = GitWorktree(Git.find(a_repo.path), "x-1")
    place.prepare(a_repo.head())
    (place.path / "stripped.py").write_text(f"open({str(ran)!r}, 'w')\n")
    (place.path / "tools/strip.sh").write_text(f"touch '{ran}'\n")
    (place.path / "a.nb").write_text("words\n")
    assert place.trees.read(place.tree(), "a.nb") == b"clean\n"
    assert not ran.exists()


def test_shallow_clones_work(a_repo: Repo, tmp_path: Path) -> None:
    a_repo.git("clone", "-q", "--depth=1", f"file://{a_repo.path}", str(tmp_path / "shallow"))
    repo = Repo(tmp_path / "shallow")
    place = GitWorktree(Git.find(repo.path), "x-1")
    place.prepare(repo.head())
    Repo(place.path).commit("work", new="x")
    assert place.head() == repo.head("capsule-x-1")


# Who


def test_the_identity_is_the_users(git: Git) -> None:
    assert git.identity == Identity("Ada", "ada@example.org")


def test_the_identity_is_found_in_the_settings(a_repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    a_repo.git("config", "--global", "user.name", "Grace")
    a_repo.git("config", "user.email", "grace@example.org")
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    assert git.identity == Identity("Grace", "grace@example.org")


def test_an_unknown_user_is_told_what_to_type(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.delenv(f"GIT_{role}_NAME")
        monkeypatch.delenv(f"GIT_{role}_EMAIL")
    with pytest.raises(CapsuleError, match="does not know who you are") as error:
        _ = git.identity
    assert "user.name" in error.value.hint and "user.email" in error.value.hint


# Locks


_KILLED = """
import os, subprocess, sys
from pathlib import Path
from capsule.system.git import Git

class Killed(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        os.kill(os.getpid(), 9)

git = Git.find(Path(sys.argv[1]))
git.content("read-tree", git.resolve("HEAD"), index=Path(sys.argv[2]))
subprocess.Popen = Killed
command = ("add", "-A", "-f", "--pathspec-from-file=-", "--pathspec-file-nul")
git.content(*command, index=Path(sys.argv[2]), worktree=git.root, input=b"wanted")
"""


def test_a_git_whose_caller_is_killed_has_read_all_that_it_was_given(a_repo: Repo, git: Git, tmp_path: Path) -> None:
    """A `git add` that is given no paths adds everything, ignored files too."""
    for name in ("wanted", "build/ignored"):
        a_repo.write(name, name)
    assert (
        subprocess.run([sys.executable, "-c", _KILLED, a_repo.path, tmp_path / "index"], check=False).returncode == -9
    )

    def staged() -> bytes:
        command = ("diff-index", "--cached", "--name-only", git.resolve("HEAD"))
        return git.content(*command, index=tmp_path / "index").out

    assert eventually(staged)
    assert staged() == b"wanted\n"


def test_a_stale_lock_is_outlasted(a_repo: Repo, git: Git) -> None:
    (a_repo.path / ".git/refs/heads/new.lock").touch()
    started = time.monotonic()
    git.move_refs(RefMove("refs/heads/new", a_repo.head(), ""))
    assert time.monotonic() - started < LONG


def test_a_lock_is_waited_for_while_its_owner_works(a_repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_locks, "PATIENCE", 2 * LONG)
    lock = a_repo.path / ".git/refs/heads/new.lock"
    lock.touch()
    found: list[bool] = []

    def work_and_let_go() -> None:
        for _ in range(12):
            os.utime(lock)
            time.sleep(0.05)
        found.append(lock.exists())
        lock.unlink()

    owner = threading.Thread(target=work_and_let_go)
    owner.start()
    git.move_refs(RefMove("refs/heads/new", a_repo.head(), ""))
    owner.join()
    assert found == [True]  # where it had left it


def test_a_lock_of_a_living_git_stays(a_repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(git_locks, "PATIENCE", 0.3)
    lock = a_repo.path / ".git/refs/heads/new.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    living = subprocess.Popen(["git", "cat-file", "--batch"], cwd=a_repo.path / "src", stdin=subprocess.PIPE)
    try:
        with pytest.raises(GitFailed) as error:
            git.move_refs(RefMove("refs/heads/new", a_repo.head(), ""))
        assert str(lock) in error.value.hint
        assert lock.exists()
    finally:
        living.communicate()


def test_a_lock_that_its_owner_lets_go_of_was_not_removed(a_repo: Repo) -> None:
    """As where two missions run: a git of the one moves a branch while the other looks for locks."""
    lock, enough, missed = a_repo.path / ".git/HEAD.lock", threading.Event(), 0

    def come_and_go() -> None:
        nonlocal missed
        while not enough.wait(0.0005):
            lock.touch()
            enough.wait(0.0005)
            try:
                lock.unlink()
            except FileNotFoundError:
                missed += 1

    owner = threading.Thread(target=come_and_go)
    owner.start()
    removed = sum(git_locks.clear_if_stale(lock, a_repo.path / ".git", [], older_than=0) for _ in range(100))
    enough.set()
    owner.join()
    assert removed == missed


def test_only_locks_of_gits_are_ever_removed(a_repo: Repo) -> None:
    common = a_repo.path / ".git"
    for name in ("capsule/locks/main.lock", "objects/x.lock", "../package.lock"):
        path = common / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        assert not git_locks.clear_if_stale(path, common, [], older_than=0)
        assert path.exists()


# Facts about a repository


def test_main_is_configured_or_the_remotes_or_usual(a_repo: Repo, git: Git) -> None:
    assert main_branch(git) == "main"
    a_repo.git("branch", "trunk")
    a_repo.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    assert main_branch(git) == "trunk"
    assert main_branch(git, "main") == "main"


def test_a_main_nobody_knows_is_asked_for_with_the_choices(a_repo: Repo, git: Git) -> None:
    a_repo.git("branch", "-m", "develop")
    with pytest.raises(CapsuleError, match="Cannot tell which branch") as error:
        main_branch(git)
    assert "develop" in error.value.hint and error.value.exit_code == 2
    with pytest.raises(CapsuleError, match="no such branch"):
        main_branch(git, "gone")


def test_a_repository_without_commits_is_refused(tmp_path: Path) -> None:
    repo = Repo(tmp_path)
    repo.git("init", "-q")
    with pytest.raises(CapsuleError, match="no commits yet"):
        base_of(Git.find(repo.path))
    repo.write("new", "x")
    assert dirty_paths(Git.find(repo.path)) == ["new"]


def test_a_head_ahead_of_main_is_noticed(a_repo: Repo, git: Git) -> None:
    assert not ahead_of(git, base_of(git), "main")
    a_repo.git("switch", "-q", "--detach")
    assert not git.checked_out()
    refuse_if_ahead(git, base_of(git), "main")
    a_repo.commit("ahead", other="x")
    with pytest.raises(CapsuleError, match="commits that main lacks") as error:
        refuse_if_ahead(git, base_of(git), "main")
    assert "--base main" in error.value.hint and error.value.exit_code == 2


def test_something_under_way_is_named(a_repo_with_conflict: Repo) -> None:
    git = Git.find(a_repo_with_conflict.path)
    assert under_way(git.git_dir) is None
    subprocess.run(["git", "merge", "-q", "work"], cwd=git.root, check=False, capture_output=True)
    assert under_way(git.git_dir) == ("a merge", "git merge --continue")
    with pytest.raises(CapsuleError, match="A merge is under way") as error:
        refuse_if_under_way(git)
    assert "git merge --continue" in error.value.hint


def test_dirt_is_listed_without_the_trackers_files(a_dirty_repo: Repo) -> None:
    a_dirty_repo.write(".beads/issues.jsonl", "{}")
    a_dirty_repo.write("x.pyc", "ignored")
    (a_dirty_repo.path / "src/app.py").touch()
    git = Git.find(a_dirty_repo.path)
    index = (a_dirty_repo.path / ".git/index").read_bytes()
    assert dirty_paths(git, [".beads"]) == ["README", "new.txt", "staged.txt"]
    assert (a_dirty_repo.path / ".git/index").read_bytes() == index


def test_an_exclude_file_that_the_user_has_linked_counts(a_repo: Repo, git: Git, tmp_path: Path) -> None:
    mine, exclude = tmp_path / "mine", a_repo.path / ".git/info/exclude"
    mine.write_text("/notes.txt\n")
    exclude.unlink(missing_ok=True)
    exclude.parent.mkdir(exist_ok=True)
    exclude.symlink_to(mine)
    assert git.ignored([b"notes.txt", b"code.txt"]) == {b"notes.txt"}


def test_artefacts_are_excluded_once(a_repo: Repo, git: Git) -> None:
    exclude = a_repo.path / ".git/info/exclude"
    exclude.write_text("mine")
    for _ in range(2):
        exclude_artefacts(git, a_repo.head())
    assert exclude.read_text().splitlines() == [
        "mine",
        "/.capsule/*",
        "!/.capsule/config.yaml",
        "!/.capsule/workflows/",
        "!/.capsule/prompts/",
        "/worklog.md",
    ]


def test_a_project_with_a_worklog_of_its_own_is_refused(a_repo: Repo, git: Git) -> None:
    a_repo.commit("mine", worklog__md="x")
    with pytest.raises(Refused, match=r"worklog\.md of its own") as error:
        exclude_artefacts(git, a_repo.head())
    assert "git mv" in error.value.hint


def test_a_patch_comes_with_its_differences(a_repo: Repo, git: Git) -> None:
    before = a_repo.head()
    (a_repo.path / "src/app.py").unlink()
    (a_repo.path / "src/app.py").symlink_to("../README")
    after = a_repo.commit("much", README="more\n:looks like a row\n", fresh="new\n")
    differences, text = git.patch(before, after)
    assert differences == Git.find(a_repo.path).differences(before, after)
    assert [difference.kind for difference in differences] == ["M", "A", "T"]
    flags = ("-r", "-p", "-U0", "--text", "--no-renames", "--full-index")
    assert text.decode().strip() == a_repo.git("diff-tree", *flags, before, after)
    assert git.patch(before, before) == ([], b"")
