"""Stamps are data: read in one place, whoever sets them beside each other."""

from __future__ import annotations

from datetime import UTC, datetime


def moment(stamp: str) -> float:
    """As seconds since the epoch; one that cannot be read is the beginning of time."""
    try:
        read = datetime.fromisoformat(stamp)
    except ValueError:
        return 0.0
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def seconds_between(earlier: str, later: str) -> float:
    """None at all where one of the two is missing; clocks that went backwards make nothing negative."""
    return max(0.0, moment(later) - moment(earlier)) if earlier and later else 0.0
