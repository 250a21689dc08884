"""Match paths with globs, as settings and workflows write them."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


def matches(path: str, glob: str) -> bool:
    """Match a glob: without a slash the name, with one the whole path (`**/` also matches nothing).

    A slash in front anchors it at the top: `/check.sh` is that one file.
    """
    if "/" not in glob:
        return _fits(path.rpartition("/")[2], glob)
    if glob.startswith("/"):
        return _fits(path, glob[1:])
    if glob.startswith("**/") and _fits(path, glob[3:]):
        return True
    return _fits(path, glob)


def _fits(text: str, glob: str) -> bool:
    """Match as `fnmatchcase` does; globs with stars only, which are most of them, need no expression compiled."""
    if "?" in glob or "[" in glob:
        return fnmatchcase(text, glob)
    first, *parts = glob.split("*")
    if not parts:
        return text == glob
    last, at = parts.pop(), len(first)
    end = len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in parts:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def is_test(path: str, globs: Sequence[str]) -> bool:
    """Tell whether one of these globs matches, and none that takes paths out (`!app.py`)."""
    return not taken_out(path, globs) and any(matches(path, glob) for glob in globs if not glob.startswith("!"))


def taken_out(path: str, globs: Sequence[str]) -> bool:
    return any(matches(path, glob[1:]) for glob in globs if glob.startswith("!"))
