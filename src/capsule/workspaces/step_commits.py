"""Commits that name their step, so that a step is found after a crash."""

from __future__ import annotations

import re
from collections.abc import Sequence

from capsule.system.git import Git

STEP, ADDED = "Capsule-Step", "Capsule-Added"
_FEW = 50
"""How far back to search without a starting commit."""


def message_of(words: str, key: str, added: Sequence[str] = ()) -> str:
    """Put the trailers in a last paragraph of their own: git reads no others, with any text before."""
    rows = [f"{STEP}: {key}", *([f"{ADDED}: {' '.join(added)}"] if added else [])]
    return f"{words.rstrip()}\n\n" + "\n".join(rows) + "\n"


def find_step(git: Git, key: str, tip: str, since: str = "", most: int = _FEW) -> tuple[str, tuple[str, ...]] | None:
    """Find the newest commit of a step after `since`, else among so many, and the ids of the items it added.

    An agent can write trailers too, but only into commits that a merge brings along.
    """
    if not _may_hold(git, key, tip, since, further=bool(since) or most > _FEW):
        return None
    fields = "%x00".join(f"%(trailers:key={each},valueonly,separator=%x20)" for each in (STEP, ADDED))
    reach = (tip, f"^{since}") if since else (f"--max-count={most}", tip)
    said = git.content("log", "--first-parent", "-z", f"--format=%H%x00{fields}", *reach, "--").out
    words = said.decode(errors="replace").rstrip("\n").split("\0")
    for commit, found, added in zip(words[0::3], words[1::3], words[2::3], strict=False):
        if found.strip() == key:
            return commit, tuple(added.split())
    return None


def _may_hold(git: Git, key: str, tip: str, since: str, *, further: bool) -> bool:
    """Tell whether one of these commits may name the step; `further`: one before the first few may, too."""
    if tip and (git.common_dir / "shallow").exists():
        return True
    for _ in range(_FEW):
        if not tip or tip == since:
            return False
        commit = git.commit(tip)
        if f"{STEP}: {key}" in commit.message:
            return True
        tip = commit.parents[0] if commit.parents else ""
    return further


def last_step_of(git: Git, mission: str, tip: str) -> str:
    """Return the newest commit of any step of a mission; '' if there is none."""
    wanted = f"--grep=^{STEP}: {re.escape(mission)}/"
    return (
        git.content("log", "--first-parent", "-1", "--format=%H", "--extended-regexp", wanted, tip, "--")
        .out.decode()
        .strip()
    )
