"""What missions changed, counted in lines: two or three questions to git, however many missions there are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from capsule.core.account import Diff, FileChange

if TYPE_CHECKING:
    from capsule.system.git import Git

Pairs = tuple[tuple[str, str], ...]

_PAIR = re.compile(rb"[0-9a-f]{40,64} [0-9a-f]{40,64}\n")
_NO_LINES = b"-"
_NUMSTAT = ("diff-tree", "--stdin", "-r", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv")
_GONE = "its commits are no longer in the repository, so what it changed cannot be told"


class Differences:
    """How many lines differ, file by file, between many pairs of revisions."""

    def __init__(self, git: Git, pairs: Collection[tuple[str, str]]) -> None:
        self._trees = _trees(git, {name for pair in pairs for name in pair})
        self._nothing = _empty_tree(git) if any(old.endswith("^") for old, _ in pairs) else ""
        asked = {(self._tree(old), self._tree(new)) for old, new in pairs}
        self._files = _numstat(git, [(old, new) for old, new in asked if old and new and old != new])

    def between(self, pairs: Pairs, note: str) -> Diff:
        found: dict[str, FileChange] = {}
        for old, new in pairs:
            trees = self._tree(old), self._tree(new)
            if not all(trees):
                return Diff(note=_GONE)
            for file in self._files.get(trees, ()):
                found[file.path] = _sum(found.get(file.path), file)
        files = sorted(found.values(), key=lambda file: (-(file.added or 0) - (file.removed or 0), file.path))
        return Diff(files=tuple(files), note=note)

    def _tree(self, name: str) -> str:
        """Before a first commit there was nothing at all, which git knows as a tree."""
        first = name.endswith("^") and name not in self._trees and name.removesuffix("^") in self._trees
        return self._nothing if first else self._trees.get(name, "")


def _empty_tree(git: Git) -> str:
    return git.content("hash-object", "-t", "tree", "--stdin", input=b"").out.decode().strip()


def _trees(git: Git, names: Collection[str]) -> dict[str, str]:
    """The tree of each revision that is there."""
    asked = sorted(names)
    if not asked:
        return {}
    lines = "".join(f"{name}^{{tree}}\n" for name in asked).encode()
    rows = git.content("cat-file", "--batch-check=%(objectname) %(objecttype)", input=lines).out.decode().splitlines()
    answers = zip(asked, (row.rsplit(" ", 1) for row in rows), strict=True)
    return {name: oid for name, (oid, kind) in answers if kind == "tree"}


def _numstat(git: Git, pairs: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], list[FileChange]]:
    if not pairs:
        return {}
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    found: dict[tuple[str, str], list[FileChange]] = {}
    files: list[FileChange] = []
    for record in git.content(*_NUMSTAT, input=asked).out.split(b"\0"):
        row = record
        while head := _PAIR.match(row):
            old, new = head[0].decode().split()
            files, row = found.setdefault((old, new), []), row[head.end() :]
        if row:
            files.append(_file(row))
    return found


def _file(row: bytes) -> FileChange:
    from capsule.system.git_objects import shown

    added, removed, path = row.split(b"\t", 2)
    counted = added != _NO_LINES
    return FileChange(shown(path), int(added) if counted else None, int(removed) if counted else None)


def _sum(one: FileChange | None, other: FileChange) -> FileChange:
    if one is None:
        return other
    if one.added is None or other.added is None:
        return FileChange(other.path, None, None)
    return FileChange(other.path, one.added + other.added, (one.removed or 0) + (other.removed or 0))
