"""A report in ten lines, for a pull request or a chat: progress, honesty, cost, and what matters most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from capsule.core.budget import duration
from capsule.core.evidence import refuted
from capsule.core.history import MissionSummary
from capsule.core.inbox import Question
from capsule.core.proven import proof_of
from capsule.core.report import Report
from capsule.core.status import MissionStatus, Tone
from capsule.reports import words
from capsule.reports.markdown import plain
from capsule.reports.style import clean

_MOST_ROWS = 5
_WHOLE = 20_000
"""The length of a question: it is never cut."""
_WORST_FIRST = (MissionStatus.FAILED, MissionStatus.NEEDS_YOU, MissionStatus.RUNNING)


class Row(NamedTuple):
    sign: str
    tone: Tone
    name: str
    text: str


class Card(NamedTuple):
    sign: str
    tone: Tone
    heading: str
    lead: tuple[str, str, str]
    rows: list[Row]
    left_out: int
    """The number of missions without a row."""
    foot: str


def card_of(report: Report) -> Card:
    """Choose the content of a card."""
    status = _worst(report)
    rows = [*_of_one(report.missions[0], report.questions)] if report.alone else [*map(_of_several, _in_order(report))]
    most = _MOST_ROWS if len(rows) <= _MOST_ROWS else _MOST_ROWS - 1
    evidence = (piece for each in report.missions for attempt in each.all_attempts() for piece in attempt.evidence)
    checked = words.checked(evidence) or "nothing was checked"
    return Card(
        sign=status.sign,
        tone=status.tone,
        heading=report.heading,
        lead=words.first_sentences(report),
        rows=rows[:most],
        left_out=len(rows[most:]),
        foot=f"Claims checked by Capsule: {checked}. {clean(report.project)}, {words.when(report.as_of)} UTC",
    )


def card_markdown(report: Report) -> str:
    """Return at most ten lines of Markdown."""
    if not report.missions:
        return f"{words.NO_MISSIONS} Start one: `{words.HOW_TO_BEGIN}`\n"
    card = card_of(report)
    rows = [f"- {row.sign} **{plain(row.name)}** {plain(row.text, _WHOLE)}".rstrip() for row in card.rows]
    whole = f"capsule report {report.missions[0].mission}" if report.alone else "capsule report"
    rows += [f"- and {card.left_out:,} more: `{whole}`"] if card.left_out else []
    head = f"### {card.sign} {plain(card.heading)}"
    return "\n".join([head, f"**{plain(' '.join(card.lead))}**", "", *rows, "", f"_{plain(card.foot)}_"]) + "\n"


def _worst(report: Report) -> MissionStatus:
    there = report.statuses
    return next((each for each in (*_WORST_FIRST, *MissionStatus) if there[each]), MissionStatus.READY)


def _in_order(report: Report) -> list[MissionSummary]:
    """Sort missions that need a person first, then those with the most lies."""
    order = {status: number for number, status in enumerate(_WORST_FIRST)}
    return sorted(report.missions, key=lambda each: (order.get(each.status, len(order)), -each.refuted))


def _of_several(each: MissionSummary) -> Row:
    told = each.sentence if each.halted else f"{clean(each.title)} · {each.status.words}"
    lies = sum(attempt.wrong_claim for attempt in each.all_attempts())
    caught = sum(attempt.wrong_claim and attempt.caught for attempt in each.all_attempts())
    price = words.money(each.spent_with_parts)
    figures = (
        words.lies_words(lies, caught),
        price if each.spent_with_parts.priced else "",
        duration(each.busy_seconds),
    )
    return Row(each.status.sign, words.tone_of(each), each.mission, " · ".join(filter(None, (told, *figures))))


def _of_one(each: MissionSummary, questions: Sequence[Question]) -> Iterator[Row]:
    """Yield the rows of a single mission: proof, changes, caught claims, next command."""
    sign, tone = each.status.sign, words.tone_of(each)
    if each.halted:
        why = each.sentence.removeprefix(each.status.words).strip()
        way_on = questions[0].answers[0].command if questions else each.next
        yield Row(sign, tone, each.status.words, f"{why}; {way_on}")
    elif each.merged:
        yield Row(sign, tone, "merged", f"into {each.into} as {each.merged[:12]}; undo: {each.undo}")
    elif each.state.in_review and each.state.request:
        yield Row(sign, tone, "in review", f"{each.state.request.url}; {each.next}")
    proof = proof_of(each)
    if proof.line:
        known = words.Look(Tone.GOOD, "✓") if proof.proven else words.Look(Tone.WARN, "?")
        yield Row(known.sign, known.tone, proof.label, proof.line)
    if each.unverified:
        yield Row("?", Tone.WARN, "unverified", each.unverified)
    if each.diff.files:
        yield Row("±", Tone.QUIET, "changed", words.change_words(each.diff))
    for attempt in each.all_attempts():
        if attempt.wrong_claim:
            look = words.look_of(attempt)
            mended = f"; mended at attempt {attempt.mended}" if attempt.mended else ""
            seen = "; ".join(f"{piece.claimed}: {piece.observed}" for piece in refuted(attempt.evidence))
            yield Row(look.sign, look.tone, f"{attempt.phase}, attempt {attempt.number}", f"{seen}{mended}")
