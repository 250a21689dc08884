"""Trees made from other trees: with paths of another (`graft`), with files or changes, merged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import ABSENT, CAPSULE, GITLINK, Difference, TreeEntry, shown

ARTEFACTS = ("worklog.md", ".capsule", ".beads", "BACKLOG.yaml", "orchestrate.toml")
"""Always as on the base: the worklog, trackers' data, and the settings that an agent is judged by."""
_FOLDER = "040000"
FILE = "100644"


def is_artefact(path: bytes, artefacts: Sequence[str]) -> bool:
    return any(path == name or path.startswith(name + b"/") for name in map(os.fsencode, artefacts))


def index_row(path: bytes, side: tuple[str, str]) -> bytes:
    """For `update-index -z --index-info`: this mode and object, or no such path."""
    mode, oid = side
    return f"{'0' if mode == ABSENT else mode} {oid}\t".encode() + path + b"\0"


def graft(git: Git, tree: str, source: str, paths: Iterable[str]) -> str:
    """`tree`, with each of these paths as it is in `source`: replaced, added or gone."""
    return _graft(git, tree, source, [os.fsencode(path).split(b"/") for path in paths]) or git.make_tree(())


def _graft(git: Git, tree: str, source: str, paths: list[list[bytes]]) -> str:
    """An empty id stands for a folder that is not there."""
    ours, theirs = _folder(git, tree), _folder(git, source)
    wanted = dict(ours)
    for name in {path[0]: None for path in paths}:
        deeper = [path[1:] for path in paths if path[0] == name]
        one, other = ours.get(name), theirs.get(name)
        entry = other if [] in deeper else _graft_below(git, one, other, deeper)
        wanted.pop(name, None)
        if entry:
            wanted[name] = entry
    if wanted == ours:
        return tree
    if wanted == theirs and git.tree_of(source) != source:
        return git.tree_of(source)
    return git.make_tree(wanted.values()) if wanted else ""


def _graft_below(
    git: Git, ours: TreeEntry | None, theirs: TreeEntry | None, paths: list[list[bytes]]
) -> TreeEntry | None:
    if ours is not None and ours.kind != "tree":
        return ours  # a file where the folder was: nothing of theirs fits below it
    known = ours or theirs
    if known is None or known.kind != "tree":
        return None
    below = _graft(git, ours.oid if ours else "", theirs.oid if theirs and theirs.kind == "tree" else "", paths)
    return TreeEntry(_FOLDER, "tree", below, known.path) if below else None


def _folder(git: Git, tree: str) -> dict[bytes, TreeEntry]:
    return {entry.path: entry for entry in git.list_tree(tree)} if tree else {}


def merged_from(git: Git, base: str, tip: str, work: str) -> tuple[str, tuple[str, ...]]:
    """Merge a tree into a commit as if both had come from `base`; the result, and the paths in conflict.

    A branch may have lost the commit that the work is based on (it was amended, or undone). By history, what that
    commit did would count as work and come back.
    """
    commit = partial(git.commit_tree, by=CAPSULE, date="@0 +0000")
    start = commit(git.tree_in(base), [], "base")
    return git.merge_trees(commit(git.tree_in(tip), [start], "tip"), commit(work, [start], "work"))


def with_files(git: Git, tree: str, files: Mapping[str, bytes]) -> str:
    """`tree`, with the content of these files; one that is there keeps its mode."""
    modes = modes_of(git, tree, files)
    return with_changes(git, tree, [changed_to(path, modes[path], git.write_blob(files[path])) for path in files])


def modes_of(git: Git, tree: str, paths: Iterable[str]) -> dict[str, str]:
    """What each of these files is in a tree; one that is no file there is to be a plain one."""
    found = {path: git.entry_at(tree, os.fsencode(path)) for path in paths}
    return {path: entry.mode if entry and entry.mode.startswith("100") else FILE for path, entry in found.items()}


def changed_to(path: str, mode: str, oid: str) -> Difference:
    return Difference(os.fsencode(path), "M", (ABSENT, ""), (mode, oid))


def with_changes(git: Git, tree: str, changes: Sequence[Difference]) -> str:
    """`tree`, with each of these changes made to it, and no other; GitFailed where a file would be a folder too."""
    if not changes:
        return tree
    return _changed(git, tree, [(change.path.split(b"/"), change.new) for change in changes]) or git.make_tree(())


def _changed(git: Git, tree: str, changes: list[tuple[list[bytes], tuple[str, str]]]) -> str:
    """An empty id stands for a folder that is not there. What goes makes room for what comes, in whatever order."""
    wanted = _folder(git, tree)
    here = {path[0]: side for path, side in changes if len(path) == 1}
    for name, (mode, _) in here.items():
        if mode == ABSENT and name in wanted and wanted[name].kind != "tree":
            del wanted[name]
    for name in {path[0]: None for path, _ in changes if len(path) > 1}:
        below = [(path[1:], side) for path, side in changes if path[0] == name and len(path) > 1]
        known = wanted.get(name)
        if known is not None and known.kind != "tree":
            if any(mode != ABSENT for _, (mode, _) in below):
                raise _collision(name)
            continue
        folder = _changed(git, known.oid if known else "", below)
        wanted.pop(name, None)
        if folder:
            wanted[name] = TreeEntry(_FOLDER, "tree", folder, name)
    for name, (mode, oid) in here.items():
        if mode != ABSENT:
            if name in wanted and wanted[name].kind == "tree":
                raise _collision(name)
            wanted[name] = TreeEntry(mode, "commit" if mode == GITLINK else "blob", oid, name)
    if wanted == _folder(git, tree) and tree:
        return git.tree_of(tree)
    return git.make_tree(wanted.values()) if wanted else ""


def _collision(name: bytes) -> GitFailed:
    return GitFailed(f"{shown(name)} would be a file and a folder", "Rename one of them, then run it again.")
