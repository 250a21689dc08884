"""The probe: where do the project's own modules come from, when something runs in the gate?

An installation that leads to the checkout would have the gate's tests judge the user's files instead of the tree in
question. So the question is asked before the tests are run: of the Python that they use, and of the links by which
workspaces of npm, yarn and pnpm name their packages. No answer is no objection.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from capsule.core.detection import interpreter_of

Ask = Callable[[str], str]
"""Runs a shell command in the gate as the tests are run, and returns the end of what it printed."""

_SIGN = "capsule-probe "
_MOST = 100
_QUESTION = f"""
import importlib.util, json, os, sys
print({_SIGN!r} + json.dumps(["", os.getcwd()]))
sys.path[:] = [path for path in sys.path if path]
for name in sys.argv[1:]:
    try:
        spec = importlib.util.find_spec(name)
    except Exception:
        continue
    where = spec and (spec.origin if spec.has_location else next(iter(spec.submodule_search_locations or ()), None))
    if where:
        print({_SIGN!r} + json.dumps([name, where]))
"""


def strays(
    checkout: Path, gate: Path, files: Sequence[str], *, folders: Sequence[str], test: str, ask: Ask
) -> list[tuple[str, str]]:
    """Return (name, path) of every module or package of the project that is found in the checkout.

    `files` is the tree in the gate, and `folders` are those of its folders from which Python imports.
    """
    modules = list(dict.fromkeys(_modules(files, folders)))[:_MOST]
    inside, own = os.path.realpath(checkout), os.path.realpath(gate)
    command = f"{interpreter_of(test)} -c {shlex.quote(_QUESTION)} {shlex.join(modules)}"
    printed = ask(command).splitlines() if modules else []
    told = [json.loads(line.removeprefix(_SIGN)) for line in printed if line.startswith(_SIGN)]
    found = [*((name, path) for name, path in told), *_packages(gate, files)]
    if ("", inside) in found:
        return []  # a sandbox shows the gate at the checkout's own path
    return [(name, path) for name, path in found if name and _below(path, inside) and not _below(path, own)]


def _modules(files: Iterable[str], folders: Sequence[str]) -> Iterator[str]:
    for folder in folders:
        prefix = "" if folder == "." else f"{folder}/"
        for path in files:
            if path.endswith(".py") and path.startswith(prefix):
                first, _, rest = path.removeprefix(prefix).partition("/")
                name = first if rest == "__init__.py" else "" if rest else first.removesuffix(".py")
                if name.isidentifier():
                    yield name


def _packages(gate: Path, files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Follow links as Node follows them; nothing has to be run for that."""
    manifests = [gate / path for path in files if path == "package.json" or path.endswith("/package.json")]
    for manifest in manifests:
        try:
            name = json.loads(manifest.read_bytes()).get("name", "")
        except (OSError, ValueError, AttributeError):
            continue
        for above in manifests:
            linked = above.parent / "node_modules" / str(name)
            if name and linked.is_symlink():
                yield str(name), os.path.realpath(linked)


def _below(path: str, top: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(top)
