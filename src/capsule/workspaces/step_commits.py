"""Commits that say which step they belong to, so that whoever comes after a crash finds out whether one was made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from capsule.system.git import Git

STEP, ADDED = "Capsule-Step", "Capsule-Added"
_FEW = 50
"""How far back is looked where nobody says since when."""


@dataclass(frozen=True)
class StepCommit:
    commit: str
    key: str
    added: tuple[str, ...]


def message_of(words: str, key: str, added: Sequence[str] = ()) -> str:
    """The trailers stand in a last paragraph of their own: whatever the words hold, git reads no others."""
    rows = [f"{STEP}: {key}", *([f"{ADDED}: {' '.join(added)}"] if added else [])]
    return f"{words.rstrip()}\n\n" + "\n".join(rows) + "\n"


def find_step(git: Git, key: str, tip: str, since: str = "") -> StepCommit | None:
    """The newest commit of a step in what came after `since`."""
    return next((found for found in step_commits(git, tip, since) if found.key == key), None)


def step_commits(git: Git, tip: str, since: str = "") -> list[StepCommit]:
    """Newest first. An agent can write trailers too, but only into commits that a merge brings along."""
    if not tip:
        return []
    fields = "%x00".join(f"%(trailers:key={key},valueonly,separator=%x20)" for key in (STEP, ADDED))
    reach = (tip, f"^{since}") if since else (f"--max-count={_FEW}", tip)
    said = git.content("log", "--first-parent", "-z", f"--format=%H%x00{fields}", *reach, "--").out.decode(
        errors="replace"
    )
    words = said.rstrip("\n").split("\0")
    rows = zip(words[0::3], words[1::3], words[2::3], strict=False)
    return [StepCommit(commit, key.strip(), tuple(added.split())) for commit, key, added in rows if key.strip()]
