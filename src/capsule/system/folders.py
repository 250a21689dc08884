"""Open and remove folders that strangers filled, whatever permissions they set and however deep they nest."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import subprocess
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove whatever stands there, closed folders included; a link is removed, not followed."""
    if path.is_symlink() or not path.is_dir():
        with contextlib.suppress(NotADirectoryError):  # not even its folder is one
            path.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(path)
    except (OSError, RecursionError):
        remove_by_force(path)


def remove_by_force(folder: Path) -> None:
    """Remove a folder however deep it is and whatever is closed in it; shutil ends at a thousand folders in a row."""
    opened = ("find", folder, "-type", "d", "!", "-perm", "-700", "-execdir", "chmod", "u+rwx", "{}", ";")
    for command in (opened, ("rm", "-rf", folder)):
        done = subprocess.run(command, capture_output=True, env={"PATH": os.defpath, "LC_ALL": "C"}, check=False)
    if os.path.lexists(folder):
        words = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it is still there"]
        raise OSError(errno.ENOTEMPTY, words[0], str(folder))


def make_own_folder(folder: Path) -> None:
    """Make a folder of ours, removing anything else that an agent put in its place."""
    if folder.is_symlink() or not folder.is_dir():
        remove_tree(folder)
        folder.mkdir(parents=True)


def make_writable(path: Path) -> None:
    """Open this folder, and every folder below it, to ourselves."""
    folders = [path]
    while folders:
        folder = folders.pop()
        with contextlib.suppress(OSError):  # the next command that needs it open says so
            folder.chmod(folder.stat().st_mode | stat.S_IRWXU)
            folders += [child for child in folder.iterdir() if child.is_dir() and not child.is_symlink()]
