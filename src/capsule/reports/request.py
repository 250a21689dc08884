"""The body of a request to merge: the card, the claims against the evidence, the cost, how to undo it.

Nothing that agents wrote becomes markup, a mention of somebody, or a command to the forge.
"""

from __future__ import annotations

from collections.abc import Sequence

from capsule.core.evidence import Evidence
from capsule.core.proven import proof_of
from capsule.core.report import Report
from capsule.core.request import inert
from capsule.reports import words
from capsule.reports.card import card_of
from capsule.reports.markdown import bullets, claims_against_evidence, evidence_line, plain

_DIFF = "change"
"""The figure that the forge shows itself."""
_UNDO = (
    "After the merge: `git revert -m 1 COMMIT` of a merge commit, `git revert COMMIT` of a squashed one. The button of "
    "the forge does the same."
)


def request_body(report: Report, merge: Sequence[Evidence] = ()) -> str:
    """Return Markdown about the one mission of a report, for its request; `merge` is what was seen of its merge."""
    [mission] = report.missions
    card, proof = card_of(report), proof_of(mission)
    figures = (f"{name.capitalize()}: {figure}" for name, figure, _ in words.mission_figures(mission) if name != _DIFF)
    rows = (f"{row.sign} **{plain(row.name)}** {plain(row.text)}".rstrip() for row in card.rows)
    parts = [
        bullets(*rows),
        "## What was proven",
        bullets(*(f"{label.capitalize()}: {plain(text)}" for label, text in words.proof_rows(proof)))
        or "Nothing was checked.",
        *claims_against_evidence(mission, "##"),
        bullets(*map(evidence_line, merge)),
        "## Cost",
        bullets(*figures),
        "## How to undo it",
        _UNDO,
        f"_{plain(card.foot)}_",
    ]
    return "\n\n".join(map(inert, filter(None, parts))) + "\n"
