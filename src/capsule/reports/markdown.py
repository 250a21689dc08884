"""A report as Markdown, for a terminal, a pull request or a chat. Untrusted text never becomes markup."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from math import ceil

from capsule.core.briefing import fenced
from capsule.core.budget import duration, in_words
from capsule.core.event import cut
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Attempt, Diff, MissionSummary, Round, comparable_claim
from capsule.core.inbox import Question, needs_you
from capsule.core.merge_train import BatchTest
from capsule.core.merges import Passage
from capsule.core.proven import proof_of
from capsule.core.report import Report
from capsule.core.status import MissionStatus
from capsule.core.text import count
from capsule.reports import words
from capsule.reports.style import folded, printable, shortened
from capsule.reports.table import width_of

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#!&])")
_LONGEST_LINE = 300
_LONGEST_BLOCK = 2000
_WHOLE = sys.maxsize
"""The length of a question: it is never cut."""
_MOST_FILES = 30
_MOST_NOTES = 50
_MOST_MISSIONS = 60
_PICTURE = 20
"""The widest bar of a merge queue, in characters."""


def plain(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return untrusted text on one line, without Markdown or HTML markup."""
    return _MARKUP.sub(r"\\\1", shortened(text, longest))


def markdown(report: Report, width: int = sys.maxsize) -> str:
    """Return the report; for a terminal no wider than that."""
    return "\n\n".join(_fitted(block, width) for block in _blocks(report)) + "\n"


def agents_markdown(report: Report, width: int = sys.maxsize) -> str:
    """Return a table of the agents, for a terminal no wider than that."""
    return "\n\n".join(_fitted(block, width) for block in _agents(report)) + "\n"


def _agents(report: Report) -> Iterator[str]:
    yield f"# {plain(report.heading)}, by agent"
    yield f"{plain(report.project)}, as of {words.when(report.as_of)} UTC."
    if not report.agents:
        yield words.NO_AGENTS
        return
    yield _table(words.AGENT_HEADS, [tuple(map(plain, words.agent_cells(each))) for each in report.agents])
    yield words.AGENTS_EXPLAINED


def _fitted(block: str, width: int) -> str:
    """Fold a block; a table that is too wide becomes a list of its rows."""
    head, *rows = block.split("\n")
    if not head.startswith("| ") or all(width_of(line) <= width for line in (head, *rows)):
        return folded(block, width)
    _, *names = _cells(head)
    listed = []
    for first, *cells in map(_cells, rows[1:]):
        told = (f"{name}: {cell}" for name, cell in zip(names, cells, strict=True) if cell)
        listed.append("; ".join((first, *told)))
    return folded(bullets(*listed), width)


def _cells(row: str) -> list[str]:
    return row.removeprefix("| ").removesuffix(" |").split(" | ")


def _blocks(report: Report) -> Iterator[str]:
    run = report.run
    yield f"# {plain(report.heading)}"
    yield f"{plain(report.project)}, as of {words.when(report.as_of)} UTC."
    if not report.missions:
        yield f"{words.NO_MISSIONS} Start one: `{words.HOW_TO_BEGIN}`"
        return
    yield f"**{plain(words.first_sentence(report))}**"
    yield from _questions(report.questions)
    if report.alone:
        yield from _mission(report.missions[0], 2, asked=bool(report.questions))
        yield from _merges(report)
        return
    yield bullets(
        f"{plain(run.name)}: began {words.when(run.began)} UTC; {plain(words.run_sentence(run))}" if run else "",
        *_figures(words.report_figures(report)),
    )
    rows = [
        (
            plain(each.mission),
            plain(each.title),
            f"{each.status.sign} {each.status.words}",
            str(each.sent_back),
            duration(each.busy_seconds),
            f"+{each.diff.added} −{each.diff.removed}" if each.diff.files else "",
            words.money(each.spent_with_parts),
        )
        for each in report.missions
    ]
    yield _table(("mission", "title", "status", "sent back", "time", "change", "cost"), rows)
    yield from _merges(report)
    if len(report.missions) > _MOST_MISSIONS:
        yield f"The newest {_MOST_MISSIONS} missions follow in full. The others: `capsule report ID`"
    for each in report.missions[-_MOST_MISSIONS:]:
        yield f"## {plain(each.mission)}: {plain(each.title)}"
        yield from _mission(each, 3)


