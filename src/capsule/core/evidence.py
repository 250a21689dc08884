"""Compare what agents claim with what was observed.

An **observation** is a fact about a tree: the test command was green on it, these files differ. **Evidence** sets one
claim beside one observation and says whether it stands.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Colour(StrEnum):
    """Result of the test command; only green and red are facts about a tree that may be used again."""

    GREEN = "green"
    RED = "red"
    EMPTY = "empty"
    TIMED_OUT = "timed out"
    NOT_RUN = "not run"
    NO_RESULT = "no result"
    """It was killed from outside: that says nothing about the tree."""


REUSABLE = (Colour.GREEN, Colour.RED)


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of the test command on a tree."""

    tree: str
    command: str
    colour: Colour
    exit_code: int | None = None
    seconds: float = 0.0
    tail: str = ""
    log: str = ""


class EvidenceStatus(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNVERIFIED = "unverified"


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim, what was observed, and the verdict on it."""

    check: str
    claimed: str
    observed: str
    standing: EvidenceStatus
    detail: str = ""
    patience: int | None = None
    """After how many refutations by this check the item stops; null: when no retries are left."""
    instead: str = ""
    """The reason given when the item stops because of `patience`."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path that differs between two trees. `kind` is git's letter: A, M, D or T."""

    path: str
    kind: str


class Checkpoint(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named state of a workspace.

    `commit` holds everything, worklog and untracked files included; `head` is where the branch stood;
    `tree` is what would be delivered: the same without the pipeline's artefacts.
    """

    commit: str
    head: str
    tree: str


def refuted(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    return tuple(piece for piece in evidence if piece.standing is EvidenceStatus.REFUTED)


def as_feedback(evidence: tuple[Evidence, ...]) -> str:
    """Tell the agent why its PASS did not hold: the claim, what was seen, and the proof."""
    parts = ["You reported PASS, but Capsule checked and the claim does not hold:"]
    for piece in refuted(evidence):
        parts.append(f"- Claimed: {piece.claimed}\n  Observed: {piece.observed}")
        if piece.detail:
            fence = "```"
            while fence in piece.detail:
                fence += "`"
            parts.append(f"{fence}\n{piece.detail.rstrip()}\n{fence}")
    return "\n\n".join(parts)
