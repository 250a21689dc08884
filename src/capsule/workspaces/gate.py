"""The gate: a worktree of our own that holds exactly the tree to be judged, and nothing an agent left lying about.

It is kept and reset, because a reset costs milliseconds and a set-up may cost minutes. Before every use all files that
the tree does not have are removed, ignored ones too: caches and build results of one tree must not colour the next.
Two kinds stay: copied files, and what the set-up left there (a `node_modules`, a `.venv`), noted when it ended. What a
test writes *inside* such a folder stays as well; that is the price of not setting up each time.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from capsule.system.files import write_atomically
from capsule.system.git import Git, GitFailed
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.provision import Provisions, recall_paths, remember_paths


class Gate:
    """One per mission, made when first asked for."""

    def __init__(self, git: Git, path: Path, notes: Path, provisions: Provisions, log: Path) -> None:
        self._git = git
        self._path = path
        self._index = notes / "gate-index"
        self._note = notes / "gate-setup"
        self._kept = notes / "gate-kept"
        self._provisions = provisions
        self._log = log
        self._linked = LinkedWorktree(git, path)

    def at(self, tree: str, base: str) -> Path:
        """The place, holding exactly this tree, set up."""
        self._index.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._make(tree, base)
        except GitFailed:
            # Folders closed to us, or worse: nothing in here is worth saving.
            self.remove()
            self._make(tree, base)
        return self._path

    def remove(self) -> None:
        self._linked.remove()
        for file in (self._index, self._note, self._kept):
            file.unlink(missing_ok=True)

    def _make(self, tree: str, base: str) -> None:
        entry, made = self._linked.ensure(base)
        needed = self._provisions.setup or self._provisions.copy
        files = self._git.list_tree(tree, recursive=True) if needed else []
        inputs = self._provisions.inputs(files)
        due = bool(inputs) and (made or not self._note.exists() or self._note.read_text() != inputs)
        if due:
            self._note.unlink(missing_ok=True)
        empty = made and len(list(self._path.iterdir())) == 1
        self._reset(tree)
        if not empty:
            self._clean([] if due or not inputs else recall_paths(self._kept))
        copied = self._provisions.copy_into(self._path, self._git.root, frozenset(file.path for file in files))
        if due:
            self._set_up(tree, inputs, copied)
        shutil.copyfile(self._index, entry / "index")

    def _set_up(self, tree: str, inputs: str, copied: list[bytes]) -> None:
        self._provisions.run(self._path, self._log)
        listing = self._git.content("ls-files", "-z", "--others", "--directory", index=self._index, worktree=self._path)
        remember_paths(self._kept, {*listing.out.split(b"\0"), *copied} - {b""})
        self._reset(tree)
        write_atomically(self._note, inputs)

    def _reset(self, tree: str) -> None:
        self._git.content("read-tree", "--reset", "-u", tree, index=self._index, worktree=self._path)

    def _clean(self, kept: Iterable[bytes]) -> None:
        exceptions = [word for path in kept for word in ("-e", _exactly(path))]
        self._git.content("clean", "-ffdxq", *exceptions, index=self._index, worktree=self._path)


def _exactly(path: bytes) -> str:
    """An ignore pattern that means this one path."""
    return "/" + re.sub(r"([\\*?\[\] !#])", r"\\\1", path.decode(errors="surrogateescape"))
