"""Draw what needs you: a line for each question, and all that is needed to answer one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from textual.content import Content

from capsule.actions import Details
from capsule.core.answers import Answer
from capsule.core.budget import in_words
from capsule.core.evidence import EvidenceStatus
from capsule.core.inbox import Question
from capsule.core.stamps import seconds_between
from capsule.core.text import count
from capsule.reports.style import clean, printable
from capsule.reports.table import width_of
from capsule.tui import drawing
from capsule.tui.diffs import diff_lines
from capsule.tui.drawing import FAINT, STRONG, row, text

KEYS = {
    "answer": "u",
    "approve": "A",
    "accept": "y",
    "try-again": "T",
    "run": "r",
    "complete": "c",
    "close": "C",
    "abort": "x",
}
"""The keys by the verb of an answer; the same as elsewhere, if there is one."""
_WIDEST_NAME = 24
_LABEL = 9
_MOST_DIFF = 400


def name_width(questions: Sequence[Question]) -> int:
    return min(_WIDEST_NAME, max([width_of(clean(question.id)) for question in questions], default=0))


def question_line(question: Question, width: int, names: int) -> Content:
    head = row(drawing.status_sign(question.status), " ", drawing.cell(question.id, names, STRONG), " ")
    kind = text(f"{question.kind.words}  ", drawing.STYLES[question.status.tone])
    if head.cell_length + kind.cell_length < width:
        head = row(head, kind)
    return row(head, drawing.said(question.title, max(0, width - head.cell_length), FAINT))


def question_page(
    question: Question, now: str, details: Details | None, width: int, *, answered: bool = False
) -> list[Content]:
    """Draw a full question: who asks, its answers, the work so far, the cost, the evidence, and the changes.

    `answered` is one whose answer is being written: the other ways to answer are left out.
    """
    style = drawing.STYLES[question.status.tone]
    lines = drawing.paragraph(question.title, width, STRONG, first=row(text(clean(question.id), STRONG), "  "))
    at = f" at {question.phase}" if question.phase else ""
    since = f", {drawing.elapsed(max(0.0, seconds_between(question.since, now)))} ago" if question.since else ""
    sign = row(text(question.status.sign, style), " ")
    lines += drawing.paragraph(f"{question.kind.words}{at}{since}", width, f"{style} bold", first=sign)
    lines.append(Content(""))
    for line in printable(question.asked).strip().splitlines():
        indent = " " * min(len(line) - len(line.lstrip()), width // 3)
        lines += drawing.paragraph(line, width, first=f"  {indent}")
    lines.append(Content(""))
    if not answered:
        lines += [*_answer_lines(question.answers, width), Content("")]
    lines += _labelled("done", ", ".join(question.done) or "nothing yet", width)
    spent = in_words(question.spent) if question.spent.runs else "nothing yet"
    lines += _labelled("cost", spent, width)
    shown = [piece for piece in question.evidence if piece.standing is not EvidenceStatus.CONFIRMED]
    held = len(question.evidence) - len(shown)
    if question.evidence:
        lines += _labelled("checked", f"{count(held, 'claim')} confirmed" if held else "", width)
    for piece in shown:
        lines += drawing.proof(piece, width, whole=True)
    if question.diff:
        lines += _labelled("changes", question.diff, width)
    if details:
        lines += [Content(""), *diff_lines(details, width, most=_MOST_DIFF)]
    return lines


def _labelled(label: str, words: str, width: int) -> list[Content]:
    return drawing.paragraph(words, width, first=text(f"{label:<{_LABEL}}", FAINT))


def _answer_lines(answers: Sequence[Answer], width: int) -> Iterator[Content]:
    """Draw the answers: key, name, and command."""
    labels = max([width_of(answer.label) for answer in answers], default=0)
    for number, answer in enumerate(answers):
        key = text(f"{KEYS[answer.verb]}", f"{drawing.BUSY} bold")
        name = text(f" {answer.label:<{labels}}  ", "" if number else STRONG)
        head = drawing.link(row(key, name), f"app.answer('{answer.verb}')")
        yield from drawing.paragraph(answer.command, width, FAINT, first=head)


def hints(question: Question) -> list[Content]:
    """The keys that answer, the first one also by Enter."""
    return [
        drawing.hint(KEYS[answer.verb] if number else "Enter", answer.label, f"app.answer('{answer.verb}')")
        for number, answer in enumerate(question.answers)
    ]
