"""Bringing a checkout along after its branch has moved, without losing a byte of the user's.

Every path that differs between the old commit and the new one is looked at twice, in the index and on disk. Where it is
still as in the old commit it becomes as in the new one; where it is as in the new one already (a run before this one
got so far, or the user had the same idea) nothing is to do; anything else is the user's, and is left alone and listed.
So each path is old or new at any moment, and doing it again finishes what a crash interrupted.

New files are written to a folder under `.capsule` and renamed into place. Links in the way are never written through.
Files come first, then the index: a crash in between shows the user changes that are right but not staged yet.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from capsule.core.errors import Overlap, Refused
from capsule.system import git_locks, umask
from capsule.system.files import temp_path
from capsule.system.folders import remove_tree
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import ABSENT, GITLINK, Checkout, Difference, read_difference, shown
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.trees import index_row, is_artefact

Stamp = tuple[int, int, int, int] | None

_LINK = "120000"
_LARGE = 16 * 1024 * 1024

# What git leaves in a worktree's git directory while something is under way, and how to end it.
UNDER_WAY = {
    "MERGE_HEAD": ("a merge", "git merge --continue or --abort"),
    "rebase-merge": ("a rebase", "git rebase --abort, or --continue if it is yours"),
    "rebase-apply": ("a rebase or an am", "git rebase --abort, or --continue if it is yours"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --continue or --abort"),
    "REVERT_HEAD": ("a revert", "git revert --continue or --abort"),
    "BISECT_LOG": ("a bisect", "git bisect reset"),
}


class Place(NamedTuple):
    """A checkout, and git's own folder for it."""

    path: Path
    git_dir: Path
    branch: str


def places_on(git: Git, branch: str) -> list[Place]:
    """Every checkout that is on this branch, or in the middle of rebasing it: a parent mission's worktree too."""
    found = [_place(git, checkout) for checkout in git.checkouts()]
    return [place for place in found if place and branch in (place.branch, _rebasing(place))]


def under_way(place: Place) -> tuple[str, str] | None:
    """What counts on the branch staying where it is, and how to end it. A bisect does not mind."""
    found = (words for name, words in UNDER_WAY.items() if (place.git_dir / name).exists() and name != "BISECT_LOG")
    return next(found, None)


def refuse_if_under_way(places: Iterable[Place]) -> None:
    for place in places:
        if words := under_way(place):
            raise Refused(f"{words[0].capitalize()} is under way in {place.path}.", f"Finish it first: {words[1]}")


def refuse_if_locked(git: Git, places: Iterable[Place]) -> None:
    """An index that does not follow its branch shows the merge backwards, staged: the next commit would undo it."""
    for place in places:
        lock = place.git_dir / "index.lock"
        if lock.exists() and not git_locks.outlast(lock, git.common_dir, [place.path, place.git_dir]):
            hint = f"Let it finish (if no git is at work, remove {lock}); then run the same command again."
            raise Refused(f"Another git is using the index of {place.path}.", hint)


def refuse_if_edited(git: Git, places: Iterable[Place], old: str, new: str, *, apart: Sequence[str] = ()) -> None:
    """Raise Overlap where a checkout of the user's holds files edited that differ between two commits.

    A merge would leave such a file as the user has it, and their next `git commit -a` would take the merged work out.
    """
    changes = [c for c in git.differences(old, new) if GITLINK not in (c.old[0], c.new[0])]
    changes = [change for change in changes if not is_artefact(change.path, apart)]
    if not changes:
        return
    theirs = [place for place in places if not place.path.is_relative_to(git.root / ".capsule")]
    edited = dict.fromkeys(path for place in theirs for path in _edited(git, place, changes))
    if edited:
        raise Overlap(list(edited))


def _edited(git: Git, place: Place, changes: Sequence[Difference]) -> list[str]:
    staged = _staged(git, place)
    in_index = {
        c.path for c in changes if (staged[c.path].side if c.path in staged else _nothing(c)) not in (c.old, c.new)
    }
    on_disk = [change for change in changes if change.path not in staged or not staged[change.path].sparse]
    stamps = {change.path: _stamp(place.path, change.path) for change in on_disk}
    scratch = temp_path(git.capsule_dir / "git")
    try:
        unlike = _unlike(git, place.path, [(c.path, c.old) for c in on_disk], stamps, scratch) if on_disk else set()
        left = [(c.path, c.new) for c in on_disk if c.path in unlike]
        unlike = _unlike(git, place.path, left, stamps, scratch) if left else set()
    finally:
        scratch.unlink(missing_ok=True)
    return sorted(shown(path) for path in in_index | unlike | _blocked(place.path, on_disk))


