"""The user's own hooks, run as their git would run them: in the place, with an index that holds what is committed.

They run by the project's shell, supervised and with its time-out like any other command of the project. A hook that
changes what was to be committed, or any file, counts as failed even if it is content: what was judged is not what
would be committed. What a commit-msg hook writes into the message is not taken over.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.files import read_regular, tail_bytes
from capsule.system.git import Git
from capsule.workspaces.provision import RunSetup

_TAIL = 4096
_LARGEST = 1024 * 1024
_HOOKS_PATH = re.compile(rb"(?im)^[ \t]*hookspath[ \t]*=[ \t]*\"?([^\"\r\n]*)")


@dataclass(frozen=True)
class Hooks:
    git: Git
    place: Path
    scratch: Path
    logs: Path
    run: RunSetup

    def passed(self, tree: str, message: str) -> tuple[bool, str]:
        """Whether they all agree, and the end of what they printed."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        index, words = self.scratch / "hooks-index", self.scratch / "hooks-message"
        index.unlink(missing_ok=True)
        self.git.content("read-tree", tree, index=index, worktree=self.place)
        self.git.content("update-index", "-q", "--refresh", index=index, worktree=self.place, ok=(0, 1))
        words.write_text(message)
        said = ""
        for hook, *args in (("pre-commit",), ("commit-msg", str(words))):
            content, output = self._ask(hook, args, index)
            said = "\n".join(filter(None, (said, output)))
            if not content:
                return False, f"The {hook} hook refused.\n{said}"
        if self.git.write_tree(index) != tree:
            return False, f"A hook changed what was to be committed.\n{said}"
        return True, said

    def tracked(self, tree: str) -> list[str]:
        """Files of a tree that are hooks themselves, where the settings look for them inside the project."""
        home = Path(os.environ.get("HOME", "/nonexistent"))
        user = (home / ".gitconfig", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git/config")
        settings = (self.git.common_dir / "config", self.git.common_dir / "config.worktree", *user)
        named = {line[1].strip().rstrip(b"/") for file in settings for line in _HOOKS_PATH.finditer(_content(file))}
        folders = tuple(name.removeprefix(b"./") + b"/" for name in named if name and not name.startswith((b"/", b"~")))
        return [os.fsdecode(e.path) for e in self.git.list_tree(tree, recursive=True) if e.path.startswith(folders)]

    def _ask(self, hook: str, args: list[str], index: Path) -> tuple[bool, str]:
        log = self.logs / f"hook-{hook}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        asked = ("env", f"GIT_INDEX_FILE={index}", "GIT_EDITOR=:", "git", "hook", "run", "--ignore-missing", hook)
        try:
            self.run(shlex.join((*asked, *(("--", *args) if args else ()))), self.place, log)
        except CapsuleError as error:
            return False, _end_of(log) or error.message
        return True, _end_of(log)


def _end_of(log: Path) -> str:
    return tail_bytes(log, _TAIL).decode(errors="replace").strip() if log.exists() else ""


def _content(file: Path) -> bytes:
    try:
        return read_regular(file.resolve(), _LARGEST)
    except OSError:
        return b""
