"""Make trees from others (`graft`, `with_files`, `with_changes`, `merged`), and read them (`GitTrees`)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from capsule.core.evidence import Change
from capsule.core.hazards import LINK, AddedFile
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import ABSENT, CAPSULE, FILE, GITLINK, SUBTREE, Difference, TreeEntry, shown

ARTEFACTS = ("worklog.md", ".capsule", ".beads", "BACKLOG.yaml", "orchestrate.toml")
"""Paths that stay as on the base: the worklog, trackers' data, and the settings that an agent is judged by."""
_PIECE = re.compile(rb"^diff --git ", re.MULTILINE)


def is_artefact(path: bytes, artefacts: Iterable[str]) -> bool:
    return any(path == name or path.startswith(name + b"/") for name in map(os.fsencode, artefacts))


def all_artefacts(own_files: Sequence[str]) -> tuple[str, ...]:
    """Return the artefacts of every project, and a tracker's own files."""
    return tuple(dict.fromkeys((*ARTEFACTS, *own_files)))


def index_row(path: bytes, side: tuple[str, str]) -> bytes:
    """Write a row for `update-index -z --index-info`: this mode and object, or no such path."""
    mode, oid = side
    return f"{'0' if mode == ABSENT else mode} {oid}\t".encode() + path + b"\0"


def graft(git: Git, tree: str, source: str, paths: Iterable[str]) -> str:
    """Return `tree`, with each of these paths as it is in `source`: replaced, added or gone.

    Where `tree` has a file in the place of a folder on the way, that file stays.
    """
    entries = [(path.split(b"/"), git.entry_at(source, path)) for path in map(os.fsencode, paths)]
    return _rebuilt(git, git.tree_in(tree), entries, strict=False) or git.make_tree(())


def with_files(git: Git, tree: str, files: Mapping[str, bytes], *, filtered: bool = False) -> str:
    """Return `tree`, with the content of these files; one that is there keeps its mode.

    `filtered`: what was read from disk passes the user's filters (line ends).
    """
    changes = []
    for path, content in files.items():
        found = git.entry_at(tree, os.fsencode(path))
        mode = found.mode if found and found.mode.startswith("100") else FILE
        blob = git.write_blob(content, path if filtered else "")
        changes.append(Difference(os.fsencode(path), "M", (ABSENT, ""), (mode, blob)))
    return with_changes(git, tree, changes)


def with_changes(git: Git, tree: str, changes: Sequence[Difference]) -> str:
    """Return `tree`, with these changes made to it, and no other; raise GitFailed if a file would also be a folder."""
    if not changes:
        return tree
    entries: list[tuple[list[bytes], TreeEntry | None]] = []
    for change in changes:
        (mode, oid), names = change.new, change.path.split(b"/")
        entry = TreeEntry(mode, "commit" if mode == GITLINK else "blob", oid, names[-1])
        entries.append((names, None if mode == ABSENT else entry))
    return _rebuilt(git, tree, entries, strict=True) or git.make_tree(())


def _rebuilt(git: Git, tree: str, entries: list[tuple[list[bytes], TreeEntry | None]], *, strict: bool) -> str:
    """Return a folder with these entries, or without; '' where nothing is left, and for a folder that is not there.

    Removed entries make room for new ones, in any order. `strict`: no file takes the place of a folder, or a folder
    that of a file.
    """
    rows = {entry.path: entry for entry in git.list_tree(tree)} if tree else {}
    before = dict(rows)
    here = {names[0]: entry for names, entry in entries if len(names) == 1}
    for name, entry in here.items():
        if entry is None and name in rows and not (strict and rows[name].kind == "tree"):
            del rows[name]
    for name in {names[0]: None for names, _ in entries if len(names) > 1}:
        below = [(names[1:], entry) for names, entry in entries if names[0] == name and len(names) > 1]
        known = rows.get(name)
        if known is not None and known.kind != "tree":
            if strict and any(entry for _, entry in below):
                raise _collision(name)
            continue
        folder = _rebuilt(git, known.oid if known else "", below, strict=strict)
        rows.pop(name, None)
        if folder:
            rows[name] = TreeEntry(SUBTREE, "tree", folder, name)
    for name, entry in here.items():
        if entry:
            if strict and name in rows and rows[name].kind == "tree":
                raise _collision(name)
            rows[name] = entry
    if rows == before and tree:
        return git.tree_of(tree)
    return git.make_tree(rows.values()) if rows else ""


def _collision(name: bytes) -> GitFailed:
    return GitFailed(f"{shown(name)} would be a file and a folder", "Rename one of them, then run it again.")


