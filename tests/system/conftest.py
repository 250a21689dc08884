"""Situations with real processes: a place to run in, a supervisor, and a tree that does not want to end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from capsule.system.process import Command, SupervisorClient
from tests.costs import LONG

from .rooms import Room, a_room

HOSTILE_TREE = Path(__file__).parent / "hostile_tree.py"


def is_alive(pid: int) -> bool:
    state = output_of("ps", "-o", "stat=", "-p", str(pid)).strip()
    return bool(state) and not state.startswith("Z")


def output_of(*argv: str, **options: Any) -> str:
    """What it printed, errors included, whatever its exit code."""
    options |= {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "timeout": LONG}
    return str(subprocess.run(argv, check=False, **options).stdout)


@dataclass
class Place:
    """A directory to run commands in, and where their output goes."""

    path: Path

    def command(self, *argv: str, **options: Any) -> Command:
        env = options.pop("env", {"PATH": os.environ["PATH"]})
        return Command(argv, options.pop("cwd", self.path), env, self.path / "out", self.path / "err", **options)

    def shell(self, script: str, **options: Any) -> Command:
        return self.command("sh", "-c", script, **options)

    def python(self, code: str, *arguments: str, **options: Any) -> Command:
        return self.command(sys.executable, "-I", "-S", "-c", code, *arguments, **options)

    def hostile_tree(self, *how: str, **options: Any) -> Command:
        return self.command(sys.executable, "-I", "-S", str(HOSTILE_TREE), str(self.path / "pids"), *how, **options)

    @property
    def out(self) -> str:
        return (self.path / "out").read_text()

    def pids(self) -> list[int]:
        file = self.path / "pids"
        return [int(line) for line in file.read_text().split()] if file.exists() else []

    def survivors(self) -> list[int]:
        return [pid for pid in self.pids() if is_alive(pid)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for pid in place.survivors():
        os.kill(pid, 9)


@pytest.fixture
def supervisor() -> Iterator[SupervisorClient]:
    """With a short grace, so that a test of stubborn processes does not take five seconds."""
    with SupervisorClient(grace=0.4) as supervisor:
        yield supervisor


@pytest.fixture
def keeper_without_subreaper() -> Iterator[SupervisorClient]:
    """What remains on a system that is not Linux."""
    with SupervisorClient(grace=0.4, subreaper=False) as supervisor:
        yield supervisor


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest closes its own to others, whenever a session begins."""
    with TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    found = a_room(tmp_path)
    yield found
    found.leave()
