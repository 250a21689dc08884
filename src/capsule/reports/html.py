"""A report as one HTML page that needs nothing else: no network, no script, no file beside it.

The page forbids itself to load or run anything, so that not even a text that slipped through could. Every word that is
not ours goes through `line` or `block`, and comes out as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from string import Template

from capsule import __version__
from capsule.core.budget import Spending, duration
from capsule.core.event import cut
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.history import Attempt, Diff, FileChange, MissionSummary, Round, comparable_claim, evidence_counts
from capsule.core.proven import proof_of
from capsule.core.report import Report, Totals
from capsule.core.status import Tone, count_statuses
from capsule.reports import words
from capsule.reports.style import printable, shortened
from capsule.reports.timeline import Bar, Scale, Span, axis, drawn, laid_out, pauses

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MOST_SECTIONS = 60
"""Of a long list of missions, so many of the newest are told in full."""
LONGEST_LINE = 600
LONGEST_BLOCK = 4000
_MOST_FILES = 30
_MOST_NOTES = 50


def page(report: Report) -> str:
    here = Path(__file__)
    return Template(here.with_name("report.html").read_text(encoding="utf-8")).substitute(
        policy=POLICY,
        version=__version__,
        css=here.with_name("report.css").read_text(encoding="utf-8"),
        title=line(report.heading),
        project=line(report.project),
        as_of=escape(words.when(report.as_of)),
        body=_body(report),
    )


def _body(report: Report) -> str:
    if not report.missions:
        return f"<p>{words.NO_MISSIONS} Start one: <code>{words.HOW_TO_BEGIN}</code></p>"
    if len(report.missions) == 1 and not report.run:
        only = report.missions[0]
        return f"<p>{_status(only)}</p>\n{_told(only)}\n{''.join(_section(part) for part in only.parts)}"
    run = report.run
    began = f"{line(run.name)}: began {escape(words.when(run.began))} UTC; " if run else ""
    head = f"<p>{began}{line(words.run_sentence(run))}</p>" if run else ""
    sections = "".join(_section(each) for each in report.missions[-MOST_SECTIONS:])
    return "\n".join((head, _totals(report), _missions(report), sections))


# ---- several missions


def _totals(report: Report) -> str:
    totals = report.totals
    share, claims = totals.first_pass_rate, words.claims(totals)
    arc = _ring(share, f"first-pass rate {words.rate(totals)}") if share is not None else ""
    parts = (
        (Tone.GOOD, totals.claims_confirmed),
        (Tone.BAD, totals.claims_refuted),
        (Tone.WARN, totals.claims_unverified + totals.claims_accepted),
    )
    return _tiles(
        ("missions", f"{totals.missions:,}", escape(count_statuses(report.statuses))),
        (
            "first-pass rate",
            f'<span class="with-ring">{arc}<span>{words.rate(totals)}</span></span>',
            f"{totals.first_pass} of {totals.judged} that ended had nothing sent back",
        ),
        ("retries", f"{totals.sent_back:,}", f"of {words.count(totals.attempts, 'attempt')}; {totals.refuted} refuted"),
        ("claims checked", f"{totals.claims:,}", f"{_shares(parts, totals.claims, claims)}{claims}"),
        _cost(totals.spending),
        _time(totals),
    )


def _cost(spent: Spending) -> tuple[str, str, str]:
    return "agents cost", escape(words.money(spent)), escape(words.more_than_money(spent))


def _time(of: Totals | MissionSummary) -> tuple[str, str, str]:
    active = words.active(of.busy_seconds, of.waited_seconds)
    return "time", f"{escape(duration(of.wall_seconds))} wall clock", escape(active)


def _missions(report: Report) -> str:
    """Draw who ran when, a line each, and beside it what it cost, where that is known."""
    spans = {each.mission: laid_out(each.attempts) for each in report.missions}
    scale = Scale(span for each in spans.values() for span in each)
    dearest = max(each.spent_with_parts.usd for each in report.missions)
    linked = {each.mission for each in report.missions[-MOST_SECTIONS:]}

    def row(each: MissionSummary) -> str:
        pairs = zip(each.attempts, spans[each.mission], strict=True)
        every = [bar for attempt, span in pairs for bar in _bars(attempt, span)]
        spent, price = each.spent_with_parts, words.money(each.spent_with_parts)
        shown = f"{each.mission}: {each.status.words}, {words.count(len(each.attempts), 'attempt')}"
        name = f"<code>{line(each.mission)}</code>"
        named = f'<a href="#{_anchor(each.mission)}">{name}</a>' if each.mission in linked else name
        bar = _shares((("money", round(spent.usd * 1e6)),), round(dearest * 1e6), f"{each.mission} cost {price}", 6)
        change = f"+{each.diff.added:,} −{each.diff.removed:,}" if each.diff.files else ""
        return (
            f'<tr><th scope=row class="full">{named} <bdi>{line(each.title)}</bdi></th><td>{_status(each)}</td>'
            f'<td class="picture">{drawn(scale, every, f"{shown}, {duration(each.wall_seconds)}")}</td>'
            f'<td data-label="sent back" class="number">{each.sent_back}</td>'
            f'<td class="number" data-label=time>{escape(duration(each.wall_seconds))}</td>'
            f'<td class="number">{change}</td>'
            f'<td class="number" data-label=cost>{escape(price)}{bar if spent.priced else ""}</td></tr>'
        )

    rows = words.elided(
        report.missions,
        row,
        lambda count: _skipped(7, f"{count:,} missions left out; capsule report --json has them all"),
        5 * words.SHOWN,
    )
    heads = ("mission", "status", axis(scale), "sent back", "time", "change", "cost")
    caption = (
        "The oldest first. Each bar is an attempt, in the colour of its verdict; a tall one did not pass. Hatched: "
        "waiting for a provider. Dotted: a long time in which nothing happened, drawn short. Times of day are UTC."
    )
    other = f"The newest {MOST_SECTIONS} missions follow in full. The others: <code>capsule report ID</code>"
    note = f'<p class="soft">{other}</p>' if len(report.missions) > len(linked) else ""
    shown = _table("times wide", caption, heads, rows, picture=2)
    return f'<section class="card"><h2>Missions</h2>{shown}</section>{note}'


# ---- one mission


def _anchor(mission: str) -> str:
    return f"mission-{escape(mission)}"


def _section(summary: MissionSummary, level: int = 2) -> str:
    """All of one mission, its parts below it."""
    title = f"<h{level}><code>{line(summary.mission)}</code> <bdi>{line(summary.title)}</bdi></h{level}>"
    parts = "".join(_section(part, min(level + 1, 6)) for part in summary.parts)
    return (
        f'<details class="card" open id="{_anchor(summary.mission)}"><summary>{title} {_status(summary)}</summary>\n'
        f"{_told(summary)}{parts}</details>\n"
    )


def _status(summary: MissionSummary) -> str:
    return _chip(words.tone_of(summary), summary.status.sign, summary.status.words)


def _told(summary: MissionSummary) -> str:
    again = summary.starts - 1
    starts = f" · started over {words.count(again, 'time')}; only the last start is told" if again > 0 else ""
    pieces = (
        f"<p>{line(summary.sentence, LONGEST_BLOCK)}</p>",
        f"<p>next: <code>{line(summary.next)}</code></p>" if summary.halted else "",
        f'<p class="soft small">workflow {line(summary.workflow)} · base <code>{line(summary.base[:12])}</code> · '
        f"into {line(summary.into)} · {escape(words.period(summary))}{starts}</p>",
        f'<p class="notice"><strong>{line(summary.unverified)}</strong></p>' if summary.unverified else "",
        _proof(summary),
        _figures(summary),
        _timeline(summary),
        _claims(summary),
        _rounds(summary),
        _changes(summary.diff),
        _notes(summary),
    )
    return "\n".join(filter(None, pieces))


def _proof(summary: MissionSummary) -> str:
    """Draw what was proven and what was only said, with the tests and mutants that this is about."""
    rows = "".join(
        f"<li>{escape(label)}: {f'<strong>{line(text)}</strong>' if label == 'proven' else line(text)}</li>"
        for label, text in words.proof_rows(proof_of(summary))
    )
    return f"<ul>{rows}</ul>" if rows else ""


def _figures(summary: MissionSummary) -> str:
    counts = evidence_counts(piece for attempt in summary.attempts for piece in attempt.evidence)
    held, unsure = counts[EvidenceStatus.CONFIRMED], counts[EvidenceStatus.UNVERIFIED]
    accepted = counts[EvidenceStatus.ACCEPTED]
    not_held = f"{counts[EvidenceStatus.REFUTED]} refuted{f', {accepted} accepted by a person' if accepted else ''}"
    not_held += f", {unsure} could not be checked" if unsure else ""
    sent_back = words.count(summary.sent_back, "time")
    return _tiles(
        _time(summary),
        ("attempts", f"{len(summary.attempts):,}", f"sent back {sent_back}; {summary.refuted} refuted"),
        ("claims checked", f"{held} of {sum(counts.values())} held", not_held),
        _cost(summary.spent_with_parts),
        ("change", escape(words.change_words(summary.diff)) or "–", line(summary.diff.note)),
    )


def _timeline(summary: MissionSummary) -> str:
    if not summary.attempts:
        return '<p class="soft">No phase has begun yet.</p>'
    spans = laid_out(summary.attempts)
    scale = Scale(spans)
    pairs = list(zip(summary.attempts, spans, strict=True))

    def left_out(count: int) -> str:
        where = escape(f"`capsule show {summary.mission} --json` has them all")
        middle = [bar for attempt, span in pairs[words.SHOWN : -words.SHOWN] for bar in _bars(attempt, span)]
        picture = drawn(scale, middle, f"the attempts of {summary.mission} that have no row of their own")
        return (
            f"{_skipped(8, f'{count:,} attempts left out; {where}')}\n"
            f'<tr><th scope=row>all of these</th><td colspan="2"></td><td class="picture">{picture}</td>'
            '<td colspan="4"></td></tr>'
        )

    rows = words.elided(pairs, lambda pair: _attempt_row(*pair, scale), left_out)
    heads = ("phase", "attempt", "by", axis(scale), "claimed", "verdict", "time", "cost")
    caption = f"Who ran when, for how long, at which attempt. Times of day are UTC; {escape(words.period(summary))}."
    return f"<h3>Timeline</h3>{_table('times wide', caption, heads, rows, picture=3)}{_legend(summary)}"


def _attempt_row(attempt: Attempt, span: Span, scale: Scale) -> str:
    claim, by, took = words.claim_of(attempt), words.made_by(attempt), words.took(attempt.seconds)
    shown = f"{attempt.phase}, attempt {attempt.number}, by {by}: {words.outcome_of(attempt)}, {took}"
    cost = escape(words.cost_of(attempt))
    cost_cell = f'<td class="number" data-label=cost>{cost}</td>' if cost else "<td></td>"
    return (
        f"<tr><th scope=row>{line(attempt.phase)}</th><td data-label=attempt>{attempt.number}</td>"
        f'<td data-label=by>{line(by)}</td><td class="picture">{drawn(scale, _bars(attempt, span), shown)}</td>'
        f"<td class=said data-label=claimed>{f'“{line(claim)}”' if claim else '–'}</td>"
        f"<td>{_verdict(attempt)}</td>"
        f'<td class="number" data-label=time>{escape(took)}</td>{cost_cell}</tr>'
    )


def _verdict(attempt: Attempt) -> str:
    return _chip(*words.look_of(attempt), words.outcome_of(attempt))


def _bars(attempt: Attempt, span: Span) -> list[Bar]:
    return [Bar(span, words.look_of(attempt).tone), *(Bar(pause, "wait") for pause in pauses(attempt, span))]


def _legend(summary: MissionSummary) -> str:
    kinds: dict[tuple[str, str], None] = {}
    for attempt in summary.attempts:
        kinds[words.look_of(attempt).tone, words.outcome_of(attempt)] = None
    if any(attempt.waits for attempt in summary.attempts):
        kinds["wait", "waiting for the provider"] = None
    rows = "".join(
        f'<li><svg width="22" height="10" aria-hidden="true"><rect class="{look}" width="22" height="10" rx="2"/></svg>'
        f"{escape(word)}</li>"
        for look, word in kinds
    )
    return f'<ul class="legend small soft">{rows}</ul>'


def _claims(summary: MissionSummary) -> str:
    ended = [attempt for attempt in summary.attempts if attempt.ended]
    if not ended:
        return ""
    rows = words.elided(ended, _claim_row, lambda count: _skipped(3, f"{count:,} attempts left out"))
    heads = ("attempt", "The agent claimed", "Capsule verified")
    caption = "Left: what agents wrote of themselves, unproven. Right: what was checked."
    return f"<h3>Claims against evidence</h3>{_table('claims wide', caption, heads, rows)}"


def _claim_row(attempt: Attempt) -> str:
    claim = words.claim_of(attempt)
    synthetic = attempt.ended is not None and attempt.ended.outcome.signal.synthetic
    summary = f"<br>{line(attempt.summary)}" if attempt.summary and not synthetic else ""
    says = f'<span class="said">“{line(claim)}”{summary}</span>'
    own = '<span class="soft">Capsule’s own work</span>'
    seen = "".join(_evidence(piece) for piece in attempt.evidence)
    nothing = '<span class="soft">nothing was checked here</span>'
    problem = f"<p>{line(attempt.failure)}</p>" if attempt.failure else ""
    return (
        f'<tr><th scope=row class="full">{line(attempt.phase)} · {attempt.number}<br>'
        f'{_verdict(attempt)}</th><td class="full">{says if claim else own}</td>'
        f'<td class="full">{f"<ul>{seen}</ul>" if seen else nothing}{problem}</td></tr>'
    )


def _evidence(piece: Evidence) -> str:
    look, detail = words.EVIDENCE[piece.standing], words.proof(piece)
    meaning = line(piece.standing.value)
    sign = f'<span class="sign {look.tone}" role="img" aria-label="{meaning}">{look.sign}</span>'
    observed = re.sub(r"`([^`]+)`", r"<code>\1</code>", line(piece.observed))
    return (
        f"<li>{sign}{line(comparable_claim(piece))}: <strong>{observed}</strong>"
        f"{block(detail) if detail.strip() else ''}</li>"
    )


def _rounds(summary: MissionSummary) -> str:
    if not summary.rounds:
        return ""
    shown = words.elided(
        list(enumerate(summary.rounds, 1)),
        lambda each: _round(*each),
        lambda count: f'<p class="soft">⋯ {count:,} rounds left out</p>',
        words.SHOWN // 2,
    )
    return f"<h3>Feedback: {words.count(len(summary.rounds), 'round')}</h3>{''.join(shown)}"


def _round(number: int, each: Round) -> str:
    to = f" → {line(each.to)}" if each.to else ""
    return (
        f'<div class="round{" seen" if each.seen else ""}"><p><strong>{number}.</strong> {line(words.origin(each))}{to}'
        f' <span class="soft small">{escape(words.when(each.at))}</span></p>{block(each.text)}</div>'
    )


def _changes(diff: Diff) -> str:
    if not diff.files:
        return f'<h3>Files</h3><p class="soft">{line(diff.note)}</p>' if diff.note else ""
    most = max((file.added or 0) + (file.removed or 0) for file in diff.files) or 1
    rows = [_file_row(file, most) for file in diff.files[:_MOST_FILES]]
    more = len(diff.files) - _MOST_FILES
    rows += [_skipped(4, words.count(more, "more file"))] if more > 0 else []
    heads = ("file", "added", "removed", "")
    caption = f"{escape(words.change_words(diff))}: {line(diff.note)}."
    return f"<h3>Files</h3>{_table('times', caption, heads, rows, picture=3)}"


def _file_row(file: FileChange, most: int) -> str:
    if file.added is None or file.removed is None:
        picture, counts = "", '<td colspan="2" class="soft">not text</td>'
    else:
        shown = f"{file.path}: {words.count(file.added, 'line')} added, {file.removed} removed"
        picture = _shares(((Tone.GOOD, file.added), (Tone.BAD, file.removed)), most, shown)
        counts = f'<td class="number">+{file.added:,}</td><td class="number">−{file.removed:,}</td>'
    return f"<tr><th scope=row><code>{line(file.path)}</code></th>{counts}<td class=picture>{picture}</td></tr>"


def _notes(summary: MissionSummary) -> str:
    def notes() -> Iterator[str]:
        yield from (f"exam: {text}" for text in words.exam(summary.state))
        yield from map(words.acceptance, summary.accepted)
        yield from (f"warning: {text}" for text in summary.warnings)
        for attempt in summary.attempts:
            warnings = attempt.ended.outcome.warnings if attempt.ended else ()
            yield from (f"{attempt.phase}, attempt {attempt.number}: {text}" for text in warnings)
        yield from (f"salvaged: {ref} ({why})" for ref, why in summary.salvaged.items())

    shown = "".join(f"<li>{line(text)}</li>" for text in list(notes())[:_MOST_NOTES])
    return f"<h3>Notes</h3><ul>{shown}</ul>" if shown else ""


# ---- pieces


def line(text: str, most: int = LONGEST_LINE) -> str:
    """Return a stranger's words on one line: no markup, no control character, and not the whole of a novel."""
    return escape(shortened(text, most))


