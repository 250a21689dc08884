"""The pieces that every screen is drawn from: signs, colours, columns. Pure: values in, lines of `Content` out.

Whatever agents, items and repositories say is text and never markup, and nothing in it can steer a terminal: it goes
through `said` or `paragraph`, which put it on lines that fit. A colour never says anything alone: there is a word or a
sign beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual.content import Content
from textual.widgets import Static

from capsule.core.board import MARKS, Mark
from capsule.core.budget import Allowance, Spending, duration
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.signal import Verdict
from capsule.core.standpoint import DELIVERED, SUCCESSES, Word, let_pass
from capsule.reports.style import clean, printable
from capsule.reports.table import column, fit, width_of

GOOD, BAD, UNSURE, FAINT, STRONG, BUSY = (
    "$text-success",
    "$text-error",
    "$text-warning",
    "dim",
    "bold",
    "$text-accent",
)

_MARK_STYLES = {
    Mark.DONE: GOOD,
    Mark.NOW: BUSY,
    Mark.AGAIN: UNSURE,
    Mark.SKIPPED: FAINT,
    Mark.HALTED: BAD,
    Mark.INTERRUPTED: UNSURE,
    Mark.TO_DO: FAINT,
}
_VERDICTS = {"PASS": GOOD, "MORE": GOOD, "SKIPPED": FAINT, "NEEDS_WORK": UNSURE, "BLOCKED": UNSURE}
"""Every other verdict is bad news."""
_WORDS: Mapping[str, str] = {
    Word.RUNNING: BUSY,
    Word.INTERRUPTED: UNSURE,
    Word.PARKED: UNSURE,
    Word.STOPPED: BAD,
    Word.MERGED: GOOD,
    Word.DONE: GOOD,
}
"""Every other is no news."""
_SIGNS = {
    EvidenceStatus.CONFIRMED: ("✓", GOOD),
    EvidenceStatus.REFUTED: ("✗", BAD),
    EvidenceStatus.UNVERIFIED: ("?", UNSURE),
}
_PROOF_LINES = 6


def text(words: str, style: str = "") -> Content:
    """Our own words."""
    return Content.styled(words, style)


def said(words: str, width: int, style: str = "") -> Content:
    """A stranger's words on one line of so many cells."""
    return Content.styled(fit(clean(words), width), style)


def cell(words: str, width: int, style: str = "") -> Content:
    """A stranger's words in exactly so many cells."""
    return Content.styled(column(clean(words), width), style)


def row(*parts: Content | str) -> Content:
    return Content.assemble(*parts)


def block(lines: Iterable[Content]) -> Content:
    return Content("\n").join(lines)


def put(widget: Static, content: Content) -> None:
    """Draws it, unless it is there already: a screen that looks four times a second mostly sees the same."""
    shown = widget.content
    if not isinstance(shown, Content) or not content.is_same(shown):
        widget.update(content)


def both_ends(left: Content, right: Content, width: int) -> Content:
    """On one line, as far apart as it is wide; where there is no room for both, the left one is cut."""
    gap = width - left.cell_length - right.cell_length
    if gap >= 1:
        return row(left, " " * gap, right)
    return row(left.truncate(max(1, width - right.cell_length - 1), ellipsis=True), " ", right)


def paragraph(words: str, width: int, style: str = "", *, first: Content | str = "", most: int = 0) -> list[Content]:
    """A stranger's words on as many lines as they need, hanging from what stands before them on the first."""
    start = Content(first) if isinstance(first, str) else first
    room = max(10, width - start.cell_length)
    lines = _cut(Content(clean(printable(words))).wrap(room), most)
    hang = " " * start.cell_length
    return [
        row(hang if number else start, line.rstrip().stylize(style) if style else line.rstrip())
        for number, line in enumerate(lines or [Content("")])
    ]


def passage(words: str, width: int, *, indent: str = "  ", style: str = "", most: int = 0) -> list[Content]:
    """A stranger's text with its own lines and indentation, each cut where the screen ends."""
    lines = [line.expandtabs(4).rstrip() for line in printable(words).strip().splitlines()]
    shown = lines[-most:] if most else lines
    return [row(indent, text(fit(line, max(1, width - width_of(indent))), style)) for line in shown]


