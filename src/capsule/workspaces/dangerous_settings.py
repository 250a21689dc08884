"""Find dangerous settings of git in a file, and remove them: those that start a program, redirect git or hide changes.

A user may well change settings while a mission runs: who they are, a branch's upstream, a new remote. Those stay,
whatever else is found beside them. A remote that was there before keeps its addresses: work is merged where they lead.
Only the settings of this list are compared, by their values and not by their bytes, so that whoever sets again what was
set already has changed nothing.
"""

from __future__ import annotations

import re
from collections.abc import Set
from pathlib import Path

from capsule.core.text import without_controls
from capsule.system.files import read_regular, temp_path, write_atomically
from capsule.system.git import Git

Row = tuple[str, str]

_LARGEST = 4 * 1024 * 1024
_LONGEST_KEY = 80
_DANGEROUS = re.compile(
    r"""
    core\.(fsmonitor|hookspath|sshcommand|editor|pager|askpass|gitproxy|worktree|bare|alternaterefscommand|attributesfile)
    | filter\..+\.(clean|smudge|process|required)
    | merge\..+\.driver | diff\.external | diff\..+\.(command|textconv)
    | gpg\..+ | (commit|tag)\.gpgsign
    | include\.path | includeif\..+\.path | extensions\..+
    | credential\..+ | url\..+ | protocol\..+ | http\..+ | ssh\..+
    | remote\..+\.(uploadpack|receivepack|vcs|proxy\w*|serveroption|promisor|partialclonefilter|mirror|push)
    | remote\..+\.lfs(push)?url | lfs\.(push)?url | remote\.pushdefault | push\.pushoption
    | (fetch|transfer)\.bundle\w+ | bundle\..+ | uploadpack\.packobjectshook
    | pager\..+ | sequence\.editor | interactive\.difffilter | trailer\..+\.(command|cmd) | init\.templatedir
    | (difftool|mergetool|guitool|browser|man)\..+\.(cmd|path) | instaweb\..+
    | alias\..+ | tar\..+\.command | hook\..+ | gc\.recentobjectshook
    | sendemail\..+ | imap\.tunnel | lfs\.(customtransfer|extension)\..+ | lfs\.(.+\.)?standalonetransferagent
    """,
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)
_ADDRESS = re.compile(r"remote\.(.+)\.(url|pushurl)", re.IGNORECASE | re.DOTALL)
_DANGEROUS_BY_VALUE = {
    re.compile(r"submodule\..+\.update", re.IGNORECASE | re.DOTALL): re.compile(r"\s*!.*", re.DOTALL),
    _ADDRESS: re.compile(r"\s*(file:|\w[\w+.-]*::|(?!\w[\w+.-]*://)(?![^/]+:)).*", re.IGNORECASE | re.DOTALL),
}
"""Harmless unless the value is a command line, or a repository on this machine, whose own hooks a push would run."""
_OF_A_NEW_MODULE = re.compile(r"core\.(worktree|bare)|remote\..+\.url", re.IGNORECASE | re.DOTALL)
_WORKTREE_CONFIG = "extensions.worktreeconfig"
"""Turned on by git's own `sparse-checkout`: no harm in it as long as the files that it makes count hold none."""


def rows_of(git: Git, content: bytes) -> list[Row] | None:
    """Read every setting of a file, in order; None if git cannot read it."""
    answer = git.content("config", "--file", "-", "--no-includes", "--list", "-z", input=content, ok=range(256))
    if answer.code:
        return None
    split = (row.decode(errors="surrogateescape").partition("\n") for row in answer.out.split(b"\0") if row)
    return [(key, value if equals else "true") for key, equals, value in split]


def mended(
    git: Git, before: bytes, now: bytes, scratch: Path, *, along: bytes = b"", new_module: bool = False
) -> tuple[bytes, list[str]]:
    """Return the file without new dangerous settings, and the names of those.

    `along` is what git reads before this file. `new_module`: a submodule that was just added, with the settings of
    `git submodule add`.
    """
    were, are = rows_of(git, before) or [], rows_of(git, now)
    if are is None:
        return before, ["all of it, which git cannot read any more"]
    known = (*were, *(rows_of(git, along) or []))
    remotes = {found[1] for key, _ in known if (found := _ADDRESS.fullmatch(key))}
    old, new = _by_key(were, remotes), _by_key(are, remotes)
    # A setting that is dangerous with any value may also be dangerous to remove.
    due = [key for key in dict.fromkeys((*old, *new)) if key in new or _by_any_value(key, remotes)]
    due = [key for key in due if not (new_module and _OF_A_NEW_MODULE.fullmatch(key))]
    changed = [key for key in due if old.get(key) != new.get(key)]
    if not changed:
        return now, []
    others = [[row for row in rows if row[0] not in changed] for rows in (were, are)]
    wanted = {key: [value for name, value in were if name == key] for key in changed}
    content = before if others[0] == others[1] else _without(git, now, wanted, scratch)
    return content, [without_controls(key)[:_LONGEST_KEY] for key in changed]


def _by_any_value(key: str, remotes: Set[str]) -> bool:
    """Tell whether a setting is dangerous whatever it says; `remotes` were there before."""
    address = _ADDRESS.fullmatch(key)
    return bool(_DANGEROUS.fullmatch(key)) or (address is not None and address[1] in remotes)


def _by_key(rows: list[Row], remotes: Set[str]) -> dict[str, list[str]]:
    """Return the dangerous settings among these, each with its values."""
    found: dict[str, list[str]] = {}
    for key, value in rows:
        by_value = any(keys.fullmatch(key) and bad.fullmatch(value) for keys, bad in _DANGEROUS_BY_VALUE.items())
        if (by_value or _by_any_value(key, remotes)) and key != _WORKTREE_CONFIG:
            found.setdefault(key, []).append(value)
    return found


def _without(git: Git, content: bytes, wanted: dict[str, list[str]], scratch: Path) -> bytes:
    """Return the file with the old values of these settings."""
    file = temp_path(scratch)
    try:
        write_atomically(file, content)
        for key, values in wanted.items():
            git.content("config", "--file", str(file), "--unset-all", key, ok=(0, 5))
            for value in values:
                git.content("config", "--file", str(file), "--add", key, value)
        return read_regular(file, _LARGEST)
    finally:
        file.unlink(missing_ok=True)
