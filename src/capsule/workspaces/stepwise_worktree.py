"""A mission's place whose steps go to the user's branch one by one, each in a commit with the tracker's state.

The place stands on a commit of that branch, its base. What its agents do is work until the step is recorded
(`state_store`): then the branch has it, and the place is on that commit. Or until the step failed: then it is kept
under a ref, and the place is as before. Commits made in the place are not published as such: they are part of the work.

The branch moves while the place is worked in, by its user and by other missions. A phase starts from where the branch
is by then: the work of an attempt that goes on is merged with it, and a file that both changed in the same lines is as
on the branch. What becomes of the user's checkout is the business of `state_store` and `checkouts`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from capsule.core.errors import Refused, WorkspaceBroken
from capsule.core.evidence import Change, Checkpoint
from capsule.system.files import read_regular, write_atomically
from capsule.system.folders import remove_tree
from capsule.system.git import Git
from capsule.system.git_objects import RefMove, shown
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.hooks import Hooks
from capsule.workspaces.place import GitTrees
from capsule.workspaces.private_git import Left
from capsule.workspaces.snapshot import LARGEST_WORKLOG
from capsule.workspaces.trees import graft, merged_from


class StepwiseTrees(GitTrees):
    """Trees of work whose steps go to a branch that moves meanwhile."""

    began: Mapping[str, str] = MappingProxyType({})
    """Where the branch moved before the phase began: its checkpoint's commits, and what took their place."""

    def changes(self, since: str, until: str) -> Sequence[Change]:
        """Leave out what others committed before the phase began."""
        return super().changes(self.began.get(since, since), until)

    def test_cache_key(self, tree: str) -> str:
        """Leave out the tracker's files, which change with every step."""
        return graft(self._git, tree, self._git.make_tree(()), self._artefacts)


