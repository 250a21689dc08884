"""Refs and worktrees read where git keeps them: a small file each, which git replaces in one step.

A git that starts only to read 41 bytes costs a hundred times what reading them costs. Nothing is remembered, so an
answer is as fresh as git's own. Loose refs are read before packed ones: git writes the pack first, and removes the
files then. Whatever is no plain file with an id or the name of such a ref in it is for git to explain (None): a link, a
ref that leads nowhere, refs that are stored in some other way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from capsule.system.files import NotRegular, read_regular
from capsule.system.git_objects import Checkout

_LONGEST = 4096
_LARGEST_PACK = 64 * 1024 * 1024
_HEADS = "refs/heads/"
_SHARED = (_HEADS, "refs/capsule/", "refs/tags/", "refs/remotes/")
"""Of these all worktrees see the same."""
_ID = re.compile(rb"(?!0+\n)([0-9a-f]{40}|[0-9a-f]{64})\n")
_ON_A_BRANCH = re.compile(rb"ref: (refs/heads/[^\s]+)\n")
_ANOTHER = re.compile(rb"ref: (refs/(?:heads|remotes)/[^\s]+)\n")
_IN_NO_NAME = {"", ".", ".."}
_NAME = re.compile(r"(?!.*(?:\.\.|@\{|/\.|//|\.lock(?:/|$)|\.(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+")
"""As `git check-ref-format` wants it; a file by another name is no ref."""


def read_ref(common_dir: Path, name: str) -> str | None:
    """The id that a ref holds; '' where there is no such ref, and none below that name."""
    found = read_refs(common_dir, [name])
    return found.get(name, "") if found is not None and {*found} <= {name} else None


def read_refs(common_dir: Path, names: Sequence[str]) -> dict[str, str] | None:
    """The ids of all refs that are one of these or lie below one, by name."""
    if not names or not all(_is_plain(name) for name in names) or not (common_dir / "refs/heads").is_dir():
        return None
    loose: dict[str, str] = {}
    try:
        for name in names:
            _read_loose(common_dir, name, loose)
        found = {**_read_packed(common_dir, names), **loose}
        for name in [name for name, told in loose.items() if told.startswith("refs/")]:
            found[name] = read_ref(common_dir, loose[name]) or ""
    except (OSError, ValueError, RecursionError):
        return None
    return dict(sorted(found.items())) if all(found.values()) else None


def _is_plain(name: str) -> bool:
    return f"{name}/".startswith(_SHARED) and not name.endswith(".lock") and not _IN_NO_NAME & {*name.split("/")}


def _read_loose(common_dir: Path, name: str, found: dict[str, str]) -> None:
    """The id in each file, or the name of another ref; ValueError for anything else.

    Names that git makes for a moment only are passed over, as git does.
    """
    path = common_dir / name
    try:
        content = read_regular(path, _LONGEST)
    except FileNotFoundError:
        return
    except NotRegular:
        if path.is_symlink() or not path.is_dir():
            raise
        for child in (each.name for each in path.iterdir()):
            if not child.endswith(".lock") and not child.startswith("."):
                _read_loose(common_dir, f"{name}/{child}", found)
        return
    told = _ID.fullmatch(content) or _ANOTHER.fullmatch(content)
    if told is None or not _NAME.fullmatch(name):
        raise ValueError(name)
    found[name] = os.fsdecode(told[1])


def _read_packed(common_dir: Path, names: Sequence[str]) -> dict[str, str]:
    if (common_dir / "reftable").exists():
        raise ValueError("reftable")
    try:
        content = read_regular(common_dir / "packed-refs", _LARGEST_PACK)
    except FileNotFoundError:
        return {}
    asked = b"|".join(re.escape(os.fsencode(name)) for name in names)
    rows = re.finditer(rb"(?m)^([0-9a-f]{40}|[0-9a-f]{64}) ((?:" + asked + rb")(?:/[^\n]*)?)$", content)
    return {os.fsdecode(row[2]): row[1].decode() for row in rows}


def read_head(git_dir: Path) -> str | None:
    """What a worktree is on: the whole name of a branch, or an id where its HEAD is detached."""
    try:
        content = read_regular(git_dir / "HEAD", _LONGEST)
    except OSError:
        return None
    found = _ON_A_BRANCH.fullmatch(content) or _ID.fullmatch(content)
    return os.fsdecode(found[1]) if found else None


def read_checkouts(common_dir: Path, main: Path | None) -> list[Checkout] | None:
    """The main worktree first, where there is one, then the linked ones, by their paths."""
    entries = common_dir / "worktrees"
    linked = []
    try:
        for entry in entries.iterdir() if entries.exists() else ():
            path = Path(os.fsdecode(read_regular(entry / "gitdir", _LONGEST).removesuffix(b"\n")))
            whole = path.is_absolute() and path.name == ".git"
            linked.append(_read_checkout(common_dir, path.parent, entry) if whole else None)
    except OSError:
        return None
    found = [*([_read_checkout(common_dir, main, common_dir)] if main else []), *linked]
    known = [each for each in found if each]
    return [*known[: bool(main)], *sorted(known[bool(main) :])] if len(known) == len(found) else None


def _read_checkout(common_dir: Path, path: Path, git_dir: Path) -> Checkout | None:
    at = read_head(git_dir)
    if at is None or not at.startswith(_HEADS):
        return Checkout(path, at, "") if at else None
    head = read_ref(common_dir, at)
    return Checkout(path, head, at.removeprefix(_HEADS)) if head else None
