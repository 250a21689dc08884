"""Describe what an agent did to its worktree as acts of a script: files, and the commits it made.

Everything is read from git by id, through the helper that trusts nothing in the worktree: a tree from before, a tree
from after, and the two commits that the branch stood at. Playing begins with the tree from before; each commit says
only what the worktree does not hold yet at that point, so the usual commit of finished work is a message and paths.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

from capsule.system.git import Git
from capsule.system.git_objects import GITLINK

LARGEST = 8 * 1024 * 1024
_EXECUTABLE, _LINK = "100755", "120000"

Acts = dict[str, Any]
Clean = Callable[[bytes], bytes]
Side = tuple[str, str] | None
"""Mode and object id of a file; None where there is none."""


def acts_between(git: Git, before: str, after: str, heads: tuple[str, str], clean: Clean) -> Acts:
    """Describe the way from one tree to the other through the commits between the two heads, without secrets."""
    played = _Played(git, before, clean)
    old, new = heads
    shared = git.merge_base(old, new) if old and new and old != new else ""
    acts: Acts = {}
    if shared:
        if taken_back := int(git.content("rev-list", "--first-parent", "--count", f"{shared}..{old}").out):
            acts["uncommit"] = taken_back
        commits = git.content("rev-list", "--first-parent", "--reverse", f"{shared}..{new}").out.decode().split()
        if commits:
            acts["commit"] = [played.commit(oid) for oid in commits]
    acts |= played.become(_files(git, after))
    return acts | ({"left_out": played.left_out} if played.left_out else {})


class _Played:
    """Track the worktree while the acts said so far are played."""

    def __init__(self, git: Git, tree: str, clean: Clean) -> None:
        self._git, self._clean = git, clean
        self._files = _files(git, tree)
        self.left_out: dict[str, str] = {}

    def commit(self, oid: str) -> Acts:
        commit = self._git.commit(oid)
        parent = self._git.commit(commit.parents[0]).tree
        changed = {d.path: None if d.kind == "D" else d.new for d in self._git.differences(parent, commit.tree)}
        acts = self._put(changed)
        named = [path for path in map(self._name, sorted(changed)) if path]
        return {**acts, **({"paths": named} if named else {}), "message": commit.message}

    def become(self, wanted: dict[bytes, Side]) -> Acts:
        gone: dict[bytes, Side] = {path: None for path in self._files if path not in wanted}
        return self._put(gone | wanted)

    def _put(self, wanted: dict[bytes, Side]) -> Acts:
        differing = {path: side for path, side in sorted(wanted.items()) if side != self._files.get(path)}
        removed = [name for path, side in differing.items() if side is None and (name := self._name(path))]
        written = {
            name: content
            for path, side in differing.items()
            if side and (name := self._name(path)) and (content := self._content(name, path, side)) is not None
        }
        self._files = {path: side for path, side in (self._files | differing).items() if side}
        return ({"remove": removed} if removed else {}) | ({"write": written} if written else {})

    def _name(self, path: bytes) -> str:
        try:
            return path.decode()
        except UnicodeDecodeError:
            self.left_out[path.decode(errors="backslashreplace")] = "its name is no UTF-8"
            return ""

    def _content(self, name: str, path: bytes, side: tuple[str, str]) -> str | Acts | None:
        mode, oid = side
        if mode == GITLINK:
            self.left_out[name] = "it is a repository of its own"
            return None
        data = self._clean(self._git.content("cat-file", "blob", oid).out)
        if len(data) > LARGEST:
            self.left_out[name] = f"it is larger than {LARGEST // 1024**2} MiB"
            return None
        if mode == _LINK:
            return {"link": data.decode(errors="replace")}
        was = self._files.get(path)
        executable = {"executable": mode == _EXECUTABLE} if _EXECUTABLE in (mode, was[0] if was else "") else {}
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"base64": b64encode(data).decode(), **executable}
        return {"text": text, **executable} if executable else text


def _files(git: Git, tree: str) -> dict[bytes, Side]:
    return {entry.path: (entry.mode, entry.oid) for entry in git.list_tree(tree, recursive=True)}
