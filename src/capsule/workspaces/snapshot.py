"""Naming all that is in a worktree, by an index of our own.

What the agent staged, or flagged as unchanged, plays no part. Ignored files stay out, and so do copied ones, the
outputs, and submodules: to look into a submodule git would run in there, by settings that an agent can write.

A repository that an agent made inside the worktree would enter the tree as a mere pointer, its files nowhere. Judging
such a tree is refused. Where the state is to be saved, not judged, the inner `.git` is put on a shelf and the files
count as files.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from capsule.core.errors import WorkspaceBroken
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import GITLINK, shown
from capsule.workspaces.linked import put_away_repository
from capsule.workspaces.provision import recall_paths

WORKLOG = "worklog.md"
_UNBORN = re.compile(r"'(.+)/' does not have a commit checked out", re.DOTALL)


class Nested(Exception):
    """There is a repository inside the worktree."""

    def __init__(self, paths: Sequence[bytes]) -> None:
        super().__init__(", ".join(map(shown, paths)))
        self.paths = paths


class Snapshots:
    """Trees of one worktree."""

    def __init__(self, git: Git, worktree: Path, notes: Path) -> None:
        self.index = notes / "index"
        self._git = git
        self._worktree = worktree
        self._copied = notes / "copied"
        self._holds_worklog = False
        self._sound: set[str] = set()
        self._submodules: dict[str, list[bytes]] = {}

    def to_judge(self, base: str) -> str:
        """The tree as it is; WorkspaceBroken where a tree cannot say it."""
        try:
            return self._take(base)
        except Nested as found:
            hint = "Nothing is lost: it is kept when the phase is run again."
            raise WorkspaceBroken(f"The agent made a git repository inside the worktree: {found}", hint) from found

    def to_save(self, base: str) -> str:
        """The tree, with the files of inner repositories as plain files."""
        while True:
            try:
                return self._take(base)
            except Nested as found:
                for path in found.paths:
                    put_away_repository(self._git, self._worktree / os.fsdecode(path) / ".git")

    def with_worklog(self) -> str:
        """The last snapshot, with the worklog as it is now."""
        self._holds_worklog = False
        self._add_worklog()
        tree = self._git.write_tree(self.index, self._worktree)
        self._sound.add(tree)
        return tree

    def forget(self) -> None:
        """No index: whatever is in the worktree counts as unknown."""
        self._holds_worklog = False
        self.index.parent.mkdir(parents=True, exist_ok=True)
        self.index.unlink(missing_ok=True)

    def start_from(self, tree: str) -> None:
        """An index that holds this tree; files are not touched."""
        self.forget()
        self._git.content("read-tree", tree, index=self.index, worktree=self._worktree)

    def write_out(self, tree: str) -> None:
        """Makes the files equal to the tree. What the last snapshot held and the tree lacks is removed."""
        self._holds_worklog = False
        self._git.content("read-tree", "--reset", "-u", tree, index=self.index, worktree=self._worktree)

    def copy_index(self, target: Path) -> None:
        """What we know about the files, for somebody else's index."""
        half = target.with_name(f"{target.name}.capsule")
        shutil.copyfile(self.index, half)
        half.replace(target)

    def _take(self, base: str) -> str:
        if not self.index.exists():
            self.start_from(base)
        left_out = [*self._not_ignored(recall_paths(self._copied)), *self._submodules_of(base)]
        self._add([b".", *(b":(top,exclude,literal)" + path for path in left_out)])
        self._add_worklog()
        tree = self._git.write_tree(self.index, self._worktree)
        self._refuse_nested(base, tree)
        return tree

    def _not_ignored(self, paths: Sequence[bytes]) -> list[bytes]:
        """git refuses to be told to leave out what it leaves out anyway."""
        if not paths:
            return []
        command = ("check-ignore", "-z", "--stdin", "--no-index")
        answer = self._git.content(*command, worktree=self._worktree, input=b"\0".join(paths), ok=(0, 1))
        return [path for path in paths if path not in answer.out.split(b"\0")]

    def _add_worklog(self) -> None:
        """By force, since it is ignored. Once in the index it is looked at like any other file, until it goes."""
        there = os.path.lexists(self._worktree / WORKLOG)
        if there and not self._holds_worklog:
            self._add([WORKLOG.encode()], "-f")
        self._holds_worklog = there

    def _add(self, paths: Sequence[bytes], *flags: str) -> None:
        command = ("add", "-A", *flags, "--pathspec-from-file=-", "--pathspec-file-nul")
        try:
            self._git.content(*command, index=self.index, worktree=self._worktree, input=b"\0".join(paths))
        except GitFailed as error:
            unborn = _UNBORN.search(error.message)
            if unborn is None:
                raise
            raise Nested([os.fsencode(unborn[1])]) from error

    def _refuse_nested(self, base: str, tree: str) -> None:
        if tree in self._sound:
            return
        nested = [found.path for found in self._git.differences(base, tree) if found.new[0] == GITLINK]
        if nested:
            self.start_from(base)  # with the pointer in our index, the next look would run git in there
            raise Nested(nested)
        self._sound.add(tree)

    def _submodules_of(self, base: str) -> list[bytes]:
        if base not in self._submodules:
            declared = any(entry.path == b".gitmodules" for entry in self._git.list_tree(base))
            files = self._git.list_tree(base, recursive=True) if declared else []
            self._submodules[base] = [file.path for file in files if file.mode == GITLINK]
        return self._submodules[base]
