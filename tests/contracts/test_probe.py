"""The probe: tests that would load the checkout's code are recognised before they are run."""

from __future__ import annotations

import subprocess
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

from capsule.workspaces.probe import strays
from capsule.workspaces.python_environment import site_packages

FILES = ("pyproject.toml", "src/app/__init__.py", "src/tool.py", "tests/test_app.py")


class Scene:
    def __init__(self, top: Path) -> None:
        self.checkout, self.gate, self.environment = top / "checkout", top / "gate", top / "environment"
        for place in (self.checkout, self.gate):
            for name in FILES:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_text("")
        venv.create(self.environment, with_pip=False)

    def ask(self, **env: str) -> Callable[[str], str]:
        path = {"PATH": f"{self.environment}/bin:/usr/bin:/bin"}
        return lambda command: (
            subprocess.run(
                ["sh", "-c", command], cwd=self.gate, env=path | env, capture_output=True, text=True, check=False
            ).stdout
        )

    def strays(self, ask: Callable[[str], str], test: str = "python3 -m pytest") -> list[tuple[str, str]]:
        return strays(self.checkout, self.gate, FILES, folders=("src", "."), test=test, ask=ask)

    def installs(self, line: str) -> None:
        (site,) = site_packages(self.environment)
        (site / "__editable__.app.pth").write_text(line)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_code_of_the_checkout_is_recognised_by_name_and_path(scene: Scene) -> None:
    scene.installs(f"{scene.checkout}/src\n")
    src = scene.checkout / "src"

    assert scene.strays(scene.ask()) == [("app", f"{src}/app/__init__.py"), ("tool", f"{src}/tool.py")]


def test_code_of_the_gate_is_no_stray(scene: Scene) -> None:
    scene.installs(f"{scene.checkout}/src\n")

    assert scene.strays(scene.ask(PYTHONPATH=f"{scene.gate}/src")) == []


def test_a_finder_that_wins_over_the_path_is_recognised(scene: Scene) -> None:
    """As meson-python and scikit-build-core install it."""
    finder = f"""
import importlib.util, sys
class Finder:
    def find_spec(name, path=None, target=None):
        file = "{scene.checkout}/src/app/__init__.py"
        return importlib.util.spec_from_file_location(name, file) if name == "app" else None
sys.meta_path.insert(0, Finder)
"""
    (site,) = site_packages(scene.environment)
    (site / "app_loader.py").write_text(finder)
    scene.installs("import app_loader\n")

    assert [name for name, _ in scene.strays(scene.ask(PYTHONPATH=f"{scene.gate}/src"))] == ["app"]


@pytest.mark.parametrize("test", ["nowhere/bin/python -m pytest", "uv-that-is-not-there run pytest", "false"])
def test_no_answer_is_no_objection(scene: Scene, test: str) -> None:
    scene.installs(f"{scene.checkout}/src\n")
    silent: Callable[[str], str] = lambda _command: ""  # noqa: E731

    assert scene.strays(silent, test) == []


def test_a_gate_that_is_seen_at_the_checkouts_path_has_no_strays(scene: Scene) -> None:
    scene.installs(f"{scene.checkout}/src\n")

    def mounted(command: str) -> str:
        return subprocess.run(
            ["sh", "-c", command],
            cwd=scene.checkout,
            env={"PATH": f"{scene.environment}/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        ).stdout

    assert scene.strays(mounted) == []


def test_a_workspace_link_into_the_checkout_is_recognised(tmp_path: Path) -> None:
    checkout, gate = tmp_path / "checkout", tmp_path / "gate"
    for place in (checkout, gate):
        (place / "packages/a").mkdir(parents=True)
        (place / "packages/a/package.json").write_text('{"name": "@team/a"}')
        (place / "package.json").write_text('{"name": "root", "workspaces": ["packages/*"]}')
    (gate / "node_modules/@team").mkdir(parents=True)
    link = gate / "node_modules/@team/a"
    files = ("package.json", "packages/a/package.json")

    link.symlink_to(checkout / "packages/a")
    assert strays(checkout, gate, files, folders=(), test="npm test", ask=lambda _: "") == [
        ("@team/a", str(checkout / "packages/a"))
    ]
    link.unlink()
    link.symlink_to("../../packages/a")
    assert strays(checkout, gate, files, folders=(), test="npm test", ask=lambda _: "") == []
