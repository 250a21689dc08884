"""What a place needs besides its files: the project's installed dependencies."""

from __future__ import annotations

from pathlib import Path

import pytest

from capsule.core.errors import SettingsError
from capsule.system.git import Git
from capsule.workspaces.dependencies import Dependencies

from ..conftest import Repo


def folder(path: Path, *files: str) -> None:
    """A folder that is there, with a file in it."""
    path.mkdir(parents=True)
    for name in files or ("x",):
        (path / name).write_text("")


def commit(repo: Repo, files: dict[str, str]) -> None:
    for name, text in files.items():
        repo.write(name, text)
    repo.commit()


def found(repo: Repo, *named: str) -> set[str]:
    git = Git.find(repo.path)
    return set(Dependencies(git, named).paths(repo.head()))


def test_environments_and_packages_beside_a_manifest_are_found(a_repo: Repo) -> None:
    ignore = ".venv/\nnode_modules/\nvendor\n"
    commit(
        a_repo, {".gitignore": ignore, "package.json": "{}", "packages/a/package.json": "{}", "api/composer.json": "{}"}
    )
    folder(a_repo.path / ".venv", "pyvenv.cfg")
    for name in ("node_modules", "packages/a/node_modules", "api/vendor", "packages/b/node_modules"):
        folder(a_repo.path / name)

    assert found(a_repo) == {".venv", "node_modules", "packages/a/node_modules", "api/vendor"}


def test_an_environment_that_ignores_itself_is_found(a_repo: Repo) -> None:
    folder(a_repo.path / "venv", "pyvenv.cfg")
    (a_repo.path / "venv/.gitignore").write_text("*\n")

    assert found(a_repo) == {"venv"}


def test_a_linked_environment_is_found_and_its_target_is_the_layer(a_repo: Repo, tmp_path: Path) -> None:
    commit(a_repo, {".gitignore": ".venv\n"})
    folder(tmp_path / "elsewhere", "pyvenv.cfg")
    (a_repo.path / ".venv").symlink_to(tmp_path / "elsewhere")
    dependencies = Dependencies(Git.find(a_repo.path))

    assert dependencies.layers(a_repo.head(), Path("/at")) == (("/at/.venv", str(tmp_path / "elsewhere")),)


def test_a_folder_called_env_that_is_no_environment_is_not_shared(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "env\n"})
    folder(a_repo.path / "env", "production.json")

    assert found(a_repo) == set()


def test_what_git_tracks_or_does_not_ignore_is_part_of_the_work(a_repo: Repo) -> None:
    commit(a_repo, {"go.mod": "", "vendor/modules.txt": "", "package.json": "{}"})
    folder(a_repo.path / "node_modules")

    assert found(a_repo) == set()


def test_build_output_is_never_shared(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "target\nbuild\ndist\n.next\n.tox\n", "Cargo.toml": "", "package.json": "{}"})
    for name in ("target", "build", "dist", ".next", ".tox"):
        folder(a_repo.path / name)

    assert found(a_repo) == set()
    with pytest.raises(SettingsError, match="build output"):
        found(a_repo, "target")


def test_settings_name_further_folders(a_repo: Repo) -> None:
    commit(a_repo, {".gitignore": "third_party\n"})
    folder(a_repo.path / "third_party")

    assert found(a_repo, "third_party", "absent") == {"third_party"}
    for bad in ("/etc", "../other", ".", ".git", ".capsule/x"):
        with pytest.raises(SettingsError, match=r"workspace\.dependencies"):
            found(a_repo, bad)
