"""Draw changes: the files and their diff."""

from __future__ import annotations

from textual.content import Content

from capsule.actions import Details
from capsule.reports.style import printable
from capsule.reports.table import fit
from capsule.tui.drawing import BAD, BUSY, FAINT, GOOD, STRONG, text

_MOST_LINES = 4000
_DIFF_STYLES = {"+++": STRONG, "---": STRONG, "@@": BUSY, "diff": STRONG, "+": GOOD, "-": BAD}
"""By the beginning of a line, in order."""


def diff_lines(details: Details, width: int, *, most: int = 0) -> list[Content]:
    """Draw the changed files, and how they changed; `most` lines of that, where it is more than nothing."""
    if not details.diff and not details.changes:
        return [text("No changes yet.", FAINT)]
    shown = [*(text(fit(line, width)) for line in last_lines(details.changes)), Content("")]
    for line in last_lines(details.diff)[: most or None]:
        style = next((style for start, style in _DIFF_STYLES.items() if line.startswith(start)), "")
        shown.append(text(fit(line, width), style))
    return shown


def last_lines(words: str) -> list[str]:
    """Keep the last lines where there are too many, because the newest are at the end."""
    lines = [line.expandtabs(4).rstrip() for line in printable(words).splitlines()]
    return lines if len(lines) <= _MOST_LINES else ["…", *lines[-_MOST_LINES:]]
