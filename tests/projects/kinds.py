"""Five kinds of project as people have them: with dependencies installed, and no settings for Capsule at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from capsule.workspaces.python_environment import site_packages
from tests.live.install import uv

Files = Mapping[str, str]


@dataclass(frozen=True)
class Kind:
    """A project, what its mission adds (tests first), and the same with the project's own package broken."""

    name: str
    files: Files
    tests: Files
    code: Files
    broken: Files
    install: Callable[[Path], None]
    """What its user has done in the checkout."""
    needs: tuple[str, ...] = ()
    live: bool = True
    """Only in `make live`."""

    def __str__(self) -> str:
        return self.name


def tool(name: str) -> str:
    """A program that is there; whoever needs one that is not is skipped, by name."""
    if name == "uv":
        if not _UV.exists():
            pytest.skip("uv is not installed: see `make live`")
        return str(_UV)
    if name == "cargo":
        return str(_toolchain() / "cargo")
    found = shutil.which(name)
    if not found:
        pytest.skip(f"{name} is not on the PATH")
    return found


def _toolchain() -> Path:
    """Where cargo itself is: the one on the PATH may only look for it, in the home of whoever runs the tests."""
    rustc = shutil.which("rustc")
    if not rustc or not shutil.which("cargo"):
        pytest.skip("cargo is not on the PATH")
    env = os.environ | {"HOME": _HOME, "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{_HOME}/.rustup")}
    done = subprocess.run([rustc, "--print", "sysroot"], env=env, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip(), "bin")


# Looked up before any test changes the environment.
_HOME = os.path.expanduser("~")  # noqa: PTH111 (a text)
_UV = uv()


