"""A mission's place: a linked worktree on a branch of its own, and the gate, where claims are checked.

    .capsule/worktrees/<id>/             the worktree
    refs/heads/capsule-<id>              the branch the agents commit to
    refs/capsule/…                       see `place`

**While an agent or a command is in it**, the worktree has a git directory of their own (`private_git`): in a sandbox
that is what they see in the place of `.git`; without one, the worktree's `.git` file names it. Either way
`git -C .capsule/worktrees/<id> status` works at any moment, also after kill -9.

The tree that would be *delivered* is everything in the worktree (`snapshot`) with the artefacts as on the base: what an
agent does to the tracker's files, to settings or to another item's documents is dropped, and told.

**Names are never believed.** The worktree's `.git` file is compared, not followed; HEAD is brought back to our branch
before anything is named; a branch that no longer holds the base is put back, and its commits are salvaged.

**Everything can be repeated.** Whoever holds the mission's lock may be killed at any point: the next call looks at what
is there and completes it. The order matters in two places only. `prepare` makes the base ref before the branch and the
folder, so whatever stands there without that ref is somebody else's. `rebase` writes its result down as a checkpoint
before it touches a file, so a second try finds it and does not merge what is merged already.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import Refused, WorkspaceBroken
from capsule.core.evidence import Checkpoint
from capsule.system.files import read_regular, write_atomically
from capsule.system.folders import make_writable, remove_tree
from capsule.system.git import Git, GitFailed, ObjectMissing
from capsule.system.git_objects import RefMove, shown
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.linked import LinkedWorktree, detach_submodules, remove_what_stops_git
from capsule.workspaces.mission_refs import MissionRefs
from capsule.workspaces.place import GitPlace
from capsule.workspaces.private_git import Left, PrivateGit, mounted
from capsule.workspaces.provision import Provisions, RunSetup, recall_paths, remember_paths
from capsule.workspaces.salvage import keep_commit, put_aside
from capsule.workspaces.snapshot import LARGEST_WORKLOG, WORKLOG
from capsule.workspaces.step_commits import message_of
from capsule.workspaces.trees import graft, with_changes
from capsule.workspaces.tripwire import Tripwire

_NAMED = 5
"""How many paths a message names."""
_REBASED = "rebased onto "


class GitWorktree(GitPlace):
    """A Place for work that is merged at the end; `StepwiseWorktree` publishes step by step."""

    publishes_to = ""

    def __init__(
        self,
        git: Git,
        mission: str,
        *,
        artefacts: Sequence[str] = (),
        setup: str = "",
        copy: Sequence[str] = (),
        run_setup: RunSetup | None = None,
        dependencies: Dependencies | None = None,
        confined: bool = False,
        not_ours: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        """`confined`: a sandbox keeps agents to the paths they are given. `not_ours`: paths that are no part of this
        mission's work, whatever its agents do there."""
        path, branch = git.root / ".capsule" / "worktrees" / mission, f"capsule-{mission}"
        provisions = Provisions(dependencies or Dependencies(git, detect=not setup), setup, copy, run_setup)
        super().__init__(git, mission, path, branch, artefacts=artefacts, provisions=provisions, confined=confined)
        self._filled = self._notes / "filled"
        self._linked = LinkedWorktree(git, self.path, self.branch)
        self._private = PrivateGit(git, mission, branch)
        self._not_ours = not_ours
        self.guard = Tripwire(git, mission, idle=confined)
        self._dropped: list[str] = []
        self._occupied = False
        """Between `open_sandbox` and `import_commits`: an agent or a command has a git directory of its own here."""
        self._delivered: dict[tuple[str, str], str] = {}
        self._descendants: set[tuple[str, str]] = set()
        self._trees: dict[str, str] = {}
        """Checkpoints, and the trees that they deliver."""
        self._judged = ""
        """The deliverable tree that was looked at last, while nobody but us has been at work since."""
        self._stands_at = ""
        """The checkpoint made last, while nobody has been at work since."""

    # Beginning

    def prepare(self, base: str) -> Sequence[str]:
        standing = self._lay_claim(base)
        entry, made = self._linked.ensure(standing.head)
        warnings: list[str] = []
        if not self._is_filled():
            warnings += self._fill(standing.head, entry)
        elif made:
            self._unstage(standing.head, entry)
        if standing.base != base and not self.publishes_to:
            warnings.append(f"{self._mission} started from {standing.base[:10]} and goes on from there.")
        return [*warnings, *self._provide()]

    def _lay_claim(self, base: str) -> MissionRefs:
        standing = self._refs.standing()
        known = standing.base or self._adopt_or_refuse(base, standing.head)
        if not standing.head:
            moves = (RefMove(self._refs.base, base), RefMove(self._refs.branch, base, ""))
            self._git.move_refs(*moves, why=f"capsule: {self._mission} begins")
            known = base
        elif not standing.base:
            self._git.move_refs(RefMove(self._refs.base, known, ""))
        self._set_base(known)
        return MissionRefs(known, standing.head or base, standing.newest, standing.home)

    def _adopt_or_refuse(self, base: str, tip: str) -> str:
        """Without our ref, only a worktree that is registered here, on a branch of our name, can be ours."""
        if tip and self._linked.whole():
            return self._git.merge_base(base, tip) or base
        if tip:
            hint = f"Rename it: git branch -m {self.branch} {self.branch}-old"
            raise Refused(f"There is a branch {self.branch} that Capsule did not make.", hint)
        if os.path.lexists(self.path):
            raise Refused(f"{self.path} is there, and Capsule did not make it.", "Move it somewhere else.")
        return base

    def _is_filled(self) -> bool:
        """Noted when all files were there; they may have gone since."""
        return self._filled.exists() and not self._is_bare()

    def _is_bare(self) -> bool:
        """The worktree holds nothing but its `.git`."""
        return len(list(self.path.iterdir())) == 1

    def _fill(self, head: str, entry: Path) -> list[str]:
        """Write the files of a worktree that lacks some; salvage what differs first, and return a warning about it."""
        kept = "" if self._is_bare() else self._keep_what_is_in_the_way(head)
        self._snapshots.forget()
        self._write_out(head)
        self._snapshots.copy_index(entry / "index")
        self._filled.touch()
        return [f"What was in {self.path} is kept as {kept}."] if kept else []

    def _keep_what_is_in_the_way(self, head: str) -> str:
        self._snapshots.start_from(head)
        there = self._snapshots.to_save(self._base())
        return self._keep_if_lost(there, [], held=[head], why="found where the worktree was to be")

    def _provide(self) -> Sequence[str]:
        """Dependencies, copies and set-up, where that has not been done yet."""
        files = self._git.list_tree(self._base(), recursive=True)
        copied = self._provisions.copy_into(self.path, self._git.root, frozenset(file.path for file in files))
        if not self._confined:
            notes = self._notes / "dependencies"
            provided = self._provisions.dependencies.provide(self._base(), self.path, notes, anew=False)
            copied += map(os.fsencode, provided)
        known = recall_paths(self._notes / "copied")
        if not {*copied} <= {*known}:
            remember_paths(self._notes / "copied", {*known, *copied})
        note, inputs = self._notes / "setup", self._provisions.inputs(files)
        if not inputs or (note.exists() and note.read_text() == inputs):
            return []
        before = self.tree()
        sandbox_paths = self.open_sandbox()
        try:
            self._provisions.run(self.path, self._logs / "setup.log", sandbox_paths if self._confined else None)
        finally:
            self.import_commits()
        write_atomically(note, inputs)
        changed = [change.path for change in self.trees.changes(before, self.tree())]
        return [f"workspace.setup changed files that git does not ignore: {', '.join(changed)}"] if changed else []

    # An agent comes and goes

    def open_sandbox(self) -> SandboxPaths:
        self._private.make(self._require_whole())
        self._judged, self._stands_at, self._occupied = "", "", True
        if self._confined:
            layers = self._provisions.dependencies.layers(self._base(), self._git.root)
            return mounted(self._git, self.path, self._private.path, layers)
        self._linked.point_at(self._private.path)
        return SandboxPaths()

    def import_commits(self) -> None:
        self._take_over(self._require_whole())

    def _come_home(self) -> None:
        """Point the worktree's `.git` at its own entry again, whatever an agent put in its place."""
        if self.path.is_dir() and (self._occupied or self._private.is_named_by(self.path / ".git")):
            entry = self._linked.entry()
            if entry and not self._confined:
                self._linked.point_at(entry)
        self._occupied = False

    def _take_over(self, entry: Path) -> None:
        """Import what was committed in a git directory of its own, where there is one; HEAD is brought home later."""
        remove_what_stops_git(self.path)
        if not self._private.exists():
            return
        left = self._private.left()
        try:
            self._private.import_commits(left)
        except WorkspaceBroken:
            self._private.put_on_the_shelf()
            raise
        self._adopt_commits(left, entry)
        self._private.remove()
        detach_submodules(self.path, self._snapshots.submodules_of(self._base()))

    def _adopt_commits(self, left: Left, entry: Path) -> None:
        self._private.move_branch(left)
        if left.stray:
            self._git.repository("update-ref", "--no-deref", "HEAD", left.stray, git_dir=entry)
        if left.tips:
            self._unstage(left.tips[-1], entry)

    def notices(self) -> Sequence[str]:
        dropped, self._dropped = self._dropped, []
        more = f" and {len(dropped) - _NAMED} more" if len(dropped) > _NAMED else ""
        told = [f"changes to {', '.join(dropped[:_NAMED])}{more} were dropped: they are no part of this work"]
        return [*(told if dropped else ()), *self.guard.notices()]

    # Going back

    def restore(self, checkpoint: Checkpoint) -> str:
        stands_at, self._stands_at, self._judged = self._stands_at, "", ""
        if stands_at == checkpoint.commit and self._linked.whole():
            return ""
        self._come_home()
        if not self._git.ref(self._refs.branch):
            self._git.move_refs(RefMove(self._refs.branch, checkpoint.head, ""), why="capsule: the branch again")
        entry, made = self._linked.ensure(checkpoint.head)
        self._git.clear_locks([*entry.glob("*.lock"), self._git.common_dir / f"{self._refs.branch}.lock"], self.path)
        with contextlib.suppress(WorkspaceBroken):  # what an interrupted phase left may be refused: it is on the shelf
            self._take_over(entry)
        standing = self._refs.standing(entry)
        there = self._snapshots.to_save(self._base())
        at_head = standing.home and standing.head == checkpoint.head
        kept = ""
        if made or not at_head or there != self._git.tree_in(checkpoint.commit):
            kept = self._keep_what_stands(standing, there, entry, checkpoint)
            self._point_at(checkpoint.head, entry)
            self._write_out(checkpoint.commit)
            self._unstage(checkpoint.head, entry)
        if made:
            self._provide_again()
        return kept

    def _keep_what_stands(self, standing: MissionRefs, there: str, entry: Path, checkpoint: Checkpoint) -> str:
        stray = "" if standing.home else self._git.resolve("HEAD", entry)
        held = [oid for oid in (checkpoint.commit, standing.newest, self._base()) if oid]
        return self._keep_if_lost(there, [standing.head, stray], held=held, why="before a phase")

    def _point_at(self, head: str, entry: Path) -> None:
        """HEAD on our branch, our branch at `head`."""
        self._git.repository("symbolic-ref", "-m", "capsule", "HEAD", self._refs.branch, git_dir=entry)
        self._git.move_refs(RefMove(self._refs.branch, head), why="capsule")

    def _write_out(self, commit: str) -> None:
        try:
            self._snapshots.write_out(commit, self._base())
        except GitFailed as failed:
            self._refuse_if_not_fetched(commit, failed)
            make_writable(self.path)
            self._snapshots.write_out(commit, self._base())

    def _refuse_if_not_fetched(self, commit: str, failed: GitFailed) -> None:
        """A partial clone has files only of what was checked out; no git of ours fetches."""
        lacking = "unable to read sha1 file" in failed.said
        if lacking and any((self._git.common_dir / "objects/pack").glob("*.promisor")):
            hint = f"Fetch them: git diff --shortstat $(git hash-object -t tree /dev/null) {commit[:12]}"
            raise Refused(f"This is a partial clone, and not all files of {commit[:12]} are in it.", hint) from failed

    def _unstage(self, head: str, entry: Path) -> None:
        """The index that the agent sees: what `head` holds, nothing staged."""
        self._git.content("read-tree", "--reset", head, index=entry / "index", worktree=self.path)

    def _provide_again(self) -> None:
        """A worktree that had to be made anew lacks what copying and the set-up put there."""
        (self._notes / "setup").unlink(missing_ok=True)
        self._provide()

    # Looking

    def worklog(self) -> str:
        try:
            return read_regular(self.path / WORKLOG, LARGEST_WORKLOG).decode(errors="replace")
        except OSError:
            return ""

    def write_worklog(self, text: str) -> None:
        self._require_whole()
        file = self.path / WORKLOG
        if os.path.lexists(file) and not (file.is_symlink() or file.is_file()):
            put_aside(self._git, file)
        write_atomically(file, text.encode(errors="replace"), flush=False)

    def tree(self) -> str:
        self._require_whole()
        everything = self._snapshots.to_judge(self._base())
        self._judged = self._deliverable(everything)
        lost = [shown(d.path) for d in self._git.differences(self._judged, everything)]
        self._dropped = [path for path in lost if not path.startswith((WORKLOG, ".capsule/output/"))]
        return self._judged

    def checkpoint(self, label: str) -> Checkpoint:
        """Right after a look, only the worklog can have changed."""
        head, newest = self._settle_head(self._require_whole())
        if self._judged:
            everything, delivered = self._snapshots.with_worklog(self._base()), self._judged
            self._delivered[self._base(), everything] = delivered
        else:
            everything = self._snapshots.to_judge(self._base())
            delivered = self._deliverable(everything)
        self._judged, self._stands_at = "", self._name(everything, head, newest, label)
        self._trees[self._stands_at] = delivered
        checkpoint = Checkpoint(commit=self._stands_at, head=head, tree=delivered)
        if self._gated:  # tests run an agent's code, which may have reached in here: that must not pass for a human's
            self._gated, self._stands_at = False, ""
            self.restore(checkpoint)
            self._stands_at = checkpoint.commit
        return checkpoint

    def delivered(self, checkpoint: Checkpoint) -> str:
        """Asked of every checkpoint that the journal names: its commit is kept by a ref, its tree by nobody."""
        if checkpoint.commit == checkpoint.head:
            return checkpoint.tree
        if checkpoint.commit not in self._trees:
            self._trees[checkpoint.commit] = self._deliverable(self._git.tree_in(checkpoint.commit))
        return self._trees[checkpoint.commit]

    def touched_outside_commit(self) -> Sequence[str]:
        return [change.path for change in self.trees.changes(self.head(), self._judged or self.tree())]

    def head(self) -> str:
        return self._settle_head(self._require_whole())[0]

    # Keeping a step's work

    def write(self, path: str, content: bytes) -> None:
        self._require_whole()
        self._judged, self._stands_at = "", ""
        super().write(path, content)

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:
        entry = self._require_whole()
        head, _ = self._settle_head(entry)
        self._stands_at = ""
        self._unstage(self._commit_work(checkpoint, head, message_of(message, key)), entry)
        return None

    def _commit_work(self, checkpoint: Checkpoint, head: str, message: str) -> str:
        """Our branch with all that the checkpoint delivers; where it has that already, as it is."""
        git, held = self._git, self._git.tree_in(head)
        tree = with_changes(git, held, self.trees.work_between(held, self.delivered(checkpoint)))
        if tree == held:
            return head
        commit = git.commit_tree(tree, [head], message, by=git.identity, date=f"@{int(time.time())} +0000")
        git.move_refs(RefMove(self._refs.branch, commit, head), why="capsule: a step's work")
        return commit

    def follow(self, checkpoint: Checkpoint) -> None:
        """Stay: work that is merged at the end stands on its own base until then."""

    def hooks(self, tree: str, message: str) -> tuple[bool, str] | None:  # noqa: ARG002 (the adapter's)
        """A merge runs no hooks."""
        return None

    def checkpoint_at(self, commit: str) -> Checkpoint:
        """Name the state of the mission's own branch; the tracker's commit is made elsewhere."""
        return self.checkpoint(f"settled at {commit[:12]}" if commit else "settled")

    def salvage_and_reset(self, why: str) -> str:  # noqa: ARG002 (the adapter's)
        """Leave everything: nothing gets to the user's branch before the merge."""
        return ""

    # Moving on to another base

    def rebase(self, onto: str) -> tuple[Checkpoint, Sequence[str]]:
        newest = self._refs.standing().newest
        if not newest or not self._git.commit(newest).message.startswith(_REBASED + onto):
            newest = self._merge_onto(onto)
        merged = self._git.commit(newest)
        checkpoint = Checkpoint(newest, onto, graft(self._git, merged.tree, onto, self._artefacts))
        self.restore(checkpoint)
        self._git.move_refs(RefMove(self._refs.base, onto), why="capsule: rebase")
        self._set_base(onto)
        return checkpoint, json.loads(merged.message.partition("\n\n")[2])

    def _merge_onto(self, onto: str) -> str:
        """All the work as one change, merged with the new base; the worklog and its like stay as they are."""
        before = self.checkpoint("before a rebase")
        merged, conflicts = self.trees.merged(before.tree, onto)
        everything = graft(self._git, merged, before.commit, self._artefacts)
        commit = self.trees.commit(everything, [onto, before.commit], f"{_REBASED}{onto}\n\n{json.dumps(conflicts)}")
        self._git.move_refs(RefMove(self._refs.checkpoint, commit, before.commit))
        return commit

    # Ending

    def salvage(self, why: str) -> str:
        try:
            return self._salvage(why)
        except ObjectMissing:
            return self._keep_without_objects(why)

    def _keep_without_objects(self, why: str) -> str:
        """What the repository lacks cannot be committed: the files go to the shelf, and what is whole gets a ref."""
        standing = self._refs.standing()
        kept = [keep_commit(self._git, self._mission, tip, why) for tip in self._whole(standing.newest, standing.head)]
        return put_aside(self._git, self.path) if self.path.is_dir() else (kept or [""])[0]

    def _whole(self, *tips: str) -> list[str]:
        return [tip for tip in dict.fromkeys(tips) if tip and self._git.resolve(tip)]

    def _take_over_the_last(self) -> MissionRefs:
        """Take over what was committed in the place, and say where its refs are; a stranger's place is refused."""
        self._come_home()
        if entry := self._linked.whole():
            with contextlib.suppress(WorkspaceBroken):
                self._take_over(entry)
        standing = self._refs.standing()
        self._refuse_a_strangers(standing)
        return standing

    def _salvage(self, why: str) -> str:
        standing = self._take_over_the_last()
        base = standing.base or self._refs.put_base_back() or standing.head
        if not base:
            return ""
        self._base_commit = base
        entry = self._linked.whole()
        stray = self._git.resolve("HEAD", entry) if entry else ""
        tips = [oid for oid in dict.fromkeys((standing.head, stray, standing.newest)) if oid] or [base]
        last = standing.newest or standing.head or base
        tree = self._snapshots.to_save(base) if self.path.is_dir() else self._git.tree_in(last)
        return "" if self._is_only_the_base(base, tree, tips) else self._keep(tree, tips, why)

    def _is_only_the_base(self, base: str, tree: str, tips: Sequence[str]) -> bool:
        """Neither the files nor any commit or checkpoint hold anything but the base and artefacts."""
        trees = {tree, *self.trees.trees_between(base, *tips)}
        return all(self._deliverable(held) == self._git.tree_in(base) for held in trees)

    def remove(self, *, branch: bool) -> None:
        self._refuse_a_strangers(self._refs.standing())
        if branch:
            self._refuse_if_in_use()
        self._linked.remove()
        self._private.remove()
        self._gate.remove()
        self.guard.release()
        remove_tree(self._notes)
        gone = [self._refs.checkpoint, *([self._refs.branch, self._refs.base] if branch else [])]
        self._git.move_refs(*(RefMove(ref, "") for ref in gone), why="capsule: removed")
        self._base_commit = ""

    def _refuse_a_strangers(self, standing: MissionRefs) -> None:
        """Ours has a base, or a note of it; or else it is registered here and there is a branch of our name."""
        ours = standing.base or self._refs.noted_base() or (standing.head and self._linked.entry())
        if os.path.lexists(self.path) and not ours:
            hint = "Keep it somewhere else, or delete it yourself if you do not need it."
            raise Refused(f"{self.path} was not made by Capsule.", hint)

    def _refuse_if_in_use(self) -> None:
        for checkout in self._git.checkouts():
            if checkout.branch == self.branch and checkout.path != self.path and checkout.path.exists():
                hint = f"Switch to another branch there: git -C {checkout.path} switch -"
                raise Refused(f"{self.branch} is checked out in {checkout.path}.", hint)

    # Where we stand

    def _require_whole(self) -> Path:
        self._come_home()
        entry = self._linked.whole()
        if entry is None:
            what = "its .git file was removed or changed" if self.path.is_dir() else "it is gone"
            raise WorkspaceBroken(f"The worktree {self.path} is broken: {what}.")
        return entry

    def _settle_head(self, entry: Path) -> tuple[str, str]:
        """Our branch's commit and the newest checkpoint, HEAD brought home first where the agent took it elsewhere."""
        standing = self._refs.standing(entry)
        if standing.home and self._descends(standing.head):
            return standing.head, standing.newest
        return self._bring_home(standing, entry), standing.newest

    def _bring_home(self, standing: MissionRefs, entry: Path) -> str:
        """Our branch takes the commits HEAD stands at if they build on the base. What it does not take is salvaged."""
        stray = self._git.resolve("HEAD", entry)
        checkpointed = self._git.commit(standing.newest).parents[0] if standing.newest else ""
        tips = [oid for oid in dict.fromkeys((stray, standing.head)) if oid]
        chosen = next(oid for oid in (*tips, checkpointed, self._base()) if oid and self._descends(oid))
        lost = [oid for oid in tips if not self._git.is_ancestor(oid, chosen)]
        if lost:
            self._keep(self._git.tree_in(lost[0]), lost, "commits that left the mission's branch")
        self._point_at(chosen, entry)
        return chosen

    def _descends(self, oid: str) -> bool:
        known = (self._base(), oid)
        if oid == self._base():
            return True
        if known not in self._descendants and self._git.is_ancestor(*known):
            self._descendants.add(known)
        return known in self._descendants

    # Commits of ours

    def _deliverable(self, everything: str) -> str:
        key = (self._base(), everything)
        if key not in self._delivered:
            base = self._git.tree_in(self._base())
            strays = [d for d in self._git.differences(everything, base) if self._not_ours(shown(d.path))]
            tree = with_changes(self._git, everything, strays)
            self._delivered[key] = graft(self._git, tree, self._base(), self._artefacts)
        return self._delivered[key]
