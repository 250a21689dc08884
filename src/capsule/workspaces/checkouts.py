"""Move a branch, and bring its checkouts along, without losing a byte of the user's.

A branch moves by one compare-and-swap (`move_branch`), and not over a file that a checkout of the user's holds edited.
Then every path that differs between the old commit and the new one is looked at twice, in the index and on disk
(`bring_along`). Where it is still as in the old commit it becomes as in the new one; where it is as in the new one
already (a run before this one got so far, or the user had the same idea) nothing is to do; anything else is the user's,
and is left alone and listed. So each path is old or new at any moment, and doing it again finishes what a crash
interrupted.

New files are written to a folder under `.capsule` and renamed into place. Links in the way are never written through.
Files come first, then the index: a crash in between shows the user changes that are right but not staged yet.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from capsule.core.errors import Overlap, Refused
from capsule.system import git_locks, umask
from capsule.system.files import temp_path
from capsule.system.folders import remove_tree
from capsule.system.git import Git, GitFailed
from capsule.system.git_objects import (
    ABSENT,
    FILE,
    GITLINK,
    LINK,
    PROGRAM,
    Difference,
    RefMove,
    read_differences,
    shown,
)
from capsule.system.lock import WaitingLine, held, lock_file
from capsule.workspaces.linked import LinkedWorktree
from capsule.workspaces.trees import index_row, is_artefact

Side = tuple[str, str]
"""Mode and object id of a path in a commit or an index."""
Stamp = tuple[int, int, int, int] | None

_LARGE = 16 * 1024 * 1024
_LOCK_WAIT = 60.0

# Git's files for an operation in progress, and how to finish it: `--abort` would drop what was resolved.
UNDER_WAY = {
    "MERGE_HEAD": ("a merge", "git merge --continue"),
    "rebase-merge": ("a rebase", "git rebase --continue"),
    "rebase-apply": ("a rebase or an am", "git rebase --continue, or git am --continue"),
    "CHERRY_PICK_HEAD": ("a cherry-pick", "git cherry-pick --continue"),
    "REVERT_HEAD": ("a revert", "git revert --continue"),
    "BISECT_LOG": ("a bisect", "git bisect reset"),
}


class _Worktree(NamedTuple):
    """A checkout, and git's own folder for it."""

    path: Path
    git_dir: Path


def _worktrees_on(git: Git, branch: str) -> list[_Worktree]:
    """Find every checkout that is on this branch, or in the middle of rebasing it: a parent mission's worktree too."""
    found = []
    for path, _, checked_out in git.checkouts():
        entry = git.git_dir if path == git.root else LinkedWorktree(git, path).entry()
        if entry and path.is_dir() and branch in (checked_out, _rebasing(entry)):
            found.append(_Worktree(path, entry))
    return found


def _rebasing(git_dir: Path) -> str:
    for name in ("rebase-merge", "rebase-apply"):
        file = git_dir / name / "head-name"
        if file.is_file():
            return file.read_text(errors="replace").strip().removeprefix("refs/heads/")
    return ""


def under_way(git_dir: Path, *, bisect: bool = False) -> tuple[str, str] | None:
    """Return an operation in progress that needs the branch unchanged, and how to end it; not a `bisect`."""
    found = [name for name in UNDER_WAY if (git_dir / name).exists() and (bisect or "BISECT" not in name)]
    return UNDER_WAY[found[0]] if found else None


# Moving a branch


def locked(git: Git, name: str, more: float = 0) -> contextlib.AbstractContextManager[None]:
    """Hold the lock for moving a branch (`main`), or for writing the tracker's files (`backlog`).

    Another holder is waited for a minute, and `more` seconds.
    """
    return held(git.capsule_dir / "locks" / f"{name}.lock", _LOCK_WAIT + more)


def line_to(git: Git, branch: str) -> WaitingLine:
    """Return the line of missions that move a branch: each for a moment, or one that keeps it still while it tests."""
    return WaitingLine(lock_file(git.capsule_dir / "locks", f"branch-{quote(branch, safe='')}"))