class StepwiseWorktree(GitWorktree):
    """A Place for work whose steps are committed to the branch `into` one by one."""

    _trees_type = StepwiseTrees
    trees: StepwiseTrees

    def __init__(self, git: Git, mission: str, *, into: str, **options: Any) -> None:
        super().__init__(git, mission, **options)
        self.publishes_to = into
        self._worklog = self._logs / "worklog.md"
        self._told: list[str] = []

    def notices(self) -> Sequence[str]:
        told, self._told = self._told, []
        return [*told, *super().notices()]

    # Where it stands

    def restore(self, checkpoint: Checkpoint) -> str:
        self.trees.began = {}
        self._stand_on(checkpoint.head)
        kept = super().restore(checkpoint)
        self.follow(checkpoint)
        return kept

    def follow(self, checkpoint: Checkpoint) -> None:
        """Move the place to where the branch is by now, with the work that the checkpoint holds."""
        if checkpoint.commit not in self.trees.began:
            self._stand_on(checkpoint.head)
        if self._linked.whole() is None:
            super().restore(checkpoint)
        tip, base = self._tip(), self._base()
        if tip == base:
            return
        entry, work = self._require_whole(), self.delivered(checkpoint)
        merged, conflicts = self._merged_with(tip, base, work)
        self._stand_on(tip)
        self._point_at(tip, entry)
        self._write_out(merged)
        self._unstage(tip, entry)
        self._stands_at = ""
        self.trees.began = {checkpoint.head: tip, checkpoint.commit: merged}
        if conflicts:
            words = f"the work and {self.publishes_to} changed the same lines; as {self.publishes_to} has it now"
            self._told.append(f"{words}: {', '.join(conflicts)}")

    def _merged_with(self, tip: str, base: str, work: str) -> tuple[str, Sequence[str]]:
        if work == self._git.tree_in(base):
            return self._git.tree_in(tip), ()
        merged, conflicts = merged_from(self._git, base, tip, work)
        return graft(self._git, merged, tip, (*self._artefacts, *conflicts)), conflicts

    def _tip(self) -> str:
        tip = self._git.ref(f"refs/heads/{self.publishes_to}")
        if not tip:
            hint = f"Bring it back: git branch {self.publishes_to} {self._base()[:12]}"
            raise Refused(f"{self.publishes_to}, which {self._mission} works for, has no commit any more.", hint)
        return tip

    def _stand_on(self, commit: str) -> None:
        if self._refs.standing().base != commit:
            self._git.move_refs(RefMove(self._refs.base, commit), why="capsule: a step further")
        self._set_base(commit)

    def _settle_head(self, entry: Path) -> tuple[str, str]:
        """Take commits that somebody made in the place for work like all the rest: HEAD stays on the base."""
        head, newest = super()._settle_head(entry)
        base = self._base()
        if head != base:
            self._keep_unless_in_files([head])
            self._point_at(base, entry)
            self._unstage(base, entry)
        return base, newest

    def _adopt_commits(self, left: Left, entry: Path) -> None:
        self._keep_unless_in_files(left.tips)
        self._unstage(self._base(), entry)

    def _keep_unless_in_files(self, commits: Sequence[str]) -> None:
        there = self._snapshots.to_save(self._base()) if commits else ""
        for commit in commits:
            if self._has_more(self._git.tree_in(commit), than=there):
                self._keep(self._git.tree_in(commit), [commit], "commits whose content is in no file of the place")

    # Looking

    def delivered(self, checkpoint: Checkpoint) -> str:
        return self.trees.began.get(checkpoint.commit) or super().delivered(checkpoint)

    def worklog(self) -> str:
        with contextlib.suppress(OSError):
            return read_regular(self._worklog, LARGEST_WORKLOG).decode(errors="replace")
        return ""

    def write_worklog(self, text: str) -> None:
        self._worklog.parent.mkdir(parents=True, exist_ok=True)
        if self._worklog.is_dir() and not self._worklog.is_symlink():
            remove_tree(self._worklog)
        write_atomically(self._worklog, text.encode(errors="replace"), flush=False)

    def hooks(self, tree: str, message: str) -> tuple[bool, str]:
        """Run the user's pre-commit and commit-msg hooks in the place; whether they agree, and what they printed."""
        if self._provisions.run_setup is None:
            raise Refused("There is no shell to run hooks in.", "Turn them off: git.hooks: false")
        self._require_whole()
        shared = self._provisions.dependencies
        layers = shared.layers(self._base(), self.path) if shared else ()
        hooks = Hooks(self._git, self.path, self._notes / "hooks", self._logs, self._provisions.run_setup, layers)
        bent = hooks.among([change.path for change in self.trees.changes(self._base(), tree)])
        if bent:
            return False, f"The hooks themselves were changed: {', '.join(bent)}."
        before = self._snapshots.to_judge(self._base())
        passed, said = hooks.passed(tree, message)
        after = self._snapshots.to_judge(self._base())
        changed = [shown(d.path) for d in self.trees.work_between(before, after)]
        if changed:
            self._judged = ""
            return False, f"A hook changed files: {', '.join(changed)}.\n{said}"
        return passed, said

    # Keeping a step's work, or not

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:  # noqa: ARG002 (the adapter's)
        """Return the work, for the commit that holds the tracker's state."""
        return Checkpoint(checkpoint.commit, checkpoint.head, super().delivered(checkpoint))

    def checkpoint_at(self, commit: str) -> Checkpoint:
        self._judged, self._stands_at, self.trees.began = "", "", {}
        self._come_home()
        if commit:
            self._stand_on(commit)
        base = self._base()
        if entry := self._linked.whole():  # where it is gone, the next phase makes it
            self._point_at(base, entry)
            self._write_out(base)
            self._unstage(base, entry)
        return self.base_checkpoint(base)

    def salvage_and_reset(self, why: str) -> str:
        self._judged, self._stands_at = "", ""
        try:
            entry = self._require_whole()
        except WorkspaceBroken:
            return ""
        base = self._base()
        self._settle_head(entry)
        there = self._snapshots.to_save(base)
        kept = self._keep(there, [base], why) if self._deliverable(there) != self._git.tree_in(base) else ""
        self._write_out(base)
        self._unstage(base, entry)
        return kept

    def rebase(self, onto: str) -> tuple[Checkpoint, Sequence[str]]:
        hint = f"Go on with `capsule run {self._mission}`."
        raise Refused(f"{self._mission} follows {self.publishes_to} by itself ({onto[:10]} included).", hint)

    def _salvage(self, why: str) -> str:
        """Keep what is in no commit of the branch: the files, or the last work that was named where they are gone."""
        standing = self._take_over_the_last()
        base = self._base_commit = standing.base or self._refs.put_base_back()
        if not base:
            return ""
        if self.path.is_dir():
            there = self._snapshots.to_save(base)
        else:
            tree, head = self._said_by(standing.newest) if standing.newest else ("", "")
            there = tree if head == base else self._git.tree_in(base)
        return self._keep(there, [base], why) if self._deliverable(there) != self._git.tree_in(base) else ""

    def remove(self, *, branch: bool) -> None:  # noqa: ARG002 (the adapter's): what is done is on the user's branch
        super().remove(branch=True)
