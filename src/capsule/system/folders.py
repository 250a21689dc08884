"""Open, remove and copy large folders with any permissions and any depth.

Copies are made by reference where the file system can do that, never by hard link: that would let whoever writes into
the copy write into the original. Symbolic links are copied as they are, so the relative ones, by which workspaces name
their packages, lead to what lies beside the copy.

`mirror` brings a copy up to date. It records the state of each entry on both sides, and copies what differs on either
again: what was installed since, and what a test wrote into the copy. The copy's side is compared down to the change
time of every file, which no ordinary program can set.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from capsule.core.errors import CapsuleError
from capsule.system.files import write_atomically


def remove_tree(path: Path) -> None:
    """Remove a file or folder, closed folders included; a link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(NotADirectoryError):  # not even its folder is one
            path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        remove_by_force(path)


def remove_by_force(folder: Path) -> None:
    """Remove a folder of any depth, closed folders included; shutil fails below a thousand nested folders."""
    opened = ("find", folder, "-type", "d", "!", "-perm", "-700", "-execdir", "chmod", "u+rwx", "{}", ";")
    for command in (opened, ("rm", "-rf", folder)):
        done = subprocess.run(command, capture_output=True, env={"PATH": os.defpath, "LC_ALL": "C"}, check=False)
    if os.path.lexists(folder):
        words = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it is still there"]
        raise OSError(errno.ENOTEMPTY, words[0], str(folder))


def make_folders_inside(cwd: Path, folder: Path) -> None:
    """Make the folder inside the worktree, removing any link an agent put in the way instead of following it."""
    place = cwd
    for part in folder.relative_to(cwd).parts:
        place = place / part
        if place.is_symlink():
            place.unlink()
        place.mkdir(exist_ok=True)


def make_own_folder(folder: Path) -> None:
    """Make a folder of ours, removing anything else that an agent put in its place.

    Checked once: if it appears in between, another mission made it.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if not stat.S_ISDIR(folder.lstat().st_mode):
            folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)


def make_private_folder(folder: Path) -> bool:
    """Make a folder in one that others can write to; return whether it is ours alone."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def own_cache(env: Mapping[str, str], apart_from: Path | None = None) -> Path:
    """Return the user's cache folder for Capsule, or one in the temporary folder."""
    for cache in (Path(env.get("XDG_CACHE_HOME", "")), Path(env.get("HOME", ""), ".cache")):
        inside = apart_from is not None and Path(os.path.realpath(cache)).is_relative_to(apart_from)
        if cache.is_absolute() and not inside and _can_be_made(cache / "capsule"):
            return cache / "capsule"
    folder = Path(tempfile.gettempdir(), f"capsule-{os.getuid()}")
    if not make_private_folder(folder):
        raise CapsuleError(f"{folder} belongs to another user.", "Set XDG_CACHE_HOME to a folder of your own.")
    return folder


def _can_be_made(folder: Path) -> bool:
    nearest = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), Path("/"))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def make_writable(path: Path) -> None:
    """Open this folder, and every folder below it, to ourselves."""
    folders = [path]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(OSError):  # the next command that needs it reports it
            folder.chmod(folder.stat().st_mode | stat.S_IRWXU)
            folders += [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()]


# ── copies ─────────────────────────────────────────────────────────────────────────────────────────────────────────

_WAYS = (("-c", "-pPR"), ("-pPR",)) if sys.platform == "darwin" else (("-a", "--reflink=auto"), ("-pPR",))
_PATIENCE = 1800


def mirror(source: Path, target: Path, note: Path) -> None:
    """Make the folder `target` a copy of the folder `source`; cheap if nothing changed since the last time."""
    known: dict[str, list[str]] = {}
    if target.is_dir() and not target.is_symlink():
        with contextlib.suppress(OSError, ValueError):
            noted = json.loads(note.read_text())
            known = noted if isinstance(noted, dict) else {}
    note.unlink(missing_ok=True)  # an interrupted copy counts as none
    if not known:
        remove_tree(target)
        clone(source, target)
        adopt(source, target, note)
        return
    wanted = _entries(source)
    for name in _entries(target) - wanted:
        remove_tree(target / name)
    for name in wanted:
        if known.get(name) != _fingerprints(source / name, target / name):
            remove_tree(target / name)
            clone(source / name, target / name)
            known[name] = _fingerprints(source / name, target / name)
    write_atomically(note, json.dumps({name: known[name] for name in wanted}))


def adopt(source: Path, target: Path, note: Path) -> None:
    """Take the folder `target` for a copy of `source`, made just now."""
    write_atomically(note, json.dumps({name: _fingerprints(source / name, target / name) for name in _entries(source)}))


def clone(source: Path, target: Path) -> None:
    """Copy a file, link or folder to a new path."""
    program = shutil.which("cp", path=os.defpath)
    for way in _WAYS if program else ():
        argv = [program or "", *way, str(source), str(target)]
        done = subprocess.run(argv, capture_output=True, check=False, timeout=_PATIENCE)
        if done.returncode == 0:
            return
        remove_tree(target)
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)


def fingerprint(folder: Path) -> str:
    """Return a fingerprint of a folder, down to the change time of every file; '' if it does not exist."""
    return _hash(folder, sys.maxsize, deep=True) if folder.is_dir() and not folder.is_symlink() else ""


def _entries(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def _fingerprints(source: Path, target: Path) -> list[str]:
    return [
        _hash(source, 2 if source.name.startswith(("@", ".")) else 1, deep=False),
        _hash(target, sys.maxsize, deep=True),
    ]


def _hash(entry: Path, depth: int, *, deep: bool) -> str:
    digest = hashlib.sha256()
    for part in _fingerprint_lines(str(entry), depth, deep=deep):
        digest.update(part.encode(errors="surrogateescape"))
    return digest.hexdigest()[:24]


def _fingerprint_lines(path: str, depth: int, *, deep: bool) -> Iterator[str]:
    """Yield a line per file, one system call each: there may be a hundred thousand."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    own = (found.st_ctime_ns, found.st_ino) if deep else ()
    yield f"{path}\0{found.st_mode}\0{found.st_size}\0{found.st_mtime_ns}\0{own}\0"
    if stat.S_ISDIR(found.st_mode) and depth:
        for name in sorted(os.listdir(path)):  # noqa: PTH208 (see above)
            yield from _fingerprint_lines(f"{path}/{name}", depth - 1, deep=deep)
