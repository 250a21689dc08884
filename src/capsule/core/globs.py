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
    """Match as `fnmatchcase` does; the simplest globs, which are most of them, need no expression compiled."""
    rest = glob.lstrip("*")
    if rest and not any(sign in rest for sign in "*?["):
        return text.endswith(rest) if rest != glob else text == glob
    return fnmatchcase(text, glob)


def is_test(path: str, globs: Sequence[str]) -> bool:
    """Tell whether one of these globs matches, and none that takes paths out (`!app.py`)."""
    return not taken_out(path, globs) and any(matches(path, glob) for glob in globs if not glob.startswith("!"))


def taken_out(path: str, globs: Sequence[str]) -> bool:
    return any(matches(path, glob[1:]) for glob in globs if glob.startswith("!"))
