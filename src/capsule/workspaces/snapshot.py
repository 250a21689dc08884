"""Snapshots of a worktree, by an index of our own.

What the agent staged, or flagged as unchanged, plays no part. Ignored files stay out, and so do copied ones, the
outputs, and submodules: to look into a submodule git would run in there, by settings that an agent can write. The
mission's worklog, ignored as well, is in every tree of ours, and gets there and back without git, byte by byte.

A repository that an agent made inside the worktree would enter the tree as a mere pointer, its files nowhere. Judging
such a tree is refused. Where the state is to be saved, not judged, the inner `.git` is put on a shelf and the files
count as files. In the same way a file goes on the shelf that git stores in no tree: one called `git~1`, which is `.git`
on some disks, a `.gitmodules` that is a link, a pipe in a file's place.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from capsule.core.errors import WorkspaceBroken
from capsule.system.files import NotRegular, read_regular, write_atomically
from capsule.system.folders import remove_tree
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import ABSENT, FILE, GITLINK, LINK, Difference, shown
from capsule.workspaces.provision import recall_paths
from capsule.workspaces.salvage import put_aside, put_away_repository
from capsule.workspaces.trees import with_changes

Stamp = tuple[int, int, int, int]

WORKLOG = "worklog.md"
LARGEST_WORKLOG = 8 * 1024 * 1024
_NOTHING: Stamp = (0, 0, 0, 0)
_ABSENT = (ABSENT, "")
_UNBORN = re.compile(r"'(.+?)/' does not have a commit checked out", re.DOTALL)
_REFUSALS = ("error: invalid path '{}'\n", "error: {}: can only add regular files")


class _CannotSnapshot(Exception):
    """The worktree holds something that a tree cannot hold: a repository, or what git does not store."""

    def __init__(self, paths: Sequence[bytes], *, nested: bool) -> None:
        super().__init__(", ".join(map(shown, paths)))
        self.paths = paths
        self.nested = nested


class Snapshots:
    """Trees of one worktree."""

    def __init__(self, git: Git, worktree: Path, notes: Path) -> None:
        self.index = notes / "index"
        self._git = git
        self._worktree = worktree
        self._copied = notes / "copied"
        self._held = ("", _NOTHING)
        """The tree that our index holds, and the stamp of the index that holds it."""
        self._taken = ""
        """The last snapshot, without the worklog."""
        self._submodules: dict[str, list[bytes]] = {}

    def to_judge(self, base: str) -> str:
        """Return the tree as it is; raise WorkspaceBroken if a tree cannot hold it."""
        with _judging():
            return self._take(base)

    def to_save(self, base: str) -> str:
        """Return the tree, with the files of inner repositories as plain files, and without what git does not store."""
        while True:
            try:
                return self._take(base)
            except _CannotSnapshot as found:
                for path in (self._worktree / os.fsdecode(path) for path in found.paths):
                    if found.nested:
                        put_away_repository(self._git, path / ".git")
                    else:
                        put_aside(self._git, path)

    def with_worklog(self, base: str) -> str:
        """Return the last snapshot, with the worklog as it is now."""
        with _judging():
            return self._add_worklog(self._taken, base)

    def forget(self) -> None:
        """Drop the index: all files of the worktree count as unknown."""
        self._held = ("", _NOTHING)
        self.index.parent.mkdir(parents=True, exist_ok=True)
        self.index.unlink(missing_ok=True)

    def start_from(self, tree: str) -> None:
        """Make an index that holds this tree; files are not touched."""
        self.forget()
        self._git.content("read-tree", tree, index=self.index, worktree=self._worktree)

    def write_out(self, tree: str, base: str) -> None:
        """Make the files equal to the tree; what the last snapshot held and the tree lacks is removed."""
        worklog = None if self._tracks_worklog(base) else self._git.entry_at(tree, WORKLOG.encode())
        if worklog and worklog.kind == "blob":
            tree = with_changes(self._git, tree, [Difference(worklog.path, "D", _ABSENT, _ABSENT)])
        self._held = ("", _NOTHING)
        self._git.content("read-tree", "--reset", "-u", tree, index=self.index, worktree=self._worktree)
        self._held = (self._git.tree_in(tree), _stamp(self.index))
        if self._tracks_worklog(base):
            return
        # Not by git, which did not store it either: without filters, and it may be ignored.
        file = self._worktree / WORKLOG
        if worklog is None or worklog.mode == LINK:
            remove_tree(file)
        if worklog and worklog.mode == LINK:
            file.symlink_to(os.fsdecode(self._git.read_blob(worklog.oid)))
        elif worklog and worklog.kind == "blob":
            write_atomically(file, self._git.read_blob(worklog.oid))

    def copy_index(self, target: Path) -> None:
        """Copy our index over another one."""
        half = target.with_name(f"{target.name}.capsule")
        shutil.copy2(self.index, half)  # with its age: a younger one would hide edits made in the same second
        half.replace(target)

    def _take(self, base: str) -> str:
        if not self.index.exists():
            self.start_from(base)
        copied = recall_paths(self._copied)
        ignored = self._git.ignored(copied, self._worktree)  # git refuses to leave out what it leaves out anyway
        left_out = [*(path for path in copied if path not in ignored), *self.submodules_of(base)]
        self._add([b".", *(b":(top,exclude,literal)" + path for path in left_out)])
        self._taken = self._written()
        nested = [found.path for found in self._git.differences(base, self._taken) if found.new[0] == GITLINK]
        if nested:
            self.start_from(base)  # with the pointer in our index, the next look would run git in there
            raise _CannotSnapshot(nested, nested=True)
        return self._add_worklog(self._taken, base)

    def _written(self) -> str:
        tree = self._still_held() or self._git.write_tree(self.index, self._worktree)
        self._held = (tree, _stamp(self.index))
        return tree

    def _still_held(self) -> str:
        """Return the tree that our index holds; '' if another process has written the index since."""
        tree, stamp = self._held
        return tree if stamp == _stamp(self.index) else ""

    def _add_worklog(self, tree: str, base: str) -> str:
        """Add the worklog, which is ignored; where the project tracks one, that is a file like any other."""
        file = self._worktree / WORKLOG
        if self._tracks_worklog(base):
            return tree
        if not os.path.lexists(file):
            side = _ABSENT
        elif file.is_symlink():
            side = (LINK, self._git.write_blob(os.fsencode(file.readlink())))
        else:
            try:
                side = (FILE, self._git.write_blob(read_regular(file, LARGEST_WORKLOG)))
            except OSError as error:  # a folder, or too large: git reports it
                if isinstance(error, NotRegular) and not file.is_dir():
                    raise _CannotSnapshot([WORKLOG.encode()], nested=False) from error
                self._add([WORKLOG.encode()], "-f")
                return self._written()
        return with_changes(self._git, tree, [Difference(WORKLOG.encode(), "M", _ABSENT, side)])

    def _tracks_worklog(self, base: str) -> bool:
        return self._git.entry_at(base, WORKLOG.encode()) is not None

    def _add(self, paths: Sequence[bytes], *flags: str) -> None:
        """Stage these paths; if git stages none of them differently, the tree is the same."""
        command = ("add", "-A", "-v", "--ignore-errors", *flags, "--pathspec-from-file=-", "--pathspec-file-nul")
        held, self._held = self._still_held(), ("", _NOTHING)
        try:
            said = self._git.content(*command, index=self.index, worktree=self._worktree, input=b"\0".join(paths))
            self._held = ("" if said.out else held, _stamp(self.index))
        except GitFailed as error:
            if unborn := _UNBORN.search(error.said):
                raise _CannotSnapshot([os.fsencode(unborn[1])], nested=True) from error
            if refused := self._refused(error.said):
                raise _CannotSnapshot(refused, nested=False) from error
            raise

    def _refused(self, said: str) -> list[bytes]:
        """Return the paths git complains about. It garbles names, so each file is looked for by its garbled one."""
        command = ("ls-files", "-z", "--others", "--modified", "--exclude-standard")
        listed = self._git.content(*command, index=self.index, worktree=self._worktree).out.split(b"\0")
        paths = dict.fromkeys((*filter(None, listed), WORKLOG.encode()))
        there = [path for path in paths if os.path.lexists(self._worktree / os.fsdecode(path))]
        # Control characters are question marks in git's messages, and what is no UTF-8 is replaced.
        garbled = [re.sub(rb"[\x00-\x08\x0b-\x1f\x7f]", b"?", path).decode(errors="replace") for path in there]
        return [p for p, name in zip(there, garbled, strict=True) if any(w.format(name) in said for w in _REFUSALS)]

    def submodules_of(self, base: str) -> list[bytes]:
        """Return the paths of a commit's submodules."""
        if base not in self._submodules:
            declared = any(entry.path == b".gitmodules" for entry in self._git.list_tree(base))
            files = self._git.list_tree(base, recursive=True) if declared else []
            self._submodules[base] = [file.path for file in files if file.mode == GITLINK]
        return self._submodules[base]


def _stamp(index: Path) -> Stamp:
    try:
        found = index.stat()
    except OSError:
        return _NOTHING
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def _judging() -> Iterator[None]:
    try:
        yield
    except _CannotSnapshot as found:
        hint = "Nothing is lost: it is kept when the phase is run again."
        did = "made a git repository inside the worktree" if found.nested else "left what git stores in no tree"
        raise WorkspaceBroken(f"The agent {did}: {found}", hint) from found
