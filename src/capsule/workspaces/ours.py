"""Which commits are Capsule's own: a list of ids, each with the branch it was made for.

A trailer, a reflog's words or the files that a commit touches say nothing about who made it: an agent can write them
all. So whoever is about to move a branch to a commit of ours notes its id first. A commit that is on the list and on no
branch is no harm; one that is on the branch and not on the list is somebody else's.
"""

from __future__ import annotations

import os

from capsule.system.files import append_line, tail_bytes
from capsule.system.git import Git

_FAR_ENOUGH = 4 * 1024 * 1024
"""How much of the list's end is read: tens of thousands of commits."""


def note_as_ours(git: Git, commit: str, branch: str) -> None:
    """Before the branch moves there, and on the disk before git has the ref on it."""
    file = git.capsule_dir / "ours"
    append_line(file, f"{commit} {branch}")
    fd = os.open(file, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ours_on(git: Git, branch: str) -> set[str]:
    """Commits that we made for this branch."""
    try:
        rows = tail_bytes(git.capsule_dir / "ours", _FAR_ENOUGH).decode(errors="replace").splitlines()
    except OSError:
        return set()
    return {commit for commit, _, name in (row.partition(" ") for row in rows) if name == branch}