def _blocked(worktree: Path, changes: Sequence[Difference]) -> set[bytes]:
    """Return new paths that have no room: a file or a link stands for a folder on the way, or a filled folder there."""
    known = {worktree / os.fsdecode(change.path) for change in changes}

    def has_room(file: Path) -> bool:
        above = [parent for parent in file.parents if parent.is_relative_to(worktree) and parent not in known]
        if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in above[:-1]):
            return False
        below = file.rglob("*") if file.is_dir() and not file.is_symlink() else ()
        return all(path in known or (path.is_dir() and not path.is_symlink()) for path in below)

    arriving = [change.path for change in changes if change.new[0] != ABSENT]
    return {path for path in arriving if not has_room(worktree / os.fsdecode(path))}


def bring_along(git: Git, place: Place, old: str, new: str, *, saved: bool = False) -> list[str]:
    """Returns what was left as the user has it. `saved`: most files are as in the new commit already."""
    changes = [change for change in git.differences(old, new) if GITLINK not in (change.old[0], change.new[0])]
    if not changes:
        return []
    staged = _staged(git, place)
    wanted = [change for change in changes if change.path not in staged or not staged[change.path].sparse]
    scratch = temp_path(git.capsule_dir / "git")
    try:
        left = _bring_files(git, place.path, wanted, scratch, saved=saved)
        return sorted({*left, *_bring_index(git, place, changes, staged)})
    finally:
        scratch.unlink(missing_ok=True)


# Files


def bring_files(git: Git, worktree: Path, changes: Sequence[Difference]) -> list[str]:
    """The files alone, without the index; returns what is somebody else's and was left as it is."""
    wanted = [change for change in changes if GITLINK not in (change.old[0], change.new[0])]
    scratch = temp_path(git.capsule_dir / "git")
    try:
        return _bring_files(git, worktree, wanted, scratch) if wanted else []
    finally:
        scratch.unlink(missing_ok=True)


def _bring_files(
    git: Git, worktree: Path, changes: Sequence[Difference], scratch: Path, *, saved: bool = False
) -> list[str]:
    stamps = {change.path: _stamp(worktree, change.path) for change in changes}

    def unlike(sides: Sequence[tuple[bytes, tuple[str, str]]]) -> set[bytes]:
        return _unlike(git, worktree, sides, stamps, scratch) if sides else set()

    not_yet = unlike([(c.path, c.new) for c in changes]) if saved else {c.path for c in changes}
    unlike_old = unlike([(c.path, c.old) for c in changes if c.path in not_yet])
    due = [change for change in changes if change.path in not_yet - unlike_old]
    foreign = unlike_old if saved else unlike([(c.path, c.new) for c in changes if c.path in unlike_old])
    return [*map(shown, foreign), *_replace(git, worktree, due, stamps, scratch)]


def _unlike(
    git: Git,
    worktree: Path,
    wanted: Sequence[tuple[bytes, tuple[str, str]]],
    stamps: dict[bytes, Stamp],
    scratch: Path,
) -> set[bytes]:
    """The paths whose file is not what these modes and objects say. Git compares where filters or line ends count."""
    sides = {path: side for path, side in wanted if side[0] != ABSENT}
    unlike = {path for path, side in sides.items() if not _is_exactly(git, worktree, path, side)}
    if unlike and git.converts(unlike, worktree):
        rows = b"".join(index_row(path, sides[path]) for path in unlike)
        scratch.unlink(missing_ok=True)
        git.content("update-index", "-z", "--index-info", index=scratch, worktree=worktree, input=rows)
        listed = git.content("ls-files", "-z", "--modified", index=scratch, worktree=worktree).out
        unlike = {path for path in listed.split(b"\0") if path}
    intruders = {path for path, side in wanted if side[0] == ABSENT and stamps[path] is not None}
    return intruders | unlike | {path for path in sides if _is_astray(worktree, path)}


def _is_exactly(git: Git, worktree: Path, path: bytes, side: tuple[str, str]) -> bool:
    """Whether a file is of this kind, and holds these bytes as they are."""
    file = worktree / os.fsdecode(path)
    try:
        mode = file.lstat().st_mode
        kind = _LINK if stat.S_ISLNK(mode) else "100755" if mode & 0o100 else "100644"
        plain = stat.S_ISREG(mode) or stat.S_ISLNK(mode)
        return plain and kind == side[0] and git.blob_of(file) == side[1]
    except OSError:
        return False


