"""Read and compare stamps."""

from __future__ import annotations

from datetime import UTC, datetime

_MINUTE = 60
_WEEK = 7


def moment(stamp: str) -> float:
    """Return a stamp as seconds since the epoch; one that cannot be read counts as the epoch."""
    try:
        read = datetime.fromisoformat(stamp)
    except ValueError:
        return 0.0
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def stamp_after(stamp: str, seconds: float) -> str:
    """Return the stamp of so many seconds later."""
    return datetime.fromtimestamp(moment(stamp) + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_time(stamp: str, later: float = 0.0) -> str:
    """Return the local time so many seconds after the stamp, with the date if it is another day."""
    begin, end = (datetime.fromtimestamp(moment(stamp) + seconds) for seconds in (0.0, later))
    days = (end.date() - begin.date()).days
    day = "" if not days else f"{end:%a} " if days < _WEEK else f"{end:%-d %b}, "
    return day + (f"{end:%H:%M:%S}" if later < _MINUTE else f"{end:%H:%M}")


def seconds_between(earlier: str, later: str) -> float:
    """Return the seconds from one stamp to another; 0 if one is missing, or the clock went backwards."""
    return max(0.0, moment(later) - moment(earlier)) if earlier and later else 0.0
