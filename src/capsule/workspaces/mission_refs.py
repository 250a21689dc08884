"""A mission's refs, read at once, and the note of its base: they identify a place of ours."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from capsule.system.files import head_bytes, write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import RefMove

_LONGEST_ID = 64


class MissionRefs(NamedTuple):
    """The commits that a mission's refs are at; '' is none. `home`: the worktree's HEAD is our branch."""

    base: str
    head: str
    newest: str
    home: bool


class RefReader:
    """The refs of one mission: its branch, its base, its newest checkpoint."""

    def __init__(self, git: Git, mission: str, note: Path, branch: str) -> None:
        self.branch = f"refs/heads/{branch}"
        self.base = f"refs/capsule/base/{mission}"
        self.checkpoint = f"refs/capsule/checkpoints/{mission}"
        self._git = git
        self._note = note

    def load(self, entry: Path | None = None) -> MissionRefs:
        """Read the refs, from inside the worktree if its entry is given."""
        refs = self._git.refs(self.base, self.branch, self.checkpoint)
        base, head, newest = (refs.get(name, "") for name in (self.base, self.branch, self.checkpoint))
        home = bool(head) and f"refs/heads/{self._git.checked_out(entry)}" == self.branch
        return MissionRefs(base, head, newest, home)

    def note_base(self, base: str) -> None:
        """Note the base in a file, too, in case an agent removes the ref."""
        if self.noted_base() != base:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._note, base)

    def noted_base(self) -> str:
        return head_bytes(self._note, _LONGEST_ID).decode(errors="replace")

    def put_base_back(self) -> str:
        """Restore the base ref from the note and return it; '' if there is none."""
        noted = self.noted_base()
        base = self._git.resolve(noted) if noted else ""
        if base:
            self._git.move_refs(RefMove(self.base, base, ""), why="capsule: the base again")
        return base
