"""Undo the last verb on a backlog, in the tracker's own files only, or the merge of a mission, by reverting its commit.

The revert is merged with later commits, so those are kept; on a conflict nothing is changed.
"""

from __future__ import annotations

import os
import re
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
    commit_tracker,
    edited_tracker_files,
    find_item,
    lock_item,
    move,
    record,
    refuse_verb,
    store_of,
    why_not_committed,
)
from capsule.app.missions import mission_state
from capsule.app.planning import command_to_run
from capsule.core.assignment import Absent, Assign, Assignment, Exists
from capsule.core.errors import CapsuleError, Conflicts, Refused
from capsule.core.event import MovedByHand
from capsule.core.evidence import Checkpoint
from capsule.core.item import Item, Status, Value, status_and_phase
from capsule.core.ledger import guarded, tagged
from capsule.core.state import MissionState
from capsule.project import Project
from capsule.system.clock import SystemClock
from capsule.system.git_objects import Commit, shown
from capsule.workspaces.checkouts import under_way
from capsule.workspaces.repository import commit_command
from capsule.workspaces.state_store import commit_onto
from capsule.workspaces.trees import is_artefact

_VERBS = ("ADD", "IMPORT", "EDIT", "DEPEND", "HOLD", "UNBLOCK", "ADVANCE", "ARCHIVE", "REOPEN")
_SUBJECT = re.compile(r"\[(?P<item>[^\]\s]+)\]\[(?P<tag>[A-Z_-]+)\] (?P<words>.*)")
_MERGE = re.compile(r"Merge (?P<item>[^:\s]+): (?P<words>.*)")
_STEP = "Capsule-Step: "
_BY_HAND = re.compile(rf"(?m)^{_STEP}by-hand/(?P<verb>[0-9a-f]+)")
_UNDID = "Capsule-Undid: "
_REVERTS = re.compile(rf"(?m)^(?:{_UNDID}|This reverts commit )([0-9a-f]+)")
"""What `capsule undo` and `git revert` write."""
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


class UndoneMerge(NamedTuple):
    """The merge of a mission, and the commit that reverts it."""

    verb: UndoableCommit
    commit: str
    again: str
    """The command that runs the item again, by the same workflow."""


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
    head = project.tracker_git.resolve("HEAD")
    files = {**_with_item(project, verb, head), **_without_entries(project, verb, head)}
    title = _item_before(project, verb).title
    message = f"{tagged(item_id, 'REOPEN', title)}\n\n{_UNDID}{verb.commit}\n{_STEP}{by_hand()}"
    commit_tracker(project, head, files, message)
    return project.tracker.item(item_id)


def undo_merge(project: Project, mission: str) -> UndoneMerge:
    """Revert the merge of a mission on the branch that is checked out; an item of a backlog is ready again."""
    state, git, tracker = _merged_mission(project, mission), project.git, project.tracker
    ours = tracker.traits.authoritative  # the files of other trackers stay as they are
    if ours and project.state_branch:
        merged = state.facts["merged"]
        revert = f"git revert {'-m 1 ' if git.commit(merged).parents[1:] else ''}{merged[:12]}"
        hint = f"Propose the revert ({revert}) by a request of your own; once it is merged: capsule reopen {mission}"
        raise Refused(f"{state.into} takes requests only, so the merge of {mission} cannot be undone here.", hint)
    _refuse_what_prevents_a_commit(project)
    merged, head = state.facts["merged"], git.resolve("HEAD")
    commit = git.commit(merged)
    verb = UndoableCommit(merged, commit.parents[0], mission, "", commit.message.partition("\n")[0], "")
    message = f"{tagged(mission, 'UNDO', verb.subject)}\n\n{_UNDID}{merged}"
    there = tracker.traits.own_command("reopen", mission, f"reopen it in {tracker.name}", "")
    reopen = f"capsule reopen {mission}" if ours else there
    work = Checkpoint(commit="", head=merged, tree=git.tree_in(verb.before))
    journal = project.journal()
    try:
        with journal.claim(mission):
            files = _ready_again(project, verb, head) if ours else {}
            if ours:
                made = commit_tracker(project, head, files, message, work)
            else:
                made = commit_onto(git, (), head, files, message, work=work)
    except Conflicts as conflict:
        cause = f"What the merge of {mission} changed was changed since: {', '.join(conflict.paths)}"
        revert = f"git revert {'-m 1 ' if commit.parents[1:] else ''}{merged[:12]}"
        raise Refused(f"{cause}; nothing was undone.", f"Revert it by hand: {revert}; then: {reopen}") from None
    finally:
        journal.close()
    again = command_to_run(project, state.item, state.workflow.name)
    if not made:
        closed = not ours and find_item(tracker, mission).status is Status.DONE
        hint = f"Reopen it: {reopen}" if closed else f"Do it again: {again}"
        raise Refused(f"The merge {merged[:12]} of {mission} is undone already.", hint)
    return UndoneMerge(verb, made, again)


