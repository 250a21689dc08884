"""Run agents and the project's own commands in `sandbox-exec` of macOS: bubblewrap's rules, without mounts.

This was never run on a Mac; see `seatbelt`. Nothing can be shown at another path, so a place keeps its own, installed
dependencies are copied into it, and the checkout around it is hidden (`SandboxPaths.hidden`).

In the stead of the home and of the folder for temporary files a command gets folders of its own, by `HOME` and
`TMPDIR`. They are empty, gone with the command, and hold links to what is opened of the real ones.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from capsule.core.briefing import SandboxPaths
from capsule.system.layers import Mount, MountedLayers, own_folder
from capsule.system.sandbox import (
    MountedPlace,
    Sandbox,
    in_order,
    is_below,
    program_of,
    resolved,
    shared_temporaries,
)
from capsule.system.seatbelt import profile

_BEGIN = 'export HOME="$1" TMPDIR="$2"; shift 2; {unset}exec "$@"'
_GETPATH = getattr(fcntl, "F_GETPATH", None)
_LONGEST_PATH = 1024


class SandboxExec(Sandbox, frozen=True, dict=True):
    @contextmanager
    def around(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path,
        env: Mapping[str, str],
        sandbox_paths: SandboxPaths,
        home: Sequence[str] = (),
        readable: Sequence[str] = (),
        copy_layers: bool = False,  # noqa: ARG002 (the place has copies already)
    ) -> Iterator[tuple[str, ...]]:
        program = program_of(argv, cwd, env)
        if program is None:
            yield tuple(argv)
            return
        with own_folder() as folder:
            own = self._own_folders(folder, env)
            hidden = resolved(sandbox_paths.hidden)
            named = (*readable, program) if is_below(program, hidden) else readable
            opened = self._opened_mounts({**env, **own}, home, named)
            view = MountedPlace.of(sandbox_paths)
            base = self._base_mounts(program, env, view, opened)
            gone = [*hidden, *(path for path in resolved(shared_temporaries()) if path != "/")]
            seen = base | {path: Mount("--tmpfs") for path in gone} | opened
            self._link_into(own["HOME"], folder, seen)
            lowers = tuple(os.path.realpath(lower) for _, lower in sandbox_paths.layers)
            layers = MountedLayers({lower: Mount("--ro-bind", lower) for lower in lowers}, folder=folder)
            paths = replace(sandbox_paths, layers=tuple((lower, lower) for lower in lowers))
            table = _by_real_path(seen) | _by_real_path(self._ground_mounts(paths, view, layers))
            sockets = [_as_stored(path) for path in resolved(name for name in self.daemons if "/" in name)]
            file = Path(folder, "profile")
            file.write_bytes(os.fsencode(profile(in_order(table), network=self.network, sockets=sockets)))
            gone_variables = self._daemons_hidden(env)
            begin = _BEGIN.format(unset=f"unset {' '.join(gone_variables)}; " if gone_variables else "")
            first = ("/bin/sh", "-c", begin, "sh", own["HOME"], own["TMPDIR"])
            yield (self.level.program, "-f", str(file), *first, program, *argv[1:])

    def _own_folders(self, folder: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return the home and the folder for temporary files: new ones, unless they were made for this command."""
        own = {}
        for name, everybodys in (("HOME", self.homes), ("TMPDIR", shared_temporaries())):
            given = [path for path in resolved([env.get(name, "")]) if path not in ("/", *resolved(everybodys))]
            own[name] = env[name] if given else str(Path(folder, name.lower()))
            if not given:
                Path(own[name]).mkdir(mode=0o700)
        return own

    def _link_into(self, home: str, folder: str, seen: Mapping[str, Mount]) -> None:
        """Make links in a new home to all that is opened of the real one."""
        if not is_below(home, [folder]):
            return
        tops = [*self.homes[:1], *resolved(self.homes[:1])]
        for path, mount in sorted(seen.items()):
            top = next((top for top in tops if is_below(path, [top]) and path != top), "")
            if not (top and mount.source) or is_below(path, [folder]):
                continue
            link = Path(home, Path(path).relative_to(top))
            linked = [way for way in (link, *link.parents) if way.is_relative_to(home) and os.path.lexists(way)]
            if not linked[0].is_symlink() and linked[0] != link:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(mount.source)


def _by_real_path(table: Mapping[str, Mount]) -> dict[str, Mount]:
    """Return the table by the paths that the kernel knows: without links, each letter in the case it is stored in."""
    rows = ((_as_stored(mount.source or path), mount.how) for path, mount in table.items())
    return {path: Mount(how, "" if how == "--tmpfs" else path) for path, how in rows}


def _as_stored(path: str) -> str:
    """Return a path as the file system spells it, where the system can be asked."""
    if _GETPATH is None:
        return path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return path
    try:
        return os.fsdecode(fcntl.fcntl(fd, _GETPATH, bytes(_LONGEST_PATH)).rstrip(b"\0"))
    finally:
        os.close(fd)
