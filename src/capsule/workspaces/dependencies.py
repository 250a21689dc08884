"""Find the project's installed dependencies: what its files need in order to run, and git does not hold.

They lie beside the manifest that asks for them (`node_modules` beside `package.json`), git ignores them, and a fresh
worktree lacks them. Nothing is searched for: each folder of the tree that holds a manifest is asked for its few names.

**Build output is never among them.** Cargo, make and Maven judge by time stamps: with the checkout's `target` below it,
broken code was not compiled at all and its tests passed. Nor are `.tox` and `.nox`, which hold the project itself,
installed from some earlier tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from capsule.core.errors import SettingsError
from capsule.system.git import Git

Ignored = Callable[[Sequence[str]], set[str]]
"""Which of these paths of the checkout git ignores."""

ENVIRONMENTS = (".venv", "venv", "env")
"""Folders of a Python environment, where they hold this file:"""
MARKER = "pyvenv.cfg"

_BESIDE: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"package\.json"), ("node_modules",)),
    (re.compile(r"pyproject\.toml|setup\.(py|cfg)|[^/]*requirements[^/]*\.txt|Pipfile"), ENVIRONMENTS),
    (re.compile(r"composer\.json|go\.mod"), ("vendor",)),
    (re.compile(r"Gemfile"), ("vendor", ".bundle")),
    (re.compile(r"mix\.exs"), ("deps",)),
    (re.compile(r"Podfile"), ("Pods",)),
    (re.compile(r"pixi\.toml|pyproject\.toml"), (".pixi",)),
)
_AT_THE_TOP = (*ENVIRONMENTS, "node_modules", "vendor")
BUILD_OUTPUT = frozenset(
    (
        *(
            "target",
            "build",
            "dist",
            "out",
            "obj",
            "_build",
            ".next",
            ".nuxt",
            ".svelte-kit",
            ".turbo",
            ".parcel-cache",
        ),
        *(".gradle", ".eggs", ".tox", ".nox", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
    )
)


class Dependencies:
    """The installed dependencies of a checkout, for the places where its files are worked on and judged.

    `tree` is, in every method, the tree or commit that a mission starts from.
    """

    def __init__(self, git: Git, named: Sequence[str] = ()) -> None:
        self._git = git
        self._named = named

    def paths(self, tree: str) -> tuple[str, ...]:
        """Return where they lie, relative to the checkout and to every place."""
        files = (entry.path for entry in self._git.list_tree(tree, recursive=True))
        return installed(self._git.root, files, self._ignored, self._named)

    def layers(self, tree: str, at: Path) -> tuple[tuple[str, str], ...]:
        """Return (path, folder) for each: the folder is to be seen at that path of a place mounted at `at`."""
        return tuple((str(at / path), os.path.realpath(self._git.root / path)) for path in self.paths(tree))

    def _ignored(self, paths: Sequence[str]) -> set[str]:
        """Ask for something inside: environments bring a `.gitignore` of their own that ignores all but themselves."""
        root = self._git.root
        asked = {f"{path}/x" if not (root / path).is_symlink() else path: path for path in paths}
        if not asked:
            return set()
        command = ("check-ignore", "-z", "--stdin", "--no-index")
        answer = self._git.content(*command, input=b"\0".join(map(os.fsencode, asked)), ok=(0, 1))
        return {asked[os.fsdecode(path)] for path in answer.out.split(b"\0") if path}


def installed(root: Path, files: Iterable[bytes], ignored: Ignored, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the paths, relative to the checkout `root`, of the dependencies that are installed there.

    `files` are the paths of the tree that is worked on. `named` are further folders, by the settings.
    """
    tracked = [os.fsdecode(path) for path in files]
    wanted = dict.fromkeys((*_expected(tracked), *map(_checked, named)))
    there = [path for path in wanted if _is_there(root, path)]
    held = _folders(tracked)
    hidden = ignored([path for path in there if path not in held])
    return tuple(path for path in there if path in hidden)


def _expected(files: Iterable[str]) -> Iterator[str]:
    yield from _AT_THE_TOP
    for file in files:
        folder, _, name = file.rpartition("/")
        for manifest, names in _BESIDE:
            if manifest.fullmatch(name):
                yield from (f"{folder}/{each}" if folder else each for each in names)


def _is_there(root: Path, path: str) -> bool:
    """A folder; those that may be something else need to look like an environment."""
    place = root / path
    return (place / MARKER).is_file() if place.name in ENVIRONMENTS else place.is_dir()


def _folders(files: Iterable[str]) -> set[str]:
    """Every folder that holds tracked files, and the files."""
    found: set[str] = set()
    for file in files:
        while file and file not in found:
            found.add(file)
            file = file.rpartition("/")[0]  # noqa: PLW2901 (upwards)
    return found


def _checked(path: str) -> str:
    """A folder by the settings, or SettingsError."""
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts or not plain.parts or plain.parts[0] in (".git", ".capsule"):
        raise SettingsError(
            f"workspace.dependencies: {path!r} is no folder of the project.", "Give paths relative to its root."
        )
    if plain.name in BUILD_OUTPUT:
        hint = "Let workspace.setup build what the tests need; take it out of workspace.dependencies."
        raise SettingsError(f"workspace.dependencies: {path} is build output, which is never shared.", hint)
    return str(plain)
