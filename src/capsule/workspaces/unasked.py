"""Commits that nobody asked for: an agent was told not to commit in the user's checkout, and did.

From the head that an agent was let loose at, the branch is walked upward. A commit of ours (`ours`) stays: a
`capsule add` in another terminal, a merge that was published. Any other one is left out, whatever it says and whatever
it touches, and what stands on top of it is built anew on what stays. Nothing is lost by that: the caller keeps the old
tip under a ref, and the files stay as they are, so the content of such a commit counts as work not committed yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capsule.system.git import Git
from capsule.system.git_objects import RefMove
from capsule.workspaces.checkouts import UNDER_WAY, unstage
from capsule.workspaces.ours import note_as_ours, ours_on
from capsule.workspaces.salvage import put_aside
from capsule.workspaces.trees import with_changes

_ALONG_WITH_IT = ("MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "SQUASH_MSG", "sequencer")


@dataclass(frozen=True)
class Sieve:
    """Tells commits that may stand on a branch from others."""

    git: Git
    branch: str
    scratch: Path

    def sift(self, known: str, tip: str) -> str:
        """Where the branch belongs."""
        if tip in ("", known):
            return known
        command = ("rev-list", "--first-parent", "--reverse", tip, f"^{known}", "--")
        ours, at = ours_on(self.git, self.branch), known
        for commit in self.git.content(*command).out.decode().split():
            at = self._on(at, commit) if commit in ours else at
        return at

    def _on(self, at: str, commit: str) -> str:
        said = self.git.commit(commit)
        if said.parents[:1] == (at,):
            return commit
        held = self.git.tree_in(at)
        tree = with_changes(self.git, held, self.git.differences(said.parents[0], commit), self.scratch)
        by, date = said.author, said.committer_date
        built = self.git.commit_tree(tree, [at, *said.parents[1:]], said.message, by=by, date=date, author=said)
        note_as_ours(self.git, built, self.branch)
        return built


def bring_home(git: Git, branch: str, tip: str, target: str, artefacts: Sequence[str]) -> None:
    """HEAD on the branch, the branch at `target`, the index as there; no file is touched."""
    git.repository("symbolic-ref", "-m", "capsule", "HEAD", f"refs/heads/{branch}")
    if tip != target:
        git.move_refs(RefMove(f"refs/heads/{branch}", target, tip), why="capsule: without commits nobody asked for")
    unstage(git, target, artefacts)


def end_what_is_under_way(git: Git) -> list[str]:
    """A merge or rebase that an agent left half done is put aside; the files stay as they are."""
    found = [what for name, (what, _) in UNDER_WAY.items() if (git.git_dir / name).exists()]
    for name in (*UNDER_WAY, *_ALONG_WITH_IT) if found else ():
        if (git.git_dir / name).exists():
            put_aside(git, git.git_dir / name)
    return found
