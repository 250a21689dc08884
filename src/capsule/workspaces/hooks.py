"""The user's own hooks, run as their git would run them: in the checkout, with an index that holds what is committed.

They run by the project's shell, supervised and with its time-out like any other command of the project. A hook that
changes what was to be committed, or any file, counts as failed even if it is content: what was judged is not what
would be committed. Its changes stay, so the next attempt starts with them. What a commit-msg hook writes into the
message is not taken over.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.files import read_regular, tail_bytes
from capsule.system.git import Git
from capsule.workspaces.provision import RunSetup

_TAIL = 4096
_LARGEST = 1024 * 1024
_MOST = 500
_WHERE = re.compile(rb"(?im)^.*?\bhookspath[ \t]*=[ \t]*\"?([^\"\r\n]*).*$|^[ \t]*\[include.*$|^[ \t]*path[ \t]*=.*$")
"""Lines of git's settings that say where hooks are, or in which file that is said."""


@dataclass(frozen=True)
class Hooks:
    git: Git
    scratch: Path
    logs: Path
    run: RunSetup

    def passed(self, tree: str, message: str) -> tuple[bool, str]:
        """Whether they all agree, and the end of what they printed."""
        self.scratch.mkdir(parents=True, exist_ok=True)
        index, words = self.scratch / "hooks-index", self.scratch / "hooks-message"
        index.unlink(missing_ok=True)
        self.git.content("read-tree", tree, index=index)
        self.git.content("update-index", "-q", "--refresh", index=index, ok=(0, 1))
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

    def _ask(self, hook: str, args: list[str], index: Path) -> tuple[bool, str]:
        log = self.logs / f"hook-{hook}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        asked = ("env", f"GIT_INDEX_FILE={index}", "GIT_EDITOR=:", "git", "hook", "run", "--ignore-missing", hook)
        try:
            self.run(shlex.join((*asked, *(("--", *args) if args else ()))), self.git.root, log)
        except CapsuleError as error:
            return False, _end_of(log) or error.message
        return True, _end_of(log)


def _end_of(log: Path) -> str:
    return tail_bytes(log, _TAIL).decode(errors="replace").strip() if log.exists() else ""


def fingerprint(git: Git) -> str:
    """Of all that decides which hooks run and what they do, as far as it is a file of hooks or says where they are."""
    seen = hashlib.sha256()
    folders = [git.common_dir / "hooks"]
    for settings in (git.common_dir / "config", git.git_dir / "config.worktree", *_settings_of_the_user()):
        for line in _WHERE.finditer(_content(settings)):
            seen.update(line[0] + b"\n")
            folders += [git.root / Path(os.fsdecode(line[1]).strip()).expanduser()] if line[1] else []
    for folder in folders:
        for number, file in enumerate(_files_below(folder)):
            if number == _MOST:
                break
            seen.update(b"\0".join((os.fsencode(file), b"%o" % file.stat().st_mode, _content(file), b"")))
    return seen.hexdigest()


def _settings_of_the_user() -> tuple[Path, ...]:
    home = Path(os.environ.get("HOME", "/nonexistent"))
    return home / ".gitconfig", Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "git/config"


def _files_below(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders.sort()
        yield from (file for name in sorted(names) if (file := Path(place, name)).exists())


def _content(file: Path) -> bytes:
    try:
        return read_regular(file.resolve(), _LARGEST)
    except OSError as error:
        return str(error.strerror).encode()