def move_branch(git: Git, branch: str, old: str, new: str, *, apart: Sequence[str], why: str) -> bool:
    """Move a branch from exactly this commit; return False if it has moved already.

    Raise Refused or Overlap if one of its checkouts could not follow; the paths `apart` never stop it.
    """
    refuse_to_move(git, branch, old, new, apart=apart)
    ref = f"refs/heads/{branch}"
    try:
        git.move_refs(RefMove(ref, new, old), why=why)
    except GitFailed:
        if git.ref(ref) == old:
            raise
        return False
    return True


def refuse_to_move(git: Git, branch: str, old: str, new: str, *, apart: Sequence[str]) -> None:
    """Raise Refused or Overlap if a checkout of the branch could not follow it to another commit."""
    worktrees = _worktrees_on(git, branch)
    for worktree in worktrees:
        if words := under_way(worktree.git_dir):
            raise Refused(f"{words[0].capitalize()} is under way in {worktree.path}.", f"Finish it first: {words[1]}")
    for path, git_dir in worktrees:
        # An index that does not follow its branch shows the merge backwards, staged: the next commit would undo it.
        lock = git_dir / "index.lock"
        if lock.exists() and not git_locks.wait_for_lock(lock, git.common_dir, [path, git_dir]):
            hint = f"Let it finish (if no git is at work, remove {lock}); then run the same command again."
            raise Refused(f"Another git is using the index of {path}.", hint)
    # A merge would leave an edited file as the user has it, and their next `git commit -a` would take the work out.
    changes = [c for c in _changes(git, old, new) if not is_artefact(c.path, apart)] if old else []
    theirs = [worktree for worktree in worktrees if not worktree.path.is_relative_to(git.root / ".capsule")]
    if changes and (edited := [path for worktree in theirs for path in _edited(git, worktree, changes)]):
        raise Overlap(list(dict.fromkeys(edited)))


def _edited(git: Git, worktree: _Worktree, changes: Sequence[Difference]) -> list[str]:
    staged, sparse = _staged(git, worktree)
    in_index = {c.path for c in changes if staged.get(c.path, _nothing(c)) not in (c.old, c.new)}
    on_disk = [change for change in changes if change.path not in sparse]
    _, edited = _compare(git, worktree.path, on_disk, _stamps(worktree.path, on_disk))
    return sorted(shown(path) for path in in_index | edited | _blocked(worktree.path, on_disk))


def _blocked(top: Path, changes: Sequence[Difference]) -> set[bytes]:
    """Return new paths that are blocked: by a file or a link instead of a folder, or by a filled folder."""
    known = {top / os.fsdecode(change.path) for change in changes}

    def has_room(file: Path) -> bool:
        above = [parent for parent in file.parents if parent.is_relative_to(top) and parent not in known]
        if any(parent.is_symlink() or (parent.exists() and not parent.is_dir()) for parent in above[:-1]):
            return False
        below = file.rglob("*") if file.is_dir() and not file.is_symlink() else ()
        return all(path in known or (path.is_dir() and not path.is_symlink()) for path in below)

    arriving = [change.path for change in changes if change.new[0] != ABSENT]
    return {path for path in arriving if not has_room(top / os.fsdecode(path))}


# Bringing checkouts along


def bring_along(git: Git, branch: str, old: str, new: str) -> list[str]:
    """Bring the checkouts of a branch from the old commit to the new one; return the paths that the user's edits kept.

    A checkout in the middle of an operation stays as it is.
    """
    changes, left = _changes(git, old, new), list[str]()
    for worktree in _worktrees_on(git, branch) if changes else ():
        if under_way(worktree.git_dir):
            continue
        staged, sparse = _staged(git, worktree)
        left += bring_files(git, worktree.path, [change for change in changes if change.path not in sparse])
        left += [shown(c.path) for c in changes if staged.get(c.path, _nothing(c)) not in (c.old, c.new)]
        due = [change for change in changes if staged.get(change.path, _nothing(change)) == change.old]
        try:
            rows = b"".join(index_row(change.path, change.new) for change in due)
            _write_index(git, worktree, rows, [change.path for change in due if change.path in sparse])
        except GitFailed:
            # A git of the user's holds the lock.
            left += [f"{shown(change.path)} (in the index only, which another git has locked)" for change in due]
    return sorted({*left})


def _changes(git: Git, old: str, new: str) -> list[Difference]:
    return [change for change in git.differences(old, new) if GITLINK not in (change.old[0], change.new[0])]


