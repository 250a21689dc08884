"""A linked worktree: registered with git, or repaired from any state that a crash or an agent left.

`git worktree add` killed half-way leaves a folder without an entry, an entry without a folder, or an entry that is
locked and has no HEAD yet, and fails on all of them when run again. So we look first: either the worktree is whole, or
its entry is taken away, its files are put aside, it is registered afresh, and the files are moved back. Each of these
can be repeated. This module does not write a worktree's files.

The entry is found by asking every `<common>/worktrees/*/gitdir` whether it means us. The worktree's own `.git` file
says so too, but an agent can write that one as easily as any other file, so it is compared and never followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from capsule.core.errors import CapsuleError, Refused
from capsule.system.files import head_bytes, write_atomically
from capsule.system.folders import remove_tree
from capsule.system.git import Git
from capsule.system.git_directory import pointed_to, pointer_to
from capsule.system.lock import held
from capsule.workspaces.salvage import put_away_repository

_READ_BY_GIT = (".gitignore", ".gitattributes", ".gitmodules")
_LARGEST_READ_BY_GIT = 100 * 1024 * 1024
"""Git itself does not read attributes that are larger."""
_LOCK_WAIT = 60.0
_read = partial(head_bytes, limit=64 * 1024)
_HEAD = re.compile(rb"(ref: refs/[^\n]+|[0-9a-f]{40,64})\n")


class LinkedWorktree:
    """One folder, on a branch or (without one) detached."""

    def __init__(self, git: Git, path: Path, branch: str = "") -> None:
        self.path = path
        self._git = git
        self._branch = branch
        self._aside = path.with_name(f".{path.name}.aside")
        self._inside = path.relative_to(git.root).parts if path.is_relative_to(git.root) else path.parts[-3:]
        self._leaving = git.capsule_dir / "leaving" / "-".join(self._inside)

    def entry(self) -> Path | None:
        """Return git's own folder for this worktree, if it is registered."""
        wanted = self.path / ".git"
        likely = self._git.common_dir / "worktrees" / self.path.name
        if _read(likely / "gitdir") == os.fsencode(wanted) + b"\n":
            return likely
        return next((entry for entry, told in self._entries() if told == wanted), None)

    def _entries(self) -> Iterator[tuple[Path, Path]]:
        folder = self._git.common_dir / "worktrees"
        for entry in folder.iterdir() if folder.is_dir() else ():
            told = _read(entry / "gitdir").rstrip(b"\n")
            if told:
                yield entry, Path(os.path.normpath(entry / os.fsdecode(told)))

    def register_after_move(self) -> None:
        """Register the worktree at its current path if the repository was moved or copied with it."""
        if self.entry() is not None:
            return
        for entry, told in self._entries():
            ours = pointed_to(told)
            leads_here = ours is not None and ours.is_relative_to(self._git.common_dir)
            if told.parts[-len(self._inside) - 1 :] == (*self._inside, ".git") and not leads_here:
                write_atomically(entry / "gitdir", os.fsencode(self.path / ".git") + b"\n")
                if self.path.is_dir():
                    self.point_at(entry)
                return

    def point_at(self, git_dir: Path) -> None:
        """Make the worktree's `.git` a file that names this git directory, replacing anything else."""
        link = self.path / ".git"
        if link.is_dir() and not link.is_symlink():
            put_away_repository(self._git, link)
        write_atomically(link, pointer_to(git_dir), flush=False)

    def whole(self) -> Path | None:
        """Return the entry, provided that nothing is missing or bent, and the worktree points back to it."""
        entry = self.entry()
        if entry is None or not _HEAD.fullmatch(_read(entry / "HEAD")) or _read(entry / "commondir") != b"../..\n":
            return None
        if _read(entry / "locked").strip() == b"initializing" or self.path.is_symlink():
            return None
        return entry if pointed_to(self.path / ".git") == entry else None

    def ensure(self, commit: str) -> tuple[Path, bool]:
        """Return the entry of a whole worktree, and whether it had to be made. Files that were there stay."""
        self.register_after_move()
        entry = self.whole()
        made = entry is None
        if entry is None:
            self._refuse_if_begun_elsewhere()
            self._put_aside()
            what = (str(self.path), self._branch) if self._branch else ("--detach", str(self.path), commit)
            with self._listing():
                self._forget()
                self._git.repository("worktree", "add", "--force", "--no-checkout", *what, umask=-1)
            entry = self.whole()
        if self._aside.is_dir():
            self._move_all(self._aside, self.path)
            self._aside.rmdir()
        if entry is None:
            raise CapsuleError(f"git could not make the worktree {self.path}.", "Look into it: git worktree list")
        return entry, made

    def remove(self) -> None:
        """Remove the folder, what was put aside, and the entry. Safe to repeat."""
        remove_tree(self.path)
        remove_tree(self._aside)
        with self._listing():
            self._forget()

    def _listing(self) -> AbstractContextManager[None]:
        """Hold the lock on git's list of worktrees: git creates its folder, and removes it with the last one."""
        return held(self._git.capsule_dir / "locks" / "worktrees.lock", _LOCK_WAIT)

    def _refuse_if_begun_elsewhere(self) -> None:
        """Keep a mission with the worktree it was begun in: a bare repository has several to work from."""
        for other in self._git.checkouts() if self._branch else ():
            inside = other.path.parts[-len(self._inside) :]
            same = other.branch == self._branch and inside == self._inside and other.path != self.path
            if same and LinkedWorktree(self._git, other.path).whole():
                home = other.path.parents[len(self._inside) - 1]
                raise Refused(f"{self.path.name} was begun in {home}.", f"Go on there: cd {shlex.quote(str(home))}")

    def _forget(self) -> None:
        """Move the entry away in one step: a half-removed one would not be recognized."""
        remove_tree(self._leaving)
        entry = self.entry()
        if entry is not None:
            self._leaving.parent.mkdir(parents=True, exist_ok=True)
            entry.rename(self._leaving)
            remove_tree(self._leaving)
        for folder in (self._leaving.parent, self._git.common_dir / "worktrees"):
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _put_aside(self) -> None:
        """Empty the folder, as git requires. Files that an earlier try put aside stay with them."""
        if self.path.is_symlink() or not self.path.is_dir():
            self.path.unlink(missing_ok=True)
            return
        put_away_repository(self._git, self.path / ".git")
        if not any(self.path.iterdir()):
            self.path.rmdir()
        elif self._aside.exists():
            self._move_all(self.path, self._aside)
            self.path.rmdir()
        else:
            self.path.rename(self._aside)

    @staticmethod
    def _move_all(source: Path, target: Path) -> None:
        for child in source.iterdir():
            remove_tree(target / child.name)
            child.rename(target / child.name)


def detach_submodules(worktree: Path, submodules: Iterable[bytes]) -> None:
    """Remove the `.git` file of each submodule whose git directory no longer exists; keep its files.

    Whoever fills a submodule while an agent or a command is let in has its git directory inside the private one, which
    goes when they go. With such a file left, every `git status` in the worktree fails.
    """
    for path in submodules:
        link = worktree / os.fsdecode(path) / ".git"
        named = pointed_to(link)
        if named and not named.is_dir() and link.parent.resolve().is_relative_to(worktree.resolve()):
            link.unlink()


def remove_what_stops_git(top: Path) -> None:
    """Remove pipes and huge files by names that git reads wherever it finds them: it would wait, or want the memory."""
    folders = [str(top)]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:  # closed, or too deep, for git as well
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders += [entry.path] if entry.name != ".git" else []
                elif entry.name in _READ_BY_GIT:
                    found = entry.stat(follow_symlinks=False)
                    if stat.S_ISFIFO(found.st_mode) or found.st_size > _LARGEST_READ_BY_GIT:
                        Path(entry.path).unlink()