def _merged_mission(project: Project, mission: str) -> MissionState:
    """Return a mission whose merge is on the branch that is checked out; refuse any other."""
    state, git = mission_state(project, mission), project.git
    if not state.started:
        find_item(project.tracker, mission)
    merged = state.facts.get("merged", "")
    if state.started and state.workflow.publishes_steps:
        cause = f"{mission} was committed step by step, so there is no merge to undo."
        raise Refused(cause, f"Its commits: git log --grep='^Capsule-Step: {mission}/'")
    if not merged:
        ours = project.tracker.traits.authoritative
        plain = "`capsule undo` without an id undoes the last command that changed the backlog."
        raise Refused(
            f"Nothing of {mission} was merged.", plain if ours else "`capsule status` lists items and missions."
        )
    if state.under_way:
        raise Refused(f"{mission} is merged, and not at its end.", f"Let it end first: capsule run {mission}")
    if state.into != project.branch:
        on = f"{project.branch} is checked out" if project.branch else "HEAD is detached"
        raise Refused(f"{mission} was merged into {state.into}, and {on}.", f"Switch to it: git switch {state.into}")
    if not git.is_ancestor(merged, git.resolve("HEAD")):
        raise Refused(f"{state.into} no longer holds the merge of {mission}, {merged[:12]}.", f"git log {state.into}")
    return state


def make_ready(project: Project, item_id: str) -> Item:
    """Make an item ready again whose merge was reverted by hand."""
    with lock_item(project, item_id) as held:
        return move(held, "REOPEN", held.item.title, dict(_READY), no_commit=False).after


def _ready_again(project: Project, verb: UndoableCommit, head: str) -> Mapping[str, bytes]:
    """Return the backlog and its worklogs as they are without the merge, the item ready."""
    there = {item.id: item for item in project.tracker.everything()}
    if verb.item not in there:
        return {**_with_item(project, verb, head), **_without_entries(project, verb, head)}
    if there[verb.item].status is not Status.IN_PROGRESS:
        return {}
    return _rewritten(project, head, Assign(verb.item, {**_READY, "updated": SystemClock().now()}))


def _rewritten(project: Project, head: str, assignment: Assignment) -> Mapping[str, bytes]:
    """Return the tracker's files as a commit has them, with this change."""
    tracker, git = cast("CommittedTracker", project.tracker), project.tracker_git
    return tracker.rewrite(lambda path: git.read_file(git.tree_in(head), path), [assignment])[0]


def _with_item(project: Project, verb: UndoableCommit, head: str) -> Mapping[str, bytes]:
    """Return the backlog with an archived item, as it was before."""
    item = _item_before(project, verb)
    plain = ("title", "description", "origin", "unblock_context", "created")
    values: dict[str, Value] = {
        **{name: getattr(item, name) for name in plain},
        **guarded(item),
        "tags": [*item.tags],
        "dependencies": [*item.dependencies],
        "updated": SystemClock().now(),
    }
    if item.status in (Status.IN_PROGRESS, Status.DONE):  # else it would be archived again at once
        values |= _READY
    return _rewritten(project, head, Exists(f"reopen/{verb.commit}", values, id=item.id))


