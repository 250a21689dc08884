"""Folders that a command may write to without changing them: the user's `.venv` or `node_modules` below a layer.

Each folder is the lower half of an overlay whose upper half belongs to one command and is removed after it. The mounts
are made in a mount namespace around bubblewrap, which then shows them inside (`MountedLayers.before` precedes it):

    <temporary folder>/capsule-layers-<uid>/<one command>/mounts        the table that `mount` reads
                                                          <n>/lower     a link to the folder
                                                              upper     what the command changes
                                                              work      the kernel's own
                                                              seen      the overlay, in that namespace only

**Names.** The mounts are made by relative names, from the command's folder: a comma or a colon in the path of a project
would mean something else in the options of a mount.

**Who mounts.** Root needs only a mount namespace. Everybody else gets a user namespace as well, as whose root they
mount; bubblewrap then makes one of its own, in which the command is the user again: some agents refuse to be root.

**Options.** Without `userxattr` the kernel cannot mark a folder as replaced: `rm -rf` of a lower folder fails.
Without `volatile` it waits at the end until the disk has what we are about to remove.

**After kill -9** the command's folder stays. Its owner's lock on it does not, so the next command here removes it.

**Without overlays** (an old kernel, a container that forbids them) tests see the folder read-only, agents a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from capsule.core.errors import CapsuleError
from capsule.system.folders import clone, make_private_folder, remove_tree

_TRY_SECONDS = 10
_ON_DISK = "/var/tmp"  # noqa: S108 (/tmp is often in memory, and an `npm install` may fill that)
_FAULT = "bwrap: a layer could not be mounted: "
"""Said in bubblewrap's name, which is how a sandbox that could not be made is told from a command that failed."""
_ANY_SANDBOX = ("--unshare-pid", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
_HINT = "Set TMPDIR to a folder that can be written, with enough space."
_TABLE = "mounts"
_ROW = "overlay {n}/seen overlay userxattr,volatile,lowerdir={n}/lower,upperdir={n}/upper,workdir={n}/work 0 0\n"
_MOUNT = f"""
cd "$1" && shift || exit 1
said=$(mount -a -T {_TABLE} 2>&1) || {{ echo "{_FAULT}$said" >&2; exit 1; }}
exec "$@"
"""


class Mount(NamedTuple):
    """A mount: `--tmpfs`, or a `source` that can be read (`--ro-bind`) or written (`--bind`)."""

    how: str
    source: str = ""


class MountedLayers(Struct, frozen=True):
    """Layers that are ready for one command."""

    sources: Mapping[str, Mount] = field(default_factory=dict)
    """By the folder that they show."""
    before: tuple[str, ...] = ()
    """Words in front of bubblewrap."""
    options: tuple[str, ...] = ()
    """Options of bubblewrap's own."""
    folder: str = ""
    """The folder of the upper halves, hidden inside."""


@contextmanager
def mounted_layers(folders: Sequence[str], program: str, *, copy: bool) -> Iterator[MountedLayers]:
    """Make a layer over each folder for as long as a command takes, for the bubblewrap that is called `program`.

    Without overlays, `copy` chooses a writable copy, or else the folder itself, read-only.
    """
    lowers = tuple(dict.fromkeys(folders))
    if not lowers:
        yield MountedLayers()
        return
    words, options, _ = _probed(lowers, program)
    if words:
        with _overlay_folder(lowers) as folder:
            seen = {lower: Mount("--bind", f"{folder}/{n}/seen") for n, lower in enumerate(lowers)}
            yield MountedLayers(seen, (*words, "sh", "-c", _MOUNT, "sh", folder), options, folder)
    elif copy:
        with own_folder() as folder:
            copies = {lower: Mount("--bind", f"{folder}/{n}") for n, lower in enumerate(lowers)}
            for lower, copied in copies.items():
                try:
                    clone(Path(lower), Path(copied.source))
                except (OSError, subprocess.SubprocessError) as error:
                    raise CapsuleError(f"{lower} could not be copied: {error}.", _HINT) from None
            yield MountedLayers(copies, folder=folder)
    else:
        yield MountedLayers({lower: Mount("--ro-bind", lower) for lower in lowers})


def fault(program: str) -> str:
    """Return why no layers can be made on this machine, in the system's own words; '' if they can."""
    if not program:
        return "there is no bubblewrap"
    try:
        with own_folder() as folder:
            return _probed((folder,), program)[2]
    except CapsuleError as error:
        return error.message


@cache
def _probed(lowers: tuple[str, ...], program: str) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Try the layers once: a kernel, a container or a file system may refuse what the next one allows.

    Return the words that allow mounting, bubblewrap's options to be the user again, and why there are none.
    """
    uid, gid = str(os.geteuid()), str(os.getegid())
    as_user = (("unshare", "-Urm"), ("--unshare-user", "--uid", uid, "--gid", gid))
    why = ""
    for words, options in ((("unshare", "-m"), ()), as_user) if os.geteuid() == 0 else (as_user,):
        try:
            with _overlay_folder(lowers) as folder:
                os.setxattr(folder, "user.capsule", b"")  # what `userxattr` goes by
                argv = (*words, "sh", "-c", _MOUNT, "sh", folder, program, *options, *_ANY_SANDBOX, "true")
                done = subprocess.run(
                    argv, capture_output=True, text=True, errors="replace", timeout=_TRY_SECONDS, check=False, cwd="/"
                )
        except subprocess.TimeoutExpired:
            why = f"no answer within {_TRY_SECONDS} s"
            continue
        except CapsuleError as error:
            return (), (), error.message
        except OSError as error:
            return (), (), str(error)
        if not done.returncode:
            return words, options, ""
        said = done.stderr.strip().splitlines()[:1] or [f"exit code {done.returncode}"]
        why = said[0].removeprefix(_FAULT)
    return (), (), why


@contextmanager
def _overlay_folder(lowers: Sequence[str]) -> Iterator[str]:
    """Make a folder with everything that the mounts need."""
    with own_folder() as folder:
        try:
            for n, lower in enumerate(lowers):
                top = Path(folder, str(n))
                for name in ("upper", "work", "seen"):
                    (top / name).mkdir(parents=True)
                (top / "lower").symlink_to(lower)
                like = Path(lower).stat()  # the overlay's own mode and age are the upper half's
                (top / "upper").chmod(stat.S_IMODE(like.st_mode))
                os.utime(top / "upper", ns=(like.st_atime_ns, like.st_mtime_ns))
            Path(folder, _TABLE).write_text("".join(_ROW.format(n=n) for n in range(len(lowers))))
        except OSError as error:
            raise CapsuleError(f"A layer could not be made: {error}.", _HINT) from None
        yield folder


# ── folders that are gone with their owner ──


@contextmanager
def own_folder() -> Iterator[str]:
    """Make a folder that is removed at the end, or by the next command if we are killed."""
    try:
        home = _layers_home()
        whole = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: then leftovers of others stay
                fcntl.flock(whole, fcntl.LOCK_EX)
            # Under the lock of the parent, so that no process finds the new folder before it is locked.
            left = [(path, fd) for path in home.iterdir() if (fd := _lock(path)) is not None]
            folder = Path(tempfile.mkdtemp(dir=home))
            lock = _lock(folder)
        finally:
            os.close(whole)
    except OSError as error:
        raise CapsuleError(f"No folder for the layers of a sandbox: {error}.", _HINT) from None
    try:
        for path, fd in left:
            _remove(path)
            os.close(fd)
        yield str(folder)
    finally:
        _remove(folder)
        if lock is not None:
            os.close(lock)


def _layers_home() -> Path:
    """Return a folder for our layers that is ours alone: others can write to the folders that it lies in."""
    name = f"capsule-layers-{os.geteuid()}"
    chosen = os.environ.get("TMPDIR", "")
    for base in (chosen, _ON_DISK, tempfile.gettempdir()):
        if Path(base).is_absolute() and os.access(base, os.W_OK):
            home = Path(os.path.realpath(base), name)
            if make_private_folder(home):
                return home
    raise FileNotFoundError(2, "no folder for temporary files is ours to use")


def _lock(folder: Path) -> int | None:
    """Lock a folder whose owner has ended; return None where its owner is alive."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def _remove(path: Path) -> None:
    """Remove it with any permissions; the kernel itself leaves a closed `work` folder."""
    with contextlib.suppress(OSError):  # the next command tries the rest again
        remove_tree(path)
