"""Locks that a killed git left behind.

Git never clears its own: after a kill -9 every command that wants the same file fails for good. But a lock may also
belong to a live process, such as a `git commit` that waits for its editor. So a lock is taken away only if all of this
holds: it is one of the files git locks for a moment, it is older than two seconds (git needs milliseconds), and no git
process works in this repository. Where processes cannot be asked for their directory, any git at all counts.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

PATIENCE = 2.5
STALE_AFTER = 2.0
_INTERVAL = 0.05
_IN_THE_WAY = r"(?s)Unable to create '(?P<path>.+?\.lock)': File exists"
_EXPECTED = (
    r"(worktrees/[^/]+/)?(index|[A-Z]+_HEAD|HEAD|packed-refs|shallow|config(\.worktree)?|refs/.+)\.lock"
    r"|objects/info/(commit-graph|commit-graphs/commit-graph-chain)\.lock"
    r"|capsule/(git(/refs/heads)?|places/[^/]+)/[^/]+\.lock"
)


def in_the_way(words: str) -> Path | None:
    """Return the lock that a failed command complains about."""
    found = re.search(_IN_THE_WAY, words)
    return Path(found["path"]) if found else None


def wait_for_lock(lock: Path, common_dir: Path, folders: Iterable[Path]) -> bool:
    """Wait for a live holder and clear a dead one's lock; return False if it is still held."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not lock.exists() or clear_if_stale(lock, common_dir, folders):
            return True
        time.sleep(_INTERVAL)
    return False


def clear_if_stale(lock: Path, common_dir: Path, folders: Iterable[Path], *, older_than: float = STALE_AFTER) -> bool:
    """Remove the lock if no process can be using it; return whether it was removed."""
    expected = lock.is_relative_to(common_dir) and re.fullmatch(_EXPECTED, lock.relative_to(common_dir).as_posix())
    try:
        seen = lock.lstat()
        if not expected or git_at_work(folders):
            return False
        found = lock.lstat()
        another = (found.st_ino, found.st_mtime_ns) != (seen.st_ino, seen.st_mtime_ns)  # by a git that has just begun
        if another or time.time() - found.st_mtime < older_than:
            return False
        lock.unlink()
    except FileNotFoundError:  # its owner released it
        return False
    return True


def git_at_work(folders: Iterable[Path]) -> bool:
    """Tell whether a git process works in one of these folders; outside of Linux, whether there is any."""
    if sys.platform != "linux":
        # The readers of our own, which stay (`git_objects`), hold no lock.
        listed = subprocess.run(["ps", "-axo", "args="], capture_output=True, check=False, timeout=10).stdout
        lines = (line for line in listed.splitlines() if line.strip() and b"--batch-command" not in line)
        return any(os.path.basename(line.split()[0]).startswith(b"git") for line in lines)  # noqa: PTH119 (bytes)
    places = tuple(folders)
    for process in Path("/proc").iterdir():
        # A process that ended, or of another user, cannot work in our repository.
        with contextlib.suppress(OSError):
            if process.name.isdecimal() and (process / "comm").read_bytes().startswith(b"git"):
                cwd = (process / "cwd").readlink()
                if any(cwd.is_relative_to(folder) for folder in places):
                    return True
    return False
