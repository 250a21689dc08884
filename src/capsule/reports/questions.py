"""The questions for a person, as lines for a terminal and as facts for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from capsule.core.budget import as_facts, in_words
from capsule.core.evidence import EvidenceStatus
from capsule.core.inbox import Question, needs_you
from capsule.core.stamps import seconds_between
from capsule.core.text import count
from capsule.reports.style import TONES, Style, clean, folded, printable, wrapped
from capsule.reports.table import width_of, wrap
from capsule.reports.words import evidence_lines, proof, took, when

_LABEL = 10
_NOTHING = "Nothing needs you."


def question_lines(questions: Sequence[Question], now: str, style: Style, width: int) -> Iterator[str]:
    """Show each question in full, wrapped on a terminal and never cut."""
    if not questions:
        yield _NOTHING
        return
    yield style.paint("bold", needs_you(questions))
    for question in questions:
        yield ""
        yield from _question(question, now, style, width)


def _question(question: Question, now: str, style: Style, width: int) -> Iterator[str]:
    first, *rest = wrapped(f"{question.status.sign} {question.heading}", width, "", "  ")
    yield style.paint(TONES[question.status.tone], first)
    yield from rest
    at = f" at {clean(question.phase)}" if question.phase else ""
    since = f", since {when(question.since)} UTC ({_ago(question.since, now)})" if question.since else ""
    yield from wrapped(f"{question.kind.words}{at}{since}", width, "  ")
    yield ""
    for line in printable(question.asked).strip().splitlines():
        indent = " " * (4 + len(line) - len(line.lstrip()))
        yield from _kept(line, indent, width)
    yield ""
    yield from _labelled("done", ", ".join(question.done) or "nothing yet", width)
    yield from _labelled("cost", in_words(question.spent) if question.spent.runs else "nothing yet", width)
    shown = [piece for piece in question.evidence if piece.standing is not EvidenceStatus.CONFIRMED]
    held = len(question.evidence) - len(shown)
    if question.evidence:
        yield from _labelled("checked", f"{count(held, 'claim')} confirmed" if held else "", width)
    for piece in shown:
        yield from evidence_lines(piece, style, width, "    ")
        for line in proof(piece).splitlines():
            yield style.paint("dim", f"      | {line}".rstrip())
    if question.diff:
        yield folded(f"  {'diff:':<{_LABEL}}{question.diff}", width)
    if question.done:
        yield folded(f"  {'more:':<{_LABEL}}capsule show {question.id}", width)
    for number, answer in enumerate(question.answers):
        yield folded(f"  {'' if number else 'answer:':<{_LABEL}}{answer.command}", width)


def _kept(line: str, indent: str, width: int) -> list[str]:
    """Return a line of untrusted text with its indentation, wrapped."""
    if width_of(indent) + width_of(line.lstrip()) <= width:
        return [f"{indent}{line.strip()}".rstrip()]
    return wrap(line, width, indent, indent) or [""]


def _labelled(label: str, text: str, width: int) -> Iterator[str]:
    first, *rest = wrapped(text, max(width - _LABEL - 2, _LABEL), "", "") or [""]
    yield f"  {f'{label}:':<{_LABEL}}{first}".rstrip()
    yield from (f"{' ' * (_LABEL + 2)}{line}" for line in rest)


def _ago(stamp: str, now: str) -> str:
    return f"{took(max(0.0, seconds_between(stamp, now)))} ago"


def question_facts(question: Question) -> dict[str, Any]:
    plain = ("id", "title", "status", "kind", "asked", "phase", "since", "done", "diff")
    return {
        **{name: getattr(question, name) for name in plain},
        "spending": as_facts(question.spent),
        "seconds": round(question.seconds, 3),
        "evidence": [msgspec.structs.asdict(piece) for piece in question.evidence],
        "answers": [
            {"verb": each.verb, "label": each.label, "command": each.command, "text": each.text}
            for each in question.answers
        ],
    }
