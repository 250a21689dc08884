"""A tracker's state, kept in files of the project: **commit first, then save**.

    build   the tip's tree, the work's paths, the own files as the assignments leave them: objects, nobody sees them
    swap    the branch moves there by compare-and-swap; from this moment on the step is recorded
    save    the files on disk, then the index, follow

Killed before the swap, nothing has happened. Killed after it, there is a note of what to save, and the next process
that opens the store saves it first: the disk is never behind the branch when somebody reads it in order to write. The
same entry, written again, finds its trailer on the branch and adopts that commit. So saving is the only half that is
ever done twice, and it is made of things that may be: the assignments are applied to the file *as it is on disk*,
whoever wrote it last, and the index follows path by path.

That is also how people and Capsule share a file. Uncommitted edits of a person are read, spliced into and committed
along; what they type between the swap and the save is spliced into as well, and stays uncommitted.

Own files are read and written as plain files only: a link in their place, or on the way there, is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

import msgspec

from capsule.adapters import ClaimedState, CommittedTracker, Draft, StateCommit, StateStore, StateWritten, Tracker
from capsule.core.assignment import Assignment, Exists
from capsule.core.errors import BranchMoved, CapsuleError, Conflicts, Refused, TwinClosed
from capsule.core.evidence import Checkpoint
from capsule.core.item import Item
from capsule.system.clock import SystemClock
from capsule.system.files import NotRegular, TooLarge, read_regular, sweep_temps, write_atomically
from capsule.system.git import Git
from capsule.workspaces.checkouts import (
    bring_along,
    locked,
    make_folder,
    move_branch,
    passes_link,
    settle_index,
    under_way,
)
from capsule.workspaces.step_commits import find_step, message_of
from capsule.workspaces.trees import all_artefacts, graft, is_artefact, merged, with_changes, with_files

Read = Callable[[str], bytes | None]
Rewritten = tuple[Mapping[str, bytes], tuple[str, ...], tuple[str, ...]]
"""New content by path, new ids, and remarks for people."""
Rewrite = Callable[[Read, Sequence[Assignment], Sequence[str], int], Rewritten]
"""(old content, assignments, ids given before, the last number) → new content."""

Understand = Callable[[bytes], tuple[Mapping[str, Item], int]]
"""The items that a tracker's file holds, and the last number it gave."""

LARGEST = 64 * 1024 * 1024
_MOST_ROUNDS = 8
"""How often the branch, or a file on disk, may change before we give up."""


class LocalBranch(NamedTuple):
    """The branch that a commit goes to."""

    name: str
    tip: str
    """'' where there is no commit yet."""
    here: bool
    """It is checked out in the project's own checkout."""

    @property
    def parents(self) -> list[str]:
        return [self.tip] if self.tip else []


class _Draft(msgspec.Struct, frozen=True):
    """The new content of the own files, and the content it was made from."""

    read: Mapping[str, bytes | None]
    contents: Mapping[str, bytes]
    added: tuple[str, ...]
    remarks: tuple[str, ...] = ()


class Pending(msgspec.Struct, frozen=True):
    """A commit, and the files to save once it is on its branch."""

    branch: str
    commit: str
    onto: str
    added: tuple[str, ...]
    assignments: tuple[Assignment, ...]
    home: str = ""
    """The branch that was checked out; '' in notes of earlier versions."""


def open_state_store(
    tracker: Tracker, git: Git, home: str, kind: Callable[..., GitStateStore] | None = None
) -> StateStore:
    """Open the state store of a tracker that keeps its state in the project; `kind` is where its commits go."""
    if not tracker.traits.authoritative:
        return ClaimedState(tracker)
    committed = cast("CommittedTracker", tracker)
    return (kind or GitStateStore)(
        git,
        committed.rewrite,
        committed.parse_file,
        tracker.own_files(),
        SystemClock().now,
        home=home,
        item=tracker.item,
        closed_as=tracker.closed_as,
    )


def commit_files(git: Git, own_files: Sequence[str], files: Mapping[str, bytes], message: str) -> str:
    """Commit exactly these files to the branch that is checked out; '' if it has them already."""
    return _without_tracker(git, own_files).commit_files(files, message)


def commit_onto(
    git: Git,
    own_files: Sequence[str],
    onto: str,
    files: Mapping[str, bytes],
    message: str,
    *,
    work: Checkpoint | None = None,
) -> str:
    """Commit files that were made from the commit `onto`, and the changes of the work; '' if it has them already.

    They reach the disk with the commit. If the branch has moved, or cannot move, nothing changes.
    """
    return _without_tracker(git, own_files).commit_onto(onto, files, message, work)


