"""What must hold before any git is asked: `.git` is the folder it was, and git finds no pipe where it reads a file.

A folder is known by holding it open. So it can be told from one that was put in its place, whatever that one holds, and
the system says where it is now: what was moved away is moved back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from capsule.core.errors import WorkspaceBroken
from capsule.core.text import one_line
from capsule.system.git import Git
from capsule.workspaces.salvage import put_aside

_LONGEST_PATH = 1024


class Ground:
    """The repository's own folder, from when it was first looked at until it is let go."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._fd = os.open(git.common_dir, os.O_RDONLY | os.O_DIRECTORY)

    def let_go(self) -> None:
        os.close(self._fd)

    def put_right(self) -> list[str]:
        path = self._git.common_dir
        if self._is_at(path):
            return []
        where = _where_is(self._fd)
        if not (where and self._is_at(where)):
            hint = f"Put the repository back in its place, {path}, from a copy or from wherever it is now."
            raise WorkspaceBroken(f"{path} was replaced, and the one that stood there is gone.", hint)
        try:
            kept = self._move_back(where, path)
        except OSError as error:
            hint = f"Put it back: mv {path} {path}.strange; mv {where} {path}"
            raise WorkspaceBroken(f"{path} was replaced; it is {where} now ({error.strerror}).", hint) from error
        return [one_line(f".git was moved to {where}, and something else put in its place") + kept]

    def _is_at(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return os.path.samestat(path.lstat(), os.fstat(self._fd))
        return False

    def _move_back(self, where: Path, path: Path) -> str:
        """What stood there goes on the shelf, which is in the folder that comes back."""
        strange = path.with_name(f"{path.name}-{os.urandom(4).hex()}")
        stood_there = os.path.lexists(path)
        if stood_there:
            path.rename(strange)
        where.rename(path)
        kept = put_aside(self._git, strange) if stood_there else ""
        return f" (kept as {kept})" if kept else ""


def _where_is(fd: int) -> Path | None:
    with contextlib.suppress(OSError):
        if hasattr(fcntl, "F_GETPATH"):
            return Path(os.fsdecode(fcntl.fcntl(fd, fcntl.F_GETPATH, bytes(_LONGEST_PATH)).rstrip(b"\0")))
        return Path(f"/proc/self/fd/{fd}").readlink()
    return None


# Files that are none


def no_files(common: str) -> Iterator[str]:
    """What stands where git reads a file and is none; a pipe there would keep any git waiting."""
    places = ("", "capsule/git/", *(f"worktrees/{entry.name}/" for entry in _children(f"{common}/worktrees")))
    for place in places:
        yield from (f"{place}{name}" for name in ("index", "locked") if _is_none(f"{common}/{place}{name}"))
        for folder in ("refs", "logs"):
            yield from _none_below(common, f"{place}{folder}", _names_a_ref if folder == "refs" else _never)
    for folder in ("objects/info", "objects/pack"):
        yield from _none_below(common, folder, _never)


def put_no_files_aside(git: Git, known: frozenset[str]) -> dict[str, str]:
    """All but those that were there before; by name, in words."""
    told = {}
    for name in sorted(set(no_files(str(git.common_dir))) - known):
        kept = put_aside(git, git.common_dir / name)
        told[name] = one_line(f".git/{name} was no file") + (f" (kept as {one_line(kept)})" if kept else "")
    return told


def _none_below(common: str, folder: str, may_be_a_link: Callable[[str], bool]) -> Iterator[str]:
    for child in _children(f"{common}/{folder}"):
        if child.is_dir(follow_symlinks=False):
            yield from _none_below(common, f"{folder}/{child.name}", may_be_a_link)
        elif not (child.is_file(follow_symlinks=False) or (child.is_symlink() and may_be_a_link(child.path))):
            yield f"{folder}/{child.name}"


def _names_a_ref(link: str) -> bool:
    """As git itself once wrote symbolic refs; it reads the link and does not follow it."""
    with contextlib.suppress(OSError):
        return os.readlink(link).startswith("refs/")  # noqa: PTH115 (asked often)
    return False


def _never(link: str) -> bool:  # noqa: ARG001 (one of two)
    return False


def _is_none(path: str) -> bool:
    with contextlib.suppress(OSError):
        return not stat.S_ISREG(os.lstat(path).st_mode)
    return False


def _children(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        return list(found)
    return []
