"""Warm caches of build tools: what tests compiled on main's own tree is there again, and nothing else ever is."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule.system.git import Git
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.gate import Gate
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.provision import Provisions

from ..conftest import Repo
from .test_dependencies import commit


@pytest.fixture
def a_go_project(a_repo: Repo) -> Repo:
    commit(a_repo, {"go.mod": "module calc\n"})
    return a_repo


def a_place(repo: Repo, mission: str) -> GitWorktree:
    place = GitWorktree(Git.find(repo.path), mission)
    place.prepare(repo.head())
    return place


def cache_of(place: GitWorktree, tree: str) -> Path:
    """The folder that Go is told to use in the gate of a place."""
    return Path(place.variables(place.gate(tree).folder)["GOCACHE"])


def compile_into(cache: Path, entry: str = "ab/entry-d") -> None:
    (cache / entry).parent.mkdir(parents=True, exist_ok=True)
    (cache / entry).write_text("compiled")


def entries(cache: Path) -> list[str]:
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*") if path.is_file())


def keep_base(repo: Repo, mission: str = "x-1") -> GitWorktree:
    """A place whose tests have run on the base."""
    place, tree = a_place(repo, mission), repo.head("HEAD^{tree}")
    compile_into(cache_of(place, tree))
    place.keep_caches(tree)
    return place


@pytest.mark.promise("workflows.warm-caches")
def test_what_was_compiled_for_main_is_there_again_for_every_mission(a_go_project: Repo) -> None:
    first, tree = keep_base(a_go_project), a_go_project.head("HEAD^{tree}")

    assert entries(cache_of(first, tree)) == ["ab/entry-d"]
    assert entries(cache_of(a_place(a_go_project, "x-2"), tree)) == ["ab/entry-d"]


@pytest.mark.promise("workflows.warm-caches")
def test_nothing_that_a_gate_run_left_is_read_by_the_next(a_go_project: Repo) -> None:
    place, tree = keep_base(a_go_project), a_go_project.head("HEAD^{tree}")
    cache = cache_of(place, tree)
    compile_into(cache, "cd/forged-a")
    (cache / "ab/entry-d").write_text("forged!!")

    assert entries(cache_of(place, tree)) == ["ab/entry-d"]
    assert (cache / "ab/entry-d").read_text() == "compiled"
    assert entries(cache_of(a_place(a_go_project, "x-2"), tree)) == ["ab/entry-d"]


@pytest.mark.promise("workflows.warm-caches")
def test_only_runs_on_the_users_own_tree_are_kept(a_go_project: Repo) -> None:
    place = a_place(a_go_project, "x-1")
    (place.path / "calc.go").write_text("package calc\n")
    work = place.tree()
    compile_into(cache_of(place, work))
    place.keep_caches(work)

    assert entries(cache_of(place, work)) == []


@pytest.mark.promise("workflows.warm-caches")
def test_a_base_that_is_no_part_of_the_users_branch_is_not_kept(a_go_project: Repo) -> None:
    a_go_project.git("switch", "-q", "-c", "capsule-parent")
    commit(a_go_project, {"calc.go": "package calc\n"})
    place, tree = a_place(a_go_project, "x-1"), a_go_project.head("HEAD^{tree}")
    a_go_project.git("switch", "-q", "main")
    compile_into(cache_of(place, tree))
    place.keep_caches(tree)

    assert entries(cache_of(place, tree)) == []


@pytest.mark.promise("workflows.warm-caches")
@pytest.mark.parametrize("how", ["changed", "added", "cut short"])
def test_a_shared_cache_that_somebody_else_wrote_to_is_thrown_away(a_go_project: Repo, how: str) -> None:
    place, tree = keep_base(a_go_project), a_go_project.head("HEAD^{tree}")
    shared = next(place.gate(tree).folder.parents[2].glob("caches/*/go-build"))
    assert entries(shared) == ["ab/entry-d"]
    match how:
        case "changed":
            (shared / "ab/entry-d").write_text("forged!!")
        case "added":
            compile_into(shared, "cd/forged-a")
        case "cut short":
            (a_go_project.path / ".git/capsule/caches/go-build").unlink()

    assert entries(cache_of(place, tree)) == []
    assert not shared.exists()


def test_the_users_own_cache_is_not_used(a_go_project: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    compile_into(tmp_path / "go-build", "cd/forged-a")
    monkeypatch.setenv("GOCACHE", str(tmp_path / "go-build"))

    assert entries(cache_of(a_place(a_go_project, "x-1"), a_go_project.head("HEAD^{tree}"))) == []


def test_in_a_sandbox_a_run_can_write_to_its_own_cache_and_to_no_other(a_go_project: Repo) -> None:
    git = Git.find(a_go_project.path)
    gate = Gate(git, "x-1", git.capsule_dir / "places/x-1", Provisions(Dependencies(git)), mounted=True)
    site = gate.site(a_go_project.head("HEAD^{tree}"), a_go_project.head(), {})

    assert site.sandbox_paths
    caches = [path for path in site.sandbox_paths.writable if "cache" in Path(path).parent.name]
    assert caches == [gate.caches.variables()["GOCACHE"]]


def test_a_gates_caches_go_with_it(a_go_project: Repo) -> None:
    place, tree = keep_base(a_go_project), a_go_project.head("HEAD^{tree}")
    cache = cache_of(place, tree)
    place.remove(branch=True)

    assert not cache.parent.exists()
