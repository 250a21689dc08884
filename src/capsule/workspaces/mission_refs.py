"""A mission's refs, read in one question, and the note of its base: they tell a place of ours from a stranger's."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import RefMove
from capsule.system.git_refs import read_head, read_ref

_LONGEST_ID = 64


class MissionRefs(NamedTuple):
    """Where the mission's refs are; '' is nowhere. `home`: the worktree's HEAD is our branch."""

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

    def standing(self, entry: Path | None = None) -> MissionRefs:
        """Asked from inside the worktree if its entry is given."""
        return self._read(entry) or self._asked(entry)

    def _read(self, entry: Path | None) -> MissionRefs | None:
        """None where only git can tell."""
        at = read_head(entry or self._git.git_dir)
        base, head, newest = (
            read_ref(self._git.common_dir, name) for name in (self.base, self.branch, self.checkpoint)
        )
        if at is None or base is None or head is None or newest is None:
            return None
        return MissionRefs(base, head, newest, bool(head) and at == self.branch)

    def _asked(self, entry: Path | None) -> MissionRefs:
        names = (self.base, self.branch, self.checkpoint)
        command = ("for-each-ref", "--format=%(refname) %(objectname) %(HEAD)", *names)
        rows = [row.split(" ") for row in self._git.repository(*command, git_dir=entry).out.decode().splitlines()]
        oids = {name: oid for name, oid, *_ in rows}
        base, head, newest = (oids.get(name, "") for name in names)
        return MissionRefs(base, head, newest, any("*" in marks for *_, marks in rows))

    def note_base(self, base: str) -> None:
        """Written down as well, for when an agent takes the ref away."""
        if self.noted_base() != base:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._note, base)

    def noted_base(self) -> str:
        try:
            return read_regular(self._note, _LONGEST_ID).decode(errors="replace")
        except OSError:
            return ""

    def put_base_back(self) -> str:
        """The base by its note, with a ref again; '' where there is none."""
        noted = self.noted_base()
        base = self._git.resolve(noted) if noted else ""
        if base:
            self._git.move_refs(RefMove(self.base, base, ""), why="capsule: the base again")
        return base
