"""What every mission may count on from the place its agents work in, with real git and agents that mean no good."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Generic, NoReturn, Self, TypeVar

import pytest

from capsule.adapters import Place
from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError, Refused, SettingsError, WorkspaceBroken
from capsule.core.evidence import Change, Checkpoint
from capsule.settings import WorkspaceOptions
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.stepwise_worktree import StepwiseWorktree

from ..conftest import Repo

BRANCH = "refs/heads/capsule-x-1"
BASE = "refs/capsule/base/x-1"
NAMES = ("with space", "-dash", "new\nline", "ünï", "star*[x]", 'quo"te', "back\\slash", os.fsdecode(b"raw\xff"))


AnyPlace = TypeVar("AnyPlace", bound=GitWorktree)
KINDS: dict[str, Callable[..., GitWorktree]] = {
    "GitWorktree": GitWorktree,
    "StepwiseWorktree": partial(StepwiseWorktree, into="main"),
}


class Situation(Generic[AnyPlace]):
    """A place of some kind, and the agent in it: plain git, plain files."""

    def __init__(self, repo: Repo, git: Git, kind: Callable[..., AnyPlace]) -> None:
        self.repo = repo
        self.git = git
        self.kind = kind
        self.base = repo.head()
        self.place = kind(git, "x-1")
        self.path = self.place.path
        self.agent = Repo(self.path)

    def begin(self) -> Self:
        exclude_artefacts(self.git, self.base)
        assert list(self.place.prepare(self.base)) == []
        return self

    def again(self) -> AnyPlace:
        """Another process: nothing remembered."""
        return self.kind(Git.find(self.repo.path), "x-1")

    def base_state(self) -> Checkpoint:
        return self.place.base_checkpoint(self.base)

    def salvaged(self) -> list[str]:
        return self.repo.refs("refs/capsule/salvage")

    def entry(self) -> Path:
        return self.repo.path / ".git/worktrees/x-1"


class Mission(Situation[GitWorktree]):
    """A prepared worktree."""

    def __init__(self, repo: Repo, git: Git) -> None:
        super().__init__(repo, git, GitWorktree)


Anywhere = Situation[GitWorktree]


@pytest.fixture
def mission(a_repo: Repo, git: Git) -> Mission:
    return Mission(a_repo, git).begin()


@pytest.fixture(params=KINDS)
def anywhere(request: pytest.FixtureRequest, a_repo: Repo, git: Git) -> Anywhere:
    """What is promised of every place, whatever kind it is."""
    return Situation(a_repo, git, KINDS[request.param]).begin()


def test_is_a_workspace(anywhere: Anywhere) -> None:
    adapter: Place = anywhere.place
    assert adapter.path == anywhere.path
    assert adapter.branch == anywhere.agent.git("branch", "--show-current")
    assert adapter.head() == anywhere.base


# Beginning


def test_prepare_makes_a_clean_worktree_on_a_branch_of_its_own(mission: Mission) -> None:
    assert mission.agent.git("branch", "--show-current") == "capsule-x-1"
    assert mission.agent.status() == ""
    assert mission.agent.head() == mission.base
    assert (mission.path / "src/app.py").read_text() == "print('one')\n"
    assert mission.repo.status() == ""
    assert "worktrees/x-1" in mission.repo.git("worktree", "list")


def test_prepare_twice_changes_nothing(anywhere: Anywhere) -> None:
    (anywhere.path / "src/app.py").write_text("work")
    assert list(anywhere.again().prepare(anywhere.base)) == []
    assert (anywhere.path / "src/app.py").read_text() == "work"


def test_a_foreign_branch_is_refused_and_untouched(a_repo: Repo, git: Git) -> None:
    a_repo.git("branch", "capsule-x-1")
    with pytest.raises(Refused, match="did not make"):
        GitWorktree(git, "x-1").prepare(a_repo.head())
    assert a_repo.refs("refs/capsule") == []
    assert not (a_repo.path / ".capsule/worktrees").exists()


def test_a_foreign_folder_is_refused_and_untouched(a_repo: Repo, git: Git) -> None:
    kept = a_repo.write(".capsule/worktrees/x-1/precious", "mine")
    with pytest.raises(Refused, match="was not made by"):
        GitWorktree(git, "x-1").prepare(a_repo.head())
    assert kept.read_text() == "mine"
    assert a_repo.refs("refs/capsule") == a_repo.refs(BRANCH) == []


def test_a_registered_worktree_on_our_branch_is_adopted(a_repo: Repo, git: Git) -> None:
    base = a_repo.head()
    a_repo.git("worktree", "add", "-q", "-b", "capsule-x-1", ".capsule/worktrees/x-1")
    place = GitWorktree(git, "x-1")
    (place.path / "work.py").write_text("work")
    Repo(place.path).commit("work")
    (place.path / "loose").write_text("not committed")
    place.prepare(base)
    assert place.checkpoint("found").head == a_repo.head(BRANCH)
    assert a_repo.head(BASE) == base
    assert (place.path / "loose").exists() or a_repo.refs("refs/capsule/salvage")


def test_a_mission_goes_on_from_the_base_it_started_from(mission: Mission) -> None:
    newer = mission.repo.commit("newer", other__txt="x")
    warnings = mission.again().prepare(newer)
    assert mission.base[:10] in "".join(warnings)
    assert mission.repo.head(BASE) == mission.base


def lock(path: Path, age: float = 60) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (path.stat().st_mtime - age,) * 2)


def only_the_base_ref(m: Anywhere) -> None:
    m.repo.git("update-ref", BASE, m.base)


def a_lock_on_the_branch(m: Anywhere) -> None:
    only_the_base_ref(m)
    lock(m.repo.path / ".git/refs/heads/capsule-x-1.lock")


def only_the_branch(m: Anywhere) -> None:
    only_the_base_ref(m)
    m.repo.git("branch", "capsule-x-1")


def a_folder_that_is_not_registered(m: Anywhere) -> None:
    only_the_branch(m)
    m.path.mkdir(parents=True)
    (m.path / "README").write_text("hello\n")


def an_entry_that_says_nothing(m: Anywhere) -> None:
    only_the_branch(m)
    m.entry().mkdir(parents=True)


def no_file_checked_out(m: Anywhere) -> None:
    only_the_branch(m)
    m.repo.git("worktree", "add", "-q", "--no-checkout", str(m.path), "capsule-x-1")


def registered_without_a_folder(m: Anywhere) -> None:
    no_file_checked_out(m)
    shutil.rmtree(m.path)


def registered_and_locked_without_head(m: Anywhere) -> None:
    no_file_checked_out(m)
    (m.entry() / "HEAD").unlink()
    lock(m.entry() / "HEAD.lock")
    (m.entry() / "locked").write_text("initializing")


def half_of_the_files_one_of_them_torn(m: Anywhere) -> None:
    no_file_checked_out(m)
    (m.path / "README").write_text("hel")


def half_of_the_files_with_our_index_begun(m: Anywhere) -> None:
    half_of_the_files_one_of_them_torn(m)
    index = m.repo.path / ".git/capsule/places/x-1/index"
    index.parent.mkdir(parents=True)
    m.repo.git("read-tree", f"--index-output={index}", m.base)


CRASHES = (
    only_the_base_ref,
    a_lock_on_the_branch,
    only_the_branch,
    a_folder_that_is_not_registered,
    an_entry_that_says_nothing,
    no_file_checked_out,
    registered_without_a_folder,
    registered_and_locked_without_head,
    half_of_the_files_one_of_them_torn,
    half_of_the_files_with_our_index_begun,
)


@pytest.mark.sweep(cases=4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("crash", CRASHES)
def test_prepare_completes_what_a_crash_left(
    a_repo: Repo, git: Git, crash: Callable[[Anywhere], None], kind: str
) -> None:
    mission = Situation(a_repo, git, KINDS[kind])
    crash(mission)
    mission.place.prepare(mission.base)
    assert mission.agent.status() == ""
    assert mission.agent.git("branch", "--show-current") == "capsule-x-1"
    assert mission.place.tree() == a_repo.git("rev-parse", "HEAD^{tree}")
    a_repo.git("worktree", "prune")
    assert len(a_repo.git("worktree", "list").splitlines()) == 2
    a_repo.fsck()


def a_git_that_dies(folder: Path, nth: int) -> None:
    """A git in front of the real one that is killed at its n-th change to the file system."""
    calls = "rename,link,unlink,mkdir,rmdir"
    watched = f"strace -f -qqq -o {os.devnull} -e trace={calls} -e inject={calls}:signal=SIGKILL:when={nth}"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f'#!/bin/sh\nexec {watched} {shutil.which("git")} "$@"\n')
    (folder / "git").chmod(0o755)


def can_trace() -> bool:
    return (
        bool(shutil.which("strace"))
        and not subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode
    )


def spoilt(place: GitWorktree) -> GitWorktree:
    (place.path / "README").write_text("spoilt")
    (place.path / "debris").write_text("debris")
    return place


@pytest.mark.slow
@pytest.mark.promise("durability.killed-git")
@pytest.mark.parametrize("nth", (1, 3, 5))
@pytest.mark.skipif(not can_trace(), reason="strace is not available here")
def test_a_git_killed_at_any_change_costs_nothing(a_repo: Repo, git: Git, tmp_path: Path, nth: int) -> None:
    steps: list[Callable[[], object]] = [
        lambda: GitWorktree(Git(git.root, git.common_dir), "x-1").prepare(a_repo.head()),
        lambda: GitWorktree(Git(git.root, git.common_dir), "x-1").checkpoint("a"),
        lambda: spoilt(GitWorktree(Git(git.root, git.common_dir), "x-1")).restore(point),
        lambda: GitWorktree(Git(git.root, git.common_dir), "x-1").remove(branch=True),
    ]
    point = Checkpoint(a_repo.head(), a_repo.head(), a_repo.git("rev-parse", "HEAD^{tree}"))

    killed = 0
    for step in steps:
        a_git_that_dies(tmp_path / "tools", nth)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{tmp_path}/tools:{os.environ['PATH']}")
            try:
                step()
            except CapsuleError:
                killed += 1
        step()
    assert killed or nth > 3
    assert a_repo.refs(BRANCH) == a_repo.refs("refs/capsule/base") == a_repo.refs("refs/capsule/checkpoints") == []
    assert {a_repo.git("show", f"{ref}:debris") for ref in a_repo.refs("refs/capsule/salvage")} == {"debris"}
    a_repo.fsck()


# Copies and set-up


def test_copied_files_keep_their_mode_and_are_never_delivered(a_repo: Repo, git: Git) -> None:
    a_repo.write("local/secret.txt", "s3cret").chmod(0o600)
    a_repo.write(".env", "A=1")
    (a_repo.path / "local/link").symlink_to("/etc/passwd")
    place = GitWorktree(git, "x-1", copy=[".env", "local/*", "README"])
    place.prepare(a_repo.head())
    assert stat.S_IMODE((place.path / "local/secret.txt").stat().st_mode) == 0o600
    assert (place.path / ".env").read_text() == "A=1"
    assert not os.path.lexists(place.path / "local/link")
    assert place.tree() == a_repo.git("rev-parse", "HEAD^{tree}")
    assert (place.gate(place.tree())[0] / "local/secret.txt").exists()
    place.restore(place.base_checkpoint(a_repo.head()))
    assert (place.path / "local/secret.txt").exists()


def test_a_copy_stays_out_after_its_original_is_gone(a_repo: Repo, git: Git) -> None:
    secret = a_repo.write("secret.txt", "s3cret")
    GitWorktree(git, "x-1", copy=["secret.*"]).prepare(a_repo.head())
    secret.unlink()
    place = GitWorktree(git, "x-1", copy=["secret.*"])
    place.prepare(a_repo.head())
    assert place.tree() == a_repo.git("rev-parse", "HEAD^{tree}")


def test_copying_never_writes_through_a_link_in_the_tree(a_repo: Repo, git: Git, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (a_repo.path / "conf").symlink_to(outside)
    a_repo.commit("a link")
    (a_repo.path / "conf").unlink()
    a_repo.write("conf/secret", "s3cret")
    GitWorktree(git, "x-1", copy=["conf/*"]).prepare(a_repo.head())
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("pattern", ["../other", "/etc/passwd", "a/../../b"])
def test_a_pattern_that_leaves_the_project_is_an_error(a_repo: Repo, git: Git, pattern: str) -> None:
    with pytest.raises(SettingsError, match="leaves the project"):
        GitWorktree(git, "x-1", copy=[pattern]).prepare(a_repo.head())


@pytest.mark.promise("workflows.setup")
def test_agent_settings_that_git_does_not_hold_are_there_by_default(a_repo: Repo, git: Git) -> None:
    a_repo.write(".claude/settings.json", "tracked")
    a_repo.commit("settings")
    a_repo.write(".claude/settings.local.json", "mine")
    a_repo.write("CLAUDE.local.md", "mine")
    a_repo.write(".env", "secret")
    a_repo.write(".claude/worktrees/other/.git", "gitdir: elsewhere\n")
    a_repo.write(".claude/worktrees/other/large", "")
    place = GitWorktree(git, "x-1", copy=WorkspaceOptions().copy)
    place.prepare(a_repo.head())
    assert (place.path / ".claude/settings.local.json").read_text() == "mine"
    assert (place.path / "CLAUDE.local.md").read_text() == "mine"
    assert not (place.path / ".env").exists()
    assert not (place.path / ".claude/worktrees").exists()
    assert place.tree() == a_repo.head("HEAD^{tree}")


class SetUps:
    """Counts set-ups; each leaves something behind."""

    def __init__(self) -> None:
        self.places: list[str] = []

    def __call__(
        self,
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        assert log.parent.is_dir()
        self.places.append(cwd.parent.name)
        (cwd / "build").mkdir(exist_ok=True)
        (cwd / "build/deps").write_text(command)


def test_setup_runs_once_per_place_and_again_when_a_manifest_changes(a_repo: Repo, git: Git) -> None:
    a_repo.commit("manifest", **{"package.json": "{}"})
    setups = SetUps()

    def place() -> GitWorktree:
        return GitWorktree(git, "x-1", setup="npm ci", run_setup=setups)

    place().prepare(a_repo.head())
    place().prepare(a_repo.head())
    gate, *_ = place().gate(place().tree())
    place().gate(place().tree())
    assert setups.places == ["worktrees", gate.parent.name]
    assert (gate / "build/deps").exists()
    (place().path / "src/app.py").write_text("changed")
    place().gate(place().tree())
    assert setups.places == ["worktrees", gate.parent.name]
    (place().path / "package.json").write_text('{"a": 1}')
    place().gate(place().tree())
    assert setups.places == ["worktrees", gate.parent.name, gate.parent.name]


def test_a_failed_setup_is_tried_again(a_repo: Repo, git: Git) -> None:
    def fails(
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        raise CapsuleError("npm ci failed")

    with pytest.raises(CapsuleError, match="npm ci failed"):
        GitWorktree(git, "x-1", setup="npm ci", run_setup=fails).prepare(a_repo.head())
    setups = SetUps()
    GitWorktree(git, "x-1", setup="npm ci", run_setup=setups).prepare(a_repo.head())
    assert setups.places == ["worktrees"]


def test_a_setup_that_changes_the_work_is_reported(a_repo: Repo, git: Git) -> None:
    def noisy(
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        (cwd / "oops.txt").write_text("x")

    warnings = GitWorktree(git, "x-1", setup="noisy", run_setup=noisy).prepare(a_repo.head())
    assert "oops.txt" in "".join(warnings)


# Naming a state


def test_a_checkpoint_holds_everything_and_moves_nothing(mission: Mission) -> None:
    (mission.path / "new.py").write_text("new")
    (mission.path / "worklog.md").write_text("log")
    (mission.path / "x.pyc").write_text("ignored")
    (mission.path / ".capsule/output").mkdir(parents=True)
    (mission.path / ".capsule/output/a.log").write_text("out")
    point = mission.place.checkpoint("test")
    listed = mission.repo.git("ls-tree", "-r", "--name-only", point.commit).split()
    assert {"new.py", "worklog.md", "README"} < set(listed)
    assert not {"x.pyc", ".capsule/output/a.log"} & set(listed)
    assert mission.repo.head(BRANCH) == mission.base == point.head
    assert set(mission.place.trees.files(point.tree)) == {*listed} - {"worklog.md"}
    assert mission.agent.git("diff", "--cached", "--name-only") == ""


def test_a_look_sees_every_kind_of_change_and_costs_one_git_where_there_is_none(anywhere: Anywhere) -> None:
    place, file, git = anywhere.place, anywhere.path / "src/app.py", anywhere.git
    changes: list[Callable[[], object]] = [
        lambda: file.write_text("print('two')\n"),
        lambda: file.chmod(0o755),
        lambda: (anywhere.path / "new.py").write_text("new"),
        lambda: (anywhere.path / "link").symlink_to("new.py"),
        file.unlink,
    ]
    seen = [place.tree()]
    for change in changes:
        change()
        seen.append(place.tree())
        calls = git.calls
        assert place.tree() == seen[-1]
        assert git.calls == calls + 1
    assert len(set(seen)) == len(changes) + 1
    assert anywhere.again().tree() == seen[-1]


def test_the_same_state_is_the_same_checkpoint(anywhere: Anywhere) -> None:
    (anywhere.path / "new.py").write_text("new")
    one = anywhere.place.checkpoint("a")
    assert anywhere.again().checkpoint("b") == one


def test_the_worklog_is_named_even_where_the_project_ignores_it(a_repo: Repo, git: Git) -> None:
    a_repo.commit("ignore", **{".gitignore": "*.md\n"})
    place = GitWorktree(git, "x-1")
    place.prepare(a_repo.head())
    (place.path / "worklog.md").write_text("log")
    assert place.trees.read(place.checkpoint("a").commit, "worklog.md") == b"log"


@pytest.mark.parametrize("kind", KINDS)
def test_artefacts_are_delivered_as_on_the_base(a_repo: Repo, git: Git, kind: str) -> None:
    a_repo.write(".capsule/config.yaml", "verify: strict\n")
    a_repo.write("BACKLOG.yaml", "items: []\n")
    base = a_repo.commit("settings", **{"docs/items.yaml": "a"})
    place = KINDS[kind](git, "x-1", artefacts=["docs/items.yaml"])
    place.prepare(base)
    (place.path / ".capsule/config.yaml").write_text("verify: off\n")
    (place.path / ".beads").mkdir()
    (place.path / ".beads/issues.jsonl").write_text("{}")
    (place.path / "BACKLOG.yaml").unlink()
    (place.path / "docs/items.yaml").write_text("b")
    (place.path / "worklog.md").write_text("log")
    assert place.tree() == a_repo.git("rev-parse", "HEAD^{tree}")
    assert place.trees.changes(base, place.checkpoint("a").commit) == []


def test_changes_and_uncommitted_work_are_seen(mission: Mission) -> None:
    (mission.path / "README").unlink()
    (mission.path / "src/app.py").chmod(0o755)
    (mission.path / "new.py").symlink_to("README")
    tree = mission.place.tree()
    expected = [Change("README", "D"), Change("new.py", "A"), Change("src/app.py", "M")]
    assert list(mission.place.trees.changes(mission.base, tree)) == expected
    assert list(mission.place.touched_outside_commit()) == ["README", "new.py", "src/app.py"]
    mission.agent.commit("done")
    assert list(mission.place.touched_outside_commit()) == []
    assert mission.place.head() == mission.agent.head()


def test_names_of_any_kind_survive(anywhere: Anywhere) -> None:
    for name in NAMES:
        (anywhere.path / name).write_text(name if name.isascii() else "x")
    point = anywhere.place.checkpoint("names")
    files = anywhere.place.trees.files(point.tree)
    assert len(files) == len(NAMES) + 3
    "".join(files).encode()  # fit for JSON, whatever the agent calls its files
    anywhere.place.restore(anywhere.base_state())
    assert not [name for name in NAMES if os.path.lexists(anywhere.path / name)]
    anywhere.place.restore(point)
    assert all((anywhere.path / name).exists() for name in NAMES)
    gate, *_ = anywhere.place.gate(point.tree)
    assert all((gate / name).exists() for name in NAMES)
    assert anywhere.place.trees.read(point.tree, "-dash") == b"-dash"


def test_reading_what_is_not_there(anywhere: Anywhere) -> None:
    assert anywhere.place.trees.read(anywhere.base, "nowhere") is None
    assert anywhere.place.trees.read(anywhere.base, "src") is None


# Going back


def test_restore_gives_back_files_head_and_worklog(mission: Mission) -> None:
    (mission.path / "worklog.md").write_text("one")
    (mission.path / "keep.py").write_text("keep")
    point = mission.place.checkpoint("good")
    mission.agent.commit("bad", **{"bad.py": "bad"})
    (mission.path / "worklog.md").write_text("two")
    (mission.path / "keep.py").unlink()
    (mission.path / "loose").write_text("loose")
    (mission.path / "x.pyc").write_text("ignored")
    kept = mission.again().restore(point)
    assert kept == "refs/capsule/salvage/x-1/1"
    assert mission.repo.git("show", f"{kept}:loose") == "loose"
    assert mission.repo.git("show", f"{kept}:bad.py") == "bad"
    assert mission.repo.git("log", "--format=%s", f"{kept}^1", "-1") == "bad"
    assert (mission.path / "worklog.md").read_text() == "one"
    assert (mission.path / "keep.py").read_text() == "keep"
    assert not (mission.path / "loose").exists()
    assert (mission.path / "x.pyc").exists()
    assert mission.agent.head() == mission.base
    assert mission.agent.status() == "?? keep.py"
    assert mission.place.restore(point) == ""


def test_restoring_what_is_there_touches_nothing(anywhere: Anywhere) -> None:
    (anywhere.path / "new.py").write_text("new")
    anywhere.agent.git("add", "new.py")
    point = anywhere.place.checkpoint("a")
    before = (anywhere.path / "new.py").stat()
    assert anywhere.again().restore(point) == ""
    assert (anywhere.path / "new.py").stat() == before
    assert anywhere.salvaged() == []


def test_a_state_that_a_checkpoint_holds_is_not_salvaged_again(mission: Mission) -> None:
    one = mission.place.checkpoint("one")
    (mission.path / "new.py").write_text("new")
    two = mission.place.checkpoint("two")
    assert mission.place.restore(one) == ""
    assert mission.place.restore(two) == ""
    assert (mission.path / "new.py").read_text() == "new"


@pytest.mark.promise("durability.salvage")
def test_salvage_never_overwrites(anywhere: Anywhere) -> None:
    refs = []
    for text in ("one", "two", "one"):
        (anywhere.path / "loose").write_text(text)
        refs.append(anywhere.place.restore(anywhere.base_state()))
    assert refs[0] != refs[1] and refs[0] == refs[2]
    assert [anywhere.repo.git("show", f"{ref}:loose") for ref in refs] == ["one", "two", "one"]


def test_a_deleted_worktree_is_broken_and_comes_back(anywhere: Anywhere) -> None:
    (anywhere.path / "new.py").write_text("new")
    point = anywhere.place.checkpoint("a")
    shutil.rmtree(anywhere.path)
    with pytest.raises(WorkspaceBroken, match="gone"):
        anywhere.place.checkpoint("b")
    assert anywhere.place.restore(point) == ""
    assert (anywhere.path / "new.py").read_text() == "new"
    assert anywhere.agent.status() == "?? new.py"


def test_a_worktree_remade_is_set_up_again(a_repo: Repo, git: Git) -> None:
    setups = SetUps()
    place = GitWorktree(git, "x-1", setup="npm ci", run_setup=setups)
    place.prepare(a_repo.head())
    shutil.rmtree(place.path)
    place.restore(place.base_checkpoint(a_repo.head()))
    assert setups.places == ["worktrees", "worktrees"]


def test_read_only_folders_do_not_stop_restore_or_remove(anywhere: Anywhere) -> None:
    (anywhere.path / "closed").mkdir()
    (anywhere.path / "closed/file").write_text("x")
    (anywhere.path / "closed").chmod(0o555)
    anywhere.place.restore(anywhere.base_state())
    assert not (anywhere.path / "closed/file").exists()
    (anywhere.path / "closed").mkdir(exist_ok=True)
    (anywhere.path / "closed/x.pyc").write_text("x")
    (anywhere.path / "closed").chmod(0o555)
    anywhere.place.remove(branch=True)
    assert not anywhere.path.exists()


def test_a_lock_that_the_agents_git_left_is_cleared(mission: Mission) -> None:
    (mission.entry() / "index.lock").touch()
    (mission.repo.path / f".git/{BRANCH}.lock").touch()
    mission.place.restore(mission.base_state())
    commit = mission.agent.commit("works again", new="x")
    assert mission.place.head() == commit


# Agents that mean no good, or do not know better


def test_commits_on_a_detached_head_come_home(mission: Mission) -> None:
    mission.agent.git("switch", "-q", "--detach")
    mission.agent.commit("lost?", **{"new.py": "new"})
    tip = mission.agent.head()
    point = mission.place.checkpoint("a")
    assert point.head == tip == mission.repo.head(BRANCH)
    assert mission.agent.git("branch", "--show-current") == "capsule-x-1"
    assert mission.salvaged() == []


def test_commits_on_another_branch_come_home_and_ours_are_salvaged(mission: Mission) -> None:
    mission.agent.commit("on ours", **{"a.py": "a"})
    ours = mission.agent.head()
    mission.agent.git("switch", "-q", "-c", "feature", mission.base)
    mission.agent.commit("on theirs", **{"b.py": "b"})
    assert mission.place.head() == mission.repo.head("feature")
    [kept] = mission.salvaged()
    mission.repo.git("merge-base", "--is-ancestor", ours, kept)


def test_history_without_the_base_is_salvaged_and_not_taken(anywhere: Anywhere) -> None:
    anywhere.agent.git("switch", "-q", "--orphan", "fresh")
    (anywhere.path / "evil.py").write_text("x")
    anywhere.agent.commit("no base")
    tip = anywhere.agent.head()
    assert anywhere.place.checkpoint("a").head == anywhere.base
    [kept] = anywhere.salvaged()
    anywhere.repo.git("merge-base", "--is-ancestor", tip, kept)
    assert anywhere.agent.git("branch", "--show-current") == "capsule-x-1"


def test_a_branch_reset_to_before_the_base_is_put_back(anywhere: Anywhere) -> None:
    anywhere.agent.git("reset", "-q", "--hard", "HEAD~1")
    assert anywhere.place.head() == anywhere.base


def test_a_base_ref_that_the_agent_deleted_is_put_back(mission: Mission) -> None:
    mission.agent.commit("work", **{"a.py": "a"})
    point = mission.place.checkpoint("one")
    mission.agent.git("update-ref", "-d", BASE)
    (mission.path / "a.py").write_text("spoilt")
    mission.again().restore(point)
    assert (mission.path / "a.py").read_text() == "a"
    assert mission.repo.head(BASE) == mission.base


def test_a_base_ref_put_back_is_the_one_of_the_last_rebase(mission: Mission) -> None:
    onto = mission.repo.commit("main moved", other="x")
    point, _ = mission.place.rebase(onto)
    mission.agent.git("update-ref", "-d", BASE)
    mission.again().restore(point)
    assert mission.repo.head(BASE) == onto


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("name", ["x-1/foo", "x-1", "x-1/1/2", "x-1/7"])
def test_refs_of_the_agents_do_not_stop_salvage(anywhere: Anywhere, name: str) -> None:
    anywhere.agent.git("update-ref", f"refs/capsule/salvage/{name}", "HEAD")
    (anywhere.path / "a.py").write_text("a")
    kept = anywhere.again().salvage("abandoned")
    assert anywhere.repo.git("show", f"{kept}:a.py") == "a"
    assert anywhere.again().salvage("abandoned") == kept


def test_a_ref_in_place_of_all_salvage_does_not_stop_it(mission: Mission) -> None:
    mission.agent.git("update-ref", "refs/capsule/salvage", "HEAD")
    (mission.path / "a.py").write_text("a")
    assert mission.repo.git("show", f"{mission.again().salvage('abandoned')}:a.py") == "a"


def test_a_deleted_branch_is_put_back(anywhere: Anywhere) -> None:
    anywhere.agent.git("switch", "-q", "--detach")
    anywhere.agent.git("branch", "-q", "-D", "capsule-x-1")
    assert anywhere.place.checkpoint("a").head == anywhere.base == anywhere.repo.head(BRANCH)


@pytest.mark.parametrize("committed", [True, False])
def test_a_repository_inside_the_worktree_is_refused_and_its_files_are_kept(
    anywhere: Anywhere, committed: bool
) -> None:
    nested = Repo(anywhere.path / "sub/inner")
    nested.path.mkdir(parents=True)
    nested.git("init", "-q")
    nested.write("file", "precious")
    if committed:
        nested.commit()
    for look in (anywhere.place.tree, lambda: anywhere.place.checkpoint("a")):
        with pytest.raises(WorkspaceBroken, match="sub/inner"):
            look()
    kept = anywhere.place.restore(anywhere.base_state())
    assert anywhere.repo.git("show", f"{kept}:sub/inner/file") == "precious"
    assert not (anywhere.path / "sub").exists()
    assert len(list((anywhere.repo.path / ".git/capsule/salvaged").iterdir())) == 1


def a_name_that_is_git_elsewhere(place: Path) -> None:
    (place / "git~1").write_text("odd")


def a_name_that_git_garbles(place: Path) -> None:
    for number in range(3):
        folder = place / os.fsdecode(b"new\nline\x01\xff") / ".GIT"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / str(number)).write_text("odd")


def modules_that_are_a_link(place: Path) -> None:
    (place / ".gitmodules").symlink_to("README")


def a_worklog_that_is_a_pipe(place: Path) -> None:
    (place / "worklog.md").unlink(missing_ok=True)
    os.mkfifo(place / "worklog.md")


def a_tracked_file_that_is_a_pipe(place: Path) -> None:
    (place / "README").unlink()
    os.mkfifo(place / "README")


UNFIT = (
    a_name_that_is_git_elsewhere,
    a_name_that_git_garbles,
    modules_that_are_a_link,
    a_worklog_that_is_a_pipe,
    a_tracked_file_that_is_a_pipe,
)


@pytest.mark.sweep
@pytest.mark.parametrize("leave", UNFIT)
def test_what_git_does_not_store_is_refused_and_the_rest_is_kept(
    mission: Mission, leave: Callable[[Path], None]
) -> None:
    mission.place.write_worklog("log")
    mission.place.checkpoint("before")
    (mission.path / "work.py").write_text("work")
    leave(mission.path)
    for look in (mission.place.tree, lambda: mission.place.checkpoint("a")):
        with pytest.raises(WorkspaceBroken, match="git stores in no tree"):
            look()
    kept = mission.place.restore(mission.base_state())
    assert mission.repo.git("show", f"{kept}:work.py") == "work"
    assert mission.agent.status() == ""
    leave(mission.path)
    (mission.path / "work.py").write_text("more work")
    assert mission.repo.git("show", f"{mission.again().salvage('clean')}:work.py") == "more work"


def test_a_file_that_git_does_not_store_is_on_the_shelf(anywhere: Anywhere) -> None:
    a_name_that_is_git_elsewhere(anywhere.path)
    anywhere.place.restore(anywhere.base_state())
    shelf = anywhere.repo.path / ".git/capsule/salvaged"
    assert [file.read_text() for file in shelf.iterdir()] == ["odd"]


def test_a_worklog_turned_pipe_after_the_last_look_is_noticed(mission: Mission) -> None:
    mission.place.write_worklog("log")
    mission.place.tree()
    a_worklog_that_is_a_pipe(mission.path)
    with pytest.raises(WorkspaceBroken, match=r"worklog\.md"):
        mission.place.checkpoint("a")


@pytest.mark.parametrize("files", [{}, {".gitattributes": "* text eol=crlf\n"}, {".gitignore": "*.md\n!worklog.md\n"}])
def test_a_worklog_is_kept_and_restored_byte_by_byte(a_repo: Repo, git: Git, files: dict[str, str]) -> None:
    if files:
        a_repo.commit("about files", **files)
    mission = Mission(a_repo, git).begin()
    log, text = mission.path / "worklog.md", b"one\r\ntwo\nthree"
    log.write_bytes(text)
    point = mission.place.checkpoint("a")
    assert mission.repo.git("cat-file", "-s", f"{point.commit}:worklog.md") == str(len(text))
    log.write_bytes(b"something else")
    assert mission.again().restore(point)
    assert log.read_bytes() == text
    assert mission.again().restore(point) == ""
    bare = mission.place.base_checkpoint(mission.base)
    assert mission.again().restore(bare) == "", "the checkpoint has it"
    assert not log.exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_whatever_stands_where_the_worklog_belongs_makes_way(mission: Mission, make: Callable[[Path], None]) -> None:
    make(mission.path / "worklog.md")
    mission.place.write_worklog("log")
    assert mission.place.worklog() == "log"


def test_submodules_of_the_base_stay_as_they_are(a_repo: Repo, git: Git) -> None:
    a_repo.write(".gitmodules", '[submodule "lib"]\n\tpath = lib\n\turl = ./lib\n')
    a_repo.git("update-index", "--add", "--cacheinfo", f"160000,{a_repo.head()},lib")
    a_repo.git("add", ".gitmodules")
    a_repo.git("commit", "-q", "-m", "submodule")
    place = GitWorktree(git, "x-1")
    place.prepare(a_repo.head())
    assert place.tree() == a_repo.git("rev-parse", "HEAD^{tree}")


def test_a_git_file_pointed_elsewhere_does_not_fool_us(anywhere: Anywhere, tmp_path: Path) -> None:
    evil = Repo(tmp_path / "evil")
    evil.path.mkdir()
    evil.git("init", "-q")
    (anywhere.path / "new.py").write_text("new")
    point = anywhere.place.checkpoint("a")
    (anywhere.path / ".git").write_text(f"gitdir: {evil.path}/.git\n")
    with pytest.raises(WorkspaceBroken, match=r"\.git file"):
        anywhere.place.tree()
    assert anywhere.place.restore(point) == ""
    assert anywhere.agent.head() == anywhere.base
    assert (anywhere.path / "new.py").read_text() == "new"


def test_a_worktree_turned_into_a_repository_of_its_own_is_put_right(anywhere: Anywhere) -> None:
    (anywhere.path / ".git").unlink()
    anywhere.agent.git("init", "-q")
    anywhere.agent.commit("mine", **{"new.py": "new"})
    with pytest.raises(WorkspaceBroken):
        anywhere.place.checkpoint("a")
    kept = anywhere.place.restore(anywhere.base_state())
    assert anywhere.repo.git("show", f"{kept}:new.py") == "new"
    assert len(list((anywhere.repo.path / ".git/capsule/salvaged").iterdir())) == 1


@pytest.mark.parametrize("what", ["HEAD", "commondir", "gitdir"])
def test_an_entry_the_agent_bent_is_broken_and_put_right(anywhere: Anywhere, what: str) -> None:
    (anywhere.entry() / what).write_text("garbage\n")
    with pytest.raises(WorkspaceBroken):
        anywhere.place.checkpoint("a")
    anywhere.place.restore(anywhere.base_state())
    assert anywhere.agent.status() == ""
    assert anywhere.place.head() == anywhere.base


def test_a_worktree_turned_into_a_link_is_not_followed(anywhere: Anywhere, tmp_path: Path) -> None:
    anywhere.path.rename(tmp_path / "elsewhere")
    anywhere.path.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/README").write_text("untouched")
    with pytest.raises(WorkspaceBroken):
        anywhere.place.tree()
    anywhere.place.restore(anywhere.base_state())
    assert (tmp_path / "elsewhere/README").read_text() == "untouched"
    assert not anywhere.path.is_symlink()
    assert anywhere.agent.status() == ""


@pytest.mark.promise("evidence.planted-index")
@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_flags_in_the_agents_index_hide_nothing(anywhere: Anywhere, flag: str) -> None:
    anywhere.agent.git("update-index", flag, "src/app.py")
    (anywhere.path / "src/app.py").write_text("evil")
    assert [change.path for change in anywhere.place.trees.changes(anywhere.base, anywhere.place.tree())] == [
        "src/app.py"
    ]


def planted(mission: Mission, marker: Path) -> None:
    """Everything that would run a program of the agent's in a git that is not careful."""
    script = mission.path / "evil.sh"
    script.write_text(f"#!/bin/sh\necho $0 $@ >> {marker}\ncat\n")
    script.chmod(0o755)
    for key in (
        "core.fsmonitor",
        "filter.zz.clean",
        "filter.zz.smudge",
        "merge.zz.driver",
        "diff.zz.command",
        "diff.zz.textconv",
        "gpg.program",
        "core.editor",
        "core.pager",
        "core.sshCommand",
    ):
        mission.agent.git("config", key, str(script))
    mission.agent.git("config", "commit.gpgsign", "true")
    hooks = mission.repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction", "post-index-change"):
        shutil.copy(script, hooks / name)
    (mission.path / ".gitattributes").write_text("* filter=zz diff=zz merge=zz\n")
    (mission.repo.path / ".git/info/attributes").write_text("* filter=zz diff=zz merge=zz\n")
    marker.unlink(missing_ok=True)


