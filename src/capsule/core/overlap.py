"""Find items that are likely to touch the same files as a running mission.

A mission touches what its steps have changed. Until that is more than tests, the files that its item and its plans name
count as well. A folder ends in a slash, and stands for everything below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from msgspec import Struct

from capsule.core.event import Event, MissionStarted, StepEnded
from capsule.core.text import one_line, shortened

_WORD = r"(`?)([^\s`'\"<>|,;(){}*]+)(`?)"
_MOST_ALIKE = 100
"""A name that more paths share is ignored, unless it is the whole path."""
_DEEPEST = 64
_LONGEST_SHOWN = 120


class PathIndex:
    """The files and folders of a repository, found by their path or by the end of it."""

    def __init__(self, files: Iterable[str]) -> None:
        known = list(files)
        self._paths = {*known, *(folder for path in known for folder in _folders(path))}
        self._by_name: dict[str, list[str]] = {}
        for path in self._paths:
            self._by_name.setdefault(_name(path), []).append(path)

    def find(self, words: str) -> str:
        """Return the path with this spelling, else the only one that ends so; '' if there is none, or several."""
        if words in self._paths:
            return words
        alike = self._by_name.get(_name(words), ())
        if len(alike) > _MOST_ALIKE:
            return ""
        found = [path for path in alike if path.endswith(f"/{words}")]
        return found[0] if len(found) == 1 else ""


def named_paths(text: str, known: PathIndex) -> frozenset[str]:
    """Return the files and folders that a text names. A word without dot or slash is a name only in backticks."""
    found = set[str]()
    for opening, word, closing in set(re.findall(_WORD, text)):
        bare = word.partition(":")[0].partition("#")[0].removeprefix("./").lstrip("[@").rstrip(".!?]")
        found.update(
            known.find(spelled) for spelled in (word, bare) if "/" in spelled or "." in spelled or (opening and closing)
        )
    return frozenset(found - {""})


def changed_files(events: Iterable[Event]) -> frozenset[str]:
    """Return the files that the steps of a mission have changed since it was started."""
    found = set[str]()
    for event in events:
        if isinstance(event, MissionStarted):
            found.clear()
        elif isinstance(event, StepEnded):
            found.update(event.outcome.files)
    return frozenset(found)


class Footprint(Struct, frozen=True):
    """The files that a mission has changed, and others that it is likely to touch."""

    changed: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()


def likely_overlaps(candidates: Mapping[str, Footprint], under_way: Mapping[str, Footprint]) -> dict[str, str]:
    """Return each candidate that is likely to conflict with a running mission, with the file and the mission."""
    missions, below = dict[str, tuple[str, bool]](), dict[str, str]()
    for changing in (True, False):
        for mission, theirs in under_way.items():
            for path in sorted(theirs.changed if changing else theirs.named):
                missions.setdefault(path, (mission, changing))
                for folder in _folders(path):
                    below.setdefault(folder, path)
    found = {}
    for candidate, mine in candidates.items():
        shared = dict[str, tuple[str, bool]]()
        for path in sorted(mine.changed | mine.named):
            theirs_too = next((each for each in (path, *_folders(path)) if each in missions), below.get(path, ""))
            if theirs_too:
                shared[max(path, theirs_too, key=len)] = missions[theirs_too]
        if shared:
            found[candidate] = _in_words(shared)
    return found


def _in_words(shared: Mapping[str, tuple[str, bool]]) -> str:
    """Name one shared file, preferably one that is being changed, and the mission that shares it."""
    path = min(shared, key=lambda path: (not shared[path][1], path))
    mission, changing = shared[path]
    whose = f"which {mission} is changing" if changing else f"as {mission} is"
    more = f" (and {len(shared) - 1} more)" if len(shared) > 1 else ""
    return f"likely to touch {shortened(one_line(path), _LONGEST_SHOWN)}, {whose}{more}"


def _name(path: str) -> str:
    """Return the last name of a path, that of a folder with its slash."""
    return path[path.rfind("/", 0, -1) + 1 :]


def _folders(path: str) -> Iterator[str]:
    """Yield the folders above a path, the topmost first."""
    return (path[: slash.end()] for slash in islice(re.finditer("/(?=.)", path, re.DOTALL), _DEEPEST))