def _item_before(project: Project, verb: UndoableCommit) -> Item:
    """Return the item as the backlog held it before the commit."""
    tracker, git = cast("CommittedTracker", project.tracker), project.tracker_git
    then = tracker.parse_file(git.read_file(git.tree_in(verb.before), tracker.own_files()[0]) or b"")[0]
    if verb.item not in then:
        raise Refused(f"{verb.item} was not in the backlog before {verb.commit[:12]}.", f"git show {verb.commit[:12]}")
    return then[verb.item]


def _without_entries(project: Project, verb: UndoableCommit, head: str) -> dict[str, bytes]:
    """Return the worklogs without the entries of a commit."""
    git, found = project.tracker_git, {}
    own = project.tracker.own_files()
    for path in [os.fsdecode(each.path) for each in git.differences(verb.before, verb.commit)]:
        if path == own[0] or not is_artefact(os.fsencode(path), own):
            continue
        before, after, now = (git.read_file(git.tree_in(at), path) or b"" for at in (verb.before, verb.commit, head))
        for entry in _ENTRY.split(after)[1:]:
            if (text := entry.strip() + b"\n") not in before:
                now = now.replace(text + b"\n" if text + b"\n" in now else text, b"", 1)
        found[path] = now.rstrip() + b"\n"
    return found


_READY: Mapping[str, Value] = {"status": Status.READY.value, "phase": None}
_ENTRY = re.compile(rb"(?m)^(?=## )")
_ELSE = "`git log` lists all changes; `git revert COMMIT` undoes any of them."


def _refuse_what_stands_in_the_way(project: Project, verb: str) -> None:
    tracker = project.tracker
    if not tracker.traits.authoritative:
        there = tracker.traits.own_command("show", "ID", "", " ")
        refuse_verb(tracker, verb, f"Change it back with `capsule edit`, or in the tracker itself{there}.")
    _refuse_what_prevents_a_commit(project)


def _refuse_what_prevents_a_commit(project: Project) -> None:
    tracker = project.tracker
    if tracker.traits.authoritative:
        store_of(project).finish()  # what a kill left unsaved is no edit of the user's
        store_of(project).refresh()
    git, own = project.tracker_git, tracker.own_files()
    if obstacle := why_not_committed(git, own):
        going_on = under_way(git.git_dir, bisect=True)
        hint = f"Finish it first: {going_on[1]}" if going_on else "Choose a branch: git switch NAME"
        raise Refused(f"Nothing can be committed now: {obstacle}.", hint)
    if not tracker.traits.authoritative:
        return
    if edited := edited_tracker_files(project):
        have = "has" if len(edited) == 1 else "have"
        cause = f"{', '.join(edited)} {have} changes that are not committed, so nothing is undone."
        raise Refused(cause, f"Commit them: {commit_command(COMMIT_TRACKER, edited)}")


def _verbs(project: Project, wanted: Callable[[UndoableCommit], bool], most: int) -> Iterator[UndoableCommit]:
    """Walk back along the branch, skipping verbs that were undone before."""
    git, undone = project.tracker_git, set[str]()
    at = git.resolve("HEAD")
    for _ in range(most):
        commit: Commit = git.commit(at)
        if at not in undone:
            undone |= {*_REVERTS.findall(commit.message)}
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
    git = project.tracker_git

    def items_at(commit: str) -> dict[str, Item]:
        return dict(tracker.parse_file(git.read_file(git.tree_in(commit), tracker.own_files()[0]) or b"")[0])

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
    git, own = project.tracker_git, project.tracker.own_files()
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
    if not commit_tracker(project, head, kept, message):
        raise Refused(f"What “{verb.subject}” changed is as it was before; nothing was undone.", _ELSE)


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
