"""A mission's refs, read in one question, and its notes: what tells a place of ours from a stranger's, and what an
agent may have done there from what its user did."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git
from capsule.system.git_objects import RefMove
from capsule.system.git_refs import read_head, read_ref

_LONGEST_ID = 64
_LONGEST_NOTE = 4096


@dataclass(frozen=True)
class Standing:
    """Where the mission's refs are; '' is nowhere. `home`: the worktree's HEAD is our branch."""

    base: str
    head: str
    newest: str
    home: bool


class Claim:
    def __init__(self, git: Git, mission: str, note: Path, branch: str) -> None:
        self.branch = f"refs/heads/{branch}"
        self.base = f"refs/capsule/base/{mission}"
        self.checkpoint = f"refs/capsule/checkpoints/{mission}"
        self._git = git
        self._note = note

    def standing(self, entry: Path | None = None) -> Standing:
        """Asked from inside the worktree if its entry is given."""
        return self._read(entry) or self._asked(entry)

    def _read(self, entry: Path | None) -> Standing | None:
        """None where only git can tell."""
        at = read_head(entry or self._git.git_dir)
        base, head, newest = (
            read_ref(self._git.common_dir, name) for name in (self.base, self.branch, self.checkpoint)
        )
        if at is None or base is None or head is None or newest is None:
            return None
        return Standing(base, head, newest, bool(head) and at == self.branch)

    def _asked(self, entry: Path | None) -> Standing:
        names = (self.base, self.branch, self.checkpoint)
        command = ("for-each-ref", "--format=%(refname) %(objectname) %(HEAD)", *names)
        rows = [row.split(" ") for row in self._git.repository(*command, git_dir=entry).out.decode().splitlines()]
        oids = {name: oid for name, oid, *_ in rows}
        base, head, newest = (oids.get(name, "") for name in names)
        return Standing(base, head, newest, any("*" in marks for *_, marks in rows))

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


class _Note(msgspec.Struct, frozen=True):
    since: str
    """The head from which an agent was let loose; '' where it is done and only what it left is still here."""
    hooks: str
    """What the user's hooks were like before."""


class AtWork:
    """Whether an agent is, or was, at work in a place that people share.

    Written down before one is let loose, so that whoever comes after a crash knows whose the commits and files are.
    Remembered as well, because an agent can take the note away.
    """

    def __init__(self, note: Path) -> None:
        self._file = note
        self._known: _Note | None = None

    @property
    def since(self) -> str:
        """The head that an agent started from and has not given back yet; '' where none is at work."""
        note = self._note()
        return note.since if note else ""

    @property
    def hooks(self) -> str:
        note = self._note()
        return note.hooks if note else ""

    def has_left_something(self) -> bool:
        """What lies here and is in no commit is the agent's."""
        return self._note() is not None

    def begins(self, head: str, hooks: str) -> None:
        self._write(_Note(head, hooks))

    def ends(self, *, leaving: bool) -> None:
        """The agent is done; what it leaves waits to be booked or withdrawn."""
        if leaving:
            self._write(_Note("", self.hooks))
        else:
            self.is_over()

    def is_over(self) -> None:
        self._known = None
        self._file.unlink(missing_ok=True)

    def _write(self, note: _Note) -> None:
        if note != self._note():
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self._file, msgspec.json.encode(note))
        self._known = note

    def _note(self) -> _Note | None:
        if self._known is None:
            self._known = _read(self._file)
        return self._known


def agent_left_something(git: Git, mission: str) -> bool:
    """Whether a run was cut short while an agent was at work in the checkout: what lies there is the agent's then."""
    return AtWork(at_work_note(git, mission)).has_left_something()


def at_work_note(git: Git, mission: str) -> Path:
    return git.capsule_dir / "places" / mission / "at-work"


def _read(file: Path) -> _Note | None:
    try:
        return msgspec.json.decode(read_regular(file, _LONGEST_NOTE), type=_Note)
    except (OSError, msgspec.MsgspecError):
        return None
