"""Read the changes of any number of missions from git with two or three processes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from capsule.core.history import Diff, FileChange, MissionSummary
from capsule.project import Project, tracker_if_there
from capsule.system.git import Git
from capsule.system.git_objects import shown
from capsule.workspaces.trees import all_artefacts, is_artefact

Pairs = tuple[tuple[str, str], ...]
Counted = Mapping[tuple[str, str], list[FileChange]]

MOST_LINES = 5000
"""A larger diff is counted but not shown."""
_LARGEST_FILE = "1m"
_PAIR = re.compile(rb"[0-9a-f]{40,64} [0-9a-f]{40,64}\n")
_FILE = re.compile(rb"^(?=diff --git )", re.MULTILINE)
_NAMED = re.compile(rb'diff --git "?a/(?P<path>.*?)"? "?b/(?P=path)"?\n')
_BETWEEN = ("diff-tree", "--stdin", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")


def with_diffs(project: Project, summaries: Sequence[MissionSummary]) -> list[MissionSummary]:
    """Count what each mission changed, without Capsule's own files."""
    git, bookkeeping = project.git, _bookkeeping(project)
    asked = [summary.to_compare() for summary in summaries]
    trees = _known(git, [pair for compared, _ in asked for pair in compared])
    known = {(trees[old], trees[new]) for compared, _ in asked for old, new in compared if {old, new} <= trees.keys()}
    counted = _numstat(git, [(old, new) for old, new in known if old != new], bookkeeping)
    return [
        replace(each, diff=_diff(*question, trees, counted)) for each, question in zip(summaries, asked, strict=True)
    ]


def diff_text(project: Project, summary: MissionSummary) -> str:
    """Return a mission's changes as a git diff; '' if it is too large, or gone."""
    diff, (compared, _) = summary.diff, summary.to_compare()
    if not diff.files or diff.added + diff.removed > MOST_LINES:
        return ""
    bookkeeping, trees = _bookkeeping(project), _known(project.git, compared)
    asked = "".join(f"{trees[old]} {trees[new]}\n" for old, new in compared if trees[old] != trees[new]).encode()
    limit = ("-c", f"core.bigFileThreshold={_LARGEST_FILE}")
    parts = _FILE.split(project.git.content(*limit, *_BETWEEN, "-p", "--no-commit-id", input=asked).out)
    kept = []
    for part in parts:
        named = _NAMED.match(part)
        if named and not is_artefact(named["path"], bookkeeping):
            kept.append(_PAIR.sub(b"", part))
    return shown(b"".join(kept))


class Compared(NamedTuple):
    """Two trees, and the files by which they differ."""

    old: str
    new: str
    paths: tuple[bytes, ...]


def compared(project: Project, summary: MissionSummary) -> list[Compared]:
    """Return the trees that show what a mission changed, without Capsule's own files.

    Steps become one change where nobody else touched their files in between.
    """
    git, bookkeeping = project.git, _bookkeeping(project)

    @cache
    def touched(old: str, new: str) -> frozenset[bytes]:
        found = git.differences(old, new) if old != new else ()
        return frozenset(each.path for each in found if not is_artefact(each.path, bookkeeping))

    pairs, _ = summary.to_compare()
    trees = _known(git, pairs)
    steps = [(trees[old], trees[new]) for old, new in pairs if {old, new} <= trees.keys()]
    gaps = any(last != first for (_, last), (first, _) in pairwise(steps))
    ours = frozenset[bytes]().union(*(touched(*step) for step in steps)) if gaps else None
    joined: list[tuple[str, str]] = []
    for old, new in steps:
        if joined and not (ours or frozenset()) & touched(joined[-1][1], old):
            joined[-1] = joined[-1][0], new
        else:
            joined.append((old, new))
    changed = [(*pair, touched(*pair) if ours is None else touched(*pair) & ours) for pair in joined]
    return [Compared(old, new, tuple(sorted(paths))) for old, new, paths in changed if paths]


def _bookkeeping(project: Project) -> tuple[str, ...]:
    return all_artefacts(tracker_if_there(project).own_files())


def _known(git: Git, pairs: Collection[tuple[str, str]]) -> dict[str, str]:
    """Return the trees of the revisions that exist; the parent of a first commit counts as empty."""
    trees = _trees(git, {name for pair in pairs for name in pair})
    if any(old.endswith("^") and old not in trees for old, _ in pairs):
        nothing = git.content("hash-object", "-t", "tree", "--stdin", input=b"").out.decode().strip()
        trees |= {old: nothing for old, _ in pairs if old not in trees and old.removesuffix("^") in trees}
    return trees


def _diff(pairs: Pairs, note: str, trees: Mapping[str, str], counted: Counted) -> Diff:
    found: dict[str, FileChange] = {}
    for old, new in pairs:
        if old not in trees or new not in trees:
            return Diff(note="its commits are no longer in the repository, so its changes are unknown")
        for file in counted.get((trees[old], trees[new]), ()):
            one = found.get(file.path)
            if one and (one.added is None or file.added is None):
                found[file.path] = FileChange(file.path, None, None)
            elif one:
                added, removed = (one.added or 0) + (file.added or 0), (one.removed or 0) + (file.removed or 0)
                found[file.path] = FileChange(file.path, added, removed)
            else:
                found[file.path] = file
    files = sorted(found.values(), key=lambda file: (-(file.added or 0) - (file.removed or 0), file.path))
    return Diff(files=tuple(files), note=note)


def _trees(git: Git, names: Collection[str]) -> dict[str, str]:
    """Return the tree of each revision that exists."""
    asked = sorted(names)
    if not asked:
        return {}
    lines = "".join(f"{name}^{{tree}}\n" for name in asked).encode()
    rows = git.content("cat-file", "--batch-check=%(objectname) %(objecttype)", input=lines).out.decode().splitlines()
    answers = zip(asked, (row.rsplit(" ", 1) for row in rows), strict=True)
    return {name: oid for name, (oid, kind) in answers if kind == "tree"}


def _numstat(git: Git, pairs: Sequence[tuple[str, str]], bookkeeping: Sequence[str]) -> Counted:
    if not pairs:
        return {}
    asked = "".join(f"{old} {new}\n" for old, new in pairs).encode()
    found: dict[tuple[str, str], list[FileChange]] = {}
    files: list[FileChange] = []
    for record in git.content(*_BETWEEN, "-z", "--numstat", input=asked).out.split(b"\0"):
        row = record
        while head := _PAIR.match(row):
            old, new = head[0].decode().split()
            files, row = found.setdefault((old, new), []), row[head.end() :]
        if row:
            added, removed, path = row.split(b"\t", 2)
            binary = added == b"-"
            if not is_artefact(path, bookkeeping):
                files.append(FileChange(shown(path), None if binary else int(added), None if binary else int(removed)))
    return found
