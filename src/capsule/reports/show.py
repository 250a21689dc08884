"""One mission for `capsule show`: its phases, claims against evidence, feedback, and where its files are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from capsule.core.budget import duration
from capsule.core.history import Attempt, MissionSummary
from capsule.core.proven import proof_of
from capsule.core.text import count, sentence
from capsule.reports import words
from capsule.reports.facts import places
from capsule.reports.style import TONES, Style, clean, folded, printable, wrapped
from capsule.reports.table import fit, wrap

_PROOF_LINES = 6
_FEEDBACK_LINES = 20
NARROWEST = 32
_COLUMNS = ("phase", "try", "claimed", "verdict", "time", "by", "cost")
_DISPENSABLE = ("cost", "by", "time", "try", "claimed")
"""Columns that a narrow terminal leaves out, in this order."""
_LABEL = 20
_PLACES = {"under way": "working:", "papers": "logs:"}

Cells = dict[str, str]


def show_lines(summary: MissionSummary, root: Path, style: Style, width: int) -> Iterator[str]:
    width = max(NARROWEST, width)
    yield from _header(summary, style, width)
    yield ""
    yield from _phases(summary, style, width)
    for phase, text in summary.feedback.items():
        yield ""
        for line in wrapped(f"Feedback for the next attempt of {phase}:", width):
            yield style.paint("bold", line)
        told = printable(text).strip().splitlines()
        for line in told[:_FEEDBACK_LINES]:
            yield from wrap(line, width, "  ", "  ") or [""]
        if len(told) > _FEEDBACK_LINES:
            yield f"  ... and {count(len(told) - _FEEDBACK_LINES, 'more line')}: --json has them all"
    before = ""
    for label, text in words.note_rows(summary):
        if label != before:
            yield ""
        before = label
        yield from wrapped(f"{label}: {text}", width)
    yield ""
    rows = {_PLACES.get(what, f"{what}:"): str(path) for what, path in places(summary.mission, root).items()}
    rows["next:"] = summary.next
    if summary.otherwise and not summary.running:
        rows["or:"] = summary.otherwise
    for label, text in rows.items():
        yield folded(f"{label:<12}{text}", width)


def _header(summary: MissionSummary, style: Style, width: int) -> Iterator[str]:
    for line in wrapped(f"{summary.mission}: {summary.title}", width):
        yield style.paint("bold", line)
    yield from wrapped(f"workflow {summary.workflow}, base {summary.base[:12]}, into {summary.into}", width, "  ")
    colour = TONES[words.tone_of(summary)]
    for line in wrapped(f"{summary.status.sign} {summary.sentence}", width, "  "):
        yield style.paint(colour, line)
    if summary.spent_with_parts.runs:
        waited = summary.waited_seconds
        paused = f"; {duration(waited)} waiting for the provider" if waited else ""
        yield from wrapped(f"{words.agents_used(summary.spent_with_parts)}{paused}", width, "  ")
    if summary.unverified:
        yield style.paint("yellow", f"  {summary.unverified}")
    before = ""
    for label, text in words.proof_rows(proof_of(summary)):
        head = f"  {'' if label == before else f'{label}:':<{_LABEL}}"
        first, *rest = wrapped(text, max(NARROWEST, width) - len(head), "", "") or [""]
        yield f"{head}{first}"
        yield from (f"{' ' * len(head)}{line}" for line in rest)
        before = label


def _phases(summary: MissionSummary, style: Style, width: int) -> Iterator[str]:
    """Draw a table of phases; under each row the claims and what was seen."""
    attempts = [attempt for attempt in summary.attempts if not attempt.repeated]
    cells = [dict(zip(_COLUMNS, _COLUMNS, strict=True)), *map(_cells, attempts)]
    if not summary.spent_with_parts.priced and not summary.spent_with_parts.counted:
        cells = [{name: cell for name, cell in row.items() if name != "cost"} for row in cells]
    heading, *rows = _fitting(cells, width)
    widths = _widths([heading, *rows])
    yield style.paint("dim", _row(heading, widths))
    for attempt, row in zip(attempts, rows, strict=True):
        yield style.paint(TONES[words.look_of(attempt).tone], _row(row, widths))
        failure = attempt.ended.outcome.failure if attempt.ended else None
        if failure:
            yield from wrapped(f"{failure.kind.value}: {sentence(failure.reason)} {failure.hint}", width, "  ")
        for piece in attempt.evidence:
            yield from words.evidence_lines(piece, style, width, "  ")
            for line in words.proof(piece, _PROOF_LINES).splitlines():
                yield style.paint("dim", f"    | {fit(line.expandtabs(4), width - 6)}".rstrip())
    to_do = summary.state.to_do[1:] if summary.state.begun else summary.state.to_do
    if to_do and not summary.state.abandoned:
        yield from wrapped(f"still to do: {', '.join(to_do)}", width)


def _cells(attempt: Attempt) -> Cells:
    ended = attempt.ended
    return {
        "phase": clean(attempt.phase),
        "try": str(attempt.number),
        "claimed": attempt.claimed,
        "verdict": attempt.verdict or attempt.how,
        "time": f"{ended.outcome.seconds:.1f} s" if ended else "",
        "by": clean(attempt.agent),
        "cost": words.cost_of(attempt) if ended and ended.outcome.agent else "",
    }


def _fitting(rows: list[Cells], width: int) -> list[Cells]:
    for dropped in range(len(_DISPENSABLE) + 1):
        kept = [name for name in rows[0] if name not in _DISPENSABLE[:dropped]]
        shown = [{name: row[name] for name in kept} for row in rows]
        if sum(_widths(shown).values()) + 2 * (len(kept) - 1) <= width:
            break
    return shown


def _widths(rows: Sequence[Cells]) -> dict[str, int]:
    return {name: max(len(row[name]) for row in rows) for name in rows[0]}


def _row(row: Cells, widths: dict[str, int]) -> str:
    return "  ".join(f"{cell:<{widths[name]}}" for name, cell in row.items()).rstrip()
