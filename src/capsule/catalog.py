"""Find workflows, prompts and templates by name: the project's first, then ours.

The project's files are read through a function that is handed in, so that the words an agent is given and the workflow
it is judged by come from the base commit, never from the worktree it can write to. What exists is asked once.

A prompt may lie in a folder with the name of a workflow. A workflow's `execute` is `tdd/execute`, else a plain
`execute`, else the one other workflow's that has such a prompt; where two have, it must say which. Workflows are handed
out with their prompts' full names, so that everybody after us means the same file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec
from msgspec import Struct

from capsule.core.errors import SettingsError
from capsule.core.text import nearest
from capsule.core.workflow import Phase, Workflow, parse_workflow
from capsule.plain_files import as_text, parse_yaml, read_plain
from capsule.settings import PUBLISH

_PACKAGE = Path(__file__).parent
_NAME = r"(?a)[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?"

Read = Callable[[str], bytes | None]


class _Shelf(Struct, frozen=True):
    """The places of one kind of file: folders of the project in order, the folder of the package, and name endings."""

    project: tuple[str, ...]
    ours: str
    endings: tuple[str, ...]

    def name_of(self, path: str, folders: Iterable[str]) -> str:
        """Return the name by which a file in one of these folders is asked for; empty for any other file."""
        folder = next((folder for folder in folders if path.startswith(f"{folder}/")), None)
        ending = next((ending for ending in sorted(self.endings, key=len)[::-1] if path.endswith(ending)), None)
        if folder is None or ending is None:
            return ""
        name = path[len(folder) + 1 : len(path) - len(ending)]
        return name if re.fullmatch(_NAME, name) else ""


_SHELVES = {
    "workflow": _Shelf((".capsule/workflows",), "workflows", (".yaml",)),
    "prompt": _Shelf((".capsule/prompts", "prompts"), "prompts", (".md",)),
    "part": _Shelf((".capsule/prompts/parts", "prompts/parts"), "prompts/parts", (".md",)),
    "template": _Shelf((".capsule/templates", "templates"), "templates", ("", ".md.template", ".md")),
}
_PROJECT_FOLDERS = tuple(folder for shelf in _SHELVES.values() for folder in shelf.project)


_BUILT_IN = "built-in "
"""Prefix of the path of a built-in file."""


class Catalog:
    """Prompts, templates and workflows of one project, as `read` and `listing` see it."""

    def __init__(self, read: Read = lambda _: None, listing: Callable[[], Iterable[str]] = tuple) -> None:
        self._read, self._listing = read, listing
        self._parsed: dict[tuple[str, bytes], Workflow] = {}
        """Workflows by name and content: many items have the same."""

    @classmethod
    def on_disk(cls, root: Path) -> Catalog:
        """Read the project's files as they lie in its folder now."""
        return cls(lambda path: read_plain(root / path), lambda: listing(root))

    def prompt(self, name: str, workflow: str = "") -> str:
        text = self._text("prompt", self.full_name(name, workflow))
        if not text.strip():
            raise SettingsError(
                f"{self.where(name, workflow=workflow)} is empty.", "Write the prompt, or remove the file."
            )
        return text

    def part(self, name: str) -> str:
        return self._text("part", name)

    def template(self, name: str) -> str:
        return self._text("template", name)

    def workflow(self, name: str) -> Workflow:
        """Return a workflow, parsed and checked: everything it names exists."""
        where = self._find("workflow", name)
        key = name, self._content(where)
        if key not in self._parsed:
            self._parsed[key] = self._parse(name, where)
        return self._parsed[key]

    def _parse(self, name: str, where: str) -> Workflow:
        data = parse_yaml(self._content(where), where)
        if isinstance(data, dict) and "publish" in data:  # a file's word for what is stored as `workspace`
            how = data.pop("publish")
            if not isinstance(how, str) or how not in PUBLISH:
                raise SettingsError(f"{where}: `publish` is {how!r}.", f"It is one of {', '.join(PUBLISH)}.")
            data["workspace"] = PUBLISH[how]
        workflow = parse_workflow(data, source=where, name=name)
        if workflow.name != name:
            hint = "A workflow has the name of its file: leave `name` out."
            raise SettingsError(f"{where} calls itself {workflow.name!r}.", hint)
        phases = tuple(self._with_full_names(phase, workflow, where) for phase in workflow.phases)
        return msgspec.structs.replace(workflow, phases=phases)

    def where(self, name: str, kind: str = "prompt", workflow: str = "") -> str:
        """Return the file that a name means."""
        return self._find(kind, self.full_name(name, workflow) if kind == "prompt" else name)

    def names(self, kind: str) -> tuple[str, ...]:
        """Return every name of a kind that can be asked for."""
        shelf = _SHELVES[kind]
        theirs = {shelf.name_of(path, shelf.project) for path in self._paths}
        ours = {shelf.name_of(path, (shelf.ours,)) for path in _files_in(_PACKAGE, (shelf.ours,))}
        return tuple(sorted((theirs | ours) - {""}))

    @cached_property
    def _paths(self) -> frozenset[str]:
        return frozenset(self._listing())

    def _text(self, kind: str, name: str) -> str:
        where = self._find(kind, name)
        return as_text(self._content(where), where)

    def _content(self, where: str) -> bytes:
        ours = where.startswith(_BUILT_IN)
        data = read_plain(_PACKAGE / where.removeprefix(_BUILT_IN)) if ours else self._read(where)
        if data is None:
            raise SettingsError(f"{where} no longer exists.", "Try again: it was moved a moment ago.")
        return data

    def _find(self, kind: str, name: str) -> str:
        """Return the path of a file, as errors show it."""
        if where := self._seek(kind, _checked(kind, name)):
            return where
        choices = self.names(kind)
        near = nearest(name, choices) or [full for full in choices if full.endswith(f"/{name}")]
        meant = f"Did you mean `{near[0]}`? " if near else ""
        raise SettingsError(f"There is no {kind} named {name!r}.", f"{meant}There are: {', '.join(choices)}.")

    def _seek(self, kind: str, name: str) -> str:
        """Return the first file that this name may mean, or ''; a plain `execute` also serves as `tdd/execute`."""
        shelf = _SHELVES[kind]
        spellings = (name, name.rpartition("/")[2]) if kind == "prompt" else (name,)
        files = [spelling + ending for spelling in spellings for ending in shelf.endings]
        theirs = (f"{folder}/{file}" for folder in shelf.project for file in files)
        if found := next((path for path in theirs if path in self._paths), ""):
            return found
        ours = (f"{shelf.ours}/{file}" for file in files)
        return next((f"{_BUILT_IN}{path}" for path in ours if (_PACKAGE / path).is_file()), "")

    def full_name(self, name: str, workflow: str) -> str:
        """Return the name of a prompt with its folder, where it has one; the name as it is where there is no such."""
        own = f"{workflow}/{name}" if workflow and "/" not in name else name
        if self._seek("prompt", _checked("prompt", own)) or "/" in name:
            return own
        others = [f"{folder}/{name}" for folder in self.names("workflow")]
        found = [other for other in others if self._seek("prompt", other)]
        if len(found) > 1:
            raise SettingsError(f"{name!r} is the name of several prompts.", f"Say which: {', '.join(found)}.")
        return found[0] if found else name

    def _with_full_names(self, phase: Phase, workflow: Workflow, source: str) -> Phase:
        try:
            if phase.workflow:
                self._find("workflow", phase.workflow)
            if not phase.prompt or phase.prompt in workflow.prompts:
                return phase
            full = self.full_name(phase.prompt, workflow.name)
            self._find("prompt", full)
        except SettingsError as fault:
            raise SettingsError(f"{source}: phase {phase.name!r}: {fault.message}", fault.hint) from None
        return msgspec.structs.replace(phase, prompt=full)


def listing(root: Path) -> Iterator[str]:
    """Yield the files of a project that may hold prompts, templates or workflows, as they lie on disk."""
    return _files_in(root, _PROJECT_FOLDERS)


def _checked(kind: str, name: str) -> str:
    if re.fullmatch(_NAME, name):
        return name
    hint = "A name has letters, digits, dots, dashes and underscores, with at most one folder before it."
    raise SettingsError(f"{name!a} cannot be the name of a {kind}.", hint)


def _files_in(root: Path, folders: Iterable[str]) -> Iterator[str]:
    """Yield files in these folders and one level below."""
    for folder in folders:
        for pattern in ("*", "*/*"):
            files = (path for path in sorted((root / folder).glob(pattern)) if path.is_file())
            yield from (path.relative_to(root).as_posix() for path in files)