# Files


def bring_files(git: Git, top: Path, changes: Sequence[Difference]) -> list[str]:
    """Bring the files alone, without the index; return the paths that were left because the user changed them.

    Old files become new ones: deletions first, so that a folder can take the place of a file.
    """
    stamps = _stamps(top, changes)
    due, left = _compare(git, top, changes, stamps)
    staging = top / ".capsule" / "arriving"
    try:
        remove_tree(staging)  # leftovers of a crash; the main lock allows one publisher at a time
        _export(git, top, [change for change in due if change.new[0] != ABSENT], staging)
        ordered = sorted(due, key=lambda change: change.new[0] != ABSENT)
        return [*map(shown, left), *(shown(c.path) for c in ordered if not _put(top, staging, c, stamps[c.path]))]
    finally:
        remove_tree(staging)
        _drop_empty_folders(staging.parent, top)


def _compare(
    git: Git, top: Path, changes: Sequence[Difference], stamps: Mapping[bytes, Stamp]
) -> tuple[list[Difference], set[bytes]]:
    """Return the changes whose file is as in the old commit, and the paths whose file matches neither."""
    not_old = _unlike(git, top, {c.path: c.old for c in changes}, stamps)
    neither = _unlike(git, top, {c.path: c.new for c in changes if c.path in not_old}, stamps)
    return [change for change in changes if change.path not in not_old], neither


def _unlike(git: Git, top: Path, wanted: Mapping[bytes, Side], stamps: Mapping[bytes, Stamp]) -> set[bytes]:
    """Return the paths whose file is not what these modes and objects say.

    Git compares if filters or line ends matter.
    """
    sides = {path: side for path, side in wanted.items() if side[0] != ABSENT}
    unlike = {path for path, side in sides.items() if not _is_exactly(git, top / os.fsdecode(path), side)}
    if unlike and git.converts(unlike, top):
        with _scratch_index(git, top, {path: sides[path] for path in unlike}) as index:
            listed = git.content("ls-files", "-z", "--modified", index=index, worktree=top).out
        unlike = {path for path in listed.split(b"\0") if path}
    intruders = {path for path in wanted if path not in sides and stamps[path] is not None}
    return intruders | unlike | {path for path in sides if passes_link(top, top / os.fsdecode(path))}


def _is_exactly(git: Git, file: Path, side: Side) -> bool:
    """Tell whether a file is of this kind, and holds these bytes as they are."""
    try:
        mode = file.lstat().st_mode
        kind = LINK if stat.S_ISLNK(mode) else PROGRAM if mode & 0o100 else FILE
        plain = stat.S_ISREG(mode) or stat.S_ISLNK(mode)
        return plain and kind == side[0] and git.blob_of(file) == side[1]
    except OSError:
        return False


@contextlib.contextmanager
def _scratch_index(git: Git, top: Path, sides: Mapping[bytes, Side]) -> Iterator[Path]:
    """Yield an index of our own that holds these."""
    index = temp_path(git.capsule_dir / "git")
    rows = b"".join(index_row(path, side) for path, side in sides.items())
    try:
        git.content("update-index", "-z", "--index-info", index=index, worktree=top, input=rows)
        yield index
    finally:
        index.unlink(missing_ok=True)


def _export(git: Git, top: Path, arriving: Sequence[Difference], staging: Path) -> None:
    """Write the new files; git does it if filters, attributes or odd names matter."""
    if not arriving:
        return
    odd = {b"", b".", b"..", b".git", b".gitattributes"}
    plain = not any(odd & {*change.path.lower().split(b"/")} for change in arriving)
    plain = plain and not git.converts([change.path for change in arriving], top)
    contents = git.read_blobs([change.new[1] for change in arriving], _LARGE) if plain else None
    if contents is None:
        prefix = f"--prefix={staging.relative_to(top)}/"
        with _scratch_index(git, top, {change.path: change.new for change in arriving}) as index:
            git.content("checkout-index", "-a", "-q", prefix, index=index, worktree=top, umask=umask.of_the_user())
        return
    for change, content in zip(arriving, contents, strict=True):
        file = staging / os.fsdecode(change.path)
        _make_folders(file.parent)
        if change.new[0] == LINK:
            file.symlink_to(os.fsdecode(content))
            continue
        with file.open("xb") as new:
            new.write(content)
        file.chmod(umask.mode_for_the_user(0o777 if change.new[0] == PROGRAM else 0o666))


