"""Compare what agents claim with what was observed.

An **observation** is a fact about a tree: the test command was green on it, these files differ. **Evidence** compares
one claim with one observation and says whether it holds.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Colour(StrEnum):
    """Result of the test command; green, red and empty are facts about a tree and are cached."""

    GREEN = "green"
    RED = "red"
    EMPTY = "empty"
    TIMED_OUT = "timed out"
    NOT_RUN = "not run"
    NO_RESULT = "no result"
    """Killed from outside, which says nothing about the tree."""


REUSABLE = (Colour.GREEN, Colour.RED, Colour.EMPTY)


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of the test command on a tree."""

    tree: str
    command: str
    colour: Colour
    exit_code: int | None = None
    seconds: float = 0.0
    tail: str = ""
    log: str = ""
    tests: int = 0
    """How many tests reported their names; 0 if only the exit code is known."""
    passed: int = 0
    failing: tuple[str, ...] = ()
    """The first failed tests."""
    edits: tuple[str, ...] = ()
    """Changes to the tree for this run, one line each: a mutant, canaries."""
    beside: bool = False
    """Whether other missions ran on this machine meanwhile."""
    alone: bool = False
    """Whether it was run again alone, because it was red while other missions ran."""
    report: str = ""
    """The hash of the mission's `report-<key>.json`, which holds the result of each test."""


class EvidenceStatus(StrEnum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    UNVERIFIED = "unverified"
    ACCEPTED = "accepted"
    """It was refuted, and a person accepted it in writing."""


class ExamTest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One test of an exam, by an agent that saw neither the code nor its tests. The coder never sees `code`."""

    id: str
    """`E1`, `E2` …: the only name that the coder sees."""
    criterion: str
    """The requirement, in the examiner's words."""
    input: str
    expected: str
    file: str
    """Where the test belongs in the project."""
    name: str
    """What the test runner calls it."""
    code: str
    """The whole file."""


class ExamMark(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    DROPPED = "dropped"
    """It proves nothing, or could not be run."""
    STRUCK = "struck out"
    """A review found it mistaken, in writing."""


class ExamResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one test of an exam."""

    id: str
    mark: ExamMark
    seen: str = ""
    """For a failed test: what the code did. For others: why they do not count."""


class ProofPart(StrEnum):
    """A part of the one-line summary of a mission's proof, in order."""

    RED = "red"
    MENDED = "mended"
    GREEN = "green"
    UNHARMED = "unharmed"
    KEPT = "kept"
    DOCS = "documents"
    KILLS = "kills"
    DEMANDED = "demanded"
    CANARY = "canary"
    EXAM = "hidden tests"


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
    mend: str = ""
    """What has to be mended, such as `tests`: refuted work goes to the phase that writes it. Empty: as the role says.
    """
    survivors: tuple[str, ...] = ()
    """The mutants that no test noticed, one line each."""
    not_covered: tuple[str, ...] = ()
    """The changed functions that no test executes, apart from those whose mutants survived."""
    by_absence: bool = False
    """Whether new tests could not be loaded, as what they name did not exist: they have yet to fail by name."""
    tree: str = ""
    """Of a refuted claim: identifies what was judged, so that a person can accept it for that and nothing else."""
    harmless: bool = False
    """Whether a refutation is only shown, as a sign, and costs no retry."""
    exam: tuple[ExamResult, ...] = ()
    """The results of the exam's tests."""
    proven: dict[str, str] = {}
    """What it adds to the one-line summary of the proof, by part: `red by name (3 new)`."""
    tests: dict[str, tuple[str, ...]] = {}
    """The first of its tests, by kind: new, rewritten, known to fail, flaky."""


def is_doubtful(seen: Observation) -> bool:
    """Tell whether other missions may have caused a bad result."""
    return seen.beside and seen.colour in (Colour.RED, Colour.TIMED_OUT)


ASKED_ALONE = "asked again alone"


def company(seen: Observation) -> str:
    """Return a suffix for a result that other missions may have influenced; '' if none did."""
    if seen.alone:
        return f", {ASKED_ALONE}"
    return ", while other missions ran" if is_doubtful(seen) else ""


SURVIVED = "every test still passes"
NOT_EXECUTED = "no test executes it"


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One path that differs between two trees, as people read it. `kind` is git's letter: A, M, D or T."""

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


_YOU_SAID = "You reported PASS, but Capsule checked and the claim does not hold:"


def refuted(evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
    """Return the evidence against a claim, without what is only a sign."""
    return tuple(piece for piece in evidence if piece.standing is EvidenceStatus.REFUTED and not piece.harmless)


def mend_of(evidence: tuple[Evidence, ...]) -> Evidence | None:
    """Return the refuted claim that names what has to be mended; None where any of them names nothing."""
    pieces = refuted(evidence)
    return pieces[0] if pieces and all(piece.mend for piece in pieces) else None


def as_feedback(evidence: tuple[Evidence, ...], opening: str = _YOU_SAID) -> str:
    """Tell the agent why its PASS did not hold: the claim, what was seen, and the proof."""
    parts = [opening]
    for piece in refuted(evidence):
        parts.append(f"- Claimed: {piece.claimed}\n  Observed: {piece.observed}")
        if piece.detail:
            fence = "```"
            while fence in piece.detail:
                fence += "`"
            parts.append(f"{fence}\n{piece.detail.rstrip()}\n{fence}")
    return "\n\n".join(parts)
