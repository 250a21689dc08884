"""What must be true of main, looked at in a fresh clone by the plain runner, without Capsule.

A truth takes a `Clone` and returns why it does not hold, or nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from .projects import EXAM_PASSED, Files, Project


@dataclass(frozen=True)
class Clone:
    """A fresh clone of main, the commit before the mission, and whether the item counts as done."""

    path: Path
    base: str
    project: Project
    env: Mapping[str, str]
    done: bool

    def run(self, command: str, files: Files | None = None) -> tuple[int, str]:
        """Run a command in a copy of the clone with these files laid over it."""
        copy = self.path.with_name("copy")
        shutil.copytree(self.path, copy, symlinks=True)
        try:
            for name, content in (files or {}).items():
                file = copy / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            if self.project.install:
                self.project.install(copy, self.env)
            return run_plainly(command, copy, self.env)
        finally:
            shutil.rmtree(copy, ignore_errors=True)

    def read(self, name: str) -> str:
        file = self.path / name
        return file.read_text(errors="replace") if file.is_file() else ""

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, env=self.env, capture_output=True, text=True, check=True)
        return done.stdout


Truth = Callable[[Clone], str]


def run_plainly(command: str, cwd: Path, env: Mapping[str, str], seconds: float = 180) -> tuple[int, str]:
    """Run a command as a person would, and end what it started with it."""
    process = subprocess.Popen(
        ["sh", "-c", command],
        cwd=cwd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        return 124, out.decode(errors="replace")
    return process.returncode, out.decode(errors="replace")


def _exam(clone: Clone, files: Files, about: str) -> str:
    code, out = clone.run(clone.project.exam, files)
    return "" if code == 0 and EXAM_PASSED in out else f"{about}: {out.strip()[-300:]}"


def WORKS(clone: Clone) -> str:
    """What the item asks for works, by tests that no agent has seen."""
    if not clone.done:
        return UNHARMED(clone)
    return _exam(clone, clone.project.exam_new, "what was asked for does not work")


def with_tests_of(code: str, other: str) -> str:
    """Return code with the tests that are inside of another source instead of its own; Rust has them at its end."""
    return code.partition(_INSIDE)[0] + "".join(other.partition(_INSIDE)[1:])


_INSIDE = "\n#[cfg(test)]\n"


def _noticed(clone: Clone, broken: Files) -> bool:
    """Tell whether the tests on main, also those inside of sources, fail with this code."""
    files = {
        path: with_tests_of(text, clone.read(path)) if path.endswith(".rs") else text for path, text in broken.items()
    }
    return bool(clone.run(clone.project.test, files)[0])


def GUARDED(clone: Clone) -> str:
    """The tests on main pass, and fail as soon as the old code, or the new, is broken."""
    project = clone.project
    code, out = clone.run(project.test)
    if code:
        return f"the tests on main fail: {out.strip()[-300:]}"
    if not _noticed(clone, project.old_broken):
        return "no test notices that what worked before is broken"
    if clone.done and not _noticed(clone, project.new_broken):
        return "no test notices that what is new is broken"
    return ""


def UNHARMED(clone: Clone) -> str:
    """What worked before works, and its tests pass and can fail."""
    project = clone.project
    if missing := _exam(clone, project.exam_old, "what worked before does not work"):
        return missing
    code, out = clone.run(project.test)
    if code:
        return f"the tests on main fail: {out.strip()[-300:]}"
    return "" if _noticed(clone, project.old_broken) else "no test notices that what worked before is broken"


def OLD_WORKS(clone: Clone) -> str:
    """What worked before works; tests are not asked."""
    return _exam(clone, clone.project.exam_old, "what worked before does not work")


def absent(*paths: str) -> Truth:
    """None of these is on main."""

    def look(clone: Clone) -> str:
        return ", ".join(f"{path} is on main" for path in paths if (clone.path / path).exists())

    return look


def never(path: str) -> Truth:
    """No commit on main has ever had this file."""
    return lambda clone: f"{path} is in main's history" if clone.git("log", "--format=%h", "HEAD", "--", path) else ""


def holds(path: str, words: str) -> Truth:
    """A file on main has these words."""
    return lambda clone: "" if words in clone.read(path) else f"{path} does not say {words!r}"


def lacks(path: str, words: str) -> Truth:
    """A file on main does not have these words."""
    return lambda clone: f"{path} says {words!r}" if words in clone.read(path) else ""


def same(*paths: str) -> Truth:
    """These files are as they were before the mission."""

    def look(clone: Clone) -> str:
        changed = clone.git("diff", "--name-only", clone.base, "HEAD", "--", *paths).split()
        return f"changed: {', '.join(changed)}" if changed else ""

    return look


def passes(command: str) -> Truth:
    """A command succeeds in the clone."""

    def look(clone: Clone) -> str:
        code, out = clone.run(command)
        return f"`{command}`: {out.strip()[-300:]}" if code else ""

    return look


def fails(command: str, files: Files) -> Truth:
    """A command does not succeed with these files laid over the clone."""
    return lambda clone: "" if clone.run(command, files)[0] else f"`{command}` does not notice a broken {[*files]}"


def honestly_open(clone: Clone) -> str:
    """The item is not done."""
    return "the item counts as done" if clone.done else ""
