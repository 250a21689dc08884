"""Stamps are data: read in one place, whoever sets them beside each other."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE = 60
_WEEK = 7


def moment(stamp: str) -> float:
    """As seconds since the epoch; one that cannot be read is the beginning of time."""
    try:
        read = datetime.fromisoformat(stamp)
    except ValueError:
        return 0.0
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def clock_time(stamp: str, later: float = 0.0) -> str:
    """The local time of day so many seconds after the stamp, with the day where that is another one."""
    begin, end = (datetime.fromtimestamp(moment(stamp) + seconds) for seconds in (0.0, later))
    days = (end.date() - begin.date()).days
    day = "" if not days else f"{end:%a} " if days < _WEEK else f"{end:%-d %b}, "
    return day + (f"{end:%H:%M:%S}" if later < _MINUTE else f"{end:%H:%M}")


def seconds_between(earlier: str, later: str) -> float:
    """None at all where one of the two is missing; clocks that went backwards make nothing negative."""
    return max(0.0, moment(later) - moment(earlier)) if earlier and later else 0.0
