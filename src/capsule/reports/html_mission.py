"""One mission on a page: its timeline, what was said against what was checked, feedback, what it changed."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from capsule.core.account import AttemptAccount, Diff, FileChange, MissionAccount, Round
from capsule.core.budget import duration
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.reports import account_words as words
from capsule.reports.html_pieces import block, chip, line, shares, sign, skipped, table, tiles, with_code
from capsule.reports.timeline import Bar, Scale, Span, axis, drawn, laid_out, pauses

_MOST_FILES = 30


def anchor(mission: str) -> str:
    return f"mission-{escape(mission)}"


def section(account: MissionAccount, level: int = 2) -> str:
    """All of one mission, its parts below it."""
    title = f"<h{level}><code>{line(account.mission)}</code> <bdi>{line(account.title)}</bdi></h{level}>"
    parts = "".join(section(part, min(level + 1, 6)) for part in account.parts)
    return (
        f'<details class="card" open id="{anchor(account.mission)}"><summary>{title} {standing(account)}</summary>\n'
        f"{told(account)}{parts}</details>\n"
    )


def standing(account: MissionAccount) -> str:
    return chip(words.stands(account.where), account.where.word)


def told(account: MissionAccount) -> str:
    pieces = (
        f"<p>{line(account.where.sentence)}</p>",
        f'<p class="soft small">workflow {line(account.workflow)} · base <code>{line(account.base[:12])}</code> · '
        f"into {line(account.into)} · {escape(words.period(account))}{_starts(account)}</p>",
        f'<p class="notice"><strong>{line(account.where.unverified)}</strong></p>' if account.where.unverified else "",
        _figures(account),
        _timeline(account),
        _claims(account),
        _rounds(account),
        _changes(account.diff),
        _notes(account),
    )
    return "\n".join(filter(None, pieces))


def _starts(account: MissionAccount) -> str:
    again = account.starts - 1
    return f" · started over {words.count(again, 'time')}; only the last start is told" if again > 0 else ""


def _figures(account: MissionAccount) -> str:
    spent = account.whole_spending
    pieces = [piece.standing for attempt in account.attempts for piece in attempt.evidence]
    held, broken = pieces.count(EvidenceStatus.CONFIRMED), pieces.count(EvidenceStatus.REFUTED)
    open_ = len(pieces) - held - broken
    sent_back = words.count(account.sent_back, "time")
    rows = [
        ("took", escape(duration(account.wall_seconds)), escape(words.time_words(account).partition("; ")[2])),
        ("attempts", f"{len(account.attempts):,}", f"sent back {sent_back}; {account.refuted} refuted"),
        (
            "claims checked",
            f"{held} of {len(pieces)} held",
            f"{broken} refuted{f', {open_} could not be checked' if open_ else ''}",
        ),
        ("agents cost", escape(words.money(spent)), escape(_and_more(account))),
        ("change", escape(words.change_words(account.diff)) or "–", line(account.diff.note)),
    ]
    return tiles(rows)


def _and_more(account: MissionAccount) -> str:
    spent = account.whole_spending
    time = f"{duration(spent.seconds)} of agents' time" if spent.runs else "no agent was started"
    return ", ".join(filter(None, (words.tokens(spent), time)))


# ---- the timeline


def _timeline(account: MissionAccount) -> str:
    if not account.attempts:
        return '<p class="soft">No phase has begun yet.</p>'
    spans = laid_out(account.attempts, account.as_of)
    scale = Scale(spans)
    pairs = list(zip(account.attempts, spans, strict=True))
    first, left_out, last = words.ends(pairs)
    rows = [_attempt_row(*pair, scale) for pair in first]
    if left_out:
        where = f"`capsule show {account.mission} --json` has them all"
        rows += [skipped(8, f"{left_out:,} attempts left out; {escape(where)}"), _middle(pairs, scale, account)]
    rows += [_attempt_row(*pair, scale) for pair in last]
    heads = (
        ("", "phase"),
        ("", "attempt"),
        ("", "by"),
        ("picture", axis(scale)),
        ("", "claimed"),
        ("", "verdict"),
        ("", "time"),
        ("", "cost"),
    )
    return f"<h3>Timeline</h3>{table('times wide', _caption(account), heads, rows)}{_legend(account)}"


def _caption(account: MissionAccount) -> str:
    return f"Who ran when, for how long, at which attempt. Times of day are UTC; {escape(words.period(account))}."


def _attempt_row(attempt: AttemptAccount, span: Span, scale: Scale) -> str:
    claim = words.said(attempt)
    by = " · ".join(filter(None, (attempt.agent or "Capsule", attempt.model)))
    shown = f"{attempt.phase}, attempt {attempt.number}, by {by}: {_in_words(attempt)}, {words.took(attempt.seconds)}"
    return (
        f"<tr><th scope=row>{line(attempt.phase)}</th><td data-label=attempt>{attempt.number}</td>"
        f'<td data-label=by>{line(by)}</td><td class="picture">{drawn(scale, bars(attempt, span), shown)}</td>'
        f"<td class=said data-label=claimed>{f'“{line(claim)}”' if claim else '–'}</td>"
        f"<td>{_verdict(attempt)}</td>"
        f'<td class="number" data-label=took>{escape(words.took(attempt.seconds))}</td>{_cost(attempt)}</tr>'
    )


def _verdict(attempt: AttemptAccount) -> str:
    return chip(words.look_of(attempt), _in_words(attempt))


def _in_words(attempt: AttemptAccount) -> str:
    """`PASS`, or `PASS, unchecked`."""
    return ", ".join(filter(None, (words.outcome_of(attempt), words.caveat(attempt))))


def _cost(attempt: AttemptAccount) -> str:
    cost = escape(words.cost_of(attempt))
    return f'<td class="number" data-label=cost>{cost}</td>' if cost else "<td></td>"


def bars(attempt: AttemptAccount, span: Span) -> list[Bar]:
    return [Bar(span, words.look_of(attempt).name), *(Bar(pause, "wait") for pause in pauses(attempt, span))]


def _middle(pairs: list[tuple[AttemptAccount, Span]], scale: Scale, account: MissionAccount) -> str:
    """What is left out of the rows, as one line of the picture."""
    every = [bar for attempt, span in pairs[words.SHOWN : -words.SHOWN] for bar in bars(attempt, span)]
    picture = drawn(scale, every, f"the attempts of {account.mission} that have no row of their own")
    empty = '<td colspan="{}"></td>'
    row = f'<th scope=row>all of these</th>{empty.format(2)}<td class="picture">{picture}</td>{empty.format(4)}'
    return f"<tr>{row}</tr>"


def _legend(account: MissionAccount) -> str:
    kinds = dict.fromkeys((words.look_of(attempt).name, _in_words(attempt)) for attempt in account.attempts)
    if any(attempt.waits for attempt in account.attempts):
        kinds["wait", "waiting for the provider"] = None
    rows = "".join(
        f'<li><svg width="22" height="10" aria-hidden="true"><rect class="{look}" width="22" height="10" rx="2"/></svg>'
        f"{escape(word)}</li>"
        for look, word in kinds
    )
    return f'<ul class="legend small soft">{rows}</ul>'


# ---- what was said, what was checked


def _claims(account: MissionAccount) -> str:
    attempts = [attempt for attempt in account.attempts if attempt.verdict]
    first, left_out, last = words.ends(attempts)
    if not attempts:
        return ""
    rows = [_claim_row(attempt) for attempt in first]
    rows += [skipped(3, f"{left_out:,} attempts left out")] if left_out else []
    rows += [_claim_row(attempt) for attempt in last]
    heads = (("", "attempt"), ("", "The agent claimed"), ("", "Capsule saw for itself"))
    caption = "On the left nothing is proven: it is what agents wrote of themselves. On the right is what was checked."
    return f"<h3>Claims against evidence</h3>{table('claims wide', caption, heads, rows)}"


def _claim_row(attempt: AttemptAccount) -> str:
    claim = words.said(attempt)
    summary = f"<br>{line(attempt.summary)}" if attempt.summary and not attempt.spoken_for else ""
    says = (
        f'<span class="said">“{line(claim)}”{summary}</span>'
        if claim
        else '<span class="soft">Capsule’s own work</span>'
    )
    seen = "".join(_evidence(piece) for piece in attempt.evidence)
    nothing = '<span class="soft">nothing was checked here</span>'
    problem = f"<p>{line(attempt.failure)}</p>" if attempt.failure else ""
    return (
        f'<tr><th scope=row class="full">{line(attempt.phase)} · {attempt.number}<br>'
        f"{_verdict(attempt)}</th>"
        f'<td class="full">{says}</td><td class="full">{f"<ul>{seen}</ul>" if seen else nothing}{problem}</td></tr>'
    )


def _evidence(piece: Evidence) -> str:
    detail = words.proof(piece)
    return (
        f"<li>{sign(words.STANDINGS[piece.standing], piece.standing.value)}{line(piece.claimed)}: "
        f"<strong>{with_code(piece.observed)}</strong>{block(detail) if detail.strip() else ''}</li>"
    )


def _rounds(account: MissionAccount) -> str:
    if not account.rounds:
        return ""
    first, left_out, last = words.ends(account.rounds, words.SHOWN // 2)
    shown = [_round(number, each) for number, each in enumerate(first, 1)]
    shown += [f'<p class="soft">⋯ {left_out:,} rounds left out</p>'] if left_out else []
    shown += [_round(number, each) for number, each in enumerate(last, len(first) + left_out + 1)]
    return f"<h3>Feedback: {words.count(len(account.rounds), 'round')}</h3>{''.join(shown)}"


def _round(number: int, each: Round) -> str:
    to = f" → {line(each.to)}" if each.to else ""
    return (
        f'<div class="round{" seen" if each.seen else ""}"><p><strong>{number}.</strong> {line(words.origin(each))}{to}'
        f' <span class="soft small">{escape(words.when(each.at))}</span></p>{block(each.text)}</div>'
    )


# ---- what it changed


def _changes(diff: Diff) -> str:
    if not diff.files:
        return f'<h3>Files</h3><p class="soft">{line(diff.note)}</p>' if diff.note else ""
    most = max((file.added or 0) + (file.removed or 0) for file in diff.files) or 1
    rows = [_file_row(file, most) for file in diff.files[:_MOST_FILES]]
    more = len(diff.files) - _MOST_FILES
    rows += [skipped(4, f"{more:,} more files")] if more > 0 else []
    heads = (("", "file"), ("", "added"), ("", "removed"), ("picture", ""))
    caption = f"{escape(words.change_words(diff))}: {line(diff.note)}."
    return f"<h3>Files</h3>{table('times', caption, heads, rows)}"


def _file_row(file: FileChange, most: int) -> str:
    if file.added is None or file.removed is None:
        picture, counts = "", '<td colspan="2" class="soft">not text</td>'
    else:
        shown = f"{file.path}: {file.added} lines added, {file.removed} removed"
        picture = shares((("good", file.added), ("bad", file.removed)), most, shown)
        counts = f'<td class="number">+{file.added:,}</td><td class="number">−{file.removed:,}</td>'
    return f"<tr><th scope=row><code>{line(file.path)}</code></th>{counts}<td class=picture>{picture}</td></tr>"


def _notes(account: MissionAccount) -> str:
    lines = list(_remarks(account))
    return f"<h3>Also</h3><ul>{''.join(f'<li>{line(text)}</li>' for text in lines[:50])}</ul>" if lines else ""


def _remarks(account: MissionAccount) -> Iterator[str]:
    yield from (f"warning: {text}" for text in account.warnings)
    for attempt in account.attempts:
        yield from (f"{attempt.phase}, attempt {attempt.number}: {text}" for text in attempt.warnings)
    yield from (f"kept: {text}" for text in account.salvaged)
