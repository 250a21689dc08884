"""Keep other users from writing to our files, even if the user's umask allows it.

Logs, the journal, worklogs and results are what a mission is judged and resumed by. So the umask of our own process
takes the right to write from everybody but the user. Programs that we start for the user (agents, tests, git where it
writes to a checkout) get the umask back that we were started with.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

_NOT_FOR_OTHERS = 0o022
_started_with: int | None = None


@contextmanager
def own_files_closed_to_others() -> Iterator[None]:
    """Set our umask for as long as a command of ours takes."""
    global _started_with  # noqa: PLW0603 (as global as the umask itself)
    outer, _started_with = _started_with, os.umask(0o077)
    os.umask(_started_with | _NOT_FOR_OTHERS)
    try:
        yield
    finally:
        os.umask(_started_with)
        _started_with = outer


def of_the_user() -> int:
    """Return the umask that we were started with, as `subprocess` wants it: -1 if ours is the same."""
    return -1 if _started_with is None else _started_with


def mode_for_the_user(mode: int) -> int:
    """Return the mode of a file or folder made in the user's checkout, by the user's own umask."""
    if _started_with is None:
        current = os.umask(0o077)
        os.umask(current)
        return mode & ~current
    return mode & ~_started_with
