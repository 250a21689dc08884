"""What a change brings: the lines that it adds, file by file, as git tells them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from capsule.core.hazards import LINK, AddedFile
from capsule.system.git import Git
from capsule.system.git_objects import ABSENT, Difference, shown

_FILE = re.compile(rb"^diff --git ", re.MULTILINE)


def added_files(git: Git, old: str, new: str) -> list[AddedFile]:
    """In the order of `differences`, which is that of the patch; what is only taken away brings nothing."""
    if git.tree_of(old) == git.tree_of(new):
        return []
    changes, patch = git.patch(old, new)
    pieces = _FILE.split(patch)[1:]
    return [_one(change, piece) for change, piece in _paired(changes, pieces) if change.new[0] != ABSENT]


def _paired(changes: list[Difference], pieces: list[bytes]) -> Iterator[tuple[Difference, bytes]]:
    """A change of type is two pieces: the old file goes, the new one comes."""
    rest = iter(pieces)
    for change in changes:
        piece = next(rest, b"")
        yield change, next(rest, b"") if change.kind == "T" else piece


def _one(change: Difference, piece: bytes) -> AddedFile:
    _, _, hunks = piece.partition(b"\n@@")
    lines = [line[1:] for line in hunks.split(b"\n") if line.startswith(b"+")]
    end = "" if change.new[0] == LINK else "\n"
    return AddedFile(shown(change.path), change.new[0], b"\n".join(lines).decode(errors="replace") + end * bool(lines))
