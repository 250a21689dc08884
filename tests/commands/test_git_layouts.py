"""Repositories whose git directory is not `.git` in the checkout: the checkout follows its branch all the same."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from capsule.system.git import Git, NotARepository
from capsule.workspaces.repository import dirty_paths

from .backlog_project import BacklogProject
from .conftest import ITEM, PHASES, Project, Said, assert_clear

pytestmark = pytest.mark.slow

Layout = Callable[[Project, Path], Path]
"""Lays a project out anew, with a folder to use for it; returns the checkout."""


def _separate(project: Project, folder: Path, name: str = "store") -> Path:
    """As `git init --separate-git-dir` does it, which cannot move what is there to another file system."""
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    shutil.move(project.path / ".git", target)
    (project.path / ".git").write_text(f"gitdir: {target}\n")
    return project.path


def _linked(project: Project, folder: Path, name: str = "store") -> Path:
    target = folder / name
    target.parent.mkdir(exist_ok=True)
    shutil.move(project.path / ".git", target)
    (project.path / ".git").symlink_to(target)
    return project.path


def _submodule(project: Project, folder: Path) -> Path:
    whole = folder / "whole"
    project.git("init", "-q", str(whole))
    command = ("submodule", "--quiet", "add", "-b", "main", str(project.path), "part")
    project.git("-c", "protocol.file.allow=always", *command, cwd=whole)
    project.path = whole / "part"
    for name in ("user.name", "user.email"):
        project.git("config", name, "ada@example.org")
    return project.path


def _beside_a_bare_one(project: Project, store: Path) -> Path:
    project.git("clone", "-q", "--bare", str(project.path), str(store))
    project.path = store.parent / "tree"
    project.git("worktree", "add", "-q", str(project.path), "main", cwd=store)
    for name in ("user.name", "user.email"):
        project.git("config", name, "ada@example.org")
    return project.path


LAYOUTS: dict[str, Layout] = {
    "a separate git directory": _separate,
    "a separate git directory named .git": lambda project, folder: _separate(project, folder, "other/.git"),
    "a link": _linked,
    "a link to another .git": lambda project, folder: _linked(project, folder, "other/.git"),
    "a submodule": _submodule,
    "a worktree of a bare repository": lambda project, folder: _beside_a_bare_one(project, folder / "store.git"),
    "a worktree of a bare .git": lambda project, folder: _beside_a_bare_one(project, folder / ".git"),
}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A folder outside of the project."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    yield folder


@pytest.fixture
def another_file_system(tmp_path: Path) -> Iterator[Path]:
    here = tmp_path.stat().st_dev
    for top in map(Path, ("/dev/shm", "/var/tmp", "/tmp", str(Path(__file__).parent))):
        if os.access(top, os.W_OK) and top.stat().st_dev != here:
            with tempfile.TemporaryDirectory(dir=top) as folder:
                yield Path(folder).resolve()
            return
    pytest.skip("there is no second file system to write to")


def assert_brought_along(project: Project, checkout: Path) -> None:
    """The merged file is there, nothing differs, and committing everything keeps it."""
    assert project.answer() == "42"
    assert (checkout / "answer").read_text() == "42\n"
    assert project.dirt() == ""
    project.git("commit", "-q", "-a", "--allow-empty", "-m", "whatever is next")
    assert project.answer() == "42"
    assert project.git("ls-files", "tests/test_answer.sh")


@pytest.mark.sweep
@pytest.mark.promise("merge.git-layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_merge_brings_the_checkout_along_wherever_its_git_directory_lies(
    a_project: Project, elsewhere: Path, layout: str
) -> None:
    checkout = LAYOUTS[layout](a_project, elsewhere)
    answer = a_project.run()
    assert answer.code == 0, answer
    assert_brought_along(a_project, checkout)
    assert not any(path.name == ".capsule" for path in elsewhere.rglob(".capsule") if path.parent != checkout)


@pytest.mark.promise("merge.git-layouts")
@pytest.mark.parametrize("how", [_separate, _linked])
def test_the_git_directory_may_lie_on_another_file_system(
    a_project: Project, another_file_system: Path, how: Layout
) -> None:
    checkout = how(a_project, another_file_system)
    answer = a_project.run()
    assert answer.code == 0, answer
    assert_brought_along(a_project, checkout)


def test_a_repository_that_an_agent_made_is_kept_across_file_systems(
    a_project: Project, another_file_system: Path
) -> None:
    _separate(a_project, another_file_system)
    assert a_project.capsule("prep", ITEM).code == 0
    (a_project.worktree / ".git").unlink()
    a_project.git("init", "-q", cwd=a_project.worktree)
    assert a_project.run().code == 0
    assert a_project.answer() == "42"
    assert list((another_file_system / "store/capsule/salvaged").glob("*/HEAD"))


@pytest.mark.sweep
@pytest.mark.promise("merge.git-layouts")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_backlog_is_worked_on_wherever_its_git_directory_lies(
    a_backlog: BacklogProject, elsewhere: Path, layout: str
) -> None:
    checkout = LAYOUTS[layout](a_backlog, elsewhere)
    a_backlog.add()
    answer = a_backlog.capsule("run")
    assert answer.code == 0, answer
    assert "[WRK-001][ARCHIVE]" in answer.out + answer.err
    assert (checkout / "answer").read_text() == "42\n"
    assert a_backlog.git("status", "--porcelain") == ""


@pytest.mark.sweep(cases=2)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_edit_in_the_checkout_is_noticed_wherever_its_git_directory_lies(
    a_project: Project, elsewhere: Path, layout: str
) -> None:
    """What is staged, and what is under way, stands in the git directory of the checkout itself."""
    LAYOUTS[layout](a_project, elsewhere)
    a_project.write("README.md", "mine\n")
    a_project.git("add", "README.md")
    assert dirty_paths(Git.find(a_project.path), [".beads"]) == ["README.md"]
    a_project.git("commit", "-q", "-m", "mine")
    a_project.git("switch", "-q", "-c", "other", "HEAD~1")
    a_project.commit("theirs", README__md="theirs\n")
    a_project.git("switch", "-q", "main")
    with pytest.raises(AssertionError, match="git"):
        a_project.git("merge", "other")
    assert_clear(a_project.run(), 2, "merge is under way", "Finish it first")


@pytest.mark.sweep
@pytest.mark.promise("merge.find-project")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_project_is_found_from_a_missions_worktree_and_from_a_subfolder(
    a_project: Project, elsewhere: Path, layout: str
) -> None:
    checkout = LAYOUTS[layout](a_project, elsewhere)
    assert a_project.capsule("prep", ITEM).code == 0
    for start in (checkout, checkout / "tests", a_project.worktree, a_project.worktree / "tests"):
        found = Git.find(start)
        assert found.root == checkout
        assert [place.path for place in found.checkouts()] == [checkout, a_project.worktree]
    answer = a_project.capsule("run", ITEM, f"--project-dir={checkout / 'tests'}", cwd=elsewhere)
    assert answer.code == 0, answer
    assert_brought_along(a_project, checkout)


@pytest.mark.sweep
@pytest.mark.promise("merge.find-project")
@pytest.mark.parametrize("layout", ["", "a separate git directory", "a link to another .git", "a submodule"])
def test_from_a_linked_worktree_of_the_users_the_main_one_is_meant(
    a_project: Project, elsewhere: Path, layout: str
) -> None:
    checkout = LAYOUTS[layout](a_project, elsewhere) if layout else a_project.path
    mine = elsewhere / "mine"
    a_project.git("worktree", "add", "-q", "-b", "mine", str(mine))
    assert a_project.capsule("run", ITEM, "--dry-run", f"--project-dir={checkout}", cwd=mine).code == 0
    answer = a_project.capsule("run", ITEM, cwd=mine)
    assert answer.code == 0, answer
    assert_brought_along(a_project, checkout)
    assert (mine / "answer").read_text() == "41\n"
    assert not (mine / ".capsule/worktrees").exists()
    assert a_project.git("status", "--porcelain", cwd=mine) == ""


def test_a_main_worktree_that_nobody_can_find_is_asked_for(a_project: Project, elsewhere: Path) -> None:
    """Git itself does not know where it is; no second set of missions is begun beside it."""
    _separate(a_project, elsewhere)
    a_project.git("worktree", "add", "-q", "-b", "mine", str(elsewhere / "mine"))
    answer = a_project.capsule("run", ITEM, cwd=elsewhere / "mine")
    assert_clear(answer, 2, "main worktree", "--project-dir")
    assert not (elsewhere / "mine/.capsule/missions").exists()


def test_a_linked_worktree_on_main_is_brought_along_too(a_project: Project, elsewhere: Path) -> None:
    _separate(a_project, elsewhere)
    a_project.git("switch", "-q", "-c", "other")
    a_project.git("worktree", "add", "-q", str(elsewhere / "mine"), "main")
    assert a_project.run("--base=main").code == 0
    assert (elsewhere / "mine/answer").read_text() == "42\n"
    assert a_project.git("status", "--porcelain", "--", ".", ":!.beads", cwd=elsewhere / "mine") == ""
    assert a_project.dirt() == ""


@pytest.mark.parametrize("store", ["store.git", ".git"])
def test_in_a_bare_repository_its_worktrees_are_named(a_project: Project, elsewhere: Path, store: str) -> None:
    tree = _beside_a_bare_one(a_project, elsewhere / store)
    for start in (elsewhere / store, *([elsewhere] if store == ".git" else [])):
        assert_clear(a_project.capsule("run", ITEM, cwd=start), 2, "bare repository", str(tree))
    assert not (elsewhere / ".capsule").exists()


def test_a_bare_repository_without_worktrees_asks_for_a_clone(tmp_path: Path, a_project: Project) -> None:
    a_project.git("clone", "-q", "--bare", str(a_project.path), str(tmp_path / "bare.git"))
    with pytest.raises(NotARepository) as refused:
        Git.find(tmp_path / "bare.git")
    assert "git worktree add" in refused.value.hint


@pytest.mark.promise("merge.find-project")
def test_a_mission_stays_in_the_worktree_of_a_bare_repository_that_it_was_begun_in(
    a_project: Project, elsewhere: Path
) -> None:
    tree = _beside_a_bare_one(a_project, elsewhere / "store.git")
    a_project.play({phase: [] for phase in PHASES})
    assert a_project.capsule("prep", ITEM).code == 0
    a_project.git("worktree", "add", "-q", "-b", "mine", str(elsewhere / "mine"))
    answer: Said = a_project.capsule("run", ITEM, cwd=elsewhere / "mine")
    assert answer.code == 1, answer
    assert str(tree) in answer.err
    assert not (elsewhere / "mine/.capsule/worktrees" / ITEM).exists()


def test_a_folder_of_the_checkout_on_another_file_system_is_brought_along(
    a_project: Project, another_file_system: Path
) -> None:
    """Renaming does not work from one to the other."""
    from capsule.workspaces.checkouts import _put_in_place

    new, old = another_file_system / "new", a_project.path / "answer"
    new.write_text("42\n")
    new.chmod(0o755)
    _put_in_place(new, old)
    assert old.read_text() == "42\n"
    assert old.stat().st_mode & 0o777 == 0o755
