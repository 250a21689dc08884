"""A report as Markdown, for a terminal, a pull request or a chat. No stranger's word becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from capsule.core.briefing import fenced
from capsule.core.budget import duration, in_words
from capsule.core.event import cut
from capsule.core.history import Attempt, MissionSummary, Round, comparable_claim
from capsule.core.report import Report
from capsule.core.status import MissionStatus, count_statuses
from capsule.reports import words
from capsule.reports.style import clean, printable

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#!&])")
_LONGEST_LINE = 300
_LONGEST_BLOCK = 2000
_MOST_FILES = 30
_MOST_MISSIONS = 60


def markdown(report: Report) -> str:
    return "\n".join(_lines(report)).rstrip() + "\n"


def plain(text: str, longest: int = _LONGEST_LINE) -> str:
    """Return a stranger's words on one line, with nothing in them that Markdown or HTML would act on."""
    shown = clean(printable(text))
    shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
    return _MARKUP.sub(r"\\\1", shown)


def _lines(report: Report) -> Iterator[str]:
    yield f"# {plain(report.heading)}"
    yield ""
    yield f"{plain(report.project)}, as of {words.when(report.as_of)} UTC."
    yield ""
    if not report.missions:
        yield f"{words.NO_MISSIONS} Start one: `{words.HOW_TO_BEGIN}`"
        return
    if len(report.missions) == 1 and not report.run:
        yield from _mission(report.missions[0], 2)
        return
    yield from _overview(report)
    if len(report.missions) > _MOST_MISSIONS:
        yield f"The newest {_MOST_MISSIONS} missions follow in full. The others: `capsule report ID`"
        yield ""
    for each in report.missions[-_MOST_MISSIONS:]:
        yield f"## {plain(each.mission)}: {plain(each.title)}"
        yield ""
        yield from _mission(each, 3)


def _overview(report: Report) -> Iterator[str]:
    totals, run = report.totals, report.run
    if run:
        yield f"- {plain(run.name)}: began {words.when(run.began)} UTC; {plain(words.run_sentence(run))}"
    yield f"- Missions: {totals.missions:,} ({count_statuses(report.statuses)})"
    of = f" ({totals.first_pass} of {totals.judged})" if totals.judged else ""
    yield f"- First-pass rate: {words.rate(totals)}{of}"
    yield f"- Retries: {totals.sent_back:,} of {words.count(totals.attempts, 'attempt')}; {totals.refuted} refuted"
    yield f"- Claims checked: {totals.claims:,} ({words.claims(totals)})"
    yield f"- Agents used: {in_words(totals.spending)}"
    active = words.active(totals.busy_seconds, totals.waited_seconds)
    yield f"- Time: {duration(totals.wall_seconds)} wall clock ({active})"
    yield ""
    heads = ("mission", "title", "status", "sent back", "time", "change", "cost")
    yield from _table(
        heads,
        [
            (
                plain(each.mission),
                plain(each.title),
                f"{each.status.sign} {each.status.words}",
                str(each.sent_back),
                duration(each.wall_seconds),
                f"+{each.diff.added} −{each.diff.removed}" if each.diff.files else "",
                words.money(each.spent_with_parts),
            )
            for each in report.missions
        ],
    )


