"""A branch at a remote that work is merged into.

Candidates are built on the tip that was fetched last. One is published by a push from exactly that tip, alone; the work
of its missions is pushed before it, each ref on its own. *Merged* means that a commit is in the history of the fetched
tip: a push whose answer was lost is found out by looking again.

The user's own branch follows by fast-forward, with its checkouts, where that loses nothing. Else it stays where it is,
and that is said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from capsule.adapters import Candidate, Claims, Draft, Published
from capsule.core.errors import Refused, RemoteFault
from capsule.core.remote import Kind, Trouble
from capsule.system.git import Git
from capsule.workspaces.following import Follower
from capsule.workspaces.remote import Remote
from capsule.workspaces.trunk import GitTrunk


class RemoteTrunk(GitTrunk):
    """The Trunk adapter on a branch of a remote."""

    def __init__(
        self,
        git: Git,
        local: str,
        remote: Remote,
        theirs: str,
        refs: str,
        *,
        artefacts: Sequence[str] = (),
        left_out: Callable[[str], bool] = lambda _path: False,
        claims: Claims | None = None,
    ) -> None:
        """`local` is the user's branch that follows, `theirs` the branch at the remote, `refs` where works are put."""
        super().__init__(git, f"{remote.name}/{theirs}", artefacts=artefacts, left_out=left_out)
        self.at_remote = remote.name
        self._local = local
        self._remote = remote
        self._theirs = theirs
        self._refs = refs
        self._claims = claims or Claims()
        self._follower = Follower(git, local, self.branch, self._artefacts)

    def refresh(self) -> None:
        self._require(self._remote.fetch(self._theirs))

    def tip(self) -> str:
        if not self._remote.tip(self._theirs):
            self.refresh()
        return self._remote.tip(self._theirs)

    def bring_along(self) -> str:
        """Bring the user's branch to the remote's tip; return why it stays, if it does."""
        self.refresh()
        return self._follower.follow(self.tip())[1]

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
            self._claims.about_to_publish(works or (), candidate.commit, candidate.onto)
            for mission, commit in (works or {}).items():
                self._put_work(mission, commit)
            trouble = self._remote.push(candidate.commit, f"refs/heads/{self._theirs}", candidate.onto)
            if trouble and trouble.kind is Kind.LOST:
                return Published(moved=False)
            if trouble and trouble.kind is Kind.REFUSED:
                hint = f"If {self._theirs} takes requests only, `merge.to: request` opens one."
                raise RemoteFault(self._remote.name, trouble, hint)
            self._require(trouble)
            self._remote.note_pushed(self._theirs, candidate.commit, candidate.onto)
        left, why = self._follower.follow(self.tip())
        remarks = (f"your branch {self._local} stays where it is: {why}",) if why else ()
        return Published(moved=True, left_alone=tuple(left), remarks=remarks)

    def _put_work(self, mission: str, merge: str) -> None:
        """Put the work that a merge brings where others find it, even if the branch then refuses it."""
        ref, work = f"{self._refs}{mission}", self._git.commit(merge).parents[1]
        there = self._remote.refs(ref)
        self._require(there)
        old = there.get(ref, "") if not isinstance(there, Trouble) else ""
        if old and not self._git.resolve(old):
            unknown = Trouble(Kind.REFUSED, f"{old[:12]} is there, the work of another clone")
            look = f"`git fetch {self._remote.name} {ref}`, then `git log -1 FETCH_HEAD`"
            way = f"Ask its author what is to become of it: {look} names them."
            raise RemoteFault(f"{self._remote.name} ({ref})", unknown, way)
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