def _mission(summary: MissionSummary, level: int, *, asked: bool = False) -> Iterator[str]:
    """Describe a mission in full, without a question that was shown before."""
    rest, heading = summary.sentence.removeprefix(summary.status.words), "#" * level
    colon = ":" if rest == summary.sentence or rest.startswith(":") else ""
    told = "" if asked else plain(rest.lstrip(": "), _WHOLE)
    yield f"{summary.status.sign} **{summary.status.words}**{colon} {told}".rstrip(": ")
    if summary.unverified:
        yield f"**{plain(summary.unverified)}**"
    yield bullets(
        f"Next: `{summary.next}`" if summary.status is MissionStatus.NEEDS_YOU and not asked else "",
        f"Workflow {plain(summary.workflow)}, base `{summary.base[:12]}`, into {plain(summary.into)}",
        words.period(summary),
        *_figures(words.mission_figures(summary)),
        *(
            f"{label.capitalize()}: {plain(text, _LONGEST_BLOCK)}"
            for label, text in words.proof_rows(proof_of(summary))
        ),
    )
    if summary.attempts:
        yield f"{heading} Timeline"
        yield _timeline(summary)
    yield from claims_against_evidence(summary, heading)
    if summary.rounds:
        rounds = list(enumerate(summary.rounds, 1))
        yield f"{heading} Feedback: {count(len(rounds), 'round')}"
        yield from words.elided(rounds, _round, lambda count: f"⋯ {count:,} rounds left out", words.SHOWN // 2)
    yield from _changes(summary.diff, heading)
    rooms = {"finding": _WHOLE}
    if notes := [
        f"{label}: {plain(text, rooms.get(label, _LONGEST_LINE))}" for label, text in words.note_rows(summary)
    ]:
        yield f"{heading} Notes"
        yield bullets(*notes[:_MOST_NOTES])
    for part in summary.parts:
        yield f"{heading} {plain(part.mission)}: {plain(part.title)}"
        yield from _mission(part, min(level + 1, 6))


def claims_against_evidence(summary: MissionSummary, heading: str) -> Iterator[str]:
    """Show what each attempt claimed beside what was seen."""
    checked = [attempt for attempt in summary.attempts if attempt.evidence]
    if checked:
        yield f"{heading} Claims against evidence"
        yield from words.elided(checked, _evidence, lambda count: f"⋯ {count:,} attempts left out")


def _questions(questions: Sequence[Question]) -> Iterator[str]:
    """Show each question in full, with the commands that answer it."""
    if not questions:
        return
    yield f"## {needs_you(questions)}"
    for each in questions:
        at = f" at {plain(each.phase)}" if each.phase else ""
        since = f", since {words.when(each.since)} UTC" if each.since else ""
        yield f"{each.status.sign} **{plain(each.heading)}**: {each.kind.words}{at}{since}"
        yield "\n".join(f"> {plain(line, _WHOLE)}".rstrip() for line in printable(each.asked).strip().splitlines())
        open_ones = [piece for piece in each.evidence if piece.standing is not EvidenceStatus.CONFIRMED]
        yield bullets(
            f"Done: {plain(', '.join(each.done))}" if each.done else "",
            f"Cost: {in_words(each.spent)}" if each.spent.runs else "",
            *(evidence_line(piece) for piece in open_ones),
            f"Diff: `{each.diff}`" if each.diff else "",
            *(f"{answer.label}: `{answer.command}`" for answer in each.answers),
        )


def evidence_line(piece: Evidence) -> str:
    return f"{words.EVIDENCE[piece.standing].sign} {plain(comparable_claim(piece))}: {plain(piece.observed)}"


def _merges(report: Report) -> Iterator[str]:
    """Describe each merge queue: waits, batches, and halved batches."""
    for record in report.merges:
        yield f"## Merge queue: {plain(record.branch)}"
        yield "In the order in which they ended; ░ waiting for its turn, █ its turn."
        yield _rides(record.passages)
        if record.batches:
            yield "Tested together, in this order; below a red batch its first ones, tested again:"
            yield "\n".join(words.elided(record.batches, _batch, lambda count: f"- ⋯ {count:,} batches left out"))


def _rides(passages: Sequence[Passage]) -> str:
    longest = max((one.waited + one.seconds for one in passages), default=0.0)
    rows = words.elided(
        passages, lambda one: _ride(one, longest), lambda count: (f"⋯ {count:,} merges left out", *[""] * 6)
    )
    return _table(("mission", "came", "", "waited", "turn", "result", "with, or why not"), rows)


def _ride(one: Passage, longest: float) -> tuple[str, ...]:
    cells = _PICTURE / longest if longest else 0.0
    waited, turn = ceil(one.waited * cells), ceil(one.seconds * cells)
    return (
        plain(one.mission),
        words.when(one.came),
        "░" * min(waited, _PICTURE) + "█" * min(turn, max(1, _PICTURE - waited)),
        duration(one.waited) if one.waited else "–",
        duration(one.seconds) if one.seconds else "–",
        f"{one.result.sign} {one.result.value}",
        plain(", ".join(one.together) or one.why),
    )


def _batch(batch: BatchTest) -> str:
    indent, sign = "  " if batch.part else "", words.look_of_batch(batch).sign
    return (
        f"{indent}- {sign} {plain(', '.join(batch.missions))}: {words.batch_words(batch)} ({duration(batch.seconds)})"
    )


def _figures(figures: Iterable[words.Figure]) -> list[str]:
    return [f"{name.capitalize()}: {figure}{f' ({plain(more)})' if more else ''}" for name, figure, more in figures]


def _timeline(summary: MissionSummary) -> str:
    def cells(attempt: Attempt) -> tuple[str, ...]:
        claim = words.claim_of(attempt)
        wait = f" ({duration(attempt.waited)} waiting)" if attempt.waits else ""
        return (
            plain(attempt.phase),
            str(attempt.number),
            plain(words.made_by(attempt)),
            words.when(attempt.began),
            words.took(attempt.seconds) + wait,
            f"“{plain(claim)}”" if claim else "–",
            f"{words.look_of(attempt).sign} {plain(words.outcome_of(attempt))}",
            words.cost_of(attempt),
        )

    rows = words.elided(summary.attempts, cells, lambda count: (f"⋯ {count:,} attempts left out", *[""] * 7))
    return _table(("phase", "attempt", "by", "began", "time", "claimed", "verdict", "cost"), rows)


def _evidence(attempt: Attempt) -> str:
    said = f"; the agent claimed “{plain(attempt.summary)}”" if words.claim_of(attempt) and attempt.summary else ""
    mended = f" (caught, then mended at attempt {attempt.mended})" if attempt.mended else ""
    lines = [f"**{plain(attempt.phase)}, attempt {attempt.number}**{mended}{said}", ""]
    for piece in attempt.evidence:
        lines.append(f"- {evidence_line(piece)}")
        if detail := words.proof(piece).strip():
            lines += ["", *(f"  {text}" for text in _fenced(detail).splitlines())]
    return "\n".join(lines)


def _round(numbered: tuple[int, Round]) -> str:
    number, each = numbered
    to = f" → {plain(each.to)}" if each.to else ""
    return f"{number}\\. {plain(words.origin(each))}{to}\n\n{_fenced(each.text.strip())}"


def _changes(diff: Diff, heading: str) -> Iterator[str]:
    if not diff.files and not diff.note:
        return
    yield f"{heading} Files"
    yield f"{words.change_words(diff)}: {plain(diff.note)}" if diff.files else plain(diff.note)
    if diff.files:
        rows = [
            (plain(file.path), *(("–", "–") if file.added is None else (f"+{file.added}", f"−{file.removed}")))
            for file in diff.files[:_MOST_FILES]
        ]
        more = len(diff.files) - _MOST_FILES
        rows += [(f"⋯ {count(more, 'more file')}", "", "")] if more > 0 else []
        yield _table(("file", "added", "removed"), rows)


def _fenced(text: str) -> str:
    return fenced(printable(cut(text, _LONGEST_BLOCK))).strip()


def bullets(*entries: str) -> str:
    return "\n".join(f"- {entry}" for entry in entries if entry)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    ruled = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    return "\n".join([*ruled, *(f"| {' | '.join(row)} |" for row in rows)])
