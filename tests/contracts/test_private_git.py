"""An agent with a git directory of its own: what it commits is taken over, and nothing else of what it does there.

What a sandbox does by mounts is done here by GIT_DIR, so these promises are kept on machines without bubblewrap too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.core.errors import WorkspaceBroken
from capsule.core.evidence import Checkpoint
from capsule.system.folders import remove_by_force
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import exclude_artefacts

from ..conftest import Repo
from .test_workspaces import KINDS

BRANCH = "refs/heads/capsule-x-1"


class Alone(Repo):
    """An agent that was let in; `git` is its git, as it is inside."""

    def __init__(self, repo: Repo, kind: Callable[..., GitWorktree] = GitWorktree) -> None:
        self.repo = repo
        self.kind = kind
        self.base = repo.head()
        self.place = self.another()
        exclude_artefacts(Git.find(repo.path), self.base)
        self.place.prepare(self.base)
        super().__init__(self.place.path)
        self.place.restore(self.state)
        self.sandbox_paths = self.place.open_sandbox()
        self.private = Path(self.sandbox_paths.stand_ins[0][1])

    def another(self) -> GitWorktree:
        """Another process: nothing remembered."""
        return self.kind(Git.find(self.repo.path), "x-1", mounted=True, confined=True)

    @property
    def state(self) -> Checkpoint:
        return self.place.base_checkpoint(self.base)

    def git(self, *args: str, cwd: Path | None = None, given: str | None = None) -> str:
        env = os.environ | {"GIT_DIR": str(self.private), "GIT_WORK_TREE": str(self.path)}
        done = subprocess.run(
            ["git", *args], cwd=cwd or self.path, env=env, input=given, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"git {' '.join(args)}: {done.stderr}"
        return done.stdout.strip()

    def leaves(self) -> str:
        """Where the mission's branch stands when it has gone."""
        self.place.import_commits()
        assert not self.private.exists()
        return self.repo.head(BRANCH)


@pytest.fixture
def agent(a_repo: Repo) -> Alone:
    a_repo.git("tag", "v1")
    return Alone(a_repo)


@pytest.mark.promise("sandbox.commits")
def test_what_it_commits_is_on_the_missions_branch(agent: Alone) -> None:
    done = agent.commit("done", answer="42\n")
    assert agent.repo.head(BRANCH) == agent.base
    assert agent.leaves() == done == agent.place.head()
    assert agent.repo.git("status", "--porcelain", cwd=agent.path) == ""
    assert agent.place.touched_outside_commit() == []
    agent.repo.fsck()


def test_without_a_commit_nothing_changes(agent: Alone) -> None:
    agent.write("answer", "42\n")
    agent.git("add", "answer")
    assert agent.leaves() == agent.base
    assert agent.repo.git("status", "--porcelain", cwd=agent.path) == "?? answer"


def test_it_sees_history_branches_and_tags(agent: Alone) -> None:
    agent.commit("mine", answer="42\n")
    assert agent.git("log", "--format=%s") == "mine\nsecond\nfirst"
    assert agent.git("diff", "--name-only", "main...") == "answer"
    assert agent.git("describe", "--tags", "main") == "v1"
    assert agent.git("symbolic-ref", "HEAD") == BRANCH
    assert agent.git("log", "-1", "--format=%an <%ae>") == "Ada <ada@example.org>"


def test_what_the_project_ignores_is_ignored(agent: Alone) -> None:
    agent.write("worklog.md", "words\n")
    agent.write("build/x", "x\n")
    assert agent.git("status", "--porcelain", "--untracked-files=all") == ""


def test_an_edit_in_the_second_of_the_checkout_is_not_overlooked(agent: Alone) -> None:
    """Git takes a file for unchanged if it is older than the index: a copy must not be younger than what it copies."""
    index = agent.repo.path / ".git/worktrees/x-1/index"
    assert (agent.private / "index").stat().st_mtime_ns == index.stat().st_mtime_ns


