"""A Python environment for a place: one of its own that finds everything installed in the checkout's, and is no copy.

`<place>/.venv` has a `bin` with the same programs and an empty `site-packages` that names the checkout's as a further
one. So `.venv/bin/pytest`, `uv run` and `poetry run` work as in the checkout, while whatever is installed there (`pip
install`, `uv sync`) stays in the place. A symbolic link to the checkout's environment would do for the first and not
for the second: `uv run` alone would make the user's environment import the place's code.

What the checkout's environment knows of the project itself (`pip install -e .`) leads to the checkout: path files, and
the finders of setuptools and hatch. When the place's environment starts, each of them is led to the place. In another
environment, of which Capsule makes no second one, the place's folders come first by PYTHONPATH.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from capsule.system.folders import clone, remove_tree

MARKER = "pyvenv.cfg"
PATH_FILE = "zz_checkout.pth"
STARTER = "zz_checkout.py"
"""Read last: what is installed in the place itself comes first."""
_STARTER = '''\
"""Written by Capsule: everything that is installed in the checkout, and of the project itself this place's own code."""

import os
import site
import sys

SITE, CHECKOUT, PLACE = {site!r}, {checkout!r}, {place!r}


def own(path):
    inside = isinstance(path, str) and (path + os.sep).startswith(CHECKOUT + os.sep)
    installed = inside and (path + os.sep).startswith(SITE + os.sep)
    return PLACE + path[len(CHECKOUT):] if inside and not installed else path


before = set(sys.path)
site.addsitedir(SITE)
sys.path[:] = [path if path in before else own(path) for path in sys.path]
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        for key, path in getattr(module, "MAPPING", {{}}).items():
            module.MAPPING[key] = own(path)
        for key, paths in getattr(module, "NAMESPACES", {{}}).items():
            module.NAMESPACES[key] = [own(path) for path in paths]
    if name.startswith("_editable_impl_") and hasattr(module, "F"):
        for key, path in getattr(module.F, "_redirections", {{}}).items():
            module.F._redirections[key] = own(path)
'''
_LARGEST_SCRIPT = 1024 * 1024
_FINDERS = ("__editable__*_finder.py", "_editable_impl_*.py")


def lay_over(source: Path, target: Path, checkout: Path, place: Path) -> None:
    """Make `target` an environment of its own that finds what is installed in the environment `source`.

    What is installed there from the `checkout` itself is found in the `place`.
    """
    remove_tree(target)
    target.mkdir(parents=True)
    (target / ".gitignore").write_text("*\n")
    (target / MARKER).write_bytes((source / MARKER).read_bytes())
    for entry in sorted(source.iterdir()):
        if entry.name == "bin":
            _lay_over_programs(entry, target / "bin", source, target)
        elif entry.name == "lib64" and entry.is_symlink():
            (target / "lib64").symlink_to("lib")
        elif entry.name == "include":
            clone(entry, target / "include")
        elif entry.name not in ("lib", MARKER, ".gitignore"):
            (target / entry.name).symlink_to(entry)
    for site in site_packages(source):
        own = target / site.relative_to(source)
        own.mkdir(parents=True)
        (own / PATH_FILE).write_text("import zz_checkout\n")
        (own / STARTER).write_text(_STARTER.format(site=str(site), checkout=str(checkout), place=str(place)))


def _lay_over_programs(folder: Path, target: Path, source: Path, environment: Path) -> None:
    """Rewrite scripts, which name their interpreter by its path, and link everything else."""
    target.mkdir()
    for program in sorted(folder.iterdir()):
        own = target / program.name
        if program.is_symlink():
            # `python3 -> python` stays as it is; a link out of the environment keeps its target.
            leads_to = os.path.normpath(folder / program.readlink())
            inside = Path(leads_to).is_relative_to(source)
            own.symlink_to(os.path.relpath(leads_to, folder) if inside else leads_to)
            continue
        small = program.is_file() and program.stat().st_size < _LARGEST_SCRIPT
        content = program.read_bytes() if small else b"\0"
        if b"\0" in content:  # no script
            own.symlink_to(program)
            continue
        for spelled in {os.fsencode(source), os.fsencode(os.path.realpath(source))}:
            content = content.replace(spelled, os.fsencode(environment))
        own.write_bytes(content)
        own.chmod(program.stat().st_mode & 0o777)


def site_packages(environment: Path) -> list[Path]:
    return sorted(environment.glob("lib/python*/site-packages"))


def folders_installed_from(checkout: Path, environments: Iterable[Path]) -> list[str]:
    """Return the folders of the checkout that its environments import from, relative to it: of editable installs."""
    roots = {str(checkout), os.path.realpath(checkout)}
    sites = [site for environment in environments for site in site_packages(environment)]
    found = [path for site in sites for path in _named_in(site)]
    inside = (os.path.relpath(path, root) for path in found for root in roots if Path(path).is_relative_to(root))
    return list(dict.fromkeys(inside))


def _named_in(site: Path) -> Iterator[str]:
    for file in sorted(site.glob("*.pth")):
        yield from (line.strip() for line in _text(file).splitlines() if line.startswith("/"))
    for pattern in _FINDERS:
        for file in sorted(site.glob(pattern)):
            for path in re.findall(r"""["'](/[^"'\n]+)["']""", _text(file)):
                yield str(Path(path.removesuffix("/__init__.py")).parent)


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text(errors="surrogateescape") if file.is_file() else ""
    return ""
