"""Read manifests and lock files: which dependencies they ask for, and the command that installs them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

_MANIFESTS = (
    r"(?s)(.*/)?(package(-lock)?\.json|npm-shrinkwrap\.json|yarn\.lock|pnpm-lock\.yaml|bun\.lockb?|pyproject\.toml|setup\.(py|cfg)"
    r"|[^/]*requirements[^/]*\.txt|poetry\.lock|uv\.lock|pdm\.lock|Pipfile(\.lock)?|environment\.ya?ml|Cargo\.(toml|lock)"
    r"|go\.(mod|sum)|Gemfile(\.lock)?|composer\.(json|lock)|mix\.(exs|lock)|Podfile(\.lock)?|pom\.xml|build\.gradle(\.kts)?)"
)


class _Family(NamedTuple):
    """Manifests whose dependencies share their folders, and the install command: the first existing one decides."""

    folders: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    """(names of manifests, command)"""


_PIP = "python3 -m venv .venv && .venv/bin/pip install"
FAMILIES = (
    _Family(
        ("node_modules",),
        (
            (r"package-lock\.json|npm-shrinkwrap\.json", "npm ci"),
            (r"yarn\.lock", "yarn install --frozen-lockfile"),
            (r"pnpm-lock\.yaml", "pnpm install --frozen-lockfile"),
            (r"bun\.lockb?", "bun install --frozen-lockfile"),
            (r"package\.json", "npm install"),
        ),
    ),
    _Family(
        (".venv", "venv", "env"),
        (
            (r"uv\.lock", "uv sync"),
            (r"poetry\.lock", "poetry install"),
            (r"pdm\.lock", "pdm sync"),
            (r"Pipfile(\.lock)?", "pipenv sync --dev"),
            (r"pyproject\.toml|setup\.(py|cfg)", f"{_PIP} -e ."),
            (r"[^/]*requirements[^/]*\.txt", f"{_PIP} -r {{}}"),
        ),
    ),
    _Family(("vendor",), ((r"composer\.(json|lock)", "composer install"),)),
    _Family(("vendor", ".bundle"), ((r"Gemfile(\.lock)?", "bundle install"),)),
    _Family(("vendor",), ((r"go\.(mod|sum)", "go mod vendor"),)),
    _Family(("deps",), ((r"mix\.(exs|lock)", "mix deps.get"),)),
    _Family(("Pods",), ((r"Podfile(\.lock)?", "pod install"),)),
)

_NODE_KEYS = (
    *("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "bundleDependencies"),
    *("overrides", "resolutions", "workspaces"),
)
_PROJECT_KEYS = ("name", "requires-python", "dependencies", "optional-dependencies", "scripts", "entry-points")
_TOOLS = ("poetry", "uv", "pdm", "setuptools", "hatch", "flit")
_ABOUT = ("version", "description", "authors", "readme", "license", "keywords", "classifiers")


def is_manifest(path: str) -> bool:
    return re.fullmatch(_MANIFESTS, path) is not None


def wanted_by(path: str, text: str) -> str:
    """Return what a manifest asks to be installed, the same for the same meaning; all of one that cannot be read."""
    folder, _, name = path.rpartition("/")
    reader = _workspace_package if folder and name == "package.json" else _READERS.get(name)
    try:
        return json.dumps(reader(text), sort_keys=True, default=str) if reader and text else text
    except (ValueError, RecursionError):
        return text


def how_to_install(changed: Sequence[str], installed: Sequence[str], files: Iterable[str]) -> tuple[str, str]:
    """Return a manifest whose dependencies are not what is installed, and the command that would install them.

    `changed` are manifests with changed dependencies; `installed` are the folders whose content came from them; `files`
    is the whole tree. Return two empty texts if nothing has to be done.
    """
    there = {path.rpartition("/")[2] for path in installed}
    at_the_top = sorted(path for path in files if "/" not in path)
    for path in changed:
        name = path.rpartition("/")[2]
        for family in FAMILIES:
            known = any(re.fullmatch(names, name) for names, _ in family.commands)
            if not known or not there & set(family.folders):
                continue
            for names, command in family.commands:
                if found := next((top for top in at_the_top if re.fullmatch(names, top)), ""):
                    return path, command.format(found)
            command = next(command for names, command in family.commands if re.fullmatch(names, name))
            return path, f"cd {path.rpartition('/')[0]} && {command.format(name)}"
    return "", ""


def _package_json(text: str) -> object:
    parsed = json.loads(text)
    return {key: parsed[key] for key in _NODE_KEYS if key in parsed} if isinstance(parsed, dict) else parsed


def _workspace_package(text: str) -> object:
    """Read a package below the top: others find it by its name, through a link that the installer made."""
    asked, parsed = _package_json(text), json.loads(text)
    return {**asked, "name": parsed["name"]} if isinstance(asked, dict) and "name" in parsed else asked


def _pyproject(text: str) -> object:
    parsed = toml_of(text)
    project: Any = parsed.get("project", {})
    tools: Any = parsed.get("tool", {})
    return {
        "build-system": parsed.get("build-system"),
        "dependency-groups": parsed.get("dependency-groups"),
        "project": {key: project[key] for key in _PROJECT_KEYS if key in project},
        "tool": {
            key: {k: v for k, v in tools[key].items() if k not in _ABOUT}
            if isinstance(tools[key], dict)
            else tools[key]
            for key in _TOOLS
            if key in tools
        },
    }


def _setup_cfg(text: str) -> object:
    return {name: values for name, values in ini_of(text).items() if name.startswith("options")}


def toml_of(text: str) -> dict[str, Any]:
    """Parse TOML; raise ValueError for a faulty text."""
    import tomllib  # noqa: PLC0415 - few missions change such a file

    return tomllib.loads(text)


def ini_of(text: str, **options: Any) -> dict[str, dict[str, str]]:
    """Parse the sections of an INI file with these options of the parser; raise ValueError for a faulty text."""
    from configparser import ConfigParser, Error  # noqa: PLC0415 - few missions change such a file

    parser = ConfigParser(interpolation=None, **options)
    try:
        parser.read_string(text)
    except Error as error:
        raise ValueError(str(error)) from error
    return {name: dict(parser[name]) for name in parser.sections()}


_READERS = {"package.json": _package_json, "pyproject.toml": _pyproject, "setup.cfg": _setup_cfg}