@pytest.mark.promise("sandbox.commits")
def test_whatever_else_it_does_to_its_git_stays_there(agent: Alone) -> None:
    before = agent.repo.git("for-each-ref"), (agent.repo.path / ".git/config").read_bytes()
    sneaky = agent.git("commit-tree", "-p", "main", "-m", "sneaky", "main^{tree}")
    for ref in ("refs/heads/main", "refs/heads/other", "refs/tags/v1", "refs/replace/" + agent.base):
        agent.git("update-ref", ref, sneaky)
    agent.git("config", "core.bare", "true")
    agent.leaves()
    assert (agent.repo.git("for-each-ref"), (agent.repo.path / ".git/config").read_bytes()) == before
    assert agent.repo.status() == ""


@pytest.mark.parametrize("away", [("checkout", "-q", "--detach"), ("checkout", "-q", "-b", "elsewhere")])
def test_commits_elsewhere_come_home(agent: Alone, away: tuple[str, ...]) -> None:
    agent.git(*away)
    done = agent.commit("done", answer="42\n")
    agent.leaves()
    assert agent.place.head() == done == agent.repo.head(BRANCH)
    assert agent.repo.refs("refs/heads") == [BRANCH, "refs/heads/main"]


def test_a_branch_reset_to_before_the_base_is_put_back(agent: Alone) -> None:
    agent.git("reset", "-q", "--hard", "HEAD~1")
    agent.leaves()
    assert agent.place.head() == agent.base


def test_a_merge_of_main_is_taken_over_without_what_is_there_already(agent: Alone) -> None:
    theirs = agent.repo.commit("theirs", more="x\n")
    agent.commit("mine", answer="42\n")
    agent.git("merge", "-q", "--no-edit", theirs)
    merged = agent.leaves()
    assert agent.repo.git("log", "--format=%s", "-2", f"{merged}^2") == "theirs\nsecond"
    agent.repo.fsck()


def test_packs_of_its_own_are_taken_over(agent: Alone) -> None:
    done = agent.commit("done", answer="42\n")
    agent.git("repack", "-q", "-a", "-d", "-l")
    agent.git("pack-refs", "--all")
    assert not list((agent.private / "objects").glob("[0-9a-f][0-9a-f]/*"))
    assert agent.leaves() == done
    agent.repo.fsck()


def with_a_git_folder(agent: Alone) -> None:
    """A tree that holds `.git/hooks/…` would plant it in whoever checks it out."""
    blob = agent.git("hash-object", "-w", "--stdin", given="evil\n")
    inner = agent.git("mktree", given=f"100755 blob {blob}\tpre-commit\n")
    outer = agent.git("mktree", given=f"040000 tree {inner}\t.git\n")
    agent.git("update-ref", BRANCH, agent.git("commit-tree", "-p", "HEAD", "-m", "evil", outer))


def with_a_hole(agent: Alone) -> None:
    agent.commit("done", answer="42\n")
    blob = agent.git("rev-parse", "HEAD:answer")
    (agent.private / "objects" / blob[:2] / blob[2:]).unlink()


def with_a_pipe(agent: Alone) -> None:
    """Whoever opens it waits for ever."""
    with_a_hole(agent)
    blob = agent.git("ls-tree", "HEAD", "answer").split()[2]
    os.mkfifo(agent.private / "objects" / blob[:2] / blob[2:])


def with_a_lie(agent: Alone) -> None:
    """An object that is called like another one."""
    agent.commit("done", answer="42\n", other="not 42\n")
    said, meant = (agent.git("rev-parse", f"HEAD:{name}") for name in ("answer", "other"))
    place = agent.private / "objects"
    (place / said[:2] / said[2:]).chmod(0o644)
    (place / said[:2] / said[2:]).write_bytes((place / meant[:2] / meant[2:]).read_bytes())


def with_objects_of_a_stranger(agent: Alone) -> None:
    """Read through alternates, they are there for the agent, and would be missing for everybody else."""
    stranger = agent.repo.path.parent / "stranger"
    subprocess.run(["git", "init", "-q", str(stranger)], check=True)
    secret = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=stranger, input=b"secret\n", capture_output=True, check=True
    ).stdout.decode()
    with (agent.private / "objects/info/alternates").open("a") as file:
        file.write(f"{stranger}/.git/objects\n")
    tree = agent.git("mktree", given=f"100644 blob {secret.strip()}\tsecret\n")
    agent.git("update-ref", BRANCH, agent.git("commit-tree", "-p", "HEAD", "-m", "theirs", tree))


def with_a_link_for_objects(agent: Alone) -> None:
    agent.commit("done", answer="42\n")
    (agent.private / "objects").rename(agent.private / "moved")
    (agent.private / "objects").symlink_to("moved")


