"""A tracker's state, committed to a branch at a remote: **push first**, then move the branch here, then save.

The commit is built as for a branch of this repository, once that has followed the fetched tip, and pushed from exactly
that tip. A lost race builds it again. A run that was killed after its push finds the commit at the remote, by the note
that it left, and goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from capsule.adapters import StateCommit, StateWritten
from capsule.core.assignment import Assign, Assignment
from capsule.core.documents import own_documents
from capsule.core.errors import Refused, RemoteFault
from capsule.core.item import Status, Value
from capsule.core.remote import Kind, Trouble
from capsule.system.clock import SystemClock
from capsule.system.files import read_regular
from capsule.system.git import Git
from capsule.system.git_objects import ABSENT, FILE, Difference, TreeEntry
from capsule.workspaces.checkouts import locked, move_branch, refuse_to_move
from capsule.workspaces.following import Follower
from capsule.workspaces.remote import TRANSFER_SECONDS, Remote
from capsule.workspaces.state_branch import StateBranch
from capsule.workspaces.state_store import LARGEST, GitStateStore, LocalBranch, Pending
from capsule.workspaces.step_commits import find_step, last_step_of
from capsule.workspaces.trees import is_artefact, with_changes


class Upstream(NamedTuple):
    """A branch at a remote."""

    remote: Remote
    branch: str

    @property
    def label(self) -> str:
        return f"{self.remote.name}/{self.branch}"


_LONGEST_PAUSE = 2.0
"""Seconds between two tries to commit to a branch at a remote."""


class RemoteStateStore(GitStateStore):
    """Keeps the state of a tracker at a remote, and in the checkout that follows it."""

    rounds = 30

    def __init__(self, *args: Any, upstream: Callable[[str], Upstream | None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._upstream = upstream
        self._looked = False

    _longer = TRANSFER_SECONDS
    """A push has to be waited for under the lock; a remote that does not answer is found out before."""

    def _look(self, wanted: str) -> None:
        name = wanted or self._git.checked_out()
        upstream = self._upstream(name) if self._git.ref(f"refs/heads/{name}") else None
        if upstream:
            self._fetched(upstream)
            self._looked = True

    def refresh(self) -> str:
        self._look("")
        with self._open():
            found = self._branch("")
        upstream = self._upstream(found.name)
        return f"{upstream.label} at {found.tip[:12]}" if upstream else ""

    def _branch(self, wanted: str) -> LocalBranch:
        """Bring the branch to the fetched tip first; refuse if it cannot follow."""
        found = super()._branch(wanted)
        upstream = self._upstream(found.name)
        if upstream is None or not found.tip:
            return found
        looked, self._looked = self._looked, False
        tip = upstream.remote.tip(upstream.branch) if looked else ""
        if not (tip and self._git.is_ancestor(found.tip, tip)):  # it was looked at before another run moved it
            tip = self._fetched(upstream)
        if tip == found.tip:
            return found
        if self._git.is_ancestor(found.tip, tip):
            self._refuse_edits_of(found, tip, upstream)
        _, why = self._follower(found.name, upstream).follow(tip)
        if why:
            raise Refused(f"Your branch {found.name} cannot follow {upstream.label}: {why}.", "Then run it again.")
        return super()._branch(wanted)

    def _refuse_edits_of(self, found: LocalBranch, tip: str, upstream: Upstream) -> None:
        """Refuse to follow where files of the tracker were changed at the remote, and are edited here."""
        ours = [
            change
            for change in self._git.differences(found.tip, tip)
            if is_artefact(change.path, self._own) and change.old[0] != ABSENT
        ]
        for path in [os.fsdecode(change.path) for change in ours] if found.here else ():
            if self._on_disk(path) not in (self._git.read_file(found.tip, path), self._git.read_file(tip, path)):
                hint = "Save a copy of your file, take your edit out, run it again, and make the edit on what came."
                raise Refused(f"{path} is edited here, and {upstream.label} has changed it.", hint)

    def _swap(self, branch: LocalBranch, commit: str) -> bool:
        upstream = self._upstream(branch.name)
        if upstream is None or not branch.tip:
            return super()._swap(branch, commit)
        # What would keep the branch here from moving is found out before anything is pushed.
        refuse_to_move(self._git, branch.name, branch.tip, commit, apart=self._own)
        trouble = upstream.remote.push(commit, f"refs/heads/{upstream.branch}", branch.tip)
        if trouble and trouble.kind is Kind.LOST:
            return False
        if trouble:
            raise _fault(upstream, trouble)
        upstream.remote.note_pushed(upstream.branch, commit, branch.tip)
        return super()._swap(branch, commit)

    def _make_way(self, number: int) -> None:
        """Wait for a while by chance, so that clones which commit at the same time do not go on to meet."""
        clock = SystemClock()
        clock.wait(clock.chance() * min(_LONGEST_PAUSE, 0.05 * 2**number))

    def _finish(self) -> None:
        """Move the branch here to a commit that was pushed before a run was killed, and save what it notes."""
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            pending = msgspec.json.decode(read_regular(self._note, LARGEST), type=Pending)
            upstream, commit = self._upstream(pending.branch), self._git.resolve(pending.commit)
            here = self._git.ref(f"refs/heads/{pending.branch}")
            if upstream and commit and here == pending.onto and self._git.is_ancestor(commit, self._fetched(upstream)):
                with locked(self._git, "main"):
                    move_branch(self._git, pending.branch, here, commit, apart=self._own, why="capsule: a step")
        super()._finish()

    def _fetched(self, upstream: Upstream) -> str:
        found = upstream.remote.fetch(upstream.branch)
        if isinstance(found, Trouble):
            raise _fault(upstream, found)
        return found

    def _follower(self, branch: str, upstream: Upstream) -> Follower:
        return Follower(self._git, branch, upstream.label, self._artefacts, note=f"following-{self._note.name}")


_MOST_LOOKED_AT = 1000
"""How far back a step is looked for on a branch that has no commit of its mission's base."""


