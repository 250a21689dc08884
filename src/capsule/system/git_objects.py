"""What git says, as data, and how its words are read.

Paths are bytes, as git gives them, until somebody has to read them (`shown`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

ABSENT = "000000"
GITLINK = "160000"


class Identity(NamedTuple):
    name: str
    email: str


CAPSULE = Identity("Capsule", "capsule@localhost")
"""Whose commits those are that no person sees on a branch."""


class TreeEntry(NamedTuple):
    """One row of a tree or of an index."""

    mode: str
    kind: str
    oid: str
    path: bytes


class Difference(NamedTuple):
    """One path that differs between two trees; `kind` is A, M, D or T."""

    path: bytes
    kind: str
    old: tuple[str, str]
    new: tuple[str, str]
    """Mode and object id on either side."""


class Commit(NamedTuple):
    tree: str
    parents: tuple[str, ...]
    author: Identity
    author_date: str
    committer_date: str
    message: str

    @property
    def committed_at(self) -> int:
        return int(self.committer_date.split()[0].lstrip("@"))


class Checkout(NamedTuple):
    """A worktree as git lists it; no branch means a detached HEAD."""

    path: Path
    head: str
    branch: str


class RefMove(NamedTuple):
    """`old` empty: the ref must be new; None: wherever it stands. `new` empty: it goes."""

    ref: str
    new: str
    old: str | None = None


def shown(path: bytes) -> str:
    """A path for people and for JSON: bytes that are not UTF-8 are spelled out, so that no name breaks a report."""
    return path.decode("utf-8", "backslashreplace")


def as_instruction(move: RefMove) -> bytes:
    if not move.new:
        return f"delete {move.ref}\0{move.old or ''}\0".encode()
    if move.old == "":
        return f"create {move.ref}\0{move.new}\0".encode()
    return f"update {move.ref}\0{move.new}\0{move.old or ''}\0".encode()


def read_checkout(record: bytes) -> Checkout:
    rows = dict(row.partition(b" ")[::2] for row in record.split(b"\0"))
    branch = rows.get(b"branch", b"").decode().removeprefix("refs/heads/")
    return Checkout(Path(os.fsdecode(rows[b"worktree"])), rows.get(b"HEAD", b"").decode(), branch)


def read_entry(row: bytes) -> TreeEntry:
    facts, path = row.split(b"\t", 1)
    mode, kind, oid = facts.decode().split()
    return TreeEntry(mode, kind, oid, path)


def read_difference(head: bytes, path: bytes) -> Difference:
    old_mode, new_mode, old, new, kind = head.decode().lstrip(":").split()
    return Difference(path, kind[0], (old_mode, old), (new_mode, new))


def read_differences(listing: bytes) -> tuple[list[Difference], bytes]:
    """The rows of `diff-tree -z --raw`, and the patch, where one was asked for: it comes after one more NUL."""
    found, at = [], 0
    while listing[at : at + 1] == b":":
        middle = listing.index(b"\0", at)
        end = listing.index(b"\0", middle + 1)
        found.append(read_difference(listing[at:middle], listing[middle + 1 : end]))
        at = end + 1
    return found, listing[at + 1 :]


def read_commit(raw: bytes) -> Commit:
    header, _, message = raw.decode(errors="surrogateescape").partition("\n\n")
    fields: dict[str, list[str]] = {}
    for line in header.splitlines():
        key, _, value = line.partition(" ")
        fields.setdefault(key, []).append(value)
    author, author_date = read_person(fields.get("author", [""])[0])
    _, committer_date = read_person(fields.get("committer", [""])[0])
    return Commit(fields["tree"][0], tuple(fields.get("parent", ())), author, author_date, committer_date, message)


def read_person(line: str) -> tuple[Identity, str]:
    """`Name <email> 1700000000 +0100`, as far as it makes sense: an agent can write any commit it likes."""
    name, _, rest = line.partition("<")
    email, _, date = rest.rpartition(">")
    plausible = re.fullmatch(r" (\d{1,10} [+-]\d{4})", date)
    return Identity(name.strip(), email), f"@{plausible[1] if plausible else '0 +0000'}"
