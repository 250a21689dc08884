"""Bring a branch of the user's to the tip fetched from a remote, with its checkouts, where that loses nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec

from capsule.core.errors import CapsuleError, Overlap, Refused
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git, GitFailed
from capsule.workspaces.checkouts import bring_along, locked, move_branch

_LARGEST_NOTE = 1 << 16


class _Note(msgspec.Struct, frozen=True):
    """Where a branch was before it moved, until its checkouts have followed."""

    branch: str
    old: str


class Follower:
    """A branch of the user's that follows one of a remote."""

    def __init__(
        self, git: Git, branch: str, label: str, artefacts: Sequence[str], *, note: str = "following.json"
    ) -> None:
        """`label` is what people call the branch of the remote; `note` is where a crash finds what is left to do."""
        self._git = git
        self._branch = branch
        self._label = label
        self._artefacts = tuple(artefacts)
        self._note = git.capsule_dir / note

    def follow(self, tip: str) -> tuple[list[str], str]:
        """Bring the branch to the tip; return files that kept the user's edits, and why the branch stays, if it does.

        Safe to repeat: what a crash left undone is done first.
        """
        with locked(self._git, "main"):
            left = self._finish()
            old = self._git.ref(f"refs/heads/{self._branch}")
            if old in ("", tip):
                return left, ""
            if why := self._why_it_stays(old, tip):
                return left, why
            return sorted({*left, *self._finish()}), ""

    def _why_it_stays(self, old: str, tip: str) -> str:
        """Move the branch, and note that its checkouts have to follow; or say why it cannot move."""
        if not self._git.is_ancestor(old, tip):
            way = f"`git push {self._label.replace('/', ' ', 1)}`" if self._git.is_ancestor(tip, old) else ""
            return f"it has commits that {self._label} lacks ({way or '`git pull --rebase` puts them on top'})"
        write_atomically(self._note, msgspec.json.encode(_Note(self._branch, old)))
        try:
            why = f"capsule: as {self._label}"
            if move_branch(self._git, self._branch, old, tip, apart=self._artefacts, why=why):
                return ""
            found = "another git moved it meanwhile"
        except Overlap as edited:
            found = f"your checkout has an uncommitted edit of {edited.named} (`git pull` once it is committed)"
        except (Refused, GitFailed) as fault:
            found = _in_a_clause(fault)
        self._note.unlink()
        return found

    def _finish(self) -> list[str]:
        """Bring checkouts along with a branch that has moved, also before a run was killed."""
        left: list[str] = []
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            noted = msgspec.json.decode(read_regular(self._note, _LARGEST_NOTE), type=_Note)
            now = self._git.ref(f"refs/heads/{noted.branch}")
            if now and self._git.resolve(noted.old):
                left = bring_along(self._git, noted.branch, noted.old, now)
        self._note.unlink(missing_ok=True)
        return left


def _in_a_clause(fault: CapsuleError) -> str:
    text = fault.message.rstrip(".")
    return f"{text[:1].lower()}{text[1:]}" + (f" ({fault.hint.rstrip('.')})" if fault.hint else "")
