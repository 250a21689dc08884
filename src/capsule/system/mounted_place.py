"""Translate paths of a place that the sandbox mounts at another path.

A worktree or a gate lies somewhere of its own; in the sandbox it is mounted over the checkout, so that messages carry
the user's paths, and an environment that names the checkout finds the place. Where bubblewrap has to make a mount point
in it, that is made on disk: an agent's link on the way there would lead it elsewhere, and is therefore not followed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from capsule.core.briefing import SandboxPaths


class MountedPlace(Struct, frozen=True):
    """Paths of a place outside and inside the sandbox; `at` is '' where everything keeps its own path."""

    place: str = ""
    at: str = ""
    given: tuple[str, str] = ("", "")
    """Both as they were given, perhaps by way of a link."""

    @classmethod
    def of(cls, sandbox_paths: SandboxPaths) -> MountedPlace:
        place, at = (os.path.realpath(path) if path else "" for path in (sandbox_paths.place, sandbox_paths.at))
        return cls(place, at if place else "", (sandbox_paths.place, sandbox_paths.at))

    def inside(self, path: str) -> str:
        """Return the name inside of a path in the place; anything else keeps its own."""
        tops = (self.place, self.given[0]) if self.at and path.startswith("/") else ()
        return next((moved(path, top, self.at) for top in tops if is_below(path, [top])), path)

    def name(self, path: str) -> str:
        """Resolve the links in a path inside that may lead to the checkout."""
        tops = (self.at, self.given[1]) if self.at else ()
        real = os.path.realpath(path) if os.path.lexists(path) else os.path.normpath(path)
        return next((moved(path, top, self.at) for top in tops if is_below(path, [top])), real)

    def behind(self, path: str) -> str:
        """Return the path outside of a path inside; '' where that is not in the place."""
        at = self.at or self.place
        return moved(path, at, self.place) if at and is_below(path, [at]) else ""

    def covers(self, path: str) -> bool:
        """Tell whether only what is mounted on purpose may be seen there."""
        return bool(self.at) and is_below(path, [self.at, self.place])

    def lacks(self, path: str, sandbox_paths: SandboxPaths) -> bool:
        """Tell whether it must be opened to be seen: neither the place nor a layer over it has such a thing."""
        layers = [inside for inside, _ in sandbox_paths.layers]
        there = is_below(path, [self.place, *layers]) or os.path.lexists(self.behind(path))
        return not (self.covers(path) and there)

    def has_room_for(self, folder: str) -> bool:
        """Tell whether there is a folder or nothing behind it, and no link on the way."""
        behind = self.behind(folder)
        parts = Path(behind).relative_to(self.place).parts if behind else ()
        ways = (Path(self.place, *parts[:length]) for length in range(1, len(parts) + 1))
        return all(way.is_dir() and not way.is_symlink() for way in ways if os.path.lexists(way))

    @contextmanager
    def mount_points_removed(self, paths: Iterable[str]) -> Iterator[None]:
        """Remove mount points that were made in the place and are still empty.

        `paths` are those where something else than the place's own is seen: an empty folder there is one that a command
        left whose runner was killed.
        """
        missing: set[Path] = set()
        for path in filter(None, map(self.behind, paths)):
            ways = [way for way in (Path(path), *Path(path).parents) if way.is_relative_to(self.place)][:-1]
            if Path(path).is_dir():
                self._remove_empty(ways)
            missing.update(way for way in ways if not os.path.lexists(way))
        try:
            yield
        finally:
            self._remove_empty(missing)

    def _remove_empty(self, ways: Iterable[Path]) -> None:
        for way in sorted(ways, reverse=True):
            with contextlib.suppress(OSError):
                if not is_below(os.path.realpath(way.parent), [self.place]):
                    continue  # by a link that was put on the way meanwhile
                if way.is_dir():
                    way.rmdir()
                elif not way.is_symlink() and not way.stat().st_size:
                    way.unlink()


def at_its_own_path(sandbox_paths: SandboxPaths) -> SandboxPaths:
    """Leave the place where it is: show in the place itself what was to be seen at the checkout's path."""
    if not (sandbox_paths.place and sandbox_paths.at):
        return sandbox_paths

    def in_place(path: str) -> str:
        return moved(path, sandbox_paths.at, sandbox_paths.place) if is_below(path, [sandbox_paths.at]) else path

    def all_of(pairs: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple((in_place(path), source) for path, source in pairs)

    stand_ins, shown, layers = (
        all_of(sandbox_paths.stand_ins),
        all_of(sandbox_paths.shown),
        all_of(sandbox_paths.layers),
    )
    return replace(sandbox_paths, at="", stand_ins=stand_ins, shown=shown, layers=layers)


def is_below(path: str, tops: Iterable[str]) -> bool:
    return any(path == top or (top and path.startswith(f"{top}/")) or _is_below(path, top) for top in tops)


def _is_below(path: str, top: str) -> bool:
    """Looks closer where a path may be written in several ways."""
    plain = not any(odd in f"{each}/" for odd in ("//", "/./") for each in (path, top)) and top not in ("", ".")
    return not plain and Path(path).is_relative_to(top)


def moved(path: str, top: str, new_top: str) -> str:
    """Return the same path below another folder."""
    rest = path[len(top) :].lstrip("/") if path.startswith(f"{top}/") else Path(path).relative_to(top)
    return os.path.normpath(Path(new_top, rest))
