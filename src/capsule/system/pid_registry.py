"""Register who runs commands in a project: one locked file per supervisor, named by its processes' marker.

If a runner and its supervisor are both killed, nobody is left who knows what they had started. Their file is: the
kernel has freed its lock, so the next run can tell it from that of a living runner, and look for the marker in its
name. A file gets its name only once it is locked, so a living one never looks dead.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from capsule.system.files import sweep_temps, temp_path
from capsule.system.lock import NoLocks, try_lock


class Registration:
    """One file, held open and locked."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.marker = path.name
        self._fd = fd

    def unregister(self) -> None:
        """Remove the file: all processes with its marker have ended."""
        with contextlib.suppress(OSError):  # its folder may have been taken away; the lock goes in any case
            self.path.unlink(missing_ok=True)
        os.close(self._fd)


def register(folder: Path, marker: str) -> Registration:
    folder.mkdir(parents=True, exist_ok=True)
    draft = temp_path(folder)
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        try_lock(fd, fcntl.LOCK_EX, draft)  # nobody else knows it yet
    except NoLocks:
        os.close(fd)
        draft.unlink()
        raise
    draft.rename(folder / marker)
    return Registration(folder / marker, fd)


def abandoned(folder: Path) -> list[Registration]:
    """Return the registrations whose runner is gone."""
    if folder.is_dir():
        sweep_temps(folder)  # drafts of runners that were killed before theirs had a name
    found = []
    for path in sorted(folder.glob("[!.]*")):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            if try_lock(fd, fcntl.LOCK_EX, path):
                found.append(Registration(path, fd))
            else:
                os.close(fd)
    return found