@pytest.mark.sweep(cases=3)
@pytest.mark.promise("sandbox.unsound")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "spoil",
    [
        with_a_git_folder,
        with_a_hole,
        with_a_pipe,
        with_a_lie,
        with_objects_of_a_stranger,
        with_a_link_for_objects,
    ],
)
def test_commits_that_are_not_sound_are_refused_and_kept_apart(
    a_repo: Repo, spoil: Callable[[Alone], None], kind: str
) -> None:
    agent = Alone(a_repo, KINDS[kind])
    spoil(agent)
    with pytest.raises(WorkspaceBroken, match="refused"):
        agent.place.import_commits()
    assert agent.repo.head(BRANCH) == agent.base
    assert not agent.private.exists()
    assert [file.suffix for file in (agent.repo.path / ".git/capsule/salvaged").iterdir()] == [".git"]
    agent.place.restore(agent.state)
    assert agent.place.head() == agent.base
    assert agent.place.tree() == agent.repo.head("main^{tree}")
    agent.repo.fsck()


def test_what_is_no_object_is_left_out(agent: Alone) -> None:
    """A graph would tell us of other parents, an index of other places."""
    done = agent.commit("done", answer="42\n")
    agent.git("commit-graph", "write", "--reachable")
    pack = agent.private / "objects" / "pack"
    pack.mkdir(exist_ok=True)
    for name in ("multi-pack-index", f"pack-{done}.idx", "note"):
        (pack / name).write_bytes(b"nonsense")
    assert agent.leaves() == done


def test_hooks_of_the_users_do_not_stop_it(agent: Alone, tmp_path: Path) -> None:
    """They lie in a home that is hidden, and what they check is for the gate to check."""
    hook = tmp_path / "hooks" / "pre-commit"
    hook.parent.mkdir()
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    agent.repo.git("config", "--global", "core.hooksPath", str(hook.parent))
    done = agent.commit("done", answer="42\n")
    assert agent.leaves() == done


@pytest.mark.promise("sandbox.unsound")
def test_nothing_that_it_plants_is_run(agent: Alone, tmp_path: Path) -> None:
    fired = tmp_path / "fired"
    hook = agent.private / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {fired}\n")
    hook.chmod(0o755)
    done = agent.commit("done", answer="42\n")
    for key in ("core.fsmonitor", "core.sshCommand", "gpg.program", "filter.zz.clean", "core.alternateRefsCommand"):
        agent.git("config", key, f"touch {fired}; cat")
    agent.git("config", "core.hooksPath", str(hook.parent))
    fired.unlink(missing_ok=True)
    assert agent.leaves() == done
    agent.place.tree()
    assert not fired.exists()


# Crashes


@pytest.mark.promise("sandbox.interrupted")
def test_commits_of_an_interrupted_phase_are_salvaged(agent: Alone) -> None:
    done = agent.commit("done", answer="42\n")
    kept = agent.another().restore(agent.state)
    assert agent.repo.git("merge-base", "--is-ancestor", done, kept) == ""
    assert agent.repo.head(BRANCH) == agent.base
    assert not agent.private.exists()


def test_commits_of_an_interrupted_phase_are_not_thrown_away_with_its_place(agent: Alone) -> None:
    done = agent.commit("done", answer="42\n")
    place = agent.another()
    kept = place.salvage("removed")
    place.remove(branch=True)
    assert agent.repo.git("merge-base", "--is-ancestor", done, kept) == ""
    assert not agent.private.exists()


