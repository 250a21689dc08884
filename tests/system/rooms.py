"""A home with a project in it, and a sandbox around whatever is run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from capsule.core.briefing import SandboxPaths
from capsule.system.sandbox import PROGRAM, Bubblewrap, homes, level

needs_bubblewrap = pytest.mark.sandboxed
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@dataclass
class Room:
    """A home with a project in it, a worktree in the project, and a sandbox around whatever is run there."""

    home: Path
    root: Path
    place: Path
    sandbox: Bubblewrap
    env: dict[str, str] = field(default_factory=dict)
    entered: ExitStack = field(default_factory=ExitStack)

    def argv(self, *argv: str, **more: object) -> tuple[str, ...]:
        """A command line that can be run until the room is left."""
        more = {"cwd": self.place, "env": self.env, "sandbox_paths": SandboxPaths(writable=(str(self.place),)), **more}
        return self.entered.enter_context(self.sandbox.around(argv, **more))  # type: ignore[arg-type]

    def leave(self) -> None:
        self.entered.close()

    def sh(self, script: str, **more: object) -> str:
        """What a shell inside prints, errors included; the room is left at its end."""
        try:
            argv = self.argv("sh", "-c", script, **more)
            done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=30, check=False)
        finally:
            self.leave()
        return done.stdout + done.stderr


def a_room(tmp_path: Path) -> Room:
    home = tmp_path / "home"
    root = home / "src" / "project"
    place = root / ".capsule" / "worktrees" / "x-1"
    for folder in (place, root / ".git" / "hooks", home / ".ssh", home / ".cargo" / "bin"):
        folder.mkdir(parents=True)
    (home / ".ssh" / "id").write_text("a private key")
    (home / ".cargo" / "credentials.toml").write_text("a token")
    (root / ".git" / "config").write_text("as it was")
    env = {"PATH": os.environ["PATH"], "HOME": str(home)}
    sandbox = Bubblewrap(level("auto", os.environ), shown=(str(root),), homes=(str(home), *homes(os.environ)))
    return Room(home, root, place, sandbox, env)


def a_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


NOBODY = 65534


def as_an_ordinary_user(
    folder: Path, script: str, *, home: Path, sandbox_paths: str, cwd: str = "/", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a sandbox that an unprivileged user makes; `sandbox_paths` is the expression for them."""
    code = (
        "import os, subprocess, sys\n"
        "from capsule.core.briefing import SandboxPaths\n"
        "from capsule.system.sandbox import Bubblewrap, level\n"
        f"box = Bubblewrap(level('required', os.environ), ({str(home)!r},), ({str(home)!r},))\n"
        f"env = {{'PATH': os.environ['PATH'], 'HOME': {str(home)!r}}}\n"
        f"with box.around(('sh', '-c', {script!r}), cwd={cwd!r}, env=env, sandbox_paths={sandbox_paths}) as argv:\n"
        "    done = subprocess.run(argv, env=env)\n"
        "sys.exit(done.returncode)\n"
    )
    source = str(Path(sys.modules["capsule"].__file__ or "").parents[1])
    libraries = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    python, path = _a_python_for_everybody(), f"{_a_bubblewrap_for_everybody(folder)}:{os.environ['PATH']}"
    return subprocess.run(
        ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", python, "-c", code],
        env={"PATH": path, "PYTHONPATH": f"{source}:{libraries}", "HOME": str(home), **env},
        capture_output=True,
        text=True,
        cwd="/",
        check=False,
    )


def _a_bubblewrap_for_everybody(folder: Path) -> Path:
    """The one on our PATH may lie in a home that is closed to others."""
    copy = folder / "bin" / PROGRAM
    copy.parent.mkdir()
    shutil.copy(shutil.which(PROGRAM) or "", copy)
    return copy.parent


def _a_python_for_everybody() -> str:
    """One that others may run: the interpreter of the tests may lie in a home that is closed to them."""
    command = ("setpriv", f"--reuid={NOBODY}", "--clear-groups")
    for python in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        check = f"import sys, msgspec; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        env = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))}
        if (
            shutil.which(python)
            and not subprocess.run([*command, python, "-c", check], env=env, check=False).returncode
        ):
            return python
    pytest.skip("there is no Python here that another user may run")
