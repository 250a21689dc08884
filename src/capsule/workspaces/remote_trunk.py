"""A branch at a remote that work is merged into.

Candidates are built on the tip that was fetched last. One is published by a push from exactly that tip, alone; the work
of its missions is pushed before it, each ref on its own. *Merged* means that a commit is in the history of the fetched
tip: a push whose answer was lost is found out by looking again.

The user's own branch follows by fast-forward, with its checkouts, where that loses nothing. Else it stays where it is,
and that is said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from capsule.adapters import Candidate, Draft, Published
from capsule.core.errors import CapsuleError, Overlap, Refused, RemoteFault
from capsule.core.remote import Kind, Trouble
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git, GitFailed
from capsule.workspaces.checkouts import bring_along, locked, move_branch
from capsule.workspaces.remote import Remote
from capsule.workspaces.trunk import GitTrunk

_LARGEST_NOTE = 1 << 16


class _Following(msgspec.Struct, frozen=True):
    """Where the user's branch was before it moved, noted until its checkouts have followed."""

    branch: str
    old: str


class RemoteTrunk(GitTrunk):
    """The Trunk adapter on a branch of a remote."""

    def __init__(
        self, git: Git, local: str, remote: Remote, theirs: str, refs: str, *, artefacts: Sequence[str] = ()
    ) -> None:
        """`local` is the user's branch that follows, `theirs` the branch at the remote, `refs` where works are put."""
        super().__init__(git, f"{remote.name}/{theirs}", artefacts=artefacts)
        self.at_remote = remote.name
        self._local = local
        self._remote = remote
        self._theirs = theirs
        self._refs = refs
        self._note = git.capsule_dir / "following.json"

    def refresh(self) -> None:
        self._require(self._remote.fetch(self._theirs))

    def tip(self) -> str:
        if not self._remote.tip(self._theirs):
            self.refresh()
        return self._remote.tip(self._theirs)

    def propose(
        self, tip: str, base: str, message: str, draft: Draft | None = None, subject: str = "", *, onto: str = ""
    ) -> Candidate:
        onto = onto or self.tip()
        if (self._git.common_dir / "shallow").exists():
            self._require(self._remote.deepen(self._theirs, lambda: self._is_older(base, onto)))
        return super().propose(tip, base, message, draft, subject, onto=onto)

    def _is_older(self, base: str, onto: str) -> bool:
        return bool(self._git.resolve(base)) and self._git.is_ancestor(base, onto)

    def publish(self, candidate: Candidate, works: Mapping[str, str] | None = None) -> Published:
        if candidate.conflicts:
            raise Refused(f"The merge into {self.branch} has conflicts.", "Rebuild the work on it: run with --rebase")
        if not self.holds(candidate.commit):
            if self.tip() != candidate.onto:
                return Published(moved=False)
            for mission, commit in (works or {}).items():
                self._put_work(mission, commit)
            trouble = self._remote.push(candidate.commit, f"refs/heads/{self._theirs}", candidate.onto)
            if trouble and trouble.kind is Kind.LOST:
                return Published(moved=False)
            self._require(trouble)
            self._remote.note_pushed(self._theirs, candidate.commit, candidate.onto)
        left, remarks = self.follow()
        return Published(moved=True, left_alone=tuple(left), remarks=tuple(remarks))

    def _put_work(self, mission: str, merge: str) -> None:
        """Put the work that a merge brings where others find it, even if the branch then refuses it."""
        ref, work = f"{self._refs}{mission}", self._git.commit(merge).parents[1]
        there = self._remote.refs(ref)
        self._require(there)
        old = there.get(ref, "") if not isinstance(there, Trouble) else ""
        trouble = None if old == work else self._remote.replace(work, ref, old)
        if trouble and trouble.kind is Kind.REFUSED:
            hint = f"`merge.refs` says where the work of missions is put; it is {self._refs} now"
            other = "" if self._refs.startswith("refs/heads/") else ": a server may accept only `refs/heads/capsule/`"
            raise RemoteFault(f"{self._remote.name} ({ref})", trouble, f"{hint}{other}.")
        if trouble and trouble.kind is not Kind.LOST:  # another process of ours has put it there
            self._require(trouble)

    def _require(self, answer: object) -> None:
        if isinstance(answer, Trouble):
            raise RemoteFault(self._remote.name, answer)

    # The user's own branch

    def follow(self) -> tuple[list[str], list[str]]:
        """Bring the user's branch to the fetched tip; return files that kept the user's edits, and remarks."""
        git, ref, tip = self._git, f"refs/heads/{self._local}", self.tip()
        with locked(git, "main"):
            left = self._finish_following()
            old = git.ref(ref)
            if old in ("", tip):
                return left, []
            if why := self._why_it_stays(old, tip):
                return left, [f"your branch {self._local} stays where it is: {why}"]
            return sorted({*left, *self._finish_following()}), []

    def _why_it_stays(self, old: str, tip: str) -> str:
        """Move the user's branch, and note that its checkouts have to follow; or say why it cannot move."""
        if not self._git.is_ancestor(old, tip):
            return f"it has commits that {self.branch} lacks (`git pull --rebase` puts them on top)"
        write_atomically(self._note, msgspec.json.encode(_Following(self._local, old)))
        why = f"as {self.branch}"
        try:
            if move_branch(self._git, self._local, old, tip, apart=self._artefacts, why=f"capsule: {why}"):
                return ""
            why = "another git moved it meanwhile"
        except Overlap as edited:
            why = f"your checkout has an uncommitted edit of {edited.named} (`git pull` once it is committed)"
        except (Refused, GitFailed) as fault:
            why = _in_a_clause(fault)
        self._note.unlink()
        return why

    def _finish_following(self) -> list[str]:
        """Bring checkouts along with a branch that has moved, also before a run was killed."""
        left: list[str] = []
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            noted = msgspec.json.decode(read_regular(self._note, _LARGEST_NOTE), type=_Following)
            now = self._git.ref(f"refs/heads/{noted.branch}")
            if now and self._git.resolve(noted.old):
                left = bring_along(self._git, noted.branch, noted.old, now)
        self._note.unlink(missing_ok=True)
        return left


def _in_a_clause(fault: CapsuleError) -> str:
    text = fault.message.rstrip(".")
    return f"{text[:1].lower()}{text[1:]}" + (f" ({fault.hint.rstrip('.')})" if fault.hint else "")
