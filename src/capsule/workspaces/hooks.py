"""The user's own hooks, run as their git would run them: in the place, with an index that holds what is committed.

They run by the project's shell, supervised and with its time-out like any other command of the project. A hook that
changes what was to be committed, or any file, counts as failed even if it is content: what was judged is not what
would be committed. What a commit-msg hook writes into the message is not taken over.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError
from capsule.system.files import tail_bytes
from capsule.system.git import Git
from capsule.workspaces.provision import RunSetup

_TAIL = 4096
_ASKED = ("pre-commit", "commit-msg")


class Hooks(NamedTuple):
    git: Git
    place: Path
    scratch: Path
    logs: Path
    run: RunSetup
    layers: Sequence[tuple[str, str]] = ()
    """Installed dependencies, as a sandbox lays them over the place."""

    def passed(self, tree: str, message: str) -> tuple[bool, str]:
        """Whether they all agree, and the end of what they printed."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        index, words = self.scratch / "index", self.scratch / "message"
        index.unlink(missing_ok=True)
        self.git.content("read-tree", tree, index=index, worktree=self.place)
        self.git.content("update-index", "-q", "--refresh", index=index, worktree=self.place, ok=(0, 1))
        words.write_text(message)
        said = ""
        for hook, args in zip(_ASKED, ([], [str(words)]), strict=True):
            content, output = self._ask(hook, args, index)
            said = "\n".join(filter(None, (said, output)))
            if not content:
                return False, f"The {hook} hook refused.\n{said}"
        if self.git.write_tree(index) != tree:
            return False, f"A hook changed what was to be committed.\n{said}"
        return True, said

    def among(self, paths: Sequence[str]) -> list[str]:
        """Return which of these paths in the place are hooks themselves; git is asked where it looks for them."""
        log = self._log("hook-folder")
        self.run("git rev-parse --git-path hooks", self.place, log)
        folder = self.place / _end_of(log).rpartition("\n")[2]
        theirs = {Path(os.path.normpath(folder)), folder.resolve(), *((folder / hook).resolve() for hook in _ASKED)}
        return [path for path in paths if any((self.place / path).is_relative_to(each) for each in theirs)]

    def _log(self, name: str) -> Path:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self.logs / f"{name}.log"

    @property
    def _sandbox_paths(self) -> SandboxPaths:
        """At the place's own path, because the user's hooks lie in the repository; git locks the index it is given."""
        own = (str(self.place / ".git"), str(self.place / ".capsule"))
        layers = tuple(self.layers)
        return SandboxPaths(place=str(self.place), writable=(str(self.scratch),), protected=own, layers=layers)

    def _ask(self, hook: str, args: list[str], index: Path) -> tuple[bool, str]:
        log = self._log(f"hook-{hook}")
        asked = ("env", f"GIT_INDEX_FILE={index}", "GIT_EDITOR=:", "git", "hook", "run", "--ignore-missing", hook)
        try:
            self.run(shlex.join((*asked, *(("--", *args) if args else ()))), self.place, log, self._sandbox_paths)
        except CapsuleError as error:
            return False, _end_of(log) or error.message
        return True, _end_of(log)


def _end_of(log: Path) -> str:
    return tail_bytes(log, _TAIL).decode(errors="replace").strip() if log.exists() else ""
