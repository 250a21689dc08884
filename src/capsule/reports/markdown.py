"""An account as Markdown, for a terminal, a pull request or a chat. No stranger's word becomes markup."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from capsule.core.account import AttemptAccount, MissionAccount, Round
from capsule.core.briefing import fenced
from capsule.core.budget import duration
from capsule.core.event import cut
from capsule.core.run_account import RunAccount
from capsule.reports import account_words as words
from capsule.reports.style import clean, printable

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|~#!&])")
_LONGEST_LINE = 300
_LONGEST_BLOCK = 2000
_MOST_FILES = 30
_MOST_MISSIONS = 60


def markdown(account: RunAccount) -> str:
    return "\n".join(_lines(account)).rstrip() + "\n"


def plain(text: str) -> str:
    """A stranger's words on one line, with nothing in them that Markdown or HTML would act on."""
    shown = clean(printable(text))
    shown = shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 1]}…"
    return _MARKUP.sub(r"\\\1", shown)


def _lines(account: RunAccount) -> Iterator[str]:
    yield f"# {plain(words.heading(account))}"
    yield ""
    yield f"{plain(account.project)}, as of {words.when(account.as_of)} UTC."
    yield ""
    if not account.missions:
        yield f"{words.NOTHING_YET} Start one: `{words.HOW_TO_BEGIN}`"
        return
    if len(account.missions) == 1 and not account.run:
        yield from _mission(account.missions[0], 2)
        return
    yield from _overview(account)
    hidden = len(account.missions) - _MOST_MISSIONS
    if hidden > 0:
        yield f"The newest {_MOST_MISSIONS} are told in full; of the others: `capsule report ID`"
        yield ""
    for each in account.missions[-_MOST_MISSIONS:]:
        yield f"## {plain(each.mission)}: {plain(each.title)}"
        yield ""
        yield from _mission(each, 3)


def _overview(account: RunAccount) -> Iterator[str]:
    totals, run = account.totals, account.run
    if run:
        end = f"ended {words.when(run.ended)} UTC: {plain(run.why)}" if run.ended else "it is not at its end"
        agents = words.count(run.spawns, "agent")
        yield f"- {plain(run.name)}: began {words.when(run.began)} UTC; {agents} started; {end}"
    yield f"- Missions: {totals.missions:,} ({words.standing_counts(totals)})"
    yield f"- First-pass rate: {words.rate(totals)}"
    yield f"- Retries: {totals.sent_back:,} of {words.count(totals.attempts, 'attempt')}; {totals.refuted} refuted"
    open_ = totals.claims - totals.claims_confirmed - totals.claims_refuted
    held = f"{totals.claims_confirmed} held, {totals.claims_refuted} refuted, {open_} could not be checked"
    yield f"- Claims checked: {totals.claims:,} ({held})"
    yield f"- Agents used: {words.spent_words(totals.spending)}"
    yield f"- Time: {duration(totals.wall_seconds)}; at work for {duration(totals.busy_seconds)}"
    yield ""
    heads = ("mission", "title", "stands", "sent back", "took", "change", "cost")
    yield from _table(heads, [_mission_cells(each) for each in account.missions])


def _mission_cells(each: MissionAccount) -> tuple[str, ...]:
    return (
        plain(each.mission),
        plain(each.title),
        f"{words.stands(each.where).sign} {each.where.word}",
        str(each.sent_back),
        duration(each.wall_seconds),
        f"+{each.diff.added} −{each.diff.removed}" if each.diff.files else "",
        words.money(each.whole_spending),
    )