def _put(top: Path, staging: Path, change: Difference, stamp: Stamp) -> bool:
    """Put one file in its place; return False if the user changed it or has something else there."""
    name = os.fsdecode(change.path)
    target = top / name
    if passes_link(top, target) or _stamp(target) != stamp:
        return False
    try:
        if change.new[0] == ABSENT:
            target.unlink(missing_ok=True)
            _drop_empty_folders(target.parent, top)
            return True
        _make_folders(target.parent)
        _put_in_place(staging / name, target)
    except OSError:
        return False  # the user has a folder or file of that name, or the folder is closed to us
    return True


def _make_folders(folder: Path) -> None:
    """Make them as git would make them for the user."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir()
        each.chmod(umask.mode_for_the_user(0o777))


def _put_in_place(new: Path, target: Path) -> None:
    """Rename in one step, even to another file system."""
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


def passes_link(top: Path, target: Path) -> bool:
    """Tell whether a folder on the way to the target is a link."""
    return any(parent.is_symlink() for parent in target.parents if parent.is_relative_to(top) and parent != top)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, or refuse."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be made: {error.strerror}.", "Move away what is in its place.") from error


def _drop_empty_folders(folder: Path, top: Path) -> None:
    while folder != top and folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent


def _stamps(top: Path, changes: Sequence[Difference]) -> dict[bytes, Stamp]:
    return {change.path: _stamp(top / os.fsdecode(change.path)) for change in changes}


def _stamp(file: Path) -> Stamp:
    try:
        found = file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        return None  # no file yet; whether the folder is in the way shows when it does not go
    return (found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


# The index


def settle_index(git: Git, head: str, paths: Sequence[str] = ()) -> None:
    """Have the main checkout's index follow `head` for each of these files that is so on disk; by default for all."""
    flags = ("--cached", "-r", "-z", "--raw", "--no-renames", "--no-ext-diff", "--ignore-submodules=all")
    command = ("diff-index", *flags, head, "--", *paths)
    answer = git.content(*command, index=git.git_dir / "index", env={"GIT_LITERAL_PATHSPECS": "1"})
    staged, _ = read_differences(answer.out)
    unlike = _unlike(git, git.root, {found.path: found.old for found in staged}, _stamps(git.root, staged))
    due = [found for found in staged if found.path not in unlike]
    gone = b"".join(index_row(found.path, _nothing(found)) for found in due)  # all stages of a conflict too
    back = b"".join(index_row(found.path, found.old) for found in due if found.old[0] != ABSENT)
    _write_index(git, _Worktree(git.root, git.git_dir), gone + back)


def _write_index(git: Git, worktree: _Worktree, rows: bytes, sparse: Sequence[bytes] = ()) -> None:
    if not rows:
        return
    path, index = worktree.path, worktree.git_dir / "index"
    git.content("update-index", "-z", "--index-info", index=index, worktree=path, input=rows)
    if sparse:
        command = ("update-index", "-z", "--skip-worktree", "--stdin")
        git.content(*command, index=index, worktree=path, input=b"\0".join(sparse))
    git.content("update-index", "-q", "--refresh", index=index, worktree=path, ok=(0, 1))


def _staged(git: Git, worktree: _Worktree) -> tuple[dict[bytes, Side], set[bytes]]:
    """Return the user's index by path, and the paths that are not wanted on disk; a conflict is nothing we know."""
    command = ("ls-files", "--stage", "-t", "-z")
    rows = git.content(*command, index=worktree.git_dir / "index", worktree=worktree.path).out
    staged: dict[bytes, Side] = {}
    sparse = set()
    for row in filter(None, rows.split(b"\0")):
        facts, path = row.split(b"\t", 1)
        tag, mode, oid, stage = facts.decode().split()
        staged[path] = (mode, oid) if stage == "0" else ("conflict", oid)
        if tag == "S":
            sparse.add(path)
    return staged, sparse


def _nothing(change: Difference) -> Side:
    return (ABSENT, "0" * len(change.old[1]))
