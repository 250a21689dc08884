"""A mission's place whose steps are committed to the user's branch one by one, with the tracker's state.

The place stands on a commit of that branch, its base. What its agents do is work until the step is recorded
(`state_store`): then the branch has it, and the place is on that commit. Or until the step failed: then it is kept
under a ref, and the place is as before. Commits made in the place are not published as such: they are part of the work.

The branch moves while the place is worked in, by its user and by other missions. A phase starts from where the branch
is by then: the work of an attempt that goes on is merged with it, and a file that both changed in the same lines is as
on the branch. `state_store` and `checkouts` update the user's checkout.

The user's own hooks run as their git would run them: in the place, with an index that holds what is committed, by the
project's shell, supervised and with its time-out. A hook that changes what was to be committed, or any file, counts as
failed even if it exits with 0: what was judged is not what would be committed. What a commit-msg hook writes into the
message is not taken over.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError, Refused, WorkspaceBroken
from capsule.core.evidence import Change, Checkpoint
from capsule.system.files import tail_bytes
from capsule.system.git import Git
from capsule.system.git_objects import RefMove, shown
from capsule.workspaces.git_worktree import GitWorktree
from capsule.workspaces.private_git import LeftCommits
from capsule.workspaces.provision import RunSetup
from capsule.workspaces.trees import GitTrees, graft, merged

_TAIL = 4096
_HOOKS = ("pre-commit", "commit-msg")


class _StepwiseTrees(GitTrees):
    """Trees of work whose steps go to a branch that moves meanwhile."""

    began: Mapping[str, str] = MappingProxyType({})
    """If the branch moved before the phase began: its checkpoint's commits, and what took their place."""

    def changes(self, since: str, until: str) -> Sequence[Change]:
        """Leave out what others committed before the phase began."""
        return super().changes(self.began.get(since, since), until)

    def test_cache_key(self, tree: str) -> str:
        """Leave out the tracker's files, which change with every step."""
        return graft(self._git, tree, self._git.make_tree(()), self._artefacts)


