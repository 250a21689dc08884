"""Read files that people write for us, settings and workflows in YAML or TOML, strictly.

The YAML reader we use is fast and knows YAML 1.2, but forgives three things that a strict reader must not: it keeps the
last of two equal keys, it drops every document after the first, and a few nested aliases make it fill the memory. Equal
keys are found by reading the text a second time with every key made unique (its own place in the text is appended to
it): two keys of one mapping that differ only in that were the same. What is no key may be changed by the marking as
well, but only keys are looked at, so there are no false alarms.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from capsule.core.errors import SettingsError

LARGEST = 1024 * 1024
MOST_ALIASES = 10
MOST_DEEP = 100

# Compiled where they are first used, and remembered by `re`: many projects have no file of settings.
_KEY_END = r"(?<=[^\s:\"'{}\[\],])(?=[\"'][ \t]*:|[ \t]*:(?:\s|$))"
_MARKED = r"(?s)(.*)\ue000(\d+)\ue001"
_ANCHOR = r"([&*])(?<![^\s\[{,:][&*])(?=([^ \t\r\n\[\]{},\0\ufeff]{1,100}))"
"""An anchor or an alias. Its name is only looked at: what looks like one in a text may reach over a real one."""
_DEEP = rf"[ \t]*(?:[-?][ \t]+){{{MOST_DEEP},}}"
_POSITION = r" ?at byte \d+ line (\d+) column (\d+)"


def read_plain(path: Path) -> bytes | None:
    """Return the content of a regular file, following links (people link their dotfiles); None without a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise SettingsError(f"{path} cannot be read: {fault.strerror}.", "Make it a readable file.") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise SettingsError(f"{path} is not a regular file.", "Put a plain text file there, or nothing.")
    with os.fdopen(descriptor, "rb") as file:
        return file.read(LARGEST + 1)


def as_text(data: bytes, source: str) -> str:
    if len(data) > LARGEST:
        raise SettingsError(f"{source} is larger than {LARGEST // 1024} KiB.", "Shorten it to a page or two.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise SettingsError(f"{source}, line {line}: this is not UTF-8 text.", "Save the file as UTF-8.") from None


def parse_yaml(data: bytes, source: str) -> object:
    """Return the one document in the file, None where it is empty."""
    text = as_text(data, source)
    _refuse_bombs(text, source)
    try:
        documents = _documents(text)
    except ValueError as fault:
        # The parser's words, with the position where people look for it.
        words = str(fault).removeprefix("YAML parse error: ")
        position = re.search(_POSITION, words)
        where = f"{source}, line {position.group(1)}, column {position.group(2)}" if position else source
        hint = "Not valid YAML: look at this line and those just before it."
        raise SettingsError(f"{where}: {re.sub(_POSITION, '', words)}.", hint) from None
    if len(documents) > 1:
        raise SettingsError(f"{source} holds {len(documents)} YAML documents.", "Keep one; remove the `---` between.")
    for key, first, second in duplicate_keys(text):
        raise SettingsError(
            f"{source}, line {second}: the key `{key}` was given on line {first} already.", "Keep one of the two."
        )
    return documents[0] if documents else None


def parse_scalar(text: str) -> object:
    """Return what a text means as YAML; where it means nothing, the text itself."""
    try:
        _refuse_bombs(text, "value")
        documents = _documents(text)
    except (ValueError, SettingsError):
        return text
    return documents[0] if documents else None


def parse_toml(data: bytes, source: str) -> dict[str, object]:
    import tomllib  # noqa: PLC0415 - few projects have such a file

    try:
        return tomllib.loads(as_text(data, source))
    except (tomllib.TOMLDecodeError, RecursionError) as fault:
        raise SettingsError(f"{source} is not valid TOML: {fault}.", "Fix that line.") from None


def _documents(text: str) -> list[object]:
    import yaml12  # noqa: PLC0415 - commands that read no settings do not pay for it

    return list(yaml12.parse_yaml(text, multi=True))


def _refuse_bombs(text: str, source: str) -> None:
    """Refuse what overflows the parser's stack or memory: thousands of nested dashes or brackets, nested aliases."""
    for number, line in enumerate(text.splitlines(), 1):
        deep = re.match(_DEEP, line) or line.startswith(" " * 10 * MOST_DEEP)
        if deep or max(line.count("["), line.count("{")) > MOST_DEEP:
            raise SettingsError(f"{source}, line {number}: this is nested too deeply.", "Nest it less.")
    if (aliases := count_aliases(text)) > MOST_ALIASES:
        raise SettingsError(f"{source} uses {aliases} YAML aliases.", f"Write it out: {MOST_ALIASES} are the most.")


def count_aliases(text: str) -> int:
    """Count the places of a YAML text that may repeat what an anchor names."""
    if "&" not in text:
        return 0
    anchors = {found[2] for found in re.finditer(_ANCHOR, text) if found[1] == "&"}
    return sum(found[1] == "*" and found[2] in anchors for found in re.finditer(_ANCHOR, text) if anchors)


def duplicate_keys(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield keys that occur twice in one mapping, with their lines."""
    marked = re.sub(_KEY_END, lambda found: f"\ue000{found.start()}\ue001", text)
    try:
        documents = _documents(marked)
    except ValueError:  # a marked alias or tag: then the parser's own reading has to do
        return
    for mapping in _mappings(documents):
        seen: dict[str, int] = {}
        for found in filter(None, (re.fullmatch(_MARKED, str(key)) for key in mapping)):
            name, place = found.group(1), int(found.group(2))
            if name in seen:
                yield name, text.count("\n", 0, seen[name]) + 1, text.count("\n", 0, place) + 1
            seen[name] = place


def _mappings(node: object) -> Iterator[dict[object, object]]:
    if isinstance(node, dict):
        yield node
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    for child in children:
        yield from _mappings(child)
