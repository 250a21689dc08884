"""The gate: a folder that holds exactly the tree to be judged, without leftovers of an agent.

    ~/.cache/capsule/gates/<repository>/<mission>/    the folder, in $XDG_CACHE_HOME where that is set
    <common>/capsule/private/<mission>+gate/git       its git directory

Beside it, `<mission>+caches` holds warm caches of build tools (`caches`).

**It lies outside the checkout**, because Node, pytest and others look for files in every folder above them: in the
checkout they would find the user's `node_modules` and configuration.

**It is no worktree of the repository.** Tests run what an agent wrote, so the gate has a git directory of its own, made
anew before every use: `git describe` and what is built on it work, and whatever is committed or set there stays there.

It is kept and reset, because a reset costs milliseconds and a set-up may cost minutes. Before every use all files that
the tree does not have are removed, ignored ones too: caches and build results of one tree must not colour the next.
Three kinds stay: installed dependencies, which are compared with the checkout's; copied files; and what the set-up left
there (a `node_modules`, a `.venv`). Of the last a copy is kept beside the gate when the set-up has ended, and whatever
a test changed in there is put back from it: no attempt is judged by what an earlier one installed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec.structs import replace

from capsule.adapters import TestSite
from capsule.core.briefing import SandboxPaths
from capsule.core.errors import CapsuleError
from capsule.system.files import write_atomically
from capsule.system.folders import adopt, clone, make_own_folder, mirror, own_cache, remove_tree
from capsule.system.git import Git, GitFailed
from capsule.system.git_directory import pointer_to
from capsule.workspaces.caches import Caches
from capsule.workspaces.dependencies import is_inside
from capsule.workspaces.linked import LinkedWorktree, remove_what_stops_git
from capsule.workspaces.private_git import fill_git_directory, mounted_paths, unmounted_paths
from capsule.workspaces.provision import Provisions, recall_paths, remember_paths


class Gate:
    """One per mission, made on first use."""

    def __init__(self, git: Git, mission: str, notes: Path, provisions: Provisions, *, mounted: bool) -> None:
        """`mounted`: commands run in a sandbox that shows the gate at the checkout's own path."""
        logs = git.root / ".capsule" / "missions" / mission
        self._git = git
        self._mission = mission
        self._index = notes / "gate-index"
        self._note = notes / "gate-setup"
        self._kept = notes / "gate-kept"
        self._cloned = notes / "gate-dependencies"
        self._compared = notes / "gate-setup-entries"
        self._provisions = provisions
        self._log = logs / "gate-setup.log"
        self._mounted = mounted
        self._private = git.capsule_dir / "private" / f"{mission}+gate"
        self._former = LinkedWorktree(git, logs / "gate")
        """The gate of earlier versions: a worktree of the repository."""

    @cached_property
    def path(self) -> Path:
        return gates_folder(self._git, os.environ) / self._mission

    @cached_property
    def caches(self) -> Caches:
        """Warm caches of build tools, shared with the other gates of this repository."""
        gates = self.path.parent
        shared = gates.parent.with_name("caches") / gates.name
        own, own_notes = self.path.with_name(f"{self._mission}+caches"), self._index.with_name("gate-caches")
        return Caches(shared, own, self._git.capsule_dir / "caches", own_notes)

    @property
    def _as_set_up(self) -> Path:
        """Return the folder that keeps what the set-up left, untouched by any test."""
        return self.path.with_name(f"{self._mission}+setup")

    @property
    def _reports(self) -> Path:
        """Return the folder for test runners' reports: outside of the tree, empty before every run."""
        return self.path.with_name(f"{self._mission}+reports")

    def at(self, tree: str, base: str) -> Path:
        """Return the folder, holding exactly this tree, set up; its HEAD is the commit `base`."""
        self._index.parent.mkdir(parents=True, exist_ok=True)
        self._remove_former()
        try:
            self._make(tree, base)
        except (GitFailed, OSError, RecursionError):
            # Folders that are closed to us or too deep, for example: nothing in here is worth saving.
            self.remove()
            self._make(tree, base)
        return self.path

    def site(self, tree: str, base: str, edits: Mapping[str, bytes]) -> TestSite:
        """Return the folder as `at` does, with the content of some files replaced, and all that a run there needs."""
        self.caches.refresh()
        self.at(tree, base)
        for path, content in edits.items():
            target = self.path / path
            if not is_inside(self.path, target) or target.is_symlink():
                raise CapsuleError(f"{path} leads out of the tree.", "Put a regular file in its place.")
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, content, flush=False)  # the next use resets it: its time stamp differs
        remove_tree(self._reports)
        self._reports.mkdir(mode=0o700)
        return TestSite(self.path, self.sandbox_paths(base), self._reports)

    def sandbox_paths(self, base: str) -> SandboxPaths:
        """Return the paths that a sandbox shows of it."""
        at, paths = (self._git.root, mounted_paths) if self._mounted else (self.path, unmounted_paths)
        layers = self._provisions.dependencies.layers(base, at)
        shown = paths(self._git, self.path, self._private / "git", layers)
        return replace(shown, writable=(*shown.writable, str(self._reports), *self.caches.variables().values()))

    def remove(self) -> None:
        """Remove it with all that belongs to it. Safe to repeat."""
        self._remove_former()
        self.caches.remove()
        folders = (self.path, self._as_set_up, self._reports, self._private, self._cloned, self._compared)
        for each in (*folders, self._index, self._note, self._kept):
            remove_tree(each)
        with contextlib.suppress(OSError):  # others have theirs in there
            self.path.parent.rmdir()

    def _remove_former(self) -> None:
        if os.path.lexists(self._former.path) or self._former.entry():
            self._former.remove()
            for file in (self._index, self._note, self._kept):
                file.unlink(missing_ok=True)

    def _make(self, tree: str, base: str) -> None:
        new = self.path.is_symlink() or not self.path.is_dir()
        if new:
            remove_tree(self.path)
            self._index.unlink(missing_ok=True)
            while not self.path.is_dir():
                with contextlib.suppress(FileNotFoundError):  # another mission ended, and removed the empty folder
                    self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                    self.path.mkdir(mode=0o700)
        needed = self._provisions.needs_listing(self._git.root)
        files = self._git.list_tree(tree, recursive=True) if needed else []
        inputs = self._provisions.inputs(files)
        done = not new and self._as_set_up.is_dir() and self._note.exists() and self._note.read_text() == inputs
        due = bool(inputs) and not done
        if due:
            self._note.unlink(missing_ok=True)
        remove_what_stops_git(self.path)
        self._reset(tree)
        dependencies = self._provisions.dependencies
        if not new:
            of_setup = [] if due or not inputs else recall_paths(self._kept)
            kept = [*of_setup, *map(os.fsencode, dependencies.paths(base))]
            # Each an ignore pattern that means this one path.
            plain = [re.sub(r"([\\*?\[\] !#])", r"\\\1", os.fsdecode(path)) for path in kept]
            exceptions = [word for path in plain for word in ("-e", f"/{path}")]
            self._git.content("clean", "-ffdxq", *exceptions, index=self._index, worktree=self.path)
            self._put_back(of_setup)
        if not self._mounted:
            dependencies.provide(base, self.path, self._cloned)
        copied = self._provisions.copy_into(self.path, self._git.root, frozenset(file.path for file in files))
        self._give_git_directory(base)
        if due:
            self._set_up(tree, base, inputs, copied)
            self._give_git_directory(base)

    def _give_git_directory(self, base: str) -> None:
        """Make its git directory again, without leftovers of an earlier run."""
        make_own_folder(self._private.parent)
        remove_tree(self._private)
        fill_git_directory(self._git, self._private / "git", head=base, index=self._index)
        link = self.path / ".git"
        if not link.is_file() or link.is_symlink():
            remove_tree(link)
        write_atomically(link, pointer_to(self._private / "git"), flush=False)

    def _set_up(self, tree: str, base: str, inputs: str, copied: list[bytes]) -> None:
        self._provisions.run(self.path, self._log, self.sandbox_paths(base), self.caches.variables())
        listing = self._git.content("ls-files", "-z", "--others", "--directory", index=self._index, worktree=self.path)
        apart = {*copied, *(os.fsencode(f"{path}/") for path in self._provisions.dependencies.paths(base))}
        made = {*listing.out.split(b"\0")} - {b""} - apart
        remember_paths(self._kept, {*made, *copied})
        for folder in (self._as_set_up, self._compared):
            remove_tree(folder)
            folder.mkdir()
        for path in map(os.fsdecode, made):
            source, kept = self.path / path, self._as_set_up / path
            kept.parent.mkdir(parents=True, exist_ok=True)
            clone(source, kept)
            if kept.is_dir() and not kept.is_symlink():
                adopt(kept, source, self._entries_of(path))
        self._reset(tree)
        write_atomically(self._note, inputs)

    def _put_back(self, made: Iterable[bytes]) -> None:
        for path in map(os.fsdecode, made):
            kept, target = self._as_set_up / path, self.path / path
            if not is_inside(self.path, target):
                continue
            if kept.is_dir() and not kept.is_symlink():
                target.parent.mkdir(parents=True, exist_ok=True)
                mirror(kept, target, self._entries_of(path))
            elif os.path.lexists(kept):
                remove_tree(target)
                target.parent.mkdir(parents=True, exist_ok=True)
                clone(kept, target)

    def _entries_of(self, path: str) -> Path:
        return self._compared / hashlib.sha256(os.fsencode(path)).hexdigest()[:24]

    def _reset(self, tree: str) -> None:
        self._git.content("read-tree", "--reset", "-u", tree, index=self._index, worktree=self.path)


def gates_folder(git: Git, env: Mapping[str, str]) -> Path:
    """Return the folder for the gates of this repository: never in its checkout, in the temporary folder if need be."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "-", git.root.name).strip("-")[:40] or "project"
    key = hashlib.sha256(os.fsencode(os.path.realpath(git.common_dir))).hexdigest()[:12]
    return own_cache(env, apart_from=Path(os.path.realpath(git.root))) / "gates" / f"{readable}-{key}"
