"""The project's worklog, one file a month: write an entry, and read the entries of archived items."""

from __future__ import annotations

import re
from collections.abc import Iterator

from capsule.core.assignment import LogEntry
from capsule.core.item import Item
from capsule.core.text import one_line

COMPLETED, CLOSED = "Completed", "Closed"
_ARCHIVED = rf"(?m)^## ([^|\n]+) \| ([^|\n]+) \| [^|\n]+ \| ({COMPLETED}|{CLOSED})\n\n\*\*(.*)\*\*$(?:\n\n(.*)$)?"


def log_entry(item: Item, at: str, phase: str, outcome: str, summary: str) -> LogEntry:
    """Return the worklog's paragraph: time, item, phase, outcome, title and summary."""
    return LogEntry(
        at[:7],
        f"## {_stamped(at)} | {item.id} | {phase} | {outcome}\n\n**{one_line(item.title)}**\n\n{one_line(summary)}\n",
    )


def _stamped(at: str) -> str:
    return at.replace("T", " ").replace("Z", " UTC")


def archived_titles(worklog: str) -> Iterator[tuple[str, str]]:
    """Return id and title of the items that a month's worklog says have left the backlog."""
    return ((found[2], found[4]) for found in re.finditer(_ARCHIVED, worklog))


def archived(worklog: str) -> Iterator[tuple[str, str, str]]:
    """Yield id and title of what a month's worklog says has left the backlog, and why it was closed; '' if done."""
    for found in re.finditer(_ARCHIVED, worklog):
        yield found[2], found[4], (found[5] or "no reason was given") if found[3] == CLOSED else ""


def done_since(worklog: str, at: str) -> Iterator[tuple[str, str]]:
    """Yield id and title of what a month's worklog says was completed since then."""
    since = _stamped(at)
    for found in re.finditer(_ARCHIVED, worklog):
        if found[3] == COMPLETED and found[1] >= since:
            yield found[2], found[4]


def same_title(title: str) -> str:
    """Normalize a title to compare it: letters and digits, in any case."""
    return " ".join(re.findall(r"\w+", title.casefold()))
