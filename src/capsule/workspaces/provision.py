"""Provide a place with what it needs besides its files: copies (`workspace.copy`, such as `.env`), a set-up
(`workspace.setup`, such as `npm ci`), and the project's installed dependencies (`dependencies`).

A set-up is run again only when its inputs changed: the command, or a manifest or lock file of the tree. What it was
last run with is noted after it succeeded, so one that was cut short counts as not run.

Copied files are the user's and no part of the work: their list is kept, and they stay out of every snapshot.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from capsule.core.briefing import SandboxPaths
from capsule.core.errors import SettingsError
from capsule.core.manifests import is_manifest
from capsule.system.files import write_atomically
from capsule.system.git_objects import TreeEntry
from capsule.workspaces.dependencies import Dependencies

RunSetup = Callable[[str, Path, Path, SandboxPaths | None, Mapping[str, str] | None], None]
"""Runs a shell command in a folder, its output in a log, with more variables; raises CapsuleError where it fails."""
_NEVER_COPIED = (".git", ".capsule")


class Provisions(NamedTuple):
    dependencies: Dependencies
    setup: str = ""
    copy: Sequence[str] = ()
    run_setup: RunSetup | None = None

    def inputs(self, files: Iterable[TreeEntry]) -> str:
        """Return what the set-up's result depends on, in one word; '' where there is no set-up."""
        if not self.setup:
            return ""
        told = [self.setup.encode(), *(e.oid.encode() + e.path for e in files if is_manifest(os.fsdecode(e.path)))]
        return hashlib.sha256(b"\0".join(told)).hexdigest()

    def run(
        self, place: Path, log: Path, sandbox_paths: SandboxPaths | None, env: Mapping[str, str] | None = None
    ) -> None:
        """Run the set-up as tests and agents will run there: what it installs may hold the path it was installed at."""
        if self.setup and self.run_setup:
            log.parent.mkdir(parents=True, exist_ok=True)
            self.run_setup(self.setup, place, log, sandbox_paths, env)

    def needs_listing(self, root: Path) -> bool:
        """Tell whether there is anything to copy or to set up, for which the files of the tree have to be known."""
        return bool(self.setup) or any(next(_matches(root, pattern), None) for pattern in self.copy)

    def copy_into(self, place: Path, root: Path, tracked: frozenset[bytes]) -> list[bytes]:
        """Copy what the patterns name and the place lacks; return every path that is there by copying."""
        copied = []
        for path in sorted({path for pattern in self.copy for path in _matches(root, pattern)}):
            target, name = place / path, os.fsencode(path)
            # Never through a link that the tree holds, never over something that is there.
            if name in tracked or not target.parent.resolve().is_relative_to(place.resolve()):
                continue
            if not os.path.lexists(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / path, target)
            copied.append(name)
        return copied


def remember_paths(file: Path, paths: Iterable[bytes]) -> None:
    write_atomically(file, b"\0".join(sorted(paths)))


def recall_paths(file: Path) -> list[bytes]:
    return [path for path in file.read_bytes().split(b"\0") if path] if file.exists() else []


def _matches(root: Path, pattern: str) -> Iterator[PurePath]:
    """Yield the files the pattern names, those in folders it names included."""
    if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts or not pattern.strip("./"):
        raise SettingsError(f"workspace.copy: {pattern!r} leaves the project.", "Give paths relative to its root.")
    for found in root.glob(pattern):
        for file in _files_below(found) if found.is_dir() and not found.is_symlink() else (found,):
            inside = file.relative_to(root)
            real = file.is_file() and file.resolve().is_relative_to(root.resolve())  # no link that leads outside
            if real and inside.parts[0] not in _NEVER_COPIED:
                yield inside


def _files_below(top: Path) -> Iterator[Path]:
    """Leave out repositories and worktrees that lie in there, such as `.claude/worktrees/…`."""
    for folder, folders, files in os.walk(top):
        if ".git" in (*folders, *files):
            folders.clear()
            continue
        yield from (Path(folder, name) for name in files)
