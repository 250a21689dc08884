"""Settings, workflows and prompts lie in the checkout where agents work, and agents are judged by them.

They are no part of the work. How they lay there is remembered before an agent is let loose, also where git ignores
them, and afterwards they lie there like that again. What was found instead goes on the shelf.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git
from capsule.workspaces.salvage import put_aside

WATCHED = (".capsule/config.yaml", ".capsule/workflows", ".capsule/prompts", ".capsule/templates", "orchestrate.toml")
_LARGEST = 1024 * 1024
_LARGEST_NOTE = 64 * _LARGEST

Found = tuple[str, bytes]
"""What stands there: file, link or other, and its content."""


class SettingsGuard:
    def __init__(self, git: Git, note: Path) -> None:
        self._git = git
        self._note = note
        self._before: dict[str, Found] | None = None

    def remember(self) -> None:
        """Written down as well, for whoever comes after a crash."""
        now = self._there()
        if now != self._before or not self._note.exists():
            write_atomically(self._note, msgspec.json.encode(now))
        self._before = now

    def put_right(self) -> list[str]:
        """The paths that were not as they had been."""
        before = self._remembered()
        if before is None:
            return []
        if (self._git.root / ".capsule").is_symlink():
            put_aside(self._git, self._git.root / ".capsule")
        now = self._there()
        changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
        for path in changed:
            if path in now:
                put_aside(self._git, self._git.root / path)
        for path in changed:
            if path in before:
                self._put(self._git.root / path, before[path])
        return changed

    def _remembered(self) -> dict[str, Found] | None:
        if self._before is None and self._note.exists():
            try:
                self._before = msgspec.json.decode(read_regular(self._note, _LARGEST_NOTE), type=dict[str, Found])
            except (OSError, msgspec.MsgspecError):
                return None
        return self._before

    def _put(self, path: Path, found: Found) -> None:
        kind, content = found
        if path.is_dir() and not path.is_symlink():
            put_aside(self._git, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            write_atomically(path, content)
        elif kind == "link":
            path.symlink_to(os.fsdecode(content))

    def _there(self) -> dict[str, Found]:
        root = self._git.root
        paths = (path for name in WATCHED for path in _below(root / name))
        return {path.relative_to(root).as_posix(): _what_is(path) for path in paths}


def _below(top: Path) -> Iterator[Path]:
    """Everything that is no folder, links among it; none is followed."""
    if top.is_dir() and not top.is_symlink():
        for entry in sorted(top.iterdir()):
            yield from _below(entry)
    elif os.path.lexists(top):
        yield top


def _what_is(path: Path) -> Found:
    kind = path.lstat().st_mode
    if stat.S_ISLNK(kind):
        return "link", os.fsencode(path.readlink())
    try:
        return "file", read_regular(path, _LARGEST)
    except OSError:
        return "other", b""
