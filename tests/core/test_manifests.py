"""Whether a change asks for dependencies that are not installed, and the command that would install them."""

from __future__ import annotations

import pytest

from capsule.core.manifests import how_to_install, is_manifest, wanted_by


@pytest.mark.parametrize(
    ("changed", "installed", "files", "command"),
    [
        ("package.json", "node_modules", ("package.json", "package-lock.json"), "npm ci"),
        ("packages/a/package.json", "node_modules", ("package.json", "yarn.lock"), "yarn install --frozen-lockfile"),
        ("package.json", "node_modules", ("package.json",), "npm install"),
        ("web/package.json", "web/node_modules", ("web/package.json",), "cd web && npm install"),
        ("uv.lock", ".venv", ("pyproject.toml", "uv.lock"), "uv sync"),
        ("pyproject.toml", ".venv", ("pyproject.toml", "poetry.lock"), "poetry install"),
        ("pyproject.toml", "venv", ("pyproject.toml",), "python3 -m venv .venv && .venv/bin/pip install -e ."),
        (
            "requirements-dev.txt",
            ".venv",
            ("requirements-dev.txt",),
            "python3 -m venv .venv && .venv/bin/pip install -r requirements-dev.txt",
        ),
        ("composer.lock", "vendor", ("composer.json", "composer.lock"), "composer install"),
        ("go.mod", "vendor", ("go.mod", "go.sum"), "go mod vendor"),
    ],
)
def test_a_changed_manifest_is_answered_with_the_command_of_its_ecosystem(
    changed: str, installed: str, files: tuple[str, ...], command: str
) -> None:
    assert how_to_install([changed], [installed], files) == (changed, command)


@pytest.mark.parametrize(
    ("changed", "installed"),
    [("package.json", ".venv"), ("Cargo.toml", "node_modules"), ("go.mod", ""), ("pyproject.toml", "node_modules")],
)
def test_what_is_not_installed_from_a_manifest_does_not_depend_on_it(changed: str, installed: str) -> None:
    assert how_to_install([changed], [installed], [changed]) == ("", "")


def test_only_what_a_manifest_asks_for_counts() -> None:
    for path, before, after in (
        ("package.json", '{"dependencies": {"a": "1"}}', '{"version": "2", "dependencies": {"a": "1"}, "scripts": {}}'),
        ("pyproject.toml", "[project]\ndependencies = []", '[project]\nversion = "2"\ndependencies = []\n[tool.ruff]'),
        ("setup.cfg", "[options]\ninstall_requires = a", "[flake8]\nx = 1\n[options]\ninstall_requires = a"),
    ):
        assert wanted_by(path, before) == wanted_by(f"below/{path}", after)


def test_another_dependency_is_seen() -> None:
    for path, before, after in (
        ("package.json", '{"devDependencies": {"a": "1"}}', '{"devDependencies": {"a": "2"}}'),
        ("pyproject.toml", '[project]\ndependencies = ["a"]', '[project]\ndependencies = ["a", "b"]'),
        ("pyproject.toml", "", '[dependency-groups]\ndev = ["b"]'),
        ("setup.cfg", "[options]\ninstall_requires = a", "[options]\ninstall_requires = b"),
        ("uv.lock", "1", "2"),
        ("packages/a/package.json", '{"name": "a"}', '{"name": "b"}'),
        ("package.json", "{", "{{"),
    ):
        assert wanted_by(path, before) != wanted_by(path, after)


def test_manifests_are_known_by_name_in_any_folder() -> None:
    assert all(map(is_manifest, ("package.json", "a/b/uv.lock", "requirements/dev-requirements.txt", "x/Cargo.toml")))
    assert not any(map(is_manifest, ("package.json.bak", "src/setup.pyx", "notes.txt")))
