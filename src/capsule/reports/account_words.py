"""Words and signs that every form of a report has in common, so that the page and the text say the same."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from capsule.core.account import INTERRUPTED, UNDER_WAY, AttemptAccount, Diff, MissionAccount, Round, Where
from capsule.core.board import MARKS, Mark
from capsule.core.budget import Spending, duration, in_words, price
from capsule.core.evidence import Evidence, EvidenceStatus
from capsule.core.run_account import RunAccount, Totals
from capsule.core.stamps import moment
from capsule.core.standpoint import DELIVERED, SUCCESSES, Word, let_pass
from capsule.reports.style import clean

Row = TypeVar("Row")

SHOWN = 40
"""Of a long list, so many rows from either end are shown."""


class Look(NamedTuple):
    """A colour's name, and the sign that says the same to those who see none."""

    name: str
    sign: str


GOOD, BAD, WARN, QUIET, LIVE = "good", "bad", "warn", "quiet", "live"
VERDICTS = {
    "PASS": Look(GOOD, Mark.DONE),
    "MORE": Look(GOOD, Mark.DONE),
    "SKIPPED": Look(QUIET, Mark.SKIPPED),
    "NEEDS_WORK": Look(WARN, Mark.AGAIN),
    "BLOCKED": Look(WARN, Mark.HALTED),
    "REFUTED": Look(BAD, "✗"),
    "FAILED": Look(BAD, "!"),
    "ERROR": Look(BAD, "!"),
    INTERRUPTED: Look(QUIET, Mark.INTERRUPTED),
    UNDER_WAY: Look(LIVE, Mark.NOW),
}
STANDINGS = {
    EvidenceStatus.CONFIRMED: Look(GOOD, "✓"),
    EvidenceStatus.REFUTED: Look(BAD, "✗"),
    EvidenceStatus.UNVERIFIED: Look(WARN, "?"),
}
WORDS: dict[str, str] = {
    Word.MERGED: GOOD,
    Word.DONE: GOOD,
    Word.PARKED: WARN,
    Word.STOPPED: BAD,
    Word.INTERRUPTED: WARN,
    Word.RUNNING: LIVE,
}
"""Their colours; every other is quiet."""
ELSE = Look(QUIET, "·")
UNCHECKED, LET_PASS = "unchecked", "though refuted"
CAVEATS = {UNCHECKED: QUIET, LET_PASS: WARN}
NOTHING_YET = "There is no mission to tell of."
HOW_TO_BEGIN = "capsule run ID"
CHECKED_BY_US = "checked by Capsule"
SAID_BY_AGENTS = "said by the agent"


def stands(where: Where) -> Look:
    """What was delivered is green where it was checked."""
    colour, mark = WORDS.get(where.word, ELSE.name), MARKS.get(where.word, ELSE.sign)
    return Look(WARN if where.unverified and where.word in DELIVERED else colour, mark)


def outcome_of(attempt: AttemptAccount) -> str:
    return attempt.verdict or attempt.how


def look_of(attempt: AttemptAccount) -> Look:
    """Green is only what was checked: a success that nobody looked at is no better than a word."""
    look = VERDICTS.get(outcome_of(attempt), ELSE)
    return look._replace(name=CAVEATS[caveat(attempt)]) if caveat(attempt) else look


def caveat(attempt: AttemptAccount) -> str:
    """Why a success is to be taken with a pinch of salt; '' where it was checked, and held."""
    if let_pass(attempt.verdict, attempt.evidence):
        return LET_PASS
    confirmed = any(piece.standing is EvidenceStatus.CONFIRMED for piece in attempt.evidence)
    to_be_checked = attempt.verdict in SUCCESSES and (attempt.agent or attempt.evidence)
    return UNCHECKED if to_be_checked and not confirmed else ""


def said(attempt: AttemptAccount) -> str:
    """What the agent claimed; nothing where Capsule itself was at work, or nobody has spoken yet."""
    if not attempt.claimed or not attempt.agent:
        return ""
    return "nothing that could be read" if attempt.spoken_for else attempt.claimed


