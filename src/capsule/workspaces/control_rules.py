"""How each file that steers git is compared with what it was, and put back.

    whole      hooks, attributes, alternates, our own git directory: as before, to the byte
    settings   files of settings: those that are dangerous, and no others (`dangerous_settings`)
    lines      the list of ignored files: as before, with what Capsule itself may add
    grows      our lists: what was written stays; more may follow
    commondir  what every worktree says about the repository it belongs to: always the same
    sound      HEAD, packed refs: may say anything, but git must be able to read it, and HEAD does not go
    planted    hooks and attributes of a submodule: as before, unless the user took the submodule away
    stays      our notes about the place: once they are there
    shallow    the edge of the history: it may move, but not cut off what is here
    silently   what we make ourselves at any start from other files

A rule is given one file that is not as it was. It says in words what was wrong, once it is put right, or '' where
somebody may well have done that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from capsule.core.text import one_line
from capsule.system.files import read_regular, write_atomically
from capsule.system.git import Git, GitFailed
from capsule.workspaces import dangerous_settings
from capsule.workspaces.repository import EXCLUDED
from capsule.workspaces.salvage import put_aside

_LARGEST = 16 * 1024 * 1024
_LONG_LIST = 1024 * 1024
"""Of a longer list of ours nothing is remembered."""
_COMMONDIR = b"../..\n"


class Found(NamedTuple):
    """What stands at a path: a file, a link or something else, and its content."""

    kind: str
    mode: int
    content: bytes


def look_at(path: Path, mode: int, name: str) -> Found:
    if stat.S_ISLNK(mode):
        return Found("link", 0, os.fsencode(path.readlink()))
    if not stat.S_ISREG(mode):
        return Found("folder" if stat.S_ISDIR(mode) else "other", 0, b"")
    try:
        content = read_regular(path, _LARGEST)
    except OSError:
        return Found("long list" if rule_of(name) == "sound" else "other", 0, b"")
    long = rule_of(name) == "grows" and len(content) > _LONG_LIST
    return Found("long list", 0, b"") if long else Found("file", stat.S_IMODE(mode), content)


class Case(NamedTuple):
    """One file that is not as it was."""

    git: Git
    name: str
    before: Found | None
    now: Found | None
    others: bool
    """Something was found already."""

    @property
    def path(self) -> Path:
        return self.git.common_dir / self.name

    @property
    def called(self) -> str:
        return one_line(f".git/{self.name}")

    def put_aside(self) -> str:
        """What stands there; in words, where it is kept."""
        kept = put_aside(self.git, self.path) if os.path.lexists(self.path) else ""
        return f" (kept as {one_line(kept)})" if kept else ""

    def put_back(self) -> str:
        kept = self.put_aside()
        if self.before:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _put(self.path, self.before)
        return kept


def _put(path: Path, found: Found) -> None:
    if found.kind == "file":
        write_atomically(path, found.content, mode=found.mode)
    elif found.kind == "link":
        path.symlink_to(os.fsdecode(found.content))
    elif found.kind == "folder":
        path.mkdir()


def _whole(case: Case) -> str:
    kept = case.put_back()
    verb = "was changed" if case.before and case.now else "was removed" if case.before else "appeared"
    return f"{case.called} {verb}{kept}"


def _planted(case: Case) -> str:
    """Submodules come and go."""
    return _whole(case) if case.now else ""


def _sound(case: Case) -> str:
    """What it says is the user's affair. A pipe would keep any git waiting, and so would a link to one."""
    if case.now is None:
        return "" if case.name.startswith("worktrees/") else _whole(case)
    names_a_ref = case.now.kind == "link" and case.now.content.startswith(b"refs/")
    return "" if names_a_ref or case.now.kind in ("file", "long list") else _whole(case)


def _stays(case: Case) -> str:
    """Written by us once, while a phase is on if need be."""
    return _whole(case) if case.before else ""


def _silently(case: Case) -> str:
    """Made by us from other files at any start: nobody to blame, and nothing to keep."""
    if case.before and case.now and case.now.kind == "file":
        write_atomically(case.path, case.before.content)
    else:
        case.put_back()
    return ""