class StateBranchStore(RemoteStateStore):
    """Keeps the state of a backlog on a branch of its own, while its code is merged by requests."""

    def __init__(self, git: Git, *args: Any, apart: StateBranch, remote: Remote, **options: Any) -> None:
        options["home"] = apart.branch
        super().__init__(git, *args, upstream=lambda _: Upstream(remote, apart.branch), **options)
        self._apart = apart
        self._remote = remote
        self._note = git.capsule_dir / "state.json"

    def _look(self, wanted: str) -> None:  # noqa: ARG002 - there is one
        self._git = self._apart.require(self._remote, self._own)
        super()._look(self._apart.branch)

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        self._git = self._apart.require(self._remote, self._own)
        with super()._open():
            yield

    def write(self, entry: StateCommit, *, commit: bool = True) -> StateWritten:
        return super().write(replace(entry, branch=""), commit=commit)

    def release(self, item_id: str) -> None:
        """Make an item ready again whose request was closed, or whose mission was given up."""
        item = self._item(item_id) if self._item else None
        if item and item.status is Status.IN_PROGRESS:
            values: dict[str, Value] = {"status": Status.READY.value, "phase": None, "updated": self._now()}
            key = f"release/{item_id}/{os.urandom(8).hex()}"
            self.write(StateCommit(key, f"[{item_id}][RELEASE] {item.title}", (Assign(item_id, values),)))

    def draft(self, assignments: Sequence[Assignment]) -> None:
        """Change nothing of main's: the item is archived once its request is merged."""

    def _found(self, entry: StateCommit, tip: str) -> tuple[str, tuple[str, ...]] | None:
        return find_step(self._git, entry.key, tip, most=_MOST_LOOKED_AT)

    def _with_documents(self, tree: str, branch: LocalBranch, entry: StateCommit) -> str:
        """Add the item's documents that its mission has changed since it last committed here.

        What a person changed here meanwhile stays, unless the mission has changed it, too.
        """
        mission = entry.key.partition("/")[0]
        found = self._documents_of(mission, entry.documents)
        before = self._documents_of(mission, last_step_of(self._git, mission, branch.tip)) if found else {}
        new = [row for path, row in found.items() if before.get(path) != row]
        changes = [Difference(row.path, "M", (ABSENT, ""), (row.mode, row.oid)) for row in new]
        return with_changes(self._git, tree, changes)

    def _documents_of(self, item: str, commit: str) -> dict[str, TreeEntry]:
        rows = self._git.list_tree(commit, recursive=True) if commit else []
        files = {os.fsdecode(row.path): row for row in rows if row.mode == FILE}
        return {path: files[path] for path in own_documents(item, files)}

    def _branch(self, wanted: str) -> LocalBranch:  # noqa: ARG002 - there is one
        apart = self._apart
        if self._git.checked_out() != apart.branch:
            way = f"git -C {shlex.quote(str(apart.folder))} switch {apart.branch}"
            raise Refused(f"{apart.folder} is on another branch than {apart.branch}.", f"Switch it back: {way}")
        return super()._branch(apart.branch)

    def _fetched(self, upstream: Upstream) -> str:
        found = upstream.remote.fetch(upstream.branch)
        if isinstance(found, Trouble) and found.kind is Kind.ABSENT:
            raise RemoteFault(
                upstream.label,
                replace(found, way=""),  # which is for main
                f"If it was deleted, put it back: git push {upstream.remote.name} {upstream.branch}",
            )
        if isinstance(found, Trouble):
            raise _fault(upstream, found)
        return found


def _fault(upstream: Upstream, trouble: Trouble) -> RemoteFault:
    hint = f"Nothing was changed. Try it by hand (git fetch {upstream.remote.name}); then run the same command again."
    if trouble.kind is Kind.ABSENT:
        new = f"if it is new, push it: git push {upstream.remote.name} {upstream.branch}"
        hint = f"Nothing was changed. If it was renamed there, say so by `merge.branch`; {new}"
    return RemoteFault(upstream.label, replace(trouble, way=""), hint)