def _replace(
    git: Git, worktree: Path, due: Sequence[Difference], stamps: dict[bytes, Stamp], scratch: Path
) -> list[str]:
    """Old files become new ones: deletions first, so that a folder can take the place of a file."""
    staging = worktree / ".capsule" / "arriving"
    arriving = [change for change in due if change.new[0] != ABSENT]
    try:
        remove_tree(staging)  # what a crash may have left; one publisher at a time, by the main lock
        _export(git, worktree, arriving, staging, scratch)
        ordered = sorted(due, key=lambda change: change.new[0] != ABSENT)
        return [shown(c.path) for c in ordered if not _put(worktree, staging, c, stamps[c.path])]
    finally:
        remove_tree(staging)
        _drop_empty_folders(staging.parent, worktree)


def _export(git: Git, worktree: Path, arriving: Sequence[Difference], staging: Path, scratch: Path) -> None:
    """The new files as they are to be on disk."""
    if not arriving:
        return
    plain = not git.converts([change.path for change in arriving], worktree) and all(map(_is_usual, arriving))
    contents = git.read_blobs([change.new[1] for change in arriving], _LARGE) if plain else None
    if contents is not None:
        for change, content in zip(arriving, contents, strict=True):
            _write_new(staging / os.fsdecode(change.path), change.new[0], content)
        return
    scratch.unlink(missing_ok=True)
    rows = b"".join(index_row(change.path, change.new) for change in arriving)
    git.content("update-index", "-z", "--index-info", index=scratch, worktree=worktree, input=rows)
    prefix = f"--prefix={staging.relative_to(worktree)}/"
    git.content("checkout-index", "-a", "-q", prefix, index=scratch, worktree=worktree, umask=umask.of_the_user())


def _is_usual(change: Difference) -> bool:
    """Neither attributes, which decide about other files, nor a name that git would not write."""
    names = change.path.lower().split(b"/")
    return not {b"", b".", b"..", b".git", b".gitattributes"} & {*names}


def _write_new(file: Path, mode: str, content: bytes) -> None:
    _make_folders(file.parent)
    if mode == _LINK:
        file.symlink_to(os.fsdecode(content))
        return
    with file.open("xb") as new:
        new.write(content)
    file.chmod(umask.mode_for_the_user(0o777 if mode == "100755" else 0o666))


def _put(worktree: Path, staging: Path, change: Difference, stamp: Stamp) -> bool:
    """False where the user was quicker, or something of theirs stands in the way."""
    name = os.fsdecode(change.path)
    target = worktree / name
    if leads_astray(worktree, target) or _stamp(worktree, change.path) != stamp:
        return False
    try:
        if change.new[0] == ABSENT:
            target.unlink(missing_ok=True)
            _drop_empty_folders(target.parent, worktree)
            return True
        _make_folders(target.parent)
        _put_in_place(staging / name, target)
    except OSError:
        return False  # a folder or file of the user's has the name, or the folder is closed to us
    return True


def _make_folders(folder: Path) -> None:
    """As git would make them for the user."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(umask.mode_for_the_user(0o777))


def _put_in_place(new: Path, target: Path) -> None:
    """In one step, also where the target lies on another file system than our folder."""
    try:
        new.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        half = temp_path(target.parent)
        try:
            shutil.copy2(new, half, follow_symlinks=False)
            half.replace(target)
        finally:
            half.unlink(missing_ok=True)


def _is_astray(worktree: Path, path: bytes) -> bool:
    return leads_astray(worktree, worktree / os.fsdecode(path))


def leads_astray(worktree: Path, target: Path) -> bool:
    """A folder on the way to it is a link."""
    return any(
        parent.is_symlink() for parent in target.parents if parent.is_relative_to(worktree) and parent != worktree
    )


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or refuse."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}.", "Take away what stands in its place.") from error


def _drop_empty_folders(folder: Path, worktree: Path) -> None:
    while folder != worktree and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _stamp(worktree: Path, path: bytes) -> Stamp:
    try:
        found = (worktree / os.fsdecode(path)).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return None  # no file yet; whether the folder is in the way shows when it does not go
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


# The index


class IndexRow(NamedTuple):
    """One row of the user's index. `sparse`: the file is not wanted on disk."""

    side: tuple[str, str]
    sparse: bool