@pytest.mark.promise("evidence.planted-index")
def test_nothing_the_agent_plants_is_run(mission: Mission, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    planted(mission, marker)
    (mission.path / "src/app.py").write_text("evil")
    point = mission.again().checkpoint("a")
    mission.again().gate(point.tree)
    mission.again().restore(mission.base_state())
    mission.again().restore(point)
    mission.again().rebase(mission.base)
    mission.again().salvage("why")
    mission.again().remove(branch=True)
    assert not marker.exists(), marker.read_text()


@pytest.mark.parametrize("key,value", [("core.bare", "true"), ("core.worktree", "/nowhere")])
def test_settings_that_break_git_do_not_break_us(anywhere: Anywhere, key: str, value: str) -> None:
    (anywhere.path / "new.py").write_text("new")
    anywhere.repo.git("config", key, value)
    point = anywhere.again().checkpoint("a")
    anywhere.again().gate(point.tree)
    anywhere.again().remove(branch=True)
    assert not anywhere.path.exists()


def test_a_link_called_worklog_is_not_followed(mission: Mission, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("untouched")
    (mission.path / "worklog.md").write_text("mine")
    point = mission.place.checkpoint("a")
    (mission.path / "worklog.md").unlink()
    (mission.path / "worklog.md").symlink_to(outside)
    mission.place.checkpoint("b")
    mission.place.restore(point)
    assert outside.read_text() == "untouched"
    assert (mission.path / "worklog.md").read_text() == "mine"
    assert not (mission.path / "worklog.md").is_symlink()


def test_a_folder_turned_into_a_link_is_not_followed(anywhere: Anywhere, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "app.py").write_text("untouched")
    shutil.rmtree(anywhere.path / "src")
    (anywhere.path / "src").symlink_to(outside)
    anywhere.place.restore(anywhere.base_state())
    assert (outside / "app.py").read_text() == "untouched"
    assert (anywhere.path / "src/app.py").read_text() == "print('one')\n"
    assert not (anywhere.path / "src").is_symlink()


# The gate


@pytest.mark.promise("evidence.clean-gate")
def test_the_gate_holds_exactly_the_tree(anywhere: Anywhere) -> None:
    (anywhere.path / "new.py").write_text("new")
    (anywhere.path / "worklog.md").write_text("log")
    tree = anywhere.place.tree()
    gate, *_ = anywhere.place.gate(tree)
    assert (gate / "new.py").read_text() == "new"
    assert not (gate / "worklog.md").exists()
    assert Repo(gate).git("rev-parse", "HEAD") == anywhere.base


@pytest.mark.promise("evidence.clean-gate")
def test_the_gate_forgets_what_a_run_left(anywhere: Anywhere) -> None:
    tree = anywhere.place.tree()
    gate, *_ = anywhere.place.gate(tree)
    (gate / "x.pyc").write_text("stale")
    (gate / "build").mkdir()
    (gate / "debris").write_text("x")
    (gate / "README").write_text("HELLO\n")
    (gate / "src/app.py").unlink()
    anywhere.again().gate(tree)
    assert sorted(path.name for path in gate.iterdir()) == [".git", ".gitignore", "README", "src"]
    assert (gate / "README").read_text() == "hello\n"
    assert (gate / "src/app.py").exists()


def test_the_gate_comes_back_after_it_was_deleted(anywhere: Anywhere) -> None:
    gate, *_ = anywhere.place.gate(anywhere.place.tree())
    shutil.rmtree(gate)
    anywhere.again().gate(anywhere.place.tree())
    assert (gate / "README").exists()


# Another base


def test_rebase_takes_the_work_to_another_base(mission: Mission) -> None:
    mission.agent.commit("work", **{"new.py": "new"})
    (mission.path / "loose.py").write_text("loose")
    (mission.path / "worklog.md").write_text("log")
    onto = mission.repo.commit("main moved", other="x")
    point, conflicts = mission.place.rebase(onto)
    assert list(conflicts) == []
    assert point.head == onto == mission.agent.head() == mission.repo.head(BASE)
    assert [change.path for change in mission.place.trees.changes(onto, point.tree)] == ["loose.py", "new.py"]
    assert (mission.path / "worklog.md").read_text() == "log"
    assert (mission.path / "other").exists()
    assert mission.place.tree() == point.tree


def test_a_rebase_with_a_message_commits_the_work_as_one_commit(mission: Mission) -> None:
    mission.agent.commit("work", **{"new.py": "new"})
    (mission.path / "worklog.md").write_text("log")
    onto = mission.repo.commit("main moved", other="x")
    before = mission.place.checkpoint("before")
    point, _ = mission.place.rebase(onto, "The work")
    for _ in range(2):
        assert mission.agent.head() == point.head == mission.place.head()
        said = mission.repo.git("log", "-1", "--format=%s %P", point.head)
        assert said == f"The work {onto}" and mission.repo.git("diff", "--name-only", onto, point.head) == "new.py"
        assert not mission.place.touched_outside_commit() and (mission.path / "worklog.md").read_text() == "log"
        mission.place.restore(before)  # cut short, it is finished and not done twice
        assert mission.again().rebase(onto, "The work") == (point, [])
    (mission.path / "other").write_text("mine\n")
    newest = mission.repo.commit("main moved again", other="theirs\n")
    point, conflicts = mission.place.rebase(newest, "The work")
    assert point.head == newest and list(conflicts) == ["other"], "what conflicts is nothing to be merged"


def test_rebase_leaves_markers_where_it_conflicts(mission: Mission) -> None:
    (mission.path / "README").write_text("work\n")
    onto = mission.repo.commit("main moved", README="main\n")
    _, conflicts = mission.place.rebase(onto)
    assert list(conflicts) == ["README"]
    markers = (mission.path / "README").read_text()
    assert "<<<<<<<" in markers
    assert ">>>>>>> capsule-x-1\n" in markers


def test_a_rebase_cut_short_is_finished_and_not_done_twice(mission: Mission) -> None:
    (mission.path / "README").write_text("work\n")
    onto = mission.repo.commit("main moved", README="main\n")
    before = mission.place.checkpoint("before")
    done, conflicts = mission.place.rebase(onto)
    for undo in (
        lambda: None,
        lambda: mission.place.restore(before),
        lambda: (mission.path / "README").write_text("to"),
    ):
        mission.repo.git("update-ref", BASE, mission.base)
        undo()
        assert mission.again().rebase(onto) == (done, conflicts)
        assert "<<<<<<<" in (mission.path / "README").read_text()
        assert mission.repo.head(BASE) == onto


# Keeping a step's work


def test_a_file_is_written_where_it_belongs(anywhere: Anywhere) -> None:
    anywhere.place.write("docs/deep/plan.md", b"- [x] done\n")
    (anywhere.path / "README").chmod(0o755)
    anywhere.place.write("README", b"more\n")
    assert (anywhere.path / "docs/deep/plan.md").read_bytes() == b"- [x] done\n"
    assert stat.S_IMODE((anywhere.path / "README").stat().st_mode) == 0o755
    changed = [change.path for change in anywhere.place.trees.changes(anywhere.base, anywhere.place.tree())]
    assert changed == ["README", "docs/deep/plan.md"]


@pytest.mark.sweep(cases=6)
@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../outside",
        "a/../../outside",
        ".git/config",
        "away/x",
        "src",
        "README/x",
        ".capsule/config.yaml",
    ],
)
def test_a_path_that_leads_elsewhere_is_not_written(anywhere: Anywhere, tmp_path: Path, path: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (anywhere.path / "away").symlink_to(tmp_path / "elsewhere")
    before = anywhere.place.tree()
    with pytest.raises(Refused):
        anywhere.place.write(path, b"evil")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert anywhere.place.tree() == before


def test_a_link_in_the_files_place_is_replaced(anywhere: Anywhere, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("untouched")
    (anywhere.path / "link").symlink_to(tmp_path / "outside")
    anywhere.place.write("link", b"new")
    assert (tmp_path / "outside").read_text() == "untouched"
    assert (anywhere.path / "link").read_bytes() == b"new"


def test_a_steps_work_is_committed_to_the_missions_branch_once(mission: Mission) -> None:
    mission.agent.commit("by the agent", **{"one.py": "one"})
    (mission.path / "two.py").write_text("two")
    (mission.path / "README").unlink()
    (mission.path / "BACKLOG.yaml").write_text("bent")
    point = mission.place.checkpoint("build#1")
    assert mission.place.commit_step(point, "[X-1][BUILD] two", "x-1/build#1") is None
    tip = mission.repo.head(BRANCH)
    assert mission.agent.status() == "?? BACKLOG.yaml"
    said = mission.repo.git("log", "-1", "--format=%an|%s|%(trailers:key=Capsule-Step,valueonly)", tip)
    assert said == "Ada|[X-1][BUILD] two|x-1/build#1"
    assert mission.repo.git("diff", "--name-status", f"{tip}^", tip).split() == ["D", "README", "A", "two.py"]
    assert mission.place.touched_outside_commit() == []
    mission.again().commit_step(point, "[X-1][BUILD] two", "x-1/build#1")
    assert mission.repo.head(BRANCH) == tip
    landed = mission.place.checkpoint_at("")
    assert (landed.head, landed.tree) == (tip, mission.repo.head(f"{tip}^{{tree}}"))
    (mission.path / "two.py").write_text("spoilt")
    mission.again().restore(landed)
    assert (mission.path / "two.py").read_text() == "two"
    assert mission.repo.head(BRANCH) == tip


def test_a_hand_over_cut_short_after_the_commit_is_finished(mission: Mission, monkeypatch: pytest.MonkeyPatch) -> None:
    (mission.path / "two.py").write_text("two")
    point = mission.place.checkpoint("build#1")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(mission.place, "_unstage", interrupted)
        mission.place.commit_step(point, "two", "x-1/build#1")
    tip = mission.repo.head(BRANCH)
    assert tip != mission.base
    assert mission.agent.status() == "D  two.py\n?? two.py"
    mission.again().commit_step(point, "two", "x-1/build#1")
    assert mission.repo.head(BRANCH) == tip
    assert mission.agent.status() == ""


def interrupted(*_: object, **__: object) -> NoReturn:
    raise KeyboardInterrupt


def test_a_trailer_that_an_agent_forged_keeps_no_work_out(mission: Mission) -> None:
    mission.agent.commit("mine\n\nCapsule-Step: x-1/build#1", **{"one.py": "one"})
    (mission.path / "two.py").write_text("two")
    mission.place.commit_step(mission.place.checkpoint("build#1"), "two", "x-1/build#1")
    assert mission.repo.git("show", f"{BRANCH}:two.py") == "two"


def test_a_step_without_work_makes_no_commit(mission: Mission) -> None:
    point = mission.place.checkpoint("review#1")
    mission.place.commit_step(point, "nothing", "x-1/review#1")
    assert mission.repo.head(BRANCH) == mission.base


def test_nothing_is_withdrawn_from_a_worktree(mission: Mission) -> None:
    (mission.path / "new.py").write_text("new")
    assert mission.place.salvage_and_reset("failed") == ""
    assert (mission.path / "new.py").exists()


# What a human adds to what was approved


def tree_with(mission: Anywhere, **files: str | None) -> str:
    """The deliverable tree once these files are written, or gone."""
    for name, text in files.items():
        file = mission.path / name.replace("__", "/")
        if text is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return mission.place.tree()


def test_exactly_what_a_human_changed_is_adopted(anywhere: Anywhere) -> None:
    approved = tree_with(anywhere, tests="approved", gone="approved", kept="approved")
    left = tree_with(anywhere, tests="bent by the agent", agents="more")
    now = tree_with(anywhere, kept="by hand", gone=None, new__deep="by hand")
    apply_human_edits = anywhere.place.trees.apply_human_edits(approved, left, now)
    changes = {change.path: change.kind for change in anywhere.place.trees.changes(approved, apply_human_edits)}
    assert changes == {"kept": "M", "gone": "D", "new/deep": "A"}
    assert anywhere.place.trees.read(apply_human_edits, "tests") == b"approved"
    assert anywhere.place.trees.read(apply_human_edits, "kept") == b"by hand"
    assert anywhere.place.trees.apply_human_edits(approved, left, left) == approved
    assert anywhere.agent.git("diff", "--cached") == ""


def test_a_file_that_a_human_turned_into_a_folder_is_adopted(anywhere: Anywhere) -> None:
    approved = left = tree_with(anywhere, thing="file")
    (anywhere.path / "thing").unlink()
    now = tree_with(anywhere, thing__inner="folder")
    assert anywhere.place.trees.apply_human_edits(approved, left, now) == now
    assert anywhere.place.trees.apply_human_edits(now, now, approved) == approved


def test_artefacts_are_never_adopted(anywhere: Anywhere) -> None:
    left = anywhere.place.tree()
    bent = anywhere.repo.commit("bent", BACKLOG__yaml="x", plain="x")
    apply_human_edits = anywhere.place.trees.apply_human_edits(left, left, anywhere.repo.head(f"{bent}^{{tree}}"))
    assert [change.path for change in anywhere.place.trees.changes(left, apply_human_edits)] == ["plain"]
    assert anywhere.place.trees.read(apply_human_edits, "BACKLOG.yaml") is None


def test_an_approved_tree_is_rebuilt_as_the_work_is(mission: Mission) -> None:
    approved = tree_with(mission, README="work\n", tests="approved")
    tree_with(mission, tests="bent by the agent")
    onto = mission.repo.commit("main moved", README="main\n", other="x", BACKLOG__yaml="x")
    rebuilt = mission.place.trees.rebased_tree(approved, onto)
    point, _ = mission.place.rebase(onto)
    assert [change.path for change in mission.place.trees.changes(rebuilt, point.tree)] == ["tests"]
    assert mission.place.trees.read(rebuilt, "tests") == b"approved"
    assert b"<<<<<<<" in (mission.place.trees.read(rebuilt, "README") or b"")
    assert mission.place.trees.read(rebuilt, "BACKLOG.yaml") == b"x"


# Ending


def test_a_folder_that_is_not_ours_is_neither_salvaged_nor_removed(a_repo: Repo, git: Git) -> None:
    kept = a_repo.write(".capsule/worktrees/x-1/precious", "mine")
    place = GitWorktree(git, "x-1")
    for end in (lambda: place.salvage("clean"), lambda: place.remove(branch=True)):
        with pytest.raises(Refused, match="not made by Capsule"):
            end()
    assert kept.read_text() == "mine"


def test_a_worktree_of_the_users_own_is_neither_salvaged_nor_removed(a_repo: Repo, git: Git) -> None:
    a_repo.git("worktree", "add", "-q", "-b", "feature", ".capsule/worktrees/x-1")
    place = GitWorktree(git, "x-1")
    for end in (lambda: place.salvage("clean"), lambda: place.remove(branch=True)):
        with pytest.raises(Refused, match="not made by Capsule"):
            end()
    assert a_repo.head("feature") == Repo(place.path).head()


def test_a_mission_without_its_base_ref_is_still_ours_to_end(anywhere: Anywhere) -> None:
    (anywhere.path / "a.py").write_text("a")
    anywhere.agent.git("update-ref", "-d", BASE)
    assert anywhere.repo.git("show", f"{anywhere.again().salvage('clean')}:a.py") == "a"
    anywhere.again().remove(branch=True)
    assert not anywhere.path.exists()


@pytest.mark.promise("durability.salvage")
def test_salvage_keeps_commits_checkpoints_and_loose_files(mission: Mission) -> None:
    mission.agent.commit("work", **{"a.py": "a"})
    (mission.path / "b.py").write_text("b")
    earlier = mission.place.checkpoint("earlier")
    (mission.path / "b.py").write_text("b2")
    kept = mission.place.salvage("abandoned")
    mission.place.remove(branch=True)
    mission.repo.git("gc", "-q", "--prune=now")
    assert mission.repo.git("show", f"{kept}:b.py") == "b2"
    assert mission.repo.git("show", f"{earlier.commit}:b.py") == "b"
    assert mission.repo.git("log", "-1", "--format=%s", kept) == "abandoned"


def test_there_is_nothing_to_salvage_in_an_untouched_mission(anywhere: Anywhere) -> None:
    (anywhere.path / "worklog.md").write_text("log")
    anywhere.place.checkpoint("prepared")
    assert anywhere.place.salvage("abandoned") == ""


def test_work_that_only_a_checkpoint_holds_is_salvaged(mission: Mission) -> None:
    (mission.path / "a.py").write_text("a")
    point = mission.place.checkpoint("one")
    mission.place.restore(mission.base_state())
    kept = mission.place.salvage("abandoned")
    mission.repo.git("merge-base", "--is-ancestor", point.commit, kept)


def test_salvage_works_without_the_worktree(anywhere: Anywhere) -> None:
    (anywhere.path / "a.py").write_text("a")
    anywhere.place.checkpoint("one")
    shutil.rmtree(anywhere.path)
    kept = anywhere.again().salvage("abandoned")
    assert anywhere.repo.git("show", f"{kept}:a.py") == "a"


@pytest.mark.parametrize("branch", [True, False])
def test_remove_leaves_nothing_but_the_branch_where_asked(mission: Mission, branch: bool) -> None:
    mission.place.gate(mission.place.checkpoint("a").tree)
    for _ in range(2):
        mission.again().remove(branch=branch)
    assert not mission.path.exists()
    assert bool(mission.repo.refs(BRANCH)) is not branch
    assert mission.repo.refs("refs/capsule") == ([] if branch else [BASE])
    assert len(mission.repo.git("worktree", "list").splitlines()) == 1
    assert not (mission.repo.path / ".git/capsule/places/x-1").exists()
    mission.repo.fsck()


def test_a_branch_that_was_kept_is_taken_up_again(mission: Mission) -> None:
    mission.agent.commit("work", **{"a.py": "a"})
    mission.place.remove(branch=False)
    mission.again().prepare(mission.base)
    assert (mission.path / "a.py").read_text() == "a"


def a_folder_without_its_git_file(m: Anywhere) -> None:
    (m.path / ".git").unlink()


def no_folder(m: Anywhere) -> None:
    shutil.rmtree(m.path)


def no_entry(m: Anywhere) -> None:
    shutil.rmtree(m.entry())


def locks_on_the_refs(m: Anywhere) -> None:
    lock(m.repo.path / f".git/{BRANCH}.lock")
    lock(m.repo.path / ".git/packed-refs.lock")


def no_branch(m: Anywhere) -> None:
    m.repo.git("update-ref", "-d", BRANCH)


def a_locked_worktree(m: Anywhere) -> None:
    m.repo.git("worktree", "lock", str(m.path))


HALF_REMOVED = (
    a_folder_without_its_git_file,
    no_folder,
    no_entry,
    locks_on_the_refs,
    no_branch,
    a_locked_worktree,
)


@pytest.mark.sweep(cases=4)
@pytest.mark.parametrize("crash", HALF_REMOVED)
def test_remove_completes_what_a_crash_left(anywhere: Anywhere, crash: Callable[[Anywhere], None]) -> None:
    crash(anywhere)
    anywhere.again().remove(branch=True)
    assert not anywhere.path.exists()
    assert anywhere.repo.refs(BRANCH) == anywhere.repo.refs("refs/capsule") == []
    assert len(anywhere.repo.git("worktree", "list").splitlines()) == 1
    anywhere.again().prepare(anywhere.base)


def test_a_branch_somebody_has_checked_out_is_not_deleted(mission: Mission, tmp_path: Path) -> None:
    mission.repo.git("worktree", "add", "-q", "-f", str(tmp_path / "look"), "capsule-x-1")
    with pytest.raises(Refused, match="checked out"):
        mission.place.remove(branch=True)
    assert mission.path.exists()


def test_two_missions_do_not_meet(mission: Mission) -> None:
    other = GitWorktree(mission.git, "x-2")
    other.prepare(mission.base)
    (other.path / "b").write_text("b")
    (mission.path / "a").write_text("a")
    assert other.gate(other.tree())[0] != mission.place.gate(mission.place.tree())[0]
    mission.place.remove(branch=True)
    assert [change.path for change in other.trees.changes(mission.base, other.tree())] == ["b"]
