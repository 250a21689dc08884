"""Keep caches warm for the gate: what was compiled once for main's own tree is not compiled again for every run.

    ~/.cache/capsule/caches/<repository>/<name>    shared: written after tests ran on main's own tree, by nothing else
    <gate>+caches/<name>                           one mission's: made equal to the shared one before every run
    <common>/capsule/caches/<name>                 how every file of the shared one stood when it was written
    <common>/capsule/places/<mission>/gate-caches/ the same of the mission's

**Why not the user's own.** An entry of Go's cache says which output belongs to which input, and nobody checks it:
whoever can write there can make a test pass that was never compiled. Agents without a sandbox can write to the user's,
and so can the code under test. So a gate has its own, and what a run leaves in it is taken back before the next.

**Nothing else writes to the shared one.** If a file there is not as it was left, down to its change time, all of it is
removed and the next run compiles again. A copy that was cut short counts as touched.

Only caches that find their entries by content belong here. Build folders that compare time stamps (`target`, `build`)
do not: a tree that was checked out before they were filled would pass for built.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from capsule.system.files import head_bytes, write_atomically
from capsule.system.folders import fingerprint, mirror, remove_tree
from capsule.system.lock import held

_PATIENCE = 600
_LONGEST_NOTE = 100


_CACHES = {"go-build": "GOCACHE"}
"""By name: the environment variable that tells the tool where its cache is."""


class Caches:
    """The caches of one gate."""

    def __init__(self, shared: Path, own: Path, notes: Path, own_notes: Path) -> None:
        self._shared, self._own, self._notes, self._own_notes = shared, own, notes, own_notes

    def variables(self) -> dict[str, str]:
        return {variable: str(self._own / name) for name, variable in _CACHES.items()}

    def refresh(self) -> None:
        """Make the gate's own equal to the shared ones, without leftovers of an earlier run."""
        for folder in (self._own, self._own_notes):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in _CACHES:
            own, shared = self._own / name, self._shared / name
            with self._locked(name):
                left = head_bytes(self._notes / name, _LONGEST_NOTE).decode()
                if left and left == fingerprint(shared):
                    mirror(shared, own, self._own_notes / name)
                else:
                    remove_tree(shared)
                    remove_tree(own)
                    own.mkdir(mode=0o700)

    def keep(self) -> None:
        """Make the shared ones equal to the gate's own, after tests ran there on main's own tree."""
        for name in _CACHES:
            own, shared, note = self._own / name, self._shared / name, self._notes / name
            if not any(own.iterdir()):
                continue
            with self._locked(name):
                note.unlink(missing_ok=True)
                for folder in (shared.parent, note.parent):
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                mirror(own, shared, note.with_suffix(".json"))
                write_atomically(note, fingerprint(shared))

    def remove(self) -> None:
        """Remove the gate's own."""
        remove_tree(self._own)
        remove_tree(self._own_notes)

    def _locked(self, name: str) -> AbstractContextManager[None]:
        return held(self._notes.parent / "locks" / f"cache-{name}.lock", _PATIENCE)
