"""Find the project's installed dependencies, which git does not hold.

They lie beside the manifest that asks for them (`node_modules` beside `package.json`), git ignores them, and a fresh
worktree lacks them. Nothing is searched for: each folder of the tree that holds a manifest is asked for its few names.

**Build output is never among them.** Cargo, make and Maven judge by time stamps: with the checkout's `target` below it,
broken code was not compiled at all and its tests passed. Nor are `.tox` and `.nox`, which hold the project itself,
installed from some earlier tree.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from capsule.core.errors import SettingsError
from capsule.system.environment import for_agents, for_commands
from capsule.system.folders import mirror
from capsule.system.git import Git
from capsule.workspaces.python_environment import MARKER, folders_installed_from, lay_over

ENVIRONMENTS = (".venv", "venv", "env")
"""Folders of a Python environment, if they hold a `pyvenv.cfg`."""

_PYTHON = re.compile(r"pyproject\.toml|setup\.(py|cfg)|[^/]*requirements[^/]*\.txt|Pipfile")
_BESIDE: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"package\.json"), ("node_modules",)),
    (_PYTHON, ENVIRONMENTS),
    (re.compile(r"composer\.json|go\.mod"), ("vendor",)),
    (re.compile(r"Gemfile"), ("vendor", ".bundle")),
    (re.compile(r"mix\.exs"), ("deps",)),
    (re.compile(r"Podfile"), ("Pods",)),
    (re.compile(r"pixi\.toml|pyproject\.toml"), (".pixi",)),
)
_PATHS = ("PATH", "PYTHONPATH", "NODE_PATH", "VIRTUAL_ENV", "UV_PROJECT_ENVIRONMENT")
_NOT_OF_THE_PROJECT = r"HOME|PWD|OLDPWD|TMPDIR|TMP|TEMP|XDG_.*|_"
"""Variables that may lead into the checkout without naming its code."""
_AT_THE_TOP = (*ENVIRONMENTS, "node_modules", "vendor")
BUILD_OUTPUT = frozenset(
    (
        *("target", "build", "dist", "out", "obj", "_build", ".gradle", ".eggs", ".tox", ".nox"),
        *(".next", ".nuxt", ".svelte-kit", ".turbo", ".parcel-cache"),
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
    )
)


class Dependencies:
    """The installed dependencies of a checkout, for places and gates.

    In a sandbox they are seen at the checkout's own path, below a layer that is thrown away (`layers`). Without one
    they are put into the place (`provide`). Either way commands there need `variables`. `tree` is, in every method, the
    commit or tree that the mission starts from.
    """

    def __init__(
        self, git: Git, named: Sequence[str] = (), *, detect: bool = True, env: Mapping[str, str] | None = None
    ) -> None:
        """`detect=False`: only what is named, because `workspace.setup` installs the rest. `env` is the user's."""
        self._git = git
        self._named = tuple(map(_checked, named))
        self._detect = detect
        self._env = for_commands(os.environ if env is None else env)
        self._env_of_agents = for_agents(self._env)
        self._real_root = os.path.realpath(git.root)
        self._found: dict[str, tuple[str, ...]] = {}
        self._imported: dict[str, list[str]] = {}
        self._inside: dict[str, Path | None] = {}

    def paths(self, tree: str) -> tuple[str, ...]:
        """Return their paths, relative to the checkout and to every place. Snapshots leave them out."""
        if tree not in self._found:
            files = self._files(tree)
            held = _folders(files)
            wanted = dict.fromkeys((*(_expected(files) if self._detect else ()), *self._named))
            there = [path for path in wanted if path not in held and _is_there(self._git.root / path)]
            # Ask for something inside: environments bring a `.gitignore` of their own that ignores all but themselves.
            asked = {path: os.fsencode(path if (self._git.root / path).is_symlink() else f"{path}/x") for path in there}
            ignored = self._git.ignored(asked.values())
            self._found[tree] = tuple(path for path in there if asked[path] in ignored)
        return self._found[tree]

    def layers(self, tree: str, at: Path) -> tuple[tuple[str, str], ...]:
        """Return (path, folder) for each: the folder is shown at that path of a place mounted at `at`."""
        return tuple((str(at / path), os.path.realpath(self._git.root / path)) for path in self.paths(tree))

    def provide(self, tree: str, place: Path, notes: Path, *, anew: bool = True) -> tuple[str, ...]:
        """Put them into a place, as the checkout has them now; return their paths.

        Nothing that is done to them in the place reaches the checkout. `notes` is a folder for what is remembered.
        `anew=False`: existing ones stay, because an agent may have installed more.
        """
        provided = tuple(path for path in self.paths(tree) if is_inside(place, place / path))
        for path in provided:
            note = notes / path.replace("/", "%")
            half = note.with_name(f"{note.name}%half")  # nothing was installed into an incomplete one
            if not anew and os.path.lexists(place / path) and not half.exists():
                continue
            source, target = Path(os.path.realpath(self._git.root / path)), place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            notes.mkdir(parents=True, exist_ok=True)
            half.touch()
            if (source / MARKER).is_file():
                lay_over(source, target, self._git.root, place)
            else:
                mirror(source, target, note)
            half.unlink()
        return provided

    def variables(self, tree: str, at: Path, place: Path | None = None, *, judged: bool = False) -> dict[str, str]:
        """Return the environment variables by which commands find what is installed in a place.

        The place is seen at `at`; `place` is where it is, if that is elsewhere. What leads into the checkout leads into
        the place. An environment of the project, or one that the set-up has made, is used as if it were active, unless
        another one is. `judged`: for tests of ours, which install nothing.
        """
        made = [path for path in ENVIRONMENTS if ((place or at) / path / MARKER).is_file()]
        found = [path for path in self.paths(tree) if (self._git.root / path / MARKER).is_file()]
        environments = list(dict.fromkeys((*found, *made)))
        changed = {name: self._moved(self._env[name], at) for name in _PATHS if self._env.get(name)}
        if at != self._git.root:
            told = self._env if judged else self._env_of_agents
            others = [name for name in told if name not in _PATHS and not re.fullmatch(_NOT_OF_THE_PROJECT, name)]
            changed |= {name: self._moved(self._env[name], at, there=True) for name in others}
        inactive = not any(self._env.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX"))
        if inactive and environments and "/" not in environments[0]:
            folder = str(at / environments[0])
            changed |= {"VIRTUAL_ENV": folder, "PATH": f"{folder}/bin{os.pathsep}{changed.get('PATH', os.defpath)}"}
        if at != self._git.root:
            folders = [str(at / path) for path in self.import_folders(tree)]
            given = [changed["PYTHONPATH"]] if changed.get("PYTHONPATH") else []
            changed |= {"PYTHONPATH": os.pathsep.join((*folders, *given))} if folders else {}
            changed |= {"UV_NO_SYNC": "1"} if judged and environments else {}
        return {name: value for name, value in changed.items() if value != self._env.get(name)}

    def import_folders(self, tree: str) -> list[str]:
        """Return the folders of the tree that Python modules are imported from; none if it is no Python project.

        First in PYTHONPATH, they win over what an editable install names in the checkout.
        """
        if tree not in self._imported:
            files, root = self._files(tree), self._git.root
            environments = [root / path for path in self.paths(tree)]
            if active := self._env.get("VIRTUAL_ENV"):
                environments.append(Path(active))
            folders, python = _folders(files), any(_PYTHON.fullmatch(path.rpartition("/")[2]) for path in files)
            found = [path for path in (*folders_installed_from(root, environments), "src") if path in folders]
            self._imported[tree] = [*dict.fromkeys(found), "."] if python else []
        return self._imported[tree]

    def _moved(self, value: str, at: Path, *, there: bool = False) -> str:
        """Replace paths in the checkout, in a list of paths, by the same in the place; `there`: if it has them."""
        paths = value.split(os.pathsep)
        for number, path in enumerate(paths):
            inside = self._in_checkout(path) if path.startswith("/") else None
            if inside is not None and (not there or (at / inside).exists()):
                paths[number] = str(at / inside)
        return os.pathsep.join(paths)

    def _in_checkout(self, path: str) -> Path | None:
        """Return a path relative to the checkout, which may be called by another name, by way of a link."""
        if path not in self._inside:  # asked about every variable for every command
            given = Path(path)
            tops = (top for top in (given, *given.parents) if os.path.realpath(top) == self._real_root)
            self._inside[path] = next((given.relative_to(top) for top in tops), None)
        return self._inside[path]

    def _files(self, tree: str) -> list[str]:
        return [os.fsdecode(entry.path) for entry in self._git.list_tree(tree, recursive=True)]


def _expected(files: Iterable[str]) -> Iterator[str]:
    yield from _AT_THE_TOP
    for file in files:
        folder, _, name = file.rpartition("/")
        for manifest, names in _BESIDE:
            if manifest.fullmatch(name):
                yield from (f"{folder}/{each}" if folder else each for each in names)


def _is_there(folder: Path) -> bool:
    """Tell whether there is such a folder; one that may be something else needs to look like an environment."""
    return (folder / MARKER).is_file() if folder.name in ENVIRONMENTS else folder.is_dir()


def is_inside(place: Path, target: Path) -> bool:
    """Tell whether a target lies in a place: the tree may hold links that lead elsewhere, and files in the way."""
    around = target.parent
    return around.resolve().is_relative_to(place.resolve()) and (around.is_dir() or not os.path.lexists(around))


def _folders(files: Iterable[str]) -> set[str]:
    """Return every folder that holds tracked files, and the files."""
    found: set[str] = set()
    for file in files:
        while file and file not in found:
            found.add(file)
            file = file.rpartition("/")[0]  # noqa: PLW2901 (upwards)
    return found


def _checked(path: str) -> str:
    """Return a folder of the settings, or raise SettingsError."""
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts or not plain.parts or plain.parts[0] in (".git", ".capsule"):
        hint = "Give paths relative to its root."
        raise SettingsError(f"workspace.dependencies: {path!r} is no folder of the project.", hint)
    if plain.name in BUILD_OUTPUT:
        hint = "Let workspace.setup build what the tests need; take it out of workspace.dependencies."
        raise SettingsError(f"workspace.dependencies: {path} is build output, which is never shared.", hint)
    return str(plain)