def _mission(account: MissionAccount, level: int) -> Iterator[str]:
    look = words.stands(account.where)
    yield f"{look.sign} **{account.where.word}**: {plain(account.where.sentence)}"
    yield ""
    if account.where.unverified:
        yield f"**{plain(account.where.unverified)}**"
        yield ""
    yield f"- Workflow {plain(account.workflow)}, base `{account.base[:12]}`, into {plain(account.into)}"
    yield f"- {words.period(account)}; {words.time_words(account)}"
    yield f"- {words.count(len(account.attempts), 'attempt')}, sent back {words.count(account.sent_back, 'time')}"
    yield f"- Agents used: {words.spent_words(account.whole_spending)}"
    yield ""
    yield from _timeline(account, level)
    yield from _claims(account, level)
    yield from _rounds(account, level)
    yield from _changes(account, level)
    for part in account.parts:
        yield f"{'#' * level} {plain(part.mission)}: {plain(part.title)}"
        yield ""
        yield from _mission(part, min(level + 1, 6))


def _timeline(account: MissionAccount, level: int) -> Iterator[str]:
    if not account.attempts:
        return
    yield f"{'#' * level} Timeline"
    yield ""
    first, left_out, last = words.ends(account.attempts)
    rows = [_attempt_cells(attempt) for attempt in first]
    rows += [(f"⋯ {left_out:,} attempts left out", *[""] * 7)] if left_out else []
    rows += [_attempt_cells(attempt) for attempt in last]
    yield from _table(("phase", "attempt", "by", "began", "time", "claimed", "verdict", "cost"), rows)


def _attempt_cells(attempt: AttemptAccount) -> tuple[str, ...]:
    claim, caveat = words.said(attempt), words.caveat(attempt)
    wait = f" ({duration(attempt.waited)} of waiting)" if attempt.waits else ""
    return (
        plain(attempt.phase),
        str(attempt.number),
        plain(" · ".join(filter(None, (attempt.agent or "Capsule", attempt.model)))),
        words.when(attempt.began),
        words.took(attempt.seconds) + wait,
        f"“{plain(claim)}”" if claim else "–",
        f"{words.look_of(attempt).sign} {plain(words.outcome_of(attempt))}{f', {caveat}' if caveat else ''}",
        words.cost_of(attempt),
    )


def _claims(account: MissionAccount, level: int) -> Iterator[str]:
    first, left_out, last = words.ends([attempt for attempt in account.attempts if attempt.evidence])
    if not first:
        return
    yield f"{'#' * level} Claims against evidence"
    yield ""
    for attempt in first:
        yield from _evidence(attempt)
    if left_out:
        yield f"⋯ {left_out:,} attempts left out"
        yield ""
    for attempt in last:
        yield from _evidence(attempt)


def _evidence(attempt: AttemptAccount) -> Iterator[str]:
    claim = words.said(attempt)
    words_of_it = f"; the agent claimed “{plain(attempt.summary)}”" if claim and attempt.summary else ""
    yield f"**{plain(attempt.phase)}, attempt {attempt.number}**{words_of_it}"
    yield ""
    for piece in attempt.evidence:
        yield f"- {words.STANDINGS[piece.standing].sign} {plain(piece.claimed)}: {plain(piece.observed)}"
        if detail := words.proof(piece).strip():
            yield ""
            yield from (f"  {text}" for text in fenced(printable(cut(detail, _LONGEST_BLOCK))).strip().splitlines())
    yield ""


def _rounds(account: MissionAccount, level: int) -> Iterator[str]:
    if not account.rounds:
        return
    yield f"{'#' * level} Feedback: {words.count(len(account.rounds), 'round')}"
    yield ""
    first, left_out, last = words.ends(account.rounds, words.SHOWN // 2)
    for number, each in enumerate(first, 1):
        yield from _round(number, each)
    if left_out:
        yield f"⋯ {left_out:,} rounds left out"
        yield ""
    for number, each in enumerate(last, len(first) + left_out + 1):
        yield from _round(number, each)


def _round(number: int, each: Round) -> Iterator[str]:
    yield f"{number}\\. {plain(words.origin(each))}{f' → {plain(each.to)}' if each.to else ''}"
    yield ""
    yield fenced(printable(cut(each.text.strip(), _LONGEST_BLOCK))).strip()
    yield ""


def _changes(account: MissionAccount, level: int) -> Iterator[str]:
    diff = account.diff
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
