"""The branch that work is merged into, and the only code that moves it.

A candidate is built from objects alone: no checkout, index or branch is touched, and the same input gives the same
commit, so it can be built again after a crash and looked up by its tree. Publishing is one compare-and-swap of a ref,
from exactly the commit the candidate was built on; checkouts follow afterwards.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from capsule.adapters import BranchStep, Candidate, Draft, Published
from capsule.core.errors import Refused
from capsule.core.merge_queue import is_batch, step_name
from capsule.system.git import Git, GitFailed
from capsule.workspaces.checkouts import bring_along, line_to, locked, move_branch
from capsule.workspaces.trees import all_artefacts, graft, with_files


class GitTrunk:
    """The Trunk adapter on a git branch."""

    at_remote = ""

    def __init__(
        self,
        git: Git,
        branch: str,
        *,
        artefacts: Sequence[str] = (),
        left_out: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """`left_out`: paths of the work that do not go to this branch, beside the artefacts."""
        self.branch = branch
        self._git = git
        self._ref = f"refs/heads/{branch}"
        self._artefacts = all_artefacts(artefacts)
        self._left_out = left_out
        self._still = False
        """We are the ones who keep it still."""

    def refresh(self) -> None:
        pass

    def tip(self) -> str:
        found = self._git.ref(self._ref)
        if not found:
            hint = f"Make it again where it was (git branch {self.branch} COMMIT), then run the same command again."
            raise Refused(f"The branch {self.branch} no longer exists.", hint)
        return found

    def holds(self, commit: str) -> bool:
        """Tell whether the branch has this commit; not if git has removed it."""
        tip = self.tip()
        try:
            return self._git.is_ancestor(commit, tip)
        except GitFailed:
            if self._git.resolve(commit):
                raise
            return False

    def tree(self, commit: str = "") -> str:
        return self._git.tree_in(commit or self.tip())

    def propose(
        self, tip: str, base: str, message: str, draft: Draft | None = None, subject: str = "", *, onto: str = ""
    ) -> Candidate:
        onto = onto or self.tip()
        if not self._git.is_ancestor(base, onto):  # merging would restore what was removed from it
            raise Refused(
                f"{self.branch} was rewritten: it no longer holds {base[:12]}, which the work started from.",
                "Rebuild the work on it: run with --rebase",
            )
        met = self._git.merge_base(tip, onto)  # newer than the base if this branch was merged into the work
        since = met if met and self._git.is_ancestor(base, met) else base
        artefacts = (*self._artefacts, *self._left_out_between(since, tip))
        work = self._without_artefacts(tip, since, artefacts)
        work = self._titled(work, subject) if subject and work not in (base, met) else work
        merged, conflicts = self._git.merge_trees(onto, work)
        tree = graft(self._git, merged, onto, artefacts)
        if draft:
            tree = with_files(self._git, tree, draft(onto))
        return Candidate(self._commit(tree, onto, work, message), tree, onto, conflicts)

    def gather(self, last: str, onto: str, message: str) -> Candidate:
        tree = self.tree(last)
        return Candidate(self._commit(tree, onto, last, message), tree, onto)

    def _commit(self, tree: str, onto: str, work: str, message: str) -> str:
        newest = max((self._git.commit(parent) for parent in (onto, work)), key=lambda commit: commit.committed_at)
        by, date = self._git.identity, newest.committer_date
        return self._git.commit_tree(tree, [onto, work], message, by=by, date=date)

    def steps(self, base: str, tip: str) -> list[BranchStep]:
        parts = [part for commit in self._line(base, tip) for part in self._parts(commit)]
        return [self._step(commit) for commit in self._holding(base, parts)]

    def _line(self, base: str, tip: str) -> list[str]:
        """Return the commits by which the branch went from one commit to another, the oldest first."""
        return self._git.content("rev-list", "--first-parent", "--reverse", f"{base}..{tip}").out.decode().split()

    def _parts(self, commit: str) -> list[str]:
        """Return a commit, or the merges of a batch, which its second parent holds as a chain; a batch holds none."""
        said = self._git.commit(commit)
        if is_batch(said.parents, said.message) and self._git.is_ancestor(*said.parents[:2]):
            before, last = said.parents[:2]
            return self._holding(before, self._line(before, last))
        return [commit]

    def _holding(self, base: str, line: list[str]) -> list[str]:
        # a person's merge may have brought the base to the branch: commits before it do not hold it
        return line[bisect_left(line, True, key=lambda commit: self._git.is_ancestor(base, commit)) :]

    def _step(self, commit: str) -> BranchStep:
        said = self._git.commit(commit)
        return BranchStep(commit, step_name(commit, said.parents, said.message))

    def publish(self, candidate: Candidate, works: Mapping[str, str] | None = None) -> Published:  # noqa: ARG002
        if candidate.conflicts:
            raise Refused(f"The merge into {self.branch} has conflicts.", "Rebuild the work on it: run with --rebase")
        git, onto, commit = self._git, candidate.onto, candidate.commit
        with locked(git, "main"):
            tip = self.tip()
            if tip == onto:
                moved = move_branch(git, self.branch, onto, commit, apart=self._artefacts, why="capsule: merge")
                tip = commit if moved else self.tip()
            if tip != commit and not git.is_ancestor(commit, tip):
                return Published(moved=False)
            # To the tip, not the candidate: newer commits belong to the same checkouts.
            left = bring_along(git, self.branch, onto, tip)
            return Published(moved=True, left_alone=tuple(left))

    @contextmanager
    def about_to_move(self) -> Iterator[None]:
        with nullcontext() if self._still else line_to(self._git, self.branch).turn(shared=True):
            yield

    @contextmanager
    def kept_still(self) -> Iterator[None]:
        with line_to(self._git, self.branch).turn():
            self._still = True
            try:
                yield
            finally:
                self._still = False

    def _left_out_between(self, base: str, tip: str) -> list[str]:
        """List the paths that any commit of the work changed, and that do not go to this branch."""
        commits = self._git.commits_since(base, tip) or [self._git.commit(tip)]
        changes = (change for commit in commits for change in self._git.differences(base, commit.tree))
        return sorted({path for change in changes if self._left_out(path := os.fsdecode(change.path))})

    def _without_artefacts(self, tip: str, base: str, artefacts: Sequence[str]) -> str:
        """Return the branch's tip, or one clean commit in its place if its history ever held an artefact."""
        if not self._ever_touched(tip, base, artefacts):
            return tip
        said = self._git.commit(tip)
        tree = graft(self._git, tip, base, artefacts)
        author = said if said.author.name else None
        by = self._git.identity
        return self._git.commit_tree(tree, [base], said.message, by=by, date=said.committer_date, author=author)

    def _titled(self, tip: str, subject: str) -> str:
        """Return the commit with this subject; a merge commit keeps its own."""
        said = self._git.commit(tip)
        if len(said.parents) != 1 or said.message.partition("\n")[0] == subject:
            return tip
        message = f"{subject}\n\n{said.message.strip()}\n" if said.message.strip() else f"{subject}\n"
        author = said if said.author.name else None
        by = self._git.identity
        return self._git.commit_tree(said.tree, said.parents, message, by=by, date=said.committer_date, author=author)

    def _ever_touched(self, tip: str, base: str, artefacts: Sequence[str]) -> bool:
        """Tell whether any commit of the branch changed an artefact, even if a later one reverted that."""
        git, commits = self._git, self._git.commits_since(base, tip)
        if commits is not None and all(len(commit.parents) == 1 for commit in commits):
            trees = {git.tree_in(base), *(commit.tree for commit in commits)}
            return any(len({git.entry_at(tree, os.fsencode(path)) for tree in trees}) > 1 for path in artefacts)
        command = ("rev-list", "--full-history", "--max-count=1", tip, f"^{base}", "--", *artefacts)
        return bool(git.content(*command, env={"GIT_LITERAL_PATHSPECS": "1"}).out)
