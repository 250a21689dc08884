"""The pieces that every screen is drawn from: signs, colours, columns. Pure: values in, lines of `Content` out.

Text of agents, items and repositories is never markup, and cannot steer a terminal: `said` or `paragraph` put it on
lines that fit. A colour always comes with a word or a sign.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual.content import Content
from textual.style import Style
from textual.widgets import Static

from capsule.core.budget import Spending, duration
from capsule.core.event import Allowance
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Attempt, Mark, MissionSummary, PhaseLine, comparable_claim
from capsule.core.proven import proof_of
from capsule.core.status import MissionStatus, Tone
from capsule.core.text import count
from capsule.reports import words as shared
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

STYLES = {Tone.GOOD: GOOD, Tone.BAD: BAD, Tone.WARN: UNSURE, Tone.LIVE: BUSY, Tone.QUIET: FAINT}
_MARKS = {
    Mark.DONE: GOOD,
    Mark.NOW: BUSY,
    Mark.AGAIN: UNSURE,
    Mark.NEEDS_YOU: UNSURE,
    Mark.FAILED: BAD,
}
_PROOF_LINES = 6


def text(words: str, style: str = "") -> Content:
    """Our own words."""
    return Content.styled(words, style)


def said(words: str, width: int, style: str = "") -> Content:
    """Draw untrusted text on one line of so many cells."""
    return Content.styled(fit(clean(words), width), style)


def cell(words: str, width: int, style: str = "") -> Content:
    """Draw untrusted text in exactly so many cells."""
    return Content.styled(column(clean(words), width), style)


def row(*parts: Content | str) -> Content:
    return Content.assemble(*parts)


def link(words: Content, action: str) -> Content:
    """Words that can be clicked."""
    return words.stylize(Style.from_meta({"@click": action}))


def tab(words: str, action: str, style: str) -> Content:
    """Draw the name of one of several pages."""
    return row(link(text(f" {words} ", style), action), " ")


def hint(key: str, word: str, action: str) -> Content:
    """Draw a key and what it does; a click on it does the same."""
    return link(row(text(key, f"{BUSY} bold"), f" {word}  "), action)


def as_many(hints: Sequence[Content], room: int) -> list[Content]:
    """Return the first hints, as many as fit."""
    shown = []
    for each in hints:
        room -= each.cell_length
        if room < 0:
            break
        shown.append(each)
    return shown


def block(lines: Iterable[Content]) -> Content:
    return Content("\n").join(lines)


def put(widget: Static, content: Content) -> None:
    """Draw it unless it is unchanged: a screen that polls four times a second mostly gets the same."""
    shown = widget.content
    if not isinstance(shown, Content) or not content.is_same(shown):
        widget.update(content)


def both_ends(left: Content, right: Content, width: int) -> Content:
    """Put two texts at the ends of one line; cut the left one if they do not fit."""
    gap = width - left.cell_length - right.cell_length
    if gap >= 1:
        return row(left, " " * gap, right)
    return row(left.truncate(max(1, width - right.cell_length - 1), ellipsis=True), " ", right)


def paragraph(words: str, width: int, style: str = "", *, first: Content | str = "", most: int = 0) -> list[Content]:
    """Wrap untrusted text, indented below the label on the first line."""
    start = Content(first) if isinstance(first, str) else first
    room = max(10, width - start.cell_length)
    lines = Content(clean(words)).wrap(room)
    if most and len(lines) > most:
        *lines, last = Content(clean(words)).wrap(room - 2)[:most]
        lines = [*lines, row(last.rstrip(), " …")]
    hang = " " * start.cell_length
    return [
        row(hang if number else start, line.rstrip().stylize(style) if style else line.rstrip())
        for number, line in enumerate(lines or [Content("")])
    ]


def passage(words: str, width: int, *, indent: str = "  ", style: str = "", most: int = 0) -> list[Content]:
    """Draw untrusted text with its lines and indentation, each cut at the screen's edge."""
    lines = [line.expandtabs(4).rstrip() for line in printable(words).strip().splitlines()]
    shown = lines[-most:] if most else lines
    return [row(indent, text(fit(line, max(1, width - width_of(indent))), style)) for line in shown]


def marked(mark: Mark, *, doubted: bool = False) -> Content:
    """Draw the mark of a phase, green if it is done and no evidence contradicts it."""
    return text(mark.value, UNSURE if doubted and mark is Mark.DONE else _MARKS.get(mark, FAINT))


def status_of(view: MissionSummary) -> Content:
    style = STYLES[shared.tone_of(view)]
    return row(text(view.status.sign, style), " ", text(view.status.words, style))


def status_sign(status: MissionStatus) -> Content:
    return text(status.sign, STYLES[status.tone])


def verdict_of(attempt: Attempt) -> tuple[str, str]:
    """Return the result of a claim, and its style."""
    style = STYLES[shared.VERDICTS[attempt.verdict].tone] if attempt.verdict else FAINT
    return shared.judged(attempt), UNSURE if attempt.passed_despite_evidence else style


def phase_verdict(line: PhaseLine, width: int) -> Content:
    if line.mark is Mark.NOW:
        return said("under way", width, BUSY)
    if line.mark is Mark.INTERRUPTED:
        return said("interrupted", width, FAINT)
    words, style = verdict_of(line.attempt)
    return said(words, width, style)


def earlier(view: MissionSummary) -> Content:
    return text(f"{count(view.forgotten, 'earlier attempt')} not shown: capsule show {view.mission}", FAINT)


def proven(view: MissionSummary, width: int, *, most: int = 0) -> list[Content]:
    """Describe the proof of a mission in one line; nothing if nothing was checked."""
    known = proof_of(view)
    first = text(f"{known.label}  ", FAINT)
    return paragraph(known.line, width, first=first, most=most) if known.line else []


def proof(piece: Evidence, width: int, *, whole: bool = False) -> list[Content]:
    """Draw a claim next to what was seen; `whole` with every line of the proof."""
    look = shared.EVIDENCE[piece.standing]
    sign, style = look.sign, STYLES[look.tone]
    lines = paragraph(comparable_claim(piece), width, FAINT, first=row("  ", text(sign, style), " claimed  "))
    seen = "" if piece.standing is EvidenceStatus.CONFIRMED else style
    lines += paragraph(piece.observed, width, seen, first="    seen     ")
    if piece.detail and (whole or piece.standing is EvidenceStatus.REFUTED):
        lines += passage(piece.detail, width, indent="    │ ", style=FAINT, most=0 if whole else _PROOF_LINES)
    return lines


def money(spent: Spending, allowed: Allowance) -> str:
    """Describe spending against its limit: `$0.12 of $5.00, 12,300 of 50,000 tokens`; unreported parts are called
    unknown."""
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
