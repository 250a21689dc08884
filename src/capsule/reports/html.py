"""A report as one HTML page that needs nothing else: no network, no script, no file beside it.

The page forbids itself to load or run anything, so that not even a text that slipped through could. Every word that is
not ours goes through `line` or `block`, and comes out as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from capsule import __version__
from capsule.core.budget import duration
from capsule.core.event import cut
from capsule.core.evidence import Evidence
from capsule.core.history import Attempt, Diff, MissionSummary, Round, comparable_claim
from capsule.core.merges import MergeRecord, Passage
from capsule.core.proven import proof_of
from capsule.core.report import Report
from capsule.core.stamps import moment
from capsule.core.status import Tone
from capsule.core.text import count
from capsule.core.train import BatchTest
from capsule.reports import words
from capsule.reports.style import printable, shortened
from capsule.reports.timeline import Bar, Scale, Span, axis, drawn, laid_out, pauses

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MOST_SECTIONS = 60
"""Of a long list of missions, so many of the newest are told in full."""
LONGEST_LINE = 600
LONGEST_BLOCK = 4000
LONGEST_QUESTION = 20_000
"""What a person must answer is told whole: it is bounded where it is recorded."""
_MOST_FILES = 30
_MOST_NOTES = 50


def page(report: Report) -> str:
    here, run = Path(__file__), report.run
    if not report.missions:
        body = f"<p>{words.NO_MISSIONS} Start one: <code>{words.HOW_TO_BEGIN}</code></p>"
    elif len(report.missions) == 1 and not run:
        only = report.missions[0]
        parts = "".join(_section(part) for part in only.parts)
        body = f"<p>{_status(only)}</p>\n{_told(only)}\n{_merges(report)}{parts}"
    else:
        began = f"{line(run.name)}: began {escape(words.when(run.began))} UTC; " if run else ""
        head = f"<p>{began}{line(words.run_sentence(run))}</p>" if run else ""
        sections = "".join(_section(each) for each in report.missions[-MOST_SECTIONS:])
        body = "\n".join((head, _totals(report), _missions(report), _merges(report), sections))
    return Template(here.with_name("report.html").read_text(encoding="utf-8")).substitute(
        policy=POLICY,
        version=__version__,
        css=here.with_name("report.css").read_text(encoding="utf-8"),
        title=line(report.heading),
        project=line(report.project),
        as_of=escape(words.when(report.as_of)),
        body=body,
    )


# ---- several missions


def _totals(report: Report) -> str:
    """Draw the figures of several missions, with a picture of the shares."""
    totals = report.totals
    passed = ((Tone.GOOD, totals.first_pass), (Tone.WARN, totals.judged - totals.first_pass))
    checked = (
        (Tone.GOOD, totals.claims_confirmed),
        (Tone.BAD, totals.claims_refuted),
        (Tone.WARN, totals.claims_unverified + totals.claims_accepted),
    )
    shares = {"first-pass rate": (passed, totals.judged), "claims checked": (checked, totals.claims)}
    figures = words.report_figures(report)
    pictures = {name: _shares(*shares[name], f"{name}: {more}") for name, _, more in figures if name in shares}
    return _tiles(figures, pictures)


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
        shown = f"{each.mission}: {each.status.words}, {count(each.attempts_made, 'attempt')}"
        name = f"<code>{line(each.mission)}</code>"
        named = f'<a href="#{_anchor(each.mission)}">{name}</a>' if each.mission in linked else name
        bar = _shares((("money", round(spent.usd * 1e6)),), round(dearest * 1e6), f"{each.mission} cost {price}", 6)
        change = f"+{each.diff.added:,} −{each.diff.removed:,}" if each.diff.files else ""
        return (
            f'<tr><th scope=row class="full">{named} <bdi>{line(each.title)}</bdi></th><td>{_status(each)}</td>'
            f'<td class="picture">{drawn(scale, every, f"{shown}, {duration(each.busy_seconds)}")}</td>'
            f'<td data-label="sent back" class="number">{each.sent_back}</td>'
            f'<td class="number" data-label=time>{escape(duration(each.busy_seconds))}</td>'
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


# ---- merge queues


def _merges(report: Report) -> str:
    """Draw each merge queue: who waited, who was tested and merged together, and what was halved."""
    return "".join(map(_merge_queue, report.merges))


def _merge_queue(record: MergeRecord) -> str:
    spans = [_ride(one) for one in record.passages]
    tested = [Span(moment(one.at) - one.seconds, moment(one.at)) for one in record.batches]
    scale = Scale([*(Span(wait.start, turn.end) for wait, turn in spans), *tested])
    rides = words.elided(
        list(zip(record.passages, spans, strict=True)),
        lambda pair: _ride_row(pair[0], *pair[1], scale),
        lambda count: _skipped(6, f"{count:,} merges left out; capsule report --json has them all"),
    )
    heads = ("mission", "result", axis(scale), "waited", "turn", "with, or why not")
    caption = (
        "In the order in which they ended. Hatched: waiting for its turn. Then its turn, in the colour of the result; "
        "a tall bar was not merged. Times of day are UTC."
    )
    shown = _table("times wide", caption, heads, rides, picture=2)
    batches = _batches(record, tested, scale)
    return f'<section class="card"><h2>Merge queue: {line(record.branch)}</h2>{shown}{batches}</section>'


def _ride(one: Passage) -> tuple[Span, Span]:
    """Return when it waited, and when it had its turn."""
    ended = moment(one.ended)
    turn = max(ended - one.seconds, moment(one.came))
    return Span(moment(one.came), turn), Span(turn, ended)


def _ride_row(one: Passage, wait: Span, turn: Span, scale: Scale) -> str:
    waited, took = duration(one.waited) if one.waited else "–", duration(one.seconds) if one.seconds else "–"
    shown = f"{one.mission}: {one.result.value}, waited {duration(one.waited)}, took {duration(one.seconds)}"
    bars = [Bar(wait, "wait")] if one.waited else []
    company, label = (", ".join(one.together), " data-label=with") if one.together else (one.why, "")
    return (
        f"<tr><th scope=row><code>{line(one.mission)}</code></th>"
        f"<td>{_chip(one.result.tone, one.result.sign, one.result.value)}</td>"
        f'<td class="picture">{drawn(scale, [*bars, Bar(turn, one.result.tone)], shown)}</td>'
        f'<td class="number" data-label=waited>{escape(waited)}</td>'
        f'<td class="number" data-label=turn>{escape(took)}</td>'
        f"<td{label}>{line(company)}</td></tr>"
    )


def _batches(record: MergeRecord, spans: Sequence[Span], scale: Scale) -> str:
    """Draw what was tested together, the halves of a red batch below it."""
    if not record.batches:
        return ""

    def row(pair: tuple[BatchTest, Span]) -> str:
        batch, span = pair
        tone, sign = (Tone.GOOD, "✓") if batch.green else (Tone.BAD, "✗")
        names = ", ".join(batch.missions)
        below = '<span class="part">↳ </span>' if batch.part else ""
        return (
            f'<tr><th scope=row class="full">{below}<code>{line(names)}</code></th>'
            f"<td>{_chip(tone, sign, words.batch_words(batch))}</td>"
            f'<td class="picture">{drawn(scale, [Bar(span, tone)], f"{names}: {words.batch_words(batch)}")}</td>'
            f'<td class="number" data-label=time>{escape(duration(batch.seconds))}</td></tr>'
        )

    rows = words.elided(
        list(zip(record.batches, spans, strict=True)),
        row,
        lambda count: _skipped(4, f"{count:,} batches left out"),
    )
    caption = (
        "Tested together, in this order. Below a red batch: its first ones, tested again until the red one was found."
    )
    return (
        f"<h3>Batches</h3>{_table('times wide', caption, ('missions', 'tests', axis(scale), 'time'), rows, picture=2)}"
    )


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
    proof = [
        f"<li>{escape(label)}: {f'<strong>{line(text)}</strong>' if label == 'proven' else line(text)}</li>"
        for label, text in words.proof_rows(proof_of(summary))
    ]
    notes = [f"<li>{line(f'{label}: {text}')}</li>" for label, text in words.note_rows(summary)]
    again = summary.starts - 1
    starts = f" · started over {count(again, 'time')}; only the last start is told" if again > 0 else ""
    pieces = (
        f"<p>{line(summary.sentence, LONGEST_QUESTION)}</p>",
        f"<p>next: <code>{line(summary.next)}</code></p>" if summary.halted else "",
        f'<p class="soft small">workflow {line(summary.workflow)} · base <code>{line(summary.base[:12])}</code> · '
        f"into {line(summary.into)} · {escape(words.period(summary))}{starts}</p>",
        f'<p class="notice"><strong>{line(summary.unverified)}</strong></p>' if summary.unverified else "",
        f"<ul>{''.join(proof)}</ul>" if proof else "",
        _tiles(words.mission_figures(summary)),
        _timeline(summary),
        _claims(summary),
        _rounds(summary),
        _changes(summary.diff),
        f"<h3>Notes</h3><ul>{''.join(notes[:_MOST_NOTES])}</ul>" if notes else "",
    )
    return "\n".join(filter(None, pieces))


def _timeline(summary: MissionSummary) -> str:
    if not summary.attempts:
        return '<p class="soft">No phase has begun yet.</p>'
    spans = laid_out(summary.attempts)
    scale = Scale(spans)
    pairs = list(zip(summary.attempts, spans, strict=True))

    def row(pair: tuple[Attempt, Span]) -> str:
        attempt, span = pair
        claim, by, took = words.claim_of(attempt), words.made_by(attempt), words.took(attempt.seconds)
        shown = f"{attempt.phase}, attempt {attempt.number}, by {by}: {words.outcome_of(attempt)}, {took}"
        cost = escape(words.cost_of(attempt))
        return (
            f"<tr><th scope=row>{line(attempt.phase)}</th><td data-label=attempt>{attempt.number}</td>"
            f'<td data-label=by>{line(by)}</td><td class="picture">{drawn(scale, _bars(attempt, span), shown)}</td>'
            f"<td class=said data-label=claimed>{f'“{line(claim)}”' if claim else '–'}</td>"
            f'<td>{_verdict(attempt)}</td><td class="number" data-label=time>{escape(took)}</td>'
            f'<td class="number"{" data-label=cost" if cost else ""}>{cost}</td></tr>'
        )

    def left_out(count: int) -> str:
        where = escape(f"`capsule show {summary.mission} --json` has them all")
        middle = [bar for attempt, span in pairs[words.SHOWN : -words.SHOWN] for bar in _bars(attempt, span)]
        picture = drawn(scale, middle, f"the attempts of {summary.mission} that have no row of their own")
        return (
            f"{_skipped(8, f'{count:,} attempts left out; {where}')}\n"
            f'<tr><th scope=row>all of these</th><td colspan="2"></td><td class="picture">{picture}</td>'
            '<td colspan="4"></td></tr>'
        )

    rows = words.elided(pairs, row, left_out)
    heads = ("phase", "attempt", "by", axis(scale), "claimed", "verdict", "time", "cost")
    caption = f"Who ran when, for how long, at which attempt. Times of day are UTC; {escape(words.period(summary))}."
    kinds = {(words.look_of(attempt).tone.value, words.outcome_of(attempt)) for attempt in summary.attempts}
    if any(attempt.waits for attempt in summary.attempts):
        kinds.add(("wait", "waiting for the provider"))
    legend = "".join(
        f'<li><svg width="22" height="10" aria-hidden="true"><rect class="{look}" width="22" height="10" rx="2"/></svg>'
        f"{escape(word)}</li>"
        for look, word in sorted(kinds)
    )
    table = _table("times wide", caption, heads, rows, picture=3)
    return f'<h3>Timeline</h3>{table}<ul class="legend small soft">{legend}</ul>'


def _verdict(attempt: Attempt) -> str:
    return _chip(*words.look_of(attempt), words.outcome_of(attempt))


def _bars(attempt: Attempt, span: Span) -> list[Bar]:
    return [Bar(span, words.look_of(attempt).tone), *(Bar(pause, "wait") for pause in pauses(attempt, span))]


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

    def shown(numbered: tuple[int, Round]) -> str:
        number, each = numbered
        head = f"<strong>{number}.</strong> {line(words.origin(each))}{f' → {line(each.to)}' if each.to else ''}"
        when = f'<span class="soft small">{escape(words.when(each.at))}</span>'
        return f'<div class="round{" seen" if each.seen else ""}"><p>{head} {when}</p>{block(each.text)}</div>'

    rounds = words.elided(
        list(enumerate(summary.rounds, 1)),
        shown,
        lambda count: f'<p class="soft">⋯ {count:,} rounds left out</p>',
        words.SHOWN // 2,
    )
    return f"<h3>Feedback: {count(len(summary.rounds), 'round')}</h3>{''.join(rounds)}"


def _changes(diff: Diff) -> str:
    if not diff.files:
        return f'<h3>Files</h3><p class="soft">{line(diff.note)}</p>' if diff.note else ""
    most = max((file.added or 0) + (file.removed or 0) for file in diff.files) or 1
    rows = []
    for file in diff.files[:_MOST_FILES]:
        picture, counts = "", '<td colspan="2" class="soft">not text</td>'
        if file.added is not None and file.removed is not None:
            shown = f"{file.path}: {count(file.added, 'line')} added, {file.removed} removed"
            picture = _shares(((Tone.GOOD, file.added), (Tone.BAD, file.removed)), most, shown)
            counts = f'<td class="number">+{file.added:,}</td><td class="number">−{file.removed:,}</td>'
        name = f"<th scope=row><code>{line(file.path)}</code></th>"
        rows.append(f"<tr>{name}{counts}<td class=picture>{picture}</td></tr>")
    more = len(diff.files) - _MOST_FILES
    rows += [_skipped(4, count(more, "more file"))] if more > 0 else []
    heads = ("file", "added", "removed", "")
    caption = f"{escape(words.change_words(diff))}: {line(diff.note)}."
    return f"<h3>Files</h3>{_table('times', caption, heads, rows, picture=3)}"


# ---- pieces


def line(text: str, most: int = LONGEST_LINE) -> str:
    """Return a stranger's words on one line: no markup, no control character, and not the whole of a novel."""
    return escape(shortened(text, most))


def block(text: str) -> str:
    """Return a stranger's words with their lines."""
    return f'<pre dir="auto">{escape(printable(cut(text.strip(), LONGEST_BLOCK)))}</pre>'


def _chip(tone: Tone, sign: str, word: str) -> str:
    return f'<span class="chip {tone}">{sign} {line(word)}</span>'


def _tiles(figures: Iterable[words.Figure], pictures: Mapping[str, str] | None = None) -> str:
    """Draw figures to be taken in at a glance; `pictures`, by name, stand above the remarks."""
    shown, above = "", pictures or {}
    for name, figure, more in figures:
        remark = f"<dd>{above.get(name, '')}{line(more)}</dd>" if more else ""
        shown += f'<div class="tile"><dt>{name}</dt><dd>{line(figure)}</dd>{remark}</div>'
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
