"""Undo the last verb on a backlog: revert its commit, in the tracker's own files only.

The revert is merged with later commits, so those are kept; on a conflict nothing is changed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from itertools import takewhile
from pathlib import PurePath
from typing import NamedTuple, cast

from msgspec.structs import replace

from capsule.adapters import CommittedTracker
from capsule.app.items import (
    COMMIT_TRACKER,
    ItemLock,
    by_hand,
    edited_tracker_files,
    lock_item,
    record,
    refuse_verb,
    why_not_committed,
)
from capsule.app.missions import mission_state
from capsule.core.assignment import Absent, Exists
from capsule.core.errors import CapsuleError, Refused
from capsule.core.event import MovedByHand
from capsule.core.item import Item, Status, Value, status_and_phase
from capsule.core.ledger import guarded, tagged
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.git_objects import Commit, shown
from capsule.workspaces.checkouts import under_way
from capsule.workspaces.state_store import commit_files
from capsule.workspaces.trees import is_artefact

_VERBS = ("ADD", "IMPORT", "EDIT", "DEPEND", "HOLD", "UNBLOCK", "ADVANCE", "ARCHIVE", "REOPEN")
_SUBJECT = re.compile(r"\[(?P<item>[^\]\s]+)\]\[(?P<tag>[A-Z_-]+)\] (?P<words>.*)")
_MERGE = re.compile(r"Merge (?P<item>[^:\s]+): (?P<words>.*)")
_STEP = "Capsule-Step: "
_BY_HAND = re.compile(rf"(?m)^{_STEP}by-hand/(?P<verb>[0-9a-f]+)")
_UNDID = "Capsule-Undid: "
_MOST = 1000
"""How many commits are looked at."""
_MOST_FOR_AN_ITEM = 20_000


class UndoableCommit(NamedTuple):
    """A commit that a verb made, or one that archived an item."""

    commit: str
    before: str
    item: str
    tag: str
    subject: str
    group: str
    """What it has in common with the commits that the same words made for other items."""


class Undone(NamedTuple):
    verb: UndoableCommit
    items: tuple[str, ...]
    """Items that are unchanged since."""


def last_verb(project: Project) -> list[UndoableCommit]:
    """Return the commits of the last verb that changed the backlog, the newest first."""
    _refuse_what_stands_in_the_way(project, "undo")
    by_hand = _verbs(project, lambda verb: verb.tag in _VERBS and bool(verb.group), _MOST)
    last = next(by_hand, None)
    if last is None:
        raise CapsuleError("There is nothing to undo: no verb has changed the backlog lately.", _ELSE, exit_code=1)
    return [last, *takewhile(lambda verb: verb.group == last.group, by_hand)]


def undo(project: Project, verb: UndoableCommit) -> Undone:
    """Undo one commit of a verb."""
    if verb.tag in ("ADD", "IMPORT"):
        return _remove_what_was_added(project, verb)
    return _revert(project, verb)


def reopen_archived(project: Project, item_id: str) -> Item:
    """Restore an item that was completed or closed: at its old status, or ready if its work had begun."""
    _refuse_what_stands_in_the_way(project, "undo")

    def archives(verb: UndoableCommit) -> bool:
        return verb.item == item_id and (not verb.tag or _words(verb).startswith(("Completed: ", "Closed: ")))

    verb = next(_verbs(project, archives, _MOST_FOR_AN_ITEM), None)
    if verb is None:
        raise Refused(f"No commit of this branch says how {item_id} left the backlog.", f"git log --grep={item_id}")
    files = {**_with_item(project, verb), **_without_entries(project, verb)}
    title = _item_before(project, verb).title
    message = f"{tagged(item_id, 'REOPEN', title)}\n\n{_UNDID}{verb.commit}\n{_STEP}{by_hand()}"
    commit_files(project.git, project.tracker.own_files(), files, message)
    return project.tracker.item(item_id)


def _with_item(project: Project, verb: UndoableCommit) -> Mapping[str, bytes]:
    """Return the backlog with an archived item, as it was before."""
    tracker, git, item = cast("CommittedTracker", project.tracker), project.git, _item_before(project, verb)
    plain = ("title", "description", "origin", "unblock_context", "created")
    values: dict[str, Value] = {
        **{name: getattr(item, name) for name in plain},
        **guarded(item),
        "tags": [*item.tags],
        "dependencies": [*item.dependencies],
        "updated": SystemClock().now(),
    }
    if item.status in (Status.IN_PROGRESS, Status.DONE):  # else it would be archived again at once
        values |= {"status": Status.READY.value, "phase": None}
    back = Exists(f"reopen/{verb.commit}", values, id=item.id)
    head = git.tree_in(git.resolve("HEAD"))
    return tracker.rewrite(lambda path: git.read_file(head, path), [back])[0]


def _item_before(project: Project, verb: UndoableCommit) -> Item:
    """Return the item as the backlog held it before the commit."""
    tracker, git = cast("CommittedTracker", project.tracker), project.git
    then = tracker.parse_file(git.read_file(git.tree_in(verb.before), tracker.own_files()[0]) or b"")[0]
    if verb.item not in then:
        raise Refused(f"{verb.item} was not in the backlog before {verb.commit[:12]}.", f"git show {verb.commit[:12]}")
    return then[verb.item]


def _without_entries(project: Project, verb: UndoableCommit) -> dict[str, bytes]:
    """Return the worklogs without the entries of a commit."""
    git, found = project.git, {}
    head, own = git.tree_in(git.resolve("HEAD")), project.tracker.own_files()
    for path in [os.fsdecode(each.path) for each in git.differences(verb.before, verb.commit)]:
        if path == own[0] or not is_artefact(os.fsencode(path), own):
            continue
        before, after, now = (git.read_file(tree, path) or b"" for tree in (verb.before, verb.commit, head))
        for entry in _ENTRY.split(after)[1:]:
            if entry.strip() not in before:
                now = now.replace(entry.strip() + b"\n", b"", 1)
        found[path] = now.rstrip() + b"\n"
    return found


_ENTRY = re.compile(rb"(?m)^(?=## )")
_ELSE = "`git log` lists all changes; `git revert COMMIT` undoes any of them."


def _refuse_what_stands_in_the_way(project: Project, verb: str) -> None:
    tracker = project.tracker
    if not tracker.traits.authoritative:
        there = tracker.traits.own_command("show", "ID", "", " ")
        refuse_verb(tracker, verb, f"Change it back with `capsule edit`, or in the tracker itself{there}.")
    _refuse_what_prevents_a_commit(project)


def _refuse_what_prevents_a_commit(project: Project) -> None:
    git, own = project.git, project.tracker.own_files()
    if obstacle := why_not_committed(git, own):
        going_on = under_way(git.git_dir, bisect=True)
        hint = f"Finish it first: {going_on[1]}" if going_on else "Choose a branch: git switch NAME"
        raise Refused(f"Nothing can be committed now: {obstacle}.", hint)
    if left := edited_tracker_files(project):
        have = "has" if len(left) == 1 else "have"
        cause = f"{', '.join(left)} {have} changes that are not committed, so the last verb is not the last change."
        files = shlex.join(left)
        commit = f'git add {files} && git commit -m "{COMMIT_TRACKER}" {files}'
        raise Refused(cause, f"Commit them: {commit}; or put them away: git stash push -u {files}")


def _verbs(project: Project, wanted: Callable[[UndoableCommit], bool], most: int) -> Iterator[UndoableCommit]:
    """Walk back along the branch, skipping verbs that were undone before."""
    at, undone = project.git.resolve("HEAD"), set[str]()
    for _ in range(most):
        commit: Commit = project.git.commit(at)
        if at not in undone:
            undone |= {line.removeprefix(_UNDID) for line in commit.message.splitlines() if line.startswith(_UNDID)}
        before = commit.parents[0] if commit.parents else ""
        subject = commit.message.partition("\n")[0]
        found = _SUBJECT.match(subject) or _MERGE.match(subject)
        if not before:
            return
        if found and at not in undone:
            key = _BY_HAND.search(commit.message)
            group = key["verb"] if key else ""
            verb = UndoableCommit(at, before, found["item"], found.groupdict().get("tag", ""), subject, group)
            if wanted(verb):
                yield verb
        at = before


def _words(verb: UndoableCommit) -> str:
    found = _SUBJECT.match(verb.subject)
    return found["words"] if found else ""


def _remove_what_was_added(project: Project, verb: UndoableCommit) -> Undone:
    """Remove new items from the backlog; their ids are not used again."""
    tracker = cast("CommittedTracker", project.tracker)
    read = project.git.read_file

    def items_at(commit: str) -> dict[str, Item]:
        return dict(tracker.parse_file(read(project.git.tree_in(commit), tracker.own_files()[0]) or b"")[0])

    then, now = items_at(verb.commit), {item.id: item for item in tracker.everything()}
    added = [name for name in then if name not in items_at(verb.before)]
    for name in added:
        if name not in now or replace(now[name], holds=()) != replace(then[name], holds=()):
            hint = f"If it is not wanted: capsule close {name} --reason ..."
            raise Refused(f"{name} was changed since it was added; nothing was undone.", hint)
        if mission_state(project, name).started:
            raise Refused(f"{name} was worked on since it was added; nothing was undone.", f"capsule show {name}")
    message = f"{tagged(verb.item, 'UNDO', verb.subject)}\n\n{_UNDID}{verb.commit}"
    record(project, message, [Absent(name) for name in added], no_commit=False)
    return Undone(verb, tuple(added))


def _revert(project: Project, verb: UndoableCommit) -> Undone:
    item = verb.item
    if project.tracker.knows(item) and any(item == each.id for each in project.tracker.items()):
        with lock_item(project, item) as held:
            _commit_revert(project, verb)
            _tell_its_mission(held)
    else:
        _commit_revert(project, verb)
    return Undone(verb, (item,))


def _commit_revert(project: Project, verb: UndoableCommit) -> None:
    """Build the revert on the verb's own commit, merge it with the branch, and commit the tracker's files."""
    git, own = project.git, project.tracker.own_files()
    head = git.resolve("HEAD")
    date = git.commit(verb.commit).committer_date
    back = git.commit_tree(git.tree_in(verb.before), [verb.commit], "revert", by=git.identity, date=date)
    merged, conflicts = git.merge_trees(head, back)
    paths = [each.path for each in git.differences(verb.before, verb.commit) if is_artefact(each.path, own)]
    ours = [shown(path) for path in paths]
    if any(path in conflicts for path in ours):
        hint = f"Change it by hand, or with `capsule edit`; what it did: git show {verb.commit[:12]}"
        raise Refused(f"What “{verb.subject}” changed was changed again since; nothing was undone.", hint)
    files = {path: git.read_file(merged, path) for path in map(os.fsdecode, paths)}
    kept = {path: _empty(path) if content is None else content for path, content in files.items()}
    message = f"{tagged(verb.item, 'UNDO', verb.subject)}\n\n{_UNDID}{verb.commit}"
    commit_files(git, own, kept, message)


def _empty(path: str) -> bytes:
    """Return the head of a worklog, before its first entry."""
    return f"# Worklog {PurePath(path).stem}\n".encode()


def _tell_its_mission(held: ItemLock) -> None:
    """Tell a mission under way that a person moved its item."""
    if held.mission.under_way:
        after = held.project.tracker.item(held.item.id)
        found = status_and_phase(after)
        event = MovedByHand(
            at=SystemClock().now(), what="item", expected=status_and_phase(held.item), found=found, item=after
        )
        held.journal.note(held.item.id, event)