def _cut(lines: list[Content], most: int) -> list[Content]:
    if not most or len(lines) <= most:
        return lines
    return [*lines[: most - 1], row(lines[most - 1].rstrip(), " …")]


def marked(mark: Mark, *, doubted: bool = False) -> Content:
    """What is done is green, unless what was seen speaks against it."""
    return text(mark.value, UNSURE if doubted and mark is Mark.DONE else _MARK_STYLES[mark])


def standing(word: str, unverified: str = "") -> Content:
    """Where a mission stands: its sign and its word. What was delivered is green where it was checked."""
    style = UNSURE if unverified and word in DELIVERED else _WORDS.get(word, FAINT)
    return row(text(MARKS.get(word, Mark.TO_DO).value, style), " ", text(word, style))


def style_of(verdict: str, evidence: tuple[Evidence, ...] = ()) -> str:
    if let_pass(verdict, evidence):
        return UNSURE
    return _VERDICTS.get(verdict, BAD) if verdict else FAINT


def judged(claimed: str, verdict: str, evidence: Sequence[Evidence]) -> str:
    """What became of a claim, in words."""
    if not verdict:
        return ""
    counts = {kind: sum(piece.standing is kind for piece in evidence) for kind in EvidenceStatus}
    refuted, unsure = counts[EvidenceStatus.REFUTED], counts[EvidenceStatus.UNVERIFIED]
    if refuted and verdict == Verdict.REFUTED:
        return f"{verdict} by {refuted} of {_checks(evidence)}"
    if refuted:
        though = "though " if verdict in SUCCESSES else ""
        refute = "refutes" if refuted == 1 else "refute"
        return f"{verdict}, {though}{refuted} of {_checks(evidence)} {refute} it"
    if unsure:
        return f"{verdict}, {unsure} of {_checks(evidence)} could not be made"
    if evidence:
        return f"{verdict}, {_checks(evidence)} {'hold' if len(evidence) > 1 else 'holds'}"
    return f"{verdict}, its word alone" if verdict == claimed and verdict in SUCCESSES else verdict


def _checks(evidence: Sequence[Evidence]) -> str:
    return f"{len(evidence)} check{'s' * (len(evidence) > 1)}"


def proof(piece: Evidence, width: int, *, whole: bool = False) -> list[Content]:
    """One claim beside what was seen; `whole` with every line that proves it."""
    sign, style = _SIGNS[piece.standing]
    lines = paragraph(piece.claimed, width, FAINT, first=row("  ", text(sign, style), " claimed  "))
    seen = "" if piece.standing is EvidenceStatus.CONFIRMED else style
    lines += paragraph(piece.observed, width, seen, first="    seen     ")
    if piece.detail and (whole or piece.standing is EvidenceStatus.REFUTED):
        lines += passage(piece.detail, width, indent="    │ ", style=FAINT, most=0 if whole else _PROOF_LINES)
    return lines


def money(spent: Spending, allowed: Allowance) -> str:
    """`$0.12 of $5.00, 12,300 of 50,000 tokens`; what nobody reported is said to be unknown."""
    parts = []
    if spent.priced or allowed.usd is not None:
        parts.append(_of(_known(spent, spent.priced, f"${spent.usd:.2f}"), f"${allowed.usd or 0:.2f}", allowed.usd))
    if spent.counted or allowed.tokens is not None:
        tokens = _known(spent, spent.counted, f"{spent.tokens:,}")
        parts.append(_of(tokens, f"{allowed.tokens or 0:,}", allowed.tokens) + " tokens")
    if allowed.seconds is not None:
        parts.append(_of(duration(spent.seconds), duration(allowed.seconds), allowed.seconds))
    return ", ".join(parts) or ("cost unknown" if spent.runs else "nothing spent yet")


def _known(spent: Spending, known: int, amount: str) -> str:
    if not known and spent.runs:
        return "an unknown part" if amount.startswith("$") else "unknown"
    return amount if known == spent.runs else f"≥ {amount}"


def _of(amount: str, limit: str, given: float | None) -> str:
    return amount if given is None else f"{amount} of {limit}"


def elapsed(seconds: float | None) -> str:
    """Whole seconds: a screen that ticks shows no tenths."""
    return "" if seconds is None else duration(int(seconds) if seconds >= 1 else seconds)
