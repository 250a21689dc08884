"""Refs and worktrees read where git keeps them: a small file each, which git replaces in one step.

Most questions about refs are about one name, and a git that starts only to read 41 bytes costs a hundred times what
reading them costs. Nothing is remembered, so an answer is as fresh as git's own. Whatever is not a plain file with an
id in it is for git to explain (None): a link, a ref that means another one, one that may be packed with others, refs
that are stored in some other way.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from capsule.system.files import read_regular
from capsule.system.git_objects import Checkout

_LONGEST = 4096
_HEADS = "refs/heads/"
_SHARED = (_HEADS, "refs/capsule/")
"""Of these all worktrees see the same."""
_ID = re.compile(rb"(?!0+\n)([0-9a-f]{40}|[0-9a-f]{64})\n")
_ON_A_BRANCH = re.compile(rb"ref: (refs/heads/[^\s]+)\n")
_IN_NO_NAME = {"", ".", ".."}


def read_ref(common_dir: Path, name: str) -> str | None:
    """The id that a ref holds; '' where there is no such ref, and none below that name."""
    if not name.startswith(_SHARED) or name.endswith(".lock") or _IN_NO_NAME & {*name.split("/")}:
        return None
    try:
        found = _ID.fullmatch(read_regular(common_dir / name, _LONGEST))
    except FileNotFoundError:
        return None if _may_be_elsewhere(common_dir) else ""
    except OSError:
        return None
    return found[1].decode() if found else None


def read_head(git_dir: Path) -> str | None:
    """What a worktree is on: the whole name of a branch, or an id where its HEAD is detached."""
    try:
        content = read_regular(git_dir / "HEAD", _LONGEST)
    except OSError:
        return None
    found = _ON_A_BRANCH.fullmatch(content) or _ID.fullmatch(content)
    return os.fsdecode(found[1]) if found else None


def read_checkouts(common_dir: Path, main: Path | None) -> list[Checkout] | None:
    """The main worktree first, where there is one, then the linked ones."""
    entries = common_dir / "worktrees"
    found = [_read_checkout(common_dir, main, common_dir)] if main else []
    try:
        for entry in sorted(entries.iterdir()) if entries.exists() else ():
            path = Path(os.fsdecode(read_regular(entry / "gitdir", _LONGEST).removesuffix(b"\n")))
            whole = path.is_absolute() and path.name == ".git"
            found.append(_read_checkout(common_dir, path.parent, entry) if whole else None)
    except OSError:
        return None
    known = [each for each in found if each]
    return known if len(known) == len(found) else None


def _read_checkout(common_dir: Path, path: Path, git_dir: Path) -> Checkout | None:
    at = read_head(git_dir)
    if at is None or not at.startswith(_HEADS):
        return Checkout(path, at, "") if at else None
    head = read_ref(common_dir, at)
    return Checkout(path, head, at.removeprefix(_HEADS)) if head else None


def _may_be_elsewhere(common_dir: Path) -> bool:
    """Asked after the ref's own file was not there: whoever packs refs writes the pack first."""
    others = (common_dir / "packed-refs", common_dir / "reftable")
    return any(other.exists() for other in others) or not (common_dir / "refs/heads").is_dir()