def _run(cwd: Path, *argv: str, **env: str) -> None:
    done = subprocess.run(argv, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"


def _text(text: str) -> str:
    return textwrap.dedent(text).lstrip()


# ---- Python

_GREET = 'def greet():\n    return "hello"\n'
_PART = 'def part():\n    return "goodbye"\n'
_UNIT_TEST = "import unittest, app\n\nclass Test(unittest.TestCase):\n    def test_{0}(self):\n        {1}\n"
_GREETS = _UNIT_TEST.format("greet", 'self.assertEqual(app.greet(), "hello")')
_PARTS = _UNIT_TEST.format("part", 'self.assertEqual(app.part(), "goodbye")')
_BUILT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
_PROJECT = '[project]\nname = "app"\nversion = "1.0"\nrequires-python = ">=3.11"\n'
_BROKEN = {"src/app/__init__.py": f'raise RuntimeError("broken")\n\n{_GREET}\n\n{_PART}'}


def _as_pip_leaves_it(root: Path) -> None:
    """An environment with an editable install, as setuptools writes it; without pip, which takes seconds."""
    venv.create(root / ".venv", with_pip=False)
    (site,) = site_packages(root / ".venv")
    (site / "__editable__.app-1.0.pth").write_text(f"{root}/src\n")


def _pip_install_editable(root: Path) -> None:
    venv.create(root / ".venv", with_pip=True)
    pip = (f"{root}/.venv/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    _run(root, *pip, "setuptools", "wheel", "pytest")
    _run(root, *pip, "--no-build-isolation", "--no-deps", "-e", ".")


def _uv_sync(root: Path) -> None:
    _run(root, tool("uv"), "sync", "-q", "--python", sys.executable)


EDITABLE = Kind(
    "editable",
    {
        ".gitignore": ".venv/\n__pycache__/\n*.egg-info/\n",
        "pyproject.toml": _PROJECT + _BUILT,
        "src/app/__init__.py": _GREET,
        "tests/test_greet.py": _GREETS,
    },
    {"tests/test_part.py": _PARTS},
    {"src/app/__init__.py": f"{_GREET}\n\n{_PART}"},
    _BROKEN,
    _as_pip_leaves_it,
    live=False,
)
PIP_EDITABLE = Kind(
    "pip-install-e",
    {**EDITABLE.files, "pyproject.toml": f"{_PROJECT}{_BUILT}[tool.pytest.ini_options]\n"},
    EDITABLE.tests,
    EDITABLE.code,
    _BROKEN,
    _pip_install_editable,
)
UV = Kind(
    "uv",
    {
        **EDITABLE.files,
        "pyproject.toml": f'{_PROJECT}{_BUILT}[dependency-groups]\ndev = ["pytest"]\n[tool.pytest.ini_options]\n',
    },
    EDITABLE.tests,
    EDITABLE.code,
    _BROKEN,
    _uv_sync,
    needs=("uv",),
)

# ---- Node


def _node_test(name: str, package: str, says: str) -> str:
    head = "const test = require('node:test'); const assert = require('node:assert');\n"
    return f"{head}test('{name}', () => assert.equal(require('{package}').{name}(), '{says}'));\n"


def _package(name: str, **more: object) -> str:
    return json.dumps({"name": name, "version": "1.0.0", **more}, indent=2) + "\n"


def _npm_install(root: Path) -> None:
    _run(root, tool("npm"), "install", "--offline", "--no-audit", "--no-fund", "--silent")


def _npm_install_a_package(root: Path) -> None:
    """A package that is installed, not linked; packed here, so that nobody has to be asked for it."""
    elsewhere = root.with_name("packed")
    elsewhere.mkdir()
    (elsewhere / "package.json").write_text(_package("upper", main="index.js"))
    (elsewhere / "index.js").write_text("module.exports = (text) => text.toUpperCase();\n")
    _run(elsewhere, tool("npm"), "pack", "--silent")
    _run(root, tool("npm"), "install", "--offline", "--no-save", "--silent", str(elsewhere / "upper-1.0.0.tgz"))


WORKSPACES = Kind(
    "npm-workspaces",
    {
        ".gitignore": "node_modules/\n",
        "package.json": _package("root", private=True, workspaces=["packages/*"], scripts={"test": "node --test"}),
        "packages/words/package.json": _package("words", main="index.js"),
        "packages/words/index.js": "exports.greet = () => 'hello';\n",
        "packages/app/package.json": _package("app", main="index.js", dependencies={"words": "1.0.0"}),
        "packages/app/index.js": "module.exports = require('words');\n",
        "packages/app/test/greet.test.js": _node_test("greet", "words", "hello"),
    },
    {"packages/app/test/part.test.js": _node_test("part", "words", "goodbye")},
    {"packages/words/index.js": "exports.greet = () => 'hello';\nexports.part = () => 'goodbye';\n"},
    {"packages/words/index.js": "throw new Error('broken');\n"},
    _npm_install,
    needs=("node", "npm"),
)
NODE = Kind(
    "node-modules",
    {
        ".gitignore": "node_modules/\n",
        "package.json": _package("app", main="index.js", scripts={"test": "node --test"}),
        "index.js": "const upper = require('upper');\nexports.greet = () => upper('hello');\n",
        "test/greet.test.js": _node_test("greet", "..", "HELLO"),
    },
    {"test/part.test.js": _node_test("part", "..", "GOODBYE")},
    {
        "index.js": "const upper = require('upper');\nexports.greet = () => upper('hello');\n"
        "exports.part = () => upper('goodbye');\n"
    },
    {"index.js": "throw new Error('broken');\n"},
    _npm_install_a_package,
    needs=("node", "npm"),
)

# ---- Rust

_WORDS = 'pub fn greet() -> &\'static str {\n    "hello"\n}\n'
_SAYS_MORE = f'{_WORDS}\npub fn part() -> &\'static str {{\n    "goodbye"\n}}\n'


def _manifest(name: str, more: str = "") -> str:
    return f'[package]\nname = "{name}"\nversion = "1.0.0"\nedition = "2021"\n{more}'


def _cargo_test(root: Path) -> None:
    """What is built lies in `target`, newer than every source file of a gate that is made from git."""
    _run(root, tool("cargo"), "test", "-q", "--offline", PATH=f"{_toolchain()}:{os.environ['PATH']}")


CARGO = Kind(
    "cargo-workspace",
    {
        ".gitignore": "target\n",
        "Cargo.toml": '[workspace]\nmembers = ["words", "app"]\nresolver = "2"\n',
        "Cargo.lock": _text(
            """
            # This file is automatically @generated by Cargo.
            # It is not intended for manual editing.
            version = 3

            [[package]]
            name = "app"
            version = "1.0.0"
            dependencies = [
             "words",
            ]

            [[package]]
            name = "words"
            version = "1.0.0"
            """
        ),
        "words/Cargo.toml": _manifest("words"),
        "words/src/lib.rs": _WORDS,
        "app/Cargo.toml": _manifest("app", '\n[dependencies]\nwords = { path = "../words" }\n'),
        "app/src/lib.rs": "pub use words::*;\n",
        "app/tests/greet.rs": '#[test]\nfn greets() {\n    assert_eq!(app::greet(), "hello");\n}\n',
    },
    {"app/tests/part.rs": '#[test]\nfn parts() {\n    assert_eq!(app::part(), "goodbye");\n}\n'},
    {"words/src/lib.rs": _SAYS_MORE},
    {"words/src/lib.rs": _SAYS_MORE.replace('"hello"', 'panic!("broken")').replace('"goodbye"', 'panic!("broken")')},
    _cargo_test,
    needs=("cargo",),
)

KINDS = (EDITABLE, PIP_EDITABLE, UV, WORKSPACES, NODE, CARGO)
