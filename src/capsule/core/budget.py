"""Add up what agents used, and compare it with their limits: money, tokens and time.

Not every CLI reports its cost, and one that was killed reports less. Such runs are counted apart: a sum with some of
them in it is a lower bound, a sum of nothing else is unknown, and neither is ever shown as zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from capsule.core.event import Allowance, Usage
from capsule.core.text import count

UNLIMITED = Allowance()


class Budget(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: Allowance = Allowance()
    mission: Allowance = Allowance()
    run: Allowance = Allowance()


NO_BUDGET = Budget()


class Spending(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sum of what some runs of agents used, as far as it is known."""

    runs: int = 0
    usd: float = 0.0
    priced: int = 0
    """How many of the runs reported their cost."""
    tokens: int = 0
    counted: int = 0
    """How many of the runs reported their tokens."""
    seconds: float = 0.0

    def plus(self, usage: Usage | None) -> Spending:
        """Add one run; one whose end was never reported counts as unknown."""
        usage = usage or Usage()
        known = [count for count in (usage.tokens_in, usage.tokens_out) if count is not None]
        return Spending(
            runs=self.runs + 1,
            usd=self.usd + (usage.usd or 0.0),
            priced=self.priced + (usage.usd is not None),
            tokens=self.tokens + sum(known),
            counted=self.counted + bool(known),
            seconds=self.seconds + (usage.seconds or 0.0),
        )

    def __add__(self, other: Spending) -> Spending:
        return Spending(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))


def total(parts: Iterable[Spending]) -> Spending:
    return sum(parts, Spending())


def overdrawn(spent: Spending, allowed: Allowance) -> str:
    """Return the limits that are used up, in words; '' if there are none."""
    if allowed.usd is not None and spent.usd >= allowed.usd:
        return f"{_usd(spent.usd)} of {_usd(allowed.usd)}"
    if allowed.tokens is not None and spent.tokens >= allowed.tokens:
        return f"{spent.tokens:,} of {allowed.tokens:,} tokens"
    if allowed.seconds is not None and spent.seconds >= allowed.seconds:
        return f"{duration(spent.seconds)} of {duration(allowed.seconds)}"
    return ""


def left(spent: Spending, allowed: Allowance) -> Allowance:
    """Return what may still be used."""
    return Allowance(
        usd=None if allowed.usd is None else max(0.0, allowed.usd - spent.usd),
        tokens=None if allowed.tokens is None else max(0, allowed.tokens - spent.tokens),
        seconds=None if allowed.seconds is None else max(0.0, allowed.seconds - spent.seconds),
    )


def least(*amounts: float | None) -> float | None:
    """Return the tightest of several limits."""
    return min((amount for amount in amounts if amount is not None), default=None)


def limits_in_words(allowed: Allowance) -> str:
    """Describe a limit as `$10.00, 1,000,000 tokens, 2 h`; '' if there is none."""
    usd = _usd(allowed.usd) if allowed.usd is not None else ""
    tokens = f"{allowed.tokens:,} tokens" if allowed.tokens is not None else ""
    return ", ".join(filter(None, (usd, tokens, duration(allowed.seconds) if allowed.seconds is not None else "")))


def in_words(spent: Spending) -> str:
    """Describe spending as `$0.12, 12,300 tokens, 3 min 2 s`; unreported parts are called unknown."""
    money = _lower_bound(spent, spent.priced, _usd(spent.usd)) or "cost unknown"
    tokens = _lower_bound(spent, spent.counted, f"{spent.tokens:,} tokens") or "tokens unknown"
    return f"{money}, {tokens}, {duration(spent.seconds)}" if spent.runs else "nothing"


def cost_so_far(missions: Sequence[Spending]) -> str:
    """Describe the cost of the finished missions of one kind; unknown if none is finished or none reported."""
    if not missions:
        return "unknown (none is done yet)"
    spent, number = total(missions), len(missions)
    known = spent.priced == spent.runs and spent.runs and number > 1
    each = f" ({_usd(spent.usd / number)} each on average)" if known else ""
    return f"{count(number, 'mission')} done for {in_words(spent)}{each}"


def price(usage: Usage | None) -> str:
    """Describe the reported cost of one run: `$0.12, 12,300 tokens`."""
    spent = Spending().plus(usage)
    known = [_usd(spent.usd)] if spent.priced else []
    return ", ".join(known + ([f"{spent.tokens:,} tokens"] if spent.counted else []))


def as_facts(spent: Spending) -> dict[str, float | None]:
    """Return numbers for programs; None is unknown, and unreported runs make the sum a lower bound."""
    return {
        "runs": spent.runs,
        "usd": round(spent.usd, 6) if spent.priced or not spent.runs else None,
        "without_usd": spent.runs - spent.priced,
        "tokens": spent.tokens if spent.counted or not spent.runs else None,
        "without_tokens": spent.runs - spent.counted,
        "seconds": round(spent.seconds, 3),
    }


def _lower_bound(spent: Spending, known: int, amount: str) -> str:
    if not known:
        return ""
    return amount if known == spent.runs else f"at least {amount}"


def _usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 0.01 or not amount else f"${amount:.4f}"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min {rest} s"
