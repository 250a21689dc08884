"""The project's own checkout as a mission's place: commits go to the branch that its user has checked out.

The user shares this place, so it is treated as theirs. It is entered clean. What an agent leaves is work until a step
is booked (`books`), and then it is committed, or until the step has failed, and then it is withdrawn: kept under a ref,
the files as before. Files are changed path by path and only from a state that we have seen; nothing is ever reset.

Three things are never part of the work and never touched: ignored files, the tracker's own files, and what belongs to
Capsule. So the tree that a step would deliver is everything there is (`snapshot`) with those *as on the branch*.

**While an agent is at work** (`AtWork`, noted before it is let loose), what appears on the branch and is not ours is
taken off again (`unasked`), HEAD comes home, a merge that was left half done is forgotten: all of that turns into what
it is, files that differ. Settings lie there as before (`settings_guard`). `notices` tells. **While none is**, it is
the user's branch: whatever they committed, merged or pulled is where the next phase starts from, and what they have not
committed is refused as at the start.

**After a crash, what is there stays.** A phase starts from head plus the work named in the last checkpoint. If every
file is as in one of the two, we write out what is missing. If not, and an agent was at work: that state is kept under a
ref, and the phase starts from it as it is.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from capsule.core.errors import Refused
from capsule.core.evidence import Change, Checkpoint
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import RefMove, shown
from capsule.system.lock import FileLock
from capsule.workspaces.checkouts import bring_files, settle_index, unstage
from capsule.workspaces.claim import AtWork, Standing, at_work_note
from capsule.workspaces.dependencies import Dependencies
from capsule.workspaces.hooks import Hooks, fingerprint
from capsule.workspaces.linked import remove_tree
from capsule.workspaces.place import GitPlace
from capsule.workspaces.provision import Provisions, RunSetup
from capsule.workspaces.repository import base_of, checked_out, dirty_paths, refuse_if_under_way
from capsule.workspaces.salvage import kept_trees
from capsule.workspaces.settings_guard import WATCHED, SettingsGuard
from capsule.workspaces.trees import graft, with_changes
from capsule.workspaces.unasked import Sieve, bring_home, end_what_is_under_way

LARGEST_WORKLOG = 8 * 1024 * 1024
_LONGEST_NOTE = 4096
_LOCK_WAIT = 60.0
_NAMED = 5
"""How many paths an error names."""


class Checkout(GitPlace):
    """The Workspace door on the main worktree."""

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
    ) -> None:
        provisions = Provisions(setup, copy, run_setup, dependencies or Dependencies(git, detect=not setup))
        super().__init__(git, mission, git.root, "", artefacts=artefacts, provisions=provisions, shared=True)
        self._worklog = self._logs / "worklog.md"
        self._known = ""
        self._judged: tuple[str, str] | None = None
        """Head and tree that were looked at last, while nobody but us has been at work since."""
        self._at_work = AtWork(at_work_note(git, mission))
        self._agent_was_here = False
        """We let it loose ourselves: after a crash, whoever switched branches or began a merge may be the user."""
        self._settings = SettingsGuard(git, self._notes / "settings")
        self._began: dict[str, str] = {}
        """What the phase was to start from, and what it started from, where the user had committed meanwhile."""
        self._notices: list[str] = []
        self._be_on(self._noted("branch") or checked_out(git))

    def notices(self) -> Sequence[str]:
        """What was put right since this was last asked, for whoever watches."""
        told, self._notices = self._notices, []
        return told

    # Beginning

    def prepare(self, base: str) -> Sequence[str]:
        refuse_if_under_way(self._git)
        started = self._claim.standing().base
        if not started:
            self._begin(base)
            return []
        self._refuse_elsewhere()
        self._set_base(started)
        if not self._at_work.has_left_something():
            self._refuse_dirty(self.head())
        same = started == base
        return [] if same else [f"{self._mission} started from {started[:10]} and goes on from there."]

    def _begin(self, base: str) -> None:
        branch, tip = checked_out(self._git), base_of(self._git)
        if not branch:
            hint = "Choose a branch: git switch NAME, or git switch -c NAME for a new one"
            raise Refused("HEAD is detached, and work in the checkout goes to a branch.", hint)
        if base != tip and not self._git.is_ancestor(base, tip):
            hint = "Switch to the branch that it is to start from, or use `workspace: worktree`."
            raise Refused(f"{branch}, which is checked out, does not hold {base[:10]}.", hint)
        self._be_on(branch)
        self._refuse_dirty(tip)
        write_atomically(self._notes / "branch", branch)
        self._remember(tip)
        self._set_base(base)
        self._git.move_refs(RefMove(self._claim.base, base, ""), why=f"capsule: {self._mission} begins")

    def _refuse_dirty(self, tip: str) -> None:
        """By git's own eyes, then by ours: a flag in the index can hide a file from git, and none hides one from us."""
        seen = dirty_paths(self._git, self._artefacts, head=tip)
        if seen:
            raise _not_clean(seen)
        self._snapshots.forget()
        hidden = [change.path for change in self.changes(tip, self._snapshots.to_judge(tip))]
        if hidden:
            hint = "Clear the flag (git update-index --no-skip-worktree --no-assume-unchanged), or use a worktree."
            raise Refused(f"Files differ that git was told not to look at: {_some(hidden)}.", hint)

    # Going on

    def restore(self, checkpoint: Checkpoint) -> str:
        self._judged = None
        self._make_sure_of_the_place(checkpoint)
        head, _ = self._settle()
        held, there = self._git.tree_in(head), self._there(head)
        target = self._with_work(head, checkpoint)
        between, kept = self._is_between(there, held, target), ""
        if not (between or self._at_work.has_left_something()):
            raise _not_clean([change.path for change in self.changes(held, there)])
        self._let_loose(head)
        if between:
            self._write_out(there, target)
        else:
            kept = self._keep(there, [head], "left behind by an interrupted phase")
        self._began = {} if head == checkpoint.head else {checkpoint.head: head, checkpoint.commit: target}
        return kept

    def _make_sure_of_the_place(self, checkpoint: Checkpoint) -> None:
        """Whoever tidies up in the repository can take our refs and notes away."""
        if not (self._claim.standing().base or self._claim.put_base_back()):
            self._begin(self._base_commit or checkpoint.head)

    def _let_loose(self, head: str) -> None:
        """From here on, whatever happens may be an agent's doing."""
        self._remember(head)
        self._settings.remember()
        self._at_work.begins(head, self._at_work.hooks or fingerprint(self._git))
        self._agent_was_here = True

    def _with_work(self, head: str, checkpoint: Checkpoint) -> str:
        """Head with the work of a checkpoint; what the user committed since stays, also in files that both changed."""
        git, held = self._git, self._git.tree_in(head)
        was, worked = git.tree_in(checkpoint.head), git.tree_in(checkpoint.commit)
        work = self._work_between(was, worked)
        theirs = {d.path: d.new for d in git.differences(was, held)} if work else {}
        both = {d.path for d in work if theirs.get(d.path, d.new) != d.new}
        if not both:
            return with_changes(git, held, work, self._notes)
        merged, conflicts = held, tuple(map(shown, both))
        if git.is_ancestor(checkpoint.head, head):
            merged, conflicts = git.merge_trees(head, self._commit(worked, [checkpoint.head], "work"))
        due = [d for d in git.differences(held, merged) if d.path in both and shown(d.path) not in conflicts]
        left = [shown(path) for path in both if shown(path) in conflicts]
        if left:
            words = "were changed by the work and on the branch in the same lines, and are as on the branch"
            self._notices.append(f"{_some(sorted(left))} {words}")
        return with_changes(git, held, [*(d for d in work if d.path not in both), *due], self._notes)

    def _is_between(self, there: str, one: str, other: str) -> bool:
        """Every file is as in one tree or as in the other."""
        wanted = {d.path: d.new for d in self._git.differences(one, other)}
        return all(wanted.get(d.path) == d.new for d in self._git.differences(one, there))

    def settled(self, commit: str) -> Checkpoint:
        self._judged = None
        self._at_work.is_over()
        if commit:
            self._remember(commit)
        head = commit or self.head()
        return self.base_checkpoint(head)

    def hand_over(self, checkpoint: Checkpoint, message: str, key: str) -> Checkpoint | None:  # noqa: ARG002 (the door's)
        """The work goes into the commit of the books."""
        return checkpoint

    def withdraw(self, why: str) -> str:
        """Twice where ignore rules were changed: what counts as ignored is the user's to say, not the agent's."""
        self._judged = None
        if not self._at_work.has_left_something():
            return ""  # whatever is here is not the mission's
        head, _ = self._settle()
        held, there = self._git.tree_in(head), self._there(head)
        kept = self._keep(there, [head], why) if there != held else ""
        rules = [d for d in self._work_between(there, held) if d.path.rpartition(b"/")[2] == b".gitignore"]
        if rules:
            with self._writing():
                bring_files(self._git, self.path, rules)
            self._snapshots.start_from(head)
            unseen, there = there, self._there(head)
            more = any(d.kind != "D" for d in self._work_between(unseen, there) if d not in rules)
            kept = self._keep(there, [head, self._git.resolve(kept)], why) if more else kept
        self._write_out(there, held)
        unstage(self._git, head, self._artefacts)
        self._at_work.is_over()
        return kept

    def write(self, path: str, content: bytes) -> None:
        self._judged = None
        if not self._at_work.has_left_something():
            self._at_work.ends(leaving=True)
        super().write(path, content)

    # Looking

    def worklog(self) -> str:
        try:
            return read_regular(self._worklog, LARGEST_WORKLOG).decode(errors="replace")
        except OSError:
            return ""

    def write_worklog(self, text: str) -> None:
        self._worklog.parent.mkdir(parents=True, exist_ok=True)
        if self._worklog.is_dir() and not self._worklog.is_symlink():
            remove_tree(self._worklog)
        write_atomically(self._worklog, text.encode(errors="replace"))

    def tree(self) -> str:
        return self._look()[1]

    def checkpoint(self, label: str) -> Checkpoint:
        """Of what was looked at last: tests run an agent's code, and what that changed since was judged by nobody."""
        head, tree = self._judged or self._look()
        _, newest = self._settle()
        commit = self._name(tree, head, newest, label)
        self._judged = None
        if self._at_work.has_left_something():
            self._at_work.ends(leaving=tree != self._git.tree_in(head))
        return Checkpoint(commit, head, tree)

    def delivered(self, checkpoint: Checkpoint) -> str:
        return self._began.get(checkpoint.commit) or self._git.tree_in(checkpoint.commit)

    def changes(self, since: str, until: str) -> Sequence[Change]:
        """What the user committed before a phase began is no change of the phase's."""
        return super().changes(self._began.get(since, since), until)

    def touched_outside_commit(self) -> Sequence[str]:
        head, tree = self._judged or self._look()
        return [change.path for change in self.changes(head, tree)]

    def head(self) -> str:
        return self._settle()[0]

    def essence(self, tree: str) -> str:
        """The tracker's files change with every step that is booked."""
        return graft(self._git, tree, self._git.make_tree(()), self._artefacts)

    def hooks(self, tree: str, message: str) -> tuple[bool, str]:
        """Whether the user's pre-commit and commit-msg hooks agree, and the end of what they printed."""
        if self._provisions.run_setup is None:
            raise Refused("There is no shell to run hooks in.", "Turn them off: git.hooks: false")
        if self._at_work.hooks not in ("", fingerprint(self._git)):
            return False, "the hooks were changed while an agent was at work"
        head = self.head()
        before = self._there(head)
        passed, said = Hooks(self._git, self._notes, self._logs, self._provisions.run_setup).passed(tree, message)
        changed = [change.path for change in self.changes(before, self._there(head))]
        if changed:
            self._judged = None
            return False, f"A hook changed files: {_some(changed)}.\n{said}"
        return passed, said

    def _look(self) -> tuple[str, str]:
        head, _ = self._settle()
        tree = graft(self._git, self._snapshots.to_judge(head), head, self._artefacts)
        self._judged = (head, tree)
        return self._judged

    def _there(self, head: str) -> str:
        """As `tree`, of whatever state the files are in."""
        return graft(self._git, self._snapshots.to_save(head), head, self._artefacts)

    # Ending

    def rebase(self, onto: str) -> tuple[Checkpoint, Sequence[str]]:
        hint = f"Merge or rebase {self.branch} yourself, then go on with `capsule run {self._mission}`."
        raise Refused(f"{self._mission} works in the checkout, which Capsule does not rebase onto {onto[:10]}.", hint)

    def salvage(self, why: str) -> str:
        """What is in no commit. Where the user is on another branch by now, the files are not the mission's."""
        standing = self._claim.standing()
        if not (standing.base or self._claim.put_base_back()):
            return ""
        head, newest = self._settle() if standing.home else (standing.head, standing.newest)
        if not head:
            return ""
        held = self._git.tree_in(head)
        there = self._there(head) if standing.home else held
        named = self._work_named_by(newest, held)
        if named in (held, there) or named in kept_trees(self._git, self._mission):
            return self._keep(there, [head], why) if there != held else ""
        return self._keep(there if there != held else named, [head, newest], why)

    def _work_named_by(self, newest: str, held: str) -> str:
        """`held` with the work of the newest checkpoint, which may be in no file any more."""
        if not newest:
            return held
        tree, head = self._said_by(newest)
        return with_changes(self._git, held, self._work_between(self._git.tree_in(head), tree), self._notes)

    def remove(self, *, branch: bool) -> None:  # noqa: ARG002 (the door's): the branch is the user's
        self._gate.remove()
        self._control.forget()
        remove_tree(self._notes)
        gone = (self._claim.checkpoint, self._claim.base)
        self._git.move_refs(*(RefMove(ref, "") for ref in gone), why="capsule: removed")
        self._base_commit = self._known = ""
        self._judged = None
        self._at_work.is_over()

    # Where we stand

    def _settle(self) -> tuple[str, str]:
        """The branch's commit and the newest checkpoint, once everything that an agent did to the branch is undone."""
        standing = self._claim.standing()
        if self._at_work.since:
            if not (standing.home or self._agent_was_here):
                self._refuse_elsewhere()
            return self._put_right(standing), standing.newest
        if not (standing.home and standing.head):
            self._refuse_elsewhere()
            hint = f"Bring it back: git branch {self.branch} COMMIT"
            raise Refused(f"{self.branch}, which {self._mission} works on, has no commit any more.", hint)
        if standing.head != self._last_known(standing.head):
            self._remember(standing.head)
        return standing.head, standing.newest

    def _put_right(self, standing: Standing) -> str:
        known = self._last_known(standing.head)
        for what in end_what_is_under_way(self._git) if self._agent_was_here else ():
            self._notices.append(f"{what} that was left half done was forgotten; its files are as they were left")
        bent = self._settings.put_right()
        if bent:
            self._notices.append(f"settings were changed, and are as they were again: {_some(bent)}")
        if standing.home and standing.head == known:
            return known
        tip = self._sieve.sift(known, standing.head)
        if tip != standing.head or not standing.home:
            self._bring_home(standing, tip)
        self._take_in(known, tip)
        self._remember(tip)
        settle_index(self._git, tip, WATCHED)
        return tip

    def _bring_home(self, standing: Standing, target: str) -> None:
        git, stray = self._git, self._git.resolve("HEAD")
        tips = dict.fromkeys(oid for oid in (standing.head, stray) if oid)
        lost = [oid for oid in tips if not git.is_ancestor(oid, target)]
        if not standing.home:
            self._notices.append(f"HEAD had left {self.branch} and was brought back")
        if lost:
            kept = self._keep(git.tree_in(lost[0]), lost, "commits that nobody asked for")
            told = f"commits that nobody asked for were taken off {self.branch}; their files are as they were left"
            self._notices.append(f"{told}, and the commits are kept as {kept}")
        elif standing.home:
            self._notices.append(f"{self.branch} had been moved back and is where it was again")
        bring_home(git, self.branch, standing.head, target, self._artefacts)

    def _take_in(self, known: str, head: str) -> None:
        """A merge that was published while somebody was at work here is merged into the files that both changed."""
        came = {d.path for d in self._work_between(self._git.tree_in(known), self._git.tree_in(head))}
        there = self._there(head) if came else ""
        both = {d.path for d in self._git.differences(head, there) if d.path in came} if came else set()
        if not both:
            return
        merged, conflicts = self._git.merge_trees(head, self._commit(there, [known], "work"))
        due = [d for d in self._git.differences(there, merged) if d.path in both and shown(d.path) not in conflicts]
        with self._writing():
            bring_files(self._git, self.path, due)
        for path in sorted(shown(path) for path in both if shown(path) in conflicts):
            self._notices.append(
                f"{path} was changed on {self.branch} too, in the same lines: that change is not in here"
            )

    def _refuse_elsewhere(self) -> None:
        on = checked_out(self._git)
        if on != self.branch:
            words = f"{on} is checked out" if on else "HEAD is detached"
            hint = f"Go back to it: git switch {self.branch}"
            raise Refused(f"{self._mission} works on {self.branch}, and {words}.", hint)

    def _last_known(self, head: str) -> str:
        """The head a phase last started from, or a step was booked as: there for sure if the branch is still at it."""
        noted = self._known or self._noted("head")
        self._known = noted if noted == head else ((self._git.resolve(noted) if noted else "") or self._base())
        return self._known or self._base()

    def _remember(self, head: str) -> None:
        self._known = head
        if self._noted("head") != head:
            self._notes.mkdir(parents=True, exist_ok=True)  # a removal that was cut short took it first
            write_atomically(self._notes / "head", head)

    def _noted(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return os.fsdecode(read_regular(self._notes / name, _LONGEST_NOTE))
        return ""

    def _be_on(self, branch: str) -> None:
        self.branch = branch
        self._claim.branch = f"refs/heads/{branch}"
        self._sieve = Sieve(self._git, branch, self._notes)

    # Files

    def _write_out(self, there: str, target: str) -> None:
        """From one tree to another. Twice if need be: a link that an agent put in a folder's place hides files."""
        changes = self._git.differences(there, target)
        with self._writing():
            left = bring_files(self._git, self.path, changes)
            missing = [change for change in changes if shown(change.path) in left] if left else []
            left = bring_files(self._git, self.path, missing)
        if left:
            self._notices.append(f"somebody was at work in these files, which were left as they are: {_some(left)}")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """One at a time: a merge that is published brings this checkout along too."""
        lock = FileLock(self._git.capsule_dir / "locks" / "main.lock")
        lock.acquire(_LOCK_WAIT)
        with lock:
            yield


def _not_clean(paths: Sequence[str]) -> Refused:
    return Refused(f"The checkout is not clean: {_some(paths)}.", "Commit it, or put it away: git stash -u")


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more
