"""What things cost, in cents: nothing is lost by rounding."""

from __future__ import annotations

from collections.abc import Iterable


def total(prices: Iterable[int]) -> int:
    """What all of them cost together."""
    return sum(prices)
