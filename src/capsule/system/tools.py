"""Find programs that people install in their homes, for a sandbox that hides the rest of it.

By allow-list: what a search path names, with the libraries beside it and what its links lead to, and the folders of
well-known version managers. Folders that also hold credentials are named by their harmless parts only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_MANAGERS = (
    *(".cargo/bin", ".cargo/registry", ".cargo/git", ".cargo/env", ".cargo/config.toml", ".rustup"),
    *(".nvm", ".volta", ".bun/bin", ".bun/install", ".deno/bin", ".pyenv", ".rbenv", ".asdf", ".sdkman", "go"),
    *(".local/bin", ".local/lib", ".local/share/uv/python", ".local/share/mise", ".local/share/fnm"),
    *(".local/share/pnpm", ".local/share/claude"),
)
_GIT = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")
_REGISTRIES = (
    *(".gradle/daemon", ".kotlin/daemon", ".m2/mvnd/registry", ".cache/bazel/*/*/server", ".sbt/*/server"),
    *(".bloop", ".local/share/scalacli/bloop", ".buck/buckd", ".local/state/watchman"),
)
"""Where build tools look for a server that runs already: outside, and on other files under the same path."""
_BESIDE_BIN = ("lib", "lib64", "libexec", "include", "pyvenv.cfg")
_OF_THE_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
"""Kept by a package manager, which links to nobody's home."""
_MOST_FOLDERS = 200
"""Of programs: more than any search path has; a loop of links ends somewhere."""


@cache
def needed(
    path: str, program: str, homes: tuple[str, ...], hidden: tuple[str, ...], prefixes: tuple[str, ...]
) -> tuple[str, ...]:
    """Return everything in hidden folders that programs on a search path, and this one, need."""
    entries = [Path(entry) for entry in path.split(os.pathsep) if os.path.isabs(entry)]  # noqa: PTH117 (a str)
    bins = [*entries, *(Path(prefix, "bin") for prefix in prefixes)]
    named = (Path(home, name) for home in homes for name in (*_MANAGERS, *_GIT))
    alone = [Path(program), *_with_its_own([program])] if program else []
    found = dict.fromkeys((*named, *alone, *_installed([*bins, *alone], hidden)))
    # Leave out what lies in a folder that is there anyway.
    kept: list[str] = []
    for name in sorted(str(file) for file in found if _is_below(file, hidden) and os.access(file, os.R_OK)):
        if not (kept and name.startswith(f"{kept[-1]}/")):
            kept.append(name)
    return tuple(kept)


def registries(homes: Sequence[str], env: Mapping[str, str], opened: Iterable[str]) -> list[str]:
    """Return folders by which build tools find their daemons, in what a sandbox opens."""
    tops = tuple(opened)
    named = [folder for home in homes for pattern in _REGISTRIES for folder in Path(home).glob(pattern)] if tops else []
    found = [str(folder) for folder in named if any(folder.is_relative_to(top) for top in tops)]
    elsewhere = Path(env.get("GRADLE_USER_HOME", ""), "daemon")
    found += [str(elsewhere)] if elsewhere.is_absolute() else []
    return [os.path.realpath(folder) for folder in found if Path(folder).is_dir()]


def _installed(bins: Sequence[Path], hidden: tuple[str, ...]) -> Iterator[Path]:
    """Yield folders of programs, the libraries beside them, and the same for whatever their links lead to."""
    waiting = [folder for folder in bins if os.access(folder, os.R_OK) and folder.is_dir()]
    seen: set[Path] = set()
    while waiting and len(seen) < _MOST_FOLDERS:
        folder = waiting.pop()
        if folder in seen or str(folder) in _OF_THE_SYSTEM:
            continue
        seen.add(folder)
        yield folder
        if folder.name in ("bin", "sbin"):
            yield from (folder.parent / name for name in _BESIDE_BIN)
        try:
            with os.scandir(folder) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
        except OSError:
            continue
        for found in _with_its_own(links):
            if _is_below(found, hidden):
                waiting += [found] if found.name == "bin" else []
                yield found


def _with_its_own(programs: Iterable[str]) -> Iterator[Path]:
    """Yield what each program needs: its `node_modules`, its `bin`, else only itself."""
    for program in programs:
        real = Path(os.path.realpath(program))
        packages = next((parent for parent in reversed(real.parents) if parent.name == "node_modules"), None)
        yield packages or (real.parent if real.parent.name == "bin" else real)


def _is_below(file: Path, tops: tuple[str, ...]) -> bool:
    """Tell whether a file lies in a hidden folder, by name or in truth, and is not the whole of one."""
    names = (str(file), os.path.realpath(file))
    return any(name.startswith(f"{top}/") for top in tops for name in names) and not {*names} & {*tops}