def merged(git: Git, base: str, onto: str, work: str, called: str = "") -> tuple[str, tuple[str, ...]]:
    """Merge the tree `work` into a commit as if both had come from `base`; the result, and the paths in conflict.

    A branch may have lost the commit that the work is based on (it was amended, or undone). By history, the changes of
    that commit would count as work and return.
    """
    commit = partial(git.commit_tree, by=CAPSULE, date="@0 +0000")
    if not git.is_ancestor(base, onto):
        base = commit(git.tree_in(base), [], "base")
        onto = commit(git.tree_in(onto), [base], "onto")
    return git.merge_trees(onto, commit(work, [base], "work"), called=called)


class GitTrees:
    """Read and compare trees from git's objects, without artefacts such as the tracker's files.

    `base` and `head` are the mission's first and current commit.
    """

    def __init__(
        self, git: Git, branch: str, artefacts: Sequence[str], *, base: Callable[[], str], head: Callable[[], str]
    ) -> None:
        self._git = git
        self._branch = branch
        self._artefacts = artefacts
        self._base = base
        self._head = head
        self._added: dict[tuple[str, str], list[AddedFile]] = {}
        """By base and tree: the same tree is judged by several phases."""

    def changes(self, since: str, until: str) -> Sequence[Change]:
        differences = self.work_between(self._git.tree_of(since), self._git.tree_of(until))
        return [Change(shown(d.path), d.kind) for d in differences]

    def files(self, tree: str) -> Sequence[str]:
        return [shown(entry.path) for entry in self._git.list_tree(tree, recursive=True)]

    def odd_files(self, tree: str) -> set[str]:
        return {shown(e.path) for e in self._git.list_tree(tree, recursive=True) if e.mode != FILE}

    def added_files(self, tree: str) -> Sequence[AddedFile]:
        """Include the commits of the mission's branch: they are merged with all they hold."""
        head, onto = self._head(), self._base()
        known, keys = self._added, [(onto, each) for each in (*self.trees_between(onto, head), tree)]
        self._added = {key: known[key] if key in known else self._added_by(*key) for key in dict.fromkeys(keys)}
        return [file for files in self._added.values() for file in files]

    def _added_by(self, old: str, new: str) -> list[AddedFile]:
        """List files with the lines they gain, in the order of the patch; one that only loses lines gains none."""
        if self._git.tree_of(old) == self._git.tree_of(new):
            return []
        changes, patch = self._git.patch(old, new)
        pieces, found = iter(_PIECE.split(patch)[1:]), []
        for change in changes:
            piece = next(pieces, b"")
            if change.kind == "T":  # two pieces: the old file goes, the new one comes
                piece = next(pieces, b"")
            if change.new[0] != ABSENT and not is_artefact(change.path, self._artefacts):
                lines = [line[1:] for line in piece.partition(b"\n@@")[2].split(b"\n") if line.startswith(b"+")]
                end = "\n" if lines and change.new[0] != LINK else ""
                text = b"\n".join(lines).decode(errors="replace") + end
                found.append(AddedFile(shown(change.path), change.new[0], text))
        return found

    def trees_between(self, base: str, *tips: str) -> list[str]:
        known = self._git.commits_since(base, *tips)
        if known is not None:
            return [commit.tree for commit in known]
        return self._git.content("log", "--format=%T", *tips, f"^{base}", "--").out.decode().split()

    def read(self, tree: str, path: str) -> bytes | None:
        if "\\x" in path:  # it may stand for bytes that are not UTF-8
            files = self._git.list_tree(tree, recursive=True) if tree else ()
            found = [entry.path for entry in files if shown(entry.path) == path]
            return self._git.read_file(tree, os.fsdecode(found[0])) if len(found) == 1 else None
        return self._git.read_file(tree, path)

    def test_cache_key(self, tree: str) -> str:
        return tree

    def work_between(self, old: str, new: str) -> list[Difference]:
        return [d for d in self._git.differences(old, new) if not is_artefact(d.path, self._artefacts)]

    # Adding a person's edits to what was approved

    def apply_human_edits(self, approved: str, left: str, now: str) -> str:
        return with_changes(self._git, approved, self.work_between(left, now))

    def rebased_tree(self, tree: str, onto: str) -> str:
        return graft(self._git, self.merged(tree, onto)[0], onto, self._artefacts)

    def merged(self, tree: str, onto: str) -> tuple[str, tuple[str, ...]]:
        return merged(self._git, self._base(), onto, tree, called=self._branch)

    def commit(self, tree: str, parents: Sequence[str], message: str) -> str:
        """Commit with a fixed identity and the base's date, so that the same state gives the same commit."""
        date = self._git.commit(self._base()).committer_date
        return self._git.commit_tree(tree, list(dict.fromkeys(filter(None, parents))), message, by=CAPSULE, date=date)
