"""A mission's place: a linked worktree on its own branch, and the gate for checking claims.

    .capsule/worktrees/<id>/             the worktree
    refs/heads/capsule-<id>              the branch the agents commit to
    refs/capsule/base/<id>               where the mission started; made first, removed last: "this mission is ours"
    refs/capsule/checkpoints/<id>        the newest named state; earlier ones are its ancestors
    refs/capsule/salvage/<id>/<n>        what would have been lost
    <common>/capsule/places/<id>/        our own index of the files, and notes: the base, copied files, set-ups

**While an agent or a command is in it**, the worktree has a git directory of their own (`private_git`): in a sandbox
that is what they see in the place of `.git`; without one, the worktree's `.git` file names it. Either way `git -C
.capsule/worktrees/<id> status` works at any moment, also after kill -9.

The tree that would be *delivered* is everything in the worktree (`snapshot`) with the artefacts as on the base: what an
agent does to the tracker's files, to settings or to another item's documents is dropped, and reported.

**Names are never believed.** The worktree's `.git` file is compared, not followed; HEAD is brought back to our branch
before anything is named; a branch that no longer holds the base is put back, and its commits are salvaged.

**Everything can be repeated.** The holder of the mission's lock may be killed at any point: the next call inspects and
completes. The order matters in two places only. `prepare` makes the base ref before the branch and the folder, so a
branch or folder without that ref is not ours. `rebase` writes its result down as a checkpoint before it touches a file,
so a second try finds it and does not merge what is merged already.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from capsule.adapters import TestSite
from capsule.core.briefing import SandboxPaths
from capsule.core.errors import Refused, WorkspaceBroken
from capsule.core.evidence import Checkpoint
from capsule.core.manifests import how_to_install, is_manifest, wanted_by
from capsule.system import git_locks
from capsule.system.files import read_regular, write_atomically
from capsule.system.folders import make_writable, remove_tree
from capsule.system.git import Git, GitFailed, ObjectMissing
from capsule.system.git_directory import pointed_to
from capsule.system.git_objects import RefMove, shown
from capsule.workspaces.checkouts import make_folder, passes_link
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.gate import Gate
from capsule.workspaces.linked import LinkedWorktree, detach_submodules, remove_what_stops_git
from capsule.workspaces.mission_refs import MissionRefs, RefReader
from capsule.workspaces.private_git import LeftCommits, PrivateGit, mounted_paths, unmounted_paths
from capsule.workspaces.probe import strays
from capsule.workspaces.provision import Provisions, RunSetup, recall_paths, remember_paths
from capsule.workspaces.salvage import keep_commit, put_aside
from capsule.workspaces.snapshot import LARGEST_WORKLOG, WORKLOG, Snapshots
from capsule.workspaces.step_commits import message_of
from capsule.workspaces.trees import GitTrees, all_artefacts, graft, is_artefact, with_changes, with_files
from capsule.workspaces.tripwire import Tripwire

_NAMED = 5
"""The most paths in a message."""
_REBASED = "rebased onto "
_PAPERS = (WORKLOG, ".capsule/output")
"""Files of the pipeline in a place; no base has them."""


class GitWorktree:
    """A Place for work that is merged at the end; `StepwiseWorktree` publishes step by step."""

    publishes_to = ""
    _trees_type = GitTrees

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
        mounted: bool = False,
        confined: bool = False,
        not_ours: Callable[[str], bool] = lambda _path: False,
        lent: Callable[[], Mapping[str, bytes]] = dict,
        documents: Callable[[], Mapping[str, bytes]] = dict,
        disk_shortage: Callable[[], str] = str,
    ) -> None:
        """`mounted`: a sandbox shows place and gate at the checkout's own path. `confined`: a sandbox keeps agents to
        the paths they are given, so nothing else is watched. `not_ours`: paths outside of this mission's work, even if
        its agents change them. `lent`: files that agents see and do not change. `documents`: those that its item has
        already, if they are kept elsewhere. `disk_shortage` reports a full disk."""
        self.path = git.root / ".capsule" / "worktrees" / mission
        self.branch = f"capsule-{mission}"
        self._git = git
        self._mission = mission
        self._artefacts = all_artefacts(artefacts)
        self._mounted = mounted
        self._confined = confined
        self._not_ours = not_ours
        self._lent = lent
        self._documents = documents
        self._missing_room = disk_shortage
        self._told_of_room = False
        self._notes = git.capsule_dir / "places" / mission
        self._filled = self._notes / "filled"
        self._logs = git.root / ".capsule" / "missions" / mission
        self._worklog = self.path / WORKLOG
        self._refs = RefReader(git, mission, self._notes / "base", self.branch)
        self._provisions = Provisions(dependencies or Dependencies(git, detect=not setup), setup, copy, run_setup)
        self._snapshots = Snapshots(git, self.path, self._notes)
        self._linked = LinkedWorktree(git, self.path, self.branch)
        self._private = PrivateGit(git, mission, self.branch)
        self._gate = Gate(git, mission, self._notes, self._provisions, mounted=mounted)
        self.guard = Tripwire(git, mission, idle=confined)
        self.trees = self._trees_type(git, self.branch, self._artefacts, base=self._base, head=self.head)
        self._base_commit = ""
        self._dropped: list[str] = []
        self._delivered: dict[tuple[str, str], str] = {}
        """Deliverable trees, by the base and by everything that is there."""
        self._occupied = False
        """Between `open_sandbox` and `import_commits`: an agent or a command has a git directory of its own here."""
        self._gated = False
        """The gate was entered since the last checkpoint, by tests that can reach this place as well."""
        self._judged = ""
        """The last deliverable tree, while only we have worked since."""
        self._at_checkpoint = ""
        """The last checkpoint, while nothing has worked since."""

    # Beginning

    def prepare(self, base: str) -> Sequence[str]:
        standing = self._refs.load()
        known, head = standing.base or self._adopt_or_refuse(base, standing.head), standing.head or base
        if not standing.head:
            known = base
            moves = (RefMove(self._refs.base, base), RefMove(self._refs.branch, base, ""))
            self._git.move_refs(*moves, why=f"capsule: {self._mission} begins")
        elif not standing.base:
            self._git.move_refs(RefMove(self._refs.base, known, ""))
        self._set_base(known)
        entry, made = self._linked.ensure(head)
        warnings: list[str] = []
        bare = len(list(self.path.iterdir())) == 1  # nothing but `.git`
        if bare or not self._filled.exists():
            warnings += self._fill(head, entry, bare=bare)
        elif made:
            self._unstage(head, entry)
        if known != base and not self.publishes_to:
            warnings.append(f"{self._mission} started from {known[:10]} and goes on from there.")
        return [*warnings, *self._provide()]

    def _adopt_or_refuse(self, base: str, tip: str) -> str:
        """Refuse a folder or branch that is not ours: without our ref, it must be registered here on our branch."""
        if tip and self._linked.whole():
            return self._git.merge_base(base, tip) or base
        if tip:
            hint = f"Rename it: git branch -m {self.branch} {self.branch}-old"
            raise Refused(f"There is a branch {self.branch} that Capsule did not make.", hint)
        if os.path.lexists(self.path):
            raise Refused(f"{self.path} exists, and was not made by Capsule.", "Move it somewhere else.")
        return base

    def _fill(self, head: str, entry: Path, *, bare: bool) -> list[str]:
        """Write the files of a worktree that lacks some; salvage what differs first, and return a warning about it."""
        kept = ""
        if not bare:
            self._snapshots.start_from(head)
            there = self._snapshots.to_save(self._base())
            kept = self._salvage_unreachable(there, [], held=[head], why="found where the worktree was to be")
        self._snapshots.forget()
        self._write_out(head)
        self._snapshots.copy_index(entry / "index")
        self._filled.touch()
        return [f"What was in {self.path} is kept as {kept}."] if kept else []

    def _provide(self) -> Sequence[str]:
        """Add dependencies and copies, and run the set-up, if that was not done yet; return warnings."""
        files = self._git.list_tree(self._base(), recursive=True)
        copied = self._provisions.copy_into(self.path, self._git.root, frozenset(file.path for file in files))
        if not self._mounted:
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
            self._provisions.run(self.path, self._logs / "setup.log", sandbox_paths)
        finally:
            self.import_commits()
        write_atomically(note, inputs)
        changed = [change.path for change in self.trees.changes(before, self.tree())]
        return [f"workspace.setup changed files that git does not ignore: {', '.join(changed)}"] if changed else []

    # An agent works in the place

    def open_sandbox(self) -> SandboxPaths:
        self._private.make(self._require_whole())
        self._judged, self._at_checkpoint, self._occupied = "", "", True
        self._lend()
        at, paths = (self._git.root, mounted_paths) if self._mounted else (self.path, unmounted_paths)
        if not self._mounted:
            self._linked.point_at(self._private.path)
        return paths(self._git, self.path, self._private.path, self._provisions.dependencies.layers(self._base(), at))

    def _lend(self) -> None:
        """Put current copies of what is lent into the place, where no snapshot sees them."""
        files = {path: data for path, data in self._lent().items() if not passes_link(self.path, self.path / path)}
        known = recall_paths(self._notes / "copied")
        if new := {os.fsencode(path) for path in files} - {*known}:
            remember_paths(self._notes / "copied", {*known, *new})
        for path, data in files.items():
            make_folder((self.path / path).parent)
            write_atomically(self.path / path, data, flush=False)

    def import_commits(self) -> None:
        self._take_over(self._require_whole())

    def _restore_git_pointer(self) -> None:
        """Point the worktree's `.git` at its own entry again, whatever an agent put there."""
        if self.path.is_dir() and (self._occupied or pointed_to(self.path / ".git") == self._private.path):
            entry = self._linked.entry()
            if entry and not self._mounted:
                self._linked.point_at(entry)
        self._occupied = False

    def _take_over(self, entry: Path) -> None:
        """Import the commits of a private git directory, if there is one; HEAD is restored later."""
        remove_what_stops_git(self.path)
        if not self._private.path.is_dir():
            return
        left = self._private.left()
        try:
            self._private.import_commits(left)
        except WorkspaceBroken:
            self._private.shelve_refused()
            raise
        self._adopt_commits(left, entry)
        self._private.remove()
        detach_submodules(self.path, self._snapshots.submodules_of(self._base()))

    def _adopt_commits(self, left: LeftCommits, entry: Path) -> None:
        self._private.move_branch(left)
        if left.stray:
            self._git.repository("update-ref", "--no-deref", "HEAD", left.stray, git_dir=entry)
        if left.tips:
            self._unstage(left.tips[-1], entry)

    def notices(self) -> Sequence[str]:
        dropped, self._dropped = self._dropped, []
        more = f" and {len(dropped) - _NAMED} more" if len(dropped) > _NAMED else ""
        told = [f"changes to {', '.join(dropped[:_NAMED])}{more} were dropped: they are no part of this work"]
        room = "" if self._told_of_room else self._missing_room()
        self._told_of_room = self._told_of_room or bool(room)
        return [*(told if dropped else ()), *([room] if room else ()), *self.guard.notices()]

    # Restoring

    def restore(self, checkpoint: Checkpoint) -> str:
        return self._put_back(checkpoint)

    def _put_back(self, checkpoint: Checkpoint) -> str:
        """Make the place equal to a checkpoint, on its current base; return the ref of what would be lost."""
        at_checkpoint, self._at_checkpoint, self._judged = self._at_checkpoint, "", ""
        if at_checkpoint == checkpoint.commit and self._linked.whole():
            return ""
        self._restore_git_pointer()
        if not self._git.ref(self._refs.branch):
            self._git.move_refs(RefMove(self._refs.branch, checkpoint.head, ""), why="capsule: the branch again")
        entry, made = self._linked.ensure(checkpoint.head)
        for lock in (*entry.glob("*.lock"), self._git.common_dir / f"{self._refs.branch}.lock"):  # of a killed git
            git_locks.clear_if_stale(lock, self._git.common_dir, [self.path], older_than=0)
        # Leftovers of an interrupted phase may be refused: they are on the shelf.
        with contextlib.suppress(WorkspaceBroken):
            self._take_over(entry)
        standing = self._refs.load(entry)
        there = self._snapshots.to_save(self._base())
        at_head = standing.home and standing.head == checkpoint.head
        kept = ""
        if made or not at_head or there != self._git.tree_in(checkpoint.commit):
            stray = "" if standing.home else self._git.resolve("HEAD", entry)
            held = [oid for oid in (checkpoint.commit, standing.newest, self._base()) if oid]
            kept = self._salvage_unreachable(there, [standing.head, stray], held=held, why="before a phase")
            self._check_out(checkpoint.head, checkpoint.commit, entry)
        if made:  # it lacks the copies and the set-up's files
            (self._notes / "setup").unlink(missing_ok=True)
            self._provide()
        return kept

    def _check_out(self, head: str, tree: str, entry: Path) -> None:
        """Put HEAD on our branch and our branch at `head`, write the files of `tree`, and stage nothing."""
        self._point_at(head, entry)
        self._write_out(tree)
        self._unstage(head, entry)

    def _point_at(self, head: str, entry: Path) -> None:
        self._git.repository("symbolic-ref", "-m", "capsule", "HEAD", self._refs.branch, git_dir=entry)
        self._git.move_refs(RefMove(self._refs.branch, head), why="capsule")

    def _write_out(self, commit: str) -> None:
        try:
            self._snapshots.write_out(commit, self._base())
        except GitFailed as failed:
            # A partial clone has files only of what was checked out; no git of ours fetches.
            partly = any((self._git.common_dir / "objects/pack").glob("*.promisor"))
            if partly and "unable to read sha1 file" in failed.said:
                cause = f"This is a partial clone, and not all files of {commit[:12]} are in it."
                hint = f"Fetch them: git diff --shortstat $(git hash-object -t tree /dev/null) {commit[:12]}"
                raise Refused(cause, hint) from failed
            make_writable(self.path)
            self._snapshots.write_out(commit, self._base())

    def _unstage(self, head: str, entry: Path) -> None:
        """Make the index that the agent sees hold what `head` holds, and nothing staged."""
        self._git.content("read-tree", "--reset", head, index=entry / "index", worktree=self.path)

    # Reading

    def worklog(self) -> str:
        with contextlib.suppress(OSError):
            return read_regular(self._worklog, LARGEST_WORKLOG).decode(errors="replace")
        return ""

    def write_worklog(self, text: str) -> None:
        self._require_whole()
        self._put_worklog(text)

    def _put_worklog(self, text: str) -> None:
        file = self._worklog
        if os.path.lexists(file) and not (file.is_symlink() or file.is_file()):
            put_aside(self._git, file)
        write_atomically(file, text.encode(errors="replace"), flush=False)

    def tree(self) -> str:
        self._require_whole()
        everything = self._snapshots.to_judge(self._base())
        self._judged = self._deliverable(everything)
        lost = [shown(d.path) for d in self._git.differences(self._judged, everything)]
        self._dropped = [path for path in lost if not path.startswith(_PAPERS)]
        return self._judged

    def checkpoint(self, label: str) -> Checkpoint:
        head, newest = self._settle_head(self._require_whole())
        if self._judged:  # right after a snapshot, only the worklog can have changed
            everything, delivered = self._snapshots.with_worklog(self._base()), self._judged
            self._delivered[self._base(), everything] = delivered
        else:
            everything = self._snapshots.to_judge(self._base())
            delivered = self._deliverable(everything)
        commit = newest
        if not newest or self._named_by(newest) != (everything, head):
            commit = self.trees.commit(everything, [head, newest], label)
            self._git.move_refs(RefMove(self._refs.checkpoint, commit, newest))
        self._judged, self._at_checkpoint = "", commit
        checkpoint = Checkpoint(commit=commit, head=head, tree=delivered)
        # Tests run an agent's code, which may have changed files here: that must not count as a person's edit.
        if self._gated:
            self._gated, self._at_checkpoint = False, ""
            self._put_back(checkpoint)
            self._at_checkpoint = commit
        return checkpoint

    def _named_by(self, checkpoint: str) -> tuple[str, str]:
        """Return the tree and the head that a checkpoint names."""
        known = self._git.commit(checkpoint)
        return known.tree, known.parents[0]

    def base_checkpoint(self, base: str) -> Checkpoint:
        return Checkpoint(commit=base, head=base, tree=self._git.tree_in(base))

    def beginning(self, base: str) -> Checkpoint:
        found = self.base_checkpoint(base)
        tree = with_files(self._git, found.tree, self._documents())
        return found if tree == found.tree else Checkpoint(self.trees.commit(tree, [base], "documents"), base, tree)

    def delivered(self, checkpoint: Checkpoint) -> str:
        """Return a checkpoint's tree; rebuild it if git has removed it, as a ref keeps only its commit."""
        if checkpoint.commit == checkpoint.head:
            return checkpoint.tree
        return self._deliverable(self._git.tree_in(checkpoint.commit))

    def touched_outside_commit(self) -> Sequence[str]:
        return [change.path for change in self.trees.changes(self.head(), self._judged or self.tree())]

    def head(self) -> str:
        return self._settle_head(self._require_whole())[0]

    # The gate

    def gate(self, tree: str, edits: Mapping[str, bytes] | None = None) -> TestSite:
        self._gated = not self._confined
        return self._gate.site(tree, self._base(), edits or {})

    def variables(self, folder: Path) -> Mapping[str, str]:
        base = self._base_commit or self._refs.load().base
        at = self._git.root if self._mounted else folder
        judged = folder != self.path
        found = self._provisions.dependencies.variables(base, at, folder, judged=judged) if base else {}
        return {**found, **self._gate.caches.variables()} if judged else found

    def keep_caches(self, tree: str) -> None:
        base = self._base()
        if tree == self._git.tree_in(base) and self._git.is_ancestor(base, self._git.resolve("HEAD")):
            self._gate.caches.keep()

    def missing_setup(self, tree: str) -> tuple[str, str]:
        if self._provisions.setup:
            return "", ""
        base = self._base()

        def wanted(tree: str, path: str) -> str:
            return wanted_by(path, (self._git.read_file(tree, path) or b"").decode(errors="replace"))

        differing = [os.fsdecode(difference.path) for difference in self.trees.work_between(base, tree)]
        changed = [path for path in filter(is_manifest, differing) if wanted(base, path) != wanted(tree, path)]
        if not changed:
            return "", ""
        return how_to_install(changed, self._provisions.dependencies.paths(base), self.trees.files(tree))

    def strays(self, tree: str, folder: Path, test: str, ask: Callable[[str], str]) -> Sequence[tuple[str, str]]:
        folders = self._provisions.dependencies.import_folders(self._base())
        return strays(self._git.root, folder, self.trees.files(tree), folders=folders, test=test, ask=ask)

    def hooks(self, tree: str, message: str) -> tuple[bool, str] | None:  # noqa: ARG002 (the adapter's)
        """Run none: a merge runs no hooks."""
        return None

    # Keeping a step's work

    def write(self, path: str, content: bytes) -> None:
        self._require_whole()
        self._judged, self._at_checkpoint = "", ""
        file, plain = self.path / path, PurePosixPath(path)
        if not plain.parts or plain.is_absolute() or {"..", ".git"} & set(plain.parts):
            raise Refused(f"{path!r} is no path in the project.", "Give one relative to its root.")
        if is_artefact(path.encode(errors="surrogateescape"), self._artefacts):
            raise Refused(f"{path} is kept by Capsule and is no part of the work.", "Choose another path.")
        if passes_link(self.path, file) or (file.exists() and not file.is_symlink() and not file.is_file()):
            raise Refused(f"{path} is not a plain file in {self.path}.", "Move away what is in its place.")
        make_folder(file.parent)
        write_atomically(file, content)

    def commit_step(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:
        git, entry = self._git, self._require_whole()
        head, _ = self._settle_head(entry)
        self._at_checkpoint = ""
        held = git.tree_in(head)
        tree = with_changes(git, held, self.trees.work_between(held, self.delivered(checkpoint)))
        if tree != held:  # else our branch has all that the checkpoint delivers
            old, date = head, f"@{int(time.time())} +0000"
            head = git.commit_tree(tree, [old], message_of(message, key), by=git.identity, date=date)
            git.move_refs(RefMove(self._refs.branch, head, old), why="capsule: a step's work")
        self._unstage(head, entry)
        return None

    def follow(self, checkpoint: Checkpoint) -> None:
        """Do nothing: work that is merged at the end stays on its own base until then."""

    def checkpoint_at(self, commit: str) -> Checkpoint:
        """Name the state of the mission's own branch; the tracker's commit is made elsewhere."""
        return self.checkpoint(f"settled at {commit[:12]}" if commit else "settled")

    def salvage_and_reset(self, why: str) -> str:  # noqa: ARG002 (the adapter's)
        """Do nothing: the user's branch gets nothing before the merge."""
        return ""

    # Moving on to another base

    def rebase(self, onto: str, message: str = "") -> tuple[Checkpoint, Sequence[str]]:
        newest = self._refs.load().newest
        if not newest or not self._git.commit(newest).message.startswith(_REBASED + onto):
            # All the work, as one change, is merged with the new base; artefacts stay as they are.
            before = self.checkpoint("before a rebase")
            both, conflicts = self.trees.merged(before.tree, onto)
            everything, words = graft(self._git, both, before.commit, _PAPERS), json.dumps(conflicts)
            head = self._rebuilt(both, onto, message) if message and not conflicts else onto
            newest = self.trees.commit(everything, [head, before.commit], f"{_REBASED}{onto}\n\n{words}")
            self._git.move_refs(RefMove(self._refs.checkpoint, newest, before.commit))
        merged = self._git.commit(newest)
        checkpoint = Checkpoint(newest, merged.parents[0], graft(self._git, merged.tree, onto, self._artefacts))
        self.restore(checkpoint)
        self._git.move_refs(RefMove(self._refs.base, onto), why="capsule: rebase")
        self._set_base(onto)
        return checkpoint, json.loads(merged.message.partition("\n\n")[2])

    def _rebuilt(self, tree: str, onto: str, message: str) -> str:
        """Commit the rebuilt work on another commit; return that commit if nothing is left of it."""
        work, date = graft(self._git, tree, onto, self._artefacts), f"@{int(time.time())} +0000"
        if work == self._git.tree_in(onto):
            return onto
        return self._git.commit_tree(work, [onto], f"{message}\n", by=self._git.identity, date=date)

    # Ending

    def salvage(self, why: str) -> str:
        try:
            return self._salvage(why)
        except ObjectMissing:
            # If the repository lacks objects, the files go to the shelf, and intact commits get a ref.
            standing = self._refs.load()
            whole = [tip for tip in dict.fromkeys((standing.newest, standing.head)) if tip and self._git.resolve(tip)]
            kept = [keep_commit(self._git, self._mission, tip, why) for tip in whole]
            return put_aside(self._git, self.path) if self.path.is_dir() else (kept or [""])[0]

    def _salvage(self, why: str) -> str:
        standing = self._take_over_the_last()
        base = self._base_commit = standing.base or self._refs.put_base_back() or standing.head
        if not base:
            return ""
        entry = self._linked.whole()
        stray = self._git.resolve("HEAD", entry) if entry else ""
        tips = [oid for oid in dict.fromkeys((standing.head, stray, standing.newest)) if oid] or [base]
        last = standing.newest or standing.head or base
        tree = self._snapshots.to_save(base) if self.path.is_dir() else self._git.tree_in(last)
        trees = {tree, *self.trees.trees_between(base, *tips)}
        only_the_base = all(self._deliverable(held) == self._git.tree_in(base) for held in trees)
        return "" if only_the_base else self._keep(tree, tips, why)

    def _take_over_the_last(self) -> MissionRefs:
        """Import commits of the place, and return its refs; refuse a place that is not ours."""
        self._restore_git_pointer()
        if entry := self._linked.whole():
            with contextlib.suppress(WorkspaceBroken):
                self._take_over(entry)
        standing = self._refs.load()
        self._refuse_a_strangers(standing)
        return standing

    def remove(self, *, branch: bool) -> None:
        self._refuse_a_strangers(self._refs.load())
        for checkout in self._git.checkouts() if branch else ():
            if checkout.branch == self.branch and checkout.path != self.path and checkout.path.exists():
                hint = f"Switch to another branch there: git -C {checkout.path} switch -"
                raise Refused(f"{self.branch} is checked out in {checkout.path}.", hint)
        self._linked.remove()
        self._private.remove()
        self._gate.remove()
        self.guard.release()
        remove_tree(self._notes)
        gone = [self._refs.checkpoint, *([self._refs.branch, self._refs.base] if branch else [])]
        self._git.move_refs(*(RefMove(ref, "") for ref in gone), why="capsule: removed")
        self._base_commit = ""

    def _refuse_a_strangers(self, standing: MissionRefs) -> None:
        """Refuse a place without a base or a note of one, unless it is registered here on our branch."""
        ours = standing.base or self._refs.noted_base() or (standing.head and self._linked.entry())
        if os.path.lexists(self.path) and not ours:
            hint = "Keep it somewhere else, or delete it yourself if you do not need it."
            raise Refused(f"{self.path} was not made by Capsule.", hint)

    # The current state

    def _base(self) -> str:
        if not self._base_commit:
            self._base_commit = self._refs.load().base or self._refs.put_base_back()
            if not self._base_commit:
                raise Refused(f"{self._mission} has no worktree yet.", f"Make one: capsule prep {self._mission}")
        return self._base_commit

    def _set_base(self, base: str) -> None:
        self._base_commit = base
        self._refs.note_base(base)

    def _require_whole(self) -> Path:
        self._restore_git_pointer()
        entry = self._linked.whole()
        if entry is None:
            what = "its .git file was removed or changed" if self.path.is_dir() else "it is gone"
            raise WorkspaceBroken(f"The worktree {self.path} is broken: {what}.")
        return entry

    def _settle_head(self, entry: Path) -> tuple[str, str]:
        """Return our branch's commit and the newest checkpoint; first restore HEAD if the agent moved it.

        Our branch takes HEAD's commits if they build on the base; others are salvaged.
        """
        git, base, standing = self._git, self._base(), self._refs.load(entry)
        if standing.home and git.is_ancestor(base, standing.head):
            return standing.head, standing.newest
        stray = git.resolve("HEAD", entry)
        checkpointed = self._named_by(standing.newest)[1] if standing.newest else ""
        tips = [oid for oid in dict.fromkeys((stray, standing.head)) if oid]
        chosen = next(oid for oid in (*tips, checkpointed, base) if oid and git.is_ancestor(base, oid))
        lost = [oid for oid in tips if not git.is_ancestor(oid, chosen)]
        if lost:
            self._keep(git.tree_in(lost[0]), lost, "commits that left the mission's branch")
        self._point_at(chosen, entry)
        return chosen, standing.newest

    def _deliverable(self, everything: str, base: str = "") -> str:
        """Return the tree of the whole place, with artefacts and foreign files as on the base, or another one."""
        git, base = self._git, base or self._base()
        key = (base, everything)
        if key not in self._delivered:
            differing = git.differences(everything, git.tree_in(base))
            tree = with_changes(git, everything, [d for d in differing if self._not_ours(shown(d.path))])
            self._delivered[key] = graft(git, tree, base, self._artefacts)
        return self._delivered[key]

    # Keeping what would be lost

    def _salvage_unreachable(self, there: str, tips: Sequence[str], *, held: Sequence[str], why: str) -> str:
        """Salvage files and commits that no commit in `held` has."""
        files = all(self._has_more(there, than=self._git.tree_in(oid)) for oid in held)
        lost = [tip for tip in tips if tip and not any(self._git.is_ancestor(tip, oid) for oid in held)]
        return self._keep(there, [*lost, *held], why) if files or lost else ""

    def _has_more(self, there: str, *, than: str) -> bool:
        """Tell whether a tree has what another lacks; a file that is merely missing is no loss."""
        return any(found.kind != "D" for found in self._git.differences(than, there))

    def _keep(self, tree: str, parents: Sequence[str], why: str) -> str:
        """Keep a state under a ref of its own; the same state once."""
        return keep_commit(self._git, self._mission, self.trees.commit(tree, parents, why), why)