def _mission(summary: MissionSummary, level: int) -> Iterator[str]:
    rest = summary.sentence.removeprefix(summary.status.words)
    colon = ":" if rest == summary.sentence or rest.startswith(":") else ""
    told = plain(rest.lstrip(": "), _LONGEST_BLOCK * 2)
    yield f"{summary.status.sign} **{summary.status.words}**{colon} {told}".rstrip()
    yield ""
    if summary.unverified:
        yield f"**{plain(summary.unverified)}**"
        yield ""
    if summary.status is MissionStatus.NEEDS_YOU:
        yield f"- Next: `{summary.next}`"
    yield f"- Workflow {plain(summary.workflow)}, base `{summary.base[:12]}`, into {plain(summary.into)}"
    spent = words.active(summary.busy_seconds, summary.waited_seconds)
    yield f"- {words.period(summary)}; {duration(summary.wall_seconds)} wall clock ({spent})"
    yield f"- {words.count(len(summary.attempts), 'attempt')}, sent back {words.count(summary.sent_back, 'time')}"
    yield f"- Agents used: {in_words(summary.spent_with_parts)}"
    yield ""
    yield from _timeline(summary, level)
    yield from _claims(summary, level)
    yield from _rounds(summary, level)
    yield from _changes(summary, level)
    for part in summary.parts:
        yield f"{'#' * level} {plain(part.mission)}: {plain(part.title)}"
        yield ""
        yield from _mission(part, min(level + 1, 6))


def _timeline(summary: MissionSummary, level: int) -> Iterator[str]:
    if not summary.attempts:
        return
    yield f"{'#' * level} Timeline"
    yield ""
    rows = words.elided(summary.attempts, _attempt_cells, lambda count: (f"⋯ {count:,} attempts left out", *[""] * 7))
    yield from _table(("phase", "attempt", "by", "began", "time", "claimed", "verdict", "cost"), rows)


def _attempt_cells(attempt: Attempt) -> tuple[str, ...]:
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


def _claims(summary: MissionSummary, level: int) -> Iterator[str]:
    checked = [attempt for attempt in summary.attempts if attempt.evidence]
    if not checked:
        return
    yield f"{'#' * level} Claims against evidence"
    yield ""
    for lines in words.elided(checked, _evidence, lambda count: iter((f"⋯ {count:,} attempts left out", ""))):
        yield from lines


def _evidence(attempt: Attempt) -> Iterator[str]:
    claim = words.claim_of(attempt)
    words_of_it = f"; the agent claimed “{plain(attempt.summary)}”" if claim and attempt.summary else ""
    yield f"**{plain(attempt.phase)}, attempt {attempt.number}**{words_of_it}"
    yield ""
    for piece in attempt.evidence:
        yield f"- {words.EVIDENCE[piece.standing].sign} {plain(comparable_claim(piece))}: {plain(piece.observed)}"
        if detail := words.proof(piece).strip():
            yield ""
            yield from (f"  {text}" for text in fenced(printable(cut(detail, _LONGEST_BLOCK))).strip().splitlines())
    yield ""


def _rounds(summary: MissionSummary, level: int) -> Iterator[str]:
    if not summary.rounds:
        return
    yield f"{'#' * level} Feedback: {words.count(len(summary.rounds), 'round')}"
    yield ""
    numbered = list(enumerate(summary.rounds, 1))
    left_out = "⋯ {:,} rounds left out".format
    for lines in words.elided(
        numbered, lambda each: _round(*each), lambda count: iter((left_out(count), "")), words.SHOWN // 2
    ):
        yield from lines


def _round(number: int, each: Round) -> Iterator[str]:
    yield f"{number}\\. {plain(words.origin(each))}{f' → {plain(each.to)}' if each.to else ''}"
    yield ""
    yield fenced(printable(cut(each.text.strip(), _LONGEST_BLOCK))).strip()
    yield ""


def _changes(summary: MissionSummary, level: int) -> Iterator[str]:
    diff = summary.diff
    if not diff.files and not diff.note:
        return
    yield f"{'#' * level} Files"
    yield ""
    yield f"{words.change_words(diff)}: {plain(diff.note)}" if diff.files else plain(diff.note)
    yield ""
    if not diff.files:
        return
    rows = [
        (plain(file.path), *(("–", "–") if file.added is None else (f"+{file.added}", f"−{file.removed}")))
        for file in diff.files[:_MOST_FILES]
    ]
    more = len(diff.files) - _MOST_FILES
    rows += [(f"⋯ {more:,} more files", "", "")] if more > 0 else []
    yield from _table(("file", "added", "removed"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
