"""Find the checkout that belongs to a git directory, whichever way the two are joined.

Most have a folder `.git`. It may also be a file or a link that names the git directory (`git init --separate-git-dir`,
a submodule, a linked worktree, a git directory on another disk), and a git directory does not say where its checkout
is. So the checkout is looked for from where we were started, upwards, and any other guess counts only if its own
`.git` leads back. `core.worktree` and `core.bare` are never believed alone: an agent can set them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from capsule.system.files import read_regular

_LONGEST = 8192
_POINTER = b"gitdir: "


def leads_to(folder: Path, git_dir: Path) -> bool:
    """Whether the folder's `.git` is this git directory, or a link to it, or a file that names it."""
    return _named_by(folder) == os.path.realpath(git_dir)


def checkout_around(start: Path, git_dir: Path) -> Path | None:
    """The nearest folder from `start` upwards whose `.git` leads to the git directory."""
    place = Path(os.path.realpath(start))
    return next((folder for folder in (place, *place.parents) if leads_to(folder, git_dir)), None)


def main_worktree(common_dir: Path, inside: Path, guesses: Iterable[Path]) -> Path | None:
    """The repository's main worktree, seen from a linked one: around it, as guessed, or beside the git directory."""
    found = checkout_around(inside, common_dir)
    beside = (common_dir.parent,) if common_dir.name == ".git" else ()
    return found or next((guess for guess in (*guesses, *beside) if leads_to(guess, common_dir)), None)


def project_worktree(common_dir: Path, inside: Path) -> Path:
    """The linked worktree whose project a place below its `.capsule` belongs to; else the worktree itself."""
    for folder in inside.parents:
        ours = inside.is_relative_to(folder / ".capsule")
        if ours and entry_of(folder, common_dir):
            return folder
    return inside


def entry_of(worktree: Path, common_dir: Path) -> Path | None:
    """The git directory of a linked worktree of this repository, if it is one."""
    named = Path(_named_by(worktree))
    return named if named.parent == Path(os.path.realpath(common_dir), "worktrees") else None


def as_alternate(objects: Path) -> bytes:
    """A line of `objects/info/alternates`: quoted as in C, where it would be read as two or as a comment."""
    path = os.fsencode(objects)
    if b"\n" not in path and not path.startswith((b'"', b"#")):
        return path + b"\n"
    escaped = path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + escaped + b'"\n'


def _named_by(folder: Path) -> str:
    """The real path of the git directory that a folder's `.git` is or names; '' where there is none."""
    dot_git = folder / ".git"
    if dot_git.is_dir():
        return os.path.realpath(dot_git)
    try:
        content = read_regular(dot_git, _LONGEST)
    except OSError:
        return ""
    told = os.fsdecode(content.removeprefix(_POINTER).rstrip(b"\r\n"))
    return os.path.realpath(folder / told) if content.startswith(_POINTER) and told else ""