class StepwiseWorktree(GitWorktree):
    """A Place for work whose steps are committed to the branch `into` one by one."""

    _trees_type = _StepwiseTrees
    trees: _StepwiseTrees

    def __init__(self, git: Git, mission: str, *, into: str, **options: Any) -> None:
        super().__init__(git, mission, **options)
        self.publishes_to = into
        self._worklog = self._logs / "worklog.md"
        self._told: list[str] = []

    def notices(self) -> Sequence[str]:
        told, self._told = self._told, []
        return [*told, *super().notices()]

    # The current state

    def restore(self, checkpoint: Checkpoint) -> str:
        self.trees.began = {}
        self._move_base(checkpoint.head)
        kept = super().restore(checkpoint)
        self.follow(checkpoint)
        return kept

    def follow(self, checkpoint: Checkpoint) -> None:
        """Move the place to the branch's current commit, with the checkpoint's work."""
        if checkpoint.commit not in self.trees.began:
            self._move_base(checkpoint.head)
        if self._linked.whole() is None:
            super().restore(checkpoint)
        tip, base = self._tip(), self._base()
        if tip == base:
            return
        entry, work = self._require_whole(), self.delivered(checkpoint)
        tree, conflicts = self._git.tree_in(tip), tuple[str, ...]()
        if work != self._git.tree_in(base):
            tree, conflicts = merged(self._git, base, tip, work)
            tree = graft(self._git, tree, tip, (*self._artefacts, *conflicts))
        self._move_base(tip)
        self._check_out(tip, tree, entry)
        self._at_checkpoint = ""
        self.trees.began = {checkpoint.head: tip, checkpoint.commit: tree}
        if conflicts:
            words = f"the work and {self.publishes_to} changed the same lines; as {self.publishes_to} has it now"
            self._told.append(f"{words}: {', '.join(conflicts)}")

    def _tip(self) -> str:
        tip = self._git.ref(f"refs/heads/{self.publishes_to}")
        if not tip:
            hint = f"Bring it back: git branch {self.publishes_to} {self._base()[:12]}"
            raise Refused(f"{self.publishes_to}, which {self._mission} works for, has no commit any more.", hint)
        return tip

    def _move_base(self, commit: str) -> None:
        if self._refs.load().base != commit:
            self._git.move_refs(RefMove(self._refs.base, commit), why="capsule: a step further")
        self._set_base(commit)

    def _settle_head(self, entry: Path) -> tuple[str, str]:
        """Treat an agent's commits in the place like other work: HEAD stays on the base."""
        head, newest = super()._settle_head(entry)
        base = self._base()
        if head != base:
            self._keep_unless_in_files([head])
            self._point_at(base, entry)
            self._unstage(base, entry)
        return base, newest

    def _adopt_commits(self, left: LeftCommits, entry: Path) -> None:
        self._keep_unless_in_files(left.tips)
        self._unstage(self._base(), entry)

    def _keep_unless_in_files(self, commits: Sequence[str]) -> None:
        there = self._snapshots.to_save(self._base()) if commits else ""
        for commit in commits:
            if self._has_more(self._git.tree_in(commit), than=there):
                self._keep(self._git.tree_in(commit), [commit], "commits whose content is in no file of the place")

    # Reading

    def delivered(self, checkpoint: Checkpoint) -> str:
        return self.trees.began.get(checkpoint.commit) or super().delivered(checkpoint)

    def write_worklog(self, text: str) -> None:
        self._logs.mkdir(parents=True, exist_ok=True)
        self._put_worklog(text)

    # The user's hooks

    def hooks(self, tree: str, message: str) -> tuple[bool, str]:
        """Run the user's pre-commit and commit-msg hooks in the place; return whether they pass, and their output."""
        run = self._provisions.run_setup
        if run is None:
            raise Refused("There is no shell to run hooks in.", "Turn them off: git.hooks: false")
        self._require_whole()
        if bent := self._hooks_among(tree, run):
            return False, f"The hooks themselves were changed: {', '.join(bent)}."
        before = self._snapshots.to_judge(self._base())
        passed, said = self._run_hooks(tree, message, run)
        after = self._snapshots.to_judge(self._base())
        changed = [shown(d.path) for d in self.trees.work_between(before, after)]
        if changed:
            self._judged = ""
            return False, f"A hook changed files: {', '.join(changed)}.\n{said}"
        return passed, said

    def _hooks_among(self, tree: str, run: RunSetup) -> list[str]:
        """Return the hooks among the changed paths; git names their folder."""
        log = self._hook_log("hook-folder")
        run("git rev-parse --git-path hooks", self.path, log, None, None)
        folder = self.path / _end_of(log).rpartition("\n")[2]
        theirs = {Path(os.path.normpath(folder)), folder.resolve(), *((folder / hook).resolve() for hook in _HOOKS)}
        changed = [change.path for change in self.trees.changes(self._base(), tree)]
        return [path for path in changed if any((self.path / path).is_relative_to(each) for each in theirs)]

    def _run_hooks(self, tree: str, message: str, run: RunSetup) -> tuple[bool, str]:
        git, scratch = self._git, self._notes / "hooks"
        scratch.mkdir(parents=True, exist_ok=True)
        index, words = scratch / "index", scratch / "message"
        index.unlink(missing_ok=True)
        git.content("read-tree", tree, index=index, worktree=self.path)
        git.content("update-index", "-q", "--refresh", index=index, worktree=self.path, ok=(0, 1))
        words.write_text(message)
        # At the place's own path, because the user's hooks lie in the repository; git locks the index it is given.
        sandbox_paths = SandboxPaths(
            place=str(self.path),
            writable=(str(scratch),),
            protected=(str(self.path / ".git"), str(self.path / ".capsule")),
            layers=self._provisions.dependencies.layers(self._base(), self.path),
        )
        said = ""
        for hook, args in zip(_HOOKS, ((), ("--", str(words))), strict=True):
            log = self._hook_log(f"hook-{hook}")
            asked = ("env", f"GIT_INDEX_FILE={index}", "GIT_EDITOR=:", "git", "hook", "run", "--ignore-missing", hook)
            fault: CapsuleError | None = None
            try:
                run(shlex.join((*asked, *args)), self.path, log, sandbox_paths, None)
            except CapsuleError as error:
                fault = error
            said = "\n".join(filter(None, (said, _end_of(log) or (fault.message if fault else ""))))
            if fault:
                return False, f"The {hook} hook refused.\n{said}"
        if git.write_tree(index) != tree:
            return False, f"A hook changed what was to be committed.\n{said}"
        return True, said

    def _hook_log(self, name: str) -> Path:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{name}.log"

    # Keeping or dropping a step's work

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:  # noqa: ARG002 (the adapter's)
        """Return the work, for the commit that holds the tracker's state.

        It is relative to its own base: the place may be on a newer commit by now, with changes of others.
        """
        commit, head, tree = checkpoint.commit, checkpoint.head, checkpoint.tree
        return Checkpoint(commit, head, tree if commit == head else self._deliverable(self._git.tree_in(commit), head))

    def checkpoint_at(self, commit: str) -> Checkpoint:
        self._judged, self._at_checkpoint, self.trees.began = "", "", {}
        self._restore_git_pointer()
        if commit:
            self._move_base(commit)
        base = self._base()
        if entry := self._linked.whole():  # if it is gone, the next phase makes it
            self._check_out(base, base, entry)
        return self.base_checkpoint(base)

    def salvage_and_reset(self, why: str) -> str:
        self._judged, self._at_checkpoint = "", ""
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

    def rebase(self, onto: str, message: str = "") -> tuple[Checkpoint, Sequence[str]]:  # noqa: ARG002 (the adapter's)
        hint = f"Go on with `capsule run {self._mission}`."
        raise Refused(f"{self._mission} follows {self.publishes_to} automatically ({onto[:10]} included).", hint)

    def _salvage(self, why: str) -> str:
        """Keep what is in no commit of the branch: the files, or the last checkpoint if they are gone."""
        standing = self._take_over_the_last()
        base = self._base_commit = standing.base or self._refs.put_base_back()
        if not base:
            return ""
        if self.path.is_dir():
            there = self._snapshots.to_save(base)
        else:
            tree, head = self._named_by(standing.newest) if standing.newest else ("", "")
            there = tree if head == base else self._git.tree_in(base)
        return self._keep(there, [base], why) if self._deliverable(there) != self._git.tree_in(base) else ""

    def remove(self, *, branch: bool) -> None:  # noqa: ARG002 (the adapter's): what is done is on the user's branch
        super().remove(branch=True)


def _end_of(log: Path) -> str:
    return tail_bytes(log, _TAIL).decode(errors="replace").strip() if log.exists() else ""