def _bring_index(git: Git, place: Place, changes: Sequence[Difference], staged: dict[bytes, IndexRow]) -> list[str]:
    found = {c.path: staged[c.path].side if c.path in staged else _nothing(c) for c in changes}
    due = [change for change in changes if found[change.path] == change.old]
    left = [shown(c.path) for c in changes if found[c.path] not in (c.old, c.new)]
    try:
        _stage(git, place, due, [c.path for c in due if c.path in staged and staged[c.path].sparse])
    except GitFailed:
        # A git of the user's is at it and does not let go.
        left += [f"{shown(change.path)} (in the index only, which another git has locked)" for change in due]
    return left


def _stage(git: Git, place: Place, due: Sequence[Difference], sparse: Sequence[bytes]) -> None:
    if not due:
        return
    index = place.git_dir / "index"
    rows = b"".join(index_row(change.path, change.new) for change in due)
    git.content("update-index", "-z", "--index-info", index=index, worktree=place.path, input=rows)
    if sparse:
        command = ("update-index", "-z", "--skip-worktree", "--stdin")
        git.content(*command, index=index, worktree=place.path, input=b"\0".join(sparse))
    git.content("update-index", "-q", "--refresh", index=index, worktree=place.path, ok=(0, 1))


def _staged(git: Git, place: Place) -> dict[bytes, IndexRow]:
    """The user's index by path; a path in conflict counts as nothing that we know."""
    index = place.git_dir / "index"
    rows = git.content("ls-files", "--stage", "-t", "-z", index=index, worktree=place.path).out.split(b"\0")
    found: dict[bytes, IndexRow] = {}
    for row in filter(None, rows):
        facts, path = row.split(b"\t", 1)
        tag, mode, oid, stage = facts.decode().split()
        found[path] = IndexRow((mode, oid) if stage == "0" else ("conflict", oid), tag == "S")
    return found


def unstage(git: Git, head: str, artefacts: Sequence[str]) -> None:
    """The main checkout's index as `head` has it; what is staged of the artefacts stays staged."""
    _unstage(git, [found for found in _staged_on_top_of(git, head) if not is_artefact(found.path, artefacts)])


def settle_index(git: Git, head: str, paths: Sequence[str]) -> None:
    """Where one of these files is as `head` has it, the main checkout's index has it so too."""
    staged = _staged_on_top_of(git, head, *paths)
    if not staged:
        return
    scratch = temp_path(git.capsule_dir / "git")
    try:
        stamps = {found.path: _stamp(git.root, found.path) for found in staged}
        unlike = _unlike(git, git.root, [(found.path, found.old) for found in staged], stamps, scratch)
    finally:
        scratch.unlink(missing_ok=True)
    _unstage(git, [found for found in staged if found.path not in unlike])


def _staged_on_top_of(git: Git, head: str, *paths: str) -> list[Difference]:
    flags = ("--cached", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--ignore-submodules=all")
    command = ("diff-index", *flags, head, "--", *paths)
    answer = git.content(*command, index=git.git_dir / "index", env={"GIT_LITERAL_PATHSPECS": "1"})
    fields = answer.out.split(b"\0")
    return [read_difference(row, path) for row, path in zip(fields[0:-1:2], fields[1::2], strict=True)]


def _unstage(git: Git, due: Sequence[Difference]) -> None:
    index = git.git_dir / "index"
    if due:
        gone = b"".join(index_row(found.path, _nothing(found)) for found in due)  # all stages of a conflict too
        back = b"".join(index_row(found.path, found.old) for found in due if found.old[0] != ABSENT)
        git.content("update-index", "-z", "--index-info", index=index, input=gone + back)
        git.content("update-index", "-q", "--refresh", index=index, ok=(0, 1))


def _nothing(change: Difference) -> tuple[str, str]:
    return (ABSENT, "0" * len(change.old[1]))


# Finding checkouts


def _place(git: Git, checkout: Checkout) -> Place | None:
    if checkout.path == git.root:
        return Place(checkout.path, git.git_dir, checkout.branch)
    entry = LinkedWorktree(git, checkout.path).entry()
    return Place(checkout.path, entry, checkout.branch) if entry and checkout.path.is_dir() else None


def _rebasing(place: Place) -> str:
    for name in ("rebase-merge", "rebase-apply"):
        file = place.git_dir / name / "head-name"
        if file.is_file():
            return file.read_text(errors="replace").strip().removeprefix("refs/heads/")
    return ""
