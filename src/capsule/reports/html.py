"""An account as one HTML page that needs nothing else: no network, no script, no file beside it.

The page forbids itself to load or run anything, so that not even a text that slipped through could.
"""

from __future__ import annotations

from html import escape

from capsule import __version__
from capsule.core.account import MissionAccount
from capsule.core.budget import duration
from capsule.core.run_account import RunAccount, RunStory
from capsule.reports import account_words as words
from capsule.reports.html_mission import anchor, bars, section, standing, told
from capsule.reports.html_pieces import line, ring, shares, skipped, table, tiles
from capsule.reports.html_style import CSS, PATTERNS
from capsule.reports.timeline import Bar, Scale, axis, drawn, laid_out

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
MOST_SECTIONS = 60
"""Of a long list of missions, so many of the newest are told in full."""


def page(account: RunAccount) -> str:
    title = words.heading(account)
    return f"""\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Capsule {__version__}">
<title>{line(title)} · Capsule report</title>
<style>{CSS}</style>
</head>
<body>
{PATTERNS}<header>
<p class="soft small">Capsule report · {line(account.project)} · as of {escape(words.when(account.as_of))} UTC</p>
<h1>{line(title)}</h1>
</header>
<main>
{_body(account)}
</main>
<footer><p>What agents say of themselves is in quotation marks, and proves nothing; what was checked is beside it.</p>
<p>Made by Capsule {__version__} from the journal. Costs that no agent reported are unknown, not zero.</p></footer>
</body>
</html>
"""


def _body(account: RunAccount) -> str:
    if not account.missions:
        return f"<p>{words.NOTHING_YET} Start one: <code>{words.HOW_TO_BEGIN}</code></p>"
    if len(account.missions) == 1 and not account.run:
        only = account.missions[0]
        parts = "".join(section(part) for part in only.parts)
        return f"<p>{standing(only)}</p>\n{told(only)}\n{parts}"
    newest = account.missions[-MOST_SECTIONS:]
    sections = "".join(section(each) for each in newest)
    return "\n".join((_run(account.run) if account.run else "", _figures(account), _missions(account), sections))


def _run(run: RunStory) -> str:
    if not run.ended:
        how = "it is not at its end: it is under way, or was interrupted"
    else:
        how = f"ended {words.when(run.ended)} UTC: {run.why} (exit code {run.exit_code})"
    agents = f"{words.count(run.spawns, 'agent')} started"
    return f"<p>{line(run.name)}: began {escape(words.when(run.began))} UTC, {agents}; {line(how)}</p>"


def _figures(account: RunAccount) -> str:
    totals = account.totals
    share = totals.first_pass_rate
    arc = ring(share, f"first-pass rate {words.rate(totals)}") if share is not None else ""
    waited = f"; {duration(totals.waited_seconds)} of waiting for providers" if totals.waited_seconds else ""
    open_ = totals.claims - totals.claims_confirmed - totals.claims_refuted
    parts = (("good", totals.claims_confirmed), ("bad", totals.claims_refuted), ("warn", open_))
    told_claims = f"{totals.claims_confirmed} held, {totals.claims_refuted} refuted, {open_} could not be checked"
    more = ", ".join(
        filter(None, (words.tokens(totals.spending), f"{duration(totals.spending.seconds)} of agents' time"))
    )
    rows = (
        ("missions", f"{totals.missions:,}", escape(words.standing_counts(totals))),
        (
            "first-pass rate",
            f'<span class="with-ring">{arc}<span>{words.percent(totals)}</span></span>',
            f"{totals.first_pass} of {totals.judged} that ended had nothing sent back",
        ),
        ("retries", f"{totals.sent_back:,}", f"of {words.count(totals.attempts, 'attempt')}; {totals.refuted} refuted"),
        ("claims checked", f"{totals.claims:,}", f"{shares(parts, totals.claims, told_claims)}{told_claims}"),
        ("agents cost", escape(words.money(totals.spending)), escape(more)),
        ("time", escape(duration(totals.wall_seconds)), escape(f"at work for {duration(totals.busy_seconds)}{waited}")),
    )
    return tiles(rows)


def _missions(account: RunAccount) -> str:
    """Who ran when, a line each; and beside it what it cost, where that is known."""
    spans = {each.mission: laid_out(each.attempts, each.as_of) for each in account.missions}
    scale = Scale(span for each in spans.values() for span in each)
    dearest = max(each.whole_spending.usd for each in account.missions)
    told_below = {each.mission for each in account.missions[-MOST_SECTIONS:]}
    first, left_out, last = words.ends(account.missions, 5 * words.SHOWN)

    def row(each: MissionAccount) -> str:
        pairs = zip(each.attempts, spans[each.mission], strict=True)
        every = [bar for attempt, span in pairs for bar in bars(attempt, span)]
        return _mission_row(each, scale, every, dearest, linked=each.mission in told_below)

    rows = [row(each) for each in first]
    rows += [skipped(7, f"{left_out:,} missions left out; capsule report --json has them all")] if left_out else []
    rows += [row(each) for each in last]
    heads = (
        ("", "mission"),
        ("", "stands"),
        ("picture", axis(scale)),
        ("", "sent back"),
        ("", "took"),
        ("", "change"),
        ("", "cost"),
    )
    caption = (
        "The oldest first. Each bar is an attempt, in the colour of its verdict; a tall one did not pass. Hatched: "
        "waiting for a provider. Dotted: a long time in which nothing happened, drawn short. Times of day are UTC."
    )
    hidden = len(account.missions) - len(told_below)
    shown = table("times wide", caption, heads, rows)
    other = f"Below, the newest {MOST_SECTIONS} are told in full; of the others: <code>capsule report ID</code>"
    note = f'<p class="soft">{other}</p>' if hidden else ""
    return f'<section class="card"><h2>Missions</h2>{shown}</section>{note}'


def _mission_row(each: MissionAccount, scale: Scale, every: list[Bar], dearest: float, *, linked: bool) -> str:
    spent = each.whole_spending
    words_of_it = f"{each.mission}: {each.where.word}, {len(each.attempts)} attempts, {duration(each.wall_seconds)}"
    name = f"<code>{line(each.mission)}</code>"
    named = f'<a href="#{anchor(each.mission)}">{name}</a>' if linked else name
    price = words.money(spent)
    bar = shares((("money", round(spent.usd * 1e6)),), round(dearest * 1e6), f"{each.mission} cost {price}", 6)
    cost = f"{escape(price)}{bar if spent.priced else ''}"
    change = f"+{each.diff.added:,} −{each.diff.removed:,}" if each.diff.files else ""
    return (
        f'<tr><th scope=row class="full">{named} <bdi>{line(each.title)}</bdi></th><td>{standing(each)}</td>'
        f'<td class="picture">{drawn(scale, every, words_of_it)}</td>'
        f'<td data-label="sent back" class="number">{each.sent_back}</td>'
        f'<td class="number" data-label=took>{escape(duration(each.wall_seconds))}</td>'
        f'<td class="number">{change}</td><td class="number" data-label=cost>{cost}</td></tr>'
    )
