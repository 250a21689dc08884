"""A project, a program that leaves a mark, and an agent that runs attacks."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..commands.conftest import Project, _prepared, a_project

__all__ = ["_prepared", "a_project"]

SECRET = "c4n4ry-0f-the-c0al-m1ne"


@dataclass(frozen=True)
class Evil:
    """Wherever it is planted, whoever runs it is noted, unless it is the agent itself (or its tests)."""

    program: Path
    mark: Path
    out: Path

    def exports(self, root: Path) -> dict[str, str]:
        ours = {"EVIL": str(self.program), "OUT": str(self.out), "SECRET": SECRET}
        return {"ROOT": str(root), "COMMON": str(root / ".git"), "MUTE": "1", **ours}

    def scripts(self, root: Path, attacks: Iterable[str]) -> list[str]:
        """For `sh`, each on its own, none to fail."""
        given = "".join(f"export {name}='{value}'; " for name, value in self.exports(root).items())
        return [f"({given}\n{attack}\n) > /dev/null 2>&1 || true" for attack in attacks]

    def has_run(self) -> str:
        return self.mark.read_text() if self.mark.exists() else ""


@pytest.fixture
def evil(tmp_path: Path) -> Evil:
    place = tmp_path / "evil"
    place.mkdir()
    program, mark = place / "program", place / "mark"
    program.write_text(f'#!/bin/sh\n[ "$MUTE" ] || echo "$0 $*" >> {mark}\ncat 2> /dev/null\nexit 0\n')
    program.chmod(0o755)
    return Evil(program, mark, tmp_path / "out")


def plain_git(*words: str, cwd: Path) -> str:
    """As its user types it: their settings, their hooks, and no question whether it succeeds."""
    done = subprocess.run(["git", *words], cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return os.fsdecode(done.stdout)


def use_git_as_ever(project: Path) -> None:
    """What somebody types after a mission."""
    plain_git("status", cwd=project)
    plain_git("diff", cwd=project)
    (project / "README.md").write_text("as ever\n")
    plain_git("diff", cwd=project)
    plain_git("commit", "-qam", "as ever", cwd=project)
    plain_git("log", "-p", "-2", cwd=project)
    plain_git("switch", "-qc", "elsewhere", cwd=project)
    plain_git("switch", "-q", "main", cwd=project)
    plain_git("merge", "-q", "--no-ff", "-m", "merged", "elsewhere", cwd=project)
    plain_git("gc", "-q", cwd=project)


def steering(project: Project) -> dict[str, bytes]:
    """What decides about git in this repository, and where its branches are; ignored files aside, which we add to."""
    folder = project.path / ".git"
    names = ("config", "config.worktree", "info/attributes", "objects/info/alternates", "shallow", "HEAD", "commondir")
    worktrees = [p for p in folder.glob("worktrees/*/commondir") if p.read_bytes() != b"../..\n"]
    paths = [*(folder / name for name in names), *(folder / "hooks").iterdir(), *worktrees]
    files = {str(p.relative_to(folder)): p.read_bytes() for p in paths if p.is_file() and p.suffix != ".sample"}
    flags = [row for row in project.git("ls-files", "-v").splitlines() if not row.startswith("H ")]
    return files | {"replaced": "".join(project.refs("refs/replace")).encode(), "flags": "".join(flags).encode()}
