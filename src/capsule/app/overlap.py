"""Items that are likely to touch the same files as missions under way: read from journal and repository."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import closing
from functools import lru_cache
from typing import NamedTuple

from capsule.adapters import JournalReader
from capsule.core.documents import FOLDERS, LARGEST, PLANS, artefact_paths, own_documents
from capsule.core.event import Event
from capsule.core.globs import is_test
from capsule.core.item import Item, Status
from capsule.core.overlap import Footprint, PathIndex, changed_files, likely_overlaps, named_paths
from capsule.core.state import children_of, replay
from capsule.project import Project
from capsule.system.git import Git
from capsule.system.git_objects import shown
from capsule.workspaces.trees import all_artefacts, is_artefact


def overlaps(project: Project, items: Iterable[Item], under_way: Collection[str]) -> dict[str, str]:
    """Describe, for each item that is likely to conflict with a running mission, the shared files.

    `items` are those that may be taken next, and those under way that the tracker still lists.
    """
    if not under_way:
        return {}
    tracker, tip = project.tracker, project.git.resolve("HEAD")
    tracked = _tracked(project.git, tip, all_artefacts(tracker.own_files()), documented=tracker.traits.documents)
    known = {name: Item(id=name, title="") for name in under_way} | {item.id: item for item in items}
    with closing(project.journal(read_only=True)) as journal:
        footprints = {
            name: _footprint(project.git, tracked, item, journal)
            for name, item in known.items()
            if item.status is not Status.DONE
        }
    candidates = {name: mine for name, mine in footprints.items() if name not in under_way}
    return likely_overlaps(candidates, {name: theirs for name, theirs in footprints.items() if name in under_way})


class _Tracked(NamedTuple):
    """The files of a commit that missions change, and the documents of items, each with its blob."""

    paths: PathIndex
    documents: dict[str, str]


@lru_cache(maxsize=1)
def _tracked(git: Git, commit: str, artefacts: tuple[str, ...], *, documented: bool) -> _Tracked:
    """List tracked files, once for each commit."""
    entries = git.list_tree(commit, recursive=True) if commit else []
    files = {shown(entry.path): entry.oid for entry in entries if not is_artefact(entry.path, artefacts)}
    documents = {path: oid for path, oid in files.items() if documented and path.startswith(FOLDERS)}
    return _Tracked(PathIndex(files.keys() - documents.keys()), documents)


def _footprint(git: Git, tracked: _Tracked, item: Item, journal: JournalReader) -> Footprint:
    """Return what a mission has changed and, while that is only tests, what its item and plans name."""

    def events(mission: str) -> list[Event]:
        return [event for _, event in journal.events(mission)]

    state = replay(events(item.id))
    if not state.under_way:
        return Footprint(named=_named(git, tracked, item))
    if "merged" in state.facts:
        return Footprint()
    family = (state, *children_of(state, lambda name: replay(events(name))))
    changed = frozenset[str]().union(*(changed_files(events(each.mission)) for each in family))
    changed -= {*own_documents(item.id, changed)}
    if all(is_test(path, state.policy.test_globs) for path in changed):
        return Footprint(changed, _named(git, tracked, item if item.title else state.item))
    return Footprint(changed)


def _named(git: Git, tracked: _Tracked, item: Item) -> frozenset[str]:
    """Return the paths that an item and its committed plans name."""
    own = own_documents(item.id, tracked.documents)
    blobs = [tracked.documents[path] for kind in PLANS for path in artefact_paths(item.id, kind, own)]
    plans = [text.decode(errors="replace") for blob in blobs for text in git.read_blobs([blob], LARGEST) or ()]
    return named_paths("\n".join((item.title, item.description, item.acceptance, *plans)), tracked.paths)
