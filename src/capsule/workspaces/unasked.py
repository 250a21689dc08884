"""Commits that nobody asked for: an agent was told not to commit in the user's checkout, and did.

From the last head that we know, the branch is walked upward. A commit that may be there stays: the tracker's own files
(`capsule add` in another terminal), a merge that Capsule published, a step of a mission. Any other one is left out, and
what stands on top of it is built anew on what stays. Nothing is lost by that: the caller keeps the old tip under a ref,
and the files stay as they are, so that the content of such a commit counts as work that is not committed yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from capsule.system.git import Git
from capsule.system.git_objects import RefMove
from capsule.workspaces.checkouts import UNDER_WAY, unstage
from capsule.workspaces.salvage import put_aside
from capsule.workspaces.step_commits import step_commits
from capsule.workspaces.trees import is_artefact, with_changes
from capsule.workspaces.trunk import PUBLISHED

_ALONG_WITH_IT = ("MERGE_MSG", "MERGE_MODE", "AUTO_MERGE", "SQUASH_MSG", "sequencer")


@dataclass(frozen=True)
class Sifted:
    """Where the branch belongs, and the commits it has to do without."""

    tip: str
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sieve:
    """Tells commits that may stand on a branch from others."""

    git: Git
    mission: str
    branch: str
    artefacts: Sequence[str]
    scratch: Path

    def sift(self, known: str, tip: str, *, trust_steps: bool) -> Sifted:
        """`trust_steps`: no agent was at work since `known`, so a commit that says it is a step's is one.

        Otherwise one that says it is a step of *this* mission is an agent's: the mission is not that far yet.
        """
        git = self.git
        if tip in ("", known):
            return Sifted(known)
        rows = git.content("rev-list", "--first-parent", "--reverse", tip, f"^{known}", "--").out.decode().split()
        steps = step_commits(git, tip, known)
        fine = self._published() | {found.commit for found in steps if trust_steps}
        forged = {found.commit for found in steps if found.key.startswith(f"{self.mission}/")} - fine
        at, left_out = known, []
        for commit in rows:
            if commit in fine or (commit not in forged and self._is_book_keeping(commit)):
                at = self._on(at, commit)
            else:
                left_out.append(commit)
        return Sifted(at, tuple(left_out))

    def _on(self, at: str, commit: str) -> str:
        said = self.git.commit(commit)
        if said.parents[:1] == (at,):
            return commit
        held = self.git.commit(at).tree
        tree = with_changes(self.git, held, self.git.differences(said.parents[0], commit), self.scratch)
        by, date = said.author, said.committer_date
        return self.git.commit_tree(tree, [at, *said.parents[1:]], said.message, by=by, date=date, author=said)

    def _is_book_keeping(self, commit: str) -> bool:
        parents = self.git.commit(commit).parents
        if len(parents) != 1:
            return False
        changes = self.git.differences(parents[0], commit)
        return bool(changes) and all(is_artefact(change.path, self.artefacts) for change in changes)

    def _published(self) -> set[str]:
        """What the reflog says that Capsule merged."""
        ref = f"refs/heads/{self.branch}"
        answer = self.git.repository("log", "-g", "--max-count=500", "--format=%H %gs", ref, "--", ok=(0, 128))
        rows = (row.partition(" ") for row in answer.out.decode(errors="replace").splitlines())
        return {commit for commit, _, words in rows if words == PUBLISHED}


def bring_home(git: Git, branch: str, tip: str, target: str, artefacts: Sequence[str]) -> None:
    """HEAD on the branch, the branch at `target`, the index as there; no file is touched."""
    git.repository("symbolic-ref", "-m", "capsule", "HEAD", f"refs/heads/{branch}")
    if tip != target:
        git.move_refs(RefMove(f"refs/heads/{branch}", target, tip), why="capsule: without commits nobody asked for")
    unstage(git, target, artefacts)


def end_what_is_under_way(git: Git) -> list[str]:
    """A merge or rebase that an agent left half done is put aside; the files stay as they are."""
    found = [what for name, (what, _) in UNDER_WAY.items() if (git.common_dir / name).exists()]
    for name in (*UNDER_WAY, *_ALONG_WITH_IT) if found else ():
        if (git.common_dir / name).exists():
            put_aside(git, git.common_dir / name)
    return found
