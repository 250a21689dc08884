"""A tracker's state, committed to a branch at a remote: **push first**, then move the branch here, then save.

The commit is built as for a branch of this repository, once that has followed the fetched tip, and pushed from exactly
that tip. A lost race builds it again. A run that was killed after its push finds the commit at the remote, by the note
that it left, and goes on from there.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from capsule.core.errors import Refused, RemoteFault
from capsule.core.remote import Kind, Trouble
from capsule.system.files import read_regular
from capsule.system.git_objects import ABSENT
from capsule.workspaces.checkouts import locked, move_branch, refuse_to_move
from capsule.workspaces.following import Follower
from capsule.workspaces.remote import Remote
from capsule.workspaces.state_store import LARGEST, GitStateStore, LocalBranch, Pending
from capsule.workspaces.trees import is_artefact


class Upstream(NamedTuple):
    """A branch at a remote."""

    remote: Remote
    branch: str

    @property
    def label(self) -> str:
        return f"{self.remote.name}/{self.branch}"


class RemoteStateStore(GitStateStore):
    """Keeps the state of a tracker at a remote, and in the checkout that follows it."""

    def __init__(self, *args: Any, upstream: Callable[[str], Upstream | None], **options: Any) -> None:
        super().__init__(*args, **options)
        self._upstream = upstream

    def refresh(self) -> str:
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
        return Follower(self._git, branch, upstream.label, self._artefacts)


def _fault(upstream: Upstream, trouble: Trouble) -> RemoteFault:
    hint = f"Nothing was changed. Try it by hand (git fetch {upstream.remote.name}); then run the same command again."
    return RemoteFault(upstream.label, trouble, hint)
