"""The branch of a mission's request at a remote: it is pushed by exact lease, and never over somebody else's commit.

What comes back from a review is put on top of the branch, so that reviewers see what has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from capsule.core.errors import RemoteFault
from capsule.core.remote import BRANCHES, Kind, Trouble, request_namespace
from capsule.core.text import one_line, shortened
from capsule.system.git import Git, GitFailed
from capsule.workspaces.remote import Remote

_LONGEST = 80


class GitRequestBranch:
    """The RequestBranch adapter on a remote."""

    def __init__(self, git: Git, remote: Remote, refs: str, base: Callable[[str], str]) -> None:
        """`base` maps a branch here to its name at the remote."""
        self._git = git
        self._remote = remote
        self._refs = request_namespace(refs)
        self.base = base

    def name(self, mission: str) -> str:
        return f"{self._refs.removeprefix(BRANCHES)}{mission}"

    def head(self, mission: str) -> str:
        ref = self._ref(mission)
        found = self._remote.refs(ref)
        if isinstance(found, Trouble):
            raise RemoteFault(self._remote.name, found)
        return found.get(ref, "")

    def work(self, merge: str) -> str:
        return self._git.commit(merge).parents[1]

    def on_top(self, mission: str, work: str, base: str, head: str) -> str:
        self._make_known(mission, head)
        there, said = self._git.commit(head), self._git.commit(work)
        older = self._git.is_ancestor(base, head)
        if there.tree == said.tree and older:
            return head
        parents = [head] if older else [head, base]
        author, by = said if said.author.name else None, self._git.identity
        return self._git.commit_tree(said.tree, parents, said.message, by=by, date=said.committer_date, author=author)

    def push(self, mission: str, commit: str, head: str) -> bool:
        ref = self._ref(mission)
        descends = head and self._is_older(head, commit)
        trouble = self._remote.push(commit, ref, head) if descends else self._remote.replace(commit, ref, head)
        if trouble and trouble.kind is Kind.LOST:
            return self.head(mission) == commit
        if trouble:
            hint = f"`merge.refs` says where the branches of requests are put; it is {self._refs} now."
            raise RemoteFault(f"{self._remote.name} ({self.name(mission)})", trouble, hint)
        return True

    def author(self, mission: str, head: str) -> str:
        self._make_known(mission, head)
        with suppress(GitFailed):
            said = self._git.commit(head)
            subject = shortened(one_line(said.message.partition("\n")[0]), _LONGEST)
            return f"{one_line(said.author.name)}: {subject}"
        return ""

    def parents(self, commit: str) -> Sequence[str]:
        return self._git.commit(commit).parents if commit and self._git.resolve(commit) else ()

    def _ref(self, mission: str) -> str:
        return f"{self._refs}{mission}"

    def _is_older(self, head: str, commit: str) -> bool:
        return bool(self._git.resolve(head)) and self._git.is_ancestor(head, commit)

    def _make_known(self, mission: str, head: str) -> None:
        """Fetch the branch to look at its commit; what cannot be fetched stays unknown."""
        if not self._git.resolve(head):
            self._remote.fetch_ref(self._ref(mission), self._remote.tracked(self.name(mission)))