def when(stamp: str) -> str:
    """`16 Nov 2026, 13:08:12`."""
    return f"{datetime.fromtimestamp(moment(stamp), UTC):%-d %b %Y, %H:%M:%S}" if stamp else ""


def took(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration(seconds)


def cost_of(attempt: AttemptAccount) -> str:
    """'' where nobody was paid, or is at it still; unknown is never zero."""
    return (price(attempt.usage) or "unknown") if attempt.agent and attempt.how != UNDER_WAY else ""


def money(spent: Spending) -> str:
    """`$0.12`, `at least $0.12`, `unknown`, or a dash where no agent was paid."""
    if not spent.runs:
        return "–"
    if not spent.priced:
        return "unknown"
    amount = f"${spent.usd:,.2f}" if spent.usd >= 0.01 or not spent.usd else f"${spent.usd:.4f}"
    return amount if spent.priced == spent.runs else f"at least {amount}"


def tokens(spent: Spending) -> str:
    if not spent.counted:
        return "tokens unknown" if spent.runs else ""
    return f"{'' if spent.counted == spent.runs else 'at least '}{spent.tokens:,} tokens"


def spent_words(spent: Spending) -> str:
    return in_words(spent) if spent.runs else "no agent was started"


def agents_used(spent: Spending) -> str:
    """`agents used $0.12, 900 tokens, 3 s`, and what is unknown only after a colon: nobody uses an unknown."""
    return f"agents used{'' if spent.priced else ':'} {in_words(spent)}"


def percent(totals: Totals) -> str:
    """`67 %`; a dash where nothing has come to an end."""
    share = totals.first_pass_rate
    return "–" if share is None else f"{100 * share:.0f} %"


def rate(totals: Totals) -> str:
    """`67 % (2 of 3)`."""
    return f"{percent(totals)} ({totals.first_pass} of {totals.judged})" if totals.judged else percent(totals)


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def standing_counts(totals: Totals) -> str:
    """`2 merged or done, 1 parked`."""
    kinds = {
        "merged or done": totals.delivered,
        "parked": totals.parked,
        "stopped": totals.stopped,
        "abandoned": totals.abandoned,
        "closed as not needed": totals.closed,
        "not at an end": totals.under_way,
    }
    return ", ".join(f"{number} {word}" for word, number in kinds.items() if number)


def time_words(account: MissionAccount) -> str:
    """`12 s; at work for 9.7 s; 3 s of waiting for the provider`."""
    waited = account.waited_seconds
    pause = f"; {duration(waited)} of waiting for the provider" if waited else ""
    return f"{duration(account.wall_seconds)}; at work for {duration(account.busy_seconds)}{pause}"


def period(account: MissionAccount) -> str:
    until = when(account.ended) if account.ended else f"now ({when(account.as_of)})"
    return f"{when(account.began)} to {until}, UTC"


def change_words(diff: Diff) -> str:
    return f"+{diff.added:,} −{diff.removed:,} in {count(len(diff.files), 'file')}" if diff.files else ""


def origin(each: Round) -> str:
    """Who sent it back: `execute-review, attempt 1 (claude): said by the agent`."""
    if not each.by:
        return "a person, who let it go on"
    agent = f" ({clean(each.agent)})" if each.agent and not each.seen else ""
    return f"{clean(each.by)}, attempt {each.attempt}{agent}: {CHECKED_BY_US if each.seen else SAID_BY_AGENTS}"


def ends(rows: Sequence[Row], shown: int = SHOWN) -> tuple[Sequence[Row], int, Sequence[Row]]:
    """A long list's beginning, how many are left out, and its end."""
    left_out = len(rows) - 2 * shown
    return (rows, 0, ()) if left_out <= 1 else (rows[:shown], left_out, rows[-shown:])


def proof(piece: Evidence, most: int = 12) -> str:
    """The end of what was seen, where it speaks against the claim."""
    if piece.standing is not EvidenceStatus.REFUTED:
        return ""
    return "\n".join(piece.detail.strip().splitlines()[-most:])


def heading(account: RunAccount) -> str:
    if len(account.missions) == 1 and not account.run:
        only = account.missions[0]
        return f"{only.mission}: {only.title}"
    return account.title