def _without_tracker(git: Git, own_files: Sequence[str]) -> GitStateStore:
    nothing: Rewrite = lambda _read, _assignments, _ids, _least: ({}, (), ())  # noqa: E731
    return GitStateStore(git, nothing, lambda _data: ({}, 0), own_files, SystemClock().now)


class GitStateStore(StateStore):
    """Keeps the state of a tracker whose files lie in a git checkout: one commit for each step."""

    rounds = _MOST_ROUNDS
    """How often the branch may move while something is committed to it."""

    waits_for_unblock = True
    _longer = 0.0
    """Seconds for which others may hold the lock beyond a minute."""

    def __init__(
        self,
        git: Git,
        rewrite: Rewrite,
        understand: Understand,
        own_files: Sequence[str],
        now: Callable[[], str],
        *,
        home: str | None = None,
        item: Callable[[str], Item] | None = None,
        closed_as: Callable[[str], str] = lambda _item: "",
    ) -> None:
        """`home`: the branch of the checkout's files, if another one is checked out now. `item` reads one from the
        tracker, `closed_as` why one was closed there."""
        self._git = git
        self._rewrite = rewrite
        self._own = tuple(own_files)
        self._artefacts = all_artefacts(own_files)
        self._now = now
        self._note = git.capsule_dir / "books.json"
        self._understand = understand
        self._item = item
        self._closed_as = closed_as
        self._home = git.checked_out() if home is None else home
        """The files on disk are not touched once the user has switched away from it."""

    def write(self, entry: StateCommit, *, commit: bool = True) -> StateWritten:
        if commit:
            self._look(entry.branch)
        with self._open():
            if not commit:
                return StateWritten("", self._save(entry.assignments, ()))
            for number in range(self.rounds):
                branch = self._branch(entry.branch)
                if found := self._found(entry, branch.tip):
                    return StateWritten(*found)
                if entry.twin and (why := self._closed_as(entry.twin)):  # asked under the lock: both may be closed now
                    raise TwinClosed(f"{entry.twin} was closed itself: {why}")
                read = self._on_disk if branch.here else partial(self._git.read_file, self._tree(branch))
                draft = self._draft(read, entry.assignments, ())
                made = self._build(entry, branch, draft)
                if not made:
                    return StateWritten("", self._save(entry.assignments, ()))
                pending = Pending(branch.name, made, branch.tip, draft.added, tuple(entry.assignments), self._home)
                write_atomically(self._note, msgspec.json.encode(pending))
                if self._swap(branch, made):
                    return StateWritten(made, draft.added, (*draft.remarks, *self._settle(pending, draft)))
                self._make_way(number)
        raise _too_busy(branch.name, self.rounds)

    def _found(self, entry: StateCommit, tip: str) -> tuple[str, tuple[str, ...]] | None:
        """Find the commit that a step has made before a crash."""
        return find_step(self._git, entry.key, tip, entry.since)

    def finish(self) -> None:
        """Save what a crash left unsaved, before the files are read."""
        with self._open():
            self._sweep()

    def _sweep(self) -> None:
        """Remove half-written files next to their targets."""
        ours = self._git.capsule_dir
        for folder in (self._git.root, ours, *ours.glob("places/*"), *(self._git.root / path for path in self._own)):
            if folder.is_dir() and not folder.is_symlink():
                sweep_temps(folder)

    def current(self, item: Item) -> Item:
        return self._item(item.id) if self._item else item

    def updates(self, assignments: Sequence[Assignment], message: str) -> tuple[tuple[Assignment, ...], str]:
        return tuple(assignments), message if assignments else ""

    def draft(self, assignments: Sequence[Assignment]) -> Draft | None:
        return lambda onto: self._rewrite(partial(self._git.read_file, onto), assignments, (), 0)[0]

    def commit_files(self, files: Mapping[str, bytes], message: str) -> str:
        """Write exactly these files and commit exactly them; '' if the branch has them already."""
        self._look("")
        with self._open():
            by = self._git.identity
            for path, content in files.items():
                if self._on_disk(path) != content:
                    self._put(path, content)
            for number in range(self.rounds):
                branch = self._branch("")
                held = self._tree(branch)
                tree = with_files(self._git, held, files, filtered=branch.here)
                if tree == held:
                    return ""
                commit = self._git.commit_tree(tree, branch.parents, f"{message.rstrip()}\n", by=by, date=self._now())
                if self._swap(branch, commit):
                    self._bring_along(branch.name, branch.tip)
                    return commit
                self._make_way(number)
        raise _too_busy(branch.name, self.rounds)

    def _make_way(self, number: int) -> None:
        """Wait after the branch moved for so many times; one of this repository is tried again at once."""

    def commit_onto(self, onto: str, files: Mapping[str, bytes], message: str, work: Checkpoint | None) -> str:
        """Commit these files and the work on top of this commit; '' if it has them already."""
        self._look("")
        git = self._git
        with self._open():
            branch = self._branch("")
            if branch.tip == onto:
                tree = with_files(git, self.combined(work, onto) if work else git.tree_in(onto), files)
                if tree == git.tree_in(onto):
                    return ""
                made = git.commit_tree(tree, [onto], f"{message.rstrip()}\n", by=git.identity, date=self._now())
                pending = Pending(branch.name, made, onto, (), (), self._home)
                write_atomically(self._note, msgspec.json.encode(pending))
                if self._swap(branch, made):
                    self._settle(pending)
                    return made
        raise Refused(f"{branch.name} moved meanwhile; nothing was changed.", "Run the same command again.")

    @contextlib.contextmanager
    def _open(self) -> Iterator[None]:
        """Work under the lock, after saving what a crash left."""
        with locked(self._git, "backlog", self._longer):
            if self._note.exists():
                self._finish()
                self._sweep()
            for path in self._own:
                if (self._git.root / path).is_symlink():
                    raise _behind_a_link(path)
            yield

    # Commit

    def _look(self, wanted: str) -> None:
        """Find out where the branch is before the lock is taken, if that may take long."""

    def _branch(self, wanted: str) -> LocalBranch:
        here = self._git.checked_out()
        name = wanted or here
        if not name:
            hint = "Choose a branch: git switch NAME, or git switch -c NAME for a new one"
            raise Refused("HEAD is detached, so there is no branch to commit to.", hint)
        tip = self._git.ref(f"refs/heads/{name}")
        if not tip and name != here:
            raise Refused(f"There is no branch {name}.", "List what there is: git branch")
        return LocalBranch(name, tip, name == here)

    def _draft(self, read: Read, assignments: Sequence[Assignment], ids: Sequence[str]) -> _Draft:
        seen: dict[str, bytes | None] = {}

        def look(path: str) -> bytes | None:
            seen[path] = read(path)
            return seen[path]

        return _Draft(seen, *self._rewrite(look, assignments, ids, self._last_given(assignments, read)))

    def _last_given(self, assignments: Sequence[Assignment], read: Read) -> int:
        """Ask the branch for the last number: an edited file may hold a lower one."""
        tip = self._git.resolve("HEAD") if any(isinstance(each, Exists) for each in assignments) else ""
        held = self._git.read_file(tip, self._own[0]) if tip else None
        if held is None or held == read(self._own[0]):
            return 0
        with contextlib.suppress(CapsuleError):
            return self._understand(held)[1]
        return 0

    def _build(self, entry: StateCommit, branch: LocalBranch, draft: _Draft) -> str:
        """Make the commit, on no branch yet; return '' if nothing differs."""
        git = self._git
        held = self._tree(branch)
        worked = self.combined(entry.work, branch.tip) if entry.work else held
        if entry.judged and graft(git, worked, git.make_tree(()), self._artefacts) != entry.judged:
            raise BranchMoved(f"{branch.name} moved.")
        # Uncommitted edits of the own files go along.
        worked = self._with_documents(worked, branch, entry)
        plain = [path for path in self._own if branch.here and not (git.root / path).is_dir()]
        typed = {path: content for path in plain if (content := self._on_disk(path)) is not None}
        tree = with_files(git, worked, {**typed, **draft.contents}, filtered=branch.here)
        if tree == held:
            return ""
        message = message_of(entry.message, entry.key, draft.added)
        return git.commit_tree(tree, branch.parents, message, by=git.identity, date=self._now())

    def _with_documents(self, tree: str, branch: LocalBranch, entry: StateCommit) -> str:  # noqa: ARG002
        """Add documents that are kept apart from the work; here they are part of it."""
        return tree

    def combined(self, work: Checkpoint, tip: str) -> str:
        """Return the tree of the branch with a step's work; raise Conflicts if both changed the same lines."""
        git, held = self._git, self._git.tree_in(tip)
        changes = [d for d in git.differences(work.head, work.tree) if not is_artefact(d.path, self._artefacts)]
        moved = {d.path: d.new for d in git.differences(git.tree_in(work.head), held)} if tip != work.head else {}
        if all(moved.get(d.path, d.new) == d.new for d in changes):
            return with_changes(git, held, changes)
        theirs = with_changes(git, git.tree_in(work.head), changes)
        tree, conflicts = merged(git, work.head, tip, theirs)
        if conflicts:
            raise Conflicts(conflicts)
        return graft(git, tree, tip, self._artefacts)

    def _tree(self, branch: LocalBranch) -> str:
        return self._git.tree_in(branch.tip) if branch.tip else self._git.make_tree(())

    def _swap(self, branch: LocalBranch, commit: str) -> bool:
        """Move the branch to the commit; return False if it has moved already."""
        with locked(self._git, "main"):
            return move_branch(self._git, branch.name, branch.tip, commit, apart=self._own, why="capsule: a step")

    # Save

    def _finish(self) -> None:
        """Save what is noted, if it is a note of ours and its commit is on the branch."""
        pending: Pending | None = None
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            pending = msgspec.json.decode(read_regular(self._note, LARGEST), type=Pending)
        tip = self._git.resolve(f"refs/heads/{pending.branch}") if pending else ""
        commit = self._git.resolve(pending.commit) if pending else ""
        if pending and tip and commit and self._git.is_ancestor(commit, tip):
            self._home = pending.home or self._home
            self._settle(pending)
        else:
            self._note.unlink()

    def _settle(self, pending: Pending, draft: _Draft | None = None) -> tuple[str, ...]:
        """Update files and index to a commit that is on its branch; return warnings."""
        self._save(pending.assignments, pending.added, draft)
        warnings = self._bring_along(pending.branch, pending.onto)
        self._note.unlink()
        return warnings

    def _save(
        self, assignments: Sequence[Assignment], ids: Sequence[str], draft: _Draft | None = None
    ) -> tuple[str, ...]:
        """Write the own files as the assignments leave them; return the ids of new items.

        A draft holds while the files are unchanged; a file that changed since is read again.
        """
        if self._git.checked_out() != self._home:  # on another branch: its files are not ours
            return tuple(ids) or (draft.added if draft else ())
        for _ in range(_MOST_ROUNDS):
            draft = draft or self._draft(self._on_disk, assignments, ids)
            if all(self._on_disk(path) == content for path, content in draft.read.items()):
                for path, content in draft.contents.items():
                    if draft.read.get(path) != content:
                        self._put(path, content)
                return draft.added
            draft = None
        raise Refused(
            "Another process keeps changing the tracker's files.",
            "Wait until it has finished, then run the command again.",
        )

    def _bring_along(self, branch: str, onto: str) -> tuple[str, ...]:
        """Bring checkouts to the tip, not to our commit: it may have newer commits on top."""
        git = self._git
        with locked(git, "main"):
            tip = git.ref(f"refs/heads/{branch}")
            left = bring_along(git, branch, onto or git.make_tree(()), tip)
            if git.checked_out() == branch and not under_way(git.git_dir):
                settle_index(git, tip, self._own)
        others = [path for path in left if not is_artefact(os.fsencode(path), self._artefacts)]
        words = "your own edits were kept, so these files are not as committed: "
        return (words + ", ".join(others),) if others else ()

    # Disk

    def _on_disk(self, path: str) -> bytes | None:
        file = self._git.root / path
        if passes_link(self._git.root, file):
            raise _behind_a_link(path)
        try:
            return read_regular(file, LARGEST)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (NotRegular, TooLarge) as error:
            raise Refused(f"{path}: {error.strerror}.", "Put a plain file there, then run it again.") from error
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}.", "Make sure that you may read it.") from error

    def _put(self, path: str, content: bytes) -> None:
        file = self._git.root / path
        make_folder(file.parent)
        write_atomically(file, content)


def _behind_a_link(path: str) -> Refused:
    return Refused(
        f"{path} is a link, or lies behind one.",
        "Replace it with a regular file or folder: Capsule does not write through links.",
    )


def _too_busy(branch: str, rounds: int = _MOST_ROUNDS) -> Refused:
    return Refused(f"{branch} moved {rounds} times while Capsule was committing to it.", "Run the same command again.")
