"""Keep what would be lost: states under refs, files that no tree can hold on a shelf."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import RefMove

_SHELF = "capsule/salvaged"
_FOLDERS = ("refs/capsule/salvage/{}", "refs/capsule/salvage/{}+", "refs/capsule/salvaged/{}")


def keep_commit(git: Git, mission: str, commit: str, why: str) -> str:
    """Return a ref that holds the commit. An agent can make refs, too, so there are alternative folders."""
    *folders, last = (template.format(mission) for template in _FOLDERS)
    refs = git.refs(*folders, last)
    for name, oid in refs.items():
        if oid == commit:
            return name
    for folder in folders:
        with contextlib.suppress(GitFailed):
            return _add(git, folder, refs, commit, why)
    return _add(git, last, refs, commit, why)


def _add(git: Git, folder: str, refs: dict[str, str], commit: str, why: str) -> str:
    names = (name.removeprefix(f"{folder}/") for name in refs)
    ref = f"{folder}/{max((int(name) for name in names if name.isdecimal()), default=0) + 1}"
    git.move_refs(RefMove(ref, commit, ""), why=f"capsule: {why}")
    return ref


def put_away_repository(git: Git, dot_git: Path) -> None:
    """Remove a `.git` that is a mere pointer; keep a whole repository that an agent made there, out of the way."""
    if dot_git.is_symlink() or not dot_git.is_dir():
        dot_git.unlink(missing_ok=True)
    else:
        shelve(git, dot_git, f"{dot_git.parent.name}-{os.urandom(4).hex()}.git")


def put_aside(git: Git, path: Path) -> str:
    """Put it on the shelf and return the path; remove a pipe, a socket or a device, and return ''."""
    kind = path.lstat().st_mode
    if stat.S_ISREG(kind) or stat.S_ISLNK(kind) or stat.S_ISDIR(kind):
        return shelve(git, path, f"{path.name}-{os.urandom(4).hex()}")
    path.unlink()
    return ""


def shelve(git: Git, path: Path, name: str) -> str:
    shelf = git.common_dir / _SHELF
    shelf.mkdir(parents=True, exist_ok=True)
    shutil.move(path, shelf / name)
    usual = git.common_dir == git.root / ".git"
    return f".git/{_SHELF}/{name}" if usual else str(shelf / name)
