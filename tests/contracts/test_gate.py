"""The gate: a folder that holds exactly the tree to be judged, outside the checkout and apart from the repository."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from capsule.core.briefing import SandboxPaths
from capsule.system.git import Git
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.gate import Gate, gates_folder
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.provision import Provisions

from ..conftest import Repo
from .test_dependencies import commit, folder


def a_gate(repo: Repo) -> Gate:
    git = Git.find(repo.path)
    return Gate(git, "x-1", git.capsule_dir / "places/x-1", Provisions(Dependencies(git)), mounted=False)


def repository(repo: Repo) -> dict[str, bytes]:
    """Every byte of the user's git directory, our own folder apart."""
    top = repo.path / ".git"
    files = (path for path in top.rglob("*") if path.is_file() and "capsule" not in path.relative_to(top).parts)
    return {str(path): path.read_bytes() for path in files}


@pytest.mark.promise("workflows.gate-place")
def test_the_gate_lies_outside_the_checkout_and_is_no_worktree(a_repo: Repo) -> None:
    gate = a_gate(a_repo).at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert not gate.is_relative_to(a_repo.path)
    assert a_repo.git("worktree", "list").count("\n") == 0
    assert gate.parent.stat().st_mode & 0o077 == 0


@pytest.mark.promise("workflows.gate-place")
def test_git_describe_works_in_the_gate(a_repo: Repo) -> None:
    a_repo.git("tag", "-a", "v1.2", "-m", "one")
    commit(a_repo, {"more.txt": ""})
    gate = Repo(a_gate(a_repo).at(a_repo.head("HEAD^{tree}"), a_repo.head()))

    assert gate.git("describe").startswith("v1.2-1-g")
    assert gate.git("rev-parse", "HEAD") == a_repo.head()
    assert gate.status() == ""


@pytest.mark.promise("workflows.gate-place")
def test_what_tests_do_with_git_stays_in_the_gate(a_repo: Repo) -> None:
    gate = a_gate(a_repo)
    at = Repo(gate.at(a_repo.head("HEAD^{tree}"), a_repo.head()))
    before = repository(a_repo)
    at.write("new.txt", "new")
    at.commit("a test's own")
    at.git("config", "core.pager", "touch /nowhere")
    at.git("branch", "-f", "main")
    at.git("gc", "-q", "--prune=now")
    hook = at.path.joinpath(at.git("rev-parse", "--git-dir"), "hooks/post-checkout")
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nfalse\n")

    assert repository(a_repo) == before
    again = Repo(gate.at(a_repo.head("HEAD^{tree}"), a_repo.head()))
    assert not hook.exists()
    assert again.git("rev-parse", "HEAD") == a_repo.head()
    assert "core.pager" not in again.git("config", "--list", "--name-only").split()
    assert not (again.path / "new.txt").exists()


@pytest.mark.parametrize("instead", ["folder", "link", "nothing"])
def test_a_git_file_that_a_test_replaced_is_put_back(a_repo: Repo, instead: str, tmp_path: Path) -> None:
    gate = a_gate(a_repo)
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    (at / ".git").unlink()
    if instead == "folder":
        Repo(at).git("init", "-q")
    if instead == "link":
        (at / ".git").symlink_to(tmp_path / "elsewhere")
    gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert Repo(at).git("rev-parse", "HEAD") == a_repo.head()
    assert not (tmp_path / "elsewhere").exists()


def test_a_killed_runs_gate_is_found_again_by_its_name(a_repo: Repo) -> None:
    left = a_gate(a_repo).at(a_repo.head("HEAD^{tree}"), a_repo.head())
    (left / "debris").write_text("")

    assert a_gate(a_repo).at(a_repo.head("HEAD^{tree}"), a_repo.head()) == left
    assert not (left / "debris").exists()


def test_nothing_is_left_when_it_is_removed(a_repo: Repo) -> None:
    gate = a_gate(a_repo)
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    gate.remove()
    gate.remove()

    assert not at.parent.exists()
    assert not [*(a_repo.path / ".git/capsule/private").glob("*")]


def test_the_registered_gate_of_an_earlier_version_is_taken_away(a_repo: Repo) -> None:
    git = Git.find(a_repo.path)
    former = a_repo.path / ".capsule/missions/x-1/gate"
    LinkedWorktree(git, former).ensure(a_repo.head())
    assert "missions/x-1/gate" in a_repo.git("worktree", "list")
    a_gate(a_repo).at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert not former.exists()
    assert a_repo.git("worktree", "list").count("\n") == 0


def test_a_link_in_the_gates_place_is_not_followed(a_repo: Repo, tmp_path: Path) -> None:
    gate = a_gate(a_repo)
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    gate.remove()
    folder(tmp_path / "precious", "keep")
    at.parent.mkdir(parents=True)
    at.symlink_to(tmp_path / "precious")
    gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert not at.is_symlink()
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["keep"]


def test_gates_lie_in_the_cache_the_user_chose(a_repo: Repo, tmp_path: Path) -> None:
    git = Git.find(a_repo.path)
    env = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    assert gates_folder(git, env).parent == tmp_path / "cache/capsule/gates"
    assert gates_folder(git, env | {"XDG_CACHE_HOME": "relative"}).parent == tmp_path / "home/.cache/capsule/gates"