@pytest.mark.promise("sandbox.interrupted")
def test_a_taking_over_that_was_cut_short_is_finished(agent: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    done = agent.commit("done", answer="42\n")
    with monkeypatch.context() as killed:
        killed.setattr("capsule.workspaces.private_git.PrivateGit.remove", lambda _: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            agent.place.import_commits()
    assert agent.private.exists()
    again = agent.another()
    again.import_commits()
    assert again.head() == done
    assert not agent.private.exists()


def test_one_that_is_half_made_is_made_anew(agent: Alone) -> None:
    agent.private.rename(agent.private.with_name("half"))
    agent.place.import_commits()
    agent.place.open_sandbox()
    assert {"git", "was"} <= {file.name for file in agent.private.parent.iterdir()}
    assert not agent.private.with_name("half").exists()
    assert agent.leaves() == agent.base


def test_a_branch_that_somebody_moved_meanwhile_is_left_and_the_commits_are_kept(agent: Alone) -> None:
    done = agent.commit("done", answer="42\n")
    theirs = agent.repo.git("commit-tree", "-p", agent.base, "-m", "theirs", f"{agent.base}^{{tree}}")
    agent.repo.git("update-ref", BRANCH, theirs)
    assert agent.leaves() == theirs
    assert [agent.repo.head(ref) for ref in agent.repo.refs("refs/capsule/salvage")] == [done]


def test_without_a_sandbox_the_agent_has_a_git_directory_of_its_own_too(a_repo: Repo, git: Git) -> None:
    place = GitWorktree(git, "x-1")
    place.prepare(a_repo.head())
    place.open_sandbox()
    done = Repo(place.path).commit("done", answer="42\n")
    assert a_repo.git("cat-file", "--batch-check", "--batch-all-objects").find(done) < 0
    place.import_commits()
    assert place.head() == done
    assert Repo(place.path).git("rev-parse", "--absolute-git-dir") == str(a_repo.path / ".git/worktrees/x-1")


@pytest.mark.sweep(cases=3)
@pytest.mark.parametrize("what", ["private", "private/x-1", "private/x-1/git"])
@pytest.mark.parametrize("instead", ["file", "pipe", "dangling link"])
def test_the_next_agent_is_let_in_whatever_stands_in_the_place_of_the_private_directory(
    a_repo: Repo, what: str, instead: str
) -> None:
    agent = Alone(a_repo)
    (agent.path / "new.txt").write_text("work\n")
    folder = a_repo.path / ".git/capsule" / what
    shutil.rmtree(folder)
    if instead == "file":
        folder.write_text("")
    elif instead == "pipe":
        os.mkfifo(folder)
    else:
        folder.symlink_to("/nowhere/at/all")
    agent.place.import_commits()
    assert agent.place.trees.read(agent.place.tree(), "new.txt") == b"work\n"
    agent.place.open_sandbox()
    assert agent.git("status", "--porcelain") == "?? new.txt"
    agent.place.import_commits()


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes", "deep/er/.gitignore"])
def test_a_pipe_where_git_reads_keeps_nobody_waiting(a_repo: Repo, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("capsule.system.git.TIMEOUT", 3)
    agent = Alone(a_repo)
    (agent.path / "deep/er").mkdir(parents=True)
    (agent.path / name).unlink(missing_ok=True)
    os.mkfifo(agent.path / name)
    (agent.path / "new.txt").write_text("work\n")
    agent.place.import_commits()
    assert agent.place.trees.read(agent.place.tree(), "new.txt") == b"work\n"


def test_ignore_rules_that_no_memory_can_hold_do_not_stop_the_mission(a_repo: Repo) -> None:
    agent = Alone(a_repo)
    with (agent.path / ".gitignore").open("a") as rules:
        rules.truncate(1 << 40)
    (agent.path / "new.txt").write_text("work\n")
    agent.place.import_commits()
    assert agent.place.trees.read(agent.place.tree(), "new.txt") == b"work\n"


def test_a_pipe_that_an_interrupted_agent_left_where_git_reads_keeps_nobody_waiting(
    a_repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsule.system.git.TIMEOUT", 3)
    agent = Alone(a_repo)
    os.mkfifo(agent.path / ".gitattributes")
    (agent.path / "new.txt").write_text("work\n")
    assert agent.another().restore(agent.state)


@pytest.mark.slow
def test_objects_in_folders_without_end_are_refused_and_the_files_stay(a_repo: Repo) -> None:
    agent = Alone(a_repo)
    agent.commit("work", **{"new.txt": "work\n"})
    code = "import os\nfor _ in range(2500): os.mkdir('deep'); os.chdir('deep')"
    subprocess.run(["python3", "-c", code], cwd=agent.private / "objects", check=True)
    with pytest.raises(WorkspaceBroken, match="What the agent committed is refused"):
        agent.place.import_commits()
    assert agent.place.trees.read(agent.place.tree(), "new.txt") == b"work\n"
    remove_by_force(a_repo.path / ".git/capsule/salvaged")
