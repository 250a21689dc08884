"""Objects read through one git that stays are what git says, and objects that we write are git's own, byte by byte."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capsule.system import git_locks
from capsule.system.git import Git, GitFailed, ObjectMissing
from capsule.system.git_objects import CAPSULE, Difference, Identity, RefMove
from capsule.workspaces.trees import with_changes

from ..conftest import Repo


def _reader(git: Git) -> subprocess.Popen[bytes]:
    process = git._reader._process
    assert process is not None
    return process


# Reading


def test_many_questions_cost_one_process(a_repo: Repo, git: Git) -> None:
    a_repo.commit("deep", **{"one/two/three": "3\n", "one/four": "4\n"})
    git.content("version")
    calls = git.calls
    head = git.resolve("HEAD")
    assert [entry.path for entry in git.list_tree(head, recursive=True)] == sorted(
        os.fsencode(path) for path in a_repo.git("ls-tree", "-r", "--name-only", "HEAD").splitlines()
    )
    assert git.read_file(head, "one/two/three") == b"3\n"
    assert git.read_file(head, "one/two") is None and git.read_file(head, "nowhere") is None
    before = a_repo.head("HEAD~1")
    assert git.is_ancestor(before, head)
    assert git.merge_base(before, head) == git.merge_base(head, before) == before
    assert git.calls == calls + 1


def test_an_empty_tree_is_read_without_a_process_of_its_own(a_repo: Repo, git: Git) -> None:
    empty = a_repo.git("hash-object", "-t", "tree", "-w", "/dev/null").strip()
    git.resolve("HEAD")
    calls = git.calls
    assert git.list_tree(empty, recursive=True) == []
    assert git.calls == calls


def test_what_comes_later_is_found(a_repo: Repo, git: Git) -> None:
    git.commit(a_repo.head())
    loose = a_repo.commit("loose", new="new\n")
    assert git.commit(loose).message == "loose\n"
    packed = a_repo.commit("packed", new="newer\n")
    a_repo.git("repack", "-a", "-d", "-q")
    assert git.read_file(packed, "new") == b"newer\n"


def test_one_that_was_killed_is_started_anew(a_repo: Repo, git: Git) -> None:
    head = a_repo.head()
    git.commit(head)
    first = _reader(git)
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert git.read_file(head, "README") is not None
    assert git.resolve(head) == head
    assert _reader(git).pid != first.pid


def test_one_that_falls_silent_is_given_up(a_repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git.commit(a_repo.head())
    os.kill(_reader(git).pid, signal.SIGSTOP)
    monkeypatch.setattr(git._reader, "_timeout", 0.2)
    assert git.read_file(a_repo.head(), "README") is not None


def test_it_ends_with_the_repository_it_is_asked_about(a_repo: Repo) -> None:
    git = Git.find(a_repo.path)
    git.commit(a_repo.head())
    process = _reader(git)
    del git
    assert process.returncode is not None


def test_it_ends_when_we_are_killed(a_repo: Repo) -> None:
    code = (
        "import os, sys, signal; from pathlib import Path; from capsule.system.git import Git\n"
        "git = Git.find(Path(sys.argv[1])); git.commit(git.resolve('HEAD'))\n"
        "print(git._reader._process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(a_repo.path)], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while Path(f"/proc/{done.stdout.strip()}/exe").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not Path(f"/proc/{done.stdout.strip()}/exe").exists()


def test_a_fork_asks_one_of_its_own(a_repo: Repo, git: Git) -> None:
    head = a_repo.head()
    git.commit(head)
    pid = os.fork()
    if pid == 0:
        found = git.read_file(head, "README")
        os._exit(0 if found is not None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert _reader(git).poll() is None
    assert git.read_file(head, "README") is not None


def test_it_does_not_count_as_a_git_at_work(a_repo: Repo, git: Git) -> None:
    git.commit(a_repo.head())
    assert _reader(git).poll() is None
    assert not git_locks.git_at_work([a_repo.path, a_repo.path / ".git"])
    lock = a_repo.path / ".git/refs/heads/main.lock"
    lock.touch()
    os.utime(lock, (0, 0))
    git.move_refs(RefMove("refs/heads/main", a_repo.head("HEAD~1")))
    assert a_repo.head() == git.ref("refs/heads/main")


@pytest.mark.parametrize(("others", "at_work"), [("", False), ("/usr/bin/git commit\n", True), ("git gc\n", True)])
def test_it_does_not_count_where_processes_cannot_be_asked_for_their_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: str, at_work: bool
) -> None:
    listing = tmp_path / "ps"
    listing.write_text(f"#!/bin/sh\ncat <<end\n/sbin/init\n\n/usr/bin/git cat-file --batch-command\n{others}end\n")
    listing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert git_locks.git_at_work([tmp_path]) is at_work


def test_a_missing_object_is_told_as_such(a_repo: Repo, git: Git) -> None:
    blob = a_repo.git("rev-parse", "HEAD:README")
    tree = a_repo.git("rev-parse", "HEAD^{tree}")
    (a_repo.path / ".git/objects" / tree[:2] / tree[2:]).unlink()
    with pytest.raises(ObjectMissing):
        git.list_tree(a_repo.head())
    with pytest.raises(ObjectMissing):
        git.commit_tree(tree, [], "message", by=CAPSULE, date="@0 +0000")
    file = a_repo.path / ".git/objects" / blob[:2] / blob[2:]
    file.chmod(0o644)
    file.write_bytes(b"no object at all")
    with pytest.raises(ObjectMissing):
        git.read_blob(blob)


# Comparing


def _rows(repo: Repo, old: str, new: str) -> list[tuple[str, str, str, str]]:
    out = repo.git("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).split("\0")
    facts = [(head.split()[4][0], head.split()[0].lstrip(":"), head.split()[1]) for head in out[0:-1:2]]
    return [(path, *fact) for fact, path in zip(facts, out[1::2], strict=True)]


def test_differences_are_those_that_git_tells(a_repo: Repo, git: Git) -> None:
    for name in ("a", "a.b", "a-b", "folder/x", "folder/y/z", "gone/deep/er", "turns", "run", "link"):
        a_repo.write(name, f"{name}\n")
    first = a_repo.commit("first")
    a_repo.git("rm", "-q", "-r", "gone", "a", "turns", "folder/y")
    for name in ("a/now/a/folder", "turns/too", "folder/y", "new/and/deep"):
        a_repo.write(name, "new\n")
    (a_repo.path / "run").chmod(0o755)
    (a_repo.path / "link").unlink()
    (a_repo.path / "link").symlink_to("run")
    second = a_repo.commit("second")
    git.content("version")
    calls = git.calls
    for old, new in ((first, second), (second, first), (first, first)):
        told = [(os.fsdecode(d.path), d.kind, d.old[0], d.new[0]) for d in git.differences(old, new)]
        assert told == _rows(a_repo, old, new)
    assert git.calls == calls + 1


def test_a_change_in_very_many_folders_is_left_to_git(a_repo: Repo, git: Git) -> None:
    first = a_repo.head()
    for number in range(400):
        a_repo.write(f"many/{number}/file", "text\n")
    second = a_repo.commit("many")
    assert len(git.differences(first, second)) == 400
    assert len(git.list_tree(second, recursive=True)) == len(a_repo.git("ls-files").splitlines())


def test_a_tree_is_changed_as_an_index_would_be(a_repo: Repo, git: Git) -> None:
    for name in ("keep", "dir/keep", "dir/go", "only/one", "file"):
        a_repo.write(name, "old\n")
    first = a_repo.commit("first")
    a_repo.git("rm", "-q", "-r", "dir/go", "only", "file")
    for name in ("only", "file/below", "dir/new", "far/far/away"):
        a_repo.write(name, "new\n")
    second = a_repo.commit("second")
    wanted = git.differences(first, second)
    assert with_changes(git, first, wanted) == git.tree_in(second)
    assert with_changes(git, first, wanted[::-1]) == git.tree_in(second)
    assert with_changes(git, second, git.differences(second, first)) == git.tree_in(first)
    a_repo.fsck()


@pytest.mark.parametrize("path", (b"dir", b"file/below"))
def test_a_file_takes_the_place_of_no_folder_that_stays(a_repo: Repo, git: Git, path: bytes) -> None:
    head = a_repo.commit("first", **{"dir/keep": "old\n", "file": "old\n"})
    blob = git.write_blob(b"new\n")
    with pytest.raises(GitFailed):
        with_changes(git, head, [Difference(path, "A", ("000000", ""), ("100644", blob))])


# Writing


@pytest.fixture(scope="module", params=["sha1", "sha256"])
def two_ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Repo, Git]:
    """A repository of either format, with a commit; long-lived, because each example only adds objects."""
    repo = Repo(tmp_path_factory.mktemp(request.param))
    env = {f"GIT_{role}_{what}": "x" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    for words in (["init", "-q", f"--object-format={request.param}"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *words], cwd=repo.path, env=os.environ | env, check=True)
    return repo, Git.find(repo.path)


_TEXT = st.text(st.characters(exclude_categories=()), max_size=20) | st.text("a<>.,:;'\"\\ \n\x00ä", max_size=12)


_DATES = ("@0 +0000", "@1700000000 +0530", "@1700000000 -0930", "@5 -0000", "@1 +0099", "2026-01-05T09:00:00Z")


@given(
    name=_TEXT | st.just("Ada Lovelace"),
    email=_TEXT | st.just("ada@example.org"),
    date=st.sampled_from(_DATES),
    message=_TEXT,
    parents=st.integers(0, 2),
)
def test_a_commit_is_what_git_would_have_made(
    two_ways: tuple[Repo, Git], name: str, email: str, date: str, message: str, parents: int
) -> None:
    _, git = two_ways
    head = git.resolve("HEAD")
    tree, above = git.tree_in(head), [head] * parents
    people = dict.fromkeys(("author", "committer"), (name, email, date))
    try:
        given_by_git = git._commit_tree(tree, above, message.encode(errors="surrogateescape"), people)
    except (GitFailed, ValueError, UnicodeError):
        with pytest.raises((GitFailed, ValueError, UnicodeError)):
            git.commit_tree(tree, above, message, by=Identity(name, email), date=date)
        return
    assert git.commit_tree(tree, above, message, by=Identity(name, email), date=date) == given_by_git


@given(st.binary(max_size=300))
def test_a_blob_is_what_git_would_have_made(two_ways: tuple[Repo, Git], content: bytes) -> None:
    _, git = two_ways
    told = git.content("hash-object", "--stdin", "--no-filters", input=content).out.decode().strip()
    assert git.write_blob(content) == told
    assert git.content("cat-file", "blob", told).out == content


def _files(folder: Path) -> Sequence[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def test_an_object_is_like_one_of_gits_own(a_repo: Repo, git: Git) -> None:
    objects = a_repo.path / ".git/objects"
    told = a_repo.git("hash-object", "-w", "README")
    ours = git.write_blob(b"something else\n")
    theirs, mine = (objects / oid[:2] / oid[2:] for oid in (told, ours))
    assert stat.S_IMODE(mine.stat().st_mode) == stat.S_IMODE(theirs.stat().st_mode)
    assert not [file for file in _files(objects) if file.name.startswith("tmp_obj")]
    a_repo.fsck()


def test_an_object_that_is_there_counts_as_new(a_repo: Repo, git: Git) -> None:
    oid = git.write_blob(b"old\n")
    file = a_repo.path / ".git/objects" / oid[:2] / oid[2:]
    os.utime(file, (0, 0))
    assert git.write_blob(b"old\n") == oid
    assert file.stat().st_mtime > 0


def test_a_shared_repository_is_written_by_git(a_repo: Repo) -> None:
    a_repo.git("config", "core.sharedRepository", "0660")
    git = Git.find(a_repo.path)
    oid = git.write_blob(b"for the group\n")
    file = a_repo.path / ".git/objects" / oid[:2] / oid[2:]
    assert stat.S_IMODE(file.stat().st_mode) == 0o440
    assert git._writer is None


def test_what_cannot_be_written_is_told_in_gits_words(a_repo: Repo, git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    git.content("version")
    (a_repo.path / ".git/objects").rename(a_repo.path / ".git/elsewhere")
    (a_repo.path / ".git/objects").touch()
    with pytest.raises(GitFailed):
        git.write_blob(b"nowhere to go\n")


# On disk


@pytest.mark.parametrize("attributes", ("", "* text eol=crlf\n"))
def test_a_file_on_disk_is_stored_as_its_attributes_say(a_repo: Repo, attributes: str) -> None:
    if attributes:
        a_repo.write(".gitattributes", attributes)
    git = Git.find(a_repo.path)
    oid = git.write_blob(b"one\r\ntwo\r\n", "notes.txt")
    assert git.read_blob(oid) == (b"one\ntwo\n" if attributes else b"one\r\ntwo\r\n")


@pytest.mark.parametrize(
    ("setting", "value", "converts"),
    [("core.autocrlf", "input", True), ("core.autocrlf", "false", False), ("core.fileMode", "false", True),
     ("core.symlinks", "false", True), ("filter.x.clean", "cat", False), ("core.attributesFile", "~/a", True)],
)  # fmt: skip
def test_settings_that_change_what_is_stored_are_known(a_repo: Repo, setting: str, value: str, converts: bool) -> None:
    a_repo.git("config", setting, value)
    assert Git.find(a_repo.path).converts([b"README"], a_repo.path) is converts
