"""Whatever kind of repository a project is, a mission finds its files, commits and delivers."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from capsule.adapters import StateCommit
from capsule.core.errors import Refused
from capsule.system.git import Git
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.repository import exclude_artefacts
from capsule.workspaces.state_store import GitStateStore
from capsule.workspaces.stepwise_worktree import StepwiseWorktree
from capsule.workspaces.trunk import GitTrunk

from ..conftest import Repo
from .test_state_store import OWN, now, rewrite, understand

pytestmark = pytest.mark.slow


def cloned(origin: Repo, *options: str) -> Repo:
    origin.git("config", "uploadpack.allowFilter", "true")
    target = origin.path.with_name("clone")
    origin.git("-c", "protocol.file.allow=always", "clone", "-q", *options, f"file://{origin.path}", str(target))
    return Repo(target)


def plain(repo: Repo) -> Repo:
    return cloned(repo)


def partial(repo: Repo) -> Repo:
    return cloned(repo, "--filter=blob:none")


def shallow(repo: Repo) -> Repo:
    return cloned(repo, "--depth=1")


def shared(repo: Repo) -> Repo:
    repo.git("clone", "-q", "--shared", str(repo.path), str(repo.path.with_name("clone")))
    return Repo(repo.path.with_name("clone"))


def sparse(repo: Repo) -> Repo:
    found = cloned(repo)
    found.git("sparse-checkout", "set", "--cone", "docs")
    assert not (found.path / "src").exists()
    return found


def of_submodules(repo: Repo) -> Repo:
    found = cloned(repo)
    library = Repo(repo.path.with_name("library"))
    library.path.mkdir()
    library.git("init", "-q")
    library.commit("library", code="x\n")
    found.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "lib")
    found.commit("a submodule")
    return found


def filtered(repo: Repo) -> Repo:
    """Like LFS: what is stored is not what lies in the files."""
    found = cloned(repo)
    found.git("config", "filter.caesar.clean", "tr a-z b-za")
    found.git("config", "filter.caesar.smudge", "tr b-za a-z")
    found.git("config", "filter.caesar.required", "true")
    found.commit("filtered", **{".gitattributes": "*.bin filter=caesar\n", "data.bin": "abc\n"})
    assert found.git("show", "HEAD:data.bin") == "bcd"
    return found


def own_git_directory(repo: Repo) -> Repo:
    """`git clone --separate-git-dir`: `.git` is a file."""
    return cloned(repo, f"--separate-git-dir={repo.path.with_name('separate')}")


KINDS = (plain, partial, shallow, shared, sparse, of_submodules, filtered, own_git_directory)


class Case:
    def __init__(self, repo: Repo, stepwise: bool) -> None:
        self.repo = repo
        self.git = Git.find(repo.path)
        self.base = repo.head()
        exclude_artefacts(self.git, self.base)
        place = StepwiseWorktree(self.git, "x-1", into="main", artefacts=OWN) if stepwise else None
        self.place = place or GitWorktree(self.git, "x-1", artefacts=OWN)
        assert list(self.place.prepare(self.base)) == []
        self.agent = Repo(self.place.path)

    def deliver(self) -> str:
        """To main, as this kind of place does it; the commit."""
        point = self.place.checkpoint("build#1")
        work = self.place.commit_step(point, "the work", "x-1/build#1")
        if work:
            state_store = GitStateStore(self.git, rewrite, understand, OWN, now)
            return state_store.write(StateCommit("x-1/build#1", "the work", (), branch="main", work=work)).commit
        trunk = GitTrunk(self.git, "main")
        candidate = trunk.propose(self.place.head(), self.base, "Merge x-1")
        assert trunk.publish(candidate).moved
        return candidate.commit


@pytest.fixture(params=["GitWorktree", "StepwiseWorktree"])
def stepwise(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "StepwiseWorktree")


@pytest.fixture
def origin(a_repo: Repo) -> Repo:
    """With a blob in its history that no file of the newest commit holds."""
    a_repo.commit("docs", **{"docs/manual": "old\n", "old": "old and gone\n"})
    (a_repo.path / "old").unlink()
    a_repo.commit("newer", **{"docs/manual": "new\n"})
    return a_repo


@pytest.mark.sweep(cases=4)
@pytest.mark.promise("attacks.clones")
@pytest.mark.parametrize("kind", KINDS)
def test_a_mission_works_and_delivers(origin: Repo, kind: Callable[[Repo], Repo], stepwise: bool) -> None:
    repo = kind(origin)
    before = repo.status()
    case = Case(repo, stepwise)
    assert (case.agent.path / "src/app.py").read_text() == "print('one')\n"
    case.place.open_sandbox()
    case.agent.commit("by the agent", **{"src/app.py": "print('two')\n", "new.py": "new\n"})
    case.agent.write("docs/manual", "newer\n")
    assert case.agent.git("log", "--format=%s", "-1") == "by the agent"
    case.place.import_commits()
    changed = [change.path for change in case.place.trees.changes(case.base, case.place.tree())]
    assert changed == ["docs/manual", "new.py", "src/app.py"]
    gate, *_ = case.place.gate(case.place.tree())
    assert (gate / "src/app.py").read_text() == "print('two')\n"
    commit = case.deliver()
    assert repo.head("main") == commit
    assert repo.git("show", "main:src/app.py") == "print('two')"
    assert repo.status() == before
    assert (repo.path / "docs/manual").read_text() == "newer\n"
    case.place.restore(case.place.base_checkpoint(case.base))
    case.place.remove(branch=True)
    repo.git("fsck", "--no-dangling", "--connectivity-only")


def test_a_place_in_a_sparse_checkout_holds_all_files_and_the_checkout_stays_sparse(
    origin: Repo, stepwise: bool
) -> None:
    case = Case(sparse(origin), stepwise)
    case.place.open_sandbox()
    case.agent.commit("work", **{"src/app.py": "print('two')\n", "src/more.py": "more\n"})
    case.place.import_commits()
    case.deliver()
    assert case.repo.status() == ""
    assert not (case.repo.path / "src/app.py").exists()
    assert (case.agent.path / "src/more.py").exists()


@pytest.mark.sweep
def test_a_submodule_is_an_empty_folder_and_stays_at_its_commit(origin: Repo, stepwise: bool) -> None:
    case = Case(of_submodules(origin), stepwise)
    assert list((case.agent.path / "lib").iterdir()) == []
    before = case.repo.head("main:lib")
    case.place.open_sandbox()
    case.agent.write("lib/planted", "x\n")
    case.agent.write("new.py", "new\n")
    case.place.import_commits()
    assert [change.path for change in case.place.trees.changes(case.base, case.place.tree())] == ["new.py"]
    commit = case.deliver()
    assert case.repo.head(f"{commit}:lib") == before
    assert (case.repo.path / "lib/code").exists()
    assert case.repo.status() == ""


@pytest.mark.sweep
def test_a_submodule_that_somebody_filled_in_a_phase_stays_filled_and_breaks_no_git(
    origin: Repo, stepwise: bool
) -> None:
    """Its git directory was inside the private one, which is gone."""
    case = Case(of_submodules(origin), stepwise)
    case.place.open_sandbox()
    case.agent.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
    case.place.import_commits()
    assert (case.agent.path / "lib/code").read_text() == "x\n"
    assert case.agent.status() == ""
    case.place.open_sandbox()
    case.agent.commit("work", new="new\n")
    case.place.import_commits()
    assert [change.path for change in case.place.trees.changes(case.base, case.place.tree())] == ["new"]
    case.deliver()
    assert (case.repo.path / "lib/.git").exists()
    assert case.repo.status() == ""


@pytest.mark.sweep
def test_files_behind_a_filter_are_as_the_user_has_them(origin: Repo, stepwise: bool) -> None:
    case = Case(filtered(origin), stepwise)
    assert (case.agent.path / "data.bin").read_text() == "abc\n"
    case.place.open_sandbox()
    assert case.agent.status() == ""
    case.agent.commit("work", **{"data.bin": "abcabc\n"})
    case.agent.write("more.bin", "xyz\n")
    case.place.import_commits()
    commit = case.deliver()
    assert case.repo.git("show", f"{commit}:data.bin", f"{commit}:more.bin").split() == ["bcdbcd", "yza"]
    assert (case.repo.path / "data.bin").read_text() == "abcabc\n"
    assert case.repo.status() == ""


@pytest.mark.sweep
def test_history_that_a_partial_clone_lacks_is_not_fetched_for_anybody(origin: Repo, stepwise: bool) -> None:
    """No git of ours reaches the network; what the newest commit holds is there, and that is enough."""
    case = Case(partial(origin), stepwise)
    origin.path.rename(origin.path.with_name("unreachable"))
    case.place.open_sandbox()
    asked = subprocess.run(["git", "show", "HEAD~1:old"], cwd=case.agent.path, capture_output=True, check=False)
    assert asked.returncode
    case.agent.commit("work", **{"new.py": "new\n"})
    case.place.import_commits()
    assert case.deliver() == case.repo.head("main") != case.base


def test_files_that_a_partial_clone_lacks_are_said_with_a_way_to_get_them(origin: Repo, stepwise: bool) -> None:
    repo = cloned(origin, "--filter=blob:none", "--sparse")
    with pytest.raises(Refused, match="partial clone, and not all files") as refused:
        Case(repo, stepwise)
    way_out = refused.value.hint.removeprefix("Fetch them: ")
    subprocess.run(["sh", "-ec", f"{way_out}"], cwd=repo.path, check=True, capture_output=True)
    case = Case(repo, stepwise)
    assert (case.agent.path / "src/app.py").read_text() == "print('one')\n"


def test_what_a_shared_clone_borrows_is_shown_in_a_sandbox(origin: Repo) -> None:
    repo = shared(origin)
    place = GitWorktree(Git.find(repo.path), "x-1", mounted=True, confined=True)
    place.prepare(repo.head())
    shown = [real for _, real in place.open_sandbox().shown]
    assert {str(repo.path / ".git/objects"), str(origin.path / ".git/objects")} <= set(shown)
    place.import_commits()