def block(text: str) -> str:
    """Return a stranger's words with their lines."""
    return f'<pre dir="auto">{escape(printable(cut(text.strip(), LONGEST_BLOCK)))}</pre>'


def _chip(tone: Tone, sign: str, word: str) -> str:
    return f'<span class="chip {tone}">{sign} {line(word)}</span>'


def _tiles(*rows: tuple[str, str, str]) -> str:
    """Figures to be taken in at a glance: name, figure and a remark, all escaped already."""
    shown = "".join(
        f'<div class="tile"><dt>{name}</dt><dd>{figure}</dd>{f"<dd>{more}</dd>" if more else ""}</div>'
        for name, figure, more in rows
    )
    return f'<dl class="tiles">{shown}</dl>'


def _table(kind: str, caption: str, heads: Iterable[str], rows: Iterable[str], picture: int = -1) -> str:
    """Draw a table of what is escaped already; `picture` is the column of pictures."""
    cells = "".join(
        f'<th scope="col"{" class=picture" if number == picture else ""}>{text}</th>'
        for number, text in enumerate(heads)
    )
    body = "\n".join(rows)
    return (
        f'<table class="{kind}"><caption>{caption}</caption>\n<thead><tr>{cells}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table>"
    )


def _skipped(columns: int, text: str) -> str:
    return f'<tr class="skipped"><td colspan="{columns}" class="full">⋯ {text}</td></tr>'


def _ring(share: float, title: str) -> str:
    """A share as an arc; the title says the same."""
    length = 2 * 3.14159265 * 15
    return (
        f'<svg class="ring" viewBox="0 0 36 36" role="img"><title>{line(title)}</title>'
        f'<circle cx="18" cy="18" r="15"/><circle class="share" cx="18" cy="18" r="15" transform="rotate(-90 18 18)" '
        f'stroke-dasharray="{share * length:.2f} {length:.2f}"/></svg>'
    )


def _shares(parts: Iterable[tuple[str, int]], whole: int, title: str, height: int = 10) -> str:
    """Parts of a whole side by side, each by the class of its colour."""
    left, rects = 0.0, []
    for look, number in parts:
        width = 100 * number / whole if whole else 0.0
        if number:
            rects.append(f'<rect class="{look}" x="{left:.2f}%" width="{max(width, 0.5):.2f}%" height="{height}"/>')
        left += width
    return (
        f'<svg class="lane" role="img" width="100%" height="{height}"><title>{line(title)}</title>'
        f"{''.join(rects)}</svg>"
    )