def _settings(case: Case) -> str:
    if case.now is None:
        return _whole(case) if case.name == "config" else ""
    if case.now.kind != "file" or (case.before and case.before.kind != "file"):
        return _whole(case)
    before, scratch = case.before.content if case.before else b"", case.git.capsule_dir / "git"
    new_module = case.before is None and case.name.startswith("modules/")
    content, changed = dangerous_settings.mended(
        case.git, before, case.now.content, scratch, strict=case.others, new_module=new_module
    )
    if not changed:
        return ""
    kept = case.put_aside()
    if content or case.before:
        write_atomically(case.path, content, mode=case.now.mode)
    return f"settings in {case.called} were changed: {', '.join(changed)}{kept}"


def _lines(case: Case) -> str:
    """Another Capsule may have added what it always adds."""
    before, now = (found.content.splitlines() if found else [] for found in (case.before, case.now))
    added = [line for line in EXCLUDED if line.encode() in now and line.encode() not in before]
    if case.now and case.now.kind == "file" and _apart_from(added, now) == before:
        return ""
    words = _whole(case)
    if added and case.before:
        write_atomically(case.path, b"\n".join([*before, *(line.encode() for line in added)]) + b"\n")
    return words


def _apart_from(added: Sequence[str], lines: Sequence[bytes]) -> list[bytes]:
    return [line for line in lines if line.decode(errors="replace") not in added]


def _grows(case: Case) -> str:
    """Our own lists. One that has grown too long begins anew; a long one's content is not remembered."""
    before, now = case.before, case.now
    unknown = before is None or "long list" in (before.kind, now.kind if now else "")
    if unknown or (before and now and now.kind == "file" and now.content.startswith(before.content)):
        return ""
    return _whole(case)


def _commondir(case: Case) -> str:
    """Worktrees come and go; what one of them says never changes."""
    if case.now is None or case.now.content == _COMMONDIR:
        return ""
    kept = case.put_aside()
    write_atomically(case.path, _COMMONDIR)
    return f"{case.called} was changed{kept}"


def _shallow(case: Case) -> str:
    """Whoever fetches moves the edge of the history; nobody has reason to cut off what the branches held already."""
    before, now = (set(found.content.split()) if found else set() for found in (case.before, case.now))
    odd = case.now is not None and case.now.kind != "file"
    return _whole(case) if odd or any(_has_parents(case.git, oid.decode("latin-1")) for oid in now - before) else ""


def _has_parents(git: Git, oid: str) -> bool:
    try:
        parents = git.commit(oid).parents
    except GitFailed:
        return False
    return any(git.content("cat-file", "-e", parent, ok=(0, 1, 128)).code == 0 for parent in parents)


RULES: dict[str, Callable[[Case], str]] = {
    "whole": _whole,
    "planted": _planted,
    "sound": _sound,
    "stays": _stays,
    "silently": _silently,
    "settings": _settings,
    "lines": _lines,
    "grows": _grows,
    "commondir": _commondir,
    "shallow": _shallow,
}
_RULE_OF = {
    "config": "settings",
    "config.worktree": "settings",
    "HEAD": "sound",
    "packed-refs": "sound",
    "shallow": "shallow",
    "info/exclude": "lines",
    "capsule/git/info/exclude": "silently",
    "capsule/ours": "grows",
    "capsule/assigned": "grows",
}
_IN_A_WORKTREE = {"config.worktree": "settings", "commondir": "commondir", "HEAD": "sound", "gitdir": "sound"}
_IN_A_MODULE = {"config": "settings", "config.worktree": "settings"}


def rule_of(name: str) -> str:
    top, _, rest = name.partition("/")
    own = rest.rpartition("/")[2]
    if top == "worktrees" and "/" in rest:
        return _IN_A_WORKTREE.get(own, "whole")
    if top == "modules":
        return _IN_A_MODULE.get("" if "/hooks/" in rest else own, "planted")
    return _RULE_OF.get(name, "stays" if name.startswith("capsule/places/") else "whole")
