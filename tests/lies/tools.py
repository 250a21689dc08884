"""The programs that cases need, found or installed once into the user's cache."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from capsule.system.git import Git
from capsule.workspaces.caches import Caches
from capsule.workspaces.gate import gates_folder
from tests.live.install import nextest, node_runners

from .projects import GO, MAVEN

# Looked up before any test changes the environment.
_HOME = os.path.expanduser("~")  # noqa: PTH111 (a text)
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or f"{_HOME}/.cache", "capsule-lies")
_PATH = os.environ.get("PATH", os.defpath)
_RUSTUP = os.environ.get("RUSTUP_HOME", f"{_HOME}/.rustup")
_PACKAGES = ("pytest", "django")
_PYTHON = _CACHE / f"python{sys.version_info[0]}.{sys.version_info[1]}"
_MADE = _PYTHON / "made"
_MAVEN = _CACHE / "m2"
_GO = _CACHE / "go"
_FILES = {"junit": _MAVEN / "made"}
"""Packages that are there if a file is."""


def missing(needs: Iterable[str]) -> str:
    """Return the first program or package that is not here, or nothing."""
    return next((need for need in needs if not _there(need)), "")


@cache
def _there(need: str) -> bool:
    if need in _PACKAGES:
        return _MADE.exists()
    if need in _FILES:
        return _FILES[need].is_file()
    return shutil.which(need, path=toolchains()["PATH"]) is not None


@cache
def toolchains() -> dict[str, str]:
    """Return the environment in which projects run their tests: nothing of a person, but warm build caches."""
    cargo = shutil.which("rustc", path=_PATH)
    first = [str(_PYTHON / "bin")] if _MADE.exists() else []
    first += [str(nextest())]
    if cargo:  # the one on the PATH looks for the real one in a home that is not there
        env = {"PATH": _PATH, "HOME": _HOME, "RUSTUP_HOME": _RUSTUP}
        done = subprocess.run([cargo, "--print", "sysroot"], env=env, capture_output=True, text=True, check=False)
        first += [f"{done.stdout.strip()}/bin"] if done.returncode == 0 else []
    return {
        "PATH": os.pathsep.join((*first, _PATH, str(node_runners() / "node_modules" / ".bin"))),
        "GOCACHE": str(_CACHE / "go-build"),
        "GOTOOLCHAIN": "local",
        "GOPROXY": "off",
        "CARGO_NET_OFFLINE": "true",
        "MAVEN_OPTS": f"-Dmaven.repo.local={_MAVEN}",
    }


def prepare() -> None:
    """Install pytest, Django and JUnit once; without a network the cases that need them are skipped."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _MADE.exists():
            _install_python()
        if shutil.which("mvn", path=_PATH) and not _FILES["junit"].exists():
            _install_junit()


def _install_python() -> None:
    shutil.rmtree(_PYTHON, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(_PYTHON)], check=True, capture_output=True)
    pip = [str(_PYTHON / "bin" / "python"), "-m", "pip", "install", "-q", *_PACKAGES]
    if subprocess.run(pip, check=False, capture_output=True).returncode == 0:
        _MADE.touch()


def warm(project: Path, env: Mapping[str, str]) -> None:
    """Give a Go project the caches that a first mission leaves: compiling Go's own packages takes a minute."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (_GO / "made").exists():
            _compile_go()
    git = Git.find(project)
    gates = gates_folder(git, env)
    shared = gates.parent.with_name("caches") / gates.name
    Caches(shared, _GO, git.capsule_dir / "caches", _GO / "notes").keep()


def _compile_go() -> None:
    """Run the tests of a Go project, so that the packages of Go's own that it needs are compiled."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GO.files, **GO.tests, **GO.code}.items():
            Path(folder, name).write_text(text)
        env = toolchains() | {"HOME": folder, "GOCACHE": str(_GO / "go-build")}
        subprocess.run(["go", "test", "./..."], cwd=folder, env=env, check=True, capture_output=True)
    (_GO / "made").touch()


def _install_junit() -> None:
    """Run the tests of a Maven project, so that everything it needs is in a repository of our own."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in MAVEN.files.items():
            file = Path(folder, name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        env = {"PATH": _PATH, "HOME": folder, "MAVEN_OPTS": f"-Dmaven.repo.local={_MAVEN}"}
        done = subprocess.run(["mvn", "-q", "-B", "test"], cwd=folder, env=env, check=False, capture_output=True)
    if done.returncode == 0:
        _FILES["junit"].touch()
