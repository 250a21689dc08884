"""Refs, worktrees and the checkout of a git directory, read where git keeps them: a small file each.

A git that starts only to read 41 bytes costs a hundred times what reading them costs. Nothing is remembered, so an
answer is as fresh as git's own. Loose refs are read before packed ones: git writes the pack first, and removes the
files then. Whatever is no plain file with an id or the name of such a ref in it is for git to explain (None): a link, a
ref that leads nowhere, refs that are stored in some other way.

Most checkouts have a folder `.git`. It may also be a file or a link that names the git directory (a linked worktree, a
submodule, `git init --separate-git-dir`, a git directory on another disk), and a git directory does not say where its
checkout is. So the checkout is looked for from where we were started, upwards, and any other guess counts only if its
own `.git` leads back. `core.worktree` and `core.bare` are never believed alone: an agent can set them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from capsule.system.files import NotRegular, head_bytes, read_regular
from capsule.system.git_objects import Checkout

_LONGEST = 8192
_LARGEST_PACK = 64 * 1024 * 1024
_HEADS = "refs/heads/"
_SHARED = (_HEADS, "refs/capsule/", "refs/tags/", "refs/remotes/")
"""Folders of refs that all worktrees share."""
_ID = rb"(?!0+\n)([0-9a-f]{40}|[0-9a-f]{64})\n"
_ON_A_BRANCH = rb"ref: (refs/heads/[^\s]+)\n"
_ANOTHER = rb"ref: (refs/(?:heads|remotes)/[^\s]+)\n"
_IN_NO_NAME = {"", ".", ".."}
_NAME = r"(?!.*(?:\.\.|@\{|/\.|//|\.lock(?:/|$)|\.(?:/|$)))[^\x00-\x20\x7f~^:?*\[\\]+"
"""Names that `git check-ref-format` accepts; any other file is no ref."""


def read_ref(common_dir: Path, name: str) -> str | None:
    """Return the id of a ref; '' if there is no such ref, and none below that name."""
    found = read_refs(common_dir, [name])
    return found.get(name, "") if found is not None and {*found} <= {name} else None


def read_refs(common_dir: Path, names: Sequence[str]) -> dict[str, str] | None:
    """Return the ids of all refs that are one of these or lie below one, by name."""
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
    """Read the id in each file, or the name of another ref; ValueError for anything else.

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
    told = re.fullmatch(_ID, content) or re.fullmatch(_ANOTHER, content)
    if told is None or not re.fullmatch(_NAME, name):
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
    """Return the HEAD of a worktree: the full name of a branch, or an id if it is detached."""
    try:
        content = read_regular(git_dir / "HEAD", _LONGEST)
    except OSError:
        return None
    found = re.fullmatch(_ON_A_BRANCH, content) or re.fullmatch(_ID, content)
    at = os.fsdecode(found[1]) if found else ""
    return at if re.fullmatch(_NAME, at) else None  # a repository with reftables says `refs/heads/.invalid`


def read_checkouts(common_dir: Path, main: Path | None) -> list[Checkout] | None:
    """List the main worktree first, if there is one, then the linked ones by their paths."""
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


# ── the checkout of a git directory ────────────────────────────────────────────────────────────────────────────────

_POINTER = b"gitdir: "


def leads_to(folder: Path, git_dir: Path) -> bool:
    """Tell whether the folder's `.git` is this git directory, or a link to it, or a file that names it."""
    return _named_by(folder) == os.path.realpath(git_dir)


def checkout_around(start: Path, git_dir: Path) -> Path | None:
    """Find the nearest folder from `start` upwards whose `.git` leads to the git directory."""
    place = Path(os.path.realpath(start))
    return next((folder for folder in (place, *place.parents) if leads_to(folder, git_dir)), None)


def main_worktree(common_dir: Path, inside: Path, guesses: Iterable[Path]) -> Path | None:
    """Find the main worktree, seen from a linked one: around it, as guessed, or beside the git directory."""
    found = checkout_around(inside, common_dir)
    beside = (common_dir.parent,) if common_dir.name == ".git" else ()
    return found or next((guess for guess in (*guesses, *beside) if leads_to(guess, common_dir)), None)


def project_worktree(common_dir: Path, inside: Path) -> Path:
    """Find the linked worktree whose project a place below its `.capsule` belongs to; else the worktree itself."""
    for folder in inside.parents:
        ours = inside.is_relative_to(folder / ".capsule")
        if ours and entry_of(folder, common_dir):
            return folder
    return inside


def entry_of(worktree: Path, common_dir: Path) -> Path | None:
    """Return the git directory of a linked worktree of this repository, if it is one."""
    named = Path(_named_by(worktree))
    return named if named.parent == Path(os.path.realpath(common_dir), "worktrees") else None


def as_alternate(objects: Path) -> bytes:
    """Write a line of `objects/info/alternates`: quoted where it would be read as two or as a comment."""
    path = str(objects)
    odd = "\n" in path or path.startswith(('"', "#"))
    return os.fsencode(quoted(path) if odd else path) + b"\n"


def quoted(text: str) -> str:
    """Quote as in C, which is how git reads its own files."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def pointer_to(git_dir: Path) -> bytes:
    """Return the content of a `.git` file that names this git directory."""
    return _POINTER + os.fsencode(git_dir) + b"\n"


def pointed_to(dot_git: Path) -> Path | None:
    """Return the git directory that a `.git` file names; None if it is no such file."""
    content = head_bytes(dot_git, _LONGEST)
    told = os.fsdecode(content.removeprefix(_POINTER).rstrip(b"\r\n"))
    return Path(os.path.normpath(dot_git.parent / told)) if content.startswith(_POINTER) and told else None


def _named_by(folder: Path) -> str:
    """Return the real path of the git directory that a folder's `.git` is or names; '' if there is none."""
    dot_git = Path(os.path.realpath(folder), ".git")
    found = dot_git if dot_git.is_dir() else pointed_to(dot_git)
    return os.path.realpath(found) if found else ""
