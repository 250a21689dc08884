"""Sum up what was proven and what was only claimed in a mission, from the evidence of its attempts.

Each piece of evidence says in `proven` what it adds, by part of the one line that every screen and report shows: `red
by name (3 new) · green by name · 212 others unharmed · demanded 7 of 8 · canary seen · reviewed (its word)`. A check
without a result is named too (`mutants not tried`, `no canary`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from capsule.core.evidence import Evidence, EvidenceStatus, ProofPart, refuted
from capsule.core.history import MissionHistory
from capsule.core.signal import Verdict
from capsule.core.text import count, one_line
from capsule.core.workflow import Role

_SILENT: Mapping[str, tuple[str, str]] = {
    "red": (ProofPart.RED, "red not seen"),
    "green": (ProofPart.GREEN, "tests not run"),
    "green-when-done": (ProofPart.GREEN, "tests not run"),
    "unharmed": (ProofPart.GREEN, "tests not run"),
    "kills": (ProofPart.KILLS, "mutants not tried"),
    "demanded": (ProofPart.DEMANDED, "mutants not tried"),
    "as-demanded": (ProofPart.DEMANDED, "mutants not tried"),
    "canary": (ProofPart.CANARY, "no canary"),
}
"""By check: its part, and the words for a phase that passed without it."""
_GREEN = {ProofPart.GREEN.value: "green (exit code only)"}
_BY_EXIT_CODE: Mapping[str, dict[str, str]] = {
    "red": {ProofPart.RED: "red (exit code only)"},
    "green": _GREEN,
    "green-when-done": _GREEN,
    "unharmed": _GREEN,
}
"""By check: the words for evidence without `proven`, from journals of earlier versions."""
REVIEWED = "reviewed (its word)"
_BETWEEN = " · "


class Review(msgspec.Struct, frozen=True):
    """A review that passed: its agent's words are not proof."""

    phase: str
    summary: str


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """The proof of a mission's current work."""

    proven: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()
    """What was not tried, what does not hold, and what a person accepted anyway."""
    reviews: tuple[Review, ...] = ()
    tests: dict[str, tuple[str, ...]] = {}
    """Tests by kind: new, rewritten, known to fail."""
    survivors: tuple[str, ...] = ()
    """The mutants that no test noticed, one line each."""
    not_covered: tuple[str, ...] = ()
    """The changed functions that no test executes."""

    @property
    def label(self) -> str:
        return "proven" if self.proven else "not proven"

    @property
    def line(self) -> str:
        """Return all of it in one line; '' if nothing was checked."""
        reviewed = (REVIEWED,) if self.reviews else ()
        return joined((*self.proven, *self.gaps, *reviewed))


def proof_of(history: MissionHistory) -> Proof:
    """Join the evidence of finished phases; a phase that will run again has none."""
    state = history.state
    to_do = {*state.to_do} if not state.abandoned else set[str]()
    ended = [attempt for attempt in history.attempts if attempt.ended]
    stands = [each for each in ended if each.phase not in to_do and each.verdict == Verdict.PASS]
    pieces = [piece for attempt in stands for piece in attempt.evidence]
    words = words_of(pieces)
    doubted = {piece.check for piece in pieces if _doubt(piece)}
    checks = {check for each in stands for check in state.workflow.phase(each.phase).checks} - doubted
    silent = [said for check, (part, said) in _SILENT.items() if check in checks and part not in words]
    last = ended[-1].evidence if ended and ended[-1] not in stands else ()
    against = [piece for piece in (*pieces, *last) if piece.standing is not EvidenceStatus.CONFIRMED]
    broken = last_mutant_evidence((*pieces, *last))
    not_covered = broken.not_covered if broken else ()
    uncovered = f"{count(len(not_covered), 'function')} not covered" if not_covered else ""
    judges = {phase.name for phase in state.workflow.phases if phase.role is Role.REVIEW}
    reviews = {each.phase: Review(each.phase, each.summary) for each in stands if each.agent and each.phase in judges}
    return Proof(
        proven=tuple(words.values()),
        gaps=tuple(dict.fromkeys(filter(None, (*silent, *map(_doubt, against), uncovered)))),
        reviews=tuple(reviews.values()),
        tests=tests_of(pieces),
        survivors=broken.survivors if broken else (),
        not_covered=not_covered,
    )


def trailers_of(history: MissionHistory) -> list[str]:
    """Return the trailers of a commit: the mission, its agents with their models, the proof."""
    proof = proof_of(history)
    reviewed = (REVIEWED,) if proof.reviews else ()
    paid = [attempt for attempt in history.attempts if attempt.ended and attempt.agent]
    agents = {f"{each.agent} ({each.model})" if each.model else each.agent: "" for each in paid}
    values = {
        "Mission": [history.state.mission],
        "Uuid": [history.state.uuid] if history.state.uuid else [],
        "Agents": [*agents],
        "Proven": [*proof.proven, *proof.gaps, *reviewed],
    }
    return [f"Capsule-{name}: {one_line(', '.join(said))}" for name, said in values.items() if said]


def words_of(evidence: Iterable[Evidence]) -> dict[str, str]:
    """Return what evidence proves, by part, in the order of the line."""
    found: dict[str, str] = {}
    for piece in evidence:
        if piece.standing is EvidenceStatus.CONFIRMED:
            found |= piece.proven or _BY_EXIT_CODE.get(piece.check, {})
    return {part: found[part] for part in ProofPart if part in found}


def joined(words: Iterable[str]) -> str:
    return _BETWEEN.join(words)


def line_of(evidence: Iterable[Evidence]) -> str:
    """Return what one phase proved, in one line."""
    return joined(words_of(evidence).values())


def tests_of(evidence: Iterable[Evidence]) -> dict[str, tuple[str, ...]]:
    """Return the tests that evidence names, by kind; the last mention of each counts."""
    found: dict[str, tuple[str, ...]] = {}
    for piece in evidence:
        found |= piece.tests
    return found


def last_mutant_evidence(evidence: Iterable[Evidence]) -> Evidence | None:
    """Return the evidence of the last trial of mutants."""
    tried = [e for e in evidence if e.survivors or e.not_covered or ProofPart.DEMANDED in e.proven]
    return tried[-1] if tried else None


def _doubt(piece: Evidence) -> str:
    if piece.standing is EvidenceStatus.ACCEPTED:
        return f"{piece.check} accepted by a person"
    return f"{piece.check} refuted" if refuted((piece,)) else ""