def test_gates_of_a_home_that_is_the_checkout_or_cannot_be_written_lie_in_the_temporary_folder(
    a_repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("")
    git = Git.find(a_repo.path)
    expected = tmp_path / f"tmp/capsule-{os.getuid()}/gates"

    assert gates_folder(git, {"HOME": str(a_repo.path)}).parent == expected
    assert gates_folder(git, {"HOME": str(tmp_path / "file")}).parent == expected
    assert gates_folder(git, {}).parent == expected


def set_up(repo: Repo, ran: list[str]) -> Gate:
    """A gate whose set-up installs a package, makes an environment, and writes a file."""

    def run(
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        ran.append(command)
        folder(cwd / "node_modules/lib")
        (cwd / "node_modules/lib/index.js").write_text("good")
        folder(cwd / ".venv", "pyvenv.cfg")
        (cwd / "generated.txt").write_text("good")

    git = Git.find(repo.path)
    provisions = Provisions(Dependencies(git, detect=False), "npm ci", (), run)
    return Gate(git, "x-1", git.capsule_dir / "places/x-1", provisions, mounted=False)


@pytest.mark.promise("workflows.setup-restored")
def test_what_a_test_changed_in_what_the_setup_made_is_put_back(a_repo: Repo) -> None:
    ran: list[str] = []
    commit(a_repo, {".gitignore": "node_modules\n.venv\ngenerated.txt\n"})
    at = set_up(a_repo, ran).at(a_repo.head("HEAD^{tree}"), a_repo.head())
    (at / "node_modules/lib/index.js").write_text("evil")
    (at / ".venv/planted.pth").write_text("import evil")
    (at / "generated.txt").write_text("evil")
    (at / "node_modules/other").mkdir()
    set_up(a_repo, ran).at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert ran == ["npm ci"]
    assert (at / "node_modules/lib/index.js").read_text() == "good"
    assert (at / "generated.txt").read_text() == "good"
    assert not (at / "node_modules/other").exists()
    assert [path.name for path in (at / ".venv").iterdir()] == ["pyvenv.cfg"]


def test_what_a_test_removed_of_what_the_setup_made_is_put_back(a_repo: Repo) -> None:
    ran: list[str] = []
    commit(a_repo, {".gitignore": "node_modules\n.venv\ngenerated.txt\n"})
    gate = set_up(a_repo, ran)
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    shutil.rmtree(at / "node_modules")
    (at / "generated.txt").unlink()
    gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert ran == ["npm ci"]
    assert (at / "node_modules/lib/index.js").read_text() == "good"
    assert (at / "generated.txt").read_text() == "good"
    gate.remove()
    assert not at.parent.exists()


def test_what_the_setup_made_is_not_put_back_through_a_link_of_the_tree(a_repo: Repo, tmp_path: Path) -> None:
    """Putting back begins with removing what stands there, and no sandbox is around us."""

    def install(
        command: str,
        cwd: Path,
        log: Path,
        sandbox_paths: SandboxPaths | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder(cwd / "src/pkg.egg-info", "of the setup")

    commit(a_repo, {".gitignore": "*.egg-info\n", "src/pkg.py": ""})
    git = Git.find(a_repo.path)
    provisions = Provisions(Dependencies(git, detect=False), "pip install -e .", (), install)
    gate = Gate(git, "x-1", git.capsule_dir / "places/x-1", provisions, mounted=False)
    gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    folder(tmp_path / "precious/pkg.egg-info", "keep")
    shutil.rmtree(a_repo.path / "src")
    (a_repo.path / "src").symlink_to(tmp_path / "precious")
    a_repo.git("add", "-A")
    a_repo.git("commit", "-qm", "a link")
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert (at / "src").is_symlink()
    assert [path.name for path in (tmp_path / "precious/pkg.egg-info").iterdir()] == ["keep"]


@pytest.mark.parametrize("name", [".gitattributes", ".gitignore", "deep/.gitattributes"])
def test_a_pipe_that_a_test_left_where_git_reads_keeps_nobody_waiting(
    a_repo: Repo, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("capsule.system.git.TIMEOUT", 3)
    commit(a_repo, {"deep/file": "old"})
    gate = a_gate(a_repo)
    at = gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())
    (at / name).unlink(missing_ok=True)
    os.mkfifo(at / name)
    commit(a_repo, {"deep/file": "new"})
    gate.at(a_repo.head("HEAD^{tree}"), a_repo.head())

    assert (at / "deep/file").read_text() == "new"
    assert not (at / name).is_fifo()


@pytest.mark.parametrize("instead", ["file", "pipe", "dangling link"])
def test_gates_are_made_elsewhere_where_the_cache_is_no_folder(
    a_repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    cache = tmp_path / "home/.cache" / ("" if instead == "dangling link" else "capsule")
    cache.parent.mkdir(parents=True)
    if instead == "file":
        cache.write_text("")
    elif instead == "pipe":
        os.mkfifo(cache)
    else:
        cache.symlink_to(tmp_path / "unplugged")
    found = gates_folder(Git.find(a_repo.path), {"HOME": str(tmp_path / "home")})

    assert found.parent == tmp_path / f"tmp/capsule-{os.getuid()}/gates"
